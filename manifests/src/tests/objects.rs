//! What is judged, by whom and how; who may do what.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use shared::annotation::keys::{self, CONTROLLER, GROUP, NAMESPACE, WEBHOOK};
use shared::kinds::operators::objects::OPERATORS;
use shared::kinds::workload::{CAPI_MACHINE_DEPLOYMENT, DEPLOYMENT, KKP_MACHINE_DEPLOYMENT, STATEFUL_SET};
use shared::kinds::{CLUSTER_DEPLOYMENT, FOUNDATIONDB_CLUSTER, KINDS, KKP_CLUSTER, Kind, POWER_ROLLOUT};
use shared::schedule::api::{CLUSTER_POWER_SCHEDULE, POWER_SCHEDULE};

use super::{committed, files, items, texts};
use crate::files::ROLLOUT_ROLES;
use crate::generated::labels;

/// What a rule is about: operations, resources, versions, scope.
fn rule(rule: &Value) -> String {
    let list = |field: &str| texts(&rule[field]).join(",");
    let groups = texts(&rule["apiGroups"]);
    let [group] = groups[..] else { panic!("{rule}") };
    let dot = if group.is_empty() { "" } else { "." };
    let resources: Vec<String> =
        texts(&rule["resources"]).iter().map(|resource| format!("{resource}{dot}{group}")).collect();
    let scope = rule["scope"].as_str().unwrap();
    format!("{} {} {} {scope}", list("operations"), resources.join(","), list("apiVersions"))
}

/// Every entry of the webhook configurations: name, path, what happens while the webhook is down, what it is about.
fn entries() -> Vec<String> {
    let mut all = Vec::new();
    for configuration in committed() {
        for entry in items(&configuration["webhooks"]).filter(|entry| entry.get("rules").is_some()) {
            let is_mutating = configuration["kind"] == "MutatingWebhookConfiguration";
            assert_eq!(configuration["metadata"]["name"], WEBHOOK);
            let path = if is_mutating { "/mutate" } else { "/validate" };
            let (policy, name) = (entry["failurePolicy"].as_str().unwrap(), entry["name"].as_str().unwrap());
            // The webhook fills in the caBundle.
            let service = json!({"name": WEBHOOK, "namespace": NAMESPACE, "path": path, "port": 443});
            assert_eq!(entry["clientConfig"], json!({ "service": service }), "{name}");
            assert_eq!(entry["timeoutSeconds"], if policy == "Fail" { 5 } else { 3 }, "{name}");
            let fixed = ["admissionReviewVersions", "matchPolicy", "sideEffects"].map(|field| &entry[field]);
            assert_eq!(fixed, [&json!(["v1"]), &json!("Equivalent"), &json!("None")], "{name}");
            let again = if is_mutating { json!("IfNeeded") } else { Value::Null };
            assert_eq!(entry["reinvocationPolicy"], again, "{name}");
            let condition = if entry.get("matchConditions").is_some() { "" } else { " always" };
            let rules: Vec<String> = items(&entry["rules"]).map(rule).collect();
            all.push(format!("{name} {path} {policy}{condition}: {}", rules.join("; ")));
        }
    }
    all.sort();
    all
}

/// Both kinds of schedule.
fn schedules() -> String {
    [POWER_SCHEDULE, CLUSTER_POWER_SCHEDULE].map(|kind| kind.resource_name()).join(",")
}

