//! Before an uninstallation: what would be deleted once the rules are gone, and what then never wakes or ends.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;
use shared::annotation::{annotation, format, keys};
use shared::fdb::suspension::Stamp;
use shared::hive::api::HIVE_PLATFORMS;
use shared::power::Power;
use shared::rollout::status::RolloutPhase;
use shared::target::{
    CLUSTER_DEPLOYMENT, FOUNDATIONDB_CLUSTER, KKP_CLUSTER, Kind, POWER_ROLLOUT, Progress, TargetKind,
};
use shared::text::{list, quoted};

use super::finding::{CheckResult, Finding, Status};
use super::hub::{Listed, objects};
use crate::api::{Hub, name_of, text};
use crate::read::fdb::CLAIM;

/// Objects with one loss: what would be lost, and for each object its full name and the command.
struct Loss {
    name: &'static str,
    detail: &'static str,
    none: &'static str,
    found: Vec<(String, String)>,
}

/// Runs the checks.
pub(super) async fn findings(hub: &Hub, groups: &[String]) -> Vec<Finding> {
    let served = |kind: &'static Kind| async move {
        if kind.group.is_empty() || groups.iter().any(|group| group == kind.group) {
            objects(hub, kind, None, "").await
        } else {
            Ok(Vec::new())
        }
    };
    let databases = groups.iter().any(|group| group == FOUNDATIONDB_CLUSTER.kind.group);
    let claims = async { if databases { served(&CLAIM).await } else { Ok(Vec::new()) } };
    let (claims, rollouts, clusters, deployments) =
        tokio::join!(claims, served(&POWER_ROLLOUT.kind), served(&KKP_CLUSTER.kind), served(&CLUSTER_DEPLOYMENT.kind));
    let now = Timestamp::now();
    let mut findings = Vec::new();
    let mut report = |name, read: &Listed, losses: &dyn Fn(&[Value]) -> Vec<Loss>| match read {
        Ok(objects) => findings.extend(losses(objects).into_iter().map(finding)),
        Err(error) => findings.push(Finding::new(name, CheckResult::unread(error))),
    };
    report("suspended-volumes", &claims, &|claims| vec![suspended(claims)]);
    report("rollouts", &rollouts, &|rollouts| vec![in_progress(rollouts)]);
    report("kkp-clusters", &clusters, &|clusters| vec![asleep(clusters)]);
    report("clusters", &deployments, &|deployments| hive(deployments, now));
    findings
}

fn finding(loss: Loss) -> Finding {
    let Loss { name, detail, none, found } = loss;
    if found.is_empty() {
        return Finding::new(name, CheckResult::ok(none));
    }
    let commands: BTreeSet<String> = found.iter().map(|(_, command)| command.clone()).collect();
    let detail = format!("{detail}: {}", list(found.iter().map(|(name, _)| name)));
    Finding::new(name, CheckResult { status: Status::Failed, detail, commands: commands.into_iter().collect() })
}

fn suspended(claims: &[Value]) -> Loss {
    let is_held = |claim: &&Value| {
        let stamp = Stamp::of(claim);
        stamp.present && stamp.released.is_none()
    };
    let command = |claim: &Value| {
        let owners = claim.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten();
        let kind = FOUNDATIONDB_CLUSTER.kind.kind;
        let owner =
            owners.into_iter().find(|owner| text(owner, "/kind") == kind).map(name_of_owner).unwrap_or_default();
        let namespace = quoted(text(claim, "/metadata/namespace"));
        format!("kubectl hibernate recover process-groups -c {} -n {namespace} --all-suspended", quoted(owner))
    };
    Loss {
        name: "suspended-volumes",
        detail: "FoundationDB's operator deletes these volumes once the webhook's rule is gone",
        none: "no suspended volume",
        found: claims.iter().filter(is_held).map(|claim| (place(claim), command(claim))).collect(),
    }
}

