//! The confirmation of a dehydration: what the preflight found, and what the sleep does (seed document: it requires a
//! confirmation).

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::intent::later;
use super::progress::reported;
use crate::annotation::{annotation, keys as common};
use crate::kinds::confirmation::{Briefing, Preflight as Checks, Request};
use crate::kinds::lifecycle::TargetError;
use crate::kkp::api::Cluster;
use crate::kkp::data::{Outcome, Preflight, State};
use crate::kkp::keys;
use crate::kkp::phase::Phase;
use crate::text::{list, sanitize};

/// A finding that a consequence tells already.
const VOLUMES: &str = "Volumes";

#[derive(Debug)]
pub(super) struct Dehydration;

impl Checks for Dehydration {
    fn request(&self, object: &Value, now: Timestamp) -> Result<Request, TargetError> {
        let cluster = Cluster::deserialize(object)?;
        if let Some(under_way) = reported(&cluster).filter(|reported| is_under_way(reported.state)) {
            return Ok(Request::Impossible(format!(
                "no preflight while an operation is under way ({}): the controller makes one when the cluster is awake",
                sanitize(under_way.reason)
            )));
        }
        let id = later(annotation(object, common::PREFLIGHT_REQUESTED_AT), now);
        let patch = json!({ "metadata": { "annotations": { common::PREFLIGHT_REQUESTED_AT: id } } });
        Ok(Request::Write { id, patch })
    }

    fn answer(&self, object: &Value, requested: &str) -> Result<Option<Briefing>, TargetError> {
        let cluster = Cluster::deserialize(object)?;
        let answer = Preflight::answer(&cluster, requested);
        Ok(answer.map(|preflight| Briefing {
            at: Some(preflight.at),
            consequences: consequences(&cluster, &preflight),
            totals: vec![
                (preflight.pods, "Pods deleted"),
                (preflight.numbers.machines, "Machines deleted"),
                (preflight.numbers.volumes, "volumes kept"),
                (preflight.numbers.load_balancers, "load balancers kept"),
            ],
            left_out: preflight.left_out,
            findings: preflight.findings.into_iter().filter(|found| found.code != VOLUMES).collect(),
        }))
    }

    fn last(&self, object: &Value, _: Option<Timestamp>) -> Result<Option<Briefing>, TargetError> {
        let requested = annotation(object, common::PREFLIGHT_REQUESTED_AT);
        requested.map_or(Ok(None), |requested| self.answer(object, requested))
    }

    fn silence(&self, _: &Value) -> String {
        "hibernate-controller may not run with --kkp here, or this is a KKP master and not the seed of the cluster"
            .to_owned()
    }

    fn confirms(&self, patch: &Value) -> bool {
        annotation(patch, keys::POWER_STATE).is_some()
    }
}

/// Whether the cluster is on its way, or asleep. A sleep that was refused or undone has changed nothing.
fn is_under_way(state: State) -> bool {
    state.outcome == Outcome::Held || !matches!(state.phase, Some(Phase::Preflight | Phase::DrainTimedOut))
}

fn consequences(cluster: &Cluster, preflight: &Preflight) -> Vec<String> {
    let numbers = preflight.numbers;
    let deployments = &preflight.machine_deployments;
    let counted = deployments.iter().map(|(name, replicas)| format!("{} ({replicas})", sanitize(name)));
    let back: u32 = deployments.values().fold(0, |sum, replicas| sum.saturating_add(*replicas));
    let again = if deployments.is_empty() {
        "the same number again".to_owned()
    } else {
        format!("{back}, by MachineDeployment: {}", list(counted))
    };
    let quota = preflight.quota.iter().map(|(resource, amount)| format!("{} {}", sanitize(resource), sanitize(amount)));
    let quota = (!preflight.quota.is_empty()).then(|| {
        format!("Quota in use: {}. It is released while the cluster sleeps, and a wake needs it again.", list(quota))
    });
    let pods = count(preflight.pods, "Pod is", "Pods are");
    let machines = count(numbers.machines, "Machine is", "Machines are");
    let volumes = count(numbers.volumes, "volume", "volumes");
    let load_balancers = count(numbers.load_balancers, "load balancer", "load balancers");
    let mut all = vec![
        format!("{pods} deleted, with the grace period. PodDisruptionBudgets are not honored."),
        format!("{machines} deleted. A wake creates {again}."),
        format!("{volumes} and {load_balancers} remain and are still billed."),
    ];
    all.extend(quota);
    all.extend([
        "The control plane stops: no Kubernetes API, no etcd backups and no upgrades until the wake.".to_owned(),
        // Row 32.
        format!(
            "KKP cannot be upgraded to a release that no longer offers version {} while the cluster sleeps.",
            sanitize(&cluster.spec.version)
        ),
    ]);
    all
}

