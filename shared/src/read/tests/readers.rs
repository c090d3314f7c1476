//! Every reader of the hub and of spokes against the largest that can come, in its smallest parts; and a look for readers
//! that are not among them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use fuzz::hostile;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace as KubeNamespace, PersistentVolumeClaim, Secret};
use serde_json::{Value, json};

use crate::cgu::api::ClusterGroupUpgrade;
use crate::cgu::wire::*;
use crate::fdb::api::FoundationDBCluster;
use crate::guarded::{Managed, Named};
use crate::hive::api::{ClusterDeployment, ClusterSync};
use crate::kinds::operators::objects::Fields;
use crate::kkp::api::Cluster;
use crate::read::*;
use crate::rollout::api::PowerRollout;
use crate::schedule::api::{ClusterPowerSchedule, PowerSchedule};
use crate::schedule::workloads::{CronJobObject, DeploymentObject, StatefulSetObject};
use crate::spoke::kinds;

/// Bytes of an attack: more where memory is measured than beside other tests. What is in use grows with them.
fn bytes() -> usize {
    if std::env::var_os("FUZZ_MEMORY").is_some() { 300 << 10 } else { 24 << 10 }
}

fn attack<T: DeserializeOwned>(name: &str, sample: &Value, bytes: usize, limits: impl Fn(usize) -> Limits) {
    if let Err(error) = json::<T>(sample.to_string().as_bytes(), &limits(1 << 20)) {
        panic!("{name}: {error}");
    }
    let most = limits(bytes + (64 << 10)).kept;
    hostile::run(name, sample, (bytes, most), |text| {
        let read = json::<T>(text, &limits(text.len()));
        read.ok().map(|read| read.kept)
    });
}

