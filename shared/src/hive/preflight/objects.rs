//! What the objects on the hub show about a sleep and a wake, before it is requested. Pure: objects in, findings out.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{findings, found_at, within};
use crate::admission::sleep_trial;
use crate::annotation::{format, keys};
use crate::finding::Finding;
use crate::hive::admission::{default_settings, judge};
use crate::hive::api::{ClusterDeployment, ClusterPoolReference, POWERSTATE_PAUSE, RECONCILE_PAUSE};
use crate::hive::conditions::{HIBERNATING, reason};
use crate::hive::pool::deciding;
use crate::kinds::lifecycle::{HubFacts, HubFindings};
use crate::power::Power;

/// For how long after its installation a cluster waits for its sync sets before it goes to sleep
/// (docs/reference/hive.md, row 12a).
const SYNC_SETS_GRACE: SignedDuration = SignedDuration::from_mins(10);

/// Findings from the objects on the hub.
pub fn of_hub(cluster: &ClusterDeployment, HubFacts { object, is_synced, now }: HubFacts<'_>) -> HubFindings {
    let (judged, mut others) = match cluster.desired() {
        Power::Running => (of_rules(object, now), Vec::new()),
        Power::Hibernating => (Vec::new(), of_wake(cluster)),
    };
    others.extend(unsupported(cluster));
    others.extend(sync_sets(cluster, is_synced, now));
    others.extend(schedule(cluster, now));
    others.extend(billed(cluster.spec.platform.name()));
    HubFindings { judged, others }
}

/// What the controller last found in the cloud and in the cluster, for a sleep until `end`; and when it was found.
pub fn of_controller(cluster: &ClusterDeployment, end: Option<Timestamp>) -> (Vec<Finding>, Option<Timestamp>) {
    let Some(findings) = findings(cluster) else {
        let sentence = "hibernate-controller has not checked the cloud and the cluster yet: use --fresh";
        return (vec![Finding::info("NotLookedAt", sentence)], None);
    };
    let mut found: Vec<Finding> = findings.into_iter().map(|finding| within(finding, end)).collect();
    found.sort();
    (found, found_at(cluster))
}

/// The webhook's verdict on a sleep now: its own rules, by its own code, with its default settings.
fn of_rules(object: &Value, now: Timestamp) -> Vec<Finding> {
    let Some(evaluation) = sleep_trial(object.clone(), &default_settings(), now, judge) else {
        return vec![Finding::block("Unreadable", "the object does not match its schema")];
    };
    let denials = evaluation.denials.iter().map(|denial| Finding::block(denial.row, denial.detail.to_string()));
    let warnings = evaluation.warnings.iter().map(|warning| Finding::warn(warning.row, &warning.detail));
    denials.chain(warnings).collect()
}

/// A sleeping cluster is judged for its wake, which the webhook never refuses.
fn of_wake(cluster: &ClusterDeployment) -> Vec<Finding> {
    let asks = "the desired state is already Hibernating: the findings below are about the wake";
    let mut findings = vec![Finding::info("AsksForSleep", asks)];
    if cluster.metadata.deletion_timestamp.is_some() {
        findings.push(Finding::block("Deleted", "the cluster is being deleted"));
    }
    for key in [RECONCILE_PAUSE, POWERSTATE_PAUSE].into_iter().filter(|key| cluster.annotation_is_true(key)) {
        findings.push(Finding::block("Paused", format!("{key} is set: the cluster wakes only once it is removed")));
    }
    findings.extend(deciding(cluster).map(|ClusterPoolReference { pool_name, .. }| {
        Finding::warn(
            "Pool",
            format!("unclaimed cluster of ClusterPool {pool_name}: the pool may put it to sleep again"),
        )
    }));
    findings
}

fn unsupported(cluster: &ClusterDeployment) -> Option<Finding> {
    let message = cluster.condition(HIBERNATING).filter(|_| cluster.reason(HIBERNATING) == reason::UNSUPPORTED)?;
    let message = message.message.as_deref().unwrap_or("no controller can hibernate it");
    Some(Finding::block("Unsupported", message))
}

/// sync sets that were never applied hold back a sleep shortly after the installation, and slow a wake.
fn sync_sets(cluster: &ClusterDeployment, synced: Option<bool>, now: Timestamp) -> Option<Finding> {
    if synced? {
        return None;
    }
    let young = cluster.installed_at().is_some_and(|installed| now.duration_since(installed) < SYNC_SETS_GRACE);
    let sentence = if young {
        "the SyncSets have not been applied: the sleep waits for them, until 10 minutes after the installation at most"
    } else {
        "the SyncSets have never been applied: with Hive's own controller, each wake waits some minutes longer for the nodes"
    };
    Some(Finding::warn("SyncSetsNotApplied", sentence))
}

fn schedule(cluster: &ClusterDeployment, now: Timestamp) -> impl Iterator<Item = Finding> {
    let wakes = cluster.moment(keys::WAKE_AT).map(|at| {
        let when = if at <= now { "was due to wake at" } else { "is woken at" };
        Finding::info("WakesAt", format!("it {when} {}", format::seconds(at)))
    });
    let sleeps = cluster.spec.hibernate_after.as_ref().map(|after| {
        Finding::info("HibernateAfter", format!("spec.hibernateAfter puts it to sleep again {after} after each wake"))
    });
    wakes.into_iter().chain(sleeps)
}

