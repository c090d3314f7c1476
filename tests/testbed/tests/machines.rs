//! Gates, Nodes and operators follow the instances.
#![allow(clippy::unwrap_used, clippy::panic)] // a helper of a test is part of the test

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DynamicObject, ListParams};
use kube::{Api, Client};
use serde_json::json;
use testbed::{Cluster, ClusterOptions, Options, Timings, World, eventually};

const SOON: Duration = Duration::from_mins(1);

async fn world() -> World {
    let options = Options { clusters: 0, timings: Timings::fast(), ..Options::without_programs() };
    World::shared_with(options).await.unwrap()
}

async fn reachable(client: &Client) -> Result<()> {
    client.apiserver_version().await?;
    Ok(())
}

async fn unreachable(client: &Client) -> Result<()> {
    ensure!(client.apiserver_version().await.is_err(), "the API server still answers");
    Ok(())
}

/// Renewal time of each Lease and whether its Node is Ready.
async fn nodes(client: &Client) -> Result<BTreeMap<String, (String, String)>> {
    let leases = Api::<Lease>::namespaced(client.clone(), "kube-node-lease").list(&ListParams::default()).await?;
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?;
    let ready = |node: &Node| {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        conditions
            .into_iter()
            .find(|condition| condition.type_ == "Ready")
            .map(|condition| condition.status)
            .unwrap_or_default()
    };
    let ready: BTreeMap<_, _> =
        nodes.items.iter().map(|node| (node.metadata.name.clone().unwrap_or_default(), ready(node))).collect();
    let renewed =
        |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.renew_time.clone()).map(|time| time.0.to_string());
    Ok(leases
        .items
        .iter()
        .map(|lease| {
            let name = lease.metadata.name.clone().unwrap_or_default();
            let state = ready.get(&name).cloned().unwrap_or_default();
            (name, (renewed(lease).unwrap_or_default(), state))
        })
        .collect())
}

async fn progressing(client: &Client) -> Result<usize> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &testbed::cluster::operators::resource());
    let is = |object: &DynamicObject| {
        let conditions = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|condition| condition["type"] == "Progressing" && condition["status"] == "True")
    };
    Ok(api.list(&ListParams::default()).await?.items.iter().filter(|object| is(object)).count())
}

