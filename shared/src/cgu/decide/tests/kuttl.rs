//! The cases of section 5.1.

use super::*;
use crate::cgu::conditions::VALIDATED;
use crate::cgu::templates::{Subscription, Templates};

const TWO: Matrix<'static> =
    &[("policy1", &["spoke1", "spoke4"], &["spoke6"]), ("policy2", &["spoke1", "spoke4"], &["spoke6"])];

/// upgrade-complete: the golden trace.
#[test]
fn upgrade_complete() {
    let mut hub = Hub::new(json!({ "clusters": ["spoke1", "spoke4", "spoke6"], "enable": false }), TWO);
    hub.settle();
    assert_eq!(hub.condition(PROGRESSING), "False/NotEnabled");
    assert_eq!(hub.status().remediation_plan, [["spoke1"], ["spoke4"]]);
    assert_eq!(hub.placements.len(), 2);
    assert!(hub.placements.values().all(BTreeSet::is_empty));
    assert_eq!(hub.events, ["BuildingRemediationPlan"]);
    assert_eq!(hub.status().placements, ["cgu-policy1-placement-abcde", "cgu-policy2-placement-abcde"]);
    assert_eq!(hub.labels("spoke6"), [""; 0]);

    hub.spec(|spec| spec.enable = true);
    assert_eq!(hub.condition(PROGRESSING), "True/InProgress");
    assert_eq!(
        ["spoke1", "spoke4", "spoke6"].map(|name| hub.labels(name)[0]),
        ["ztp-running", "ztp-running", "ztp-done"]
    );
    assert_eq!(hub.records(), ["spoke6 complete"]);
    assert_eq!((hub.progress("spoke1").as_str(), hub.selected("policy1")), ("InProgress 0", vec!["spoke1"]));
    let started = ["RemediationStarted", "RemediationInBatchStarted", "RemediationInClusterStarted spoke1"];
    assert_eq!(hub.events[1..], started);

    hub.comply(&[("spoke1", "policy1")]);
    assert_eq!((hub.progress("spoke1").as_str(), hub.selected("policy1")), ("InProgress 1", vec!["spoke1"]));
    assert_eq!(hub.selected("policy2"), ["spoke1"]);
    hub.comply(&[("spoke1", "policy2")]);
    assert_eq!(hub.records(), ["spoke6 complete", "spoke1 complete"]);
    assert_eq!((hub.status().status.current_batch, hub.selected("policy1")), (2, vec!["spoke4"]));
    assert_eq!(hub.labels("spoke1"), ["ztp-done"]);

    hub.comply(&[("spoke4", "policy1"), ("spoke4", "policy2")]);
    assert_eq!(hub.conditions([PROGRESSING, SUCCEEDED]), ["False/Completed", "True/Completed"]);
    assert_eq!(hub.records(), ["spoke6 complete", "spoke1 complete", "spoke4 complete"]);
    let last = ["RemediationInClusterCompleted spoke4", "RemediationInBatchCompleted", "RemediationCompleted"];
    assert_eq!(hub.events[hub.events.len() - 3..], last);
    let status = hub.status();
    assert!(status.status.completed_at.is_some() && status.status.current_batch == 0);
    assert!(status.status.current_batch_remediation_progress.is_empty() && status.placements.is_empty());
    assert!(hub.placements.is_empty());
    assert_eq!(hub.plan().events, [], "once");
    let types: Vec<&str> = status.conditions.iter().map(|one| one.type_.as_str()).collect();
    assert_eq!(types, ["ClustersSelected", "Validated", "Progressing", "Succeeded"]);
}

/// upgrade-starts-complete: then no backup is made either.
#[test]
fn upgrade_starts_complete() {
    let mut hub = Hub::new(json!({ "clusters": ["spoke6"], "enable": false, "backup": true, "preCaching": true }), TWO);
    hub.settle();
    assert_eq!((hub.condition(PROGRESSING), hub.labels("spoke6")), ("False/NotEnabled".to_owned(), vec![]));
    assert_eq!(hub.status().managed_policies_compliant_before_upgrade, ["policy1", "policy2"]);
    hub.spec(|spec| spec.enable = true);
    assert_eq!((hub.condition(SUCCEEDED), hub.labels("spoke6")), ("True/Completed".to_owned(), vec!["ztp-done"]));
    assert_eq!(hub.message(SUCCEEDED), "All clusters already compliant with the specified managed policies");
}