#[test]
fn every_entry_is_about_what_the_code_judges() {
    let (hive, kkp) = (CLUSTER_DEPLOYMENT.kind.resource_name(), KKP_CLUSTER.kind.resource_name());
    let (rollouts, databases) = (POWER_ROLLOUT.kind.resource_name(), FOUNDATIONDB_CLUSTER.kind.resource_name());
    let scaled = |kind: &Kind| format!("{}.{},{}/scale.{}", kind.plural, kind.group, kind.plural, kind.group);
    let [deployments, sets] = [&DEPLOYMENT, &STATEFUL_SET].map(|row| scaled(&row.kind));
    let [capi, machines] = [&CAPI_MACHINE_DEPLOYMENT, &KKP_MACHINE_DEPLOYMENT].map(|row| scaled(&row.kind));
    let all = entries();
    assert_eq!(
        all,
        [
            format!("fdb.hibernate.sh /validate Ignore: CREATE,UPDATE {databases} * Namespaced"),
            format!("hive.hibernate.sh /validate Ignore: CREATE,UPDATE {hive} v1 Namespaced"),
            format!("into-sleep.hibernate.sh /validate Fail: CREATE,UPDATE {hive} v1 Namespaced"),
            format!("kkp-active-restore.hibernate.sh /validate Fail: UPDATE {kkp} v1 Cluster"),
            format!("kkp-delete.hibernate.sh /validate Ignore: DELETE {kkp} v1 Cluster"),
            format!("kkp-into-sleep.hibernate.sh /validate Fail: CREATE,UPDATE {kkp} v1 Cluster"),
            "kkp-stamp-record.hibernate.sh /mutate Ignore: CREATE,UPDATE configmaps v1 Namespaced".to_owned(),
            format!("kkp-stamp.hibernate.sh /mutate Ignore: CREATE,UPDATE {kkp} v1 Cluster"),
            format!("kkp.hibernate.sh /validate Ignore: CREATE,UPDATE {kkp} v1 Cluster"),
            format!(
                "replicas.hibernate.sh /mutate Ignore: UPDATE {deployments},{sets} v1 Namespaced; UPDATE {capi} * Namespaced; UPDATE {machines} * Namespaced"
            ),
            format!("rollout-stamp.hibernate.sh /mutate Fail: CREATE,UPDATE {rollouts} v1alpha1 Cluster"),
            // Judges every new rollout. Pausing, aborting and deleting never reach it.
            format!("rollouts.hibernate.sh /validate Fail always: CREATE {rollouts} v1alpha1 Cluster"),
            format!("schedule-stamp.hibernate.sh /mutate Fail: CREATE,UPDATE {} v1alpha1 *", schedules()),
            format!("schedules.hibernate.sh /validate Fail: CREATE,UPDATE {} v1alpha1 *", schedules()),
            format!("stamp.hibernate.sh /mutate Ignore: CREATE,UPDATE {hive} v1 Namespaced"),
            "suspend.hibernate.sh /validate Fail: DELETE persistentvolumeclaims,services v1 Namespaced".to_owned(),
        ]
    );
    let selected: Vec<(Value, Value)> = committed()
        .iter()
        .flat_map(|one| items(&one["webhooks"]))
        .filter(|entry| entry.get("rules").is_some() && entry.get("namespaceSelector").is_some())
        .map(|entry| (entry["name"].clone(), entry["namespaceSelector"].clone()))
        .collect();
    let values = json!([NAMESPACE, "kube-system"]);
    let never = json!([{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": values}]);
    let recorded = json!({"matchExpressions": never, "matchLabels": {keys::RECORD_REPLICAS: "true"}});
    assert_eq!(selected, [(json!("replicas.hibernate.sh"), recorded)]);
}

#[test]
fn every_policy_denies_what_it_is_about_in_every_namespace() {
    let all = committed();
    let mut found = Vec::new();
    for policy in all.iter().filter(|object| object["kind"] == "ValidatingAdmissionPolicy") {
        let (name, spec) = (policy["metadata"]["name"].as_str().unwrap(), &policy["spec"]);
        assert_eq!(spec["failurePolicy"], "Fail", "{name}");
        let constraints = &spec["matchConstraints"];
        let fixed = ["matchPolicy", "namespaceSelector", "objectSelector"].map(|field| &constraints[field]);
        assert_eq!(fixed, [&json!("Equivalent"), &json!({}), &json!({})], "{name}");
        assert_eq!(constraints.as_object().unwrap().len(), 4, "{name} excludes something");
        let of_controller = [CONTROLLER, "hibernate-claims", "power"].iter().any(|start| name.starts_with(start));
        let program = if of_controller { CONTROLLER } else { WEBHOOK };
        let is_bound = |object: &&Value| {
            object["kind"] == "ValidatingAdmissionPolicyBinding" && object["metadata"]["name"] == name
        };
        let bindings: Vec<&Value> = all.iter().filter(is_bound).collect();
        let [binding] = bindings[..] else { panic!("{name} has {bindings:?}") };
        assert_eq!(binding["spec"], json!({"policyName": name, "validationActions": ["Deny"]}));
        for object in [policy, binding] {
            assert_eq!(object["metadata"]["labels"], json!(labels(program)), "{name}");
        }
        let rules: Vec<String> = items(&constraints["resourceRules"]).map(rule).collect();
        found.push(format!("{name}: {}", rules.join("; ")));
    }
    found.sort();
    let (hive, kkp) = (CLUSTER_DEPLOYMENT.kind.resource_name(), KKP_CLUSTER.kind.resource_name());
    let (rollouts, writes) = (POWER_ROLLOUT.kind.resource_name(), "CREATE,UPDATE,DELETE");
    let every =
        |resources: &[&str]| resources.iter().map(|list| format!("{writes} {list} * *")).collect::<Vec<_>>().join("; ");
    let hive_status = "clusterdeployments/status.hive.openshift.io";
    let seed = format!("etcdbackupconfigs.kubermatic.k8c.io,{kkp},clusters/status.kubermatic.k8c.io");
    let seed = ["deployments.apps,statefulsets.apps", "cronjobs.batch", "configmaps", &seed];
    let upgrades = [
        "managedclusteractions.action.open-cluster-management.io",
        "managedclusterviews.view.open-cluster-management.io",
        "managedclusters.cluster.open-cluster-management.io,placements.cluster.open-cluster-management.io",
        "placementbindings.policy.open-cluster-management.io",
        "namespaces",
    ];
    let mut groups = BTreeMap::<&str, BTreeSet<String>>::new();
    for row in OPERATORS {
        groups.entry(row.kind.group).or_default().insert(row.kind.resource_name());
    }
    let of_operators: Vec<String> =
        groups.into_values().map(|of| of.into_iter().collect::<Vec<_>>().join(",")).collect();
    let group = "admissionregistration.k8s.io";
    let bundle = format!("validatingwebhookconfigurations.{group},mutatingwebhookconfigurations.{group}");
    let expected = [
        format!("clusterdeployments.hibernate.sh: CREATE,UPDATE {hive} v1 Namespaced"),
        "hibernate-claims-shoots: UPDATE shoots.core.gardener.cloud * *".to_owned(),
        "hibernate-claims-virtual-machines: UPDATE virtualmachines.kubevirt.io * *".to_owned(),
        format!("hibernate-controller-cgu: {}", every(&upgrades)),
        format!("hibernate-controller-fdb: {}", every(&["persistentvolumeclaims,services"])),
        format!("hibernate-controller-hive: {}", every(&[&format!("{hive},{hive_status}")])),
        format!("hibernate-controller-kkp: {}", every(&seed)),
        format!("hibernate-controller-openstack: {}", every(&["secrets"])),
        format!(
            "hibernate-controller-operators: {}",
            every(&of_operators.iter().map(String::as_str).collect::<Vec<_>>())
        ),
        format!("hibernate-controller-shoots: {}", every(&["shoots.core.gardener.cloud"])),
        format!("hibernate-controller-virtual-machines: {}", every(&["virtualmachines.kubevirt.io"])),
        format!("hibernate-controller-workload-schedules: {}", every(&seed[..2])),
        format!("hibernate-webhook-ca-bundle-only: {}", every(&[&bundle])),
        format!("powerrollouts.hibernate.sh: CREATE,UPDATE {rollouts} v1alpha1 Cluster"),
        format!("powerschedules.hibernate.sh: CREATE,UPDATE {} v1alpha1 *", schedules()),
    ];
    assert_eq!(found, expected);
}

/// What follows our group elsewhere: nothing in a prefix of keys, a label of namespaces that scrape metrics, the type of
/// the webhook's Secret.
const OTHERS: [&str; 3] = ["", "monitoring", "webhook-certificate"];

/// Every name with our group, wherever it stands, is one that the code knows.
#[test]
fn every_key_of_ours_is_one_of_the_code() {
    let code = include_str!("../../../shared/src/annotation/keys.rs").to_owned()
        + include_str!("../../../shared/src/kkp/mod.rs");
    let mut found = 0;
    for path in ["base", "components", "overlays", "namespace"].iter().flat_map(|folder| files(folder.as_ref())) {
        let text = std::fs::read_to_string(&path).unwrap();
        for after in text.split("hibernate.sh/").skip(1) {
            let end = after.find(|one: char| !one.is_ascii_lowercase() && one != '-').unwrap_or(after.len());
            let key = &after[..end];
            found += 1;
            let is_known = code.contains(&format!("\"hibernate.sh/{key}\""));
            assert!(is_known || OTHERS.contains(&key), "{} names hibernate.sh/{key}", path.display());
        }
    }
    assert!(found > 50, "{found}");
}

/// What the file says, read as an API server reads it, is what the controller compares with.
#[test]
fn the_committed_policies_of_rollouts_and_schedules_guard() {
    let file = include_str!("../../base/rollout-policy.yaml");
    let objects: Vec<Value> = serde_saphyr::from_multiple(file).unwrap();
    let ours = [shared::rollout::admission::policy(KINDS), shared::schedule::admission::policy(KINDS)];
    assert_eq!(objects.len(), 2 * ours.len());
    for (ours, found) in ours.iter().zip(objects.chunks(2)) {
        let policy = serde_json::from_value(found[0].clone()).unwrap();
        let binding = serde_json::from_value(found[1].clone()).unwrap();
        assert_eq!(ours.differs(Some(&policy), Some(&binding)), None);
    }
}

#[test]
fn roles_for_rollouts_have_no_bindings_and_no_aggregation() {
    let bound: Vec<_> = crate::base().iter().map(|object| object["roleRef"]["name"].clone()).collect();
    let read = ["get", "list", "watch"];
    let edit = [&read[..], &["create", "update", "patch", "delete"]].concat();
    let roles = crate::files::objects(&[ROLLOUT_ROLES]);
    let (calendars, roles) = roles.split_last().unwrap();
    assert_eq!(calendars["rules"], json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]));
    assert!(!bound.contains(&calendars["metadata"]["name"]), "an administrator binds it");
    assert_eq!(roles.len(), 4);
    let (rollouts, schedules) =
        (json!([POWER_ROLLOUT.kind.plural]), json!([POWER_SCHEDULE.plural, CLUSTER_POWER_SCHEDULE.plural]));
    let expected = [(&rollouts, &read[..]), (&rollouts, &edit), (&schedules, &read), (&schedules, &edit)];
    for (role, (resources, verbs)) in roles.iter().zip(expected) {
        assert!(!bound.contains(&role["metadata"]["name"]), "{role}");
        let labels = role["metadata"]["labels"].as_object().unwrap();
        assert!(!labels.keys().any(|label| label.contains("aggregate-to")), "{role}");
        let rules = json!([{"apiGroups": [GROUP], "resources": resources, "verbs": verbs}]);
        assert_eq!(role["rules"], rules, "{role}");
    }
}

#[test]
fn neither_the_base_nor_a_seed_has_any_right_on_databases() {
    let granted = |objects: &[Value], wanted: &str| {
        let rules = objects.iter().flat_map(|object| items(&object["rules"]));
        rules.flat_map(|rule| texts(&rule["resources"])).any(|resource| resource == wanted)
    };
    let without = [crate::base(), crate::kkp()].concat();
    for resource in ["foundationdbclusters", "pods", "persistentvolumeclaims", "services"] {
        assert!(granted(&crate::fdb(), resource) && !granted(&without, resource), "{resource}");
    }
    let entries = include_str!("../../base/webhook-configurations.yaml");
    assert!(!entries.contains("FoundationDBCluster") && entries.contains("into-sleep.hibernate.sh"));
}
