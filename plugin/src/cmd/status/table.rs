//! The table of `status`: columns as kubectl prints them, three spaces apart, no boxes.

use jiff::Timestamp;

use crate::{
    cmd::status::{instances::Instances, record::Record, schedule},
    output::{self, Colour, age::age},
};

/// Spaces between columns, as in kubectl.
const GAP: usize = 3;

/// The widest that a reason may make its column; JSON and YAML have all of it.
const REASON: usize = 60;

/// What the table shows besides the records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// `-A`: the namespace is a column.
    pub(crate) namespaces: bool,
    /// Which columns.
    pub(crate) width: Width,
    /// Several kinds: names carry their type.
    pub(crate) types: bool,
    /// Whether states are coloured.
    pub(crate) colours: bool,
}

/// How many columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// What everybody wants to know.
    Narrow,
    /// The same, and the ends of sleeps and holds, because some target has one.
    Scheduled,
    /// `-o wide`.
    Wide,
}

struct Column {
    header: &'static str,
    show: fn(Layout) -> bool,
    cell: fn(&Record, Layout, Timestamp) -> String,
}

const COLUMNS: &[Column] = &[
    Column { header: "NAMESPACE", show: |layout| layout.namespaces, cell: |record, _, _| record.namespace.clone() },
    Column { header: "NAME", show: |_| true, cell: |record, layout, _| name(record, layout) },
    Column { header: "DESIRED", show: |_| true, cell: |record, _, _| record.desired.clone() },
    Column { header: "STATE", show: |_| true, cell: |record, _, _| record.observed.clone() },
    Column {
        header: "SINCE",
        show: |_| true,
        cell: |record, _, now| record.since.map(|since| age(since, now)).unwrap_or_default(),
    },
    Column {
        header: "REQUESTED-BY",
        show: |_| true,
        cell: |record, _, _| record.requested_by.clone().unwrap_or_default(),
    },
    Column {
        header: "REASON",
        show: |_| true,
        cell: |record, _, _| short(record.reason.as_deref().unwrap_or_default()),
    },
    Column {
        header: "PLATFORM",
        show: |layout| layout.width == Width::Wide,
        cell: |record, _, _| record.platform.clone().unwrap_or_default(),
    },
    Column {
        header: "REGION",
        show: |layout| layout.width == Width::Wide,
        cell: |record, _, _| record.region.clone().unwrap_or_default(),
    },
    Column { header: "INSTANCES", show: |layout| layout.width == Width::Wide, cell: |record, _, _| instances(record) },
    Column {
        header: "HIBERNATE-AFTER",
        show: |layout| layout.width == Width::Wide,
        cell: |record, _, _| record.hibernate_after.clone().unwrap_or_default(),
    },
    Column {
        header: "FIRES-AT",
        show: |layout| layout.width == Width::Wide,
        cell: |record, _, now| fires_at(record, now),
    },
    Column {
        header: "SCHEDULE",
        show: |layout| layout.width != Width::Narrow,
        cell: |record, _, now| schedule::shown(record, now),
    },
    // Last, because it can be long.
    Column { header: "STEP", show: |_| true, cell: |record, _, _| step(record) },
];

fn name(record: &Record, layout: Layout) -> String {
    if layout.types { format!("{}/{}", record.kind, record.name) } else { record.name.clone() }
}

/// The text, or its beginning with `…`.
fn short(text: &str) -> String {
    if text.chars().nth(REASON).is_none() {
        return text.to_owned();
    }
    let begin: String = text.chars().take(REASON - 1).collect();
    begin.trim_end().to_owned() + "…"
}

