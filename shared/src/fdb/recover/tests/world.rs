//! A world of plain objects on which the steps of a plan are really carried out, patch by patch.

use std::ops::{Deref, DerefMut};

use crate::fdb::admission::Kind;
use crate::fdb::api::FoundationDBCluster;
use crate::object::name_of;
pub(super) use fdb_simulator::memory::{Objects, bump};
use jiff::Timestamp;
use serde_json::json;

use super::super::check::{self, Refusal, check};
use super::super::replace::ReplacementMode;
use super::super::*;

pub(super) const REMOVAL: &str = "2026-11-21T17:59:58Z";
pub(super) const NOW: &str = "2026-11-21T18:30:00Z";

/// Objects as the API server keeps them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct World(pub(super) Objects);

impl Deref for World {
    type Target = Objects;

    fn deref(&self) -> &Objects {
        &self.0
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Objects {
        &mut self.0
    }
}

pub(super) fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub(super) fn labels(id: &str, class: &str) -> Value {
    json!({
        "foundationdb.org/fdb-cluster-name": "sample",
        "foundationdb.org/fdb-process-group-id": id,
        "foundationdb.org/fdb-process-class": class,
    })
}

pub(super) fn pod_of(id: &str) -> String {
    format!("sample-{id}")
}

pub(super) fn claim(id: &str, class: &str, created: &str) -> Value {
    json!({
        "metadata": { "name": format!("sample-{id}-data"), "uid": format!("uid-{id}"), "resourceVersion": "1",
            "creationTimestamp": created, "labels": labels(id, class) },
        "spec": { "volumeName": format!("pv-{id}") },
    })
}

pub(super) fn service(id: &str, class: &str) -> Value {
    json!({
        "metadata": { "name": pod_of(id), "namespace": "db", "uid": "x", "resourceVersion": "1", "labels": labels(id, class),
            "ownerReferences": [{ "kind": "FoundationDBCluster", "name": "sample", "uid": "owner" }] },
        "spec": { "clusterIP": "10.96.0.9", "type": "ClusterIP", "publishNotReadyAddresses": true,
            "selector": labels(id, class), "ports": [{ "name": "tls", "port": 4500, "nodePort": 30_000 }] },
    })
}

pub(super) fn pod(id: &str, phase: &str) -> Value {
    json!({
        "metadata": { "name": pod_of(id), "labels": labels(id, "storage") },
        "spec": { "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": format!("sample-{id}-data") } }] },
        "status": { "phase": phase },
    })
}

pub(super) fn group(id: &str, class: &str) -> Value {
    json!({ "processGroupID": id, "processClass": class, "addresses": [format!("10.0.0.{}", id.len())], "faultDomain": "zone-a" })
}

/// Marked, excluded, and its resources terminating.
pub(super) fn removed(id: &str, class: &str) -> Value {
    let mut group = group(id, class);
    group["removalTimestamp"] = json!(REMOVAL);
    group["exclusionTimestamp"] = json!("2026-11-21T18:00:10Z");
    group["processGroupConditions"] = json!([{ "type": "ResourcesTerminating", "timestamp": 1_795_197_611 }, { "type": "MissingPod", "timestamp": 1 }]);
    group
}

impl World {
    /// `storage-1` is suspended, `storage-4` was made in its place, 2 and 3 have been there all the time.
    pub(super) fn suspended() -> Self {
        let before = "2026-11-20T10:00:00Z";
        Self(Objects {
            cluster: json!({
                "apiVersion": "apps.foundationdb.org/v1beta2", "kind": "FoundationDBCluster",
                "metadata": { "name": "sample", "namespace": "db", "resourceVersion": "1", "uid": "owner" },
                "spec": { "version": "7.3.69", "processCounts": { "storage": 3 }, "processGroupsToRemove": ["log-9", "storage-1"] },
                "status": { "processGroups": [group("storage-2", "storage"), removed("storage-1", "storage"),
                    group("storage-3", "storage"), group("storage-4", "storage")] },
            }),
            claims: vec![
                claim("storage-1", "storage", before),
                claim("storage-2", "storage", before),
                claim("storage-3", "storage", before),
                claim("storage-4", "storage", "2026-11-21T17:59:59Z"),
            ],
            services: Vec::new(),
            pods: ["storage-2", "storage-3", "storage-4"].into_iter().map(|id| pod(id, "Running")).collect(),
            now: at(NOW),
        })
    }

