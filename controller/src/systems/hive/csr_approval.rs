//! Approves the certificate requests of a waking spoke's kubelets as they come, and reports them in Events and metrics.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use kube::runtime::events::EventType;
use shared::cloud::{InstanceState, Inventory};
use shared::hive::api::ClusterDeployment;
use shared::hive::decide::slept;
use shared::text::sanitize_chain;
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::Hive;
use crate::csr::{Approver, SOON};
use crate::runtime::hub::full_name;
use crate::runtime::{Hub, System, clock};
use crate::spoke::reader::SpokeClient;

/// How long a pass may take: it reads five lists of a spoke that answers when it likes.
const PASS_TIMEOUT: Duration = Duration::from_mins(2);

/// After which time without a pass an Event says so.
const UNREAD: Duration = Duration::from_mins(1);

/// Approves the requests of one target during one wake.
#[derive(Clone)]
pub struct CsrApproval {
    approver: Arc<Mutex<Approver>>,
    /// Besides the approver: a reconcile does not wait for a pass.
    awake: Arc<OnceLock<Timestamp>>,
    /// Besides the approver, too: since when each machine runs, by its names.
    run_since: Arc<watch::Sender<HashMap<String, Timestamp>>>,
    /// Since when no pass has succeeded.
    unread: Arc<watch::Sender<Option<Instant>>>,
    hub: Hub,
    target: ObjectReference,
    name: String,
}

impl CsrApproval {
    /// For the wake of `cluster` that began then.
    pub fn new(hive: &Hive, cluster: &ClusterDeployment, since: Timestamp) -> Self {
        let (name, least) = (full_name(cluster), hive.settings.certificate_minimum_validity);
        let is_long = slept(cluster).is_some_and(|slept| slept >= least);
        Self {
            approver: Arc::new(Mutex::new(Approver::new(name.clone(), since, is_long))),
            awake: Arc::default(),
            run_since: Arc::default(),
            unread: Arc::default(),
            hub: hive.handle.hub.clone(),
            target: cluster.object_ref(&()),
            name,
        }
    }

    /// The cluster is awake since then: requests are approved for some minutes more.
    pub fn awake(&self, since: Timestamp) {
        self.awake.get_or_init(|| since);
    }

    /// These are the machines of the cluster now.
    pub fn machines_are(&self, machines: &Inventory) {
        self.run_since.send_modify(|since| *since = run_since(machines, since, clock::now()));
    }

    /// There is something new at the spoke. Answers when to call again, even if nothing else happens there.
    pub async fn pass(self, client: SpokeClient) -> Option<Duration> {
        if !self.hub.claim.holds() {
            return Some(SOON);
        }
        let may = || self.hub.claim.holds();
        let pass = async {
            let mut approver = self.approver.lock().await;
            if let Some(since) = self.awake.get() {
                approver.awake(*since);
            }
            approver.machines_run(self.run_since.borrow().clone());
            approver.pass(&client, clock::now(), may).await
        };
        let pass = match timeout(PASS_TIMEOUT, pass).await {
            Ok(Ok(pass)) => pass,
            Ok(Err(error)) => return self.retry(&sanitize_chain(&error)).await,
            Err(_) => return self.retry(&format!("the cluster gives no answer within {PASS_TIMEOUT:?}")).await,
        };
        self.unread.send_replace(None);
        for ((kind, verdict, reason), count) in pass.counts() {
            self.hub.metrics.judged(kind, verdict, reason, count);
        }
        let events = [
            (EventType::Normal, "CertificatesApproved", pass.approvals()),
            (EventType::Warning, "CertificatesNotApproved", pass.left()),
        ];
        for (type_, reason, note) in events {
            if let Some(note) = note {
                self.publish(type_, reason, &note).await;
            }
        }
        for note in pass.rivals {
            self.publish(EventType::Warning, "TwoKeysForNode", &note).await;
        }
        pass.again
    }

    async fn publish(&self, type_: EventType, reason: &str, note: &str) {
        self.hub.events.publish(&self.target, type_, (Hive::ACTION, reason), note).await;
    }

    /// Logs why there was no pass, and asks for the next one. If it lasts, Events say so.
    async fn retry(&self, error: &str) -> Option<Duration> {
        if let Some(left_out) = self.hub.warnings.due("certificate requests", &self.name) {
            warn!(cluster = self.name, error, left_out, "certificate requests not read");
        }
        let since = self.unread.borrow().unwrap_or_else(Instant::now);
        let is_due = since.elapsed() >= UNREAD;
        self.unread.send_replace(Some(if is_due { Instant::now() } else { since }));
        if is_due {
            let note = format!("no certificate request is approved, because they cannot be read: {error}");
            self.publish(EventType::Warning, "CertificatesNotRead", &note).await;
        }
        Some(SOON)
    }
}

/// Since when each machine that runs does so, by its names in lower case, as far as was seen.
fn run_since(machines: &Inventory, before: &HashMap<String, Timestamp>, now: Timestamp) -> HashMap<String, Timestamp> {
    let running = machines.instances.iter().filter(|instance| instance.state == InstanceState::Running);
    let names = running.flat_map(|instance| instance.node_names.iter().chain([&instance.id]));
    let names = names.map(|name| name.to_ascii_lowercase());
    let since = |name: String| (before.get(&name).copied().unwrap_or(now), name);
    names.map(since).map(|(since, name)| (name, since)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::cloud::{Instance, Listing, Profile};

    #[test]
    fn a_machine_runs_since_it_was_first_seen_to() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let machines = |states: [InstanceState; 2]| {
            let named = |(number, state)| Instance {
                node_names: vec![format!("Node-{number}")],
                ..Instance::new(format!("i-{number}"), state)
            };
            Inventory::new(
                Profile::default(),
                Listing { instances: states.into_iter().enumerate().map(named).collect(), ..Listing::default() },
            )
        };
        let (up, down) = (InstanceState::Running, InstanceState::Stopped);
        let of = |names: &[(&str, i64)]| names.iter().map(|(name, since)| ((*name).to_owned(), at(*since))).collect();
        let first = run_since(&machines([up, down]), &HashMap::new(), at(1));
        assert_eq!(first, of(&[("i-0", 1), ("node-0", 1)]));
        let second = run_since(&machines([up, up]), &first, at(2));
        assert_eq!(second, of(&[("i-0", 1), ("node-0", 1), ("i-1", 2), ("node-1", 2)]));
        let third = run_since(&machines([down, up]), &second, at(3));
        assert_eq!(
            run_since(&machines([up, up]), &third, at(4)),
            of(&[("i-0", 4), ("node-0", 4), ("i-1", 2), ("node-1", 2)])
        );
    }
}
