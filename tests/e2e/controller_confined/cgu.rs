//! Where the controller runs `ClusterGroupUpgrades`: what upgrades send passes, and nothing else.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use shared::cgu::api::{ClusterGroupUpgrade, Reference};
use shared::cgu::objects::{self, Approval, Names};
use shared::cgu::precache::workload;
use shared::cgu::view::{InstallPlan, ViewRequest};
use shared::cgu::wire::{Scope, UPGRADE};
use testbed::fdb::common::SOON;
use testbed::{World, apply, ensure_that, eventually, foreign};

use super::{CONTROLLER, accounts, is_refused, world, write};
use crate::kkp_common::upstream_folder;

const ACTIONS: &str = "/apis/action.open-cluster-management.io/v1beta1/namespaces/spoke1/managedclusteractions";
const VIEWS: &str = "/apis/view.open-cluster-management.io/v1beta1/namespaces/spoke1/managedclusterviews";
const PLACEMENTS: &str = "/apis/cluster.open-cluster-management.io/v1beta1/namespaces/default/placements";
const BINDINGS: &str = "/apis/policy.open-cluster-management.io/v1/namespaces/default/placementbindings";
const CLUSTERS: &str = "/apis/cluster.open-cluster-management.io/v1/managedclusters";
const NAMESPACES: &str = "/api/v1/namespaces";

