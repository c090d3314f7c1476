//! Conditions, variables and validations in CEL, by `OBJECT: NAME`, of validations `OBJECT: NUMBER`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use shared::admission::MAX_TEXT_BYTES;
use shared::admission::stamp::STAMPS;
use shared::annotation::keys::{self as common, GROUP, NAMESPACE};
use shared::cgu::objects::LOCAL_CLUSTER;
use shared::cgu::precache::workload;
use shared::cgu::view::INSTALL_PLAN;
use shared::cgu::wire::UPGRADE;
use shared::cgu::ztp;
use shared::fdb::admission::OWNED_BY_FDB;
use shared::hive::conditions::{ACTIVE_OVERRIDE, HIBERNATING, PROGRESS, READY, UNREACHABLE};
use shared::hive::data::DATA;
use shared::hive::exempt;
use shared::hive::preflight::PREFLIGHT;
use shared::kkp::admission::{ANNOTATIONS, HIBERNATING as ASLEEP};
use shared::kkp::api::NAMESPACE_PREFIX;
use shared::kkp::phase::Phase;
use shared::kkp::{data, keys};
use shared::rollout::admission::{POLICY, starts_targets, starts_unless};
use shared::rollout::snapshot::Snapshot;
use shared::savings::ledger::LEDGER;
use shared::schedule::admission::POLICY as SCHEDULES;
use shared::schedule::api::POWER_SCHEDULE;
use shared::workload::namespaces::{CONTROL_PLANE, PREFIXES};

use super::{committed, controller, items};

/// Members of metadata that a write may change beside the object's own.
const METADATA: [&str; 5] = ["annotations", "labels", "managedFields", "generation", "resourceVersion"];
/// Conditions of a `ClusterDeployment` that the controller writes.
pub(super) const OF_HIVE: [&str; 8] =
    [HIBERNATING, READY, PROGRESS, DATA, PREFLIGHT, LEDGER, UNREACHABLE, ACTIVE_OVERRIDE];
/// Conditions of a KKP Cluster that the controller writes.
pub(super) const OF_KKP: [&str; 5] = [keys::DEHYDRATED, keys::AWAKE, data::PREFLIGHT, data::STATE, LEDGER];
/// Annotations that hold a time.
pub(super) const TIMES: [&str; 4] =
    [common::REQUESTED_AT, common::HOLD_AWAKE_UNTIL, common::WAKE_AT, common::PREFLIGHT_REQUESTED_AT];
/// Resources that views ask for, besides Subscriptions.
const VIEWED: [&str; 6] = [INSTALL_PLAN, "clusterrolebinding", "configmap", "jobs", "namespaces", "serviceaccounts"];
/// RFC 3339, as far as a pattern can tell.
const TIME: &str = r"^[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|[12][0-9]))T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$";

/// Policies, but for those that are generated.
fn policies() -> Vec<Value> {
    let is_ours = |one: &Value| {
        one["kind"] == "ValidatingAdmissionPolicy"
            && ![&[POLICY, SCHEDULES][..], &crate::operators::NAMES]
                .concat()
                .iter()
                .any(|name| one["metadata"]["name"] == *name)
    };
    committed().into_iter().filter(is_ours).collect()
}

/// A field of the validations of every policy.
pub(super) fn validations(field: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for policy in policies() {
        for (number, validation) in items(&policy["spec"]["validations"]).enumerate() {
            let name = format!("{}: {number}", policy["metadata"]["name"].as_str().unwrap());
            all.insert(name, validation[field].as_str().unwrap().to_owned());
        }
    }
    all
}

/// Every expression that is not generated.
pub(super) fn expressions() -> BTreeMap<String, String> {
    let mut all = validations("expression");
    let mut insert = |of: &Value, named: &Value| {
        for one in items(named) {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let before = all.insert(format!("{}: {}", text(of), text(&one["name"])), text(&one["expression"]));
            assert_eq!(before, None, "{of} {one} is twice there");
        }
    };
    for policy in policies() {
        let (name, spec) = (&policy["metadata"]["name"], &policy["spec"]);
        insert(name, &spec["matchConditions"]);
        insert(name, &spec["variables"]);
    }
    for object in committed() {
        items(&object["webhooks"]).for_each(|entry| insert(&entry["name"], &entry["matchConditions"]));
    }
    all
}

