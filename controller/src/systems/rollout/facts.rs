//! What a rollout depends on besides its targets: the policy that guards rollouts, and upgrades by TALM.
//!
//! Each is read when a rollout needs it, and kept for some seconds: rollouts share the answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::api::ListParams;
use kube::{Api, Client};
use server::hub;
use shared::cgu::upgrades::upgrading;
use shared::cgu::wire::UpgradeObject;
use shared::guarded::Guarded;
use shared::kinds::Kinds;
use shared::rollout::admission::policy;

use crate::systems::guard::{Kept, PolicyGuard};

/// How long an answer is kept.
const KEPT: Duration = Duration::from_secs(10);

/// The answers of this term.
#[derive(Debug)]
pub struct HubFacts {
    policy: PolicyGuard,
    upgrades: Kept<Arc<BTreeMap<String, String>>>,
}

impl HubFacts {
    /// Nothing is known yet, of rollouts over these kinds.
    pub fn new(kinds: Kinds) -> Self {
        Self { policy: PolicyGuard::new(policy(kinds)), upgrades: Kept::default() }
    }

    /// Why no target may start: the policy that decides who may start a rollout is not in force as we install it.
    pub async fn unguarded(&self, client: &Client) -> kube::Result<Option<String>> {
        self.policy.missing(client).await
    }

    /// The clusters that an active `ClusterGroupUpgrade` lists, with what to say of that.
    pub async fn upgrades(&self, client: &Client) -> kube::Result<Arc<BTreeMap<String, String>>> {
        self.upgrades.answer(KEPT, async { upgrades(client).await.map(Arc::new) }).await
    }
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
