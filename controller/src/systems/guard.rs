//! Answers of the hub that are kept for some seconds, and whether a policy is in force.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use server::hub;
use shared::admission::policy::Deny;
use shared::guarded::{Guarded, Named};
use shared::rollout::NamespaceLabels;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Namespaces of one page.
const PAGE: u32 = 500;
/// How long labels of namespaces are kept.
const KEPT: Duration = Duration::from_secs(10);
/// How long it is kept whether a policy is in force.
const POLICY_KEPT: Duration = Duration::from_secs(1);

/// An answer, and until when it is kept.
#[derive(Debug, Default)]
pub struct Kept<T>(Mutex<Option<(Instant, T)>>);

impl<T: Clone> Kept<T> {
    /// The kept answer, or a new one.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn answer(&self, period: Duration, ask: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
        let mut kept = self.0.lock().await;
        if let Some((until, answer)) = &*kept
            && Instant::now() < *until
        {
            return Ok(answer.clone());
        }
        let answer = ask.await?;
        *kept = Some((Instant::now() + period, answer.clone()));
        Ok(answer)
    }
}

/// The labels of every namespace.
#[derive(Debug, Default)]
pub struct Namespaces(Kept<Arc<NamespaceLabels>>);

impl Namespaces {
    /// The labels, some seconds old at most.
    ///
    /// # Errors
    /// When the hub does not say.
    pub async fn labels(&self, client: &Client) -> kube::Result<Arc<NamespaceLabels>> {
        let read = async {
            let labels = |one: Guarded<Named<Namespace>>| Ok((one.name_any(), one.labels().clone()));
            let all = hub::names(client, None, &ListParams::default().limit(PAGE), labels).await?;
            Ok(Arc::new(all.into_iter().collect()))
        };
        self.0.answer(KEPT, read).await
    }
}

/// A policy that says who may let targets change.
#[derive(Debug)]
pub struct PolicyGuard {
    deny: Deny,
    kept: Kept<Option<String>>,
}

impl PolicyGuard {
    /// Of this policy.
    pub fn new(deny: Deny) -> Self {
        Self { deny, kept: Kept::default() }
    }

    /// Why nothing may change: the policy is not in force as we install it.
    ///
    /// # Errors
    /// When the hub does not say.
    pub async fn missing(&self, client: &Client) -> kube::Result<Option<String>> {
        let name = self.deny.name;
        let ask = async {
            let found = hub::get::<ValidatingAdmissionPolicy>(&Api::all(client.clone()), name).await?;
            let binding = hub::get::<ValidatingAdmissionPolicyBinding>(&Api::all(client.clone()), name).await?;
            Ok(self.deny.differs(found.as_ref(), binding.as_ref()))
        };
        self.kept.answer(POLICY_KEPT, ask).await
    }
}