/// A write: method, path and body.
type Write = (&'static str, String, Value);

fn upgrade() -> Result<ClusterGroupUpgrade> {
    let upgrade = json!({
        "apiVersion": "ran.openshift.io/v1alpha1", "kind": "ClusterGroupUpgrade",
        "metadata": { "name": "wave", "namespace": "default", "uid": "0f3c9a11-2222" },
        "spec": { "remediationStrategy": { "maxConcurrency": 1 } },
    });
    Ok(serde_json::from_value(upgrade)?)
}

fn post(path: &str, body: Value) -> Write {
    ("POST", path.to_owned(), body)
}

fn placements(upgrade: &ClusterGroupUpgrade) -> (Value, Value) {
    let policy = Reference { name: "common".to_owned(), namespace: "default".to_owned() };
    let names = Names::of(upgrade, &policy);
    (objects::placement(upgrade, &policy, &names, &[]), objects::binding(upgrade, &policy, &names))
}

/// An object of this name, and the same without labels.
fn with_and_without_labels(object: &Value) -> [Value; 2] {
    ["ours", "theirs"].map(|name| {
        let mut object = object.clone();
        object["metadata"]["name"] = json!(name);
        if name == "theirs" {
            object["metadata"]["labels"] = Value::Null;
        }
        object
    })
}

fn approval(upgrade: &ClusterGroupUpgrade) -> Value {
    let plan = InstallPlan { resource_version: "7".to_owned(), versions: vec!["ptp.v1".to_owned()] };
    let (cluster, name, namespace) = ("spoke1".to_owned(), "install-x".to_owned(), "openshift-ptp".to_owned());
    objects::approval(upgrade, &Approval { cluster, name, namespace, plan })
}

fn view(upgrade: &ClusterGroupUpgrade, resource: &str) -> Write {
    let scope = Scope { resource: resource.to_owned(), name: "x".to_owned(), ..Scope::default() };
    let (cluster, name) = ("spoke1".to_owned(), "view-x".to_owned());
    let request = ViewRequest { cluster, desired: name.clone(), name, scope, adopts: false };
    post(VIEWS, objects::view(upgrade, &request))
}

fn passes(upgrade: &ClusterGroupUpgrade) -> Vec<Write> {
    let pulled = workload::actions();
    assert_eq!(pulled.len(), 7, "a namespace, an account, a binding, a ConfigMap, a Job, two removals");
    let pulled = pulled.iter().map(|spec| post(ACTIONS, objects::action(upgrade, ("spoke1", "precache-x"), spec)));
    let (placement, binding) = placements(upgrade);
    let labeled = |key: &str| json!({ "metadata": { "labels": { "ztp-done": "" }, "annotations": { key: "1" } } });
    let selected = json!({ "spec": { "numberOfClusters": 1 } });
    let namespace = |name: &str| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    let written = [
        post(ACTIONS, approval(upgrade)),
        ("DELETE", format!("{ACTIONS}/there"), Value::Null),
        // What TALM has left there goes with its upgrade.
        ("DELETE", format!("{ACTIONS}/there").replace("spoke1", "local-cluster"), Value::Null),
        view(upgrade, "InstallPlan"),
        view(upgrade, "Subscription.operators.coreos.com"),
        view(upgrade, "jobs"),
        post(PLACEMENTS, placement),
        ("PATCH", format!("{PLACEMENTS}/ours"), selected),
        ("DELETE", format!("{PLACEMENTS}/ours"), Value::Null),
        post(BINDINGS, binding),
        ("DELETE", format!("{BINDINGS}/ours"), Value::Null),
        ("PATCH", format!("{CLUSTERS}/spoke1"), labeled("example.com/x")),
        post(NAMESPACES, namespace("ztp-install")),
    ];
    pulled.chain(written).collect()
}

/// Actions that change something else.
fn actions(upgrade: &ClusterGroupUpgrade) -> Vec<Value> {
    let edited = |mut action: Value, edits: &[(&str, Value)]| {
        for (path, value) in edits {
            let (parent, key) = path.rsplit_once('/').unwrap_or_default();
            if let Some(parent) = action.pointer_mut(parent) {
                parent[key] = value.clone();
            }
        }
        action
    };
    let pull = |resource: &str| {
        let all = workload::actions().into_iter();
        let mut found = all.filter(|spec| spec["kube"]["resource"] == resource && spec["actionType"] == "Create");
        objects::action(upgrade, ("spoke1", "precache-x"), &found.next_back().unwrap_or_default())
    };
    let delete = |resource: &str, name: &str| {
        let spec = json!({ "actionType": "Delete", "kube": { "resource": resource, "name": name } });
        objects::action(upgrade, ("spoke1", "x"), &spec)
    };
    let user = json!([{ "kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io" }]);
    let template = "/spec/kube/template";
    let at = |path: &str| format!("{template}{path}");
    vec![
        edited(pull("clusterrolebinding"), &[(&at("/subjects"), user)]),
        edited(pull("clusterrolebinding"), &[(&at("/metadata/name"), json!("mine"))]),
        edited(pull("clusterrolebinding"), &[("/spec/actionType", json!("Update"))]),
        edited(pull("serviceaccount"), &[(&at("/metadata/namespace"), json!("kube-system"))]),
        edited(pull("job"), &[("/spec/kube/namespace", json!("kube-system"))]),
        edited(pull("configmap"), &[("/spec/kube/resource", json!("secret")), (&at("/kind"), json!("Secret"))]),
        edited(pull("namespace"), &[(&at("/metadata/name"), json!("other"))]),
        edited(approval(upgrade), &[(&at("/kind"), json!("Secret"))]),
        edited(approval(upgrade), &[("/spec/kube/resource", json!("deployment"))]),
        edited(approval(upgrade), &[("/spec/actionType", json!("Create"))]),
        edited(approval(upgrade), &[(&at("/spec/template"), json!({}))]),
        delete("namespace", "openshift-monitoring"),
        delete("clusterrolebinding", "cluster-admins"),
        delete("secret", "openshift-talo-pre-cache"),
    ]
}

fn others(upgrade: &ClusterGroupUpgrade) -> Vec<Write> {
    let local = |path: &str| path.replace("spoke1", "local-cluster");
    let on_hub = passes(upgrade).into_iter().filter(|(method, path, _)| *method == "POST" && path == ACTIONS);
    let on_hub = on_hub.map(|(method, path, mut action)| {
        action["metadata"]["namespace"] = json!("local-cluster");
        (method, local(&path), action)
    });
    let (placement, binding) = placements(upgrade);
    let [_, unlabeled] = with_and_without_labels(&placement);
    let [_, unbound] = with_and_without_labels(&binding);
    let named = |mut object: Value| {
        object["metadata"]["name"] = json!("new");
        object
    };
    let label = |value: Value| json!({ "metadata": { "labels": { UPGRADE: value } } });
    let mut anonymous = view(upgrade, "InstallPlan");
    anonymous.2["metadata"]["labels"] = Value::Null;
    let cluster = |fields: Value| ("PATCH", format!("{CLUSTERS}/spoke1"), fields);
    let written = [
        view(upgrade, "secrets"),
        view(upgrade, "Secret.v1"),
        anonymous,
        post(PLACEMENTS, named(unlabeled)),
        ("PATCH", format!("{PLACEMENTS}/theirs"), label(json!("wave"))),
        ("PATCH", format!("{PLACEMENTS}/ours"), label(Value::Null)),
        ("DELETE", format!("{PLACEMENTS}/theirs"), Value::Null),
        post(BINDINGS, named(unbound)),
        ("DELETE", format!("{BINDINGS}/theirs"), Value::Null),
        cluster(json!({ "spec": { "hubAcceptsClient": false } })),
        cluster(json!({ "spec": { "leaseDurationSeconds": 5 }, "metadata": { "labels": { "ztp-done": "" } } })),
        cluster(json!({ "metadata": { "finalizers": ["example.com/x"] } })),
        ("DELETE", format!("{CLUSTERS}/spoke1"), Value::Null),
        post(NAMESPACES, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "other" } })),
        ("PATCH", format!("{NAMESPACES}/default"), json!({ "metadata": { "labels": { "a": "b" } } })),
    ];
    let actions = actions(upgrade).into_iter().map(|action| post(ACTIONS, action));
    actions.chain(on_hub).chain(written).collect()
}

