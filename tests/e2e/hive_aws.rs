//! AWS in full: calls shared by the clusters of an account, the order of machines, spot instances, roles, new
//! credentials.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use k8s_openapi::ByteString;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use shared::hive::conditions::{HIBERNATING, PROGRESS, READY};
use testbed::ec2::{Call, Fault, NewInstance};
use testbed::supervisor::programs::Start;
use testbed::world::handle::Cluster;
use testbed::{ClusterOptions, Options, Program, Timings, World};

use crate::hive_common::{SOON, credentials, message, running, says};

async fn all_are(clusters: &[Cluster], state: &str) -> Result<()> {
    try_join_all(clusters.iter().map(|cluster| cluster.wait_for_power_state(state, SOON))).await?;
    Ok(())
}

/// Clusters that share the world's account, alone in a region.
async fn neighbours(world: &World, region: &str, count: usize, size: usize) -> Result<Vec<Cluster>> {
    let options = ClusterOptions { region: region.to_owned(), ..ClusterOptions::of_size(size) };
    let make = |number| {
        let options = options.clone();
        async move { world.cluster(&format!("near-{number}"), options).await }
    };
    let clusters = try_join_all((0..count).map(make)).await?;
    all_are(&clusters, "Running").await?;
    Ok(clusters)
}

async fn calls(world: &World, action: &str, mine: impl Fn(&Call) -> bool) -> Result<Vec<Call>> {
    Ok(world.ec2().calls().await?.into_iter().filter(|call| call.action == action && mine(call)).collect())
}

/// IDs of a cluster's instances whose name has this part.
async fn ids(cluster: &Cluster, part: &str) -> Result<BTreeSet<String>> {
    let found = cluster.instances().await?.into_iter().filter(|i| i.tags["Name"].contains(part));
    Ok(found.map(|i| i.id).collect())
}

async fn state(world: &World, id: &str) -> Result<String> {
    let found = world.ec2().snapshot().await?.instances.into_iter().find(|instance| instance.id == id);
    Ok(found.context("the instance")?.state)
}

#[tokio::test]
async fn one_clusters_bad_machine_does_not_spoil_anothers_sleep() -> Result<()> {
    let world = World::shared().await?;
    let clusters = neighbours(&world, "eu-west-3", 5, 3).await?;
    let bad = ids(&clusters[2], "-worker-1").await?.pop_first().context("a worker")?;
    // EC2 does not say which one is meant, and the code is on no list.
    let fault = Fault {
        instance: Some(bad.clone()),
        message: Some("The requested configuration is currently not supported.".into()),
        ..Fault::error("StopInstances", "Unsupported", 400)
    };
    let fault = world.ec2().inject(&fault).await?;
    try_join_all(clusters.iter().map(Cluster::sleep)).await?;
    for (number, cluster) in clusters.iter().enumerate() {
        if number == 2 {
            says(cluster, HIBERNATING, &format!("{bad}: Unsupported")).await?;
        } else {
            let found = cluster.wait_for_power_state("Hibernating", SOON).await?;
            assert_eq!(message(&found, HIBERNATING), "Cluster is stopped");
        }
    }
    world.ec2().heal(Some(&fault.id)).await?;
    clusters[2].wait_for_power_state("Hibernating", SOON).await?;
    try_join_all(clusters.into_iter().map(Cluster::remove)).await?;
    Ok(())
}

#[tokio::test]
async fn the_control_plane_stops_last_and_starts_first() -> Result<()> {
    let world = World::shared().await?;
    let cluster = running(&world, "orderly", ClusterOptions::of_size(6)).await?;
    let (masters, workers) = (ids(&cluster, "-master-").await?, ids(&cluster, "-worker-").await?);
    let named = async |action| -> Result<Vec<BTreeSet<String>>> {
        let calls = calls(&world, action, |call| call.account == cluster.info().account).await?;
        Ok(calls.into_iter().map(|call| call.instances.into_iter().collect()).collect())
    };
    cluster.sleep().await?;
    cluster.wait_for_power_state("Hibernating", SOON).await?;
    assert_eq!(named("StopInstances").await?, [workers.clone(), masters.clone()]);
    cluster.wake().await?;
    cluster.wait_for_power_state("Running", SOON).await?;
    assert_eq!(named("StartInstances").await?, [masters, workers]);
    cluster.remove().await
}