async fn masters(cluster: &Cluster) -> Vec<String> {
    let instances = cluster.instances().await.unwrap();
    instances.into_iter().filter(testbed::ec2::Instance::is_master).map(|instance| instance.id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gate_needs_a_majority_of_the_control_plane() {
    let world = world().await;
    let cluster = world.cluster("majority", ClusterOptions::default()).await.unwrap();
    let (client, ec2) = (cluster.spoke().await.unwrap(), world.ec2());
    eventually(SOON, "answer", || reachable(&client)).await.unwrap();
    let masters = masters(&cluster).await;

    ec2.set_state(&masters[0], "stopped").await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    reachable(&client).await.unwrap();

    ec2.set_state(&masters[1], "stopped").await.unwrap();
    eventually(SOON, "silence", || unreachable(&client)).await.unwrap();
    let address = cluster.info().gate.trim_start_matches("https://").to_owned();
    let refused = tokio::net::TcpStream::connect(address).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);

    ec2.set_state(&masters[1], "running").await.unwrap();
    eventually(SOON, "answer", || reachable(&client)).await.unwrap();
    cluster.remove().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_go_silent_and_come_back_fresh() {
    let world = world().await;
    let cluster = world.cluster("silent", ClusterOptions::of_size(4)).await.unwrap();
    let client = cluster.spoke().await.unwrap();
    let before = eventually(SOON, "Nodes", || async {
        let nodes = nodes(&client).await?;
        ensure!(nodes.len() == 4 && nodes.values().all(|(_, ready)| ready == "True"), "{nodes:?}");
        Ok(nodes)
    })
    .await
    .unwrap();
    eventually(SOON, "renewal of every Lease", || async {
        let now = nodes(&client).await?;
        ensure!(now.iter().all(|(name, (renewed, _))| *renewed > before[name].0), "{now:?}");
        Ok(())
    })
    .await
    .unwrap();

    let worker = cluster.instances().await.unwrap().into_iter().find(|instance| !instance.is_master()).unwrap();
    world.ec2().set_state(&worker.id, "stopped").await.unwrap();
    // What was already on its way may still arrive.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let silent = nodes(&client).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let later = nodes(&client).await.unwrap();
    let name = &worker.private_dns;
    assert_eq!(later[name].0, silent[name].0, "a machine that is off renewed its Lease");
    assert_eq!(later[name].1, "True", "its Node stays as it was until the controller manager notices");
    assert!(later.iter().all(|(other, (renewed, _))| other == name || *renewed > silent[other].0), "the others go on");

    world.ec2().set_state(&worker.id, "running").await.unwrap();
    eventually(SOON, "fresh Lease", || async {
        let now = nodes(&client).await?;
        ensure!(now[name].0 > later[name].0, "{:?}", now[name]);
        Ok(())
    })
    .await
    .unwrap();
    cluster.remove().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_node_becomes_unknown() {
    let world = World::up(Options {
        clusters: 0,
        timings: Timings { node_monitor_grace_period: testbed::delay::Delay::secs(6), ..Timings::fast() },
        ..Options::without_programs()
    })
    .await
    .unwrap();
    let cluster = world.cluster("unknown", ClusterOptions::of_size(4)).await.unwrap();
    let client = cluster.spoke().await.unwrap();
    let worker = cluster.instances().await.unwrap().into_iter().find(|instance| !instance.is_master()).unwrap();
    let becomes = |state: &'static str| {
        let (client, name) = (client.clone(), worker.private_dns.clone());
        eventually(SOON, state, move || {
            let (client, name) = (client.clone(), name.clone());
            async move {
                let nodes = nodes(&client).await?;
                ensure!(nodes[&name].1 == state, "{nodes:?}");
                Ok(())
            }
        })
    };
    becomes("True").await.unwrap();
    world.ec2().set_state(&worker.id, "stopped").await.unwrap();
    becomes("Unknown").await.unwrap();
    world.ec2().set_state(&worker.id, "running").await.unwrap();
    becomes("True").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_are_busy_after_a_wake() {
    let world = world().await;
    let cluster = world.cluster("busy", ClusterOptions::of_size(4)).await.unwrap();
    let client = cluster.spoke().await.unwrap();
    eventually(SOON, "answer", || reachable(&client)).await.unwrap();
    assert_eq!(progressing(&client).await.unwrap(), 0, "a cluster that has been up for days is settled");
    for state in ["stopped", "running"] {
        for master in masters(&cluster).await {
            world.ec2().set_state(&master, state).await.unwrap();
        }
        if state == "stopped" {
            eventually(SOON, "silence", || unreachable(&client)).await.unwrap();
        }
    }
    for (what, least, most) in [("busy operators", 1, 100), ("settled operators", 0, 0)] {
        eventually(SOON, what, || async {
            let busy = progressing(&client).await?;
            ensure!((least..=most).contains(&busy), "{busy} are busy");
            Ok(())
        })
        .await
        .unwrap();
    }
    cluster.remove().await.unwrap();
}

/// Renewal time of each operator's Lease, found by the namespaces that ClusterOperators name.
async fn operator_leases(client: &Client) -> Result<BTreeMap<String, String>> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &testbed::cluster::operators::resource());
    let mut found = BTreeMap::new();
    for operator in api.list(&ListParams::default()).await?.items {
        let related = &operator.data["status"]["relatedObjects"][0];
        ensure!(related["group"] == "" && related["resource"] == "namespaces", "{related}");
        let namespace = related["name"].as_str().unwrap_or_default();
        let leases = Api::<Lease>::namespaced(client.clone(), namespace).list(&ListParams::default()).await?.items;
        ensure!(leases.len() == 1, "{} Leases in {namespace}", leases.len());
        let renewed = leases[0].spec.as_ref().and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0.to_string());
        found.insert(namespace.to_owned(), renewed.unwrap_or_default());
    }
    Ok(found)
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_of_operators_stand_still_while_asleep() {
    let world = world().await;
    let cluster = world.cluster("leaders", ClusterOptions::of_size(4)).await.unwrap();
    let (client, past_the_gate) = (cluster.spoke().await.unwrap(), world.spoke(0).await.unwrap());
    let renewed = async |before: BTreeMap<String, String>| {
        eventually(SOON, "renewal of every operator's Lease", || async {
            let now = operator_leases(&client).await?;
            ensure!(now.len() == testbed::cluster::operators::OPERATORS.len(), "{now:?}");
            ensure!(now.iter().all(|(name, time)| before.get(name).is_none_or(|before| time > before)), "{now:?}");
            Ok(now)
        })
        .await
        .unwrap()
    };
    let first = renewed(BTreeMap::new()).await;
    renewed(first).await;
    for master in masters(&cluster).await {
        world.ec2().set_state(&master, "stopped").await.unwrap();
    }
    eventually(SOON, "silence", || unreachable(&client)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await; // what was already on its way
    let lease = async || {
        let name = testbed::cluster::operators::lease_name("dns", &cluster.info().infra_id);
        let leases = Api::<Lease>::namespaced(past_the_gate.clone(), "openshift-dns-operator");
        leases.get(&name).await.unwrap().spec.unwrap().renew_time.unwrap().0
    };
    let asleep = lease().await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(lease().await, asleep, "an operator that is off renewed its Lease");
    for master in masters(&cluster).await {
        world.ec2().set_state(&master, "running").await.unwrap();
    }
    renewed([("openshift-dns-operator".to_owned(), asleep.to_string())].into()).await;
    cluster.remove().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_on_one_spoke_see_their_own() {
    let world = world().await;
    let options = || ClusterOptions { own_account: true, ..ClusterOptions::of_size(4) };
    let one = world.cluster("mine", options()).await.unwrap();
    let two = world.cluster("theirs", options()).await.unwrap();
    assert_ne!(one.info().account, two.info().account);
    let (first, second) =
        (nodes(&one.spoke().await.unwrap()).await.unwrap(), nodes(&two.spoke().await.unwrap()).await.unwrap());
    assert_eq!((first.len(), second.len()), (4, 4));
    assert!(first.keys().all(|name| !second.contains_key(name)));
    let all = Api::<Node>::all(world.spoke(0).await.unwrap()).list(&ListParams::default()).await.unwrap();
    assert!(all.items.len() >= 8);
    two.remove().await.unwrap();
    one.remove().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_may_begin_asleep() {
    let world = world().await;
    let cluster = world.cluster("asleep", ClusterOptions::of_size(4).asleep()).await.unwrap();
    assert_eq!(cluster.states().await.unwrap(), BTreeMap::from([("stopped".to_owned(), 4)]));
    assert_eq!(cluster.power_state().await.unwrap(), "Hibernating");
    unreachable(&cluster.spoke().await.unwrap()).await.unwrap();
    cluster.remove().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn users_have_their_rights() {
    let world = world().await;
    let cluster = world.cluster("rights", ClusterOptions::of_size(1)).await.unwrap();
    let (name, namespace) = (cluster.name(), cluster.namespace());
    let patch = json!({"metadata": {"labels": {"seen": "yes"}}}).to_string();
    let alice = world
        .kubectl(&["patch", "cd", name, "-n", namespace, "--type=merge", "-p", &patch, "--as", "alice"])
        .await
        .unwrap();
    assert_eq!(alice.code, 0, "{alice:?}");
    let bob = world.kubectl(&["get", "cd", name, "-n", namespace, "--as", "bob"]).await.unwrap();
    assert!(bob.code != 0 && bob.stderr.contains("Forbidden"), "{bob:?}");
    let secrets = world.kubectl(&["get", "secrets", "-n", namespace, "--as", "alice"]).await.unwrap();
    assert!(secrets.code != 0 && secrets.stderr.contains("Forbidden"), "{secrets:?}");
    cluster.remove().await.unwrap();
}
