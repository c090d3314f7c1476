//! The record of replicas: whichever client scales a workload to 0, by kubectl against a real API server.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use shared::annotation::keys;
use testbed::world::run::Ran;
use testbed::{Options, Program, World, with_temp_ns};

fn options() -> Options {
    Options { without: vec![Program::Controller], ..Options::hub_only() }
}

/// Workloads in one namespace.
struct Bench {
    world: World,
    namespace: String,
}

impl Bench {
    /// A namespace in which counts are recorded.
    async fn recorded(world: &World, client: Client, namespace: String) -> Result<Self> {
        let label = json!({ "metadata": { "labels": { keys::RECORD_REPLICAS: "true" } } });
        let namespaces: Api<Namespace> = Api::all(client);
        namespaces.patch(&namespace, &PatchParams::default(), &Patch::Merge(&label)).await?;
        Ok(Self { world: world.clone(), namespace })
    }

    async fn kubectl(&self, args: &[&str]) -> Result<Ran> {
        self.world.kubectl(&[&["-n", &self.namespace, "--as", "alice"], args].concat()).await
    }

    /// `kubectl apply` of an object.
    async fn apply(&self, object: &Value) -> Result<Ran> {
        let file = self.world.dir().join(format!("{}.json", self.namespace));
        std::fs::write(&file, object.to_string())?;
        self.kubectl(&["apply", "-f", &file.to_string_lossy()]).await
    }

    /// `spec.replicas` and the recorded count.
    async fn look(&self, target: &str) -> Result<(i64, Option<String>)> {
        let text = self.kubectl(&["get", target, "-o", "json"]).await?.ok()?;
        let object: Value = serde_json::from_str(&text)?;
        let record = object["metadata"]["annotations"][keys::REPLICAS].as_str().map(str::to_owned);
        Ok((object["spec"]["replicas"].as_i64().context("spec.replicas")?, record))
    }

    async fn scale_by_patch(&self, target: &str, replicas: u32) -> Result<Ran> {
        let patch = json!({ "spec": { "replicas": replicas } }).to_string();
        self.kubectl(&["patch", target, "--type", "merge", "-p", &patch]).await
    }
}

fn workload(version: &str, kind: &str, replicas: u32) -> Value {
    let labels = json!({ "app": "web" });
    let mut object = json!({
        "apiVersion": version,
        "kind": kind,
        "metadata": { "name": "web" },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": {} },
        },
    });
    match kind {
        "MachineDeployment" => object["spec"]["clusterName"] = json!("x"),
        _ => object["spec"]["template"]["spec"] = json!({ "containers": [{ "name": "web", "image": "web" }] }),
    }
    if kind == "StatefulSet" {
        object["spec"]["serviceName"] = json!("web");
    }
    object
}

fn quiet(ran: &Ran) -> Result<()> {
    ensure!(ran.code == 0 && ran.stderr.is_empty(), "exit code {}: {}", ran.code, ran.stderr);
    Ok(())
}

fn warned(ran: &Ran, warning: &str) -> Result<()> {
    ensure!(
        ran.code == 0 && ran.stderr.contains(&format!("Warning: {warning}")),
        "exit code {}: {}",
        ran.code,
        ran.stderr
    );
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "reads as what it is compared with")]
fn record(count: &str) -> Option<String> {
    Some(count.to_owned())
}

