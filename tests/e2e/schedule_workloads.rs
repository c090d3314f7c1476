//! A schedule that puts the workloads of its namespace to sleep and wakes them: on the real API server, under the rights
//! and the policy of the component `workload-schedules`.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::{Timestamp, ToSpan as _};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use shared::annotation::{format, keys};
use shared::schedule::api::{PowerSchedule, ScheduleStatus};
use testbed::{Options, World, apply, ensure_that, eventually, with_temp_ns};

use crate::controller_confined::{CONTROLLER, accounts, is_refused, write};
use crate::plugin_common::{pods, stateful, template};

/// Rights are looked up again after some seconds, and what failed is tried again ever later.
const SOON: Duration = Duration::from_mins(2);
const NAME: &str = "night";

fn object(ns: &str, kind: (&str, &str), name: &str, annotations: &Value, spec: &Value) -> Value {
    let metadata = json!({ "name": name, "namespace": ns, "annotations": annotations });
    json!({ "apiVersion": kind.0, "kind": kind.1, "metadata": metadata, "spec": spec })
}

async fn create(client: &Client, ns: &str) -> Result<()> {
    let (deployment, set, cron_job) = (("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"), ("batch/v1", "CronJob"));
    let mut job = template();
    job["spec"]["restartPolicy"] = json!("Never");
    let yearly = json!({ "schedule": "0 0 1 1 *", "jobTemplate": { "spec": { "template": job } } });
    let none = json!({});
    let objects = [
        object(ns, deployment, "web", &none, &pods(3)),
        object(ns, deployment, "kept", &json!({ keys::PROTECTED: "true" }), &pods(2)),
        object(ns, deployment, "stubborn", &none, &pods(4)),
        object(ns, set, "db", &none, &stateful(2)),
        object(ns, cron_job, "report", &none, &yearly),
    ];
    apply::all(client, &objects).await
}