/// The texts in quotes of an expression, each once, in the order in which they come.
fn quoted(expression: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for text in expression.split('\'').skip(1).step_by(2).filter(|text| !text.is_empty()) {
        if !found.contains(&text) {
            found.push(text);
        }
    }
    found
}

/// The texts that the code knows, by expression.
type Texts = Vec<(&'static str, Vec<&'static str>)>;

/// Of Hive's clusters, workloads and databases.
fn of_hive() -> Texts {
    let annotation = [&TIMES[..], &[TIME, "0001-01-01T00:00:00Z", common::PROTECTED, "true", "false"]].concat();
    vec![
        ("into-sleep.hibernate.sh: into-sleep", vec![HIBERNATING]),
        ("into-sleep.hibernate.sh: not-exempt", [exempt::USERS, exempt::GROUPS].concat()),
        ("hive.hibernate.sh: judged-fields-change", common::TARGET_ANNOTATIONS.to_vec()),
        (
            "stamp.hibernate.sh: power-state-hold-or-stamp-changes",
            [&[common::HOLD_AWAKE_UNTIL, common::WAKE_AT], STAMPS].concat(),
        ),
        ("replicas.hibernate.sh: asleep-before-or-after", vec!["scale", common::REPLICAS]),
        ("fdb.hibernate.sh: minimum-suspension-changes", vec![common::MINIMUM_SUSPENSION]),
        ("clusterdeployments.hibernate.sh: wakes", vec![HIBERNATING]),
        ("clusterdeployments.hibernate.sh: stateChanges", vec![HIBERNATING]),
        (
            "clusterdeployments.hibernate.sh: hibernateAfterNanoseconds",
            vec!["h", "m", "s", "L", "U", "N", "ms", "us", "µs", "ns", "[0-9.]+"],
        ),
        ("clusterdeployments.hibernate.sh: stampChanges", vec![common::REQUESTED_BY, common::REQUESTED_AT]),
        (
            "clusterdeployments.hibernate.sh: malformed",
            [&annotation[..], &[common::REPLICAS, "^0*[0-9]{1,10}$"]].concat(),
        ),
        ("clusterdeployments.hibernate.sh: holderChanges", vec![common::HOLD_AWAKE_BY, common::HOLD_AWAKE_UNTIL]),
        ("clusterdeployments.hibernate.sh: claimChanges", vec![common::ROLLOUT]),
        ("clusterdeployments.hibernate.sh: 3", vec![common::PROTECTED, "false"]),
        ("clusterdeployments.hibernate.sh: 5", vec!["0s"]),
    ]
}

/// Of KKP's Clusters.
fn of_kkp() -> Texts {
    let (record, _) = keys::RECORD;
    let phases = |phases: &[Phase]| phases.iter().map(|&phase| phase.into()).collect::<Vec<&str>>();
    let asleep = [
        &[keys::POWER_STATE, ASLEEP, keys::DEHYDRATED, "True"][..],
        &phases(&Phase::ASLEEP),
        &[keys::PAUSED_BY_US, keys::PAUSED_BY_SLEEP],
        &phases(&Phase::WAKING),
    ]
    .concat();
    vec![
        ("kkp-into-sleep.hibernate.sh: into-sleep", vec![keys::POWER_STATE, ASLEEP]),
        ("kkp-into-sleep.hibernate.sh: not-exempt", exempt::USERS.to_vec()),
        ("kkp-active-restore.hibernate.sh: adds-active-restore", vec![keys::ACTIVE_RESTORE]),
        ("kkp-active-restore.hibernate.sh: stays-asleep", asleep.clone()),
        // The power state is one of the annotations.
        ("kkp.hibernate.sh: judged-fields-change", [ANNOTATIONS, &asleep[1..]].concat()),
        ("kkp-delete.hibernate.sh: asleep", asleep),
        (
            "kkp-stamp.hibernate.sh: power-state-hold-or-stamp-changes",
            [&[keys::POWER_STATE, common::HOLD_AWAKE_UNTIL], STAMPS].concat(),
        ),
        ("kkp-stamp-record.hibernate.sh: is-record", vec![record, NAMESPACE_PREFIX]),
        (
            "kkp-stamp-record.hibernate.sh: request-or-stamp-changes",
            vec![keys::POWER_STATE, keys::POWER_STATE_AT, common::REQUESTED_BY, common::REQUESTED_AT],
        ),
    ]
}