/// blocking-mechanisms: a is blocked by c; its compliant canary waits, too.
#[test]
fn blocking_mechanisms() {
    let mut hub = Hub::new(
        json!({
            "clusters": ["spoke1", "spoke2", "spoke3"], "blockingCRs": [{ "name": "c", "namespace": "default" }],
            "remediationStrategy": { "maxConcurrency": 2, "canaries": ["spoke1"] },
        }),
        &[("policy1", &["spoke3"], &["spoke1", "spoke2"])],
    );
    hub.settle();
    assert_eq!(hub.says(PROGRESSING), "False/MissingBlockingCR: Missing blocking CRs: [c]");
    let mut blocker = ClusterGroupUpgradeStatus::default();
    hub.blocks("c", blocker.clone());
    hub.settle();
    assert_eq!(hub.message(PROGRESSING), "Blocking CRs that are not completed: [c]");
    assert_eq!((hub.condition(PROGRESSING).as_str(), hub.labels("spoke1")), ("False/IncompleteBlockingCR", vec![]));
    assert_eq!(hub.status().status.started_at, None, "time that it is blocked does not count");

    hub.later(100_000);
    conditions::set(&mut blocker.conditions, hub.now, SUCCEEDED, "True", "Completed", "");
    hub.blocks("c", blocker);
    hub.settle();
    assert_eq!((hub.condition(PROGRESSING).as_str(), hub.labels("spoke1")), ("True/InProgress", vec!["ztp-done"]));
    assert_eq!(hub.status().remediation_plan, [["spoke3"]]);
    assert_eq!(hub.events.iter().filter(|event| *event == "RemediationStarted").count(), 1);
}

/// upgrade-batch-timeout: the first batch is done, then the time is over.
#[test]
fn upgrade_batch_timeout() {
    let mut hub = Hub::new(json!({ "clusters": ["spoke1", "spoke4"] }), TWO);
    hub.settle();
    hub.comply(&[("spoke1", "policy1"), ("spoke1", "policy2")]);
    hub.later(1);
    hub.spec(|spec| spec.remediation_strategy.timeout = 0);
    assert_eq!(hub.conditions([PROGRESSING, SUCCEEDED]), ["False/TimedOut", "False/TimedOut"]);
    assert_eq!(hub.message(SUCCEEDED), "Policy remediation took too long");
    assert_eq!(hub.records(), ["spoke1 complete", "spoke4 timedout"]);
    let current = hub.status().clusters[1].current_policy.clone().unwrap();
    assert_eq!((current.name.as_str(), current.status.as_str()), ("policy1", "NonCompliant"));
    assert_eq!(hub.labels("spoke4"), ["ztp-running"]);
    assert_eq!(hub.events[hub.events.len() - 2..], ["RemediationInBatchTimeout", "RemediationTimeout"]);
}

/// upgrade-partial-batch-timeout: indexes advance independently.
#[test]
fn upgrade_partial_batch_timeout() {
    let spec =
        json!({ "clusters": ["spoke1", "spoke4"], "remediationStrategy": { "maxConcurrency": 2, "timeout": 10 } });
    let mut hub = Hub::new(spec, TWO);
    hub.settle();
    hub.comply(&[("spoke1", "policy1"), ("spoke4", "policy2")]);
    assert_eq!((hub.progress("spoke1").as_str(), hub.progress("spoke4").as_str()), ("InProgress 1", "InProgress 0"));
    hub.comply(&[("spoke1", "policy2")]);
    assert_eq!((hub.progress("spoke1").as_str(), hub.selected("policy2")), ("Completed -", vec!["spoke1"]));
    let limit = hub.plan().requeue_at.unwrap();
    hub.now = limit;
    hub.settle();
    assert_eq!(hub.records(), ["spoke1 complete", "spoke4 timedout"]);
}

