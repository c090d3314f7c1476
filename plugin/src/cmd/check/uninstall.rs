//! Before an uninstallation: what would be deleted once the rules are gone, and what then never wakes or ends.

use std::collections::{BTreeMap, BTreeSet};

use hub::HubClient;
use serde_json::{Value, json};
use shared::annotation::keys;
use shared::fdb::suspension::Stamp;
use shared::hive::api::HIVE_PLATFORMS;
use shared::hive::config::{HIBERNATION, HIVE, HIVE_CONFIG, is_disabled};
use shared::kinds::{
    CLUSTER_DEPLOYMENT, CLUSTER_SCHEDULE, FOUNDATIONDB_CLUSTER, KKP_CLUSTER, Kind, POWER_ROLLOUT, Progress, SCHEDULE,
    TargetKind,
};
use shared::object::{items, name_of, text};
use shared::power::Power;
use shared::rollout::status::RolloutPhase;
use shared::text::{list, quoted};
use view::fdb::CLAIM;
use view::protection::WEBHOOKS;

use super::facts::{ListAnswer, namespace, object, objects};
use super::systems::stop;
use super::{CheckResult, Finding, Status};

/// Objects with one loss: what would be lost, and for each object its full name and the command.
struct Loss {
    name: &'static str,
    detail: &'static str,
    none: &'static str,
    found: Vec<(String, String)>,
}

/// Runs the checks.
pub(super) async fn findings(hub: &HubClient, groups: &[String]) -> Vec<Finding> {
    let served = |kind: &'static Kind| async move {
        if kind.group.is_empty() || groups.iter().any(|group| group == kind.group) {
            objects(hub, kind, None, "").await
        } else {
            Ok(Vec::new())
        }
    };
    let databases = groups.iter().any(|group| group == FOUNDATIONDB_CLUSTER.kind.group);
    let claims = async { if databases { served(&CLAIM).await } else { Ok(Vec::new()) } };
    let (claims, rollouts, own, everywhere, clusters, deployments, cut_over) = tokio::join!(
        claims,
        served(&POWER_ROLLOUT.kind),
        served(&SCHEDULE.kind),
        served(&CLUSTER_SCHEDULE.kind),
        served(&KKP_CLUSTER.kind),
        served(&CLUSTER_DEPLOYMENT.kind),
        cut_over(hub)
    );
    let mut findings = Vec::new();
    let mut report = |name, read: &ListAnswer, losses: &dyn Fn(&[Value]) -> Vec<Loss>| match read {
        Ok(objects) => findings.extend(losses(objects).into_iter().map(finding)),
        Err(error) => findings.push(Finding::new(name, CheckResult::unread(error))),
    };
    report("suspended-volumes", &claims, &|claims| vec![suspended(claims)]);
    report("rollouts", &rollouts, &|rollouts| vec![in_progress(rollouts)]);
    report("schedules", &own.and_then(|own| Ok([own, everywhere?].concat())), &|schedules| vec![at_work(schedules)]);
    report("kkp-clusters", &clusters, &|clusters| vec![asleep(clusters)]);
    report("clusters", &deployments, &|deployments| hive(deployments));
    findings.extend(cut_over);
    findings
}

/// Whether Hive's own controller is off: without ours no cluster of the hub sleeps or wakes. What only ours can wake comes
/// before it.
async fn cut_over(hub: &HubClient) -> Option<Finding> {
    let result = match object(hub, &HIVE_CONFIG, "", HIVE).await {
        Ok(config) => {
            let config = config?;
            if is_disabled(&config) {
                let rules = [object(hub, &WEBHOOKS, "", keys::WEBHOOK).await, Ok(None)];
                let (namespace, _) = namespace(hub, &rules).await;
                let detail =
                    "Hive's own hibernation controller is off: without ours no ClusterDeployment sleeps or wakes";
                let commands = vec![stop(&namespace), enable(&config)];
                CheckResult { status: Status::Failed, detail: detail.to_owned(), commands }
            } else {
                CheckResult::ok("Hive's own hibernation controller runs")
            }
        }
        Err(error) => CheckResult::unread(&error),
    };
    Some(Finding::new("hive", result))
}