/// Of what confines our accounts.
fn of_accounts() -> Texts {
    let webhook = "system:serviceaccount:hibernate-system:hibernate-webhook";
    vec![
        ("hibernate-controller-hive: isStatus", vec!["status"]),
        ("hibernate-controller-hive: sameObject", [&["metadata", "spec"][..], &METADATA].concat()),
        ("hibernate-controller-hive: sameNotes", vec!["hibernate.sh/"]),
        ("hibernate-controller-hive: sameSpec", vec!["powerState"]),
        ("hibernate-controller-hive: sameStatus", vec!["conditions", "powerState"]),
        ("hibernate-controller-hive: sameConditions", OF_HIVE.to_vec()),
        ("hibernate-controller-hive: 0", vec!["UPDATE"]),
        ("hibernate-controller-fdb: sameObject", [&["metadata"][..], &METADATA].concat()),
        ("hibernate-controller-fdb: 0", vec!["UPDATE"]),
        ("hibernate-controller-openstack: type", vec!["Opaque"]),
        (
            "hibernate-controller-openstack: 0",
            vec!["-hibernation-config", "Opaque", "hibernation", "hibernation-config"],
        ),
        ("hibernate-webhook-ca-bundle-only: by-the-webhook", vec![webhook]),
        ("hibernate-webhook-ca-bundle-only: sameMetadata", vec!["managedFields", "generation", "resourceVersion"]),
        ("hibernate-webhook-ca-bundle-only: sameEntries", vec!["clientConfig", "caBundle"]),
        ("hibernate-webhook-ca-bundle-only: 0", vec!["UPDATE"]),
        (
            "hibernate-controller-cgu: approves",
            [
                &["Update", "installplan", "operators.coreos.com/", INSTALL_PLAN][..],
                &["approval", "approved", "clusterServiceVersionNames"],
            ]
            .concat(),
        ),
        ("hibernate-controller-cgu: 0", vec!["managedclusteractions", "DELETE", LOCAL_CLUSTER]),
        (
            "hibernate-controller-cgu: 1",
            [&["managedclusterviews", "DELETE", UPGRADE][..], &VIEWED, &["Subscription."]].concat(),
        ),
        ("hibernate-controller-cgu: 2", vec!["placement", UPGRADE]),
        ("hibernate-controller-cgu: 3", vec!["managedclusters", "UPDATE"]),
        ("hibernate-controller-cgu: 4", vec!["namespaces", "CREATE", ztp::NAMESPACE]),
    ]
}

/// Of what confines the controller's account on workloads: on a seed, and where schedules put them to sleep.
fn of_workloads() -> Texts {
    vec![
        ("hibernate-controller-kkp: isScheduled", vec![GROUP, POWER_SCHEDULE.plural, "workloads", "create"]),
        ("hibernate-controller-workload-schedules: ofControlPlane", [CONTROL_PLANE, PREFIXES].concat()),
        ("hibernate-controller-workload-schedules: 1", vec!["UPDATE"]),
    ]
}

/// Of what confines the controller's account on a seed.
fn of_seeds() -> Texts {
    let (record, _) = keys::RECORD;
    vec![
        ("hibernate-controller-kkp: isStatus", vec!["status"]),
        ("hibernate-controller-kkp: isSnapshot", vec!["configmaps", "CREATE", NAMESPACE, Snapshot::PREFIX]),
        ("hibernate-controller-kkp: keptLabels", vec!["hibernate.sh/"]),
        (
            "hibernate-controller-kkp: keptTemplate",
            vec!["deployments", "statefulsets", "metadata", "labels", "annotations"],
        ),
        ("hibernate-controller-kkp: mayChange", vec!["deployments", "replicas", "statefulsets", "cronjobs", "suspend"]),
        ("hibernate-controller-kkp: sameSpec", vec!["template"]),
        ("hibernate-controller-kkp: sameClusterSpec", vec!["pause", "pauseReason", "cniPlugin", "version"]),
        ("hibernate-controller-kkp: ownPause", vec![keys::PAUSED_BY_US]),
        ("hibernate-controller-kkp: sameStatus", [&["conditions"][..], &OF_KKP].concat()),
        ("hibernate-controller-kkp: 0", vec!["clusters", NAMESPACE_PREFIX]),
        ("hibernate-controller-kkp: 1", vec!["configmaps", record]),
        ("hibernate-controller-kkp: 2", vec!["configmaps", "clusters", "UPDATE"]),
        ("hibernate-controller-kkp: 3", vec!["clusters", "UPDATE"]),
        ("hibernate-controller-kkp: 4", vec!["clusters", "UPDATE"]),
        ("hibernate-controller-kkp: 5", vec!["clusters"]),
    ]
}

