//! The table of kinds: what can be put to sleep, and what is only shown.
//!
//! One row per kind says how it is named and scoped, how intent is written, how state, step and progress are read, what
//! needs a warning, which columns it adds, and which commands take it. Every command reads the table instead of asking
//! which kind it has before it, so a new kind is one module and one line in [`KINDS`]. Nothing here performs I/O.

pub mod cluster_deployment;
pub mod confirmation;
pub mod cron_job;
pub mod file;
pub mod kind;
pub mod kkp_cluster;
pub mod lifecycle;
pub mod operators;
pub mod owners;
pub mod record;
pub mod row;
pub mod schema;
pub mod shown;
pub(crate) mod sleep_reader;
pub mod sleep_row;
pub mod testing;
pub mod view;
pub mod workload;

use serde_json::Value;

pub use self::cluster_deployment::CLUSTER_DEPLOYMENT;
pub use self::confirmation::Briefing;
pub use self::cron_job::CRON_JOB;
pub use self::kind::{Kind, Scope};
pub use self::kkp_cluster::KKP_CLUSTER;
pub use self::lifecycle::{Advice, Change, Intent, Progress, TargetError, UNNOTICED};
pub use self::record::{Governed, Instances, Key, Record, ScheduledChange};
pub use self::row::{
    ByDefault, Column, Companion, Elsewhere, Reader, Rival, ShownKind, Shows, TargetKind, is_protected,
};
pub use self::shown::{
    CLUSTER_GROUP_UPGRADE, CLUSTER_POOL, CLUSTER_SCHEDULE, FOUNDATIONDB_CLUSTER, POWER_ROLLOUT, SCHEDULE,
};
pub use self::view::{StepRecord, Uid, View};
use crate::object::{group_of, text};

/// A table of kinds. Commands take it as an argument, so that tests can add a row.
#[derive(Clone, Copy, Debug)]
pub struct Kinds {
    /// Kinds that can be put to sleep. Messages list them in this order.
    pub targets: &'static [&'static TargetKind],
    /// Kinds that are only shown.
    pub shown: &'static [&'static ShownKind],
}

/// Every kind of the product.
pub const KINDS: Kinds = Kinds {
    targets: &[
        &CLUSTER_DEPLOYMENT,
        &KKP_CLUSTER,
        &workload::DEPLOYMENT,
        &workload::STATEFUL_SET,
        &CRON_JOB,
        &workload::CAPI_MACHINE_DEPLOYMENT,
        &workload::KKP_MACHINE_DEPLOYMENT,
        &operators::CNPG,
        &operators::EDB,
        &operators::CNPG_SCHEDULED_BACKUP,
        &operators::CNPG_POOLER,
        &operators::ROLLOUT,
        &operators::SCALED_OBJECT,
        &operators::VIRTUAL_MACHINE,
        &operators::CRUNCHY,
        &operators::PERCONA_XTRADB,
        &operators::PERCONA_MONGODB,
        &operators::PERCONA_POSTGRES,
        &operators::NOTEBOOK,
        &operators::RAY_CLUSTER,
        &operators::RAY_SERVICE,
        &operators::SHOOT,
        &operators::NODE_POOL,
        &workload::DEPLOYMENT_CONFIG,
        &operators::CASSANDRA,
        &operators::CLICK_HOUSE,
    ],
    shown: &[
        &CLUSTER_POOL,
        &FOUNDATIONDB_CLUSTER,
        &POWER_ROLLOUT,
        &CLUSTER_GROUP_UPGRADE,
        &SCHEDULE,
        &CLUSTER_SCHEDULE,
    ],
};

impl Kinds {
    /// Kinds that a word names. A word such as `machinedeployment` names several.
    pub fn named(self, word: &str) -> Vec<&'static TargetKind> {
        self.targets.iter().copied().filter(|row| row.kind.is_named(word)).collect()
    }

    /// The kind that is only shown and has this name.
    pub fn shown_named(self, word: &str) -> Option<&'static ShownKind> {
        self.shown.iter().copied().find(|row| row.kind.is_named(word))
    }

    /// Kinds that rollouts may have as targets, the default first.
    pub fn in_rollouts(self) -> impl Iterator<Item = &'static TargetKind> {
        self.targets.iter().copied().filter(|row| row.in_rollouts.is_some())
    }

    /// The kind of this name, if rollouts may have its objects as targets.
    pub fn in_rollouts_named(self, kind: &str) -> Option<&'static TargetKind> {
        self.in_rollouts().find(|row| row.kind.kind == kind)
    }

    /// Kinds that a name without a TYPE may mean: not the many that operators run.
    pub fn without_a_type(self) -> Vec<&'static TargetKind> {
        self.targets.iter().copied().filter(|row| row.sleep_row().is_none()).collect()
    }

    /// Kinds that sleep with their whole namespace.
    pub fn in_namespace(self) -> Vec<&'static TargetKind> {
        self.targets.iter().copied().filter(|row| row.in_namespace).collect()
    }

    /// The kind that sleeps with its namespace of which this owner is.
    pub fn of_owner(self, owner: &Value) -> Option<&'static TargetKind> {
        let (group, kind) = (group_of(text(owner, "/apiVersion")), text(owner, "/kind"));
        let makes = |row: &TargetKind| matches!(row.reader, Reader::Row(row) if row.makes == Some((group, kind)));
        self.in_namespace().into_iter().find(|row| (row.kind.group, row.kind.kind) == (group, kind) || makes(row))
    }

    /// Kinds that `--all` and `-l` select without a TYPE.
    pub fn defaults(self) -> Vec<&'static TargetKind> {
        self.targets.iter().copied().filter(|row| row.by_default == ByDefault::Always).collect()
    }

    /// Kinds that `status` shows without a TYPE.
    pub fn shown_by_default(self) -> Vec<&'static TargetKind> {
        self.targets.iter().copied().filter(|row| row.by_default != ByDefault::Never).collect()
    }

    /// Columns that kinds add to `status -o wide`, each once: those of the default kinds always, those of others where
    /// they are shown.
    pub fn wide_columns(self, shown: &[&'static TargetKind]) -> Vec<&'static Column> {
        let mut columns: Vec<&'static Column> = Vec::new();
        for column in self.defaults().iter().chain(shown).flat_map(|row| row.columns) {
            if columns.iter().all(|known| known.header != column.header) {
                columns.push(column);
            }
        }
        columns
    }

    /// The types that a name alone may mean, with their short names, for messages. docs/kinds.md has all.
    pub fn known_types(self) -> String {
        let name = |row: &&TargetKind| format!("{} ({})", row.kind.resource_name(), row.kind.short.join(", "));
        self.without_a_type().iter().map(name).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests;