/// The upstream definition of a kind, where it is at hand.
fn definition(file: &str) -> Option<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/upstream-crds").join(file);
    let text = fs::read_to_string(path).ok()?;
    let options = serde_saphyr::options! { budget: None };
    let found: Value = serde_saphyr::from_str_with_options(&text, options).expect(file);
    Some(found["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone())
}

/// By what we know of the kind, and by all that its schema allows.
fn object<T: Foreign>(name: &str, file: &str, content: &Value) {
    let mut sample = content.clone();
    sample["metadata"] = hostile::metadata();
    attack::<T>(name, &sample, bytes(), |_| T::LIMITS);
    if let Some(schema) = definition(file) {
        let mut sample = hostile::sample(&schema);
        sample["metadata"] = hostile::metadata();
        attack::<T>(&format!("{name}, upstream's schema"), &sample, 24 << 10, |_| T::LIMITS);
    }
}

fn fuzz<T: DeserializeOwned>(name: &str, content: &Value, limits: impl Fn(usize) -> Limits) {
    let mut sample = content.clone();
    sample["metadata"] = hostile::metadata();
    hostile::mutated(name, &sample, |text| json::<T>(text, &limits(text.len())).ok().map(|read| read.kept));
}

macro_rules! objects {
    ($($test:ident { $($type:ty, $file:literal, $content:tt;)* })*) => {
        $(
            #[test]
            fn $test() {
                $(object::<$type>(stringify!($type), $file, &json!($content));)*
            }
        )*

        #[test]
        fn fuzz_memory_of_objects() {
            $($(fuzz::<$type>(stringify!($type), &json!($content), |_| <$type as Foreign>::LIMITS);)*)*
        }
    };
}

objects! {
    readers_of_hive {
        ClusterDeployment, "hive/hive.openshift.io_clusterdeployments.yaml", {
            "spec": {
                "baseDomain": "d", "clusterName": "c", "installed": true, "powerState": "Running",
                "platform": { "nutanix": { "region": "r", "failureDomains": [{ "dataSourceImages": [{ "uuid": "" }] }] } },
                "clusterMetadata": {
                    "infraID": "i", "clusterID": "u", "adminKubeconfigSecretRef": { "name": "s" },
                    "platform": { "azure": { "resourceGroupName": "g" } },
                },
            },
            "status": { "conditions": [{ "type": "t", "status": "True", "reason": "r", "message": "m" }] },
        };
        ClusterSync, "hive/hiveinternal.openshift.io_clustersyncs.yaml", { "spec": {}, "status": { "conditions": [{}] } };
    }
    readers_of_kkp {
        Cluster, "kkp/kubermatic.k8c.io_clusters.yaml", {
            "spec": { "humanReadableName": "h", "version": "v", "cloud": { "dc": "d", "providerName": "p" } },
            "status": { "conditions": { "a": { "status": "True", "kubermaticVersion": "v", "lastHeartbeatTime": "t" } } },
        };
    }
    readers_of_foundationdb {
        FoundationDBCluster, "fdb/apps.foundationdb.org_foundationdbclusters.yaml", {
            "spec": { "version": "7", "processCounts": { "storage": 1 }, "processGroupsToRemove": ["a"] },
            "status": { "processGroups": [{ "processGroupID": "a", "addresses": ["b"], "processGroupConditions": [{ "type": "t" }] }] },
        };
    }
    readers_of_governance {
        ClusterGroupUpgrade, "talm/ran.openshift.io_clustergroupupgrades.yaml", {
            "spec": { "clusters": ["a"], "remediationStrategy": { "maxConcurrency": 1 } },
            "status": { "clusters": [{ "name": "a", "state": "s" }], "backup": { "a": [{}] } },
        };
        UpgradeObject, "talm/ran.openshift.io_clustergroupupgrades.yaml", { "status": { "remediationPlan": [["a"]], "clusters": [{ "name": "a" }] } };
        PreCachingConfigObject, "talm/ran.openshift.io_precachingconfigs.yaml", { "spec": { "additionalImages": ["a"] } };
        ImageBasedGroupUpgrade, "talm/lcm.openshift.io_imagebasedgroupupgrades.yaml", {};
        BindingObject, "none", {};
        ActionObject, "none", {};
        ManagedClusterObject, "ocm/cluster.open-cluster-management.io_managedclusters.yaml", { "status": { "conditions": [{ "type": "t" }] } };
        PolicyObject, "ocm/policy.open-cluster-management.io_policies.yaml", {
            "spec": { "policy-templates": [{ "objectDefinition": {
                "metadata": { "name": "a" },
                "spec": { "object-templates": [{ "complianceType": "c", "objectDefinition": { "kind": "Subscription", "metadata": { "name": "n" }, "spec": { "name": "n" } } }] },
            } }] },
            "status": { "status": [{ "clustername": "a", "compliant": "Compliant" }] },
        };
        PlacementObject, "ocm/cluster.open-cluster-management.io_placements.yaml", {
            "spec": { "predicates": [{ "requiredClusterSelector": { "labelSelector": { "matchExpressions": [{ "values": ["a"] }] } } }] },
        };
        ViewObject, "ocm/view.open-cluster-management.io_managedclusterviews.yaml", {
            "spec": { "scope": { "resource": "Job", "name": "n" } },
            "status": { "conditions": [{ "type": "Processing" }], "result": { "a": [{ "a": 0 }], "status": { "conditions": [{ "type": "t" }] },
                "spec": { "clusterServiceVersionNames": ["a"] } } },
        };
        Definition, "none", { "spec": { "versions": [{ "schema": { "openAPIV3Schema": { "properties": { "status": { "properties": { "placements": {} } } } } } }] } };
    }
    readers_of_kubernetes {
        PowerRollout, "none", {
            "spec": { "action": "Hibernate", "maxTargets": 1, "notAfter": "2026-11-28T00:00:00Z", "targets": { "kind": "ClusterDeployment", "names": [{ "namespace": "a", "name": "b" }] } },
        };
        PowerSchedule, "none", {
            "spec": {
                "timeZone": "UTC", "awake": [{ "days": ["Mon"], "from": "07:00", "to": "18:00" }], "events": [{ "cron": "a", "power": "Sleep" }],
                "exceptions": [{ "from": "2026-12-24", "power": "Sleep" }], "calendars": [{ "configMap": "a", "key": "b", "power": "Sleep" }],
                "targets": { "kind": "ClusterDeployment", "names": [{ "name": "b" }] }, "rollout": { "groups": [{ "name": "a", "names": [{ "name": "b" }] }] },
            },
            "status": {
                "next": [{ "at": "2026-11-28T00:00:00Z", "power": "Sleep", "source": "s" }],
                "lastEdge": { "at": "2026-11-28T00:00:00Z", "power": "Sleep", "source": "s" },
            },
        };
        ClusterPowerSchedule, "none", {
            "spec": { "timeZone": "UTC", "awake": [{ "from": "07:00", "to": "18:00" }], "targets": { "kind": "ClusterDeployment", "all": true } },
        };
        ConfigMap, "none", { "data": { "a": "b" } };
        Secret, "none", { "data": { "a": "eA==" } };
        PersistentVolumeClaim, "none", { "spec": { "accessModes": ["a"] }, "status": { "capacity": { "storage": "1" } } };
        KubeNamespace, "none", {};
        DeploymentObject, "none", { "spec": { "replicas": 1 } };
        StatefulSetObject, "none", { "spec": { "replicas": 1, "persistentVolumeClaimRetentionPolicy": { "whenScaled": "Retain" } } };
        CronJobObject, "none", { "spec": { "suspend": true } };
        Fields<0, false>, "none", {
            "spec": { "suspend": true, "stop": "yes", "instances": 3, "scaleTargetRef": { "kind": "Deployment", "name": "a" } },
            "status": { "phase": "a" },
        };
        Lease, "none", { "spec": { "holderIdentity": "h" } };
        ValidatingAdmissionPolicy, "none", { "spec": { "validations": [{ "expression": "true" }] } };
        ValidatingAdmissionPolicyBinding, "none", { "spec": { "validationActions": ["Deny"] } };
        Named<ConfigMap>, "none", {};
        Managed, "none", {};
    }
}

macro_rules! of_spokes {
    ($($kind:ident: $content:tt;)*) => {
        #[test]
        fn readers_of_spokes() {
            $({
                let mut sample = json!($content);
                sample["metadata"] = hostile::metadata();
                attack::<kinds::$kind>(stringify!($kind), &sample, bytes(), Limits::answer);
            })*
        }

        #[test]
        fn fuzz_memory_of_spokes() {
            $(fuzz::<kinds::$kind>(stringify!($kind), &json!($content), Limits::answer);)*
        }
    };
}

of_spokes! {
    Node: { "spec": { "providerID": "p" }, "status": { "conditions": [{ "type": "Ready" }], "images": [{ "names": ["a"] }] } };
    NodeName: {};
    Namespace: {};
    Lease: { "spec": {} };
    CertificateRequest: { "spec": { "groups": ["a"], "usages": ["b"], "request": "eA==" }, "status": { "conditions": [{ "type": "t" }] } };
    ClusterOperator: { "status": { "conditions": [{ "type": "t" }], "relatedObjects": [{ "name": "n" }] } };
    ClusterVersion: { "status": { "conditions": [{ "type": "t" }], "history": [{ "state": "s" }] } };
    Machine: { "status": { "addresses": [{ "type": "t" }] } };
    SecretObservation: {};
    BootstrapToken: { "data": { "expiration": "eA==" } };
    PodDisruptionBudget: { "status": {} };
    ValidatingWebhooks: { "webhooks": [{ "name": "n", "rules": [{ "operations": ["a"] }], "namespaceSelector": { "matchLabels": { "a": "b" } } }] };
    MutatingWebhooks: { "webhooks": [{ "name": "n", "clientConfig": { "service": { "name": "n" } } }] };
    MachineDeployment: { "spec": { "replicas": 1 } };
    MachineSet: {};
    KkpMachine: { "spec": { "providerSpec": { "value": { "cloudProvider": "a", "x": [{}] } } } };
    Pod: { "spec": { "tolerations": [{ "key": "k" }], "volumes": [{ "ephemeral": {} }] } };
    VolumeAttachment: {};
    PersistentVolume: { "spec": { "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "k" }] }] } } } };
    Service: { "spec": { "type": "t" } };
    Job: { "status": { "conditions": [{ "type": "t" }] } };
    Event: { "involvedObject": { "name": "n" }, "message": "m" };
}

/// Product sources, without their tests.
fn sources(folders: &[&str]) -> Vec<(PathBuf, String)> {
    fn walk(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if entry.is_dir() && name != "tests" && name != "benches" {
                walk(&entry, found);
            } else if entry.extension().is_some_and(|of| of == "rs")
                && !["tests.rs", "testing.rs", "bench.rs", "readers.rs"].contains(&name.as_str())
            {
                let text = fs::read_to_string(&entry).expect("a source");
                let product = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default().to_owned();
                found.push((entry, product));
            }
        }
    }

    let (root, mut found) = (Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), Vec::new());
    for folder in folders {
        walk(&root.join(folder), &mut found);
    }
    found
}

const READ_HERE: &[&str] = &["shared/src", "controller/src", "webhook/src", "server/src", "clouds"];

/// The type that a line declares as read from outside, by itself or in a table.
fn declares(line: &str) -> Option<&str> {
    let of_table = || {
        let (name, rest) = line.strip_prefix("    ")?.split_once(": ")?;
        let is_row = ["OBJECT,", "FLEET,", "DATABASE,", "DATA,"].contains(&rest) || rest.contains("ResourceScope =");
        is_row.then_some(name)
    };
    let of_spoke = || Some(line.strip_prefix("    ")?.split_once(" = \"/api")?.0);
    // A generic one is named without its parameters.
    let of_impl = || line.strip_prefix("impl")?.split_once(" Foreign for ")?.1.split([' ', '<']).next();
    of_impl().or_else(of_table).or_else(of_spoke).filter(|name| !name.contains(['$', ' ']))
}

#[test]
fn no_reader_is_left_out() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let seed = fs::read_to_string(root.join("controller/src/systems/kkp/seed.rs")).unwrap();
    let here = include_str!("readers.rs");
    let is_tested = |name: &str| {
        here.contains(&format!("        {name},"))
            || here.contains(&format!("        {name}<"))
            || here.contains(&format!("    {name}: {{"))
            || seed.contains(&format!("attack::<{name}>"))
    };
    let sources = sources(READ_HERE);
    let declared: BTreeSet<&str> = sources.iter().flat_map(|(_, text)| text.lines()).filter_map(declares).collect();
    assert!(declared.len() > 40, "{declared:?}");
    // Only who an object is; and what is tested as itself under another name.
    let known = ["Identifiable", "Namespace"];
    let left: Vec<_> = declared.into_iter().filter(|name| !is_tested(name) && !known.contains(name)).collect();
    assert!(left.is_empty(), "{left:?} has no test in {}", file!());
}

