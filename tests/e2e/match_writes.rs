//! The corpora of admission on a hub: what is stored before, and each write with the entries of the webhook that it must
//! reach.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};
use testbed::{World, apply, kubeconfig};

pub use crate::corpus::{Case, Corpus, Verb, applied, corpus, merge};

pub const HIVE: &str = include_str!("../corpus/hive.yaml");
pub const KKP: &str = include_str!("../corpus/kkp.yaml");
const FDB: &str = include_str!("../corpus/fdb.yaml");
const ROLLOUTS: &str = include_str!("../corpus/rollouts.yaml");
const SCHEDULES: &str = include_str!("../corpus/schedules.yaml");
const REPLICAS: &str = "replicas";
const GROUP: &str = "apps.foundationdb.org/v1beta2";

/// The cases of a corpus that an API server can be asked. Each stored object has a name of its own.
pub fn sent(text: &str) -> Corpus {
    let mut corpus = corpus(text);
    corpus.cases.retain(|case| case.reaches.is_some());
    let mut numbers = BTreeMap::new();
    for case in &mut corpus.cases {
        if let Some(name) = corpus.users.get(&case.user) {
            case.user.clone_from(name);
        }
        let next = numbers.len();
        let metadata = &mut case.stored["metadata"];
        if case.with != json!({}) {
            let number = numbers.entry((case.of.clone(), case.with.to_string())).or_insert(next);
            metadata["name"] = format!("{}-{number}", metadata["name"].as_str().unwrap_or_default()).into();
        }
        metadata.as_object_mut().map(|metadata| metadata.remove("uid"));
    }
    corpus
}

/// All of them, and those of workloads.
pub fn writes() -> Vec<Case> {
    [HIVE, KKP, FDB, ROLLOUTS, SCHEDULES].into_iter().flat_map(|text| sent(text).cases).chain(workloads()).collect()
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn api(client: &Client, object: &Value) -> Api<DynamicObject> {
    let version = text(object, "/apiVersion");
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text(object, "/kind")));
    match text(object, "/metadata/namespace") {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    }
}

/// Owners are those of this name that exist: the garbage collector deletes what has an owner of a kind that it knows and
/// does not find.
async fn own(hub: &Client, object: &mut Value) -> Result<()> {
    let namespace = text(object, "/metadata/namespace").to_owned();
    for owner in object["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
        if owner["name"] == "prod" {
            let metadata = json!({ "namespace": namespace });
            let databases =
                api(hub, &json!({ "apiVersion": GROUP, "kind": "FoundationDBCluster", "metadata": metadata }));
            owner["uid"] = databases.get("prod").await?.metadata.uid.into();
        }
    }
    Ok(())
}

/// Stores what the cases change, with its status.
pub async fn store(hub: &Client, cases: &[Case]) -> Result<()> {
    let namespaces: BTreeSet<_> = cases.iter().map(|case| text(&case.stored, "/metadata/namespace")).collect();
    let namespaces: Vec<_> = namespaces.into_iter().filter(|name| !name.is_empty()).map(namespace).collect();
    apply::all(hub, &namespaces).await?;
    let mut objects: Vec<&Value> = Vec::new();
    for case in cases.iter().filter(|case| case.verb != Verb::Create) {
        if !objects.contains(&&case.stored) {
            objects.push(&case.stored);
        }
    }
    // Owners come first, and each list in one go: what it costs is to look up the kinds.
    let (owners, others): (Vec<_>, Vec<_>) = objects.iter().partition(|object| object["kind"] == "FoundationDBCluster");
    let unset = json!({ "status": null, "metadata": { "deletionTimestamp": null } });
    for list in [owners, others] {
        let mut wanted: Vec<_> = list.into_iter().map(|stored| applied(stored, &unset)).collect();
        for object in &mut wanted {
            own(hub, object).await?;
        }
        apply::all(hub, &wanted).await?;
    }
    for stored in objects {
        let (name, api) = (text(stored, "/metadata/name"), api(hub, stored));
        if let Some(status) = stored.get("status") {
            let patch = Patch::Merge(json!({ "status": status }));
            api.patch_status(name, &PatchParams::default(), &patch)
                .await
                .with_context(|| format!("status of {name}"))?;
        }
        if stored.pointer("/metadata/deletionTimestamp").is_some() {
            api.delete(name, &DeleteParams::default()).await?;
        }
    }
    Ok(())
}

fn namespace(name: &str) -> Value {
    let is_recorded = ["recorded", "kube-system"].contains(&name);
    let labels = if is_recorded { json!({ "hibernate.sh/record-replicas": "true" }) } else { json!({}) };
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } })
}