/// timeout-not-block-next-batch: the next batch completes, and the upgrade waits for the earlier one.
#[test]
fn timeout_not_block_next_batch() {
    let spec =
        json!({ "clusters": ["spoke1", "spoke4"], "remediationStrategy": { "maxConcurrency": 1, "timeout": 10 } });
    let mut hub = Hub::new(spec, TWO);
    hub.settle();
    hub.at_limit();
    assert_eq!((hub.records(), hub.status().status.current_batch), (vec!["spoke1 timedout".to_owned()], 2));
    assert_eq!(hub.selected("policy1"), ["spoke1", "spoke4"], "it stays until the next batch ends");
    hub.comply(&[("spoke4", "policy1"), ("spoke4", "policy2")]);
    assert_eq!([hub.condition(PROGRESSING), hub.progress("spoke4")], ["True/InProgress", "Completed -"]);
    assert_eq!(hub.events.iter().filter(|event| *event == "RemediationInBatchCompleted").count(), 1);
    hub.at_limit();
    assert_eq!(hub.condition(SUCCEEDED), "False/TimedOut");
    assert_eq!(hub.records(), ["spoke1 timedout", "spoke4 complete"]);
}

/// skip-compliant-policies and do-not-skip-compliant-policies-with-status.
#[test]
fn skip_compliant_policies() {
    let matrix: Matrix<'_> = &[("policy0", &[], &["spoke1"]), ("policy1", &["spoke1"], &[])];
    let mut hub = Hub::new(json!({ "clusters": ["spoke1"] }), matrix);
    hub.settle();
    assert_eq!(hub.status().managed_policies_compliant_before_upgrade, ["policy0"]);
    assert_eq!(hub.status().managed_policies_for_upgrade.len(), 1);

    let mut hub = Hub::new(json!({ "clusters": ["spoke1"] }), matrix);
    hub.root("policy0").templates.as_mut().unwrap().has_status = true;
    hub.settle();
    assert_eq!(hub.status().managed_policies_for_upgrade.len(), 2);
    assert_eq!(hub.progress("spoke1"), "InProgress 1");
}

/// soaking: it complies, and stays until it has done so for long enough.
#[test]
fn soaking() {
    let mut hub = Hub::new(json!({ "clusters": ["spoke1"] }), &[("policy1", &["spoke1"], &[])]);
    hub.root("policy1").soak = Some(std::time::Duration::from_secs(5));
    hub.settle();
    hub.comply(&[("spoke1", "policy1")]);
    assert_eq!(hub.progress("spoke1"), "InProgress 0");
    let since = hub.status().status.current_batch_remediation_progress["spoke1"].first_compliant_at.clone().unwrap();
    assert_eq!((since.0, hub.plan().requeue_at.unwrap().duration_since(hub.now).as_secs()), (hub.now, 5));
    hub.later(3);
    hub.set("spoke1", "policy1", Compliance::NonCompliant);
    hub.settle();
    assert_eq!(hub.status().status.current_batch_remediation_progress["spoke1"].first_compliant_at, None);
    hub.comply(&[("spoke1", "policy1")]);
    hub.later(5);
    assert_eq!(hub.progress("spoke1"), "InProgress 0", "more than the time");
    hub.at_limit();
    assert_eq!(hub.condition(SUCCEEDED), "True/Completed");
}

/// An upgrade of three clusters whose policy has two Subscriptions.
fn subscribing(strategy: &Value) -> Hub {
    let spec = json!({ "clusters": ["spoke1", "spoke2", "spoke5"], "remediationStrategy": strategy });
    let mut hub = Hub::new(spec, &[("policy5", &["spoke1", "spoke2", "spoke5"], &[])]);
    let annotations = BTreeMap::from([(crate::cgu::objects::NAME_SUFFIX.to_owned(), "kuttl".to_owned())]);
    hub.upgrade.metadata.annotations = Some(annotations);
    let subscription = |name: &str| {
        json!({
            "complianceType": "musthave", "objectDefinition": {
                "apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription",
                "metadata": { "name": name, "namespace": format!("openshift-{name}") },
            },
        })
    };
    let templates = json!([subscription("logging"), subscription("ptp")]);
    let template = json!([{ "objectDefinition": { "metadata": {}, "spec": { "object-templates": templates } } }]);
    hub.root("policy5").templates =
        Policy::read(&parse(&json!({ "spec": { "policy-templates": template } }))).templates;
    hub.settle();
    hub
}

