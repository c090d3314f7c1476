//! The plugin puts workloads to sleep on a real API server: nothing of ours needs to run for that.

use std::time::Duration;

use anyhow::{Result, ensure};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use shared::annotation::keys;
use testbed::{World, ensure_that, eventually};

use crate::plugin_common::{Shell, in_namespace, pods, stateful};

const SOON: Duration = Duration::from_mins(2);
const CAPI: (&str, &str) = ("cluster.x-k8s.io/v1beta1", "MachineDeployment");
const KKP: (&str, &str) = ("cluster.k8s.io/v1alpha1", "MachineDeployment");
const DEPLOYMENT: (&str, &str) = ("apps/v1", "Deployment");
const STATEFUL_SET: (&str, &str) = ("apps/v1", "StatefulSet");

/// Objects of one kind in one namespace, as JSON.
struct Objects(Api<DynamicObject>, ApiResource);

impl Objects {
    fn of(shell: &Shell, (api_version, kind): (&str, &str)) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Self(Api::namespaced_with(shell.client.clone(), &shell.ns, &resource), resource)
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

    async fn reason(&self, name: &str) -> Result<Option<String>> {
        Ok(self.0.get(name).await?.metadata.annotations.unwrap_or_default().remove(keys::REASON))
    }
}

fn machines(replicas: u32) -> Value {
    json!({ "clusterName": "c", "replicas": replicas, "selector": {}, "template": { "spec": {} } })
}

fn recorded(replicas: u64, record: &str) -> (u64, Option<String>) {
    (replicas, Some(record.to_owned()))
}

