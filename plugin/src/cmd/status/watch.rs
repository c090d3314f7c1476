//! `status --watch`: a line for every change, until interrupted or no longer read.

use std::cell::RefCell;
use std::collections::BTreeMap;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::Value;
use shared::target::{Key, Record, TargetKind};

use super::printer::Printer;
use crate::api::watch::{Event, Scope};
use crate::api::{Hub, Resource};
use crate::error::Problem;
use crate::output;
use crate::select::parse::Selection;
use crate::select::resolve::Resolver;
use crate::select::target::Target;

/// Records by what makes them the same target.
type Records = BTreeMap<Key, Record>;

/// Objects of a kind that are followed.
struct Followed<'a> {
    hub: &'a Hub,
    row: &'static TargetKind,
    resource: Resource,
    namespace: Option<&'a str>,
    labels: &'a str,
    /// All if empty.
    names: Vec<String>,
    selection: &'a Selection,
    printer: &'a Printer,
    seen: &'a RefCell<Records>,
}

/// Prints changes of what was selected. Returns when the output is closed, and on permanent failures.
///
/// # Errors
/// When the hub refuses to be watched.
pub(crate) async fn follow(
    hub: &Hub,
    namespace: Option<&str>,
    resolver: &Resolver<'_>,
    selection: &Selection,
    targets: &[Target],
    records: &[Record],
    printer: &Printer,
) -> Result<(), Problem> {
    let seen: Records = records.iter().map(|record| (record.key(), record.clone())).collect();
    let seen = RefCell::new(seen);
    let mut resources: Vec<(&'static TargetKind, Resource)> = Vec::new();
    for target in targets {
        if !resources.contains(&(target.row, target.resource)) {
            resources.push((target.row, target.resource));
        }
    }
    let is_named = matches!(selection, Selection::Named(_));
    let labels = match selection {
        Selection::Query { selector, kinds, .. } => {
            // Kinds that have no object yet are followed too.
            resources = kinds.iter().filter_map(|row| Some((*row, resolver.resource(row)?))).collect();
            selector.as_str()
        }
        Selection::Named(_) => "",
    };
    let followed = resources.into_iter().map(|(row, resource)| {
        let named = targets.iter().filter(|target| is_named && target.resource == resource);
        let names = named.map(|target| target.name.clone()).collect();
        Followed { hub, row, resource, namespace, labels, names, selection, printer, seen: &seen }
    });
    // The first one that ends ends all.
    let mut ends: FuturesUnordered<_> = followed.map(|followed| async move { followed.follow().await }).collect();
    ends.next().await.unwrap_or(Ok(()))
}

impl Followed<'_> {
    /// Returns when nobody reads stdout any more, as behind `| head`.
    async fn follow(&self) -> Result<(), Problem> {
        let Self { resource, namespace, labels, .. } = *self;
        let scope = Scope { namespace, names: &self.names, labels, loud: true, ..Scope::of(resource) };
        let mut watcher = self.hub.watcher(scope);
        while !output::is_unread() {
            match watcher.next().await? {
                Event::Applied(object) => self.show(object).await?,
                Event::Deleted((namespace, name)) => self.remove(&(self.row.kind.type_name(), namespace, name)),
                Event::Tick => {}
            }
        }
        Ok(())
    }

    async fn show(&self, object: Value) -> Result<(), Problem> {
        let target = Target::new(self.row, self.resource.version, object);
        let record = target.complete(self.hub).await.record()?;
        let mut seen = self.seen.borrow_mut();
        let before = seen.get(&record.key());
        // One that was shown is followed on, even when it is awake by now.
        if before.is_some() || self.selection.shows(self.row, &record) {
            if before != Some(&record) {
                self.printer.one(&record);
            }
            seen.insert(record.key(), record);
        }
        Ok(())
    }

    fn remove(&self, key: &Key) {
        if let Some(mut record) = self.seen.borrow_mut().remove(key) {
            "Deleted".clone_into(&mut record.observed);
            record.step = None;
            self.printer.one(&record);
        }
    }
}