/// `4/6 stopped` where the total is known, `2 to stop` where only those are named that lag behind.
fn instances(record: &Record) -> String {
    let (done, to_do) = if record.desired == "Hibernating" { ("stopped", "to stop") } else { ("running", "to start") };
    match (record.instances, record.replicas, &record.recorded_replicas) {
        (Some(Instances { total: Some(total), awaited: 0 }), ..) => total.to_string(),
        (Some(Instances { total: Some(total), awaited }), ..) => {
            format!("{}/{total} {done}", total.saturating_sub(awaited))
        }
        (Some(Instances { total: None, awaited }), ..) => format!("{awaited} {to_do}"),
        (None, Some(0), Some(recorded)) => format!("0 ({recorded} recorded)"),
        (None, Some(replicas), _) => replicas.to_string(),
        (None, None, _) => String::new(),
    }
}

fn fires_at(record: &Record, now: Timestamp) -> String {
    match record.fires_at {
        Some(at) if at <= now => "due".to_owned(),
        Some(at) => at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        None => String::new(),
    }
}

fn step(record: &Record) -> String {
    match &record.step {
        None => String::new(),
        // The reason is the state in nearly all cases, and then it stands two columns before.
        Some(step) if step.reason.is_empty() || step.reason == record.observed => step.message.clone(),
        Some(step) => format!("{}: {}", step.reason, step.message),
    }
}

/// A table whose columns keep their width, so that lines can be added to it.
pub(crate) struct Table {
    layout: Layout,
    widths: Vec<usize>,
}

impl Table {
    /// Columns as wide as these records need.
    pub(crate) fn new(layout: Layout, records: &[Record], now: Timestamp) -> Self {
        let mut widths: Vec<usize> = columns(layout).map(|column| column.header.len()).collect();
        for record in records {
            for (width, cell) in widths.iter_mut().zip(cells(record, layout, now)) {
                *width = (*width).max(cell.chars().count());
            }
        }
        Self { layout, widths }
    }

    /// The line of headers.
    pub(crate) fn head(&self) -> String {
        let headers = columns(self.layout).map(|column| column.header.to_owned()).collect::<Vec<_>>();
        self.pad(&headers, None)
    }

    /// The line of a record.
    pub(crate) fn line(&self, record: &Record, now: Timestamp) -> String {
        self.pad(&cells(record, self.layout, now), self.layout.colours.then(|| colour(record)).flatten())
    }

    /// Cells side by side; the STATE cell in its colour, which must not count as width.
    fn pad(&self, cells: &[String], colour: Option<Colour>) -> String {
        let mut line = String::new();
        for ((cell, width), column) in cells.iter().zip(&self.widths).zip(columns(self.layout)) {
            let spaces = " ".repeat((width + GAP).saturating_sub(cell.chars().count()).max(GAP));
            match colour {
                Some(colour) if column.header == "STATE" => line += &colour.paint(cell, true),
                _ => line += cell,
            }
            line += &spaces;
        }
        line.trim_end().to_owned()
    }
}

fn columns(layout: Layout) -> impl Iterator<Item = &'static Column> {
    COLUMNS.iter().filter(move |column| (column.show)(layout))
}

fn cells(record: &Record, layout: Layout, now: Timestamp) -> Vec<String> {
    let cells = columns(layout).map(|column| match (column.cell)(record, layout, now) {
        // An empty cell would shift the columns for whoever cuts the line at spaces.
        cell if cell.is_empty() => "-".to_owned(),
        cell => output::plain(&cell.replace('\n', " ")),
    });
    cells.collect()
}

