//! Rollouts over virtual machines of `KubeVirt` and shoots of Gardener, under the rights and policies of their components. Neither
//! publishes a definition: these have the fields that the rows use, by hand, and the test plays their controllers and what
//! Gardener's admission adds to a wake.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use shared::annotation::keys;
use shared::annotation::mark::{Mark, Outcome};
use shared::rollout::api::PowerRollout;
use testbed::check::webhook_only;
use testbed::supervisor::programs::Start;
use testbed::{Program, World, apply, eventually};

use crate::hive_common::SOON;
use crate::plugin_common::{Shell, in_namespace};

/// A definition of these fields.
fn definition(group: &str, version: &str, kind: &str, plural: &str, spec: &Value) -> Value {
    let schema = json!({ "type": "object", "properties": {
        "spec": spec, "status": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
    } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group, "scope": "Namespaced", "names": { "plural": plural, "kind": kind },
            "versions": [{
                "name": version, "served": true, "storage": true, "schema": { "openAPIV3Schema": schema },
                "subresources": { "status": {} },
            }],
        },
    })
}

/// Adds to the write that ends the hibernation of a shoot what Gardener's own admission plugin adds.
fn tasks_of_a_wake() -> [Value; 2] {
    let hibernates = |object: &str| format!("{object}.spec.?hibernation.?enabled.orValue(false)");
    let added =
        "Object{metadata: Object.metadata{annotations: {'shoot.gardener.cloud/tasks': 'deployInfrastructure'}}}";
    let (name, version) = ("tasks-of-a-wake", "admissionregistration.k8s.io/v1");
    let policy = json!({
        "apiVersion": version, "kind": "MutatingAdmissionPolicy", "metadata": { "name": name },
        "spec": {
            "failurePolicy": "Fail", "reinvocationPolicy": "Never",
            "matchConstraints": { "resourceRules": [{
                "apiGroups": ["core.gardener.cloud"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["shoots"],
            }] },
            "matchConditions": [{
                "name": "wake", "expression": format!("{} && !{}", hibernates("oldObject"), hibernates("object")),
            }],
            "mutations": [{ "patchType": "ApplyConfiguration", "applyConfiguration": { "expression": added } }],
        },
    });
    let binding = json!({
        "apiVersion": version, "kind": "MutatingAdmissionPolicyBinding", "metadata": { "name": name },
        "spec": { "policyName": name },
    });
    [policy, binding]
}

fn api(shell: &Shell, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(shell.client.clone(), &shell.ns, &resource)
}

/// What `KubeVirt` reports.
fn of_machine(machine: &DynamicObject) -> Value {
    let strategy = &machine.data["spec"]["runStrategy"];
    let state = if *strategy == "Halted" { "Stopped" } else { "Running" };
    json!({ "status": { "printableStatus": state, "runStrategy": strategy } })
}

/// What Gardener reports.
fn of_shoot(shoot: &DynamicObject) -> Value {
    let conditions = ["APIServerAvailable", "EveryNodeReady", "SystemComponentsHealthy"]
        .map(|kind| json!({ "type": kind, "status": "True" }));
    json!({ "status": {
        "observedGeneration": shoot.metadata.generation, "conditions": conditions,
        "hibernated": shoot.data["spec"]["hibernation"]["enabled"] == true,
        "lastOperation": { "state": "Succeeded", "description": "" },
    } })
}

async fn play(objects: &Api<DynamicObject>, status: fn(&DynamicObject) -> Value) -> Result<()> {
    loop {
        for found in objects.list(&ListParams::default()).await? {
            let patch = Patch::Merge(status(&found));
            objects.patch_status(&found.name_any(), &PatchParams::default(), &patch).await?;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Runs a line beside both controllers.
async fn beside(shell: &Shell, machines: &Api<DynamicObject>, shoots: &Api<DynamicObject>, line: &str) -> Result<()> {
    tokio::select! {
        ended = play(machines, of_machine) => ended,
        ended = play(shoots, of_shoot) => ended,
        ended = shell.ok(line) => ended.map(drop),
    }
}

/// While a rollout waits for the first machine, the owner of the second one sets what the rollout would set.
async fn leaves_what_its_owner_has_set(shell: &Shell, machines: &Api<DynamicObject>) -> Result<()> {
    let created = shell.ok("vm --all --max-concurrency 1 --yes -o name").await?;
    let name = created.trim().rsplit('/').next().context("a name")?.to_owned();
    let rollouts: Api<PowerRollout> = Api::all(shell.client.clone());
    let status = async || anyhow::Ok(rollouts.get(&name).await?.status.unwrap_or_default());
    eventually(SOON, "the first machine to be started", async || {
        ensure!(machines.get("one").await?.data["spec"]["runStrategy"] == "Halted");
        Ok(())
    })
    .await?;
    // Field managers have whole seconds.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let own = json!({ "spec": { "runStrategy": "Always" } });
    machines.patch("two", &PatchParams::default(), &Patch::Merge(&own)).await?;
    let left = eventually(SOON, "the other machine to be left", async || {
        let status = status().await?;
        let two = status.targets.iter().find(|target| target.name == "two").context("two")?;
        ensure!(two.reason.contains("has changed it since"), "{two:?}");
        Ok(())
    });
    tokio::select! {
        ended = play(machines, of_machine) => ended?,
        ended = left => ended?,
    }
    let found = machines.get("two").await?;
    ensure!(found.data["spec"]["runStrategy"] == "Always", "{found:?}");
    shell.ok(&format!("rollout abort {name}")).await.map(drop)
}

async fn ended(objects: &Api<DynamicObject>) -> Result<Vec<DynamicObject>> {
    let found = objects.list(&ListParams::default()).await?.items;
    for one in &found {
        let mark = one.annotations().get(keys::ROLLOUT).and_then(|text| Mark::parse(text));
        let end = mark.and_then(|mark| mark.ended).context("a record")?;
        ensure!(end.result == Outcome::Succeeded, "{one:?}");
    }
    Ok(found)
}

#[tokio::test]
async fn rollouts_put_virtual_machines_and_shoots_to_sleep_and_wake_them_as_they_were() -> Result<()> {
    in_namespace(World::up(webhook_only()).await?, async |shell| {
        let text = json!({ "type": "string" });
        let flag = json!({ "type": "boolean" });
        let machine = json!({ "type": "object", "properties": { "runStrategy": text } });
        let hibernation = json!({ "type": "object", "properties": { "enabled": flag } });
        let shoot = json!({ "type": "object", "properties": { "hibernation": hibernation } });
        let object = |version: &str, kind: &str, name: &str, spec: Value| json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name, "namespace": shell.ns }, "spec": spec });
        let (kubevirt, gardener) = ("kubevirt.io/v1", "core.gardener.cloud/v1beta1");
        apply::all(&shell.client, &[
            definition("kubevirt.io", "v1", "VirtualMachine", "virtualmachines", &machine),
            definition("core.gardener.cloud", "v1beta1", "Shoot", "shoots", &shoot),
        ]).await?;
        let objects = [
            object(kubevirt, "VirtualMachine", "one", json!({ "runStrategy": "Always" })),
            object(kubevirt, "VirtualMachine", "two", json!({ "runStrategy": "RerunOnFailure" })),
            object(gardener, "Shoot", "blue", json!({ "hibernation": { "enabled": false } })),
        ];
        eventually(SOON, "the definitions are served", async || apply::all(&shell.client, &objects).await).await?;
        apply::all(&shell.client, &[manifests::shoots(), manifests::virtual_machines()].concat()).await?;
        apply::all(&shell.client, &tasks_of_a_wake()).await?;
        let kinds = ["--target-kind=virtualmachines.kubevirt.io", "--target-kind=shoots.core.gardener.cloud"];
        let start = Start { args: kinds.map(str::to_owned).into(), ..Start::new(Program::Controller) };
        shell.world.start(&start).await?;
        let (machines, shoots) = (
            api(&shell, "kubevirt.io", "v1", "VirtualMachine"),
            api(&shell, "core.gardener.cloud", "v1beta1", "Shoot"),
        );
        eventually(SOON, "controller that leads", async || {
            shell.ok("vm --all --max-concurrency 2 --yes --dry-run=server").await.map(drop)
        })
        .await?;
        for type_ in ["vm", "shoots.core.gardener.cloud"] {
            let line = format!("{type_} --all --max-concurrency 2 --yes --wait --timeout 3m");
            beside(&shell, &machines, &shoots, &line).await?;
        }
        for found in ended(&machines).await? {
            ensure!(found.data["spec"]["runStrategy"] == "Halted", "{found:?}");
            ensure!(found.annotations().contains_key(keys::BEFORE), "{found:?}");
        }
        ensure!(ended(&shoots).await?.iter().all(|found| found.data["spec"]["hibernation"]["enabled"] == true));
        for objects in [&machines, &shoots] {
            let forged = json!({ "metadata": { "annotations": { keys::ROLLOUT: "{}" } } });
            for one in objects.list(&ListParams::default()).await? {
                let refused = objects.patch(&one.name_any(), &PatchParams::default(), &Patch::Merge(&forged)).await;
                ensure!(refused.is_err_and(|error| error.to_string().contains("by the controller alone")), "{one:?}");
            }
            // Whoever replaces an object as a whole drops the record.
            let dropped = Patch::Merge(json!({ "metadata": { "annotations": { keys::ROLLOUT: null } } }));
            let all = ListParams::default();
            let first = objects.list(&all).await?.items.into_iter().next().context("an object")?.name_any();
            objects.patch(&first, &PatchParams::default(), &dropped).await?;
        }
        for type_ in ["vm", "shoots.core.gardener.cloud"] {
            let line = format!("resume {type_} --all --max-concurrency 2 --yes --wait --timeout 3m");
            beside(&shell, &machines, &shoots, &line).await?;
        }
        let woken: Vec<Value> = ended(&machines).await?.iter().map(|found| found.data["spec"]["runStrategy"].clone()).collect();
        ensure!(woken == ["Always", "RerunOnFailure"], "{woken:?}");
        let woken = ended(&shoots).await?;
        ensure!(woken.iter().all(|found| found.data["spec"]["hibernation"]["enabled"] == false));
        ensure!(woken.iter().all(|found| found.annotations().contains_key("shoot.gardener.cloud/tasks")), "{woken:?}");
        leaves_what_its_owner_has_set(&shell, &machines).await
    })
    .await
}