/// The hub's clients, by user.
pub async fn clients(world: &World, cases: &[Case]) -> Result<BTreeMap<String, Client>> {
    let mut clients = BTreeMap::new();
    for case in cases {
        let user = case.user.as_str();
        if clients.contains_key(user) {
            continue;
        }
        let account = user.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'));
        let client = match account {
            // Whoever writes a rollout is who its stamp names.
            None => world.hub().await?,
            Some((namespace, _)) => {
                let groups = ["system:masters", &format!("system:serviceaccounts:{namespace}")];
                kubeconfig::client_as(&world.file().hub.kubeconfig, user, &groups).await?
            }
        };
        clients.insert(user.to_owned(), client);
    }
    Ok(clients)
}

/// Sends a write as a dry run.
pub async fn send(client: &Client, case: &Case) -> kube::Result<()> {
    let (api, name) = (api(client, &case.stored), text(&case.stored, "/metadata/name"));
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    let (patch, deletion) = (Patch::Merge(&case.write), DeleteParams::default().dry_run());
    match case.verb {
        Verb::Create => {
            let new = applied(&case.written(), &json!({ "metadata": { "name": "new" } }));
            let object = serde_json::from_value(new).map_err(kube::Error::SerdeError)?;
            api.create(&PostParams { dry_run: true, ..PostParams::default() }, &object).await.map(drop)
        }
        Verb::Update | Verb::Both => api.patch(name, &params, &patch).await.map(drop),
        Verb::Status => api.patch_status(name, &params, &patch).await.map(drop),
        Verb::Scale => api.patch_scale(name, &params, &patch).await.map(drop),
        Verb::Delete => api.delete(name, &deletion).await.map(drop),
        Verb::DeleteCollection => {
            let labels = case.write.as_str().unwrap_or_default();
            api.delete_collection(&deletion, &ListParams::default().labels(labels)).await.map(drop)
        }
    }
}

/// Writes of each kind of workload.
fn workloads() -> Vec<Case> {
    let kinds: [(&str, &str, &[&str]); 4] = [
        ("apps/v1", "Deployment", &[]),
        ("apps/v1", "StatefulSet", &["serviceName"]),
        ("cluster.x-k8s.io/v1beta1", "MachineDeployment", &["serviceName", "clusterName"]),
        ("cluster.k8s.io/v1alpha1", "MachineDeployment", &["serviceName", "clusterName"]),
    ];
    kinds.into_iter().flat_map(|(version, kind, more)| workload_writes(version, kind, more)).collect()
}

fn workload_writes(version: &str, kind: &str, more: &[&str]) -> Vec<Case> {
    let labels = json!({ "app": "web" });
    let pod =
        json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "web", "image": "web" }] } });
    let stored = |namespace: &str, name: &str| {
        let mut object = json!({
            "apiVersion": version, "kind": kind, "metadata": { "name": name, "namespace": namespace },
            "spec": { "selector": { "matchLabels": labels }, "template": pod },
        });
        for field in more {
            object["spec"][*field] = "web".into();
        }
        match name {
            "three" => object["spec"]["replicas"] = 3.into(),
            "none" => merge(
                &mut object,
                &json!({ "spec": { "replicas": 0 }, "metadata": { "annotations": { "hibernate.sh/replicas": "3" } } }),
            ),
            _ => {}
        }
        object
    };
    let write = |what: &str, namespace: &str, verb, name: &str, write: Value, reaches: bool| Case {
        name: format!("{version} {kind}: {what}"),
        user: "alice".to_owned(),
        stored: stored(namespace, name),
        reaches: Some(if reaches { REPLICAS } else { "" }.to_owned()),
        verb,
        write,
        ..Case::default()
    };
    let direct = |what: &str, name: &str, body, reaches| write(what, "recorded", Verb::Update, name, body, reaches);
    let to = |replicas: u32| json!({ "spec": { "replicas": replicas } });
    let scale = |what: &str, name: &str, count, reaches| write(what, "recorded", Verb::Scale, name, to(count), reaches);
    let record = |value: Value| json!({ "metadata": { "annotations": { "hibernate.sh/replicas": value } } });
    vec![
        direct("3 to 0", "three", to(0), true),
        direct("3 to 5", "three", to(5), false),
        direct("0 to 3", "none", to(3), true),
        direct("absent to 0", "absent", to(0), true),
        direct("absent to 2", "absent", to(2), false),
        direct(
            "a rollout",
            "three",
            json!({ "spec": { "template": { "metadata": { "annotations": { "a": "b" } } } } }),
            false,
        ),
        direct("a record while awake", "three", record("7".into()), false),
        direct("a record while asleep", "none", record("7".into()), true),
        direct("no record while asleep", "none", record(Value::Null), true),
        direct("a label while asleep", "none", json!({ "metadata": { "labels": { "a": "b" } } }), false),
        scale("scale 3 to 0", "three", 0, true),
        scale("scale 3 to 5", "three", 5, false),
        scale("scale 0 to 3", "none", 3, true),
        scale("scale 0 to 0", "none", 0, false),
        write("elsewhere", "plain", Verb::Update, "three", to(0), false),
        write("scale elsewhere", "plain", Verb::Scale, "three", to(0), false),
        write("in kube-system, whatever its labels", "kube-system", Verb::Update, "three", to(0), false),
    ]
}
