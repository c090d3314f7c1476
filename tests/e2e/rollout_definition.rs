//! The definition of `PowerRollout` on the API server: what it takes, what it refuses and with which words.

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use shared::rollout::api::PowerRollout;
use testbed::{World, world};

use crate::match_writes::merge;

fn rollout(name: &str, spec: &Value) -> Result<PowerRollout> {
    let mut object = json!({
        "apiVersion": "hibernate.sh/v1alpha1", "kind": "PowerRollout", "metadata": { "name": name },
        "spec": {
            "action": "Hibernate", "maxTargets": 20, "notAfter": "2030-01-01T02:00:00Z",
            "targets": { "selector": { "matchLabels": { "env": "dev" } } },
        },
    });
    merge(&mut object, &json!({ "spec": spec }));
    // As a manifest, not by way of our own types: they cannot hold what is to be refused.
    Ok(serde_json::from_value(object)?)
}

/// What is refused at creation, and a part of the message.
fn refused() -> Vec<(Value, &'static str)> {
    let group = |fields: Value| {
        let mut group = json!({ "name": "canaries" });
        merge(&mut group, &fields);
        json!({ "groups": [group] })
    };
    let expression = |operator: &str, values: &Value| {
        let expression = json!({ "key": "env", "operator": operator, "values": values });
        json!({ "targets": { "selector": { "matchLabels": null, "matchExpressions": [expression] } } })
    };
    let named = json!([{ "namespace": "a", "name": "b" }]);
    vec![
        (json!({ "action": "Stop" }), "Unsupported value: \"Stop\""),
        (json!({ "action": "Restore" }), "restoreOf names the rollout to undo"),
        (json!({ "restoreOf": { "name": "a", "uid": "u" } }), "restoreOf names the rollout to undo"),
        (json!({ "notAfter": null }), "spec.notAfter: Required value"),
        (json!({ "notBefore": "2030-01-01T02:00:00Z" }), "notAfter must be later than notBefore"),
        (json!({ "maxTargets": null }), "spec.maxTargets: Required value"),
        (json!({ "maxTargets": 0 }), "should be greater than or equal to 1"),
        (json!({ "targets": { "selector": { "matchLabels": null } } }), "spec.targets.selector"),
        (json!({ "targets": { "selector": { "matchLabels": { "env": null } } } }), "spec.targets.selector.matchLabels"),
        (json!({ "targets": { "selector": { "matchExpressions": [] } } }), "spec.targets.selector.matchExpressions"),
        (expression("NotIn", &json!([])), "In and NotIn need values"),
        (expression("In", &json!(null)), "In and NotIn need values"),
        (expression("Exists", &json!(["dev"])), "In and NotIn need values"),
        (json!({ "targets": { "selector": null } }), "set exactly one: names, selectors, or all: true"),
        (json!({ "targets": { "all": true } }), "set exactly one: names, selectors, or all: true"),
        (json!({ "targets": { "names": named } }), "set exactly one: names, selectors, or all: true"),
        (json!({ "targets": { "kind": "Node" } }), "Unsupported value: \"Node\""),
        (json!({ "maxConcurrency": 0 }), "should be greater than or equal to 1"),
        (json!({ "maxConcurrency": "0%" }), "spec.maxConcurrency"),
        (json!({ "maxConcurrency": "101%" }), "spec.maxConcurrency"),
        (json!({ "maxFailures": -1 }), "should be greater than or equal to 0"),
        (json!({ "maxFailures": "5" }), "spec.maxFailures"),
        (json!({ "startsPerMinute": 0 }), "should be greater than or equal to 1"),
        (json!({ "deadline": "20 minutes" }), "spec.deadline"),
        (json!({ "deadline": "99999999999999999999h" }), "spec.deadline"),
        (json!({ "deadline": "0" }), "deadline must be at least 1s"),
        (json!({ "deadline": "999ms" }), "deadline must be at least 1s"),
        (json!({ "notAfter": "9999-12-31T23:59:59Z" }), "must be before the year 9999"),
        (json!({ "notBefore": "9999-12-31T23:59:59Z", "notAfter": "9999-12-31T23:59:59Z" }), "before the year 9999"),
        (
            json!({ "notBefore": "2030-01-01T01:00:00Z", "wakeAt": "2030-01-01T01:00:00Z" }),
            "wakeAt and holdAwakeUntil must be later than notBefore",
        ),
        (
            json!({ "notBefore": "2030-01-01T01:00:00Z", "holdAwakeUntil": "2030-01-01T00:00:00Z" }),
            "wakeAt and holdAwakeUntil must be later than notBefore",
        ),
        (json!({ "wakeAt": "9999-12-31T23:59:59Z" }), "must be before the year 9999"),
        (json!({ "holdAwakeUntil": "9999-12-31T23:59:59Z" }), "must be before the year 9999"),
        (json!({ "maxFailures": 21 }), "maxFailures must not be more than maxTargets"),
        (json!({ "maxConcurrency": 4_294_967_296_u64 }), "spec.maxConcurrency"),
        (json!({ "maxFailures": 9_999_999_999_u64 }), "spec.maxFailures"),
        (json!({ "acceptFailures": 5_000_000_000_u64 }), "spec.acceptFailures"),
        (json!({ "retryFailed": 4_294_967_296_u64 }), "spec.retryFailed"),
        (group(json!({})), "set exactly one: names or selector"),
        (
            group(json!({ "names": named, "selector": { "matchLabels": { "a": "b" } } })),
            "set exactly one: names or selector",
        ),
        (group(json!({ "names": named, "maxFailures": 21 })), "maxFailures must not be more than maxTargets"),
        (group(json!({ "names": [] })), "spec.groups[0].names"),
        (group(json!({ "names": named, "name": "Canaries" })), "spec.groups[0].name"),
    ]
}

