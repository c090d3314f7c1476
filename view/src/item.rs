//! What is shown of an object of any kind, in the form that `-o json` documents.

use serde::Serialize;
use shared::kinds::{CLUSTER_GROUP_UPGRADE, CLUSTER_POOL, FOUNDATIONDB_CLUSTER, Key, POWER_ROLLOUT, ShownKind, Shows};

use super::fdb::DatabaseState;
use super::pool::PoolState;
use super::rollout::RolloutState;
use super::schedule::ScheduleState;
use super::target::TargetState;
use super::upgrade::UpgradeState;

/// An object and what belongs to it. Serialized as `-o json` documents it; later versions only add fields.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Item {
    /// Of a kind that can be put to sleep.
    Target(Box<TargetState>),
    /// A `ClusterPool`.
    Pool(Box<PoolState>),
    /// A `FoundationDBCluster`.
    Database(Box<DatabaseState>),
    /// A `PowerRollout`.
    Rollout(Box<RolloutState>),
    /// A `ClusterGroupUpgrade`.
    Upgrade(Box<UpgradeState>),
    /// A `PowerSchedule` or `ClusterPowerSchedule`.
    Schedule(Box<ScheduleState>),
}

/// The list that `-o json` prints.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ItemList<'a> {
    api_version: &'static str,
    kind: &'static str,
    items: &'a [&'a Item],
}

impl<'a> ItemList<'a> {
    /// A list of items of a kind that is only shown, or of targets.
    pub fn new(shown: Option<&ShownKind>, items: &'a [&'a Item]) -> Self {
        let kind = match shown.map(|row| row.shows) {
            None => "TargetStatusList",
            Some(Shows::ClusterPool) => "PoolStatusList",
            Some(Shows::FoundationDb) => "FoundationDBStatusList",
            Some(Shows::Rollout) => "RolloutStatusList",
            Some(Shows::Upgrade) => "ClusterGroupUpgradeStatusList",
            Some(Shows::Schedule) => "ScheduleStatusList",
        };
        Self { api_version: "hibernate.sh/v1alpha1", kind, items }
    }
}

impl Item {
    /// The state of a target; none of another object.
    pub fn target(&self) -> Option<&TargetState> {
        if let Self::Target(target) = self { Some(target) } else { None }
    }

    /// Its type, namespace and name.
    pub fn key(&self) -> Key {
        let of = |shown: &ShownKind, namespace: &str, name: &str| {
            (shown.kind.type_name(), namespace.to_owned(), name.to_owned())
        };
        match self {
            Self::Target(target) => target.record.key(),
            Self::Pool(pool) => of(&CLUSTER_POOL, &pool.namespace, &pool.name),
            Self::Database(database) => of(&FOUNDATIONDB_CLUSTER, &database.namespace, &database.name),
            Self::Rollout(rollout) => of(&POWER_ROLLOUT, "", &rollout.name),
            Self::Upgrade(upgrade) => of(&CLUSTER_GROUP_UPGRADE, upgrade.namespace(), upgrade.name()),
            Self::Schedule(schedule) => of(schedule.row, schedule.namespace(), schedule.name()),
        }
    }

    /// The same once the object does not exist any more.
    pub fn deleted(mut self) -> Self {
        match &mut self {
            Self::Target(target) => {
                "Deleted".clone_into(&mut target.record.observed);
                target.record.step = None;
            }
            Self::Rollout(rollout) => {
                "Deleted".clone_into(&mut rollout.phase);
                (rollout.status.awaits_approval, rollout.status.halt) = (None, None);
            }
            Self::Upgrade(upgrade) => upgrade.is_gone = true,
            Self::Schedule(schedule) => schedule.is_gone = true,
            Self::Pool(_) | Self::Database(_) => {}
        }
        self
    }
}
