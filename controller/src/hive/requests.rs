//! Certificate requests of a waking spoke's kubelets: approved as they come, told in Events and metrics.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::EventType;
use kube::{Client, Resource};
use shared::hive::api::ClusterDeployment;
use tokio::sync::Mutex;
use tracing::warn;

use super::{Context, report};
use crate::csr::Approver;
use crate::hub::{Events, full_name};
use crate::lease::Claim;
use crate::metrics::{Metrics, Request};

/// Approves the requests of one target during one wake.
#[derive(Clone)]
pub struct Requests {
    approver: Arc<Mutex<Approver>>,
    claim: Claim,
    metrics: Arc<Metrics>,
    events: Events,
    target: ObjectReference,
    name: String,
}

impl Requests {
    /// For the wake of `cluster` that began then.
    pub fn new(context: &Context, cluster: &ClusterDeployment, since: Timestamp) -> Self {
        let name = full_name(cluster);
        Self {
            approver: Arc::new(Mutex::new(Approver::new(name.clone(), since))),
            claim: context.claim.clone(),
            metrics: context.metrics.clone(),
            events: context.events.clone(),
            target: cluster.object_ref(&()),
            name,
        }
    }

    /// The cluster is awake since then: requests are approved for some minutes more.
    pub async fn awake(&self, since: Timestamp) {
        self.approver.lock().await.awake(since);
    }

    /// Something has come up at the spoke. Whether to look again soon although nothing else comes up.
    pub async fn pass(self, client: Client) -> bool {
        if !self.claim.holds() {
            return true;
        }
        let may = || self.claim.holds();
        let pass = match self.approver.lock().await.pass(&client, Timestamp::now(), may).await {
            Ok(pass) => pass,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                warn!(cluster = self.name, error, "certificate requests not looked at");
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