/// A policy that lets nobody change the Deployment `stubborn`, and its binding.
fn obstacle(ns: &str) -> [Value; 2] {
    let group = "admissionregistration.k8s.io/v1";
    let metadata = json!({ "name": format!("test-{ns}") });
    let rule =
        json!({ "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["deployments"] });
    let here = json!({ "matchLabels": { "kubernetes.io/metadata.name": ns } });
    let validation = json!({ "expression": "object.metadata.name != 'stubborn'", "message": "stubborn stays" });
    let spec = json!({
        "failurePolicy": "Fail", "validations": [validation],
        "matchConstraints": { "resourceRules": [rule], "namespaceSelector": here },
    });
    let binding = json!({ "policyName": metadata["name"], "validationActions": ["Deny"] });
    [
        json!({ "apiVersion": group, "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": spec }),
        json!({ "apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata, "spec": binding }),
    ]
}

/// A line for each workload: replicas or `spec.suspend`.
async fn state(world: &World, ns: &str) -> Result<Vec<String>> {
    let path = r#"jsonpath={range .items[*]}{.metadata.name} {.spec.replicas}{.spec.suspend}{"\n"}{end}"#;
    let ran = world.kubectl(&["get", "deploy,sts,cj", "-n", ns, "-o", path]).await?;
    Ok(ran.ok()?.lines().map(str::to_owned).collect())
}

/// Fields that ask for a state from yesterday to tomorrow, and that it is applied now.
pub(crate) fn asks_for(power: &str) -> Result<Value> {
    let now = Timestamp::now();
    let day = |hours: i64| -> Result<String> { Ok(now.checked_add(hours.hours())?.strftime("%Y-%m-%d").to_string()) };
    let exceptions = json!([{ "from": day(-24)?, "to": day(48)?, "power": power, "reason": "test" }]);
    Ok(json!({ "exceptions": exceptions, "applyAt": format::seconds(now) }))
}

async fn status(api: &Api<PowerSchedule>) -> Result<ScheduleStatus> {
    Ok(api.get(NAME).await?.status.unwrap_or_default())
}

/// Waits until the last edge has this outcome, and nothing is pending or something is.
async fn outcome(api: &Api<PowerSchedule>, begins: &str, pending: Option<u32>) -> Result<ScheduleStatus> {
    eventually(SOON, "outcome", async || {
        let status = status(api).await?;
        let edge = status.last_edge.clone().context("an edge")?;
        ensure!(edge.outcome.as_deref().is_some_and(|text| text.starts_with(begins)), "{edge:?}");
        ensure!(edge.pending == pending && edge.rollout.is_none(), "{edge:?}");
        Ok(status)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_sleeps_and_wakes_by_its_schedule_under_the_rights_of_the_component() -> Result<()> {
    let world = World::up(Options::hub_only()).await?;
    with_temp_ns(&world, async |client, ns| {
        create(&client, &ns).await?;
        apply::all(&client, &obstacle(&ns)).await?;
        let clients = accounts(&world, &["alice", CONTROLLER]).await?;
        let path = |name: &str| format!("/apis/apps/v1/namespaces/{ns}/deployments/{name}");
        let scaled = json!({ "spec": { "replicas": 5 } });
        eventually(SOON, "the obstacle", async || {
            ensure_that(write(&clients["alice"], "PATCH", &path("stubborn"), &scaled).await, |answer| {
                is_refused(answer, "stubborn stays")
            })
        })
        .await?;

        // Without the component.
        let mut spec = json!({
            "timeZone": "UTC", "targets": { "kind": "Workloads", "all": true },
            "awake": [{ "days": ["Mon-Fri"], "from": "07:30", "to": "18:00" }],
        });
        json_patch::merge(&mut spec, &asks_for("Sleep")?);
        let schedules: Api<PowerSchedule> = Api::namespaced(client.clone(), &ns);
        let schedule = serde_json::from_value(json!({ "metadata": { "name": NAME, "namespace": ns }, "spec": spec }))?;
        schedules.create(&PostParams::default(), &schedule).await?;
        eventually(SOON, "no rights", async || {
            let status = status(&schedules).await?;
            let ready = status.conditions.iter().find(|one| one.type_ == "Ready").context("Ready")?;
            ensure!(ready.status == "False" && ready.reason == "NoRights", "{ready:?}");
            ensure!(ready.message.contains("components/workload-schedules"), "{ready:?}");
            ensure!(status.last_edge.is_none(), "{status:?}");
            Ok(())
        })
        .await?;
        let awake = ["kept 2", "stubborn 4", "web 3", "db 2", "report false"];
        assert_eq!(state(&world, &ns).await?, awake);

        // With it: all but what is protected and what is refused.
        apply::all(&client, &manifests::workload_schedules()).await?;
        let status = outcome(&schedules, "3 of 5 done; failed: ", Some(1)).await?;
        let edge = status.last_edge.context("an edge")?;
        let text = edge.outcome.unwrap_or_default();
        ensure!(text.contains(&format!("failed: {ns}/deployment.apps/stubborn: ")), "{text}");
        ensure!(text.contains(&format!("left: {ns}/deployment.apps/kept: it is protected")), "{text}");
        assert_eq!(status.targets, Some(5));
        assert_eq!(state(&world, &ns).await?, ["kept 2", "stubborn 4", "web 0", "db 0", "report true"]);
        // What a person wakes meanwhile stays awake, while the rest is tried again.
        world.kubectl(&["scale", "deployment/web", "--replicas=1", "-n", &ns]).await?.ok()?;
        for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
            world.kubectl(&["delete", kind, &format!("test-{ns}")]).await?.ok()?;
        }
        outcome(&schedules, "3 of 5 done; left: ", None).await?;
        assert_eq!(state(&world, &ns).await?, ["kept 2", "stubborn 0", "web 1", "db 0", "report true"]);
        world.kubectl(&["scale", "deployment/web", "--replicas=0", "-n", &ns]).await?.ok()?;

        // The way back. The record of `web` is still that of its sleep.
        let woken = json!({ "spec": asks_for("Awake")? });
        schedules.patch(NAME, &PatchParams::default(), &Patch::Merge(woken)).await?;
        outcome(&schedules, "5 of 5 done", None).await?;
        assert_eq!(state(&world, &ns).await?, awake);
        let web = world.kubectl(&["get", "deployment/web", "-n", &ns, "-o", "json", "--show-managed-fields"]).await?;
        let web = web.json()?;
        let managers = web["metadata"]["managedFields"].as_array().context("managers")?;
        let owns = |entry: &&Value| entry["manager"] == keys::CONTROLLER && !entry["fieldsV1"]["f:spec"].is_null();
        ensure!(!managers.iter().any(|entry| owns(&entry)), "its replicas are whoever deploys it: {managers:?}");

        // RBAC would let it do more than the policy does.
        let refused = "hibernate-controller may change ";
        write(&clients[CONTROLLER], "PATCH", &path("web"), &scaled).await.context("replicas")?;
        let paused = json!({ "spec": { "paused": true } });
        let answer = write(&clients[CONTROLLER], "PATCH", &path("web"), &paused).await;
        ensure!(is_refused(&answer, refused), "{answer:?}");
        let answer = write(&clients[CONTROLLER], "DELETE", &path("web"), &Value::Null).await;
        ensure!(is_refused(&answer, refused), "{answer:?}");
        write(&clients["alice"], "PATCH", &path("web"), &paused).await.context("alice")?;
        schedules.delete(NAME, &DeleteParams::default()).await?;
        Ok(())
    })
    .await
}
