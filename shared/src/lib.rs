//! The pure core of kubectl-hibernate: API types, admission rules, decisions.
//!
//! Nothing in here performs I/O, holds a client or reads a clock. The plugin, the webhook and the controller are shells
//! around this crate.

pub mod admission;
pub mod annotation;
pub mod cloud;
pub mod duration;
/// `FoundationDB`: process groups are suspended before their volumes are deleted, without a change to the operator.
///
/// The operator marks a group, excludes it and deletes its Pod, PVC and Service within half a second. The webhook denies
/// the deletion of PVC and Service until the object itself carries a release; the controller stamps what is held, waits
/// for the window on its own clock and releases.
pub mod fdb {
    pub mod admission;
    pub mod api;
    pub mod decide;
    pub mod recover;
    pub mod suspension;
}
pub mod finding;
pub mod guarded;
pub mod hive;
pub mod kinds;
pub mod kkp;
pub mod object;
pub mod quantity;
pub mod read;
pub mod record;
pub mod rollout;
pub mod schedule;
pub mod spoke;
pub mod text;
mod visit;

/// The power state of a target: the one pair that intents, records, rollouts and every system share.
pub mod power {
    use serde::{Deserialize, Serialize};

    /// A power state, desired or observed.
    #[derive(
        Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, strum::Display, strum::EnumString,
    )]
    pub enum Power {
        /// Awake: also where no field says anything.
        #[default]
        Running,
        /// Asleep.
        Hibernating,
    }
}

pub mod savings {
    //! What sleep has avoided: a ledger on each cluster, and what people read of many of them.
    //!
    //! A controller writes the [`ledger`] in a status write that is due anyway. [`history`] reads a period out of it,
    //! [`report`] adds up targets by what they are grouped by, at [`prices`] that the user has.

    pub mod history;
    pub mod ledger;
    pub mod period;
    pub mod prices;
    pub mod report;
    #[cfg(test)]
    mod tests;
}

/// Workloads: objects whose size is `spec.replicas` and whose sleep is 0 replicas with the former count in an
/// annotation.
pub mod workload {
    pub mod admission;
    pub mod namespaces;
    pub mod ownership;
    pub mod replicas;
}

/// TALM's `ClusterGroupUpgrade`: policies enforced over a fleet, batch by batch. Rows and sections are those of
/// docs/reference/talm.md. The strings are TALM's: other software parses them.
pub mod cgu {
    pub mod api;
    pub mod blockers;
    pub mod conditions;
    pub mod decide;
    pub mod events;
    pub mod governance;
    pub mod objects;
    pub mod phase;
    pub mod plan;
    pub mod policy;

    /// Images that are pulled before an upgrade starts (rows 10 and 11, section 9.5).
    pub mod precache {
        pub mod spec;
        pub mod workload;
    }

    pub mod select;
    pub mod templates;
    pub mod upgrades;
    pub mod version;
    pub mod view;
    pub mod wire;
    pub mod ztp;
}