#[tokio::test]
async fn every_kind_keeps_its_count_through_a_patch() -> Result<()> {
    let world = World::shared_with(options()).await?;
    with_temp_ns(&world, async |client, namespace| {
        let bench = Bench::recorded(&world, client, namespace).await?;
        for (version, kind, target) in [
            ("apps/v1", "Deployment", "deployment/web"),
            ("apps/v1", "StatefulSet", "statefulset/web"),
            ("cluster.x-k8s.io/v1beta1", "MachineDeployment", "machinedeployments.cluster.x-k8s.io/web"),
            ("cluster.k8s.io/v1alpha1", "MachineDeployment", "machinedeployments.cluster.k8s.io/web"),
        ] {
            quiet(&bench.apply(&workload(version, kind, 3)).await?)?;
            quiet(&bench.scale_by_patch(target, 2).await?)?;
            assert_eq!(bench.look(target).await?, (2, None), "{target} is scaled, not put to sleep");
            quiet(&bench.scale_by_patch(target, 0).await?)?;
            assert_eq!(bench.look(target).await?, (0, record("2")), "{target} sleeps");
            quiet(&bench.scale_by_patch(target, 4).await?)?;
            assert_eq!(bench.look(target).await?, (4, None), "{target} is awake");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_set_whose_volumes_would_be_deleted_is_not_put_to_sleep() -> Result<()> {
    let world = World::shared_with(options()).await?;
    with_temp_ns(&world, async |client, namespace| {
        let bench = Bench::recorded(&world, client, namespace).await?;
        let mut set = workload("apps/v1", "StatefulSet", 3);
        set["spec"]["persistentVolumeClaimRetentionPolicy"] = json!({ "whenScaled": "Delete" });
        quiet(&bench.apply(&set).await?)?;
        let denied = bench.scale_by_patch("statefulset/web", 0).await?;
        ensure!(
            denied.code == 1
                && denied.stderr.contains("spec.persistentVolumeClaimRetentionPolicy.whenScaled: found Delete")
                && denied.stderr.contains("set it to Retain first"),
            "{}: {}",
            denied.code,
            denied.stderr
        );
        quiet(&bench.scale_by_patch("statefulset/web", 2).await?)?;
        assert_eq!(bench.look("statefulset/web").await?, (2, None));
        set["spec"]["persistentVolumeClaimRetentionPolicy"] = json!({ "whenScaled": "Retain" });
        set["spec"]["replicas"] = json!(2);
        quiet(&bench.apply(&set).await?)?;
        quiet(&bench.scale_by_patch("statefulset/web", 0).await?)?;
        assert_eq!(bench.look("statefulset/web").await?, (0, record("2")), "the advice works");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_apply_keeps_the_count_too() -> Result<()> {
    let world = World::shared_with(options()).await?;
    with_temp_ns(&world, async |client, namespace| {
        let bench = Bench::recorded(&world, client, namespace).await?;
        quiet(&bench.apply(&workload("apps/v1", "Deployment", 3)).await?)?;
        quiet(&bench.apply(&workload("apps/v1", "Deployment", 0)).await?)?;
        assert_eq!(bench.look("deployment/web").await?, (0, record("3")));
        // Git does not know of the record; applying it again does not take it away.
        quiet(&bench.apply(&workload("apps/v1", "Deployment", 0)).await?)?;
        assert_eq!(bench.look("deployment/web").await?, (0, record("3")));
        quiet(&bench.apply(&workload("apps/v1", "Deployment", 3)).await?)?;
        assert_eq!(bench.look("deployment/web").await?, (3, None));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_record_is_put_back_unless_the_plugin_changes_it() -> Result<()> {
    let world = World::shared_with(options()).await?;
    with_temp_ns(&world, async |client, namespace| {
        let bench = Bench::recorded(&world, client, namespace).await?;
        quiet(&bench.apply(&workload("apps/v1", "Deployment", 3)).await?)?;
        quiet(&bench.scale_by_patch("deployment/web", 0).await?)?;
        for edit in ["hibernate.sh/replicas=9", "hibernate.sh/replicas=0", "hibernate.sh/replicas-"] {
            let ran = bench.kubectl(&["annotate", "deployment/web", "--overwrite", edit]).await?;
            warned(&ran, "hibernate.sh/replicas records the replica count for the resume: 3 was restored")?;
            assert_eq!(bench.look("deployment/web").await?, (0, record("3")), "{edit}");
        }
        let plugin = format!("--field-manager={}", keys::PLUGIN);
        quiet(
            &bench.kubectl(&["annotate", "deployment/web", "--overwrite", "hibernate.sh/replicas=5", &plugin]).await?,
        )?;
        assert_eq!(bench.look("deployment/web").await?, (0, record("5")));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_scale_request_cannot_carry_the_record_and_says_so() -> Result<()> {
    let world = World::shared_with(options()).await?;
    with_temp_ns(&world, async |client, namespace| {
        let bench = Bench::recorded(&world, client, namespace).await?;
        for (version, kind, target) in [
            ("apps/v1", "Deployment", "deployment/web"),
            ("apps/v1", "StatefulSet", "statefulset/web"),
            ("cluster.x-k8s.io/v1beta1", "MachineDeployment", "machinedeployments.cluster.x-k8s.io/web"),
        ] {
            quiet(&bench.apply(&workload(version, kind, 3)).await?)?;
            quiet(&bench.kubectl(&["scale", target, "--replicas=2"]).await?)?;
            let ran = bench.kubectl(&["scale", target, "--replicas=0"]).await?;
            warned(&ran, "the scale subresource cannot carry annotations: the replica count 2 is not recorded")?;
            warned(&ran, "to be able to resume it, annotate it with hibernate.sh/replicas=2")?;
            assert_eq!(bench.look(target).await?, (0, None), "{target}");

            let nonsense = bench.kubectl(&["annotate", target, "hibernate.sh/replicas=two"]).await?;
            warned(&nonsense, "hibernate.sh/replicas must be an integer from 1 to 2147483647: it was removed")?;
            quiet(&bench.kubectl(&["annotate", target, "hibernate.sh/replicas=2"]).await?)?;
            assert_eq!(bench.look(target).await?, (0, record("2")), "{target}: what was said is what helps");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn only_namespaces_that_ask_for_it_are_recorded() -> Result<()> {
    let world = World::shared_with(options()).await?;
    with_temp_ns(&world, async |_, namespace| {
        let bench = Bench { world: world.clone(), namespace };
        quiet(&bench.apply(&workload("apps/v1", "Deployment", 3)).await?)?;
        quiet(&bench.scale_by_patch("deployment/web", 0).await?)?;
        assert_eq!(bench.look("deployment/web").await?, (0, None));
        quiet(&bench.scale_by_patch("deployment/web", 3).await?)?;
        quiet(&bench.kubectl(&["scale", "deployment/web", "--replicas=0"]).await?)?;
        Ok(())
    })
    .await
}
