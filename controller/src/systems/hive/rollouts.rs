//! What rollouts need of a `ClusterDeployment` besides its row.

use shared::hive::api::ClusterDeployment;
use shared::spoke::{SpokeError, Upgrade};
use shared::text::{sanitize_chain, sanitize_to};

use super::spokes;
use crate::runtime::Hub;
use crate::spoke::{self, Network};
use crate::systems::rollout::{Member, Verdict};

/// Longest reason of a deferral in characters.
const MAX_REASON: usize = 200;

impl Member for ClusterDeployment {
    async fn objection(&self, hub: &Hub, network: &Network) -> Verdict {
        let client = match spokes::client(hub, network, self).await {
            Ok((client, _)) => client,
            // The hub did not give the kubeconfig: that says nothing about the cluster.
            Err(error @ SpokeError::Failed(_)) => return Err(error),
            Err(error) => return Ok(Some(sanitize_to(&sanitize_chain(&error), MAX_REASON))),
        };
        Ok(match spoke::upgrade(&client).await {
            Upgrade::Idle => None,
            Upgrade::Progressing(what) => Some(sanitize_to(&format!("it is being upgraded: {what}"), MAX_REASON)),
            Upgrade::Unknown => Some("its API server does not answer: a sleep could interrupt an upgrade".to_owned()),
        })
    }
}