#[tokio::test]
async fn every_kind_sleeps_and_wakes_with_its_count() -> Result<()> {
    in_namespace(World::shared().await?, async |shell| {
        let [deployments, sets, capi, kkp] =
            [DEPLOYMENT, STATEFUL_SET, CAPI, KKP].map(|kind| Objects::of(&shell, kind));
        let all = [(&deployments, "web", 3), (&sets, "db", 1), (&capi, "workers", 4), (&kkp, "nodes", 2)];
        for ((objects, name, _), spec) in all.iter().zip([pods(3), stateful(1), machines(4), machines(2)]) {
            objects.create(name, spec).await?;
        }
        let targets = "deploy/web sts/db machinedeployment/workers nodes";
        let slept = "deployment.apps/web hibernated (3 replicas recorded)\n\
                     statefulset.apps/db hibernated (1 replica recorded)\n\
                     machinedeployment.cluster.x-k8s.io/workers hibernated (4 replicas recorded)\n\
                     machinedeployment.cluster.k8s.io/nodes hibernated (2 replicas recorded)\n";
        shell.prints(&format!("{targets} --reason night"), slept).await?;
        for (objects, name, count) in all {
            assert_eq!(objects.replicas(name).await?, recorded(0, &count.to_string()), "{name}");
        }
        assert_eq!(deployments.reason("web").await?.as_deref(), Some("night"));

        // No controller of this world writes to a MachineDeployment: its resourceVersion shows whether anything was
        // written.
        let workers = capi.0.get("workers").await?;
        let again = shell.ok(targets).await?;
        assert!(again.lines().all(|line| line.ends_with(" unchanged")), "{again}");
        assert_eq!(capi.0.get("workers").await?.metadata.resource_version, workers.metadata.resource_version);
        assert_eq!(deployments.replicas("web").await?, recorded(0, "3"));

        let wake = format!("resume {targets}");
        let woken = shell.ok(&wake).await?;
        assert!(
            woken.starts_with("deployment.apps/web resumed (3 replicas)\nstatefulset.apps/db resumed (1 replica)\n")
        );
        for (objects, name, count) in all {
            assert_eq!(objects.replicas(name).await?, (count, None), "{name}");
        }
        assert_eq!(deployments.reason("web").await?, None);
        let again = shell.ok(&wake).await?;
        assert!(again.lines().all(|line| line.ends_with(" unchanged")), "{again}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_name_or_type_that_means_two_things_is_not_guessed() -> Result<()> {
    in_namespace(World::shared().await?, async |shell| {
        let kkp = Objects::of(&shell, KKP);
        Objects::of(&shell, CAPI).create("workers", machines(4)).await?;
        kkp.create("workers", machines(2)).await?;
        Objects::of(&shell, DEPLOYMENT).create("web", pods(1)).await?;
        Objects::of(&shell, STATEFUL_SET).create("web", stateful(1)).await?;
        let both = ["machinedeployment.cluster.x-k8s.io/workers", "machinedeployment.cluster.k8s.io/workers"];
        shell
            .refused(&[("web", 1, &["deployment.apps/web", "statefulset.apps/web"]), ("md/workers", 1, &both)])
            .await?;
        shell.ok(both[1]).await?;
        assert_eq!(kkp.replicas("workers").await?, recorded(0, "2"));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_type_that_may_not_be_seen_does_not_hide_the_others() -> Result<()> {
    in_namespace(World::shared().await?, async |shell| {
        let (world, ns, deployments) = (&shell.world, &shell.ns, Objects::of(&shell, DEPLOYMENT));
        for name in ["web", "only-here"] {
            deployments.create(name, pods(1)).await?;
        }
        shell.kubectl("create role r --verb=get,list,patch --resource=deployments.apps").await?;
        shell.kubectl("create rolebinding r --role=r --user=keeper").await?;
        let elsewhere = world.plugin(&["only-here", "-n", "default"]).await?;
        let hint =
            format!("\"only-here\" not found in namespace \"default\"; it exists in namespace {ns}: add -n {ns}\n");
        assert!(elsewhere.code == 1 && elsewhere.stderr.ends_with(&hint), "{}", elsewhere.stderr);
        let added = hint.trim_end().rsplit(": add ").next().unwrap_or_default().split(' ');
        let there = ["only-here", "--dry-run=client"].into_iter().chain(added).collect::<Vec<_>>();
        assert!(world.plugin(&there).await?.ok()?.starts_with("deployment.apps/only-here hibernated"), "{there:?}");
        shell.refused(&[("wbe --as keeper", 1, &["\"wbe\" not found", "did you mean web?"])]).await?;
        shell.prints("web --as keeper", "deployment.apps/web hibernated (1 replica recorded)\n").await?;
        shell.each(&[("web --as nobody", 1, &["User \"nobody\" cannot get resource"])]).await
    })
    .await
}

#[tokio::test]
async fn what_cannot_be_done_right_is_not_done() -> Result<()> {
    in_namespace(World::shared().await?, async |shell| {
        let (deployments, sets) = (Objects::of(&shell, DEPLOYMENT), Objects::of(&shell, STATEFUL_SET));
        let mut spec = stateful(2);
        spec["persistentVolumeClaimRetentionPolicy"] = json!({ "whenScaled": "Delete" });
        sets.create("db", spec).await?;
        let volumes = [
            "statefulset.apps/db: its persistentVolumeClaimRetentionPolicy.whenScaled is Delete",
            "set it to Retain first",
        ];
        for name in ["nothing", "broken", "precious"] {
            deployments.create(name, pods(if name == "precious" { 2 } else { 0 })).await?;
        }
        let annotate = |key: &str, value: &str| json!({ "metadata": { "annotations": { key: value } } });
        deployments.patch("broken", &annotate(keys::REPLICAS, "three")).await?;
        deployments.patch("precious", &annotate(keys::PROTECTED, "true")).await?;
        shell
            .refused(&[
                ("resume deploy/nothing", 1, &["deployment.apps/nothing: ", "scale it by hand"]),
                ("resume deploy/broken", 1, &["annotation hibernate.sh/replicas is \"three\"", "from 1 to"]),
                ("deploy/precious", 3, &["deployment.apps/precious: it is protected", "hibernate.sh/protected"]),
                ("sts/db --dry-run=server", 3, &volumes),
                ("sts --all --yes", 3, &volumes),
                ("deploy/precious deploy/missing", 1, &["it is protected", "deployment.apps/missing not found"]),
            ])
            .await?;
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
    in_namespace(World::shared().await?, async |shell| {
        let kkp = Objects::of(&shell, KKP);
        kkp.create("workers", machines(10)).await?;
        let target = "machinedeployment.cluster.k8s.io/workers";
        let mut contended = 0;
        for round in 1..=8_u64 {
            let scale = async {
                for step in 0..40 {
                    // Scaling as a person does it: only while it is awake, from the version that was seen.
                    let seen = kkp.0.get("workers").await?;
                    if seen.data["spec"]["replicas"] == json!(0) {
                        break;
                    }
                    let version = json!({ "resourceVersion": seen.metadata.resource_version });
                    let patch = json!({ "metadata": version, "spec": { "replicas": 100 * round + step } });
                    contended += u32::from(kkp.patch("workers", &patch).await.is_err());
                }
                anyhow::Ok(())
            };
            let (scaled, slept) = tokio::join!(scale, shell.run(target));
            scaled?;
            let slept = slept?;
            let (replicas, record) = kkp.replicas("workers").await?;
            if slept.code == 0 {
                let count = record.clone().unwrap_or_default();
                assert_eq!(replicas, 0);
                let said = format!("({count} replicas recorded)");
                assert!(slept.stdout.contains(&said), "{} but {record:?}", slept.stdout);
                let is_known = count == "10" || (100 * round..100 * round + 40).contains(&count.parse()?);
                assert!(is_known || round > 1, "{count}");
                shell.ok(&format!("resume {target}")).await?;
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
    in_namespace(World::shared().await?, async |shell| {
        let deployments = Objects::of(&shell, DEPLOYMENT);
        deployments.create("web", pods(3)).await?;
        let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" });
        let scalers = Objects::of(&shell, ("autoscaling/v2", "HorizontalPodAutoscaler"));
        scalers.create("auto", json!({ "scaleTargetRef": target, "maxReplicas": 5 })).await?;
        let labels = json!({ "metadata": { "labels": { "kustomize.toolkit.fluxcd.io/name": "apps" } } });
        deployments.patch("web", &labels).await?;
        let scales = "horizontalpodautoscaler/auto scales deployment.apps/web: it stands still at 0 replicas";
        let deploys = "kustomization/apps (Flux) deploys deployment.apps/web";
        let plan = shell.ok("plan deploy/web").await?;
        assert!(plan.contains(scales) && plan.contains(deploys), "{plan}");
        // The last one finds it asleep.
        for more in [" --dry-run=client", " --dry-run=server", "", " -v"] {
            let ran = shell.run(&format!("deploy/web{more}")).await?;
            ran.says(0, &["Warning: kustomization/apps", scales, deploys])?;
            ensure!(!ran.stderr.contains("cannot list"), "a hub without KEDA lacks nothing: {}", ran.stderr);
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
    in_namespace(World::shared().await?, async |shell| {
        let deployments = Objects::of(&shell, DEPLOYMENT);
        apply(&deployments, 3).await?;
        shell.ok("deploy/web").await?;
        let refused = apply(&deployments, 3).await;
        let is_conflict = matches!(&refused, Err(kube::Error::Api(status)) if status.code == 409);
        assert!(is_conflict, "nothing wakes it by the way: {refused:?}");
        shell.prints("resume deploy/web", "deployment.apps/web resumed (3 replicas)\n").await?;
        apply(&deployments, 4).await?;
        assert_eq!(deployments.replicas("web").await?, (4, None));

        // A count that others have scaled over is restored, and called stale.
        shell.ok("deploy/web").await?;
        for replicas in [5, 0] {
            shell.kubectl(&format!("scale deploy/web --replicas={replicas}")).await?;
        }
        let woken = shell.ok("resume deploy/web").await?;
        let begin = "deployment.apps/web resumed (4 replicas; recorded by kubectl-hibernate at 2";
        assert!(woken.starts_with(begin) && woken.ends_with("Z, scaled by others since)\n"), "{woken}");
        apply(&deployments, 3).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn waiting_ends_when_the_workloads_own_controller_is_done() -> Result<()> {
    in_namespace(World::shared().await?, async |shell| {
        // Deployments are scaled by the real controller of the hub; no kubelet runs, so that its Pods never become
        // ready.
        Objects::of(&shell, DEPLOYMENT).create("web", pods(3)).await?;
        eventually(SOON, "Pods", async || {
            ensure_that(shell.kubectl("get deploy web -o jsonpath={.status.replicas}").await?, |found| found == "3")
        })
        .await?;
        let timed_out = "error: deployment.apps/web: timed out after 3s: 0 of 3 replicas ready";
        shell
            .each(&[
                ("deploy/web --wait --timeout 2m", 0, &["\ndeployment.apps/web asleep after "]),
                ("resume deploy/web --wait --timeout 3s", 4, &[timed_out]),
            ])
            .await
    })
    .await
}

#[tokio::test]
async fn a_dry_run_changes_nothing() -> Result<()> {
    in_namespace(World::shared().await?, async |shell| {
        let deployments = Objects::of(&shell, DEPLOYMENT);
        deployments.create("web", pods(3)).await?;
        let before = deployments.0.get("web").await?.data["spec"].clone();
        for (strategy, suffix) in [("client", "(dry run)"), ("server", "(server dry run)")] {
            let line = format!("deploy/web --dry-run={strategy}");
            let text = format!("deployment.apps/web hibernated (3 replicas recorded) {suffix}\n");
            shell.prints(&line, &text).await?;
            let object = shell.json(&format!("{line} -o json")).await?;
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
    in_namespace(World::shared().await?, async |shell| {
        let deployments = Objects::of(&shell, DEPLOYMENT);
        for name in ["a", "b", "c"] {
            deployments.create(name, pods(2)).await?;
        }
        deployments.patch("a", &json!({ "metadata": { "labels": { "team": "blue" } } })).await?;
        let nothing = shell.run("--all").await?;
        assert_eq!((nothing.code, nothing.stderr), (0, format!("No resources found in {} namespace.\n", shell.ns)));
        shell.prints("deploy -l team=blue -o name", "deployment.apps/a\n").await?;
        let all = shell.ok("deploy,sts --all").await?;
        assert_eq!(all.lines().filter(|line| line.contains("hibernated (2 replicas recorded)")).count(), 2, "{all}");
        assert!(all.contains("deployment.apps/a unchanged"), "{all}");
        shell.prints("status deploy -o name", "deployment.apps/a\ndeployment.apps/b\ndeployment.apps/c\n").await?;
        shell.ok("resume deploy/b").await?;
        shell.prints("status deploy -o name", "deployment.apps/a\ndeployment.apps/c\n").await?;
        deployments.create("idle", pods(0)).await?;
        let woken = [
            "deployment.apps/a resumed (2 replicas)\n",
            "deployment.apps/idle unchanged (0 replicas, none recorded)\n",
        ];
        shell.each(&[("resume deploy --all", 0, &woken)]).await
    })
    .await
}
