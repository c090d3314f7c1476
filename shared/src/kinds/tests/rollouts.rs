//! A rollout over objects of any kind: all that it needs of one is its row.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::admission::Settings;
use crate::annotation::keys;
use crate::annotation::mark::{Mark, Outcome};
use crate::kinds::testing::{POWER, SANDBOX};
use crate::kinds::{KKP_CLUSTER, TargetKind, View};
use crate::kkp::keys as kkp;
use crate::rollout::api::PowerRollout;
use crate::rollout::plan::{Candidate, Input, plan};
use crate::rollout::snapshot::Snapshot;
use crate::rollout::start::{end_patch, start_patch};
use crate::rollout::status::RolloutPhase;

const BEGIN: &str = "2026-11-24T12:00:00Z";

/// A rollout, and the objects of its kind.
struct World {
    row: &'static TargetKind,
    rollout: PowerRollout,
    objects: Vec<Value>,
    members: Option<Snapshot>,
    now: Timestamp,
}

fn rollout(spec: &Value) -> PowerRollout {
    let mut object = json!({
        "apiVersion": "hibernate.sh/v1alpha1", "kind": "PowerRollout",
        "metadata": { "name": "night", "uid": "ours", "generation": 1, "annotations": { keys::REQUESTED_BY: "ann" } },
        "spec": {
            "action": "Hibernate", "targets": { "all": true }, "maxTargets": 100, "notAfter": "2026-11-24T20:00:00Z",
            "minSuccessTime": "0s",
        },
    });
    json_patch::merge(&mut object, &json!({ "spec": spec }));
    serde_json::from_value(object).unwrap()
}

impl World {
    fn new(row: &'static TargetKind, spec: &Value, objects: Vec<Value>) -> Self {
        Self { row, rollout: rollout(spec), objects, members: None, now: BEGIN.parse().unwrap() }
    }

    /// One reconcile: plans, and writes what the controller writes. Names of the targets that start.
    fn pass(&mut self) -> Vec<String> {
        let views: Vec<View> = self
            .objects
            .iter()
            .map(|one| self.row.read(one).unwrap().view(Some(&Settings::serving(&["aws"]))))
            .collect();
        let group = |view: &View| self.members.as_ref().map_or(Some(0), |members| members.group(view.identity.uid));
        let grouped: Vec<(usize, usize)> =
            views.iter().enumerate().filter_map(|(at, view)| Some((at, group(view)?))).collect();
        let candidate = |(at, group): &(usize, usize)| Candidate {
            object: &views[*at],
            group: (*group).min(self.rollout.spec.groups.len()),
            domain: views[*at].obstacles.domain.as_deref(),
            upgrade: None,
            checked: None,
            checking: false,
        };
        let candidates: Vec<Candidate<'_>> = grouped.iter().map(candidate).collect();
        let (candidates, deadlines) = (&candidates, self.row.in_rollouts.unwrap());
        let planned =
            plan(&Input { rollout: &self.rollout, candidates, deadlines, queued: None, blocked: None, now: self.now });
        self.members = planned.snapshot.or(self.members.take());
        let mut started = Vec::new();
        for (index, mark) in &planned.ends {
            json_patch::merge(&mut self.objects[grouped[*index].0], &end_patch(mark));
        }
        for (index, mark) in &planned.starts {
            let (at, object) = (grouped[*index].0, &self.objects[grouped[*index].0]);
            let claim = Mark { since: crate::annotation::format::seconds(self.now), ..mark.clone() };
            let patch = start_patch(&self.rollout, &*self.row.read(object).unwrap(), &views[at], &claim, self.now);
            json_patch::merge(&mut self.objects[at], &patch);
            started.push(views[at].identity.name.clone());
        }
        self.rollout.status = Some(planned.status);
        self.now += SignedDuration::from_secs(1);
        started
    }

    /// Passes until nothing starts any more.
    fn settle(&mut self) -> Vec<String> {
        (0..5).flat_map(|_| self.pass()).collect()
    }

    fn phase(&self) -> RolloutPhase {
        self.rollout.status.as_ref().unwrap().phase.unwrap()
    }

    fn mark(&self, at: usize) -> Mark {
        Mark::parse(self.objects[at]["metadata"]["annotations"][keys::ROLLOUT].as_str().unwrap()).unwrap()
    }
}

fn uid(at: usize) -> String {
    format!("00000000-0000-0000-0000-{at:012}")
}

#[test]
fn a_new_kind_is_a_member_by_its_row_alone() {
    let sandbox = |at: usize| {
        json!({
            "metadata": { "name": format!("s{at}"), "uid": uid(at), "creationTimestamp": "2026-11-01T00:00:00Z" },
            "status": { "phase": "Running" },
        })
    };
    let mut world = World::new(&SANDBOX, &json!({ "maxConcurrency": 2 }), (0..4).map(sandbox).collect());
    assert_eq!(world.settle(), ["s0", "s1"], "as many at once as the rollout allows");
    for object in &mut world.objects[..2] {
        assert_eq!(object["metadata"]["annotations"][POWER], "Hibernating");
        assert_eq!(object["metadata"]["annotations"][keys::REQUESTED_BY], "ann");
        object["status"]["phase"] = json!("Paused");
    }
    assert_eq!(world.settle(), ["s2", "s3"]);
    assert_eq!(world.mark(0).ended.unwrap().result, Outcome::Succeeded);
    for object in &mut world.objects[2..] {
        object["status"]["phase"] = json!("Paused");
    }
    world.settle();
    assert_eq!(world.phase(), RolloutPhase::Succeeded);

    let undone = json!({ "action": "Restore", "restoreOf": { "name": "night", "uid": "ours" } });
    let mut undo = World::new(&SANDBOX, &undone, world.objects);
    undo.rollout.metadata.uid = Some("undo".to_owned());
    undo.now = world.now;
    assert_eq!(undo.settle().len(), 4);
    assert!(undo.objects.iter().all(|object| object["metadata"]["annotations"][POWER] == "Running"));
}