/// Members of an action's spec that say what it changes.
const CHANGED: [&str; 8] = [
    "actionType",
    "kube.?resource",
    "kube.?namespace",
    "kube.?name",
    "kube.?template.?apiVersion",
    "kube.?template.?kind",
    "kube.?template.?metadata.?namespace",
    "kube.?template.?metadata.?name",
];

/// What compares an action with those that the code sends.
fn of_actions() -> [(&'static str, String); 2] {
    let fields = CHANGED.map(|path| format!("object.?spec.?{path}")).join(", ");
    let actions = workload::actions();
    let changed = |action: &Value| {
        CHANGED.map(|path| {
            let found = action.pointer(&format!("/{}", path.replace(".?", "/")));
            found.and_then(Value::as_str).unwrap_or_default().to_owned()
        })
    };
    let changes: Vec<_> = actions.iter().map(changed).collect();
    let subjects = actions.iter().filter_map(|action| action.pointer("/kube/template/subjects")?.as_array());
    let subjects: Vec<&Value> = subjects.flatten().collect();
    let pulls = "object.?spec.?kube.?template.?subjects.orValue([]).all(one, one in";
    [
        ("hibernate-controller-cgu: changed", format!("[{fields}].map(field, field.orValue(''))")),
        (
            "hibernate-controller-cgu: pulls",
            format!("variables.changed in {}\n&& {pulls} {})", json!(changes), json!(subjects)),
        ),
    ]
}

/// Expressions that are made of code alone, or of other expressions.
fn made(of: &BTreeMap<String, String>) -> BTreeMap<&'static str, String> {
    let get = |name: &str| of.get(name).unwrap_or_else(|| panic!("no {name}")).as_str();
    let inner = |name: &str| get(name).strip_prefix("!(").and_then(|text| text.strip_suffix(')')).unwrap().to_owned();
    let (into_sleep, exempt) =
        (get("into-sleep.hibernate.sh: into-sleep"), inner("into-sleep.hibernate.sh: not-exempt"));
    let (of_kkp, user) =
        (get("kkp-into-sleep.hibernate.sh: into-sleep"), inner("kkp-into-sleep.hibernate.sh: not-exempt"));
    let (by_user, member) = exempt.split_once("\n|| ").unwrap();
    assert_eq!(by_user, user);
    let (adds, stays) = (
        get("kkp-active-restore.hibernate.sh: adds-active-restore"),
        get("kkp-active-restore.hibernate.sh: stays-asleep"),
    );
    let dropped = "oldObject.metadata.?annotations[?key].hasValue() && !object.metadata.?annotations[?key].hasValue())";
    let stamps = shared::admission::stamp::AUTHOR.join("', '");
    let drops = format!("|| oldObject != null && ['{stamps}'].exists(key,\n  {dropped}");
    let of_schedule = starts_unless(&["suspend"]);
    let mut made = BTreeMap::from([
        ("hive.hibernate.sh: not-into-sleep-or-exempt", format!("!({into_sleep})\n|| {exempt}")),
        ("kkp.hibernate.sh: not-into-sleep-or-exempt", format!("!({of_kkp})\n|| {user}")),
        ("kkp.hibernate.sh: no-active-restore-or-awake", format!("oldObject == null || !({adds}) || !({stays})")),
        ("rollout-stamp.hibernate.sh: starts-targets-or-drops-stamp", format!("{}\n{drops}", starts_targets())),
        ("schedule-stamp.hibernate.sh: starts-targets-or-drops-stamp", format!("{of_schedule}\n{drops}")),
        ("schedules.hibernate.sh: starts-targets", of_schedule),
        ("suspend.hibernate.sh: of-a-foundationdb-cluster", OWNED_BY_FDB.to_owned()),
        ("hibernate-controller-fdb: ofDatabase", OWNED_BY_FDB.to_owned()),
        ("clusterdeployments.hibernate.sh: intoSleep", into_sleep.to_owned()),
        ("clusterdeployments.hibernate.sh: not-our-controller", format!("!({user})")),
        (
            "clusterdeployments.hibernate.sh: not-exempt-or-claim-changes",
            format!("!({member})\n|| ({})", get("clusterdeployments.hibernate.sh: claimChanges")),
        ),
        ("hibernate-controller-fdb: sameNotes", get("hibernate-controller-hive: sameNotes").to_owned()),
        ("hibernate-controller-kkp: sameNotes", get("hibernate-controller-hive: sameNotes").to_owned()),
        ("hibernate-controller-kkp: sameMetadata", get("hibernate-controller-hive: sameObject").to_owned()),
        ("hibernate-controller-cgu: sameCluster", get("hibernate-controller-fdb: sameObject").to_owned()),
    ]);
    // Both policies judge what the controller writes to workloads on a seed.
    let same = |name: &'static str, of_seeds: &str| (name, get(of_seeds).to_owned());
    made.extend([
        same("hibernate-controller-workload-schedules: sameMetadata", "hibernate-controller-kkp: sameMetadata"),
        same("hibernate-controller-workload-schedules: keptLabels", "hibernate-controller-kkp: keptLabels"),
        same("hibernate-controller-workload-schedules: keptTemplate", "hibernate-controller-kkp: keptTemplate"),
        same("hibernate-controller-workload-schedules: mayChange", "hibernate-controller-kkp: mayChange"),
        same("hibernate-controller-workload-schedules: sameSpec", "hibernate-controller-kkp: sameSpec"),
    ]);
    let by_the_controller = format!("request.userInfo.username == '{}'", controller());
    made.extend(of_actions());
    made.extend(
        [
            "hibernate-controller-hive: by-the-controller",
            "hibernate-controller-fdb: by-the-controller",
            "hibernate-controller-kkp: by-the-controller",
            "hibernate-controller-cgu: by-the-controller",
            "hibernate-controller-openstack: by-the-controller",
            "hibernate-controller-workload-schedules: by-the-controller",
        ]
        .map(|name| (name, by_the_controller.clone())),
    );
    made
}