/// The definitions, the rights with their policy, and what is there before.
async fn prepare(world: &World, upgrade: &ClusterGroupUpgrade) -> Result<()> {
    let hub = world.hub().await?;
    if let Some(folder) = upstream_folder("ocm") {
        let folder = folder.to_str().context("a path in UTF-8")?;
        world.kubectl(&["apply", "--server-side", "-f", folder]).await?.ok()?;
        world.kubectl(&["wait", "--for=condition=Established", "-f", folder]).await?.ok()?;
    } else {
        apply::all(&hub, &foreign::of_governance()).await?;
    }
    let (placement, binding) = placements(upgrade);
    let mut objects = manifests::upgrades();
    for namespace in ["spoke1", "local-cluster"] {
        objects.push(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }));
        objects.push(objects::action(upgrade, (namespace, "there"), &workload::actions()[0]));
    }
    objects.extend([&placement, &binding].into_iter().flat_map(with_and_without_labels));
    objects.push(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
        "metadata": { "name": "spoke1", "labels": { "name": "spoke1" } }, "spec": { "hubAcceptsClient": true },
    }));
    apply::all(&hub, &objects).await
}

#[tokio::test(flavor = "multi_thread")]
async fn on_clusters_it_does_what_upgrades_send_and_changes_no_hub() -> Result<()> {
    let (world, upgrade) = (world().await?, upgrade()?);
    prepare(&world, &upgrade).await?;
    let clients = accounts(&world, &[CONTROLLER, "alice"]).await?;
    let refusal = "hibernate-controller may ";
    let others = others(&upgrade);
    let (method, path, body) = &others[0];
    eventually(SOON, "policy in force", async || {
        ensure_that(write(&clients[CONTROLLER], method, path, body).await, |answer| is_refused(answer, refusal))
    })
    .await?;
    for (method, path, body) in passes(&upgrade) {
        let answer = write(&clients[CONTROLLER], method, &path, &body).await;
        answer.with_context(|| format!("{method} {path} {body}"))?;
    }
    for (method, path, body) in &others {
        let answer = write(&clients[CONTROLLER], method, path, body).await;
        ensure!(is_refused(&answer, refusal), "{method} {path} {body}: {answer:?}");
        write(&clients["alice"], method, path, body).await.with_context(|| format!("alice: {method} {path} {body}"))?;
    }
    Ok(())
}
