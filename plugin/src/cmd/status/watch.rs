//! `status --watch`: a line for every change, until interrupted or no longer read.

use std::cell::RefCell;
use std::collections::BTreeMap;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use hub::watch::{Event, Scope};
use hub::{HubClient, Resource};
use shared::kinds::{Key, Record, TargetKind};

use super::printer::Printer;
use crate::error::{Failure, Problem};
use crate::output;
use crate::select::parse::Selection;
use crate::select::resolve::Resolver;
use crate::select::target::Target;
use crate::select::unique;

/// Records by what makes them the same target.
type Records = BTreeMap<Key, Record>;

/// Prints changes of what was selected. Returns when the output is closed, and on permanent failures.
///
/// # Errors
/// When the hub refuses to be watched.
pub(crate) async fn follow(
    hub: &HubClient,
    namespace: Option<&str>,
    resolver: &Resolver<'_>,
    selection: &Selection,
    targets: &[Target],
    records: &[Record],
    printer: &Printer,
) -> Result<(), Problem> {
    let seen: Records = records.iter().map(|record| (record.key(), record.clone())).collect();
    let shown = Shown { selection, printer, seen: RefCell::new(seen) };
    let mut resources = unique(targets.iter().map(|target| (target.row, target.resource)));
    let is_named = matches!(selection, Selection::Named(_));
    let labels = match selection {
        Selection::Query { selector, kinds, .. } => {
            // Kinds that have no object yet are followed too.
            resources = kinds.iter().filter_map(|row| Some((*row, resolver.resource(row)?))).collect();
            selector.as_str()
        }
        Selection::Named(_) => "",
    };
    let follow = async |(row, resource): (&'static TargetKind, Resource)| -> Result<(), Problem> {
        let named = targets.iter().filter(|target| is_named && target.resource == resource);
        let names: Vec<String> = named.map(|target| target.name.clone()).collect();
        let scope = Scope { namespace, names: &names, labels, loud: true, ..Scope::of(resource) };
        let mut watcher = hub.watcher(scope);
        // It ends when nobody reads stdout any more, as behind `| head`.
        while !output::is_unread() {
            match watcher.next().await? {
                Event::Applied(object) => {
                    let target = Target::new(row, resource.version, object).complete(hub).await;
                    match target.record() {
                        Ok(record) => shown.change(row, record),
                        Err(error) => drop(output::failed(&Failure::new(target.full_name(), error.into()))),
                    }
                }
                Event::Deleted((namespace, name)) => shown.remove(&(row.kind.type_name(), namespace, name)),
                Event::Tick => {}
            }
        }
        Ok(())
    };
    // The first one that ends ends all.
    let mut ends: FuturesUnordered<_> = resources.into_iter().map(follow).collect();
    ends.next().await.unwrap_or(Ok(()))
}

/// What is shown, and how it was when it was printed last.
struct Shown<'a> {
    selection: &'a Selection,
    printer: &'a Printer,
    seen: RefCell<Records>,
}

impl Shown<'_> {
    fn change(&self, row: &TargetKind, record: Record) {
        let mut seen = self.seen.borrow_mut();
        let before = seen.get(&record.key());
        // One that was shown is followed on, even when it is awake by now.
        if before.is_some() || self.selection.shows(row, &record) {
            if before != Some(&record) {
                self.printer.one(&record);
            }
            seen.insert(record.key(), record);
        }
    }

    fn remove(&self, key: &Key) {
        if let Some(mut record) = self.seen.borrow_mut().remove(key) {
            "Deleted".clone_into(&mut record.observed);
            record.step = None;
            self.printer.one(&record);
        }
    }
}
