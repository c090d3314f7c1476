//! The status reports every failure, the controller retries it with backoff, and other clusters are not delayed.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use shared::hive::conditions::{HIBERNATING, PROGRESS, READY};
use testbed::ec2::Fault;
use testbed::proxy::faults::{Effect, Rule};
use testbed::{ClusterOptions, World};

use crate::hive_common::{SOON, credentials, message, running, says};

/// Replaces keys of a Secret; `None` removes one.
async fn edit(secrets: &Api<Secret>, name: &str, edits: &[(&str, Option<&str>)]) -> Result<()> {
    let data: serde_json::Map<_, _> = edits
        .iter()
        .map(|(key, value)| ((*key).to_owned(), json!(value.map(|value| ByteString(value.into())))))
        .collect();
    secrets.patch(name, &PatchParams::default(), &Patch::Merge(json!({"data": data}))).await?;
    Ok(())
}

#[tokio::test]
async fn credentials_that_are_missing_malformed_or_refused() -> Result<()> {
    let world = World::shared().await?;
    let cluster = running(&world, "creds", ClusterOptions::of_size(1)).await?;
    let (secrets, name) = credentials(&world, &cluster).await?;
    let good = secrets.get(&name).await?;
    let id = String::from_utf8(good.data.as_ref().context("data")?["aws_access_key_id"].0.clone())?;

    edit(&secrets, &name, &[("aws_config", Some("[default]\ncredential_process = /bin/sh -c id\n"))]).await?;
    tokio::time::sleep(Duration::from_secs(16)).await; // as long as a Secret that worked is trusted
    let sleeps_with = |secret: &str| json!({"spec": {"powerState": "Hibernating", "platform": {"aws": {"credentialsSecretRef": {"name": secret}}}}});
    cluster.patch(&sleeps_with("not-there")).await?;
    says(&cluster, HIBERNATING, &format!("Secret {}/not-there does not exist", cluster.namespace())).await?;

    cluster.patch(&sleeps_with(&name)).await?;
    says(&cluster, HIBERNATING, "aws_config line 2: credential_process is not supported").await?;

    edit(&secrets, &name, &[("aws_config", None), ("aws_access_key_id", None)]).await?;
    says(&cluster, HIBERNATING, "aws_access_key_id is missing or empty").await?;

    edit(&secrets, &name, &[("aws_access_key_id", Some("AKIAUNKNOWN"))]).await?;
    says(&cluster, HIBERNATING, "AuthFailure").await?;

    edit(&secrets, &name, &[("aws_access_key_id", Some(&id))]).await?;
    cluster.wait_for_power_state("Hibernating", Duration::from_secs(90)).await?;
    cluster.remove().await
}

#[tokio::test]
async fn a_role_is_assumed_with_the_keys_of_the_same_secret() -> Result<()> {
    let world = World::shared().await?;
    let cluster = running(&world, "role", ClusterOptions::of_size(1)).await?;
    let (secrets, name) = credentials(&world, &cluster).await?;
    let data = secrets.get(&name).await?.data.context("data")?;
    let text = |key: &str| String::from_utf8(data[key].0.clone());
    let (id, secret) = (text("aws_access_key_id")?, text("aws_secret_access_key")?);
    let role = format!("arn:aws:iam::{}:role/sleeper", cluster.info().account);
    world.ec2().set_role(&role, Some("pillow")).await?;
    let file = format!(
        "[default]\nrole_arn = {role}\nexternal_id = pillow\nsource_profile = base\n\
         [profile base]\naws_access_key_id = {id}\naws_secret_access_key = {secret}\n"
    );
    edit(&secrets, &name, &[("aws_config", Some(&file))]).await?;
    tokio::time::sleep(Duration::from_secs(16)).await; // as long as a Secret that worked is trusted
    cluster.sleep().await?;
    cluster.wait_for_power_state("Hibernating", SOON).await?;
    let calls = world.ec2().calls().await?;
    let stop = calls.iter().find(|call| call.action == "StopInstances" && call.account == cluster.info().account);
    assert_ne!(stop.context("a stop")?.access_key, id, "the role's own temporary key");
    cluster.remove().await
}

