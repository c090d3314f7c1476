//! Finds what was selected on the hub.

use hub::HubClient;
use shared::kinds::TargetKind;
use view::target::Target;
use view::{ObjectName, Query, Row};

use super::parse::Selection;
use crate::error::Failure;
use crate::output;

/// Finds targets.
pub(crate) struct Resolver<'a> {
    hub: &'a HubClient,
    namespace: Option<&'a str>,
}

impl<'a> Resolver<'a> {
    /// `namespace` is none for all namespaces.
    pub(crate) fn new(hub: &'a HubClient, namespace: Option<&'a str>) -> Self {
        Self { hub, namespace }
    }

    /// Everything that was selected, in the order given; what cannot be found is a failure in its place.
    pub(crate) async fn resolve(&self, selection: &Selection) -> Vec<Result<Target, Failure>> {
        let (targets, notes) = view::targets(self.hub, &selection.query(self.namespace)).await;
        print_notes(self.hub, &notes);
        targets.into_iter().map(|target| target.map_err(Failure::from)).collect()
    }
}

impl Selection {
    /// What to look for in this namespace, or in all.
    pub(crate) fn query(&self, namespace: Option<&str>) -> Query {
        let rows = |kinds: &[&'static TargetKind]| kinds.iter().copied().map(Row::Target).collect::<Vec<_>>();
        let query = Query { namespace: namespace.map(str::to_owned), ..Query::default() };
        match self {
            Self::Named(references) => {
                let names = references.iter().map(|one| ObjectName {
                    kinds: rows(&one.kinds),
                    word: one.word.clone(),
                    name: one.name.clone(),
                });
                Query { names: names.collect(), ..query }
            }
            Self::Query { kinds, selector, typed, whole } => Query {
                kinds: rows(kinds),
                labels: selector.clone(),
                is_typed: *typed,
                is_whole: whole.is_some(),
                ..query
            },
        }
    }
}

/// With `-v`: what was skipped.
pub(crate) fn print_notes(hub: &HubClient, notes: &[String]) {
    if hub.verbose {
        for note in notes {
            output::note(note);
        }
    }
}