/// The command that switches Hive's own controller on, and leaves what else is off.
fn enable(config: &Value) -> String {
    let others: Vec<&Value> = items(config, "/spec/disabledControllers").filter(|name| *name != HIBERNATION).collect();
    let patch = json!({ "spec": { "disabledControllers": others } }).to_string();
    format!("kubectl patch hiveconfig {HIVE} --type=merge -p {}", quoted(&patch))
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
    let owner = |claim: &Value| {
        let group = format!("{}/", FOUNDATIONDB_CLUSTER.kind.group);
        let is_database = |owner: &&Value| {
            text(owner, "/kind") == FOUNDATIONDB_CLUSTER.kind.kind && text(owner, "/apiVersion").starts_with(&group)
        };
        items(claim, "/metadata/ownerReferences").find(is_database).map(|owner| text(owner, "/name").to_owned())
    };
    let is_held = |claim: &&Value| {
        let stamp = Stamp::of(claim);
        stamp.present && stamp.released.is_none() && owner(claim).is_some()
    };
    let command = |claim: &Value| {
        let namespace = quoted(text(claim, "/metadata/namespace"));
        format!(
            "kubectl hibernate recover process-groups -c {} -n {namespace} --all-suspended",
            quoted(&owner(claim).unwrap_or_default())
        )
    };
    Loss {
        name: "suspended-volumes",
        detail: "FoundationDB's operator deletes these volumes once the webhook's rule is gone",
        none: "no suspended volume",
        found: claims.iter().filter(is_held).map(|claim| (place(claim), command(claim))).collect(),
    }
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

fn at_work(schedules: &[Value]) -> Loss {
    let is_at_work = |schedule: &&Value| {
        let is_suspended = schedule.pointer("/spec/suspend") == Some(&Value::Bool(true));
        !is_suspended && schedule.pointer("/metadata/deletionTimestamp").is_none()
    };
    let entry = |schedule: &Value| {
        let suspend = |kind: &str| {
            format!("kubectl hibernate schedule suspend {}", quoted(&format!("{kind}/{}", name_of(schedule))))
        };
        match text(schedule, "/metadata/namespace") {
            "" => (name_of(schedule).to_owned(), suspend("cpsch")),
            namespace => (place(schedule), format!("{} -n {}", suspend("psch"), quoted(namespace))),
        }
    };
    Loss {
        name: "schedules",
        detail: "without hibernate-controller these schedules wake nothing",
        none: "no schedule at work",
        found: schedules.iter().filter(is_at_work).map(entry).collect(),
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
    let is_kept = |cluster: &&Value| cluster.pointer("/metadata/deletionTimestamp").is_none();
    let is_ours = |cluster: &&Value| row.companion.is_some_and(|companion| companion.is_expected(cluster));
    let found = clusters.iter().filter(is_kept).filter(is_ours);
    Loss {
        name: "kkp-clusters",
        detail: "only hibernate-controller wakes these Clusters",
        none: "every Cluster of KKP is awake",
        found: found.map(|cluster| (name_of(cluster).to_owned(), act(row, cluster, "resume "))).collect(),
    }
}

/// Of `ClusterDeployment`s: name, detail, and what there is none of; a line only if there is any, if that is empty.
const HIVE_LOSSES: [(&str, &str, &str); 4] = [
    (
        "platforms",
        "only hibernate-controller wakes these ClusterDeployments: Hive does not serve their platform",
        "no cluster is asleep that Hive could not wake",
    ),
    ("wake-at", "without hibernate-controller these ClusterDeployments do not wake as scheduled", "no scheduled wake"),
    ("transitions", "these ClusterDeployments are in transition", "no cluster is in transition"),
    ("unreadable", "these ClusterDeployments cannot be read", ""),
];

/// Each cluster counts once: as one that only we wake, as one with a schedule, or as one in transition.
fn hive(deployments: &[Value]) -> Vec<Loss> {
    let row = &CLUSTER_DEPLOYMENT;
    let mut found: BTreeMap<&str, Vec<(String, String)>> = BTreeMap::new();
    let is_kept = |object: &&Value| object.pointer("/metadata/deletionTimestamp").is_none();
    for object in deployments.iter().filter(is_kept) {
        let Ok(record) = row.record(object) else {
            let get = format!(
                "kubectl get cd {} -n {} -o yaml",
                quoted(name_of(object)),
                quoted(text(object, "/metadata/namespace"))
            );
            found.entry("unreadable").or_default().push((place(object), get));
            continue;
        };
        let sleeps = record.desired == Power::Hibernating.to_string();
        let is_hives = record.platform.as_deref().is_none_or(|platform| HIVE_PLATFORMS.contains(&platform));
        let is_installed = object.pointer("/spec/installed") == Some(&Value::Bool(true));
        let is_awake = matches!(row.progress(object, Power::Running), Ok(Progress::Reached));
        let moves = record.step.as_ref().is_some_and(|step| !step.reason.is_empty());
        let (loss, verb) = match () {
            () if !is_hives && is_installed && (sleeps || moves || !is_awake && !record.observed.is_empty()) => {
                ("platforms", "resume ")
            }
            () if sleeps && record.wake_at.is_some() => ("wake-at", "resume "),
            () if moves => ("transitions", if sleeps { "" } else { "resume " }),
            () => continue,
        };
        found.entry(loss).or_default().push((place(object), act(row, object, verb)));
    }
    let loss = |(name, detail, none)| Loss { name, detail, none, found: found.remove(name).unwrap_or_default() };
    HIVE_LOSSES.into_iter().map(loss).filter(|loss| !loss.none.is_empty() || !loss.found.is_empty()).collect()
}
