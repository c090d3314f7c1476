//! `status --watch`: a line for every change, until interrupted.

use std::{cell::RefCell, pin::pin, time::Duration};

use futures::{StreamExt, future::try_join_all};
use kube::api::WatchEvent;
use serde_json::Value;

use super::{
    Printer, is_shown,
    record::{Record, Records},
};
use crate::{
    error::Problem,
    hub::{Hub, Resource},
    print,
    target::{Target, parse::Selection, resolve::Resolver},
    wait::is_passing,
};

/// Pause before watching again after a failure.
const PAUSE: Duration = Duration::from_secs(2);

/// Which objects of a kind are followed.
struct Scope<'a> {
    hub: &'a Hub,
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

/// Prints changes of what was selected. Returns only on failures that will not pass.
///
/// # Errors
/// When the hub refuses to be watched.
pub(super) async fn follow(
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
    let mut resources: Vec<Resource> = Vec::new();
    for target in targets {
        if !resources.contains(&target.resource) {
            resources.push(target.resource);
        }
    }
    let labels = match selection {
        Selection::Query { selector, kinds } => {
            // Kinds that have no object yet are followed too.
            resources = kinds.iter().filter_map(|kind| resolver.resource(kind)).collect();
            selector.as_str()
        }
        Selection::Named(_) => "",
    };
    let scopes = resources.into_iter().map(|resource| {
        let names: Vec<&str> =
            targets.iter().filter(|target| target.resource == resource).map(|target| target.name.as_str()).collect();
        let names = matches!(selection, Selection::Named(_)).then_some(names);
        let fields = match names.as_deref() {
            Some([name]) => format!("metadata.name={name}"),
            _ => String::new(),
        };
        Scope { hub, resource, namespace, fields, labels, names, selection, printer, seen: &seen }
    });
    try_join_all(scopes.map(|scope| async move { scope.follow().await })).await?;
    Ok(())
}

impl Scope<'_> {
    async fn follow(&self) -> Result<(), Problem> {
        loop {
            match self.round().await {
                Ok(()) => {}
                Err(Problem::Hub(error)) if is_passing(&error) => {
                    print::note(&format!("{error}; trying again"));
                    tokio::time::sleep(PAUSE).await;
                }
                Err(problem) => return Err(problem),
            }
        }
    }

    async fn round(&self) -> Result<(), Problem> {
        let list = self.hub.list(self.resource, self.namespace, &self.fields, self.labels).await?;
        for object in list.items {
            self.show(object, false)?;
        }
        let selectors = (self.fields.as_str(), self.labels);
        let changes = self.hub.watch(self.resource, self.namespace, selectors, &list.version).await?;
        let mut changes = pin!(changes);
        while let Some(event) = changes.next().await {
            match event? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => self.show(object, false)?,
                WatchEvent::Deleted(object) => self.show(object, true)?,
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(_) => break,
            }
        }
        Ok(())
    }

    fn show(&self, object: Value, gone: bool) -> Result<(), Problem> {
        let target = Target::new(self.resource, object);
        if self.names.as_ref().is_some_and(|names| !names.contains(&target.name.as_str())) {
            return Ok(());
        }
        let mut record = Record::of(&target)?;
        let key = record.key();
        let mut seen = self.seen.borrow_mut();
        let before = seen.remove(&key);
        if gone {
            "Deleted".clone_into(&mut record.observed);
            record.step = None;
            self.printer.one(&record);
            return Ok(());
        }
        // One that was shown is followed on, even when it is awake by now.
        let shown = before.is_some() || is_shown(self.selection, &target, &record);
        if shown {
            if before.as_ref() != Some(&record) {
                self.printer.one(&record);
            }
            seen.insert(key, record);
        }
        Ok(())
    }
}
