//! Upgrades from their first reconcile to their end, on a hub of maps.

mod approvals;
mod kuttl;
mod precaching;
mod properties;
mod rows;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::*;
use crate::cgu::api::{ClusterGroupUpgradeSpec, ClusterState, status_patch};
use crate::cgu::conditions;
use crate::cgu::policy::{Child, Policy, ROOT_POLICY};
use crate::cgu::precache::spec::PreCachingConfigSpec;
use crate::cgu::precache::workload::Step;
use crate::cgu::select::ManagedCluster;
use crate::cgu::view::{Answer, InstallPlan, Job, Presence, View, Views};
use crate::cgu::wire::{Compliance, parse};

/// What an upgrade sees and changes.
#[derive(Clone, Default)]
struct Hub {
    now: Timestamp,
    upgrade: ClusterGroupUpgrade,
    known: Governance,
    blockers: Blockers,
    asleep: BTreeSet<String>,
    cycle: Vec<Reference>,
    /// Clusters that the Placements of each policy select.
    placements: BTreeMap<Reference, BTreeSet<String>>,
    /// Reason and action, or reason, action and cluster, in order.
    events: Vec<String>,
    approved: Vec<Approval>,
    image: Option<&'static str>,
    releases: BTreeMap<Release, Result<String, String>>,
    /// Actions that were created, with the cluster.
    actions: Vec<String>,
    is_gone: bool,
}

