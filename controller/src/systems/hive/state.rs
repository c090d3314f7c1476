//! What is remembered of one cluster between two reconciles. Losing it costs a reconcile, never a wrong action.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use shared::cloud::InstanceState::Stopped;
use shared::cloud::{CloudError, CloudErrorKind, Inventory};
use shared::hive::api::ClusterDeployment;
use shared::hive::decide::{LastAttempt, SyncSetState};
use shared::hive::identity::Older;
use shared::hive::preflight::SpokePreflight;
use shared::savings::ledger::Seen;
use shared::spoke::{SpokeError, Upgrade};
use tokio::time::Instant;

use super::conflict_detector::{ConflictDetector, power_hash};
use super::csr_approval::CsrApproval;
use crate::runtime;
use crate::runtime::clock;
use crate::runtime::crash_marks::WorkMarker;
use crate::runtime::events::EventOnce;
use crate::spoke::SpokeWatch;
use crate::spoke::reader::SpokeClient;
use fair::ChargeGuard;

/// How often the Secret of a target is read while the cloud refuses its credentials.
const SECRET_PERIOD: Duration = Duration::from_secs(10);

/// For how long a call that was given up may still reach the cloud: longer than all tries of one call together.
const IN_FLIGHT_TIMEOUT: Duration = Duration::from_mins(1);

/// What a spoke said in a preflight that is yet to be written, and what it is charged.
pub type Unwritten = (SpokePreflight, Vec<ChargeGuard>);

/// A connection to a spoke.
pub struct Connection {
    /// The watch.
    pub watch: SpokeWatch,
    /// It reads what a tenant's API server says for as long as it lasts.
    pub _mark: WorkMarker,
    /// Hash of what decides where it leads.
    pub address: u64,
    /// When it was opened.
    pub opened: Instant,
    /// When that was last compared.
    pub compared: Instant,
    /// For what is not watched.
    pub client: SpokeClient,
    /// When spot Machines were last listed.
    pub spot: Option<Instant>,
    /// When all Machines were last listed.
    pub renamed: Option<Instant>,
}

/// State of one target.
#[derive(Default)]
pub struct TargetState {
    /// What the last reconcile saw of the object, and until when another one is not needed.
    settled: Option<(u64, Instant)>,
    /// The last start or stop.
    pub tried: Option<LastAttempt>,
    /// Lists of machines in a row that have failed.
    pub failed_lists: u32,
    /// The last list of machines.
    machines: Option<(Instant, Inventory)>,
    /// Since when each list has had machines of unknown state.
    unknown_since: Option<Instant>,
    /// Since when each list has been empty.
    empty_since: Option<Instant>,
    /// Since when its spoke has left unknown whether it is being upgraded.
    upgrade_unknown_since: Option<Instant>,
    /// How long lists have shown all of them stopped.
    pub stopped: Seen,
    /// Until when an abandoned call may still move its machines.
    unsure_until: Option<Instant>,
    /// The connection to its spoke while it wakes.
    pub spoke: Option<Connection>,
    /// Who approves its kubelets' certificate requests during this wake.
    pub csr_approval: Option<CsrApproval>,
    /// Whether the spoke has news that call for a reconcile.
    pub news: Arc<AtomicBool>,
    /// Since when its `ClusterSync` is missing.
    pub sync_missed_since: Option<Timestamp>,
    /// Notices another controller that writes the same status.
    pub conflicts: ConflictDetector,
    /// The version of the Secret whose credentials the cloud refused, until it accepts some.
    refused: Option<String>,
    /// When the last preflight began, and what the spoke said if that is not written yet.
    pub preflight: Option<(Instant, Option<Unwritten>)>,
    /// Whether the last status was held back because it only named other machines.
    pub names_held_back: bool,
    /// The last notice.
    pub notice: EventOnce,
}

impl TargetState {
    /// How long this object, as it is, needs no reconcile.
    pub fn remaining_rest(
        &self,
        cluster: &ClusterDeployment,
        sync: SyncSetState,
        older: Option<&Older>,
    ) -> Option<Duration> {
        let (seen, until) = self.settled?;
        let left = until.saturating_duration_since(Instant::now());
        let news = self.news.swap(false, Ordering::Relaxed);
        (!news && seen == fingerprint(cluster, sync, older) && !left.is_zero()).then_some(left)
    }

    /// This object, as it is, needs no reconcile for this long.
    pub fn set_rest(
        &mut self,
        cluster: &ClusterDeployment,
        sync: SyncSetState,
        older: Option<&Older>,
        pause: Duration,
    ) {
        self.settled = Some((fingerprint(cluster, sync, older), Instant::now() + pause));
    }

    /// The reconcile has failed: the next one is due, whatever the last one said.
    pub fn failed(&mut self, may_have_written: bool) {
        self.settled = None;
        if may_have_written {
            self.conflicts.forget_last_write();
        }
    }

    /// A call to the cloud was given up while it may have been on its way: the last list of machines counts no more,
    /// and the next one may not last.
    pub fn gave_up_calls(&mut self) {
        self.machines = None;
        self.unsure_until = Some(Instant::now() + IN_FLIGHT_TIMEOUT);
    }

    /// Whether an abandoned call may still move the machines.
    pub fn is_unsure(&self) -> bool {
        self.unsure_until.is_some_and(|until| Instant::now() < until)
    }

    /// The last list of machines, if it is not older than `max_age`.
    pub fn machines(&self, max_age: Duration) -> Option<Inventory> {
        let (at, machines) = self.machines.as_ref()?;
        (!max_age.is_zero() && at.elapsed() < max_age).then(|| machines.clone())
    }