    /// `storage-2` is suspended, too.
    pub(super) fn suspend_another(&mut self) {
        self.cluster["status"]["processGroups"][0] = removed("storage-2", "storage");
        self.pods.retain(|pod| name_of(pod) != pod_of("storage-2"));
    }

    /// The operator has made one more storage group.
    pub(super) fn fill_up(&mut self, id: &str, created: &str) {
        self.claims.push(claim(id, "storage", created));
        self.groups().push(group(id, "storage"));
    }

    pub(super) fn groups(&mut self) -> &mut Vec<Value> {
        self.cluster["status"]["processGroups"].as_array_mut().unwrap()
    }

    /// The operator has seen that `storage-1` reports: whether it is excluded.
    pub(super) fn report(&mut self, excluded: bool) {
        let marked = json!({ "type": "ProcessIsMarkedAsExcluded", "timestamp": 1 });
        self.groups()[1]["processGroupConditions"] = json!(excluded.then_some(marked).into_iter().collect::<Vec<_>>());
    }

    /// `spec.processCounts.storage`.
    pub(super) fn count(&mut self, storage: u32) {
        self.cluster["spec"]["processCounts"] = json!({ "storage": storage });
    }

    pub(super) fn no_group_is_marked(&mut self) -> bool {
        self.groups().iter().all(|group| group.get("removalTimestamp").is_none())
    }

    /// Two runs that take turns, each with its own record, to their ends. `fdbcli` takes a turn.
    pub(super) fn run_both(&mut self, records: &[Record; 2]) {
        let (mut done, mut ended) = ([RunState::default(), RunState::default()], [false, false]);
        let mut ran: [Option<Record>; 2] = [None, None];
        for run in (0..40).flat_map(|_| [0, 1]) {
            if let Some(planned) = ran[run].take() {
                self.remember(&planned);
            } else if !ended[run] {
                let step = self.steps(&records[run], done[run]).unwrap().remove(0);
                if let Step::Include(_, planned) = step {
                    (done[run].included, ran[run]) = (true, Some(planned));
                    continue;
                }
                self.carry_out(&step, &mut done[run]);
                ended[run] = matches!(step, Step::Clear(..));
            }
        }
        assert_eq!(ended, [true, true]);
        assert_eq!(
            (&self.cluster["spec"]["skip"], &self.cluster["metadata"]["annotations"]),
            (&json!(false), &json!({}))
        );
    }

