//! Prints items in the format that was asked for.

use std::io::{IsTerminal, stdout};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use shared::kinds::{Column, Record, ShownKind, Shows};
use view::entries::{Entries, Update};
use view::pool::PoolState;
use view::{Item, ItemList, lines};

use super::table::{self, Table, Width};
use super::{Render, Style, pools};
use crate::cli::{HubArgs, StatusArgs, StatusOutput};
use crate::output;

/// Puts the cursor into the corner and clears the terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// The format, and what is known of the table.
pub(super) struct Printer<'a> {
    args: &'a StatusArgs,
    shown: Option<&'static ShownKind>,
    layout: Layout,
    /// Whether a change draws everything anew in place.
    has_screen: bool,
    /// What no event mends, such as a name that was not found.
    pub(super) failures: Vec<String>,
}

/// How a person reads the items.
enum Layout {
    /// A line for each target, in columns that keep their width.
    Targets(Table),
    /// Pools, and below them their clusters.
    Pools { namespaces: bool },
    /// A line for each, below these headers.
    Lines(&'static [&'static str]),
    /// Everything of each.
    Full,
}

impl Layout {
    fn new(shown: Option<&ShownKind>, is_named: bool, table: impl FnOnce() -> Table, namespaces: bool) -> Self {
        match shown.map(|row| row.shows) {
            None => Self::Targets(table()),
            Some(Shows::ClusterPool) => Self::Pools { namespaces },
            Some(shows) => lines::head(shows).filter(|_| !is_named).map_or(Self::Full, Self::Lines),
        }
    }
}

impl<'a> Printer<'a> {
    /// For these items at first; `of_kinds` are the columns that kinds add to the wide table. `is_named`: whether
    /// objects were named, and each is shown with everything.
    pub(super) fn new(
        args: &'a StatusArgs,
        hub_args: &HubArgs,
        (shown, is_named): (Option<&'static ShownKind>, bool),
        of_kinds: Vec<&'static Column>,
        items: &[Item],
    ) -> Self {
        let table = || targets(args, hub_args, of_kinds, &items.iter().filter_map(record).collect::<Vec<_>>());
        let layout = Layout::new(shown, is_named, table, hub_args.all_namespaces);
        let has_screen = args.watch && shown.is_some() && stdout().is_terminal();
        Self { args, shown, layout, has_screen, failures: Vec::new() }
    }

    /// What is known at the start.
    pub(super) fn all(&self, items: &[Item]) {
        let items: Vec<&Item> = items.iter().collect();
        let list = ItemList::new(self.shown, &items);
        match self.args.output {
            StatusOutput::Table | StatusOutput::Wide => self.draw(&items),
            StatusOutput::Json | StatusOutput::Yaml if self.args.watch => items.iter().for_each(|item| self.one(item)),
            // The keys of these lists are sorted.
            StatusOutput::Json | StatusOutput::Yaml if self.shown.is_some() => self.text(&json!(list)),
            StatusOutput::Json | StatusOutput::Yaml => self.text(&list),
            StatusOutput::Name => items.iter().for_each(|item| self.one(item)),
        }
    }

    /// A change, given everything as it is now.
    pub(super) fn update(&self, known: &Entries, update: &Update) {
        match update {
            Update::None => {}
            _ if self.has_screen && self.args.output.is_table() => {
                self.draw(&known.values().flatten().collect::<Vec<_>>());
                let colors = output::colors(&stdout());
                let texts = self.failures.iter().chain(known.values().filter_map(|entry| entry.as_ref().err()));
                texts.for_each(|text| output::colored(&output::error_line(text, colors)));
            }
            Update::Refresh => {}
            Update::Entry(Ok(item)) if self.args.output.is_table() => print(&self.lines(&[item], false)),
            Update::Entry(Ok(item)) => self.one(item),
            Update::Entry(Err(text)) => output::error(text),
        }
    }

    fn one(&self, item: &Item) {
        match self.args.output {
            StatusOutput::Name | StatusOutput::Table | StatusOutput::Wide => {
                let (kind, _, name) = item.key();
                output::line(&format!("{kind}/{name}"));
            }
            StatusOutput::Json => self.text(item),
            StatusOutput::Yaml => {
                output::text("---\n");
                self.text(item);
            }
        }
    }

    fn text(&self, value: &impl Serialize) {
        output::structured(value, self.args.output == StatusOutput::Json);
    }

    fn draw(&self, items: &[&Item]) {
        if self.has_screen {
            output::colored(CLEAR);
        }
        print(&self.lines(items, true));
    }

    /// Sanitized lines of all items, or of one more.
    fn lines(&self, items: &[&Item], is_all: bool) -> Vec<String> {
        let now = Timestamp::now();
        let headers = is_all && !self.args.no_headers;
        match &self.layout {
            Layout::Targets(table) => {
                let head = (headers && (!items.is_empty() || self.args.watch)).then(|| table.head());
                let lines = items.iter().copied().filter_map(record).map(|record| table.line(record, now));
                head.into_iter().chain(lines).collect()
            }
            Layout::Pools { namespaces } => {
                let pools: Vec<&PoolState> = items.iter().copied().filter_map(pool).collect();
                pools::tables(&pools, *namespaces, headers, now)
            }
            Layout::Lines(head) => {
                let lines = items.iter().copied().filter_map(|item| lines::line(item, now));
                output::table(if headers && !items.is_empty() { head } else { &[] }, lines)
            }
            Layout::Full => {
                let wide = self.args.output == StatusOutput::Wide;
                let style = Style { now, colors: output::colors(&stdout()), headers: !self.args.no_headers, wide };
                let full = |item: &dyn Render| std::iter::once(String::new()).chain(item.full(&style));
                let lines = items.iter().copied().filter_map(rendered).flat_map(full);
                lines.skip(usize::from(is_all)).collect()
            }
        }
    }
}

/// The table of targets, as wide as these records need.
fn targets(args: &StatusArgs, hub_args: &HubArgs, of_kinds: Vec<&'static Column>, records: &[&Record]) -> Table {
    let now = Timestamp::now();
    let layout = table::Layout {
        namespaces: hub_args.all_namespaces,
        width: if args.output == StatusOutput::Wide { Width::Wide } else { Width::Narrow },
        types: records.iter().any(|record| record.kind != records[0].kind),
        colors: output::colors(&stdout()),
    };
    Table::new(layout, of_kinds, records.iter().copied(), now)
}

fn record(item: &Item) -> Option<&Record> {
    item.target().map(|target| &target.record)
}

fn pool(item: &Item) -> Option<&PoolState> {
    if let Item::Pool(pool) = item { Some(pool) } else { None }
}

fn rendered(item: &Item) -> Option<&dyn Render> {
    match item {
        Item::Database(database) => Some(&**database),
        Item::Rollout(rollout) => Some(&**rollout),
        Item::Upgrade(upgrade) => Some(&**upgrade),
        Item::Schedule(schedule) => Some(&**schedule),
        Item::Target(_) | Item::Pool(_) => None,
    }
}

/// Prints lines whose parts are sanitized already.
fn print(lines: &[String]) {
    for line in lines {
        output::colored(line);
    }
}