    /// Keeps a list of machines. `steady`: how often those of a sleeping cluster are listed.
    pub fn saw_machines(&mut self, machines: &Inventory, steady: Duration) {
        self.machines = Some((Instant::now(), machines.clone()));
        self.stopped.observe(machines.all(Stopped), clock::now(), steady);
        self.unknown_since = since(self.unknown_since, !machines.unknown().is_empty());
        self.empty_since = since(self.empty_since, machines.instances.is_empty());
    }

    /// For how long each list has had machines of unknown state.
    pub fn unknown_for(&self) -> Duration {
        lasted(self.unknown_since)
    }

    /// For how long each list has been empty.
    pub fn empty_for(&self) -> Duration {
        lasted(self.empty_since)
    }

    /// Keeps what the spoke reported of an upgrade. A failure of the hub changes nothing; without a probe, what was unknown
    /// before does not count later.
    pub fn saw_upgrade(&mut self, answer: Option<&Result<Upgrade, SpokeError>>) {
        self.upgrade_unknown_since = match answer {
            Some(Err(_)) => self.upgrade_unknown_since,
            Some(Ok(upgrade)) => since(self.upgrade_unknown_since, matches!(upgrade, Upgrade::Unknown(_))),
            None => None,
        };
    }

    /// For how long each answer has left it unknown whether the spoke is being upgraded.
    pub fn upgrade_unknown_for(&self) -> Duration {
        lasted(self.upgrade_unknown_since)
    }

    /// A call to the cloud failed. If that was for want of rights, `version` is asked which version of the Secret gave
    /// them.
    pub fn doubt(&mut self, error: &CloudError, version: impl FnOnce() -> Option<String>) {
        if lacks_rights(error.kind) {
            self.refused = version();
        }
    }

    /// A list was answered, so that the credentials are good for something. Those of a refused action stay in doubt.
    pub fn listed(&mut self) {
        self.failed_lists = 0;
        let failure = self.tried.as_ref().and_then(|tried| tried.failure.as_ref());
        if !failure.is_some_and(|failure| lacks_rights(failure.kind)) {
            self.refused = None;
        }
    }

    /// How long ago the last preflight began, if its answer is written.
    pub fn preflight_age(&self) -> Option<Duration> {
        self.preflight.as_ref().filter(|(_, unwritten)| unwritten.is_none()).map(|(at, _)| at.elapsed())
    }

    /// Forgets an answer that is not written, and what it is charged.
    pub fn drop_unwritten(&mut self) {
        drop(self.preflight.take_if(|(_, unwritten)| unwritten.is_some()));
    }

    /// The version of the Secret that was refused last.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// The credentials are new: what the old ones could not do holds nothing back.
    pub fn trust_again(&mut self) {
        self.refused = None;
        self.settled = None;
        self.failed_lists = 0;
        self.tried = self.tried.take().filter(|tried| !tried.failure.as_ref().is_some_and(|f| lacks_rights(f.kind)));
    }

    /// When to come again if nothing changes for this long: sooner while a Secret has to be watched.
    pub fn until_next(&self, pause: Duration) -> Duration {
        if self.refused.is_some() { pause.min(SECRET_PERIOD) } else { pause }
    }
}

/// Since when it is so, if it is.
fn since(before: Option<Instant>, is_so: bool) -> Option<Instant> {
    is_so.then(|| before.unwrap_or_else(Instant::now))
}

fn lasted(since: Option<Instant>) -> Duration {
    since.map_or(Duration::ZERO, |since| since.elapsed())
}

fn lacks_rights(kind: CloudErrorKind) -> bool {
    matches!(kind, CloudErrorKind::Denied | CloudErrorKind::Credentials)
}

/// What of an object, and of an older one with its machines, calls for a reconcile: everything but the status that
/// others keep there.
fn fingerprint(cluster: &ClusterDeployment, sync: SyncSetState, older: Option<&Older>) -> u64 {
    let own = runtime::fingerprint(&cluster.metadata);
    runtime::hash(&(older, std::mem::discriminant(&sync), own, power_hash(cluster)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_reconcile_is_repeated_though_nothing_on_the_object_has_changed() {
        let (mut state, cluster) = (TargetState::default(), ClusterDeployment::default());
        state.set_rest(&cluster, SyncSetState::Applied, None, Duration::from_mins(10));
        assert!(state.remaining_rest(&cluster, SyncSetState::Applied, None).is_some());
        assert_eq!(state.remaining_rest(&cluster, SyncSetState::Applied, Some(&Older::Elsewhere)), None);
        state.failed(false);
        assert_eq!(state.remaining_rest(&cluster, SyncSetState::Applied, None), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_upgrade_is_unknown_for_as_long_as_the_spoke_is_asked_and_does_not_say() {
        let silent = || Some(Ok(Upgrade::Unknown("silent".to_owned())));
        let mut state = TargetState::default();
        for (case, said, minutes) in [
            ("silent", silent(), 0),
            ("still silent", silent(), 5),
            ("the hub says nothing about it", Some(Err(SpokeError::Failed("503".to_owned()))), 10),
            ("still silent", silent(), 15),
            ("it answers", Some(Ok(Upgrade::Progressing("4.20.9".to_owned()))), 0),
            ("silent again", silent(), 0),
            ("nobody asks", None, 0),
            ("silent at a later sleep", silent(), 0),
        ] {
            state.saw_upgrade(said.as_ref());
            assert_eq!(state.upgrade_unknown_for(), Duration::from_mins(minutes), "{case}");
            tokio::time::advance(Duration::from_mins(5)).await;
        }
    }
}
