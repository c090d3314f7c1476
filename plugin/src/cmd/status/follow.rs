//! Objects that are only shown, as a list or each by its name with everything, and again with each change.

use std::collections::BTreeMap;
use std::io::{IsTerminal, stdout};
use std::time::Duration;

use hub::watch::{Event, Place, Scope};
use hub::{HubClient, Resource};
use jiff::Timestamp;
use serde_json::Value;
use shared::kinds::Kind;

use super::{ended, show};
use crate::cli::{HubArgs, StatusArgs, StatusOutput};
use crate::error::{Exit, Failure, Problem};
use crate::output::{self, Color};

/// How often ages are drawn anew on a terminal.
const TICK: Duration = Duration::from_secs(10);
/// Puts the cursor into the corner and clears the terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// What `status` shows of an object.
pub(super) trait Shown: Clone + PartialEq + Sized {
    /// Kind of the list that `-o json` prints.
    const LIST: &'static str;
    /// Head of the table.
    const HEAD: &'static [&'static str];

    /// Its kind.
    fn kind() -> &'static Kind;
    /// Reads the object.
    fn read(object: Value) -> Result<Self, Problem>;
    /// Its namespace, empty without one, and its name.
    fn place(&self) -> Place;
    /// In the form that `-o json` documents.
    fn documented(&self) -> Value;
    /// A line of the table.
    fn line(&self, now: Timestamp) -> Vec<String>;
    /// Everything, sanitized, and with colors if they are on.
    fn full(&self, now: Timestamp, colors: bool) -> Vec<String>;
    /// The object was deleted.
    fn gone(self) -> Self;
}

/// The name of an object and what is known of it, a sanitized line each. One of them may have a color.
pub(super) fn described<T: Shown>(
    record: &T,
    width: usize,
    fields: &[(&str, Option<String>)],
    (colored, color): (&str, Option<Color>),
) -> Vec<String> {
    let line = |(name, value): &(&str, Option<String>)| {
        let value = output::one_line(value.as_deref()?);
        let value = match color.filter(|_| *name == colored) {
            Some(color) => color.paint(&value, true),
            None => value,
        };
        Some(format!("  {:<width$}{value}", format!("{name}:")))
    };
    let name = output::one_line(&T::kind().full_name(&record.place().1));
    std::iter::once(name).chain(fields.iter().filter_map(line)).collect()
}

/// Shows objects, and with `--watch` their changes, in a namespace, or all of them.
pub(super) async fn run<T: Shown>(
    hub: &HubClient,
    (namespace, names): (Option<&str>, &[String]),
    found: Vec<(String, Result<Value, Problem>)>,
    args: &StatusArgs,
    hub_args: &HubArgs,
) -> Result<Exit, Problem> {
    let (mut records, mut exits) = (Vec::new(), Vec::new());
    for (name, found) in found {
        match found.and_then(T::read) {
            Ok(record) => records.push(record),
            Err(problem) => exits.push(output::failed(&Failure::new(T::kind().full_name(&name), problem))),
        }
    }
    let printer = Printer { args, single: !names.is_empty(), screen: args.watch && stdout().is_terminal() };
    printer.all(&records);
    let exit = ended(args, records.is_empty(), exits, namespace);
    if args.watch && exit == Exit::Done {
        let labels = hub_args.selector.as_deref().unwrap_or_default();
        let scope = Scope { namespace, names, labels, tick: TICK, ..Scope::of(Resource::preferred(T::kind())) };
        watch(hub, scope, &printer, records).await?;
    }
    Ok(exit)
}

/// Prints every change. Returns when the output is closed, and on permanent failures.
async fn watch<T: Shown>(
    hub: &HubClient,
    scope: Scope<'_>,
    printer: &Printer<'_>,
    records: Vec<T>,
) -> Result<(), Problem> {
    let mut known: BTreeMap<Place, T> = records.into_iter().map(|record| (record.place(), record)).collect();
    let mut watcher = hub.watcher(scope);
    while !output::is_unread() {
        let changed = match watcher.next().await? {
            Event::Applied(object) => {
                let record = T::read(object)?;
                if known.insert(record.place(), record.clone()).as_ref() == Some(&record) {
                    continue;
                }
                Some(record)
            }
            Event::Deleted(place) => match known.remove(&place) {
                Some(record) => Some(record.gone()),
                None => continue,
            },
            Event::Tick => None,
        };
        printer.change(&known, changed.as_ref());
    }
    Ok(())
}

struct Printer<'a> {
    args: &'a StatusArgs,
    /// Whether objects were named: each is shown with everything.
    single: bool,
    /// Whether a change draws everything anew in place.
    screen: bool,
}

impl Printer<'_> {
    fn all<T: Shown>(&self, records: &[T]) {
        let list = || output::list(T::LIST, &records.iter().map(T::documented).collect::<Vec<_>>());
        match self.args.output {
            StatusOutput::Json if !self.args.watch => output::text(&output::json(&list())),
            StatusOutput::Yaml if !self.args.watch => output::text(&output::yaml(&list())),
            StatusOutput::Table | StatusOutput::Wide => self.tables(records.iter()),
            _ => records.iter().for_each(|record| self.one(record)),
        }
    }

    fn tables<'a, T: Shown + 'a>(&self, records: impl Iterator<Item = &'a T>) {
        let now = Timestamp::now();
        let colors = output::colors(&stdout());
        if self.screen {
            output::colored(CLEAR);
        }
        if self.single {
            for (at, record) in records.enumerate() {
                if at > 0 {
                    output::line("");
                }
                show(&record.full(now, colors));
            }
            return;
        }
        let lines: Vec<Vec<String>> = records.map(|record| record.line(now)).collect();
        let head: &[&str] = if self.args.no_headers || lines.is_empty() { &[] } else { T::HEAD };
        show(&output::table(head, lines));
    }

    /// A change, given all objects as they are now. Without one only the time has passed.
    fn change<T: Shown>(&self, known: &BTreeMap<Place, T>, changed: Option<&T>) {
        match (self.args.output, changed) {
            (StatusOutput::Table | StatusOutput::Wide, _) if self.screen => self.tables(known.values()),
            (_, None) => {}
            (StatusOutput::Table | StatusOutput::Wide, Some(record)) if self.single => {
                output::line("");
                show(&record.full(Timestamp::now(), false));
            }
            (StatusOutput::Table | StatusOutput::Wide, Some(record)) => {
                show(&output::table(&[], [record.line(Timestamp::now())]));
            }
            (_, Some(record)) => self.one(record),
        }
    }

    fn one<T: Shown>(&self, record: &T) {
        match self.args.output {
            StatusOutput::Json => output::text(&output::json(&record.documented())),
            StatusOutput::Yaml => output::text(&format!("---\n{}", output::yaml(&record.documented()))),
            _ => output::line(&T::kind().full_name(&record.place().1)),
        }
    }
}