#[tokio::test]
async fn spot_machines_are_stopped_if_they_can_be_and_otherwise_terminated_at_the_end() -> Result<()> {
    let world = World::shared().await?;
    let options = ClusterOptions { control_plane: 1, workers: 2, spot_workers: 1, ..ClusterOptions::default() };
    let cluster = running(&world, "spot", options).await?;
    let info = cluster.info();
    let persistent = NewInstance {
        name: format!("{}-worker-persistent", info.infra_id),
        spot: Some("persistent".into()),
        ..NewInstance::default()
    };
    let made = world.ec2().create(&info.account, &info.region, &info.infra_id, &[persistent]).await?;
    let (once, always) = (ids(&cluster, "-worker-0").await?.pop_first().context("spot")?, &made[0].id);
    let kept = ids(&cluster, "-worker-1").await?.pop_first().context("a worker")?;
    let mine = |call: &Call| call.account == info.account;

    world.ec2().protect(&kept, true).await?;
    cluster.sleep().await?;
    says(&cluster, HIBERNATING, &format!("{kept}: OperationNotPermitted")).await?;
    tokio::time::sleep(Duration::from_secs(6)).await; // a second try
    assert_eq!(state(&world, &once).await?, "running", "the rest does not stop, so nothing is given up");
    assert_eq!(calls(&world, "TerminateInstances", mine).await?.len(), 0);

    world.ec2().protect(&kept, false).await?;
    let found = cluster.wait_for_power_state("Hibernating", SOON).await?;
    assert_eq!(message(&found, PROGRESS), "3 instances stopped, 1 one-time spot instance terminated");
    assert_eq!(
        (state(&world, &once).await?.as_str(), state(&world, always).await?.as_str()),
        ("terminated", "stopped")
    );
    let terminated = calls(&world, "TerminateInstances", mine).await?;
    assert_eq!(terminated.iter().map(|call| call.instances.as_slice()).collect::<Vec<_>>(), [[once]]);
    let asked = calls(&world, "DescribeSpotInstanceRequests", mine).await?.len();
    assert_eq!(asked, 2, "once for each of the two, which did not come at the same time");
    cluster.remove().await
}

#[tokio::test]
async fn an_account_that_may_not_read_spot_requests_learns_from_the_refusal() -> Result<()> {
    let world = World::shared().await?;
    let region = "ap-southeast-2".to_owned();
    let denied = Fault {
        region: Some(region.clone()),
        ..Fault::error("DescribeSpotInstanceRequests", "UnauthorizedOperation", 403)
    };
    let denied = world.ec2().inject(&denied).await?;
    let options = ClusterOptions { control_plane: 1, workers: 1, spot_workers: 1, region, ..ClusterOptions::default() };
    let cluster = running(&world, "untold", options).await?;
    let spot = ids(&cluster, "-worker-0").await?.pop_first().context("spot")?;
    cluster.sleep().await?;
    cluster.wait_for_power_state("Hibernating", SOON).await?;
    assert_eq!(state(&world, &spot).await?, "terminated");
    world.ec2().heal(Some(&denied.id)).await?;
    cluster.remove().await
}

