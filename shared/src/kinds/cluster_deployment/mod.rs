//! Hive's `ClusterDeployment`: intent is `spec.powerState`, state is in Hive's conditions and `status.powerState`.

mod advice;
mod details;
mod intent;
mod plan;
mod progress;
mod view;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::kind::Kind;
use super::lifecycle::{Advice, Change, HubFacts, HubFindings, Intent, Lifecycle, Progress, TargetError};
use super::record::Record;
use super::row::{ASLEEP, ByDefault, Column, INSTANCES, PLATFORM, REGION, Reader, Rival, STOP_START, TargetKind};
use super::view::View;
use crate::admission::Settings;
use crate::annotation::format;
use crate::hive::api::ClusterDeployment;
use crate::hive::config::{HIVE, HIVE_CONFIG, is_disabled};
use crate::hive::decide::sleep_history;
use crate::hive::preflight::objects;
use crate::power::Power;

/// The row.
pub static CLUSTER_DEPLOYMENT: TargetKind = TargetKind {
    by_default: ByDefault::Always,
    has_schedule: true,
    plan: Some(&plan::PLAN),
    writes: "spec.powerState: \"Hibernating\"",
    rival: Some(&Rival {
        name: "Hive's own hibernation controller",
        settings: (&HIVE_CONFIG, HIVE),
        is_disabled,
        remedy: "add \"hibernation\" to spec.disabledControllers of the HiveConfig",
    }),
    asleep: "hibernating",
    awake: "running",
    columns: &[
        PLATFORM,
        REGION,
        INSTANCES,
        Column { header: "HIBERNATE-AFTER", cell: |record, _| record.hibernate_after.clone().unwrap_or_default() },
        Column { header: "FIRES-AT", cell: fires_at },
        ASLEEP,
    ],
    in_rollouts: Some(STOP_START),
    stage: 5,
    ..TargetKind::plain(
        Kind::namespaced("hive.openshift.io", &["v1"], "ClusterDeployment", "clusterdeployments").with_short(&["cd"]),
        Reader::Code(|object| Ok(Box::new(ClusterDeployment::deserialize(object)?))),
    )
};

impl Lifecycle for ClusterDeployment {
    fn view(&self, rules: Option<&Settings>) -> View {
        view::of(self, rules)
    }

    fn change(&self, intent: &Intent<'_>) -> Result<Change, TargetError> {
        Ok(intent::change(self, intent))
    }

    fn findings(&self, facts: HubFacts<'_>) -> HubFindings {
        objects::of_hub(self, facts)
    }

    fn progress(&self, action: Power) -> Progress {
        progress::of(self, action)
    }

    fn check_progress(&self, requested: Timestamp) -> Progress {
        progress::of_check(self, requested)
    }

    fn advice(&self, intent: &Intent<'_>, patch: &Value) -> Advice {
        advice::of(self, intent, patch)
    }

    fn describe(&self, record: Record) -> Record {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Record {
            instances: details::instances(self),
            platform: text(self.spec.platform.name()),
            region: self.spec.platform.region().map(str::to_owned),
            hibernate_after: self.spec.hibernate_after.clone(),
            fires_at: details::fires_at(self),
            sleep_history: Some(sleep_history(self)),
            ..record
        }
    }
}

fn fires_at(record: &Record, now: Timestamp) -> String {
    match record.fires_at {
        Some(at) if at <= now => "due".to_owned(),
        Some(at) => format::seconds(at),
        None => String::new(),
    }
}
