//! The record of replicas: whichever client scales a workload to 0, by kubectl against a real API server.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use shared::annotation::keys;
use testbed::check::Says::{Denies, Nothing, Warns};
use testbed::check::webhook_only;
use testbed::world::run::Ran;
use testbed::{World, with_temp_ns};

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
    async fn observation(&self, target: &str) -> Result<(i64, Option<String>)> {
        let object = self.kubectl(&["get", target, "-o", "json"]).await?.json()?;
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

#[expect(clippy::unnecessary_wraps, reason = "reads as what it is compared with")]
fn record(count: &str) -> Option<String> {
    Some(count.to_owned())
}

#[tokio::test]
async fn every_kind_keeps_its_count_through_a_patch_and_is_told_of_a_scale_that_cannot() -> Result<()> {
    let world = World::shared_with(webhook_only()).await?;
    with_temp_ns(&world, async |client, namespace| {
        let bench = Bench::recorded(&world, client, namespace).await?;
        for (version, kind, target, scales) in [
            ("apps/v1", "Deployment", "deployment/web", true),
            ("apps/v1", "StatefulSet", "statefulset/web", true),
            ("cluster.x-k8s.io/v1beta1", "MachineDeployment", "machinedeployments.cluster.x-k8s.io/web", true),
            ("cluster.k8s.io/v1alpha1", "MachineDeployment", "machinedeployments.cluster.k8s.io/web", false),
        ] {
            Nothing.check(&bench.apply(&workload(version, kind, 3)).await?)?;
            Nothing.check(&bench.scale_by_patch(target, 2).await?)?;
            assert_eq!(bench.observation(target).await?, (2, None), "{target} is scaled, not put to sleep");
            Nothing.check(&bench.scale_by_patch(target, 0).await?)?;
            assert_eq!(bench.observation(target).await?, (0, record("2")), "{target} sleeps");
            Nothing.check(&bench.scale_by_patch(target, 2).await?)?;
            assert_eq!(bench.observation(target).await?, (2, None), "{target} is awake");
            if scales {
                let ran = bench.kubectl(&["scale", target, "--replicas=0"]).await?;
                Warns("the scale subresource cannot carry annotations: the replica count 2 is not recorded")
                    .check(&ran)?;
                Warns("to be able to resume it, annotate it with hibernate.sh/replicas=2").check(&ran)?;
                assert_eq!(bench.observation(target).await?, (0, None), "{target}");
                Nothing.check(&bench.kubectl(&["annotate", target, "hibernate.sh/replicas=2"]).await?)?;
                assert_eq!(bench.observation(target).await?, (0, record("2")), "{target}: the advice works");
            }
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_apply_keeps_the_count_and_only_the_plugin_changes_it() -> Result<()> {
    let world = World::shared_with(webhook_only()).await?;
    with_temp_ns(&world, async |client, namespace| {
        let bench = Bench::recorded(&world, client, namespace).await?;
        Nothing.check(&bench.apply(&workload("apps/v1", "Deployment", 3)).await?)?;
        // Git does not know of the record; applying it again does not take it away.
        for _ in 0..2 {
            Nothing.check(&bench.apply(&workload("apps/v1", "Deployment", 0)).await?)?;
            assert_eq!(bench.observation("deployment/web").await?, (0, record("3")));
        }
        let annotate = async |edit: &str, more: &[&str]| {
            bench.kubectl(&[&["annotate", "deployment/web", "--overwrite", edit], more].concat()).await
        };
        for edit in ["hibernate.sh/replicas=9", "hibernate.sh/replicas-"] {
            Warns("hibernate.sh/replicas records the replica count for the resume: 3 was restored")
                .check(&annotate(edit, &[]).await?)?;
            assert_eq!(bench.observation("deployment/web").await?, (0, record("3")), "{edit}");
        }
        Nothing.check(&annotate("hibernate.sh/replicas=5", &[&format!("--field-manager={}", keys::PLUGIN)]).await?)?;
        assert_eq!(bench.observation("deployment/web").await?, (0, record("5")));
        Nothing.check(&bench.apply(&workload("apps/v1", "Deployment", 3)).await?)?;
        assert_eq!(bench.observation("deployment/web").await?, (3, None));

        let mut set = workload("apps/v1", "StatefulSet", 3);
        set["spec"]["persistentVolumeClaimRetentionPolicy"] = json!({ "whenScaled": "Delete" });
        Nothing.check(&bench.apply(&set).await?)?;
        Denies("spec.persistentVolumeClaimRetentionPolicy.whenScaled: found Delete")
            .check(&bench.scale_by_patch("statefulset/web", 0).await?)?;
        Ok(())
    })
    .await
}