/// Tries come after 0, 10, 30 and 70 s, until the Secret has another key.
#[tokio::test]
async fn a_key_that_may_not_stop_is_left_in_peace_until_its_secret_changes() -> Result<()> {
    let world = World::shared().await?;
    let cluster = running(&world, "rotated", ClusterOptions::of_size(1)).await?;
    let account = cluster.info().account.clone();
    let (secrets, name) = credentials(&world, &cluster).await?;
    let data = secrets.get(&name).await?.data.context("data")?;
    let secret = String::from_utf8(data["aws_secret_access_key"].0.clone())?;
    world.ec2().set_key(&cluster.info().access_key_id, &secret, &account, &["StopInstances"]).await?;
    let count = async || anyhow::Ok(world.ec2().calls().await?.iter().filter(|call| call.account == account).count());

    let begin = count().await?;
    cluster.sleep().await?;
    says(&cluster, HIBERNATING, "UnauthorizedOperation").await?;
    tokio::time::sleep(Duration::from_secs(35)).await;
    let tries = count().await? - begin;
    assert!((3..=9).contains(&tries), "{tries} calls in 35 s");
    tokio::time::sleep(Duration::from_secs(12)).await; // the Secret is read at least once
    assert_eq!(count().await? - begin, tries, "the same Secret is not tried again");

    let id = format!("AKIAROTATED{:05}", rand::random::<u16>());
    world.ec2().set_key(&id, &secret, &account, &[]).await?;
    let edit = json!({"data": {"aws_access_key_id": ByteString(id.clone().into())}});
    secrets.patch(&name, &PatchParams::default(), &Patch::Merge(edit)).await?;
    let changed = Instant::now();
    testbed::eventually(SOON, "call with the new key", async || {
        testbed::ensure_that(world.ec2().calls().await?, |calls| calls.iter().any(|call| call.access_key == id))
    })
    .await?;
    eprintln!("the new key was used after {:?}", changed.elapsed());
    cluster.wait_for_power_state("Hibernating", SOON).await?;
    cluster.remove().await
}

#[tokio::test]
async fn a_cloud_without_room_is_named_and_asked_again() -> Result<()> {
    let world = World::shared().await?;
    let cluster = running(&world, "crowded", ClusterOptions::of_size(2)).await?;
    cluster.sleep().await?;
    cluster.wait_for_power_state("Hibernating", SOON).await?;
    let fault = Fault {
        access_key: Some(cluster.info().access_key_id.clone()),
        message: Some("There is no room".into()),
        ..Fault::error("StartInstances", "InsufficientInstanceCapacity", 500)
    };
    let fault = world.ec2().inject(&fault).await?;
    cluster.wake().await?;
    let found = says(&cluster, READY, "InsufficientInstanceCapacity: There is no room").await?;
    let reason = found.condition(PROGRESS).and_then(|progress| progress.reason.clone());
    assert_eq!((found.power_state(), reason.as_deref()), ("FailedToStartMachines", Some("Capacity")));
    let asked = calls(&world, "StartInstances", |call| call.access_key == cluster.info().access_key_id).await?;
    assert!(
        asked.len() <= 6,
        "both, then one by one, and perhaps once more; but nothing is repeated at once: {asked:?}"
    );
    world.ec2().heal(Some(&fault.id)).await?;
    cluster.wait_for_power_state("Running", SOON).await?;
    cluster.remove().await
}

