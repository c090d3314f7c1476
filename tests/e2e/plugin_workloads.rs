//! The plugin puts workloads to sleep on a real API server: nothing of ours needs to run for that.

use std::time::Duration;

use anyhow::Result;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use shared::annotation::keys;
use testbed::{World, eventually, with_temp_ns};

const SOON: Duration = Duration::from_secs(30);
const CAPI: &str = "cluster.x-k8s.io/v1beta1";
const KKP: &str = "cluster.k8s.io/v1alpha1";

/// Objects of one kind in one namespace, as JSON.
struct Objects(Api<DynamicObject>, ApiResource);

impl Objects {
    fn new(client: &Client, namespace: &str, api_version: &str, kind: &str) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Self(Api::namespaced_with(client.clone(), namespace, &resource), resource)
    }

    async fn create(&self, name: &str, spec: Value) -> Result<()> {
        let object = DynamicObject::new(name, &self.1).data(json!({ "spec": spec }));
        self.0.create(&PostParams::default(), &object).await?;
        Ok(())
    }

    async fn patch(&self, name: &str, patch: &Value) -> Result<()> {
        self.0.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Replicas and the recorded count.
    async fn replicas(&self, name: &str) -> Result<(u64, Option<String>)> {
        let object = self.0.get(name).await?;
        let record = object.metadata.annotations.unwrap_or_default().remove(keys::REPLICAS);
        Ok((object.data["spec"]["replicas"].as_u64().unwrap_or(1), record))
    }
}

fn pods(replicas: u32) -> Value {
    json!({
        "replicas": replicas,
        "selector": { "matchLabels": { "app": "x" } },
        "template": {
            "metadata": { "labels": { "app": "x" } },
            "spec": { "containers": [{ "name": "x", "image": "registry.test/x" }] },
        },
    })
}

fn stateful(replicas: u32) -> Value {
    let mut spec = pods(replicas);
    spec["serviceName"] = json!("x");
    spec
}

fn machines(replicas: u32) -> Value {
    json!({ "clusterName": "c", "replicas": replicas, "selector": {}, "template": { "spec": {} } })
}

fn recorded(replicas: u64, record: &str) -> (u64, Option<String>) {
    (replicas, Some(record.to_owned()))
}

