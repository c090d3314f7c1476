//! The table of `status`.

use jiff::Timestamp;
use shared::kinds::{Column, Record};

use view::columns::{self, Tone};

use crate::output::{Color, Columns};

/// What the table shows besides the records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// `-A`: the namespace is a column.
    pub(crate) namespaces: bool,
    /// Which columns.
    pub(crate) width: Width,
    /// Several kinds: names carry their type.
    pub(crate) types: bool,
    /// Whether states are colored.
    pub(crate) colors: bool,
}

/// How many columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// Those that say something of some target.
    Narrow,
    /// `-o wide`.
    Wide,
}

/// The columns; with `-o wide` those of the kinds come between the first and the last.
fn columns(
    layout: Layout,
    of_kinds: Vec<&'static Column>,
    records: &[&Record],
    now: Timestamp,
) -> Vec<&'static Column> {
    let namespace = layout.namespaces.then_some(&columns::NAMESPACE);
    let name = if layout.types { &columns::TYPE_AND_NAME } else { &columns::NAME };
    let is_wide = layout.width == Width::Wide;
    let of_kinds = if is_wide { of_kinds } else { Vec::new() };
    let has = |column: &Column| records.iter().any(|record| !(column.cell)(record, now).is_empty());
    let times = columns::TIMES.iter().filter(|column| is_wide || has(column));
    namespace
        .into_iter()
        .chain([name])
        .chain(&columns::FIRST)
        .chain(of_kinds)
        .chain(times)
        .chain([&columns::STEP])
        .collect()
}

/// A table whose columns keep their width, so that lines can be added to it.
pub(crate) struct Table {
    layout: Layout,
    columns: Vec<&'static Column>,
    widths: Columns,
}

impl Table {
    /// Columns as wide as these records need; `of_kinds` are the columns that kinds add.
    pub(crate) fn new<'a>(
        layout: Layout,
        of_kinds: Vec<&'static Column>,
        records: impl IntoIterator<Item = &'a Record>,
        now: Timestamp,
    ) -> Self {
        let records: Vec<&Record> = records.into_iter().collect();
        let columns = columns(layout, of_kinds, &records, now);
        let rows = records.iter().map(|record| cells(&columns, record, now));
        let widths = Columns::new(&[headers(&columns)].into_iter().chain(rows).collect::<Vec<_>>());
        Self { layout, columns, widths }
    }

    /// The line of headers.
    pub(crate) fn head(&self) -> String {
        self.widths.line(&headers(&self.columns), None)
    }

    /// The line of a record.
    pub(crate) fn line(&self, record: &Record, now: Timestamp) -> String {
        let state = self.columns.iter().position(|column| column.header == columns::STATE);
        let color = color(record).filter(|_| self.layout.colors);
        self.widths.line(&cells(&self.columns, record, now), state.zip(color))
    }
}

fn headers(columns: &[&Column]) -> Vec<String> {
    columns.iter().map(|column| column.header.to_owned()).collect()
}

fn cells(columns: &[&Column], record: &Record, now: Timestamp) -> Vec<String> {
    // An empty cell would shift the columns for scripts that split at spaces.
    let cell = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    columns.iter().map(|column| cell((column.cell)(record, now))).collect()
}

fn color(record: &Record) -> Option<Color> {
    Some(match columns::tone(record)? {
        Tone::Failed => Color::Red,
        Tone::Awake => Color::Green,
        Tone::Asleep => Color::Blue,
        Tone::Moving => Color::Yellow,
    })
}

#[cfg(test)]
mod tests {
    use shared::kinds::{Governed, Instances, KINDS, ScheduledChange, StepRecord};

    use super::*;

    const LAYOUT: Layout = Layout { namespaces: false, width: Width::Narrow, types: false, colors: false };

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

    fn table_of(layout: Layout, records: &[Record]) -> Table {
        Table::new(layout, KINDS.wide_columns(&[]), records, now())
    }

    fn drawn(layout: Layout) -> String {
        let records = records();
        let table = table_of(layout, &records);
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
        let table = table_of(LAYOUT, std::slice::from_ref(&record));
        assert!(table.head().ends_with("REASON                    UNTIL          STEP"), "{}", table.head());
        assert!(table.line(&record, now()).ends_with("wakes in 14h   -"), "{}", table.line(&record, now()));
    }

    #[test]
    fn the_schedule_and_its_next_edge_are_columns_where_a_target_has_one() {
        let mut records = records();
        let next = |at: &str, power: &str| ScheduledChange { at: at.parse().unwrap(), power: power.into() };
        let night = Governed {
            kind: "powerschedule.hibernate.sh".into(),
            namespace: "clusters".into(),
            name: "night".into(),
            suspended: false,
            next: vec![next("2026-11-21T15:00:00Z", "Awake"), next("2026-11-21T18:00:00Z", "Sleep")],
        };
        let everywhere = Governed { namespace: String::new(), suspended: true, next: Vec::new(), ..night.clone() };
        (records[1].schedule, records[2].schedule) = (Some(night), Some(everywhere));
        let table = table_of(LAYOUT, &records);
        assert!(table.head().contains("   SCHEDULE      NEXT            STEP"), "{}", table.head());
        for (at, expected) in [
            (0, "   -             -               -"),
            (1, "   night         Sleep in 120m   "),
            (2, "   cpsch/night   suspended       -"),
        ] {
            let line = table.line(&records[at], now());
            assert!(line.contains(expected), "{line}");
        }
    }

    #[test]
    fn a_long_reason_does_not_widen_the_table() {
        let mut record = records().swap_remove(0);
        record.reason = Some("x".repeat(100_000));
        let table = table_of(LAYOUT, std::slice::from_ref(&record));
        assert!(table.line(&record, now()).len() < 200 && table.head().len() < 200);
    }

    #[test]
    fn colors_do_not_move_columns() {
        let plain = drawn(LAYOUT);
        let colored = drawn(Layout { colors: true, ..LAYOUT });
        assert_ne!(colored, plain);
        let mut stripped = colored;
        for code in ["31", "32", "33", "34", "0"] {
            stripped = stripped.replace(&format!("\x1b[{code}m"), "");
        }
        assert_eq!(stripped, plain);
    }

    #[test]
    fn a_line_added_later_keeps_at_least_the_gap() {
        let records = records();
        let table = table_of(LAYOUT, &records[2..3]);
        assert!(table.line(&records[1], now()).starts_with("other-cluster   Hibernating   "));
    }
}