#[test]
fn every_expression_holds_what_the_code_knows_and_nothing_else() {
    let mut found = expressions();
    for (name, expected) in made(&found) {
        assert_eq!(found.remove(name).as_deref(), Some(expected.as_str()), "{name}");
    }
    let found: BTreeMap<&str, Vec<&str>> =
        found.iter().map(|(name, text)| (name.as_str(), quoted(text))).filter(|(_, texts)| !texts.is_empty()).collect();
    let known: BTreeMap<_, _> =
        [of_hive(), of_kkp(), of_accounts(), of_seeds(), of_workloads()].into_iter().flatten().collect();
    for (name, texts) in &known {
        assert_eq!(found.get(name), Some(texts), "{name}");
    }
    let (found, known): (BTreeSet<_>, BTreeSet<_>) = (found.keys().collect(), known.keys().collect());
    assert_eq!(found, known, "an expression holds texts that this test does not know");
}

#[test]
fn parts_that_expressions_share_are_the_same() {
    let all = expressions();
    let (_, asleep) = all["kkp-active-restore.hibernate.sh: stays-asleep"].split_once("\n&& ").unwrap();
    for name in ["kkp.hibernate.sh: judged-fields-change", "kkp-delete.hibernate.sh: asleep"] {
        assert!(all[name].contains(asleep), "{name}");
    }
    let sizes = format!("> {MAX_TEXT_BYTES}");
    assert_eq!(all["clusterdeployments.hibernate.sh: overlong"].matches(&sizes).count(), 2);
    assert_eq!(GROUP, "hibernate.sh", "texts of expressions begin with it");
}