/// Where something is read by another way, and why that is sound.
const OTHER_WAYS: &[(&str, &str)] = &[
    ("shared/src/read/", "the reader itself"),
    ("shared/src/guarded.rs", "hands the text to the reader"),
    ("controller/src/runtime/lease.rs", "the controller's own Lease"),
    ("controller/src/runtime/events.rs", "writes, and what it gets back has its own type"),
    ("webhook/src/certs/", "the webhook's own Secret and configurations"),
    ("controller/src/run.rs", "the controller's own Lease"),
    ("controller/src/systems/cgu/act.rs", "patches, which are written"),
    ("controller/src/systems/kkp/patches.rs", "patches, which are written"),
    ("webhook/src/patch.rs", "patches, which are written"),
    ("shared/src/rollout/admission/rules.rs", "the beginning of a text that the reader has bounded"),
    ("shared/src/hive/preflight/objects.rs", "objects of the plugin, which is the user's own process"),
    ("shared/src/admission/mod.rs", "groups, which are searched and not kept"),
    ("webhook/src/review.rs", "a uid, of a part that the reader has picked"),
    ("controller/src/runtime/hub.rs", "patches, which are written"),
    ("controller/src/csr/approver.rs", "patches, which are written"),
    ("controller/src/systems/schedule/workloads.rs", "patches, which are written"),
];

