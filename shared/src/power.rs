//! The power state of a target: the one pair that intents, records, rollouts and every system share.

use serde::{Deserialize, Serialize};

/// A power state, desired or observed.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, strum::Display, strum::EnumString,
)]
pub enum Power {
    /// Awake. What no field says is awake.
    #[default]
    Running,
    /// Asleep.
    Hibernating,
}