#[tokio::test]
async fn no_instances_is_an_error_and_not_sleep() -> Result<()> {
    let world = World::shared().await?;
    let patch = json!({"spec": {"powerState": "Hibernating", "platform": {"aws": {"region": "eu-west-1"}}}});
    let cluster = world.cluster("elsewhere", ClusterOptions { patch, ..ClusterOptions::of_size(1) }).await?;
    let tag = format!("nothing matches tag kubernetes.io/cluster/{}=owned in eu-west-1", cluster.info().infra_id);
    let found = says(&cluster, HIBERNATING, &tag).await?;
    assert_eq!(found.power_state(), "FailedToStop");
    cluster.remove().await
}

#[tokio::test]
async fn a_throttled_account_is_waited_for_and_others_do_not_notice() -> Result<()> {
    let world = World::shared().await?;
    let (slow, quick) = tokio::try_join!(
        running(&world, "throttled", ClusterOptions::of_size(1)),
        running(&world, "bystander", ClusterOptions::of_size(1))
    )?;
    let fault = Fault {
        access_key: Some(slow.info().access_key_id.clone()),
        ..Fault::error("DescribeInstances", "RequestLimitExceeded", 503)
    };
    let fault = world.ec2().inject(&fault).await?;
    tokio::try_join!(slow.sleep(), quick.sleep())?;
    quick.wait_for_power_state("Hibernating", SOON).await?;
    let found = says(&slow, PROGRESS, "RequestLimitExceeded").await?;
    assert_ne!(found.power_state(), "FailedToStop", "a busy cloud is no failure of the cluster");
    world.ec2().heal(Some(&fault.id)).await?;
    slow.wait_for_power_state("Hibernating", SOON).await?;
    slow.remove().await?;
    quick.remove().await
}

#[tokio::test]
async fn one_instance_that_does_not_stop_is_named_by_ec2_or_by_a_second_try_and_the_rest_sleeps() -> Result<()> {
    let world = World::shared().await?;
    let cluster = running(&world, "stubborn", ClusterOptions::of_size(4)).await?;
    let bad = cluster.instances().await?[2].id.clone();
    world.ec2().protect(&bad, true).await?;
    cluster.sleep().await?;
    let found = says(&cluster, HIBERNATING, &bad).await?;
    assert_eq!(found.power_state(), "FailedToStop");
    let begin = format!("Failed to stop machines: {bad}: OperationNotPermitted: ");
    assert!(message(&found, HIBERNATING).starts_with(&begin), "{found:?}");
    testbed::eventually(SOON, "three stopped", async || {
        testbed::ensure_that(cluster.states().await?, |states| states.get("stopped") == Some(&3))
    })
    .await?;
    world.ec2().protect(&bad, false).await?;
    cluster.wait_for_power_state("Hibernating", SOON).await?;

    cluster.wake().await?;
    cluster.wait_for_power_state("Running", SOON).await?;
    let fault = Fault {
        instance: Some(bad.clone()),
        message: Some("Some instance is not in a state from which it can be stopped.".into()),
        ..Fault::error("StopInstances", "IncorrectInstanceState", 400)
    };
    let fault = world.ec2().inject(&fault).await?;
    cluster.sleep().await?;
    says(&cluster, HIBERNATING, &format!("{bad}: IncorrectInstanceState")).await?;
    world.ec2().heal(Some(&fault.id)).await?;
    cluster.wait_for_power_state("Hibernating", SOON).await?;
    cluster.remove().await
}

