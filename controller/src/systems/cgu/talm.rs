//! Whether TALM runs: either it works on upgrades, or we do.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::runtime::watcher;
use parking_lot::Mutex;
use shared::text::sanitize_chain;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::runtime::index::{self, Change};
use crate::runtime::watch_backoff::WatchBackoff;
use crate::runtime::{Guarded, Hub};

/// Name of TALM's Lease.
const LEASE: &str = "9a2365a3.openshift.io";
/// TALM is gone once it has not renewed its Lease for this long.
const GONE: Duration = Duration::from_mins(1);
/// Until it is known whether there is a Lease, nothing is written.
const UNKNOWN: Duration = Duration::from_secs(1);

/// What is known of TALM's Lease. Its times are TALM's clock: only changes count.
pub(super) struct Talm {
    namespace: String,
    lease: Mutex<LeaseState>,
    /// TALM has given up its Lease.
    pub(super) gone: Notify,
}

enum LeaseState {
    /// It has not been listed.
    Unlisted,
    /// There is none, or it was given up.
    Absent,
    /// It was renewed, or first seen, at this moment.
    Renewed(Instant, String),
}

impl Talm {
    pub(super) fn new(namespace: String) -> Self {
        Self { namespace, lease: Mutex::new(LeaseState::Unlisted), gone: Notify::new() }
    }

    /// How long nothing may be written, and whether that is because TALM runs; `None` if it does not.
    pub(super) fn standby(&self) -> Option<(Duration, bool)> {
        match &*self.lease.lock() {
            LeaseState::Unlisted => Some((UNKNOWN, false)),
            LeaseState::Absent => None,
            LeaseState::Renewed(at, _) => {
                Some(GONE.saturating_sub(at.elapsed())).filter(|left| !left.is_zero()).map(|left| (left, true))
            }
        }
    }

    /// Waits until TALM does not run.
    pub(super) async fn until_gone(&self) {
        while let Some((left, _)) = self.standby() {
            // It may give up its Lease before.
            tokio::time::sleep(left.min(UNKNOWN)).await;
        }
    }

    /// Watches the Lease until it is dropped.
    pub(super) async fn follow(&self, hub: &Hub) {
        let api: Api<Guarded<Lease>> = Api::namespaced(hub.watches.clone(), &self.namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={LEASE}"));
        let entry = |lease: &Guarded<Lease>| lease.0.as_ref().ok().and_then(renewal);
        index::follow((api, &hub.memory), config, WatchBackoff::of_hub(), entry, |change| self.take(change)).await;
    }

    pub(super) fn take(&self, change: Change<Option<String>>) {
        let found = match change {
            Change::Listed(all) => all.into_values().next().flatten(),
            Change::Set(_, renewal) => renewal,
            Change::Gone(_) => None,
            Change::Failed(error) => {
                warn!(
                    error = sanitize_chain(&error),
                    "cannot watch TALM's Lease: nothing is written until it is known"
                );
                return;
            }
        };
        let mut lease = self.lease.lock();
        match (found, &*lease) {
            (Some(renewal), LeaseState::Renewed(_, known)) if renewal == *known => {}
            (Some(renewal), before) => {
                if !matches!(before, LeaseState::Renewed(..)) {
                    info!(namespace = self.namespace, "TALM's Lease is renewed: upgrades are left to TALM");
                }
                *lease = LeaseState::Renewed(Instant::now(), renewal);
            }
            (None, _) => {
                *lease = LeaseState::Absent;
                self.gone.notify_one();
            }
        }
    }
}

/// Holder of the Lease and time of its last renewal; `None` without a holder.
fn renewal(lease: &Lease) -> Option<String> {
    let spec = lease.spec.as_ref()?;
    let holder = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())?;
    Some(format!("{holder} {:?}", spec.renew_time.as_ref().map(|time| time.0)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn set(renewal: Option<&str>) -> Change<Option<String>> {
        Change::Set((String::new(), LEASE.to_owned()), renewal.map(str::to_owned))
    }

    #[tokio::test(start_paused = true)]
    async fn talm_runs_while_its_lease_changes() {
        let talm = Talm::new("ns".to_owned());
        assert_eq!(talm.standby(), Some((UNKNOWN, false)), "not listed");
        talm.take(Change::Listed(HashMap::new()));
        assert_eq!(talm.standby(), None, "no Lease");
        talm.take(set(Some("a 1")));
        assert_eq!(talm.standby(), Some((GONE, true)));
        tokio::time::advance(Duration::from_secs(40)).await;
        talm.take(set(Some("a 1")));
        assert_eq!(talm.standby(), Some((Duration::from_secs(20), true)), "not renewed");
        talm.take(set(Some("a 2")));
        assert_eq!(talm.standby(), Some((GONE, true)));
        tokio::time::advance(GONE).await;
        assert_eq!(talm.standby(), None, "gone");
        talm.take(set(Some("b 3")));
        talm.take(set(None));
        assert_eq!(talm.standby(), None, "given up");
    }
}
