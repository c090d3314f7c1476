//! What this process remembers of a target between two looks. Losing it costs a look, never a wrong action.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use kube::{Client, ResourceExt};
use shared::cloud::{CloudError, CloudErrorKind, Inventory};
use shared::hive::api::ClusterDeployment;
use shared::hive::conditions::{HIBERNATING, READY};
use shared::hive::decide::{Sync, Tried};
use tokio::time::Instant;

use super::requests::Requests;
use super::rival::Rival;
use crate::metrics::Counted;
use crate::spoke::SpokeWatch;

/// How often the Secret of a target is read while the cloud refuses its credentials.
const SECRET_AGAIN: Duration = Duration::from_secs(10);

/// For how long a call may reach the cloud that was given up: longer than all tries of one call together.
const ON_ITS_WAY: Duration = Duration::from_mins(1);

/// What decides where a connection to a spoke leads.
#[derive(Debug, PartialEq, Eq)]
pub struct Way {
    /// Version of the kubeconfig's Secret.
    pub version: Option<String>,
    /// The override of its URL, while it is active.
    pub url: Option<String>,
    /// The override of its address.
    pub ip: Option<String>,
}

/// A connection to a spoke.
pub struct Connection {
    /// The watch.
    pub watch: SpokeWatch,
    /// Where it leads.
    pub way: Way,
    /// When it was opened.
    pub opened: Instant,
    /// When that was last compared.
    pub compared: Instant,
    /// For what is not watched.
    pub client: Client,
    /// When spot Machines were last looked for.
    pub spot: Option<Instant>,
}

/// Memory of one target.
#[derive(Default)]
pub struct Memory {
    /// Of which object this is: another may have its name later.
    pub uid: Option<String>,
    /// The object as it came back from our last write, until the watch has caught up with it.
    written: Option<ClusterDeployment>,
    /// What the last look saw of the object, and until when another look is not needed.
    settled: Option<(u64, Instant)>,
    /// The last start or stop.
    pub tried: Option<Tried>,
    /// Failed looks in a row.
    pub failed_looks: u32,
    /// Looks in a row whose write met somebody else's.
    pub overtaken: u32,
    /// The last list of machines.
    machines: Option<(Instant, Inventory)>,
    /// Until when its machines may still do what nobody wants any more.
    unsure_until: Option<Instant>,
    /// The connection to its spoke while it wakes.
    pub spoke: Option<Connection>,
    /// Who approves its kubelets' certificate requests during this wake.
    pub requests: Option<Requests>,
    /// Whether the spoke has news that call for a look.
    pub news: Arc<AtomicBool>,
    /// Since when its `ClusterSync` is missing.
    pub sync_missed_since: Option<Timestamp>,
    /// Another controller that writes the same status.
    pub rival: Rival,
    /// How it is counted.
    pub counted: Option<Counted>,
    /// The version of the Secret whose credentials the cloud refused, until it accepts some.
    refused: Option<String>,
    /// When the spoke was last asked what could stand in the way of a sleep.
    pub preflight: Option<Instant>,
    /// The reason of the last notice, so that it is given once.
    pub noticed: Option<&'static str>,
}

impl Memory {
    /// Of a cluster that was not looked at before.
    #[must_use]
    pub fn of(cluster: &ClusterDeployment) -> Self {
        Self { uid: cluster.uid(), ..Self::default() }
    }