/// In a private world, whose controller has a flag for the service provider's credentials.
#[tokio::test]
async fn a_role_is_assumed_with_the_service_providers_credentials() -> Result<()> {
    let options =
        Options { clusters: 0, without: vec![Program::Controller], timings: Timings::fast(), ..Options::default() };
    let world = World::up(options).await?;
    let (role, provider) = ("arn:aws:iam::100000000042:role/tenant", "AKIAPROVIDER00000001");
    world.ec2().set_key(provider, "hush", "100000000099", &["DescribeInstances", "StopInstances"]).await?;
    world.ec2().set_role(role, Some("pillow")).await?;
    let hub = world.hub().await?;
    let objects = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "hive"}}),
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "provider", "namespace": "hive"},
            "stringData": {"aws_access_key_id": provider, "aws_secret_access_key": "hush"},
        }),
    ];
    testbed::apply::all(&hub, &objects).await?;
    let allowed = "tenant=arn:aws:iam::100000000042:role/*";
    let args = ["--aws-service-provider-secret", "provider", "--aws-role", allowed].map(str::to_owned).into();
    world.start(&Start { args, ..Start::new(Program::Controller) }).await?;

    let assume =
        |id: &str| json!({"credentialsSecretRef": null, "credentialsAssumeRole": {"roleARN": role, "externalID": id}});
    let empty = |namespace: &str| {
        let namespace = Some(namespace.to_owned());
        ClusterOptions { namespace, control_plane: 0, workers: 0, ..ClusterOptions::default() }
    };
    let cluster = world.cluster("tenant", empty("tenant")).await?;
    let machine = NewInstance { name: format!("{}-master-0", cluster.info().infra_id), ..NewInstance::default() };
    world.ec2().create("100000000042", "us-east-1", &cluster.info().infra_id, &[machine]).await?;

    cluster.patch(&json!({"spec": {"powerState": "Hibernating", "platform": {"aws": assume("wrong")}}})).await?;
    let words = format!("AccessDenied: User is not authorized to perform: sts:AssumeRole on resource: {role}");
    let found = says(&cluster, HIBERNATING, &words).await?;
    assert_eq!(found.power_state(), "FailedToStop");
    cluster.patch(&json!({"spec": {"platform": {"aws": assume("pillow")}}})).await?;
    cluster.wait_for_power_state("Hibernating", SOON).await?;
    let stops = calls(&world, "StopInstances", |call| call.account == "100000000042").await?;
    assert!(stops.len() == 1 && stops[0].access_key != provider, "by the role's own temporary key");

    // The same role, named by another tenant.
    let other = world.cluster("other", empty("other")).await?;
    let before = calls(&world, "DescribeInstances", |call| call.account == "100000000042").await?.len();
    other.patch(&json!({"spec": {"powerState": "Hibernating", "platform": {"aws": assume("pillow")}}})).await?;
    let words = format!(
        "spec.platform.aws.credentialsAssumeRole.roleARN is {role}, which clusters in namespace other may not assume: name a role that is \
         allowed there, or start the controller with --aws-role other={role}"
    );
    assert_eq!(says(&other, HIBERNATING, &words).await?.power_state(), "FailedToStop");
    let by_other = calls(&world, "StopInstances", |call| call.account == "100000000042").await?.len();
    let asked = calls(&world, "DescribeInstances", |call| call.account == "100000000042").await?;
    assert!(by_other == 1 && asked.len() <= before + 1, "the role is not assumed for it: {asked:?}");
    Ok(())
}

/// How many calls are shared depends on how fast the controller comes to ask.
mod alone {
    use std::time::Instant;

    use anyhow::Result;
    use futures::future::try_join_all;
    use testbed::World;
    use testbed::ec2::Call;
    use testbed::world::handle::Cluster;

    use super::{all_are, calls, neighbours};

    #[tokio::test]
    async fn clusters_of_an_account_share_calls_and_nobody_gets_anothers_machines() -> Result<()> {
        const COUNT: usize = 16;
        let world = World::shared().await?;
        let clusters = neighbours(&world, "eu-central-1", COUNT, 2).await?;
        for (wanted, action) in [("Hibernating", "StopInstances"), ("Running", "StartInstances")] {
            let here = |call: &Call| call.region == "eu-central-1";
            let (observations, moves) =
                (calls(&world, "DescribeInstances", here).await?, calls(&world, action, here).await?);
            let begun = Instant::now();
            match wanted {
                "Hibernating" => drop(try_join_all(clusters.iter().map(Cluster::sleep)).await?),
                _ => drop(try_join_all(clusters.iter().map(Cluster::wake)).await?),
            }
            all_are(&clusters, wanted).await?;
            let took = begun.elapsed();
            let observations = calls(&world, "DescribeInstances", here).await?.split_off(observations.len());
            let moves = calls(&world, action, here).await?.split_off(moves.len());
            eprintln!("{COUNT} clusters {wanted} in {took:?}: {} lists, {} {action}", observations.len(), moves.len());
            // Alone each of them would need two lists, and one call each for its control plane and its workers: 2 * COUNT.
            assert!(observations.len() <= 3 * COUNT / 2, "{} lists", observations.len());
            assert!(moves.len() <= 3 * COUNT / 2, "{} calls", moves.len());
            let mut moved: Vec<&String> = moves.iter().flat_map(|call| &call.moved).collect();
            let count = moved.len();
            moved.sort();
            moved.dedup();
            assert_eq!((moved.len(), count), (2 * COUNT, 2 * COUNT), "every machine, and each of them once");
        }
        try_join_all(clusters.into_iter().map(Cluster::remove)).await?;
        Ok(())
    }
}
