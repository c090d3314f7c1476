//! One caller's part of a call.

use std::collections::{BTreeSet, HashSet};

use cloud_common::Reply;
use shared::cloud::{CloudError, Outcome};

/// What one caller wants moved.
pub(super) struct Part {
    pub(super) ids: Vec<String>,
    /// What of it was moved or refused already.
    done: Outcome,
    reply: Reply<Result<Outcome, CloudError>>,
}

impl Part {
    pub(super) fn new(ids: &[String], reply: Reply<Result<Outcome, CloudError>>) -> Self {
        Self { ids: ids.to_vec(), done: Outcome::default(), reply }
    }

    /// Whether its caller has not given up.
    pub(super) fn is_wanted(&self) -> bool {
        self.reply.is_wanted()
    }

    /// Who was neither moved nor refused yet.
    pub(super) fn left(&self) -> Vec<String> {
        let refused = self.done.refused.iter().map(|refused| &refused.id);
        let done: BTreeSet<&String> = self.done.moved.iter().map(|(id, _)| id).chain(refused).collect();
        self.ids.iter().filter(|id| !done.contains(id)).cloned().collect()
    }

    /// Takes what of an outcome is about it.
    pub(super) fn take(&mut self, outcome: &Outcome) {
        let ids: HashSet<&String> = self.ids.iter().collect();
        self.done.moved.extend(outcome.moved.iter().filter(|(id, _)| ids.contains(id)).cloned());
        self.done.refused.extend(outcome.refused.iter().filter(|refused| ids.contains(&refused.id)).cloned());
        self.done.unfinished |= outcome.unfinished;
    }

    /// Tells the caller that it is done, or what it failed of. Who has given up in the meantime does not hear it.
    pub(super) fn reply(self, failed: Option<CloudError>) {
        self.reply.send(failed.map_or(Ok(self.done), Err));
    }
}