/// A canary whose time is over, and an upgrade that another client ends.
#[test]
fn an_upgrade_that_ends_leaves_no_views() {
    let mut hub = subscribing(&json!({ "maxConcurrency": 2, "canaries": ["spoke1"], "timeout": 30 }));
    assert_eq!(hub.known.views.len(), 2);
    hub.at_limit();
    assert_eq!(hub.message(SUCCEEDED), "Policy remediation took too long on canary clusters");
    assert_eq!(*hub.known.views, BTreeMap::new());

    let mut hub = subscribing(&json!({ "maxConcurrency": 2 }));
    assert_eq!(hub.known.views.len(), 4);
    let status = hub.upgrade.status.as_mut().unwrap();
    conditions::set(&mut status.conditions, hub.now, SUCCEEDED, "True", "UpgradeCompleted", "");
    hub.settle();
    assert_eq!(*hub.known.views, BTreeMap::new());
}

/// Whoever writes policies and clusters decides how many views there are.
#[test]
fn views_are_asked_for_in_parts() {
    let names: Vec<String> = (0..150).map(|number| format!("edge{number}")).collect();
    let clusters: Vec<&str> = names.iter().map(String::as_str).collect();
    let strategy = json!({ "maxConcurrency": 150 });
    let mut hub =
        Hub::new(json!({ "clusters": clusters, "remediationStrategy": strategy }), &[("policy5", &clusters, &[])]);
    *hub.known.clusters = names.iter().map(|name| (name.clone(), ManagedCluster::default())).collect();
    let subscription = |number: usize| Subscription {
        kind: "Subscription".to_owned(),
        name: format!("a{number}"),
        namespace: "o".to_owned(),
        ..Subscription::default()
    };
    let templates = Templates { subscriptions: (0..100).map(subscription).collect(), ..Templates::default() };
    hub.root("policy5").templates = Some(templates);
    hub.settle();
    assert_eq!(hub.known.views.len(), 15_000);
    hub.known.views.clear();
    let plan = hub.plan();
    assert_eq!(plan.acts.iter().filter(|act| matches!(act, Act::View(_))).count(), 10_000);
    assert_eq!(plan.requeue_at, hub.now.checked_add(APPROVAL_RETRY).ok());
}

