//! A rollout outlives its controller, a hub that refuses and drops requests, and the loss of its policy. In worlds of
//! their own, in each one after the other.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use shared::rollout::admission::POLICY;
use shared::rollout::status::RolloutPhase;
use testbed::proxy::faults::{Effect, Rule};
use testbed::{World, apply, ensure_that, eventually};

use crate::rollout_common::{Fleet, SOON, controller, restarted};

const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

#[tokio::test]
async fn killed_frozen_or_refused_midway_it_goes_on_where_it_was() -> Result<()> {
    let world = restarted().await?;
    world.start(&controller()).await?;
    let fleet = Fleet::of(&world, "phoenix", &NAMES).await?;
    killed_and_frozen(&world, &fleet).await.context("killed and frozen")?;
    a_hub_that_denies_and_refuses(&world, &fleet).await.context("denied and refused")
}

async fn killed_and_frozen(world: &World, fleet: &Fleet<'_>) -> Result<()> {
    for (action, call) in [("Hibernate", "StopInstances"), ("Resume", "StartInstances")] {
        world.ec2().reset_calls().await?;
        let rollout = fleet.rollout(action, json!({ "maxConcurrency": 2 })).await?;
        for round in 0..5_u32 {
            tokio::time::sleep(Duration::from_millis(u64::from(round * 397 % 1_100) + 100)).await;
            if round == 3 {
                // A leader that wakes after its lease has run out must not go on with what it had planned.
                world.signal("controller", "freeze").await?;
                tokio::time::sleep(Duration::from_secs(4)).await;
                world.signal("controller", "thaw").await?;
            } else {
                world.signal("controller", "kill").await?;
                world.start(&controller()).await?;
            }
        }
        let status = rollout.until_phase(RolloutPhase::Succeeded).await?;
        assert_eq!((status.total, status.counts), (Some(8), BTreeMap::from([("Succeeded".to_owned(), 8)])));
        fleet.each_was_started_once(call).await?;
    }
    Ok(())
}

/// It is delayed, and nothing is lost. A 409 while nobody else writes is a denial: its target is deferred for a while.
async fn a_hub_that_denies_and_refuses(world: &World, fleet: &Fleet<'_>) -> Result<()> {
    world.ec2().reset_calls().await?;
    let status = |code| Effect::Status { code, retry_after: None, message: None };
    for (path, code, count) in [
        ("/apis/hive.openshift.io/v1/namespaces/", 409, 3),
        ("/apis/hive.openshift.io/v1/namespaces/", 429, 4),
        ("/apis/hive.openshift.io/v1/namespaces/", 500, 3),
        ("/apis/hibernate.sh/", 409, 2),
        ("/apis/hibernate.sh/", 503, 3),
    ] {
        let (method, path) = (Some("PATCH".to_owned()), Some(path.to_owned()));
        let rule = Rule { method, path, skip: 2, count: Some(count), effect: status(code), ..Rule::default() };
        world.inject("hub", &rule).await?;
    }
    let sleep = fleet.rollout("Hibernate", json!({ "maxConcurrency": 3 })).await?;
    // Every watch begins anew with a complete list.
    let expired = Rule { query: Some("watch=true".to_owned()), count: Some(6), effect: status(410), ..Rule::default() };
    world.inject("hub", &expired).await?;
    sleep.until_phase(RolloutPhase::Succeeded).await?;
    fleet.each_was_started_once("StopInstances").await
}

/// Last, because its machines are slow.
async fn a_deadline_stops_while_no_controller_leads(world: &World) -> Result<()> {
    let fleet = Fleet::of(world, "unled", &["a"]).await?;
    world.change_timings(&json!({ "ec2Stop": "60s" })).await?;
    let sleep = fleet.rollout("Hibernate", json!({ "deadline": "55s" })).await?;
    sleep.until_target(fleet.get("a"), "Progressing").await?;
    // Else its machine stops a minute after the next controller has started.
    let id = fleet.get("a").instances().await?[0].id.clone();
    eventually(Duration::from_mins(1), "the stop", async || {
        ensure_that(world.ec2().calls().await?, |calls| {
            calls.iter().any(|one| one.action == "StopInstances" && one.moved.contains(&id))
        })
    })
    .await?;
    world.signal("controller", "kill").await?;
    tokio::time::sleep(Duration::from_secs(55)).await;
    world.start(&controller()).await?;
    let status = sleep.until_phase(RolloutPhase::Succeeded).await?;
    ensure!(!status.unobserved.is_empty(), "{status:#?}");
    // The same with a leader all the time.
    let slow = fleet.rollout("Resume", json!({ "deadline": "5s", "maxFailures": 0 }));
    world.change_timings(&json!({ "ec2Start": "20s" })).await?;
    let wake = slow.await?;
    let reason = wake.until_target(fleet.get("a"), "TimeOut").await?;
    ensure!(reason.starts_with("not Running within 5s"), "{reason}");
    Ok(())
}