/// What an update may not do.
fn frozen() -> Vec<(Value, &'static str)> {
    vec![
        (json!({ "action": "Resume" }), "action is immutable"),
        (json!({ "targets": { "selector": { "matchLabels": { "env": "prod" } } } }), "targets are immutable"),
        (json!({ "retryFailed": 1 }), "they only increase"),
        (json!({ "acceptFailures": 0 }), "they only increase"),
        (json!({ "abort": false }), "an aborted rollout stays aborted"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_takes_a_rollout_and_refuses_what_cannot_work() -> Result<()> {
    let world = World::shared().await?;
    let hub = world.hub().await?;
    let kind = kube::api::ApiResource::erase::<PowerRollout>(&());
    let untyped: Api<kube::api::DynamicObject> = Api::all_with(hub.clone(), &kind);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    for (spec, says) in refused() {
        let mut object = json!(rollout("refused", &json!({}))?);
        merge(&mut object, &json!({ "spec": spec }));
        match untyped.create(&dry, &serde_json::from_value(object)?).await {
            Ok(_) => anyhow::bail!("taken: {spec}"),
            Err(error) => ensure!(error.to_string().contains(says), "{spec}: {error}"),
        }
    }
    let spec = json!({
        "maxConcurrency": "10%", "maxFailures": 3, "deadline": "1h30m", "minSuccessTime": "0", "retryFailed": 2, "acceptFailures": 1,
        "abort": true, "groups": [{ "name": "canaries", "names": [{ "namespace": "a", "name": "b" }], "maxFailures": "0%", "pauseAfter": true }],
    });
    let rollouts: Api<PowerRollout> = Api::all(hub);
    let name = format!("night-{:08x}", rand::random::<u32>());
    let created = rollouts.create(&PostParams::default(), &rollout(&name, &spec)?).await?;
    let read = rollouts.get(&name).await.context("read it back")?;
    ensure!(created.spec == read.spec && read.spec == rollout(&name, &spec)?.spec, "{:#?}", read.spec);
    for (change, says) in frozen() {
        let patch = Patch::Merge(json!({ "spec": change }));
        match untyped.patch(&name, &PatchParams::default(), &patch).await {
            Ok(_) => anyhow::bail!("taken: {change}"),
            Err(error) => ensure!(error.to_string().contains(says), "{change}: {error}"),
        }
    }
    for change in [json!({ "paused": true, "retryFailed": 3 }), json!({ "notAfter": "2030-01-01T03:00:00Z" })] {
        untyped.patch(&name, &PatchParams::default(), &Patch::Merge(json!({ "spec": change }))).await?;
    }
    rollouts.delete(&name, &DeleteParams::default()).await?;
    Ok(())
}

#[tokio::test]
async fn the_examples_of_the_documentation_apply() -> Result<()> {
    let world = World::shared().await?;
    world::copy::namespace(&world.hub().await?, "demo").await?;
    for examples in ["rollouts", "schedules"] {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples").join(examples);
        let files: Vec<_> = std::fs::read_dir(&folder)?.collect::<std::io::Result<_>>()?;
        ensure!(files.len() >= 3, "{files:?}");
        for file in files {
            let path = file.path();
            let path = path.to_str().context("a path in UTF-8")?;
            let ran = world.kubectl(&["create", "--dry-run=server", "-f", path]).await?;
            let detail = ran.ok().context(path.to_owned())?;
            let is_created = |line: &str| line.ends_with("created (server dry run)");
            ensure!(!detail.is_empty() && detail.lines().all(is_created), "{path}: {detail}");
        }
    }
    Ok(())
}