    pub(super) fn with<T>(&self, observation: impl FnOnce(&Facts<'_>) -> T) -> T {
        let cluster: FoundationDBCluster = serde_json::from_value(self.cluster.clone()).unwrap();
        observation(&Facts {
            cluster: &cluster,
            claims: &self.claims,
            services: &self.services,
            pods: &self.pods,
            now: self.now,
        })
    }

    pub(super) fn goal(&self, ids: &[&str]) -> Result<check::Goal, Vec<Refusal>> {
        self.goal_with(ids, &ReplacementMode::Find)
    }

    pub(super) fn goal_with(&self, ids: &[&str], wanted: &ReplacementMode) -> Result<check::Goal, Vec<Refusal>> {
        let ids: Vec<String> = ids.iter().map(|&id| id.to_owned()).collect();
        self.with(|facts| check(facts, &ids, wanted))
    }

    /// What a run begins with whose user chooses no replacement.
    pub(super) fn record(&self, ids: &[&str]) -> Record {
        self.goal(ids).unwrap().record
    }

    /// Which groups go for those of a record.
    pub(super) fn replacements(&self, record: &Record) -> Vec<String> {
        self.with(|facts| record.completed(facts)).replacements
    }

    pub(super) fn steps(&self, record: &Record, done: RunState) -> Result<Vec<Step>, Unrecoverable> {
        self.with(|facts| remaining(facts, record, true, done)).map(|plan| plan.steps)
    }

    /// Another client has the operator skip the cluster: a run holds the volumes, and ends.
    pub(super) fn assert_held_and_no_more(&mut self, record: &Record) {
        let steps = self.steps(record, RunState::default()).unwrap();
        assert!(matches!(steps.as_slice(), [Step::Hold(edits)] if !edits.is_empty()), "{steps:?}");
        self.carry_out(&steps[0], &mut RunState::default());
        assert_eq!(self.steps(record, RunState::default()), Err(Unrecoverable::ForeignSkip));
    }

    pub(super) fn patch_cluster(&mut self, patch: &Value) {
        let patch: json_patch::Patch = serde_json::from_value(patch.clone()).unwrap();
        json_patch::patch(&mut self.cluster, &patch).unwrap();
        bump(&mut self.cluster);
    }

    pub(super) fn edit(&mut self, edit: &Edit) {
        let objects = if edit.kind == Kind::Pvc { &mut self.claims } else { &mut self.services };
        let object = objects.iter_mut().find(|object| name_of(object) == edit.name).unwrap();
        assert_eq!(edit.patch["metadata"]["resourceVersion"], object["metadata"]["resourceVersion"]);
        json_patch::merge(object, &edit.patch);
        bump(object);
    }

    /// What a run writes once `fdbcli` has ended.
    pub(super) fn remember(&mut self, planned: &Record) {
        let patch = self.with(|facts| patch::remember(facts.cluster, planned));
        self.patch_cluster(&patch.expect("a record of this release"));
    }

    /// Does a step as the plugin, the API server and the operator would.
    pub(super) fn carry_out(&mut self, step: &Step, done: &mut RunState) {
        for request in step.requests() {
            match request {
                Request::Edit(edit) => self.edit(edit),
                Request::Cluster(patch) | Request::Status(patch) => self.patch_cluster(patch),
                Request::Create(service) => {
                    let mut service = service.clone();
                    json_patch::merge(
                        &mut service,
                        &json!({ "metadata": { "resourceVersion": "1", "uid": "uid-service" } }),
                    );
                    self.services.push(service);
                }
            }
        }
        match step {
            Step::Settle => done.settled = true,
            Step::Verify => done.verified = true,
            Step::Include(_, planned) => {
                done.included = true;
                self.remember(planned);
            }
            Step::Await(missing) => {
                for missing in missing {
                    self.pods.retain(|pod| name_of(pod) != missing.pod);
                    self.pods.push(pod(&missing.group, "Running"));
                    let mut groups = self.groups().iter_mut();
                    let group = groups.find(|group| group["processGroupID"] == missing.group.as_str()).unwrap();
                    group["processGroupConditions"] = json!([]);
                }
            }
            _ => {}
        }
    }

    /// Runs to the end.
    pub(super) fn run(&mut self, record: &Record) -> Vec<&'static str> {
        let (mut done, mut detail) = (RunState::default(), Vec::new());
        while let Some(step) = self.steps(record, done).unwrap().first() {
            detail.push(word(step));
            assert!(detail.len() < 40, "{detail:?}");
            self.carry_out(step, &mut done);
            if detail.last() == Some(&"clear") {
                break;
            }
        }
        detail
    }
}

/// The suspended world, and the record with which `storage-1` is recovered.
pub(super) fn begun() -> (World, Record) {
    let world = World::suspended();
    let record = world.record(&["storage-1"]);
    (world, record)
}

/// The same once a step was done.
pub(super) fn until(last: &str) -> (World, Record) {
    let (mut world, record) = begun();
    run_until(&mut world, &record, last);
    (world, record)
}

/// Runs up to a step, and does that.
pub(super) fn run_until(world: &mut World, record: &Record, last: &str) {
    let mut done = RunState::default();
    for _ in 0..20 {
        let step = world.steps(record, done).unwrap().remove(0);
        world.carry_out(&step, &mut done);
        if word(&step) == last {
            return;
        }
    }
    panic!("there is no {last}");
}

pub(super) fn word(step: &Step) -> &'static str {
    match step {
        Step::Hold(_) => "hold",
        Step::Skip(_) => "skip",
        Step::Settle => "settle",
        Step::Lists(_) => "lists",
        Step::Status(_) => "status",
        Step::Include(..) => "include",
        Step::Services(_) => "services",
        Step::Verify => "verify",
        Step::Resume(_) => "resume",
        Step::Await(_) => "await",
        Step::Clear(..) => "clear",
    }
}

pub(super) fn words(world: &World, record: &Record, done: RunState) -> Vec<&'static str> {
    world.steps(record, done).unwrap().iter().map(word).collect()
}
