//! Approves the certificate requests of a waking spoke's kubelets as they come, and reports them in Events and metrics.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use kube::runtime::events::EventType;
use shared::hive::api::ClusterDeployment;
use shared::text::sanitize_chain;
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;
use tracing::warn;

use super::decide::slept;
use super::{Hive, report};
use crate::csr::Approver;
use crate::metrics::Request;
use crate::runtime::hub::full_name;
use crate::runtime::{Hub, System, clock};
use crate::spoke::reader::SpokeClient;

/// How long a pass may take: it reads four lists of a spoke that answers when it likes.
const PASS_TIMEOUT: Duration = Duration::from_mins(2);

/// Approves the requests of one target during one wake.
#[derive(Clone)]
pub struct CsrApproval {
    approver: Arc<Mutex<Approver>>,
    /// Besides the approver: a reconcile does not wait for a pass.
    awake: Arc<OnceLock<Timestamp>>,
    /// The same: since when all machines run.
    run_since: Arc<watch::Sender<Option<Timestamp>>>,
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
            hub: hive.hub().clone(),
            target: cluster.object_ref(&()),
            name,
        }
    }

    /// The cluster is awake since then: requests are approved for some minutes more.
    pub fn awake(&self, since: Timestamp) {
        self.awake.get_or_init(|| since);
    }

    /// Whether all machines of the cluster run, as it reports.
    pub fn machines_run(&self, run: bool) {
        self.run_since.send_modify(|since| *since = run.then(|| since.unwrap_or_else(clock::now)));
    }

    /// There is something new at the spoke. Answers whether to call again soon, even if nothing else happens there.
    pub async fn pass(self, client: SpokeClient) -> bool {
        if !self.hub.claim.holds() {
            return true;
        }
        let may = || self.hub.claim.holds();
        let pass = async {
            let mut approver = self.approver.lock().await;
            if let Some(since) = self.awake.get() {
                approver.awake(*since);
            }
            approver.machines_run(*self.run_since.borrow());
            approver.pass(&client, clock::now(), may).await
        };
        let pass = match timeout(PASS_TIMEOUT, pass).await {
            Ok(Ok(pass)) => pass,
            Ok(Err(error)) => return self.retry(&sanitize_chain(&error)),
            Err(_) => return self.retry(&format!("the cluster gives no answer within {PASS_TIMEOUT:?}")),
        };
        for ((kind, verdict, reason), count) in pass.counts() {
            self.hub.metrics.requests.get_or_create(&Request { kind, verdict, reason }).inc_by(count);
        }
        let events = [
            (EventType::Normal, "CertificatesApproved", pass.approvals()),
            (EventType::Warning, "CertificatesNotApproved", pass.left()),
        ];
        for (type_, reason, note) in events {
            if let Some(note) = note {
                self.hub.events.publish(&self.target, &self.name, type_, (report::ACTION, reason), &note).await;
            }
        }
        pass.again
    }

    /// Logs why there was no pass, and asks for the next one.
    fn retry(&self, error: &str) -> bool {
        if let Some(left_out) = self.hub.warnings.due("certificate requests", &self.name) {
            warn!(cluster = self.name, error, left_out, "certificate requests not read");
        }
        true
    }
}