fn colour(record: &Record) -> Option<Colour> {
    let failed = record.step.as_ref().is_some_and(|step| step.failed);
    match record.observed.as_str() {
        _ if failed => Some(Colour::Red),
        "Running" => Some(Colour::Green),
        "Hibernating" => Some(Colour::Blue),
        "" | "Unknown" => None,
        _ => Some(Colour::Yellow),
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::StepRecord;
    use super::*;

    const LAYOUT: Layout = Layout { namespaces: false, width: Width::Narrow, types: false, colours: false };

    fn now() -> Timestamp {
        "2026-11-21T16:00:00Z".parse().unwrap()
    }

    fn records() -> Vec<Record> {
        let base = |name: &str, desired: &str, observed: &str| Record {
            kind: "clusterdeployment.hive.openshift.io".into(),
            namespace: "clusters".into(),
            name: name.into(),
            desired: desired.into(),
            observed: observed.into(),
            platform: Some("aws".into()),
            region: Some("eu-central-1".into()),
            ..Record::default()
        };
        let stopping = StepRecord {
            reason: "WaitingForMachinesToStop".into(),
            message: "Stopping cluster machines. Some machines have not yet stopped: i-1,i-2".into(),
            failed: false,
        };
        vec![
            Record {
                since: Some("2026-11-20T19:00:00Z".parse().unwrap()),
                requested_by: Some("alice".into()),
                reason: Some("weekend, \u{1b}[31mreally\nso".into()),
                ..base("demo", "Hibernating", "Hibernating")
            },
            Record {
                since: Some("2026-11-21T15:59:00Z".parse().unwrap()),
                step: Some(stopping),
                instances: Some(Instances { total: None, awaited: 2 }),
                ..base("other-cluster", "Hibernating", "WaitingForMachinesToStop")
            },
            Record {
                hibernate_after: Some("8h".into()),
                instances: Some(Instances { total: Some(6), awaited: 0 }),
                fires_at: Some("2026-11-21T18:30:00Z".parse().unwrap()),
                ..base("third", "Running", "Running")
            },
            base("new", "Running", ""),
            Record {
                kind: "deployment.apps".into(),
                replicas: Some(0),
                recorded_replicas: Some("3".into()),
                platform: None,
                region: None,
                ..base("web", "Hibernating", "Hibernating")
            },
        ]
    }

    fn drawn(layout: Layout) -> String {
        let records = records();
        let table = Table::new(layout, &records, now());
        let lines = records.iter().map(|record| table.line(record, now()));
        std::iter::once(table.head()).chain(lines).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn narrow() {
        insta::assert_snapshot!(drawn(LAYOUT));
    }

    #[test]
    fn wide_with_namespaces_and_types() {
        insta::assert_snapshot!(drawn(Layout { width: Width::Wide, namespaces: true, types: true, ..LAYOUT }));
    }

    #[test]
    fn ends_of_sleeps_are_a_column_where_there_are_any() {
        let mut record = records().swap_remove(0);
        record.wake_at = Some("2026-11-22T06:00:00Z".into());
        let table = Table::new(Layout { width: Width::Scheduled, ..LAYOUT }, std::slice::from_ref(&record), now());
        assert!(table.head().ends_with("SCHEDULE       STEP"), "{}", table.head());
        assert!(table.line(&record, now()).ends_with("wakes in 14h   -"), "{}", table.line(&record, now()));
    }

    #[test]
    fn a_long_reason_does_not_widen_the_table() {
        for (reason, expected) in [
            (String::new(), String::new()),
            ("ä".repeat(60), "ä".repeat(60)),
            ("ä".repeat(61), "ä".repeat(59) + "…"),
            (format!("{} {}", "x".repeat(58), "y".repeat(100_000)), "x".repeat(58) + "…"),
        ] {
            assert_eq!(short(&reason), expected);
        }
        let mut record = records().swap_remove(0);
        record.reason = Some("x".repeat(100_000));
        let table = Table::new(LAYOUT, std::slice::from_ref(&record), now());
        assert!(table.line(&record, now()).len() < 200 && table.head().len() < 200);
    }

    #[test]
    fn colours_do_not_move_columns() {
        let plain = drawn(LAYOUT);
        let coloured = drawn(Layout { colours: true, ..LAYOUT });
        assert_ne!(coloured, plain);
        let mut stripped = coloured;
        for code in ["31", "32", "33", "34", "0"] {
            stripped = stripped.replace(&format!("\x1b[{code}m"), "");
        }
        assert_eq!(stripped, plain);
    }

    #[test]
    fn a_line_added_later_keeps_at_least_the_gap() {
        let records = records();
        let table = Table::new(LAYOUT, &records[2..3], now());
        assert!(table.line(&records[1], now()).starts_with("other-cluster   Hibernating   "));
    }
}
