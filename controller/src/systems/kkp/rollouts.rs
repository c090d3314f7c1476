//! What rollouts need of a Cluster besides its row: nothing. The preflight and the drain of a sleep are the system's own.

use shared::kkp::api::Cluster;

use crate::systems::rollout::Member;

impl Member for Cluster {}
