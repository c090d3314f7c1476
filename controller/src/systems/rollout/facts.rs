//! What a rollout depends on besides its targets: the policy that guards rollouts, upgrades by TALM, labels of
//! namespaces.
//!
//! Each is read when a rollout needs it, and kept for some seconds: rollouts share the answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use server::hub;
use shared::cgu::upgrades::upgrading;
use shared::cgu::wire::UpgradeObject;
use shared::guarded::{Guarded, Named};
use shared::kinds::Kinds;
use shared::rollout::NamespaceLabels;
use shared::rollout::admission::{POLICY, policy};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long an answer is kept.
const KEPT: Duration = Duration::from_secs(10);
/// The same of whether the policy is in force.
const POLICY_KEPT: Duration = Duration::from_secs(1);
/// Objects of one page.
const PAGE: u32 = 500;

/// An answer, and until when it is kept.
type Kept<T> = Mutex<Option<(Instant, T)>>;

/// The answers of this term.
#[derive(Debug, Default)]
pub struct HubFacts {
    policy: Kept<Option<String>>,
    upgrades: Kept<Arc<BTreeMap<String, String>>>,
    namespaces: Kept<Arc<NamespaceLabels>>,
}

impl HubFacts {
    /// Why no target may start: the policy that decides who may start a rollout is not in force as we install it.
    pub async fn unguarded(&self, client: &Client, kinds: Kinds) -> kube::Result<Option<String>> {
        answer(&self.policy, POLICY_KEPT, unguarded(client, kinds)).await
    }

    /// The clusters that an active `ClusterGroupUpgrade` lists, with what to say of that.
    pub async fn upgrades(&self, client: &Client) -> kube::Result<Arc<BTreeMap<String, String>>> {
        answer(&self.upgrades, KEPT, async { upgrades(client).await.map(Arc::new) }).await
    }

    /// The labels of every namespace.
    pub async fn namespaces(&self, client: &Client) -> kube::Result<Arc<NamespaceLabels>> {
        answer(&self.namespaces, KEPT, async { namespaces(client).await.map(Arc::new) }).await
    }
}

/// The kept answer, or a new one.
async fn answer<T: Clone>(
    kept: &Kept<T>,
    period: Duration,
    ask: impl Future<Output = kube::Result<T>>,
) -> kube::Result<T> {
    let mut kept = kept.lock().await;
    if let Some((until, answer)) = &*kept
        && Instant::now() < *until
    {
        return Ok(answer.clone());
    }
    let answer = ask.await?;
    *kept = Some((Instant::now() + period, answer.clone()));
    Ok(answer)
}

async fn unguarded(client: &Client, kinds: Kinds) -> kube::Result<Option<String>> {
    let found = hub::get::<ValidatingAdmissionPolicy>(&Api::all(client.clone()), POLICY).await?;
    let binding = hub::get::<ValidatingAdmissionPolicyBinding>(&Api::all(client.clone()), POLICY).await?;
    Ok(policy(kinds).differs(found.as_ref(), binding.as_ref()))
}

async fn upgrades(client: &Client) -> kube::Result<BTreeMap<String, String>> {
    // One that cannot be read is of one tenant: it is reported by the system that works on it, and holds up no rollout.
    let active = |one: Guarded<UpgradeObject>| Ok(one.ok().map(|one| upgrading(&one)).unwrap_or_default());
    match hub::list(&Api::all(client.clone()), &ListParams::default(), active).await {
        // TALM is not installed, or not served to this controller.
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(BTreeMap::new()),
        found => Ok(found?.into_iter().flatten().collect()),
    }
}

async fn namespaces(client: &Client) -> kube::Result<NamespaceLabels> {
    let labels = |one: Guarded<Named<Namespace>>| Ok((one.name_any(), one.labels().clone()));
    Ok(hub::names(client, None, &ListParams::default().limit(PAGE), labels).await?.into_iter().collect())
}
