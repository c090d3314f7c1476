//! Columns of `status -o wide` that several kinds share.

use super::{
    record::{Instances, Record},
    row::Column,
};

/// The cloud.
pub const PLATFORM: Column =
    Column { header: "PLATFORM", cell: |record, _| record.platform.clone().unwrap_or_default() };

/// The part of the cloud.
pub const REGION: Column = Column { header: "REGION", cell: |record, _| record.region.clone().unwrap_or_default() };

/// How large a target is and how far it has come: instances of a cluster, replicas of a workload.
pub const INSTANCES: Column = Column { header: "INSTANCES", cell: |record, _| instances(record) };

/// `4/6 stopped` where the total is known, `2 to stop` where only those that lag behind are known.
fn instances(record: &Record) -> String {
    let (done, to_do) = if record.desired == "Hibernating" { ("stopped", "to stop") } else { ("running", "to start") };
    match (record.instances, record.replicas, &record.recorded_replicas) {
        (Some(Instances { total: Some(total), awaited: 0 }), ..) => total.to_string(),
        (Some(Instances { total: Some(total), awaited }), ..) => {
            format!("{}/{total} {done}", total.saturating_sub(awaited))
        }
        (Some(Instances { total: None, awaited }), ..) => format!("{awaited} {to_do}"),
        (None, Some(0), Some(recorded)) => format!("0 ({recorded} recorded)"),
        (None, Some(replicas), _) => replicas.to_string(),
        (None, None, _) => String::new(),
    }
}