async fn nothing_starts_while_the_policy_does_not_deny(world: &World) -> Result<()> {
    let fleet = Fleet::of(world, "guarded", &["a"]).await?;
    let hub = world.hub().await?;
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(hub.clone());
    let mut binding = bindings.get(POLICY).await?;
    let audit = json!({ "spec": { "validationActions": ["Audit"] } });
    bindings.patch(POLICY, &PatchParams::default(), &Patch::Merge(&audit)).await?;
    let sleep = fleet.rollout("Hibernate", json!({})).await?;
    let status = sleep.until_phase(RolloutPhase::Waiting).await?;
    ensure!(status.message.as_deref().unwrap_or_default().contains(POLICY), "{:?}", status.message);
    bindings.delete(POLICY, &DeleteParams::default()).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(fleet.mark("a").await?, None);
    // A binding that denies does not make up for a policy that lets everything pass.
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(hub.clone());
    let ours = policies.get(POLICY).await?.spec.context("spec")?;
    let change = async |spec: Value| {
        policies.patch(POLICY, &PatchParams::default(), &Patch::Merge(&json!({ "spec": spec }))).await
    };
    change(json!({ "failurePolicy": "Ignore", "validations": [{ "expression": "true" }] })).await?;
    (binding.metadata.resource_version, binding.metadata.uid, binding.metadata.managed_fields) = (None, None, None);
    let mut binding = json!(binding);
    binding["apiVersion"] = "admissionregistration.k8s.io/v1".into();
    binding["kind"] = "ValidatingAdmissionPolicyBinding".into();
    apply::all(&hub, &[binding]).await?;
    let says = async |part: &str| {
        eventually(SOON, part, async || {
            ensure_that(sleep.get().await?.status.and_then(|status| status.message).unwrap_or_default(), |message| {
                message.contains(part)
            })
        })
        .await
    };
    says("spec.failurePolicy: found Ignore, must be Fail").await?;
    change(json!({ "failurePolicy": "Fail" })).await?;
    says("spec.validations: found 1, must be ").await?;
    assert_eq!(fleet.mark("a").await?, None);
    change(json!({ "validations": ours.validations })).await?;
    eventually(SOON, "the start", async || ensure_that(fleet.mark("a").await?, Option::is_some)).await?;
    sleep.until_phase(RolloutPhase::Succeeded).await.map(drop)
}

#[tokio::test]
async fn turns_a_policy_and_a_leader_are_waited_for() -> Result<()> {
    let world = restarted().await?;
    of_one_requester_only_so_many_rollouts_are_worked_on(&world).await.context("turns")?;
    world.signal("controller", "kill").await?;
    world.start(&controller()).await?;
    nothing_starts_while_the_policy_does_not_deny(&world).await.context("a policy that does not deny")?;
    a_deadline_stops_while_no_controller_leads(&world).await.context("time without a leader")
}

async fn of_one_requester_only_so_many_rollouts_are_worked_on(world: &World) -> Result<()> {
    let mut start = controller();
    start.args.extend(["--max-rollouts-per-requester", "1"].map(str::to_owned));
    world.start(&start).await?;
    let fleet = Fleet::of(world, "turns", &["a"]).await?;
    let first = fleet.rollout("Hibernate", json!({ "paused": true })).await?;
    first.until_phase(RolloutPhase::Planned).await?;
    // Of rollouts of one second the first by name is first.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let targets = json!({ "selector": null, "names": [fleet.reference("a")] });
    let second = fleet.rollout("Hibernate", json!({ "targets": targets })).await?;
    let status = second.until_phase(RolloutPhase::Waiting).await?;
    ensure!(status.conditions.iter().all(|one| one.reason == "TooManyRollouts"), "{:#?}", status.conditions);
    ensure!(fleet.mark("a").await?.is_none(), "it waits");
    first.set(json!({ "abort": true })).await?;
    let status = second.until_phase(RolloutPhase::Succeeded).await?;
    assert_eq!((status.total, status.counts), (Some(1), BTreeMap::from([("Succeeded".to_owned(), 1)])));
    Ok(())
}