/// operator-upgrade: views of Subscriptions, then of `InstallPlan`s, then approvals; they go with a cluster that is
/// complete and with a batch whose time is over.
#[test]
fn operator_upgrade() {
    let mut hub = subscribing(&json!({ "maxConcurrency": 2 }));
    let view = "cgu-default-subscription-ptp-kuttl";
    assert_eq!(hub.status().safe_resource_names["/cgu-default-subscription-ptp"], view);
    let mut names: Vec<&(String, String)> = hub.known.views.keys().collect();
    names.retain(|(_, name)| name == view);
    assert_eq!(names.iter().map(|(cluster, _)| cluster.as_str()).collect::<Vec<_>>(), ["spoke1", "spoke2"]);
    let scope = &hub.known.views[names[0]].scope;
    assert_eq!([&scope.resource, &scope.name], ["Subscription.operators.coreos.com", "ptp"]);
    assert_eq!(scope.namespace, "openshift-ptp");

    let pending = |name: &str| Answer::Pending(name.to_owned());
    let answers = |hub: &mut Hub, cluster: &str, name: &str, answer: Answer| {
        hub.known.views.get_mut(&(cluster.to_owned(), name.to_owned())).unwrap().answer = answer;
    };
    answers(&mut hub, "spoke1", view, pending("install-aaaa4"));
    hub.settle();
    let scope = &hub.known.views[&("spoke1".to_owned(), "install-aaaa4".to_owned())].scope;
    assert_eq!((scope.resource.as_str(), scope.namespace.as_str()), ("InstallPlan", "openshift-ptp"));
    assert_eq!(hub.approved, []);
    let plan = InstallPlan { resource_version: "1532546".to_owned(), versions: vec!["ptp.v4".to_owned()] };
    answers(&mut hub, "spoke1", "install-aaaa4", Answer::Unapproved(plan.clone()));
    assert_eq!(hub.plan().requeue_at, hub.now.checked_add(APPROVAL_RETRY).ok(), "until the view shows it");
    hub.settle();
    let [cluster, name, namespace] = ["spoke1", "install-aaaa4", "openshift-ptp"].map(str::to_owned);
    assert_eq!(hub.approved[0], Approval { cluster, name, namespace, plan });
    // Its action would be carried out whenever it wakes.
    hub.approved.clear();
    hub.asleep.insert("spoke1".to_owned());
    hub.settle();
    assert_eq!(hub.approved, []);
    hub.asleep.clear();

    hub.comply(&[("spoke1", "policy5")]);
    assert!(hub.known.views.keys().all(|(cluster, _)| cluster == "spoke2"), "{:?}", hub.known.views);
    hub.spec(|spec| spec.remediation_strategy.timeout = 0);
    hub.later(1);
    assert_eq!((hub.condition(SUCCEEDED).as_str(), hub.known.views.len()), ("False/TimedOut", 0));
}

const PULLED: Matrix<'static> = &[
    ("policy0", &[], &["spoke6", "spoke2", "spoke1", "spoke5"]),
    ("policy3", &["spoke6", "spoke2", "spoke1", "spoke5"], &[]),
];

/// An upgrade of four clusters that pulls the images of its policies first.
fn pulling(strategy: &Value) -> Hub {
    let spec = json!({
        "clusters": ["spoke6", "spoke2", "spoke1", "spoke5"], "enable": false, "preCaching": true,
        "remediationStrategy": strategy,
    });
    let mut hub = Hub::new(spec, PULLED);
    let object = |kind: &str, spec: Value| json!({ "objectDefinition": { "kind": kind, "metadata": { "name": "a", "namespace": "o" }, "spec": spec } });
    for (name, object) in [
        ("policy0", object("CatalogSource", json!({ "image": "index" }))),
        ("policy3", object("Subscription", json!({ "name": "ptp-operator", "channel": "4.9" }))),
    ] {
        let template = json!([{ "objectDefinition": { "metadata": {}, "spec": { "object-templates": [object] } } }]);
        hub.root(name).templates = Policy::read(&parse(&json!({ "spec": { "policy-templates": template } }))).templates;
    }
    hub.image = Some("image");
    hub.known.clusters.values_mut().for_each(|cluster| cluster.is_available = true);
    hub
}

impl Hub {
    /// Every view of these clusters has this result.
    fn answer(&mut self, clusters: &[&str], presence: Presence, answer: &Answer) {
        for ((cluster, _), view) in &mut *self.known.views {
            if clusters.contains(&cluster.as_str()) {
                (view.presence, view.answer) = (presence, answer.clone());
            }
        }
    }

    /// Takes all clusters until their Jobs run.
    fn pull_until_active(&mut self) {
        let all = ["spoke6", "spoke2", "spoke1", "spoke5"];
        self.settle();
        self.answer(&all, Presence::Absent, &Answer::Nothing);
        self.settle();
        self.answer(&all, Presence::Present, &Answer::Nothing);
        self.settle();
        for ((_, name), view) in &mut *self.known.views {
            if name == "view-precache-job" {
                view.presence = Presence::Absent;
            }
        }
        self.settle();
        self.answer(&all, Presence::Present, &Answer::Job(Job::Active));
        self.settle();
    }

    fn pulled(&self) -> Vec<String> {
        let known = self.status().precaching.as_ref().unwrap();
        known.status.iter().map(|(name, state)| format!("{name} {state}")).collect()
    }
}

