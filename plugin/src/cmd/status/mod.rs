//! `status`: what sleeps, what is awake, what is going on.

mod fdb;
mod pools;
mod printer;
mod rollouts;
mod schedules;
mod table;
mod upgrades;

use std::pin::pin;

use futures::{Stream, StreamExt};
use hub::error::HubError;
use jiff::Timestamp;
use shared::kinds::{Kinds, TargetKind};
use shared::text::name_some;
use view::entries::{self, Entries};
use view::target::TargetState;
use view::{Event, Item, Listing, Query};

use self::printer::Printer;
use crate::cli::{HubArgs, StatusArgs};
use crate::connect::connect;
use crate::error::{Exit, Problem, UsageError};
use crate::output::{self, Color, nothing_found};
use crate::read::untouched;
use crate::select::{Flags, only_shown, parse};

/// How an object is printed.
#[derive(Clone, Copy, Debug)]
struct Style {
    now: Timestamp,
    colors: bool,
    /// Whether inner tables have headers.
    headers: bool,
    /// `-o wide`.
    wide: bool,
}

/// An object as a person reads it.
trait Render {
    /// Everything, sanitized.
    fn full(&self, style: &Style) -> Vec<String>;
}

/// Runs the command.
///
/// # Errors
/// When nothing can be asked at all. Failures of single objects are printed and counted.
pub(crate) async fn run(kinds: Kinds, args: &StatusArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    let query = query(kinds, args, hub_args)?;
    let shown = query.kinds.first().and_then(|row| row.shown());
    let hub = connect(hub_args)?;
    let Listing { mut items, mut failures, watched } = view::list(&hub, &query).await;
    untouched::note_unseen(&failures);
    failures.retain(|failure| !failure.is_unseen);
    if let Some(at) = failures.iter().position(|failure| failure.is_of_kind && shown.is_some()) {
        return Err(failures.swap_remove(at).error.into());
    }
    let targets: Vec<&TargetState> = items.iter().filter_map(Item::target).collect();
    if let Some(text) = unread(&targets) {
        output::warning(&text);
    }
    let columns = kinds.wide_columns(&selected(&query, &targets));
    items.retain(|item| query.shows(item));
    let mut printer = Printer::new(args, hub_args, (shown, !query.names.is_empty()), columns, &items);
    printer.all(&items);
    let (mut known, others) = entries::of_failures(&failures);
    printer.failures = others;
    // Behind the table, as kubectl does: a screen is cleared first.
    let exits: Vec<Exit> = failures.into_iter().map(|failure| output::failed(&failure.into())).collect();
    if args.output.is_table() {
        items.iter().flat_map(warnings).for_each(|text| output::warning(&text));
        let sleeps = |item: &Item| item.target().is_some_and(|target| target.record.desired == "Hibernating");
        if let Some(namespace) = query.whole().filter(|_| items.iter().any(sleeps)) {
            untouched::note(&hub, kinds, namespace).await;
        }
        if items.is_empty() && exits.is_empty() {
            output::note(&nothing_found(query.searched(&hub)));
        }
    }
    if args.watch {
        known.extend(items.into_iter().map(|item| (item.key(), Ok(item))));
        watch(view::follow(&hub, &query, &watched), &query, &printer, &mut known).await?;
    }
    Ok(Exit::of(exits))
}

fn query(kinds: Kinds, args: &StatusArgs, hub_args: &HubArgs) -> Result<Query, UsageError> {
    let flags = Flags { lists: true, ..Flags::new(hub_args, false) };
    let Some(query) = only_shown(kinds, &args.targets, flags)? else {
        return parse(kinds, &args.targets, flags);
    };
    match query.kinds.first().and_then(|row| row.shown()?.not_watched) {
        Some(why) if args.watch => Err(UsageError::OnlyShown(why.to_owned())),
        _ => Ok(query),
    }
}

/// The kinds whose columns are shown: those that were named, and of others those that were found.
fn selected(query: &Query, targets: &[&TargetState]) -> Vec<&'static TargetKind> {
    let is_found = |row: &&TargetKind| targets.iter().any(|target| target.row == *row);
    match query.kinds.iter().filter_map(|row| row.target()) {
        _ if !query.names.is_empty() => targets.iter().map(|target| target.row).collect(),
        kinds if query.is_typed => kinds.collect(),
        kinds => kinds.filter(is_found).collect(),
    }
}

/// Prints every change. Returns when the output is closed, and on permanent failures.
async fn watch(
    events: impl Stream<Item = Result<Event, HubError>>,
    query: &Query,
    printer: &Printer<'_>,
    known: &mut Entries,
) -> Result<(), Problem> {
    let mut events = pin!(events);
    // It ends when nobody reads stdout any more, as behind `| head`.
    while !output::is_unread() {
        let Some(event) = events.next().await else { break };
        let update = event?.apply(query, known);
        printer.update(known, &update);
    }
    Ok(())
}

/// What deserves attention of an item.
fn warnings(item: &Item) -> Vec<String> {
    match item {
        Item::Target(target) => {
            let name = target.row.kind.full_name(&target.record.name);
            let texts = (target.row.warnings)(&target.record, Timestamp::now());
            texts.into_iter().map(|text| format!("{name}: {text}")).collect()
        }
        Item::Database(database) => fdb::warning(database).into_iter().collect(),
        Item::Pool(_) | Item::Rollout(_) | Item::Upgrade(_) | Item::Schedule(_) => Vec::new(),
    }
}

/// Why some targets are shown without what their companions say: said once.
fn unread(targets: &[&TargetState]) -> Option<String> {
    let unread = targets.iter().filter(|target| target.companion_error.is_some());
    let why = unread.clone().next()?.companion_error.as_deref()?;
    let names = unread.map(|target| target.row.kind.full_name(&target.record.name));
    Some(format!("the record of {} is not shown: {why}", name_some(names, 1)))
}

/// The name of an object and what is known of it, a sanitized line each. One of them may have a color.
pub(in crate::cmd) fn described(
    name: &str,
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
    std::iter::once(output::one_line(name)).chain(fields.iter().filter_map(line)).collect()
}

/// A table behind an empty line; nothing without rows.
pub(in crate::cmd) fn table_below(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Vec<String> {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return Vec::new();
    }
    std::iter::once(String::new()).chain(output::table(head, rows)).collect()
}