fn name_of_owner(owner: &Value) -> &str {
    text(owner, "/name")
}

/// `shop/data-1`.
fn place(object: &Value) -> String {
    format!("{}/{}", text(object, "/metadata/namespace"), name_of(object))
}

fn in_progress(rollouts: &[Value]) -> Loss {
    let phase = |rollout: &Value| {
        let phase = rollout.pointer("/status/phase").cloned().unwrap_or_default();
        serde_json::from_value::<RolloutPhase>(phase).ok()
    };
    let goes_on = |rollout: &&Value| phase(rollout).is_none_or(|phase| !phase.is_over());
    let abort = |name: &str| format!("kubectl hibernate rollout abort {}", quoted(name));
    Loss {
        name: "rollouts",
        detail: "these rollouts stop where they are",
        none: "no rollout in progress",
        found: rollouts.iter().filter(goes_on).map(name_of).map(|name| (name.to_owned(), abort(name))).collect(),
    }
}

/// The command that acts on one target and waits.
fn act(row: &TargetKind, object: &Value, verb: &str) -> String {
    let target = quoted(&format!("{}/{}", row.kind.short.first().unwrap_or(&"cluster"), name_of(object)));
    match text(object, "/metadata/namespace") {
        "" => format!("kubectl hibernate {verb}{target} --wait"),
        namespace => format!("kubectl hibernate {verb}{target} -n {} --wait", quoted(namespace)),
    }
}

fn asleep(clusters: &[Value]) -> Loss {
    let row = &KKP_CLUSTER;
    let is_ours = |cluster: &&Value| {
        let desired = row.record(cluster).is_ok_and(|record| record.desired == Power::Hibernating.to_string());
        desired || matches!(row.progress(cluster, Power::Running), Ok(Progress::Going(_) | Progress::Failed(_)))
    };
    let found = clusters.iter().filter(is_ours);
    Loss {
        name: "kkp-clusters",
        detail: "only hibernate-controller wakes these Clusters",
        none: "no Cluster of KKP is asleep",
        found: found.map(|cluster| (name_of(cluster).to_owned(), act(row, cluster, "resume "))).collect(),
    }
}

/// Each cluster counts once: as one that only we wake, as one with a schedule, or as one in transition.
fn hive(deployments: &[Value], now: Timestamp) -> Vec<Loss> {
    let row = &CLUSTER_DEPLOYMENT;
    let mut found: BTreeMap<&str, Vec<(String, String)>> = BTreeMap::new();
    for object in deployments {
        let Ok(record) = row.record(object) else { continue };
        let sleeps = record.desired == Power::Hibernating.to_string();
        let is_hives = record.platform.as_deref().is_none_or(|platform| HIVE_PLATFORMS.contains(&platform));
        let wakes = annotation(object, keys::WAKE_AT).and_then(format::time).is_some_and(|at| at > now);
        let desired = if sleeps { Power::Hibernating } else { Power::Running };
        let moves = matches!(row.progress(object, desired), Ok(Progress::Going(_)));
        let (loss, verb) = match () {
            () if sleeps && !is_hives => ("platforms", "resume "),
            () if sleeps && wakes => ("wake-at", "resume "),
            () if moves => ("transitions", if sleeps { "" } else { "resume " }),
            () => continue,
        };
        found.entry(loss).or_default().push((place(object), act(row, object, verb)));
    }
    let mut loss = |name, detail, none| Loss { name, detail, none, found: found.remove(name).unwrap_or_default() };
    vec![
        loss(
            "platforms",
            "only hibernate-controller wakes these ClusterDeployments: Hive does not serve their platform",
            "no cluster is asleep that Hive could not wake",
        ),
        loss(
            "wake-at",
            "without hibernate-controller these ClusterDeployments do not wake as scheduled",
            "no scheduled wake",
        ),
        loss("transitions", "these ClusterDeployments are in transition", "no cluster is in transition"),
    ]
}