/// What is pulled may be as large as an object, and stands in the writes to each cluster.
#[test]
fn a_large_pull_goes_to_a_few_clusters_at_once() {
    let mut hub = pulling(&json!({ "maxConcurrency": 4 }));
    hub.known.configs.insert(
        ("default".to_owned(), "images".to_owned()),
        PreCachingConfigSpec { additional_images: vec!["x".repeat(30 << 20)], ..PreCachingConfigSpec::default() },
    );
    let reference = Reference { name: "images".to_owned(), namespace: String::new() };
    hub.upgrade.spec.pre_caching_config_ref = Some(reference);
    hub.step();
    let plan = hub.plan();
    assert_eq!(
        (plan.acts.iter().filter(|act| matches!(act, Act::Pull(_))).count(), plan.requeue_at),
        (2, Some(hub.now))
    );
}

/// pre-caching-complete, and how an upgrade goes on from there.
#[test]
fn pre_caching_complete() {
    let mut hub = pulling(&json!({ "maxConcurrency": 4 }));
    hub.pull_until_active();
    assert_eq!(hub.pulled(), ["spoke1 Active", "spoke2 Active", "spoke5 Active", "spoke6 Active"]);
    assert_eq!(hub.message("PrecachingSuceeded"), "Precaching in progress for 4 clusters");
    assert_eq!(hub.condition(PROGRESSING), "", "as with TALM");
    let spec = hub.status().precaching.clone().unwrap().spec.unwrap();
    assert_eq!([spec.operators_indexes, spec.operators_packages_and_channels], [["index"], ["ptp-operator:4.9"]]);
    hub.answer(&["spoke1", "spoke2", "spoke5", "spoke6"], Presence::Present, &Answer::Job(Job::Succeeded));
    hub.settle();
    assert_eq!(hub.condition("PrecachingSuceeded"), "True/PrecachingCompleted");
    assert_eq!((hub.condition(PROGRESSING).as_str(), hub.known.views.len()), ("False/NotEnabled", 0));
    for action in ["precache-ns-delete", "precache-crb-delete"] {
        let expected = 8;
        assert_eq!(hub.actions.iter().filter(|one| one.ends_with(action)).count(), expected, "before and after");
    }
    let types: Vec<&str> = hub.status().conditions.iter().map(|one| one.type_.as_str()).collect();
    assert_eq!(types, ["ClustersSelected", "Validated", "PrecacheSpecValid", "PrecachingSuceeded", "Progressing"]);
    hub.spec(|spec| spec.enable = true);
    assert_eq!(hub.status().remediation_plan, [["spoke6", "spoke2", "spoke1", "spoke5"]]);
}

/// pre-caching-partial-complete: clusters that have failed are left out, and what is left of its pull goes at the end.
#[test]
fn pre_caching_partial_complete() {
    let mut hub = pulling(&json!({ "maxConcurrency": 4 }));
    hub.pull_until_active();
    hub.answer(&["spoke1", "spoke6"], Presence::Present, &Answer::Job(Job::Succeeded));
    hub.answer(&["spoke2"], Presence::Present, &Answer::Job(Job::DeadlineExceeded));
    hub.known.clusters.get_mut("spoke5").unwrap().is_available = false;
    hub.settle();
    assert_eq!(hub.pulled(), ["spoke1 Succeeded", "spoke2 PrecacheTimeout", "spoke5 Active", "spoke6 Succeeded"]);
    assert_eq!(hub.message("PrecachingSuceeded"), "Precaching in progress for 1 clusters");
    hub.spec(|spec| spec.enable = true);
    assert_eq!(hub.pulled()[2], "spoke5 UnrecoverableError");
    assert_eq!(hub.condition("PrecachingSuceeded"), "True/PartiallyDone");
    assert_eq!(hub.message("PrecachingSuceeded"), "Precaching failed for 2 clusters");
    assert_eq!(hub.status().remediation_plan, [["spoke6", "spoke1"]]);
    assert_eq!(hub.labels("spoke2"), [""; 0]);
    hub.actions.clear();
    hub.comply(&[("spoke6", "policy3"), ("spoke1", "policy3")]);
    assert_eq!((hub.condition(SUCCEEDED).as_str(), hub.records().len()), ("True/Completed", 2));
    let removals = [
        "spoke2 precache-ns-delete",
        "spoke2 precache-crb-delete",
        "spoke5 precache-ns-delete",
        "spoke5 precache-crb-delete",
    ];
    assert_eq!(hub.actions, removals);
}