/// `1 volume`, `3 volumes`.
fn count(number: u32, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{Finding, Severity};
    use crate::kinds::kkp_cluster::KKP_CLUSTER;
    use crate::kinds::kkp_cluster::tests::cluster;
    use crate::kkp::data::PREFLIGHT;
    use crate::kkp::record::Numbers;

    const NOW: &str = "2026-11-22T18:00:00Z";

    fn confirmation() -> &'static dyn Checks {
        KKP_CLUSTER.plan.unwrap().preflight.unwrap()
    }

    #[test]
    fn a_preflight_is_requested_of_a_cluster_that_is_awake() {
        for (detail, possible) in [
            (None, true),
            (Some(("Preflight", "refused: no")), true),
            (Some(("DrainTimedOut", "")), true),
            (Some(("Draining", "")), false),
            (Some(("WaitingForNodes", "")), false),
            (Some(("RecordUnreadable", "")), false),
        ] {
            let request = confirmation().request(&cluster(&json!({}), detail), NOW.parse().unwrap()).unwrap();
            match request {
                Request::Write { id, patch } => {
                    assert!(possible, "{detail:?}");
                    assert_eq!(id, NOW);
                    let expected = json!({ "metadata": { "annotations": { common::PREFLIGHT_REQUESTED_AT: NOW } } });
                    assert_eq!(patch, expected);
                }
                Request::Impossible(why) => {
                    assert!(!possible && why.contains(detail.unwrap().0), "{why}");
                }
            }
        }
    }

    #[test]
    fn a_reason_alone_needs_no_confirmation() {
        let patch = |key: &str| json!({ "metadata": { "annotations": { key: "x" } } });
        assert!(confirmation().confirms(&patch(keys::POWER_STATE)));
        assert!(!confirmation().confirms(&patch(common::REASON)));
    }

    #[test]
    fn each_request_is_another_one() {
        let before = json!({ common::PREFLIGHT_REQUESTED_AT: NOW });
        let request = confirmation().request(&cluster(&before, None), NOW.parse().unwrap()).unwrap();
        assert!(matches!(request, Request::Write { id, .. } if id == "2026-11-22T18:00:01Z"));
    }

    fn answered(pods: u32, numbers: Numbers, deployments: &[(&str, u32)], quota: &[(&str, &str)]) -> Value {
        let findings = [
            Finding::new(Severity::Forceable, "BarePods", "Pods: a/b"),
            Finding::new(Severity::Warn, "Volumes", "3 volumes stay"),
        ];
        let preflight = Preflight {
            requested: NOW.into(),
            at: NOW.parse().unwrap(),
            findings: findings.to_vec(),
            left_out: 0,
            pods,
            numbers,
            machine_deployments: deployments.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
            quota: quota.iter().map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned())).collect(),
        };
        let mut condition = serde_json::to_value(preflight.condition()).unwrap();
        condition["kubermaticVersion"] = json!("v");
        condition["lastHeartbeatTime"] = json!(NOW);
        let mut object = cluster(&json!({}), None);
        object["status"]["conditions"][PREFLIGHT] = condition;
        object
    }

    #[test]
    fn the_answer_says_what_the_sleep_does_and_what_stays() {
        let numbers = Numbers { volumes: 3, load_balancers: 1, machines: 5 };
        let deployments = [("kube-system/a", 3), ("kube-system/b", 2)];
        let object = answered(7, numbers, &deployments, &[("cpu", "8"), ("memory", "32\u{1b}Gi")]);
        let briefing = confirmation().answer(&object, NOW).unwrap().unwrap();
        assert_eq!(
            briefing.consequences,
            [
                "7 Pods are deleted, with the grace period. PodDisruptionBudgets are not honored.",
                "5 Machines are deleted. A wake creates 5, by MachineDeployment: kube-system/a (3), kube-system/b (2).",
                "3 volumes and 1 load balancer remain and are still billed.",
                "Quota in use: cpu 8, memory 32 Gi. It is released while the cluster sleeps, and a wake needs it again.",
                "The control plane stops: no Kubernetes API, no etcd backups and no upgrades until the wake.",
                "KKP cannot be upgraded to a release that no longer offers version 1.34.1 while the cluster sleeps.",
            ]
        );
        let codes: Vec<&str> = briefing.findings.iter().map(|found| found.code.as_str()).collect();
        assert_eq!(codes, ["BarePods"]);
        assert_eq!((briefing.refusals(false).len(), briefing.refusals(true).len()), (1, 0));
        assert!(briefing.can_be_forced());
        assert_eq!(confirmation().answer(&object, "2026-11-22T18:00:01Z").unwrap(), None, "of another request");
        let mut asked = object;
        assert_eq!(confirmation().last(&asked, None).unwrap(), None, "the annotation is gone");
        asked["metadata"]["annotations"] = json!({ common::PREFLIGHT_REQUESTED_AT: NOW });
        assert_eq!(confirmation().last(&asked, None).unwrap(), Some(briefing));
    }

    #[test]
    fn an_empty_cluster_has_little_to_say() {
        let object = answered(1, Numbers { machines: 1, ..Numbers::default() }, &[], &[]);
        let briefing = confirmation().answer(&object, NOW).unwrap().unwrap();
        assert_eq!(
            briefing.consequences[..3],
            [
                "1 Pod is deleted, with the grace period. PodDisruptionBudgets are not honored.",
                "1 Machine is deleted. A wake creates the same number again.",
                "0 volumes and 0 load balancers remain and are still billed.",
            ]
        );
        assert_eq!(briefing.consequences.len(), 5);
    }
}