/// What a sleep does not save.
fn billed(platform: &str) -> Option<Finding> {
    let what = match platform {
        "aws" => {
            "EBS volumes and snapshots, Elastic IP addresses, load balancers, NAT gateways, S3 buckets and hosted zones"
        }
        "azure" => "managed disks and snapshots, public IP addresses, load balancers, storage accounts and DNS zones",
        "gcp" => {
            "persistent disks and snapshots, reserved addresses, forwarding rules, Cloud NAT, buckets and DNS zones"
        }
        "openstack" => {
            "images of the servers, volumes and their snapshots, floating IPs, ports, routers and load balancers"
        }
        "ibmcloud" => "block storage and snapshots, floating IP addresses, load balancers, buckets and DNS zones",
        _ => return None,
    };
    Some(Finding::info("StillBilled", format!("while it sleeps, these stay and are billed: {what}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::finding::{Severity, code};
    use crate::hive::data::{DATA, Data};
    use crate::hive::preflight::PREFLIGHT;
    use crate::record::Format;

    const NOW: &str = "2026-11-21T18:00:00Z";

    fn object(change: &Value) -> Value {
        let mut object = json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
            "metadata": { "name": "demo", "namespace": "x", "annotations": {} },
            "spec": {
                "baseDomain": "d", "clusterName": "demo", "installed": true, "platform": { "aws": { "region": "r" } },
                "clusterMetadata": { "clusterID": "c", "infraID": "i", "adminKubeconfigSecretRef": { "name": "s" } },
            },
            "status": { "installedTimestamp": "2026-01-01T00:00:00Z" },
        });
        for (pointer, value) in change.as_object().into_iter().flatten() {
            let (parent, key) = pointer.split_once(' ').unwrap();
            object.pointer_mut(parent).unwrap()[key] = value.clone();
        }
        object
    }

    fn hub(change: &Value, synced: Option<bool>) -> Vec<String> {
        let object = object(change);
        let cluster = serde_json::from_value(object.clone()).unwrap();
        let facts = HubFacts { object: &object, is_synced: synced, now: NOW.parse().unwrap() };
        let HubFindings { judged, others } = of_hub(&cluster, facts);
        let mut findings = [judged, others].concat();
        findings.sort();
        findings.into_iter().map(|finding| format!("{} {}", finding.severity, finding.code)).collect()
    }

    #[test]
    fn the_hub_tells_what_the_webhook_would_say_and_more() {
        let note = |key: &str, value: &str| json!({ "/metadata/annotations ".to_owned() + key: value });
        let asleep = |more: Value| {
            let mut change = json!({ "/spec powerState": "Hibernating" });
            change.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            change
        };
        for (case, change, synced, expected) in [
            ("sound", json!({}), Some(true), vec![]),
            ("protected", note(keys::PROTECTED, "true"), None, vec!["block V6"]),
            ("held", note(keys::HOLD_AWAKE_UNTIL, "2026-11-22T00:00:00Z"), None, vec!["block V6"]),
            ("held before", note(keys::HOLD_AWAKE_UNTIL, "2026-11-20T00:00:00Z"), None, vec![]),
            ("paused", note(POWERSTATE_PAUSE, "true"), None, vec!["warn V7"]),
            ("not installed", json!({ "/spec installed": false }), None, vec!["warn V2"]),
            ("pooled", json!({ "/spec clusterPoolRef": { "namespace": "p", "poolName": "p" } }), None, vec!["warn V7"]),
            ("deleted", json!({ "/metadata deletionTimestamp": NOW }), None, vec!["block V3"]),
            ("no annotations", json!({ "/metadata annotations": null }), None, vec![]),
            ("unsynced", json!({}), Some(false), vec!["warn SyncSetsNotApplied"]),
            ("timed", json!({ "/spec hibernateAfter": "8h" }), None, vec!["info HibernateAfter"]),
            ("asleep", asleep(note(keys::PROTECTED, "true")), None, vec!["info AsksForSleep"]),
            ("asleep, paused", asleep(note(RECONCILE_PAUSE, "true")), None, vec!["block Paused", "info AsksForSleep"]),
            (
                "asleep, to wake",
                asleep(note(keys::WAKE_AT, "2026-11-22T00:00:00Z")),
                None,
                vec!["info AsksForSleep", "info WakesAt"],
            ),
        ] {
            let mut found = hub(&change, synced);
            found.retain(|finding| finding != "info StillBilled");
            assert_eq!(found, expected, "{case}");
        }
        assert_eq!(
            hub(&json!({ "/spec platform": { "vsphere": {} } }), None),
            ["block V4"],
            "nothing is known of its bill"
        );
    }

    #[test]
    fn what_the_controller_found_is_judged_by_the_length_of_the_sleep() {
        let certificate = Finding::new(Severity::Info, code::CERTIFICATE_EXPIRES, "the first is a/b");
        let certificate = Finding { ends: format::time("2026-11-25T00:00:00Z"), ..certificate };
        let data = Data::default().with_preflight(NOW.parse().unwrap(), vec![certificate]).text();
        let checked = json!({"type": PREFLIGHT, "status": "True", "reason": "Clear", "lastProbeTime": NOW});
        let read = |conditions: Value| -> ClusterDeployment {
            serde_json::from_value(object(&json!({ "/status conditions": conditions }))).unwrap()
        };
        let cluster = read(json!([checked, { "type": DATA, "status": "False", "message": data }]));
        let severity = |end: Option<&str>| of_controller(&cluster, end.map(|end| end.parse().unwrap())).0[0].severity;
        assert_eq!(severity(None), Severity::Info);
        assert_eq!(severity(Some("2026-11-24T00:00:00Z")), Severity::Info);
        assert_eq!(severity(Some("2026-11-26T00:00:00Z")), Severity::Warn);
        assert_eq!(of_controller(&cluster, None).1, Some(NOW.parse().unwrap()));
        for unseen in [read(json!([])), read(json!([checked]))] {
            assert_eq!(of_controller(&unseen, None).0[0].code, "NotLookedAt");
        }
    }
}