/// Rows 10 and 11: all have failed, or a canary has.
#[test]
fn an_upgrade_without_images_fails() {
    let all = ["spoke1", "spoke2", "spoke5", "spoke6"];
    let mut hub = pulling(&json!({ "maxConcurrency": 4 }));
    hub.pull_until_active();
    hub.answer(&all, Presence::Present, &Answer::Job(Job::DeadlineExceeded));
    hub.settle();
    assert_eq!(hub.conditions(["PrecachingSuceeded", PROGRESSING]), ["False/Failed", ""]);
    hub.spec(|spec| spec.enable = true);
    assert_eq!(hub.says(SUCCEEDED), "False/Failed: No clusters available for remediation (Precaching failed)");

    let mut hub = pulling(&json!({ "maxConcurrency": 4, "canaries": ["spoke2"] }));
    hub.pull_until_active();
    hub.answer(&all, Presence::Present, &Answer::Job(Job::Succeeded));
    hub.answer(&["spoke2"], Presence::Present, &Answer::Job(Job::BackoffLimitExceeded));
    hub.settle();
    hub.spec(|spec| spec.enable = true);
    assert_eq!(hub.says(SUCCEEDED), "False/Failed: Precaching failed on canary cluster spoke2");
}

/// pre-caching-missing-sub-policy and -with-configs; a release is looked up once, and only for this.
#[test]
fn what_is_pulled_comes_from_policies_settings_and_the_graph() {
    let mut hub = pulling(&json!({ "maxConcurrency": 4 }));
    hub.upgrade.spec.managed_policies = vec!["policy0".to_owned()];
    hub.set("spoke1", "policy0", Compliance::NonCompliant);
    hub.settle();
    let incomplete =
        "Precaching spec is incomplete: inconsistent precaching configuration: olm index provided, but no packages";
    assert_eq!(hub.message("PrecacheSpecValid"), incomplete);
    hub.spec(|spec| {
        spec.managed_policies.push("policy3".to_owned());
        spec.pre_caching_config_ref = Some(Reference { name: "config".to_owned(), namespace: String::new() });
    });
    assert!(hub.message("PrecacheSpecValid").ends_with("PreCachingConfig.ran.openshift.io \"config\" not found"));
    hub.known.configs.insert(
        ("default".to_owned(), "config".to_owned()),
        PreCachingConfigSpec { additional_images: vec!["more".to_owned()], ..PreCachingConfigSpec::default() },
    );
    hub.settle();
    assert_eq!(hub.status().precaching.clone().unwrap().spec.unwrap().additional_images, ["more"]);

    let mut hub = pulling(&json!({ "maxConcurrency": 4 }));
    let release = Release {
        upstream: "https://api.openshift.com/graph".to_owned(),
        channel: "stable-4.16".to_owned(),
        version: "4.16.1".to_owned(),
        image: String::new(),
    };
    hub.root("policy3").templates.as_mut().unwrap().releases.push(release.clone());
    hub.settle();
    assert_eq!(hub.plan().lookup, Some(release.clone()));
    hub.releases.insert(release.clone(), Err("no such version".to_owned()));
    hub.settle();
    assert_eq!(hub.says(VALIDATED), "False/InvalidPlatformImage: no such version");
    hub.releases.insert(release, Ok("release-image".to_owned()));
    hub.settle();
    assert_eq!(hub.status().precaching.clone().unwrap().spec.unwrap().platform_image, "release-image");
    hub.releases.clear();
    assert_eq!(hub.plan().lookup, None, "it is known");
}