    /// The newer of the watched object and the one that our last write returned.
    pub fn newest<'a>(&mut self, watched: &'a ClusterDeployment) -> Cow<'a, ClusterDeployment> {
        let version =
            |cluster: &ClusterDeployment| cluster.resource_version().and_then(|version| version.parse::<u64>().ok());
        match self.written.take() {
            Some(written) if written.uid() == watched.uid() && version(&written) > version(watched) => {
                self.written = Some(written.clone());
                Cow::Owned(written)
            }
            _ => Cow::Borrowed(watched),
        }
    }

    /// Keeps what a write returned.
    pub fn wrote(&mut self, cluster: &ClusterDeployment) {
        self.written = Some(cluster.clone());
    }

    /// How long this object, as it is, need not be looked at.
    #[must_use]
    pub fn rests(&self, cluster: &ClusterDeployment, sync: Sync) -> Option<Duration> {
        let (seen, until) = self.settled?;
        let left = until.saturating_duration_since(Instant::now());
        let news = self.news.swap(false, Ordering::Relaxed);
        (!news && seen == fingerprint(cluster, sync) && !left.is_zero()).then_some(left)
    }

    /// This object, as it is, need not be looked at for this long.
    pub fn rest(&mut self, cluster: &ClusterDeployment, sync: Sync, pause: Duration) {
        self.settled = Some((fingerprint(cluster, sync), Instant::now() + pause));
    }

    /// The look has failed: the next one is due whatever the last one said. In doubt it may have written something.
    pub fn failed(&mut self, doubt: bool, overtaken: bool) {
        self.settled = None;
        self.overtaken = if overtaken { self.overtaken.saturating_add(1) } else { 0 };
        if doubt {
            self.rival.lost_sight();
        }
    }

    /// A call to the cloud was given up while it may have been on its way: what is known of the machines counts no more, and
    /// what they are seen to do may not last.
    pub fn gave_up_calls(&mut self) {
        self.machines = None;
        self.unsure_until = Some(Instant::now() + ON_ITS_WAY);
    }

    /// Whether the machines may still do what nobody wants any more.
    #[must_use]
    pub fn is_unsure(&self) -> bool {
        self.unsure_until.is_some_and(|until| Instant::now() < until)
    }

    /// The last list of machines, if it is not older than `max_age`.
    #[must_use]
    pub fn machines(&self, max_age: Duration) -> Option<Inventory> {
        let (at, machines) = self.machines.as_ref()?;
        (!max_age.is_zero() && at.elapsed() < max_age).then(|| machines.clone())
    }

    /// Keeps a list of machines.
    pub fn saw_machines(&mut self, machines: &Inventory) {
        self.machines = Some((Instant::now(), machines.clone()));
    }

    /// A call to the cloud failed. If that was for want of rights, `version` is asked which version of the Secret gave them.
    pub fn doubt(&mut self, error: &CloudError, version: impl FnOnce() -> Option<String>) {
        if lacks_rights(error.kind) {
            self.refused = version();
        }
    }

    /// A list was answered, so that the credentials are good for something. Those of a refused action stay in doubt.
    pub fn listed(&mut self) {
        self.failed_looks = 0;
        let failure = self.tried.as_ref().and_then(|tried| tried.failure.as_ref());
        if !failure.is_some_and(|failure| lacks_rights(failure.kind)) {
            self.refused = None;
        }
    }

    /// The version of the Secret that was refused last.
    #[must_use]
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// The credentials are new: what the old ones could not do holds nothing back.
    pub fn trust_again(&mut self) {
        self.refused = None;
        self.settled = None;
        self.failed_looks = 0;
        self.tried = self.tried.take().filter(|tried| !tried.failure.as_ref().is_some_and(|f| lacks_rights(f.kind)));
    }

    /// When to come again if nothing changes for this long: sooner while a Secret has to be watched.
    #[must_use]
    pub fn until_next(&self, pause: Duration) -> Duration {
        if self.refused.is_some() { pause.min(SECRET_AGAIN) } else { pause }
    }
}

fn lacks_rights(kind: CloudErrorKind) -> bool {
    matches!(kind, CloudErrorKind::Denied | CloudErrorKind::Credentials)
}

/// What of an object calls for a new look: everything but the status that others keep there.
fn fingerprint(cluster: &ClusterDeployment, sync: Sync) -> u64 {
    let mut hasher = DefaultHasher::new();
    std::mem::discriminant(&sync).hash(&mut hasher);
    cluster.uid().hash(&mut hasher);
    cluster.metadata.generation.hash(&mut hasher);
    cluster.metadata.deletion_timestamp.is_some().hash(&mut hasher);
    cluster.annotations().hash(&mut hasher);
    cluster.labels().hash(&mut hasher);
    cluster.power_state().hash(&mut hasher);
    for condition in [HIBERNATING, READY].into_iter().filter_map(|type_| cluster.condition(type_)) {
        (&condition.type_, &condition.status, &condition.reason, &condition.message).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_failed_is_made_again_though_nothing_on_the_object_has_changed() {
        let (mut memory, cluster) = (Memory::default(), ClusterDeployment::default());
        memory.rest(&cluster, Sync::Applied, Duration::from_mins(10));
        assert!(memory.rests(&cluster, Sync::Applied).is_some());
        memory.failed(false, false);
        assert_eq!(memory.rests(&cluster, Sync::Applied), None);
    }
}
