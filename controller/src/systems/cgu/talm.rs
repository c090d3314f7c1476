//! Detects a running TALM by its Lease: either TALM works on upgrades, or we do.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::runtime::watcher;
use parking_lot::Mutex;
use shared::text::sanitize_chain;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use crate::runtime::index::{self, Change};
use crate::runtime::watch_backoff::WatchBackoff;
use crate::runtime::{Guarded, Hub};

const LEASE: &str = "9a2365a3.openshift.io";
/// TALM is gone once it has not renewed its Lease for this long.
const LEASE_TIMEOUT: Duration = Duration::from_mins(1);
/// Requeue while the Lease is not known; nothing is written before.
const UNKNOWN_RETRY: Duration = Duration::from_secs(1);
/// Until the Lease is read again after a failure.
const READ_RETRY: Duration = Duration::from_secs(5);

/// The state of TALM's Lease. Its times come from TALM's clock, so only changes count.
pub(super) struct Talm {
    namespace: String,
    lease: Mutex<LeaseState>,
    /// The watch has failed.
    failed: Notify,
    /// TALM does not run any more.
    pub(super) released: Notify,
}

#[derive(Default)]
struct LeaseState {
    /// When it was last renewed or first seen, by our clock, and its [`renewal`].
    renewed: Option<(Instant, String)>,
    /// The hub says that TALM does not run: there is no holder, or a read after [`LEASE_TIMEOUT`] has found the same
    /// renewal. Silence of the watch means neither.
    is_free: bool,
}

impl LeaseState {
    /// How long TALM may take until the next renewal.
    fn left(&self) -> Duration {
        self.renewed.as_ref().map_or(Duration::ZERO, |(at, _)| LEASE_TIMEOUT.saturating_sub(at.elapsed()))
    }
}

impl Talm {
    pub(super) fn new(namespace: String) -> Self {
        Self { namespace, lease: Mutex::default(), failed: Notify::new(), released: Notify::new() }
    }

    /// How long nothing may be written, and whether that is because TALM runs. `None` if it does not run.
    pub(super) fn standby(&self) -> Option<(Duration, bool)> {
        let lease = self.lease.lock();
        let left = lease.left();
        (!lease.is_free).then(|| (left.max(UNKNOWN_RETRY), !left.is_zero()))
    }

    pub(super) async fn until_gone(&self) {
        while let Some((left, _)) = self.standby() {
            // TALM may release its Lease before.
            tokio::time::sleep(left.min(UNKNOWN_RETRY)).await;
        }
    }