/// Policies of one namespace, with the clusters that do not comply and those that do.
type Matrix<'a> = &'a [(&'a str, &'a [&'a str], &'a [&'a str])];

fn policy(name: &str) -> Reference {
    Reference { name: name.to_owned(), namespace: "default".to_owned() }
}

impl Hub {
    fn new(mut spec: Value, matrix: Matrix<'_>) -> Self {
        let policies: Vec<&str> = matrix.iter().map(|(name, ..)| *name).collect();
        for (key, value) in [("managedPolicies", json!(policies)), ("enable", json!(true))] {
            if spec.get(key).is_none() {
                spec[key] = value;
            }
        }
        if spec.get("remediationStrategy").is_none() {
            spec["remediationStrategy"] = json!({ "maxConcurrency": 1 });
        }
        if spec.get("actions").is_none() {
            spec["actions"] = json!({
                "beforeEnable": { "addClusterLabels": { "ztp-running": "" } },
                "afterCompletion": { "addClusterLabels": { "ztp-done": "" }, "removeClusterLabels": ["ztp-running"] },
            });
        }
        let upgrade = json!({
            "apiVersion": "ran.openshift.io/v1alpha1", "kind": "ClusterGroupUpgrade",
            "metadata": { "name": "cgu", "namespace": "default", "uid": "abcdef-1" }, "spec": spec,
        });
        let mut hub = Self {
            now: Timestamp::from_second(1_000_000).unwrap(),
            upgrade: serde_json::from_value(upgrade).unwrap(),
            ..Self::default()
        };
        hub.known.clusters.extend((1..=6).map(|n| (format!("spoke{n}"), ManagedCluster::default())));
        for (name, open, done) in matrix {
            let all = open
                .iter()
                .map(|c| (*c, Compliance::NonCompliant))
                .chain(done.iter().map(|c| (*c, Compliance::Compliant)));
            let compliance: BTreeMap<String, Compliance> =
                all.map(|(cluster, one)| (cluster.to_owned(), one)).collect();
            for cluster in compliance.keys() {
                let metadata = json!({ "name": format!("default.{name}"), "labels": { ROOT_POLICY: "" } });
                let child = Child::read(&parse(&json!({ "metadata": metadata }))).unwrap();
                hub.known.children.insert((cluster.clone(), child.root.clone()), child);
            }
            let template = json!([{ "objectDefinition": { "metadata": {}, "spec": { "object-templates": [] } } }]);
            let mut root = Policy::read(&parse(&json!({ "spec": { "policy-templates": template } })));
            root.compliance = Some(compliance);
            hub.known.roots.insert(policy(name), Arc::new(root));
        }
        hub
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            now: self.now,
            upgrade: &self.upgrade,
            governance: self.known.clone(),
            blockers: self.blockers.clone(),
            cycle: self.cycle.clone(),
            asleep: self.asleep.clone(),
            settles_at: None,
            pull_image: self.image.map(str::to_owned),
            releases: self.releases.clone(),
        }
    }

    fn plan(&self) -> Plan {
        decide(&self.facts())
    }

    /// Carries out one step. Whether anything has changed.
    fn step(&mut self) -> bool {
        if self.is_gone {
            return false;
        }
        let plan = self.plan();
        assert_eq!(plan, self.plan(), "same facts, same plan");
        for act in &plan.acts {
            self.act(act);
        }
        let before = self.upgrade.status.clone().unwrap_or_default();
        let patch = status_patch(&before, &plan.status);
        self.upgrade.status = Some(plan.status);
        self.events.extend(plan.events.iter().map(|event| {
            let found = event.render("cgu");
            let cluster = found.annotations.get("cgu.openshift.io/cluster-name").map(|name| format!(" {name}"));
            format!("{}{}", found.action, cluster.unwrap_or_default())
        }));
        match plan.finalizer {
            Some(true) => self.upgrade.metadata.finalizers = Some(vec![FINALIZER.to_owned()]),
            Some(false) => self.is_gone = true,
            None => {}
        }
        patch.is_some() || plan.finalizer.is_some()
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Prepare(policy) => drop(self.placements.insert(policy.clone(), BTreeSet::new())),
            Act::Bind(policy) => assert!(self.placements.contains_key(policy), "{policy:?}"),
            Act::Enforce(policy, names) => {
                self.placements.get_mut(policy).expect("a Placement").extend(names.iter().cloned());
            }
            Act::Release => self.placements.values_mut().for_each(BTreeSet::clear),
            Act::UpdateCluster(cluster, is_complete) => {
                let actions = self.upgrade.spec.actions.of(*is_complete).expect("labels");
                let labels = &mut self.known.clusters.get_mut(cluster).expect("a cluster").labels;
                labels.extend(actions.add_cluster_labels.clone());
                actions.remove_cluster_labels.iter().for_each(|key| drop(labels.remove(key)));
            }
            Act::Pull(pull) => {
                for step in &pull.steps {
                    match step {
                        Step::DeleteView(name) => {
                            drop(self.known.views.remove(&(pull.cluster.clone(), (*name).to_owned())));
                        }
                        Step::DeleteAction(_) => {}
                        Step::Act(name, _) => self.actions.push(format!("{} {name}", pull.cluster)),
                        Step::View(request) => self.act(&Act::View(request.clone())),
                    }
                }
            }
            Act::View(request) => {
                let (key, scope) = ((request.cluster.clone(), request.name.clone()), request.scope.clone());
                let (created, presence) = (self.now, Presence::Unknown);
                let view = View { upgrade: policy("cgu"), created, scope, presence, answer: Answer::Nothing };
                self.known.views.insert(key, view);
            }
            Act::Approve(approval) => self.approved.push(approval.clone()),
            Act::DeleteViews(cluster, _) => self.known.views.retain(|(of, _), _| of != cluster),
            Act::DeleteObjects => self.placements.clear(),
        }
    }

    /// Takes steps until nothing changes.
    fn settle(&mut self) {
        for _ in 0..100 {
            if !self.step() {
                return;
            }
        }
        panic!("it does not settle: {:#?}", self.plan());
    }

    /// These clusters comply with these policies, and whatever follows.
    fn comply(&mut self, pairs: &[(&str, &str)]) {
        for (cluster, name) in pairs {
            self.set(cluster, name, Compliance::Compliant);
        }
        self.settle();
    }

    fn set(&mut self, cluster: &str, name: &str, compliance: Compliance) {
        self.root(name).compliance.as_mut().unwrap().insert(cluster.to_owned(), compliance);
    }

    fn root(&mut self, name: &str) -> &mut Policy {
        Arc::make_mut(self.known.roots.get_mut(&policy(name)).unwrap())
    }

    fn blocks(&mut self, name: &str, status: ClusterGroupUpgradeStatus) {
        let upgrade = ClusterGroupUpgrade { status: Some(status), ..ClusterGroupUpgrade::default() };
        self.blockers.insert(policy(name), Arc::new(upgrade.into()));
    }

    /// So many seconds go by, and whatever follows.
    fn later(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
        self.settle();
    }

    /// The next limit is exceeded, and whatever follows.
    fn at_limit(&mut self) {
        self.now = self.plan().requeue_at.unwrap();
        self.settle();
    }

    /// The spec changes, and whatever follows.
    fn spec(&mut self, change: impl FnOnce(&mut ClusterGroupUpgradeSpec)) {
        change(&mut self.upgrade.spec);
        self.settle();
    }

    fn status(&self) -> &ClusterGroupUpgradeStatus {
        self.upgrade.status.as_ref().unwrap()
    }

    /// `STATUS/Reason` of a condition.
    fn condition(&self, type_: &str) -> String {
        let found = self.status().condition(type_);
        found.map_or_else(String::new, |found| format!("{}/{}", found.status, found.reason))
    }

    fn conditions<const N: usize>(&self, types: [&str; N]) -> [String; N] {
        types.map(|type_| self.condition(type_))
    }

    /// `STATUS/Reason: message` of a condition.
    fn says(&self, type_: &str) -> String {
        format!("{}: {}", self.condition(type_), self.message(type_))
    }

    fn message(&self, type_: &str) -> &str {
        &self.status().condition(type_).unwrap().message
    }

    /// `NAME state` of each recorded cluster.
    fn records(&self) -> Vec<String> {
        let record = |one: &ClusterState| format!("{} {}", one.name, one.state);
        self.status().clusters.iter().map(record).collect()
    }

    fn labels(&self, cluster: &str) -> Vec<&str> {
        self.known.clusters[cluster].labels.keys().map(String::as_str).collect()
    }

    fn selected(&self, name: &str) -> Vec<&str> {
        self.placements.get(&policy(name)).into_iter().flatten().map(String::as_str).collect()
    }

    /// `STATE index` of a cluster of the current batch.
    fn progress(&self, cluster: &str) -> String {
        let found = &self.status().status.current_batch_remediation_progress[cluster];
        format!("{} {}", found.state, found.policy_index.map_or_else(|| "-".to_owned(), |index| index.to_string()))
    }
}
