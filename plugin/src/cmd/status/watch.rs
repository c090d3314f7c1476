//! `status --watch`: a line for every change, until interrupted or no longer read.

use std::{cell::RefCell, collections::BTreeMap, pin::pin, time::Duration};

use futures::{StreamExt, future::try_join_all};
use kube::api::WatchEvent;
use serde_json::Value;
use shared::target::{Key, Record, TargetKind};

use super::printer::Printer;
use crate::{
    api::{Hub, Resource, error::HubError},
    error::Problem,
    output,
    select::{parse::Selection, resolve::Resolver, target::Target},
};

/// Records by what makes them the same target.
type Records = BTreeMap<Key, Record>;

/// Pause before watching again after a failure.
const PAUSE: Duration = Duration::from_secs(2);

/// Which objects of a kind are followed.
struct Scope<'a> {
    hub: &'a Hub,
    row: &'static TargetKind,
    resource: Resource,
    namespace: Option<&'a str>,
    fields: String,
    labels: &'a str,
    /// Names, if targets were named.
    names: Option<Vec<&'a str>>,
    selection: &'a Selection,
    printer: &'a Printer,
    seen: &'a RefCell<Records>,
}

/// Why following ends.
enum End {
    /// Nobody reads stdout any more, as behind `| head`.
    Unread,
    /// Something failed, perhaps only for now.
    Failed(Problem),
}

impl From<Problem> for End {
    fn from(problem: Problem) -> Self {
        Self::Failed(problem)
    }
}

impl From<HubError> for End {
    fn from(error: HubError) -> Self {
        Self::Failed(error.into())
    }
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
    let labels = match selection {
        Selection::Query { selector, kinds, .. } => {
            // Kinds that have no object yet are followed too.
            resources = kinds.iter().filter_map(|row| Some((*row, resolver.resource(row)?))).collect();
            selector.as_str()
        }
        Selection::Named(_) => "",
    };
    let scopes = resources.into_iter().map(|(row, resource)| {
        let names: Vec<&str> =
            targets.iter().filter(|target| target.resource == resource).map(|target| target.name.as_str()).collect();
        let names = matches!(selection, Selection::Named(_)).then_some(names);
        let fields = match names.as_deref() {
            Some([name]) => format!("metadata.name={name}"),
            _ => String::new(),
        };
        Scope { hub, row, resource, namespace, fields, labels, names, selection, printer, seen: &seen }
    });
    if output::is_unread() {
        return Ok(());
    }
    match try_join_all(scopes.map(|scope| async move { scope.follow().await })).await {
        Err(End::Failed(problem)) => Err(problem),
        Ok(_) | Err(End::Unread) => Ok(()),
    }
}

impl Scope<'_> {
    async fn follow(&self) -> Result<(), End> {
        loop {
            match self.round().await {
                Ok(()) => {}
                Err(End::Failed(Problem::Hub(error))) if error.is_transient() => {
                    output::note(&format!("{error}; trying again"));
                    tokio::time::sleep(PAUSE).await;
                }
                Err(end) => return Err(end),
            }
        }
    }

    async fn round(&self) -> Result<(), End> {
        let list = self.hub.list(self.resource, self.namespace, &self.fields, self.labels).await?;
        for object in list.items {
            self.show(object, false).await?;
        }
        let selectors = (self.fields.as_str(), self.labels);
        let changes = self.hub.watch(self.resource, self.namespace, selectors, &list.version).await?;
        let mut changes = pin!(changes);
        while let Some(event) = changes.next().await {
            match event? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => self.show(object, false).await?,
                WatchEvent::Deleted(object) => self.show(object, true).await?,
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(_) => break,
            }
        }
        Ok(())
    }

    async fn show(&self, object: Value, gone: bool) -> Result<(), End> {
        let target = Target::new(self.row, self.resource.version, object);
        if self.names.as_ref().is_some_and(|names| !names.contains(&target.name.as_str())) {
            return Ok(());
        }
        let mut record = target.complete(self.hub).await.record().map_err(Problem::from)?;
        let key = record.key();
        let mut seen = self.seen.borrow_mut();
        let before = seen.remove(&key);
        if gone {
            "Deleted".clone_into(&mut record.observed);
            record.step = None;
            return self.print(&record);
        }
        // One that was shown is followed on, even when it is awake by now.
        let shown = before.is_some() || self.selection.shows(self.row, &record);
        if shown {
            if before.as_ref() != Some(&record) {
                self.print(&record)?;
            }
            seen.insert(key, record);
        }
        Ok(())
    }

    fn print(&self, record: &Record) -> Result<(), End> {
        self.printer.one(record);
        if output::is_unread() { Err(End::Unread) } else { Ok(()) }
    }
}
