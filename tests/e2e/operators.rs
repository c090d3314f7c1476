//! Kinds that operators run, on their own definitions and a real API server, where those are at hand: what a sleep writes and a
//! wake brings back. No operator runs.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use shared::annotation::keys;
use testbed::{Options, World, apply, ensure_that, eventually, with_temp_ns};

use crate::kkp_common::{SOON, upstream_folder};

/// The definition of each kind, and the smallest object that it takes.
fn samples() -> Vec<(&'static str, Value)> {
    let volume = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
    let pod = json!({ "spec": { "containers": [{ "name": "a", "image": "b" }] } });
    vec![
        ("clusters.postgresql.cnpg.io", json!({ "instances": 3, "storage": { "size": "1Gi" } })),
        (
            "poolers.postgresql.cnpg.io",
            json!({ "cluster": { "name": "a" }, "instances": 2, "pgbouncer": { "poolMode": "session" } }),
        ),
        ("scheduledbackups.postgresql.cnpg.io", json!({ "cluster": { "name": "a" }, "schedule": "0 0 0 * * *" })),
        (
            "rollouts.argoproj.io",
            json!({ "replicas": 4, "selector": { "matchLabels": { "app": "a" } }, "template": pod, "strategy": { "canary": {} } }),
        ),
        (
            "scaledobjects.keda.sh",
            json!({ "scaleTargetRef": { "name": "a" }, "triggers": [{ "type": "cpu", "metadata": { "value": "60" } }] }),
        ),
        ("notebooks.kubeflow.org", json!({ "template": pod })),
        ("rayclusters.ray.io", json!({ "headGroupSpec": { "template": pod, "rayStartParams": {} } })),
        (
            "rayservices.ray.io",
            json!({ "rayClusterConfig": { "headGroupSpec": { "template": pod, "rayStartParams": {} } } }),
        ),
        (
            "postgresclusters.postgres-operator.crunchydata.com",
            json!({ "postgresVersion": 17, "instances": [{ "name": "a", "dataVolumeClaimSpec": volume }] }),
        ),
        ("perconaxtradbclusters.pxc.percona.com", json!({ "crVersion": "1.19.0" })),
        ("perconaservermongodbs.psmdb.percona.com", json!({ "image": "a", "pause": false })),
        (
            "perconapgclusters.pgv2.percona.com",
            json!({
                "postgresVersion": 17, "instances": [{ "name": "a", "dataVolumeClaimSpec": volume }],
                "backups": { "pgbackrest": { "repos": [{ "name": "repo1", "volume": { "volumeClaimSpec": volume } }] } },
            }),
        ),
        (
            "cassandradatacenters.cassandra.datastax.com",
            json!({ "clusterName": "demo", "serverType": "cassandra", "serverVersion": "4.1.0", "size": 3, "storageConfig": {} }),
        ),
        ("clickhouseinstallations.clickhouse.altinity.com", json!({ "stop": "no" })),
        (
            "nodepools.hypershift.openshift.io",
            json!({
                "clusterName": "demo", "management": { "upgradeType": "Replace" }, "platform": { "type": "None" },
                "release": { "image": "demo" }, "autoScaling": { "min": 2, "max": 5 },
            }),
        ),
    ]
}

pub(crate) fn definition(folder: &Path, name: &str) -> Result<Value> {
    let mut found: Value = serde_json::from_str(&fs::read_to_string(folder.join(format!("{name}.json")))?)?;
    found["metadata"] = json!({ "name": found["metadata"]["name"] });
    found.as_object_mut().context("an object")?.remove("status");
    // No operator runs that would convert.
    found["spec"].as_object_mut().context("a spec")?.remove("conversion");
    Ok(found)
}

/// The object as `kubectl` shows it.
async fn get(world: &World, ns: &str, name: &str) -> Result<Value> {
    world.kubectl(&["get", name, "one", "-n", ns, "-o", "json"]).await?.json()
}

async fn create(world: &World, ns: &str, definition: &Value, spec: &Value) -> Result<()> {
    let (names, group) = (&definition["spec"]["names"], definition["spec"]["group"].as_str().context("a group")?);
    let versions = definition["spec"]["versions"].as_array().context("versions")?;
    let version = versions.iter().find(|one| one["served"] == true).context("a version")?;
    let object = json!({
        "apiVersion": format!("{group}/{}", version["name"].as_str().context("a name")?), "kind": names["kind"],
        "metadata": { "name": "one", "namespace": ns }, "spec": spec,
    });
    eventually(SOON, "the definition is served", async || {
        apply::all(&world.hub().await?, std::slice::from_ref(&object)).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_operators_run_sleeps_and_comes_back_as_it_was() -> Result<()> {
    let Some(folder) = upstream_folder("operators") else { return Ok(()) };
    let world = World::up(Options::bare_hub()).await?;
    with_temp_ns(&world, async |client, ns| {
        for (name, spec) in samples() {
            let definition = definition(&folder, name)?;
            apply::all(&client, std::slice::from_ref(&definition)).await.context(name)?;
            create(&world, &ns, &definition, &spec).await.context(name)?;
            let target = format!("{name}/one");
            let run = async |verb: &[&str]| world.plugin(&[verb, &[&target, "-n", &ns]].concat()).await;

            let before = get(&world, &ns, name).await?;
            run(&[]).await?.ok().with_context(|| format!("{name}: hibernate"))?;
            let asleep = get(&world, &ns, name).await?;
            let record = asleep["metadata"]["annotations"][keys::BEFORE].as_str().context("a record")?.to_owned();
            ensure!(record.starts_with(r#"{"/"#), "{name}: {record}");
            let shown = run(&["status", "-o", "json"]).await?.json()?;
            ensure!(shown["items"][0]["desired"] == "Hibernating", "{name}: {shown}");
            let again = run(&[]).await?.ok()?;
            ensure!(again.contains("unchanged"), "{name}: {again}");
            run(&["resume"]).await?.ok().with_context(|| format!("{name}: resume"))?;
            let after = get(&world, &ns, name).await?;
            assert_eq!(after["spec"], before["spec"], "{name}");
            let annotations = after["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
            ensure!(annotations.is_empty(), "{name}: {annotations:?}");
        }
        // A definition of before the field: nothing is written, and no record is left.
        let mut old = definition(&folder, "rayservices.ray.io")?;
        for version in old["spec"]["versions"].as_array_mut().context("versions")? {
            let fields = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].as_object_mut();
            fields.context("fields")?.remove("suspend");
        }
        apply::all(&client, &[old]).await?;
        let advice = r#"too old: unknown field "spec.suspend": update its operator to 1.7 or later"#;
        eventually(SOON, "the old definition", async || {
            ensure_that(world.plugin(&["rayservices.ray.io/one", "-n", &ns]).await?, |refused| {
                refused.code == 3 && refused.stderr.contains(advice)
            })
        })
        .await?;
        let left = get(&world, &ns, "rayservices.ray.io").await?;
        ensure!(left["metadata"]["annotations"][keys::BEFORE].is_null(), "{left}");
        Ok(())
    })
    .await
}
