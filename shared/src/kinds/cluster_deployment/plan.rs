//! What `plan` reads of a `ClusterDeployment`: Hive's objects, the rules, and the preflight of hibernate-controller.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::annotation::{format, keys};
use crate::hive::admission::{PLATFORM_FIELD, PLATFORM_ROW, RULES};
use crate::hive::api::ClusterDeployment;
use crate::hive::preflight::{answers, is_left_alone, objects, request_time, unanswered};
use crate::kinds::confirmation::{Briefing, Preflight, Request};
use crate::kinds::kind::Kind;
use crate::kinds::lifecycle::TargetError;
use crate::kinds::row::{Plan, RuleTable, SyncObject};

pub(super) static PLAN: Plan = Plan {
    preflight: Some(&Checks),
    rules: Some(RuleTable {
        has: |row| RULES.iter().any(|rule| rule.row == row),
        by_settings: (PLATFORM_ROW, PLATFORM_FIELD),
    }),
    // Hive keeps whether SyncSets have been applied in an object with the name of the cluster.
    sync: Some(SyncObject {
        kind: Kind::namespaced("hiveinternal.openshift.io", &["v1alpha1"], "ClusterSync", "clustersyncs"),
        is_applied: |object| object.pointer("/status/firstSuccessTime").is_some_and(Value::is_string),
    }),
    is_upgraded: true,
};

/// The controller's check of the cloud and of the cluster.
#[derive(Debug)]
struct Checks;

impl Preflight for Checks {
    fn request(&self, object: &Value, now: Timestamp) -> Result<Request, TargetError> {
        let cluster = ClusterDeployment::deserialize(object)?;
        if is_left_alone(&cluster) {
            let why = "hibernate-controller does not reconcile it: it is paused, not installed yet, or being deleted";
            return Ok(Request::Impossible(why.to_owned()));
        }
        let id = format::seconds(request_time(&cluster, now));
        let patch = json!({ "metadata": { "annotations": { keys::PREFLIGHT_REQUESTED_AT: id } } });
        Ok(Request::Write { id, patch })
    }

    fn answer(&self, object: &Value, requested: &str) -> Result<Option<Briefing>, TargetError> {
        let cluster = ClusterDeployment::deserialize(object)?;
        // What was written counts, at the precision in which it was written.
        let is_answered = answers(&cluster, format::time(requested).unwrap_or_default());
        Ok(is_answered.then(|| briefing(&cluster, None)))
    }

    fn last(&self, object: &Value, end: Option<Timestamp>) -> Result<Option<Briefing>, TargetError> {
        Ok(Some(briefing(&ClusterDeployment::deserialize(object)?, end)))
    }

    fn silence(&self, object: &Value) -> String {
        let why = ClusterDeployment::deserialize(object).map(|cluster| unanswered(&cluster)).unwrap_or_default();
        format!("{why} The findings shown are from an earlier check")
    }
}

fn briefing(cluster: &ClusterDeployment, end: Option<Timestamp>) -> Briefing {
    let (findings, at) = objects::of_controller(cluster, end);
    Briefing { at, findings, ..Briefing::default() }
}
