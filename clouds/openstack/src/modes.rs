//! Which of the two ways to sleep moves a cluster: by snapshot, which is `cloud_recreate`'s planner, or by shelving.
//!
//! | there is | the cluster is moved by |
//! |---|---|
//! | a record | snapshot |
//! | no record, a shelved server | shelving |
//! | neither | the mode of its next sleep |

use std::sync::Arc;

use cloud_recreate::Planner;
use futures::FutureExt;
use shared::cloud::{
    CloudError, CloudFuture, ClusterRef, Driver as CloudDriver, InstanceState, Lifecycle, Listing, Outcome, Priority,
    Profile, Target, Verb,
};
use shared::power::Power;

use crate::driver::Driver;
use crate::shelving::{Shelving, is_shelved, state};
use crate::wire::{Image, Server};

/// How a cluster sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, clap::ValueEnum)]
pub(crate) enum Mode {
    /// Servers are imaged and deleted: quota and hypervisors are free on every cloud.
    #[default]
    Snapshot,
    /// Servers are shelved, and keep their IDs. What that frees is up to the cloud.
    Shelve,
}

/// A driver for the clusters of a project that sleep in one mode next.
pub(crate) struct Modes {
    pub(crate) planner: Arc<Planner<Driver>>,
    pub(crate) mode: Mode,
}

/// Whether shelving moves these servers, if they have no record. A sleep by snapshot refuses a shelved server by name.
fn may_shelve(mode: Mode, verb: Option<Verb>, servers: &[&Server]) -> bool {
    let is_up = |server: &&Server| matches!(state(server).0, InstanceState::Running | InstanceState::Halted);
    match mode {
        Mode::Shelve => true,
        Mode::Snapshot if verb == Some(Verb::Stop) && servers.iter().any(is_up) => false,
        Mode::Snapshot => servers.iter().any(|server| is_shelved(server)),
    }
}

impl Modes {
    /// The cluster's servers by the last list, if shelving moves it.
    async fn shelving<'a>(
        &'a self,
        target: &'a Target,
        verb: Option<Verb>,
    ) -> Result<Option<Shelving<'a>>, CloudError> {
        let (driver, infra_id) = (self.planner.cloud(), target.cluster.infra_id.as_str());
        let project = driver.account.last()?;
        let servers: Vec<&Server> = project.servers_of(infra_id).collect();
        let has_copy = |image: &Image| image.hibernate_record.as_ref().is_some_and(|copy| !copy.is_empty());
        if !may_shelve(self.mode, verb, &servers)
            || project.images_of(infra_id).any(has_copy)
            || target.ledger.read().await?.is_some()
        {
            return Ok(None);
        }
        Ok(Some(Shelving { driver, infra_id, servers: servers.into_iter().cloned().collect() }))
    }
}

impl CloudDriver for Modes {
    fn domain(&self) -> Arc<str> {
        self.planner.domain()
    }

    fn profile(&self, cluster: &ClusterRef) -> Profile {
        let profile = self.planner.profile(cluster);
        match self.mode {
            Mode::Snapshot => profile,
            Mode::Shelve => Profile { lifecycle: Lifecycle::Shelve, ..profile },
        }
    }

    fn list<'a>(&'a self, target: &'a Target, priority: Priority) -> CloudFuture<'a, Listing> {
        async move {
            let found = self.planner.list(target, priority).await?;
            if target.cluster.desired == Power::Running {
                self.planner.cloud().attempts.forget(&target.cluster.infra_id);
            }
            Ok(self.shelving(target, None).await?.map_or(found, |shelving| shelving.list()))
        }
        .boxed()
    }

    fn advance<'a>(&'a self, target: &'a Target, verb: Verb, ids: &'a [String]) -> CloudFuture<'a, Outcome> {
        async move {
            match self.shelving(target, Some(verb)).await? {
                Some(shelving) => shelving.advance(verb, ids).await,
                None => self.planner.advance(target, verb, ids).await,
            }
        }
        .boxed()
    }

    fn settle<'a>(&'a self, target: &'a Target) -> CloudFuture<'a, ()> {
        self.planner.settle(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::test_server;

    #[test]
    fn the_mode_of_the_next_sleep_moves_what_nothing_else_decides() {
        let [active, shelved, shelving] = [("ACTIVE", None), ("SHELVED_OFFLOADED", None), ("ACTIVE", Some("shelving"))]
            .map(|(word, task)| test_server("demo-worker-0", word, task));
        for (mode, verb, servers, expected) in [
            (Mode::Shelve, Some(Verb::Stop), vec![&active], true),
            (Mode::Shelve, Some(Verb::Start), vec![&shelved], true),
            (Mode::Snapshot, Some(Verb::Start), vec![&shelved, &active], true),
            (Mode::Snapshot, None, vec![&shelved], true),
            (Mode::Snapshot, Some(Verb::Stop), vec![&shelving, &shelved], true),
            (Mode::Snapshot, Some(Verb::Stop), vec![&shelved, &active], false),
            (Mode::Snapshot, Some(Verb::Start), vec![&active], false),
            (Mode::Snapshot, None, vec![&active], false),
        ] {
            assert_eq!(may_shelve(mode, verb, &servers), expected, "{mode:?} {verb:?} {servers:?}");
        }
    }
}
