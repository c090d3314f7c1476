//! Kinds that operators run, as rows of data: what each field means is in docs/kinds.md.

mod argo;
mod databases;
mod gardener;
mod hypershift;
mod kubevirt;
pub(super) mod no_row;
mod notebooks;
pub mod objects;
mod ray;

use super::kind::Kind;
use super::row::{Reader, TargetKind};
use super::sleep_row::SleepRow;

pub use self::argo::{ROLLOUT, SCALED_OBJECT};
pub use self::databases::{
    CASSANDRA, CLICK_HOUSE, CNPG, CNPG_POOLER, CNPG_SCHEDULED_BACKUP, CRUNCHY, EDB, PERCONA_MONGODB, PERCONA_POSTGRES,
    PERCONA_XTRADB,
};
pub use self::gardener::SHOOT;
pub use self::hypershift::NODE_POOL;
pub use self::kubevirt::VIRTUAL_MACHINE;
pub use self::notebooks::NOTEBOOK;
pub use self::ray::{RAY_CLUSTER, RAY_SERVICE};

/// A kind that sleeps as this row says.
pub(super) const fn target(kind: Kind, stage: u8, row: &'static SleepRow) -> TargetKind {
    TargetKind {
        // Only those that sleep are of interest.
        is_listed: |record| record.desired == "Hibernating" || record.more.contains_key("recordedBefore"),
        in_namespace: true,
        stage,
        ..TargetKind::plain(kind, Reader::Row(row))
    }
}

#[cfg(test)]
mod tests;
