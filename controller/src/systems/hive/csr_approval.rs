//! Approves the certificate requests of a waking spoke's kubelets as they come, and reports them in Events and metrics.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use kube::runtime::events::EventType;
use server::Warnings;
use shared::hive::api::ClusterDeployment;
use shared::text::sanitize_chain;
use tokio::sync::Mutex;
use tracing::warn;

use super::{Hive, report};
use crate::csr::Approver;
use crate::metrics::{Metrics, Request};
use crate::runtime::events::Events;
use crate::runtime::hub::full_name;
use crate::runtime::lease::Claim;
use crate::runtime::{System, clock};
use crate::spoke::reader::SpokeClient;

/// Approves the requests of one target during one wake.
#[derive(Clone)]
pub struct CsrApproval {
    approver: Arc<Mutex<Approver>>,
    claim: Claim,
    metrics: Arc<Metrics>,
    events: Events,
    warnings: Warnings,
    target: ObjectReference,
    name: String,
}

impl CsrApproval {
    /// For the wake of `cluster` that began then.
    pub fn new(hive: &Hive, cluster: &ClusterDeployment, since: Timestamp) -> Self {
        let name = full_name(cluster);
        Self {
            approver: Arc::new(Mutex::new(Approver::new(name.clone(), since))),
            claim: hive.hub().claim.clone(),
            metrics: hive.hub().metrics.clone(),
            warnings: hive.hub().warnings.clone(),
            events: hive.hub().events.clone(),
            target: cluster.object_ref(&()),
            name,
        }
    }

    /// The cluster is awake since then: requests are approved for some minutes more.
    pub async fn awake(&self, since: Timestamp) {
        self.approver.lock().await.awake(since);
    }

    /// There is something new at the spoke. Answers whether to call again soon, even if nothing else happens there.
    pub async fn pass(self, client: SpokeClient) -> bool {
        if !self.claim.holds() {
            return true;
        }
        let may = || self.claim.holds();
        let pass = match self.approver.lock().await.pass(&client, clock::now(), may).await {
            Ok(pass) => pass,
            Err(error) => {
                if let Some(left_out) = self.warnings.due("certificate requests", &self.name) {
                    warn!(
                        cluster = self.name,
                        error = sanitize_chain(&error),
                        left_out,
                        "certificate requests not read"
                    );
                }
                return true;
            }
        };
        for ((kind, verdict, reason), count) in pass.counts() {
            self.metrics.requests.get_or_create(&Request { kind, verdict, reason }).inc_by(count);
        }
        let told = [
            (EventType::Normal, "CertificatesApproved", pass.approvals()),
            (EventType::Warning, "CertificatesNotApproved", pass.left()),
        ];
        for (type_, reason, note) in told {
            if let Some(note) = note {
                self.events.publish(&self.target, &self.name, type_, (report::ACTION, reason), &note).await;
            }
        }
        pass.again
    }
}