#[test]
fn nothing_is_read_past_the_reader() {
    let allowed = |path: &Path| {
        let path = path.to_string_lossy().replace("/../", "/");
        OTHER_WAYS.iter().any(|(part, _)| path.contains(part))
    };
    let mut found = Vec::new();
    for (path, text) in sources(&["controller/src", "webhook/src", "server/src"]) {
        if allowed(&path) {
            continue;
        }
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            let unguarded = line
                .split("Api<")
                .skip(1)
                .any(|of| !of.starts_with("Guarded") && !of.starts_with("Objects") && !of.starts_with("K>"));
            let generic = [
                "Api::<",
                "serde_json::from_slice",
                "serde_json::from_reader",
                "PartialObjectMeta",
                ": Value,",
                "<String, Value>",
            ];
            if unguarded || generic.iter().any(|part| line.contains(part)) {
                found.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
            }
        }
    }
    for (path, text) in sources(READ_HERE).into_iter().filter(|(path, _)| !allowed(path)) {
        let others =
            text.lines().filter(|line| line.contains("serde_json::from_") || line.contains("Deserializer::from_"));
        found.extend(others.map(|line| format!("{}: {}", path.display(), line.trim())));
    }
    assert!(found.is_empty(), "read past the reader:\n{}", found.join("\n"));
}
