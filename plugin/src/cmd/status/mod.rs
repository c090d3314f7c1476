//! `status`: what sleeps, what is awake, what is going on.

mod fdb;
mod pools;
mod printer;
mod render;
mod rollouts;
mod schedule;
mod table;
mod upgrades;

use std::collections::BTreeMap;
use std::pin::pin;

use futures::{Stream, StreamExt};
use hub::HubClient;
use hub::error::HubError;
use jiff::Timestamp;
use shared::kinds::{Key, Kinds, ShownKind, TargetKind};
use shared::text::name_some;
use view::target::TargetState;
use view::{Event, Item, Listing, ObjectName, Query, Row};

use self::printer::Printer;
use crate::cli::{HubArgs, StatusArgs};
use crate::connect::connect;
use crate::error::{Exit, Problem, UsageError};
use crate::output::{self, nothing_found};
use crate::read::untouched;
use crate::select::parse::{Flags, Selection, only_shown, parse};
use crate::select::resolve::print_notes;

/// What was asked for.
enum Request {
    Targets(Selection),
    /// Objects of a kind that is only shown: those of these names, or all.
    Shown(&'static ShownKind, Vec<String>),
}

/// Runs the command.
///
/// # Errors
/// When nothing can be asked at all. Failures of single objects are printed and counted.
pub(crate) async fn run(kinds: Kinds, args: &StatusArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    let request = request(kinds, args, hub_args)?;
    let shown = if let Request::Shown(row, _) = &request { Some(*row) } else { None };
    let hub = connect(hub_args)?;
    let query = query(&request, &hub, hub_args);
    let Listing { mut items, mut failures, notes, watched } = view::list(&hub, &query).await;
    print_notes(&hub, &notes);
    if let Some(at) = failures.iter().position(|failure| failure.is_of_kind && shown.is_some()) {
        return Err(failures.swap_remove(at).error.into());
    }
    let exits: Vec<Exit> = failures.into_iter().map(|failure| output::failed(&failure.into())).collect();
    let targets: Vec<&TargetState> = items.iter().filter_map(target).collect();
    if let Some(text) = unread(&targets) {
        output::warning(&text);
    }
    let columns = kinds.wide_columns(&selected(&request, &targets));
    items.retain(|item| shows(&request, item));
    let printer = Printer::new(args, hub_args, (shown, !query.names.is_empty()), columns, &items);
    printer.all(&items);
    if args.output.is_table() {
        items.iter().flat_map(warnings).for_each(|text| output::warning(&text));
        let sleeps = |item: &Item| target(item).is_some_and(|target| target.record.desired == "Hibernating");
        let whole = query.namespace.as_deref().filter(|_| query.is_whole && items.iter().any(sleeps));
        if let Some(namespace) = whole {
            untouched::note(&hub, namespace).await;
        }
        if items.is_empty() && exits.is_empty() {
            let has_namespaces = query.kinds.iter().any(|row| row.kind().is_namespaced());
            output::note(&nothing_found(query.namespace.as_deref().filter(|_| has_namespaces)));
        }
    }
    let exit = Exit::of(exits);
    if args.watch && (exit == Exit::Done || shown.is_none()) {
        let mut known = items.into_iter().map(|item| (item.key(), item)).collect();
        watch(view::follow(&hub, &query, &watched), &request, &printer, &mut known).await?;
    }
    Ok(exit)
}

fn request(kinds: Kinds, args: &StatusArgs, hub_args: &HubArgs) -> Result<Request, UsageError> {
    let Some((row, names)) = only_shown(kinds, &args.targets)? else {
        return parse(kinds, &args.targets, Flags { lists: true, ..Flags::new(hub_args, false) }).map(Request::Targets);
    };
    if let Some(why) = row.not_watched.filter(|_| args.watch) {
        return Err(UsageError::OnlyShown(why.to_owned()));
    }
    if hub_args.all_namespaces && !names.is_empty() && row.kind.is_namespaced() {
        return Err(UsageError::NameInAllNamespaces);
    }
    Ok(Request::Shown(row, names))
}

fn query(request: &Request, hub: &HubClient, hub_args: &HubArgs) -> Query {
    let (row, names) = match request {
        Request::Targets(selection) => return selection.query(selection.scope(hub, hub_args)),
        Request::Shown(row, names) => (row, names),
    };
    let kinds = vec![Row::Shown(row)];
    let word = Some(row.kind.resource_name());
    let name = |name: &String| ObjectName { kinds: kinds.clone(), word: word.clone(), name: name.clone() };
    Query {
        names: names.iter().map(name).collect(),
        namespace: (!hub_args.all_namespaces).then(|| hub.namespace.clone()),
        labels: hub_args.selector.clone().unwrap_or_default(),
        is_typed: true,
        is_whole: false,
        kinds,
    }
}

/// Whether an item is printed: of targets that were not named only those of interest.
fn shows(request: &Request, item: &Item) -> bool {
    match (request, item) {
        (Request::Targets(selection), Item::Target(target)) => selection.shows(target.row, &target.record),
        _ => true,
    }
}

/// The kinds whose columns are shown: those that were named, and of others those that were found.
fn selected(request: &Request, targets: &[&TargetState]) -> Vec<&'static TargetKind> {
    match request {
        Request::Targets(Selection::Query { kinds, typed: true, .. }) => kinds.clone(),
        Request::Targets(Selection::Query { kinds, .. }) => {
            let is_found = |row: &&TargetKind| targets.iter().any(|target| target.row == *row);
            kinds.iter().copied().filter(is_found).collect()
        }
        _ => targets.iter().map(|target| target.row).collect(),
    }
}

/// Prints every change. Returns when the output is closed, and on permanent failures.
async fn watch(
    events: impl Stream<Item = Result<Event, HubError>>,
    request: &Request,
    printer: &Printer<'_>,
    known: &mut BTreeMap<Key, Item>,
) -> Result<(), Problem> {
    let mut events = pin!(events);
    // It ends when nobody reads stdout any more, as behind `| head`.
    while !output::is_unread() {
        let Some(event) = events.next().await else { break };
        let changed = match event? {
            Event::Set(item) => {
                let key = item.key();
                let before = known.get(&key);
                // One that was shown is followed on, even when it is awake by now.
                if before == Some(&item) || before.is_none() && !shows(request, &item) {
                    continue;
                }
                known.insert(key, item.clone());
                Some(item)
            }
            Event::Unreadable(failure) => {
                output::failed(&failure.into());
                continue;
            }
            Event::Gone(key) => match known.remove(&key) {
                Some(item) => Some(item.deleted()),
                None => continue,
            },
            Event::Tick => None,
        };
        printer.change(known, changed.as_ref());
    }
    Ok(())
}

fn target(item: &Item) -> Option<&TargetState> {
    if let Item::Target(target) = item { Some(target) } else { None }
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
        Item::Pool(_) | Item::Rollout(_) | Item::Upgrade(_) => Vec::new(),
    }
}

/// Why some targets are shown without what lies beside them: said once.
fn unread(targets: &[&TargetState]) -> Option<String> {
    let unread = targets.iter().filter(|target| target.unread.is_some());
    let why = unread.clone().next()?.unread.as_deref()?;
    let names = unread.map(|target| target.row.kind.full_name(&target.record.name));
    Some(format!("the record of {} is not shown: {why}", name_some(names, 1)))
}