#[tokio::test]
async fn every_kind_sleeps_and_wakes_with_its_count() -> Result<()> {
    let world = World::shared().await?;
    with_temp_ns(&world, async |client, ns| {
        let deployments = Objects::new(&client, &ns, "apps/v1", "Deployment");
        let sets = Objects::new(&client, &ns, "apps/v1", "StatefulSet");
        let capi = Objects::new(&client, &ns, CAPI, "MachineDeployment");
        let kkp = Objects::new(&client, &ns, KKP, "MachineDeployment");
        deployments.create("web", pods(3)).await?;
        sets.create("db", stateful(1)).await?;
        capi.create("workers", machines(4)).await?;
        kkp.create("nodes", machines(2)).await?;
        let targets = ["deploy/web", "sts/db", "machinedeployment/workers", "nodes", "-n", &ns];

        let slept = world.plugin(&[&targets[..], &["--reason", "night"]].concat()).await?.ok()?;
        assert_eq!(
            slept.lines().collect::<Vec<_>>(),
            [
                "deployment.apps/web hibernated (3 replicas recorded)",
                "statefulset.apps/db hibernated (1 replica recorded)",
                "machinedeployment.cluster.x-k8s.io/workers hibernated (4 replicas recorded)",
                "machinedeployment.cluster.k8s.io/nodes hibernated (2 replicas recorded)",
            ]
        );
        assert_eq!(deployments.replicas("web").await?, recorded(0, "3"));
        assert_eq!(sets.replicas("db").await?, recorded(0, "1"));
        assert_eq!(capi.replicas("workers").await?, recorded(0, "4"));
        assert_eq!(kkp.replicas("nodes").await?, recorded(0, "2"));
        let web = deployments.0.get("web").await?;
        assert_eq!(
            web.metadata.annotations.as_ref().and_then(|a| a.get(keys::REASON)).map(String::as_str),
            Some("night")
        );

        // No controller of this world writes to a MachineDeployment: its resourceVersion shows whether anything was
        // written.
        let workers = capi.0.get("workers").await?;
        let again = world.plugin(&targets).await?.ok()?;
        assert!(again.lines().all(|line| line.ends_with(" unchanged")), "{again}");
        assert_eq!(capi.0.get("workers").await?.metadata.resource_version, workers.metadata.resource_version);
        assert_eq!(deployments.replicas("web").await?, recorded(0, "3"));

        let woken = world.plugin(&[&["resume"], &targets[..]].concat()).await?.ok()?;
        assert!(
            woken.starts_with("deployment.apps/web resumed (3 replicas)\nstatefulset.apps/db resumed (1 replica)\n")
        );
        for (objects, name, count) in
            [(&deployments, "web", 3), (&sets, "db", 1), (&capi, "workers", 4), (&kkp, "nodes", 2)]
        {
            assert_eq!(objects.replicas(name).await?, (count, None), "{name}");
        }
        let web = deployments.0.get("web").await?;
        assert!(!web.metadata.annotations.unwrap_or_default().contains_key(keys::REASON));
        let again = world.plugin(&[&["resume"], &targets[..]].concat()).await?.ok()?;
        assert!(again.lines().all(|line| line.ends_with(" unchanged")), "{again}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_name_or_type_that_means_two_things_is_not_guessed() -> Result<()> {
    let world = World::shared().await?;
    with_temp_ns(&world, async |client, ns| {
        Objects::new(&client, &ns, CAPI, "MachineDeployment").create("workers", machines(4)).await?;
        let kkp = Objects::new(&client, &ns, KKP, "MachineDeployment");
        kkp.create("workers", machines(2)).await?;
        Objects::new(&client, &ns, "apps/v1", "Deployment").create("web", pods(1)).await?;
        Objects::new(&client, &ns, "apps/v1", "StatefulSet").create("web", stateful(1)).await?;
        for (target, candidates) in [
            ("web", ["deployment.apps/web", "statefulset.apps/web"]),
            ("md/workers", ["machinedeployment.cluster.x-k8s.io/workers", "machinedeployment.cluster.k8s.io/workers"]),
        ] {
            let ran = world.plugin(&[target, "-n", &ns]).await?;
            ran.refuses(1, &candidates)?;
        }
        world.plugin(&["machinedeployment.cluster.k8s.io/workers", "-n", &ns]).await?.ok()?;
        assert_eq!(kkp.replicas("workers").await?, recorded(0, "2"));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_type_that_may_not_be_seen_does_not_hide_the_others() -> Result<()> {
    let world = World::shared().await?;
    with_temp_ns(&world, async |client, ns| {
        Objects::new(&client, &ns, "apps/v1", "Deployment").create("web", pods(1)).await?;
        let role = ["create", "role", "r", "--verb=get,list,patch", "--resource=deployments.apps", "-n", &ns];
        world.kubectl(&role).await?.ok()?;
        world.kubectl(&["create", "rolebinding", "r", "--role=r", "--user=keeper", "-n", &ns]).await?.ok()?;
        Objects::new(&client, &ns, "apps/v1", "Deployment").create("only-here", pods(1)).await?;
        let elsewhere = world.plugin(&["only-here", "-n", "default"]).await?;
        let hint =
            format!("\"only-here\" not found in namespace \"default\"; it exists in namespace {ns}: add -n {ns}\n");
        assert!(elsewhere.code == 1 && elsewhere.stderr.ends_with(&hint), "{}", elsewhere.stderr);
        let added = hint.trim_end().rsplit(": add ").next().unwrap_or_default().split(' ');
        let there = ["only-here", "--dry-run=client"].into_iter().chain(added).collect::<Vec<_>>();
        assert!(world.plugin(&there).await?.ok()?.starts_with("deployment.apps/only-here hibernated"), "{there:?}");
        let mistyped = world.plugin(&["wbe", "-n", &ns, "--as", "keeper"]).await?;
        mistyped.refuses(1, &["\"wbe\" not found", "did you mean web?"])?;
        let slept = world.plugin(&["web", "-n", &ns, "--as", "keeper"]).await?.ok()?;
        assert_eq!(slept, "deployment.apps/web hibernated (1 replica recorded)\n");
        let blind = world.plugin(&["web", "-n", &ns, "--as", "nobody"]).await?;
        blind.says(1, &["User \"nobody\" cannot get resource"])?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_cannot_be_done_right_is_not_done() -> Result<()> {
    let world = World::shared().await?;
    with_temp_ns(&world, async |client, ns| {
        let deployments = Objects::new(&client, &ns, "apps/v1", "Deployment");
        let sets = Objects::new(&client, &ns, "apps/v1", "StatefulSet");
        let mut spec = stateful(2);
        spec["persistentVolumeClaimRetentionPolicy"] = json!({ "whenScaled": "Delete" });
        sets.create("db", spec).await?;
        let volumes = "statefulset.apps/db: its persistentVolumeClaimRetentionPolicy.whenScaled is Delete";
        for name in ["nothing", "broken", "precious"] {
            deployments.create(name, pods(if name == "precious" { 2 } else { 0 })).await?;
        }
        let annotate = |key: &str, value: &str| json!({ "metadata": { "annotations": { key: value } } });
        deployments.patch("broken", &annotate(keys::REPLICAS, "three")).await?;
        deployments.patch("precious", &annotate(keys::PROTECTED, "true")).await?;
        for (line, code, parts) in [
            (vec!["resume", "deploy/nothing"], 1, ["deployment.apps/nothing: ", "scale it by hand"]),
            (vec!["resume", "deploy/broken"], 1, ["annotation hibernate.sh/replicas is \"three\"", "from 1 to"]),
            (vec!["deploy/precious"], 3, ["deployment.apps/precious: it is protected", "hibernate.sh/protected"]),
            (vec!["sts/db", "--dry-run=server"], 3, [volumes, "set it to Retain first"]),
            (vec!["sts", "--all", "--yes"], 3, [volumes, "set it to Retain first"]),
            (vec!["deploy/precious", "deploy/missing"], 1, ["it is protected", "deployment.apps/missing not found"]),
        ] {
            let ran = world.plugin(&[&line[..], &["-n", &ns]].concat()).await?;
            ran.refuses(code, &parts)?;
        }
        assert_eq!(deployments.replicas("broken").await?, recorded(0, "three"));
        assert_eq!(deployments.replicas("precious").await?, (2, None));
        assert_eq!(sets.replicas("db").await?, (2, None));
        Ok(())
    })
    .await
}

/// While another client scales continuously, the recorded count is the previous one, never 0 and never a lost one.
#[tokio::test]
async fn the_record_is_right_under_concurrent_scaling() -> Result<()> {
    let world = World::shared().await?;
    with_temp_ns(&world, async |client, ns| {
        let kkp = Objects::new(&client, &ns, KKP, "MachineDeployment");
        kkp.create("workers", machines(10)).await?;
        let target = ["machinedeployment.cluster.k8s.io/workers", "-n", &ns];
        let mut contended = 0;
        for round in 1..=8_u64 {
            let scale = async {
                for step in 0..40 {
                    // Scaling as a person does it: only while it is awake, from the version that was seen.
                    let seen = kkp.0.get("workers").await?;
                    if seen.data["spec"]["replicas"] == json!(0) {
                        break;
                    }
                    let patch = json!({
                        "metadata": { "resourceVersion": seen.metadata.resource_version },
                        "spec": { "replicas": 100 * round + step },
                    });
                    contended += u32::from(kkp.patch("workers", &patch).await.is_err());
                }
                anyhow::Ok(())
            };
            let (scaled, slept) = tokio::join!(scale, world.plugin(&target));
            scaled?;
            let slept = slept?;
            let (replicas, record) = kkp.replicas("workers").await?;
            if slept.code == 0 {
                let count = record.clone().unwrap_or_default();
                assert_eq!(replicas, 0);
                assert!(
                    slept.stdout.contains(&format!("({count} replicas recorded)")),
                    "{} but {record:?}",
                    slept.stdout
                );
                assert!(
                    count == "10" || (100 * round..100 * round + 40).contains(&count.parse()?) || round > 1,
                    "{count}"
                );
                world.plugin(&[&["resume"], &target[..]].concat()).await?.ok()?;
                assert_eq!(kkp.replicas("workers").await?, (count.parse()?, None));
            } else {
                assert!(slept.stderr.contains("conflict: the object changed"), "{}", slept.stderr);
                assert!(replicas > 0, "a refused sleep changes nothing");
            }
        }
        eprintln!("{contended} writes of the scaler met the plugin's");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_may_undo_a_sleep_is_named_in_warnings_and_in_the_plan() -> Result<()> {
    let world = World::shared().await?;
    with_temp_ns(&world, async |client, ns| {
        Objects::new(&client, &ns, "apps/v1", "Deployment").create("web", pods(3)).await?;
        let scalers = Objects::new(&client, &ns, "autoscaling/v2", "HorizontalPodAutoscaler");
        let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" });
        scalers.create("auto", json!({ "scaleTargetRef": target, "maxReplicas": 5 })).await?;
        let labels = json!({ "metadata": { "labels": { "kustomize.toolkit.fluxcd.io/name": "apps" } } });
        Objects::new(&client, &ns, "apps/v1", "Deployment").patch("web", &labels).await?;
        let named = |text: &str| {
            text.contains("horizontalpodautoscaler/auto scales deployment.apps/web: it stands still at 0 replicas")
                && text.contains("kustomization/apps (Flux) deploys deployment.apps/web")
        };
        let plan = world.plugin(&["plan", "deploy/web", "-n", &ns]).await?.ok()?;
        assert!(named(&plan), "{plan}");
        // The last one finds it asleep.
        for more in [&["--dry-run=client"][..], &["--dry-run=server"], &[], &["-v"]] {
            let ran = world.plugin(&[&["deploy/web", "-n", &ns], more].concat()).await?;
            assert_eq!(ran.code, 0, "{}", ran.stderr);
            assert!(ran.stderr.contains("Warning: kustomization/apps") && named(&ran.stderr), "{more:?}: {ran:?}");
            assert!(!ran.stderr.contains("cannot list"), "a hub without KEDA lacks nothing: {}", ran.stderr);
        }
        Ok(())
    })
    .await
}

/// As `helm upgrade --server-side` and `kubectl apply --server-side` apply it.
async fn apply(deployments: &Objects, replicas: u32) -> kube::Result<()> {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" }, "spec": pods(replicas),
    });
    deployments.0.patch("web", &PatchParams::apply("helm"), &Patch::Apply(&object)).await.map(drop)
}

#[tokio::test]
async fn after_a_wake_a_server_side_apply_goes_on_without_a_conflict() -> Result<()> {
    let world = World::shared().await?;
    with_temp_ns(&world, async |client, ns| {
        let deployments = Objects::new(&client, &ns, "apps/v1", "Deployment");
        let (sleep, wake) = (["deploy/web", "-n", &ns], ["resume", "deploy/web", "-n", &ns]);
        apply(&deployments, 3).await?;
        world.plugin(&sleep).await?.ok()?;
        let refused = apply(&deployments, 3).await;
        assert!(
            matches!(&refused, Err(kube::Error::Api(status)) if status.code == 409),
            "nothing wakes it by the way: {refused:?}"
        );
        assert_eq!(world.plugin(&wake).await?.ok()?, "deployment.apps/web resumed (3 replicas)\n");
        apply(&deployments, 4).await?;
        assert_eq!(deployments.replicas("web").await?, (4, None));

        // A count that others have scaled over is restored, and called stale.
        world.plugin(&sleep).await?.ok()?;
        for replicas in ["--replicas=5", "--replicas=0"] {
            world.kubectl(&["scale", "deploy/web", replicas, "-n", &ns]).await?.ok()?;
        }
        let woken = world.plugin(&wake).await?.ok()?;
        let begin = "deployment.apps/web resumed (4 replicas; recorded by kubectl-hibernate at 2";
        assert!(woken.starts_with(begin) && woken.ends_with("Z, scaled by others since)\n"), "{woken}");
        apply(&deployments, 3).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn waiting_ends_when_the_workloads_own_controller_is_done() -> Result<()> {
    let world = World::shared().await?;
    with_temp_ns(&world, async |client, ns| {
        // Deployments are scaled by the real controller of the hub; no kubelet runs, so that its Pods never become
        // ready.
        Objects::new(&client, &ns, "apps/v1", "Deployment").create("web", pods(3)).await?;
        eventually(SOON, "Pods", async || {
            let ran = world.kubectl(&["get", "deploy", "web", "-n", &ns, "-o", "jsonpath={.status.replicas}"]).await?;
            anyhow::ensure!(ran.stdout == "3", "{}", ran.stdout);
            Ok(())
        })
        .await?;
        let slept = world.plugin(&["deploy/web", "-n", &ns, "--wait", "--timeout", "60s"]).await?.ok()?;
        assert!(slept.contains("\ndeployment.apps/web asleep after "), "{slept}");
        let woken = world.plugin(&["resume", "deploy/web", "-n", &ns, "--wait", "--timeout", "3s"]).await?;
        woken.says(4, &["error: deployment.apps/web: timed out after 3s: 0 of 3 replicas ready"])?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_dry_run_changes_nothing() -> Result<()> {
    let world = World::shared().await?;
    with_temp_ns(&world, async |client, ns| {
        let deployments = Objects::new(&client, &ns, "apps/v1", "Deployment");
        deployments.create("web", pods(3)).await?;
        let before = deployments.0.get("web").await?.data["spec"].clone();
        for (strategy, suffix) in [("client", "(dry run)"), ("server", "(server dry run)")] {
            let detail = world.plugin(&["deploy/web", "-n", &ns, &format!("--dry-run={strategy}")]).await?.ok()?;
            assert_eq!(detail, format!("deployment.apps/web hibernated (3 replicas recorded) {suffix}\n"));
            let detail =
                world.plugin(&["deploy/web", "-n", &ns, &format!("--dry-run={strategy}"), "-o", "json"]).await?.ok()?;
            let object: Value = serde_json::from_str(&detail)?;
            assert_eq!(object["spec"]["replicas"], 0);
            assert_eq!(object["metadata"]["annotations"][keys::REPLICAS], "3");
            assert_eq!(object["metadata"].get("managedFields"), None);
        }
        assert_eq!(deployments.0.get("web").await?.data["spec"], before);
        assert_eq!(deployments.replicas("web").await?, (3, None));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn all_of_a_type_or_a_label_is_chosen_only_when_asked_for() -> Result<()> {
    let world = World::shared().await?;
    with_temp_ns(&world, async |client, ns| {
        let deployments = Objects::new(&client, &ns, "apps/v1", "Deployment");
        for name in ["a", "b", "c"] {
            deployments.create(name, pods(2)).await?;
        }
        deployments.patch("a", &json!({ "metadata": { "labels": { "team": "blue" } } })).await?;
        let nothing = world.plugin(&["--all", "-n", &ns]).await?;
        assert_eq!(
            (nothing.code, nothing.stderr.as_str()),
            (0, format!("No resources found in {ns} namespace.\n").as_str())
        );
        let blue = world.plugin(&["deploy", "-l", "team=blue", "-n", &ns, "-o", "name"]).await?.ok()?;
        assert_eq!(blue, "deployment.apps/a\n");
        let all = world.plugin(&["deploy,sts", "--all", "-n", &ns]).await?.ok()?;
        assert_eq!(all.lines().filter(|line| line.contains("hibernated (2 replicas recorded)")).count(), 2, "{all}");
        assert!(all.contains("deployment.apps/a unchanged"), "{all}");
        let status = world.plugin(&["status", "deploy", "-n", &ns, "-o", "name"]).await?.ok()?;
        assert_eq!(status, "deployment.apps/a\ndeployment.apps/b\ndeployment.apps/c\n");
        world.plugin(&["resume", "deploy/b", "-n", &ns]).await?.ok()?;
        let status = world.plugin(&["status", "deploy", "-n", &ns, "-o", "name"]).await?.ok()?;
        assert_eq!(status, "deployment.apps/a\ndeployment.apps/c\n");
        deployments.create("idle", pods(0)).await?;
        let woken = world.plugin(&["resume", "deploy", "--all", "-n", &ns]).await?.ok()?;
        assert!(woken.contains("deployment.apps/a resumed (2 replicas)\n"), "{woken}");
        assert!(woken.contains("deployment.apps/idle unchanged (0 replicas, none recorded)\n"), "{woken}");
        Ok(())
    })
    .await
}