    /// Watches the Lease, and reads it, until it is dropped.
    pub(super) async fn follow(&self, hub: &Hub) {
        let api: Api<Guarded<Lease>> = Api::namespaced(hub.watches.clone(), &self.namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={LEASE}"));
        let apply = |change| self.apply(change);
        let watch = index::follow((api, &hub.memory), config, WatchBackoff::of_hub(), entry, apply);
        let reads: Api<Guarded<Lease>> = Api::namespaced(hub.client.clone(), &self.namespace);
        tokio::join!(watch, self.confirm(&reads));
    }

    pub(super) fn apply(&self, change: Change<Option<String>>) {
        match change {
            Change::Listed(all) => self.know(all.into_values().next().flatten(), false),
            Change::Set(_, renewal) => self.know(renewal, false),
            Change::Gone(_) => self.know(None, false),
            Change::Failed(error) => {
                warn!(error = sanitize_chain(&error), "cannot watch TALM's Lease: reading it instead");
                self.failed.notify_one();
            }
        }
    }

    /// Reads the Lease once the watch has failed, or has brought no renewal in time; and once a minute while TALM does not
    /// run: a watch may stall without an error.
    async fn confirm(&self, api: &Api<Guarded<Lease>>) {
        loop {
            // At the timeout too.
            let _ = timeout(self.next_read(), self.failed.notified()).await;
            match api.get_opt(LEASE).await {
                Ok(found) => self.know(found.as_ref().and_then(entry), true),
                Err(error) => {
                    let error = sanitize_chain(&error);
                    warn!(error, "cannot read TALM's Lease: nothing is written until it is known");
                    self.lease.lock().is_free = false;
                }
            }
        }
    }

    fn next_read(&self) -> Duration {
        let lease = self.lease.lock();
        let due = if lease.is_free { LEASE_TIMEOUT } else { lease.left() };
        if due.is_zero() { READ_RETRY } else { due }
    }

    fn know(&self, found: Option<String>, is_read: bool) {
        let mut lease = self.lease.lock();
        let was_free = lease.is_free;
        let is_over = is_read && lease.left().is_zero();
        match (found, &lease.renewed) {
            (Some(renewal), Some((_, known))) if renewal == *known => lease.is_free = was_free || is_over,
            (Some(renewal), before) => {
                if was_free || before.is_none() {
                    info!(namespace = self.namespace, "TALM's Lease is renewed: upgrades are left to TALM");
                }
                *lease = LeaseState { renewed: Some((Instant::now(), renewal)), is_free: false };
            }
            (None, _) => *lease = LeaseState { renewed: None, is_free: true },
        }
        if lease.is_free && !was_free {
            self.released.notify_one();
        }
    }
}

fn entry(lease: &Guarded<Lease>) -> Option<String> {
    lease.0.as_ref().ok().and_then(renewal)
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

    use serde_json::json;

    use super::*;
    use crate::runtime::testing::MemoryHub;

    const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/9a2365a3.openshift.io";

    fn set(renewal: Option<&str>) -> Change<Option<String>> {
        Change::Set((String::new(), LEASE.to_owned()), renewal.map(str::to_owned))
    }

    #[tokio::test(start_paused = true)]
    async fn talm_runs_while_its_lease_changes() {
        let talm = Talm::new("ns".to_owned());
        assert_eq!(talm.standby(), Some((UNKNOWN_RETRY, false)), "not listed");
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
        talm.apply(set(Some("a 2")));
        assert_eq!(talm.standby(), Some((UNKNOWN_RETRY, false)), "the watch may bring what is old");
        talm.know(Some("a 2".to_owned()), true);
        assert_eq!(talm.standby(), None, "gone");
        talm.apply(set(Some("b 3")));
        talm.apply(set(None));
        assert_eq!(talm.standby(), None, "given up");
    }

    /// The watch fails once, and tells nothing any more.
    #[tokio::test(start_paused = true)]
    async fn silence_does_not_say_that_talm_is_gone() {
        let (hub, talm) = (MemoryHub::default(), Talm::new("ns".to_owned()));
        let api: Api<Guarded<Lease>> = Api::namespaced(hub.client(), "ns");
        let renew = |second: u64| {
            let spec = json!({ "holderIdentity": "a", "renewTime": format!("2026-11-26T00:00:{second:02}.000000Z") });
            let metadata = json!({ "name": LEASE, "namespace": "ns" });
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec,
            });
            hub.put(PATH, lease);
        };
        let after = async |seconds: u64| {
            // It reads until then.
            let _ = timeout(Duration::from_secs(seconds), talm.confirm(&api)).await;
            talm.standby()
        };
        let fail = || talm.apply(Change::Failed(watcher::Error::NoResourceVersion));
        renew(0);
        talm.apply(set(Some("a")));
        fail();
        tokio::time::advance(2 * LEASE_TIMEOUT).await;
        assert_eq!(talm.standby(), Some((UNKNOWN_RETRY, false)), "not read yet");
        assert!(matches!(after(1).await, Some((_, true))), "renewed meanwhile");
        for second in 1..10 {
            renew(second);
            assert!(after(30).await.is_some(), "{second}");
        }
        assert_eq!(after(130).await, None, "not renewed any more");
        renew(10);
        assert!(after(61).await.is_some(), "renewed while the watch stalls");
        hub.remove(PATH);
        fail();
        assert_eq!(after(1).await, None, "no Lease");
        hub.inject(|_, _, _| Some(503));
        fail();
        assert_eq!(after(1).await, Some((UNKNOWN_RETRY, false)), "neither watched nor read");
        hub.heal();
        assert_eq!(after(6).await, None);
    }
}