/// A Cluster of KKP that runs, in one of two datacenters.
fn cluster(at: usize) -> Value {
    let object = json!({
        "metadata": { "uid": uid(at), "name": format!("c{at}"), "creationTimestamp": "2026-11-01T00:00:00Z" },
        "spec": { "cloud": { "dc": format!("dc-{}", at % 2) } },
        "status": { "phase": "Running", "conditions": {
            "SeedResourcesUpToDate": { "status": "True", "kubermaticVersion": "v", "lastHeartbeatTime": BEGIN },
        } },
    });
    let mut cluster = crate::kinds::kkp_cluster::tests::cluster(&json!({}), None);
    json_patch::merge(&mut cluster, &object);
    cluster
}

/// What our controller says of a Cluster.
fn says(object: &mut Value, status: &str, reason: &str, message: &str, at: Timestamp) {
    object["status"]["conditions"][kkp::DEHYDRATED] = json!({
        "status": status, "reason": reason, "message": message, "kubermaticVersion": "v",
        "lastHeartbeatTime": at, "lastTransitionTime": at,
    });
}

#[test]
fn clusters_of_kkp_take_turns_by_datacenter_and_a_drain_that_fails_halts() {
    let spec = json!({ "targets": { "kind": "Cluster" }, "maxConcurrency": 2, "maxFailures": 0 });
    let mut world = World::new(&KKP_CLUSTER, &spec, (0..5).map(cluster).collect());
    assert_eq!(world.settle(), ["c0", "c1"], "one of each datacenter");
    let annotations = &world.objects[0]["metadata"]["annotations"];
    assert_eq!(
        (&annotations[kkp::POWER_STATE], &annotations[keys::REQUESTED_BY]),
        (&json!("Hibernating"), &json!("ann"))
    );
    let now = world.now;
    says(&mut world.objects[0], "True", "Dehydrated", "", now);
    says(&mut world.objects[1], "False", "DrainTimedOut", "a/b", now);
    assert_eq!(world.settle(), Vec::<String>::new());
    assert_eq!((world.phase(), world.mark(0).ended.unwrap().result), (RolloutPhase::Halted, Outcome::Succeeded));

    world.rollout.spec.retry_failed += 1;
    let retried = world.settle();
    assert_eq!(retried.first().map(String::as_str), Some("c1"), "{retried:?}");
    assert_eq!(world.mark(1).attempt, 1);
    assert!(world.objects[1]["metadata"]["annotations"][kkp::POWER_STATE_AT].is_string(), "a new request");
}

#[test]
fn a_cluster_that_is_not_found_has_no_namespace() {
    let spec = json!({ "targets": { "kind": "Cluster", "names": [{ "name": "gone" }] } });
    let mut world = World::new(&KKP_CLUSTER, &spec, Vec::new());
    world.pass();
    assert_eq!(world.rollout.status.unwrap().not_found.unwrap().names, ["gone"]);
}

#[test]
fn rules_of_kkp_refuse_or_wait() {
    let change = |change: Value| {
        let mut object = cluster(0);
        json_patch::merge(&mut object, &change);
        let view = KKP_CLUSTER.read(&object).unwrap().view(Some(&Settings::serving(&["aws"])));
        (view.obstacles.refused, view.obstacles.not_asleep_before.map(|(_, why)| why), view.obstacles.waits)
    };
    let none = (None, None, None);
    assert_eq!(change(json!({})), none);
    let by_own = change(json!({ "spec": { "cloud": { "providerName": "edge" } } })).0.unwrap();
    assert!(by_own.starts_with("K3: "), "{by_own}");
    let protected = change(json!({ "metadata": { "annotations": { keys::PROTECTED: "true" } } })).0.unwrap();
    assert!(protected.starts_with("K5: "), "{protected}");
    for passing in [
        json!({ "spec": { "pause": true, "pauseReason": "maintenance" } }),
        json!({ "status": { "phase": "Updating" } }),
        json!({ "metadata": { "annotations": { kkp::ACTIVE_RESTORE: "r" } } }),
    ] {
        let (refused, waits, _) = change(passing);
        assert!(refused.is_none() && waits.as_deref().is_some_and(|why| why.starts_with("K4: ")), "{waits:?}");
    }
    let held = json!({ "metadata": { "annotations": { keys::HOLD_AWAKE_UNTIL: "2126-01-01T00:00:00Z" } } });
    assert!(change(held).1.unwrap().starts_with("held awake until 2126"));
    assert_eq!(change(json!({ "metadata": { "deletionTimestamp": BEGIN } })).2.as_deref(), Some("it is being deleted"));
}
