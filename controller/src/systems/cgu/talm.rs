//! Detects a running TALM by its Lease: either TALM works on upgrades, or we do.

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

const LEASE: &str = "9a2365a3.openshift.io";
/// TALM is gone once it has not renewed its Lease for this long.
const LEASE_TIMEOUT: Duration = Duration::from_mins(1);
/// Requeue until the Lease is listed; nothing is written before.
const UNLISTED_RETRY: Duration = Duration::from_secs(1);

/// The state of TALM's Lease. Its times come from TALM's clock, so only changes count.
pub(super) struct Talm {
    namespace: String,
    lease: Mutex<LeaseState>,
    /// TALM has released its Lease.
    pub(super) released: Notify,
}

enum LeaseState {
    Unlisted,
    /// It does not exist, or has no holder.
    Absent,
    /// When it was last renewed or first seen, by our clock, and its [`renewal`].
    Renewed(Instant, String),
}

impl Talm {
    pub(super) fn new(namespace: String) -> Self {
        Self { namespace, lease: Mutex::new(LeaseState::Unlisted), released: Notify::new() }
    }

    /// How long nothing may be written, and whether that is because TALM runs. `None` if it does not run.
    pub(super) fn standby(&self) -> Option<(Duration, bool)> {
        match &*self.lease.lock() {
            LeaseState::Unlisted => Some((UNLISTED_RETRY, false)),
            LeaseState::Absent => None,
            LeaseState::Renewed(at, _) => {
                Some(LEASE_TIMEOUT.saturating_sub(at.elapsed())).filter(|left| !left.is_zero()).map(|left| (left, true))
            }
        }
    }

    pub(super) async fn until_gone(&self) {
        while let Some((left, _)) = self.standby() {
            // TALM may release its Lease before.
            tokio::time::sleep(left.min(UNLISTED_RETRY)).await;
        }
    }

    /// Watches the Lease until it is dropped.
    pub(super) async fn follow(&self, hub: &Hub) {
        let api: Api<Guarded<Lease>> = Api::namespaced(hub.watches.clone(), &self.namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={LEASE}"));
        let entry = |lease: &Guarded<Lease>| lease.0.as_ref().ok().and_then(renewal);
        index::follow((api, &hub.memory), config, WatchBackoff::of_hub(), entry, |change| self.apply(change)).await;
    }

    pub(super) fn apply(&self, change: Change<Option<String>>) {
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
                self.released.notify_one();
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
        assert_eq!(talm.standby(), Some((UNLISTED_RETRY, false)), "not listed");
        talm.apply(Change::Listed(HashMap::new()));
        assert_eq!(talm.standby(), None, "no Lease");
        talm.apply(set(Some("a 1")));
        assert_eq!(talm.standby(), Some((LEASE_TIMEOUT, true)));
        tokio::time::advance(Duration::from_secs(40)).await;
        talm.apply(set(Some("a 1")));
        assert_eq!(talm.standby(), Some((Duration::from_secs(20), true)), "not renewed");
        talm.apply(set(Some("a 2")));
        assert_eq!(talm.standby(), Some((LEASE_TIMEOUT, true)));
        tokio::time::advance(LEASE_TIMEOUT).await;
        assert_eq!(talm.standby(), None, "gone");
        talm.apply(set(Some("b 3")));
        talm.apply(set(None));
        assert_eq!(talm.standby(), None, "given up");
    }
}