/// Of a running cluster, and nobody looks for ten minutes: `resume` has the controller look now.
#[tokio::test]
async fn a_machine_that_stops_again_after_each_start_is_named_with_ec2s_reason_and_backed_off() -> Result<()> {
    let world = World::shared().await?;
    let cluster = running(&world, "keyless", ClusterOptions::of_size(3)).await?;
    let bad = cluster.instances().await?[1].id.clone();
    let why = "Client.InternalError: Client error on launch";
    world.ec2().stops_again(&bad, Some(why)).await?;
    tokio::time::sleep(Duration::from_secs(3)).await; // the controller rests
    world.ec2().set_state(&bad, "stopped").await?;
    let name = format!("cd/{}", cluster.name());
    let asked = world.plugin(&["resume", &name, "-n", cluster.namespace()]).await?.ok()?;
    assert!(asked.contains(" already running; asked for a check of its machines"), "{asked}");
    let words = format!("Failed to start machines: {bad}: StoppedAgain: {why}");
    cluster.wait_for(&words, SOON, |found| message(found, READY).starts_with(&words)).await?;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(cluster.get().await?.power_state(), "FailedToStartMachines");
    let calls = world.ec2().calls().await?;
    let starts = calls.iter().filter(|call| call.action == "StartInstances" && call.instances.contains(&bad)).count();
    assert!((3..=7).contains(&starts), "{starts} starts");
    world.ec2().stops_again(&bad, None).await?;
    cluster.wait_for_power_state("Running", SOON).await?;
    world.ec2().set_state(&bad, "stopped").await?;
    let resume = ["resume", &name, "-n", cluster.namespace(), "--wait", "--timeout", "2m"];
    let woken = world.plugin(&resume).await?.ok()?;
    assert!(woken.contains(" running after "), "{woken}");
    assert_eq!(cluster.states().await?.get("running"), Some(&3), "--wait has seen what the check found");
    cluster.remove().await
}

#[tokio::test]
async fn a_kubeconfig_that_would_run_code_is_refused_and_named() -> Result<()> {
    let world = World::shared().await?;
    let cluster = running(&world, "evil", ClusterOptions::of_size(1)).await?;
    let (secrets, _) = credentials(&world, &cluster).await?;
    let name = cluster.get().await?.spec.cluster_metadata.context("metadata")?.admin_kubeconfig_secret_ref.name;
    let good = String::from_utf8(secrets.get(&name).await?.data.context("data")?["kubeconfig"].0.clone())?;
    let evil = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: '{}'}}}}]\n\
         users: [{{name: u, user: {{exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never}}}}}}]\n",
        cluster.info().gate
    );
    cluster.sleep().await?;
    cluster.wait_for_power_state("Hibernating", SOON).await?;
    edit(&secrets, &name, &[("kubeconfig", Some(&evil))]).await?;
    cluster.wake().await?;
    let found = says(&cluster, PROGRESS, "kubeconfig is refused: it has exec").await?;
    assert_eq!(found.power_state(), "WaitingForNodes");
    edit(&secrets, &name, &[("kubeconfig", Some(&good))]).await?;
    cluster.wait_for_power_state("Running", SOON).await?;
    cluster.remove().await
}

/// Two clusters wake; one spoke has a fault until the other cluster is awake, and the status says which.
async fn holds_nobody_up(faulty: &str, fault: Effect, words: &str) -> Result<()> {
    let world = World::shared().await?;
    let neighbor = format!("{faulty}-neighbor");
    let (faulty, other) = tokio::try_join!(
        running(&world, faulty, ClusterOptions::of_size(1)),
        running(&world, &neighbor, ClusterOptions::of_size(1))
    )?;
    tokio::try_join!(faulty.sleep(), other.sleep())?;
    tokio::try_join!(
        faulty.wait_for_power_state("Hibernating", SOON),
        other.wait_for_power_state("Hibernating", SOON)
    )?;
    faulty.inject(&Rule::new(fault)).await?;
    tokio::try_join!(faulty.wake(), other.wake())?;
    other.wait_for_power_state("Running", SOON).await?;
    says(&faulty, PROGRESS, words).await?;
    world.heal(&faulty.info().infra_id, None).await?;
    faulty.wait_for_power_state("Running", SOON).await?;
    faulty.remove().await?;
    other.remove().await
}

#[tokio::test]
async fn a_spoke_that_never_answers_holds_nobody_up() -> Result<()> {
    holds_nobody_up("silent", Effect::Hang, "the cluster's API server").await
}

#[tokio::test]
async fn a_spoke_that_answers_with_two_million_objects_is_named_and_holds_nobody_up() -> Result<()> {
    let (begin, unit, end) = (r#"{"items":["#.into(), "{},".into(), "{}]}".into());
    holds_nobody_up("bomb", Effect::Body { begin, unit, times: 2_000_000, end }, "more than").await
}
