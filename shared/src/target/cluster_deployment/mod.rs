//! Hive's `ClusterDeployment`: intent is `spec.powerState`, state is in Hive's conditions and `status.powerState`.

mod hibernate_after;
mod instances;
mod intent;
mod progress;
mod state;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::kind::Kind;
use super::lifecycle::{Change, Intent, Lifecycle, PowerAction, Progress, TargetError};
use super::record::Record;
use super::row::{Advice, ByDefault, Column, INSTANCES, PLATFORM, REGION, TargetKind};
use crate::hive::api::ClusterDeployment;

/// The row.
pub static CLUSTER_DEPLOYMENT: TargetKind = TargetKind {
    kind: Kind::namespaced("hive.openshift.io", &["v1"], "ClusterDeployment", "clusterdeployments").with_short(&["cd"]),
    by_default: ByDefault::Always,
    has_schedule: true,
    has_force: false,
    has_plan: true,
    advice: Some(Advice::ClusterPools),
    asleep: "hibernating",
    awake: "running",
    columns: &[
        PLATFORM,
        REGION,
        INSTANCES,
        Column { header: "HIBERNATE-AFTER", cell: |record, _| record.hibernate_after.clone().unwrap_or_default() },
        Column { header: "FIRES-AT", cell: fires_at },
    ],
    warnings: |_, _| Vec::new(),
    confirmation: None,
    companion: None,
    elsewhere: None,
    lifecycle: &Cluster,
};

#[derive(Debug)]
struct Cluster;

impl Lifecycle for Cluster {
    fn change(&self, object: &Value, intent: &Intent<'_>) -> Result<Change, TargetError> {
        Ok(intent::change(object, intent))
    }

    fn progress(&self, object: &Value, action: PowerAction) -> Result<Progress, TargetError> {
        Ok(progress::of(&ClusterDeployment::deserialize(object)?, action))
    }

    fn check_progress(&self, object: &Value, requested: Timestamp) -> Result<Progress, TargetError> {
        Ok(progress::of_check(&ClusterDeployment::deserialize(object)?, requested))
    }

    fn describe(&self, object: &Value, record: Record) -> Result<Record, TargetError> {
        Ok(state::describe(&ClusterDeployment::deserialize(object)?, record))
    }
}

fn fires_at(record: &Record, now: Timestamp) -> String {
    match record.fires_at {
        Some(at) if at <= now => "due".to_owned(),
        Some(at) => at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        None => String::new(),
    }
}
