//! The plugin puts a whole namespace to sleep on a bare hub: neither webhook nor controller runs.

use anyhow::Result;
use serde_json::{Value, json};
use testbed::{Options, Ran, World, apply, with_temp_ns};

fn object(ns: &str, kind: (&str, &str), name: &str, spec: &Value) -> Value {
    let metadata = json!({ "name": name, "namespace": ns });
    json!({ "apiVersion": kind.0, "kind": kind.1, "metadata": metadata, "spec": spec })
}

const DEPLOYMENT: (&str, &str) = ("apps/v1", "Deployment");
const STATEFUL_SET: (&str, &str) = ("apps/v1", "StatefulSet");

/// The template of Pods that never start: no kubelet runs.
fn template() -> Value {
    json!({
        "metadata": { "labels": { "app": "x" } },
        "spec": { "containers": [{ "name": "x", "image": "registry.test/x" }] },
    })
}

fn pods(replicas: u32) -> Value {
    json!({ "replicas": replicas, "selector": { "matchLabels": { "app": "x" } }, "template": template() })
}

fn stateful(replicas: u32) -> Value {
    let mut spec = pods(replicas);
    spec["serviceName"] = json!("x");
    spec
}

fn job() -> Value {
    let mut template = template();
    template["spec"]["restartPolicy"] = json!("Never");
    json!({ "template": template })
}

/// One that is due once a year.
fn cron_job(suspend: bool) -> Value {
    json!({ "schedule": "0 0 1 1 *", "suspend": suspend, "jobTemplate": { "spec": job() } })
}

/// A line for each workload: replicas or `spec.suspend`.
async fn state(world: &World, ns: &str) -> Result<Vec<String>> {
    let path = r#"jsonpath={range .items[*]}{.kind}/{.metadata.name} {.spec.replicas}{.spec.suspend}{"\n"}{end}"#;
    let found = world.kubectl(&["get", "deploy,sts,cj", "-n", ns, "-o", path]).await?.ok()?;
    Ok(found.lines().map(str::to_owned).collect())
}

/// `idle Hibernating`: what `status ns/...` shows of each workload.
async fn shown(world: &World, ns: &str, field: &str) -> Result<Vec<String>> {
    let list = world.plugin(&["status", &format!("ns/{ns}"), "-o", "json"]).await?.json()?;
    let text = |item: &Value, key: &str| item[key].as_str().unwrap_or("-").to_owned();
    let items = list["items"].as_array().cloned().unwrap_or_default();
    Ok(items.iter().map(|item| format!("{} {}", text(item, "name"), text(item, field))).collect())
}

async fn create(world: &World, ns: &str) -> Result<()> {
    world.kubectl(&["create", "configmap", "owner", "-n", ns]).await?.ok()?;
    let uid = world.kubectl(&["get", "configmap", "owner", "-n", ns, "-o", "jsonpath={.metadata.uid}"]).await?.ok()?;
    let mut owned = object(ns, STATEFUL_SET, "owned", &stateful(2));
    let owner = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "controller": true });
    owned["metadata"]["ownerReferences"] = json!([owner]);
    let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" });
    let scaler = json!({ "scaleTargetRef": target, "maxReplicas": 5 });
    let agent = json!({ "selector": { "matchLabels": { "app": "x" } }, "template": template() });
    let objects = [
        object(ns, DEPLOYMENT, "web", &pods(3)),
        object(ns, DEPLOYMENT, "idle", &pods(0)),
        owned,
        object(ns, ("autoscaling/v2", "HorizontalPodAutoscaler"), "auto", &scaler),
        object(ns, ("batch/v1", "CronJob"), "report", &cron_job(false)),
        object(ns, ("batch/v1", "CronJob"), "paused", &cron_job(true)),
        object(ns, ("batch/v1", "Job"), "import", &job()),
        object(ns, ("apps/v1", "DaemonSet"), "agent", &agent),
        object(ns, ("apps/v1", "ReplicaSet"), "old", &pods(1)),
        object(ns, ("v1", "Pod"), "bare", &template()["spec"]),
    ];
    apply::all(&world.hub().await?, &objects).await
}

const AWAKE: [&str; 5] =
    ["Deployment/idle 0", "Deployment/web 3", "StatefulSet/owned 2", "CronJob/paused true", "CronJob/report false"];
const ASLEEP: [&str; 5] =
    ["Deployment/idle 0", "Deployment/web 0", "StatefulSet/owned 0", "CronJob/paused true", "CronJob/report true"];

fn lines(ran: &Ran) -> Vec<&str> {
    ran.stdout.lines().collect()
}

#[tokio::test]
async fn a_whole_namespace_sleeps_and_wakes_to_what_it_was() -> Result<()> {
    let world = World::shared_with(Options::bare_hub()).await?;
    with_temp_ns(&world, async |_, ns| {
        create(&world, &ns).await?;
        let target = format!("ns/{ns}");
        assert_eq!(state(&world, &ns).await?, AWAKE);

        let tried = world.plugin(&[&target, "--dry-run=server"]).await?;
        assert_eq!(tried.code, 0, "{}", tried.stderr);
        assert!(lines(&tried)[1].ends_with("hibernated (3 replicas recorded) (server dry run)"), "{}", tried.stdout);
        assert_eq!(state(&world, &ns).await?, AWAKE, "a dry run changes nothing");

        let slept = world.plugin(&[&target]).await?;
        assert_eq!(slept.code, 0, "{}", slept.stderr);
        assert_eq!(
            lines(&slept),
            [
                "deployment.apps/idle unchanged (0 replicas, none recorded)",
                "deployment.apps/web hibernated (3 replicas recorded)",
                "statefulset.apps/owned hibernated (2 replicas recorded)",
                "cronjob.batch/paused already suspended (a resume leaves it so)",
                "cronjob.batch/report hibernated (suspended)",
            ]
        );
        assert!(
            slept
                .stderr
                .contains("not touched: daemonset.apps/agent, replicaset.apps/old, job.batch/import, pod/bare\n"),
            "{}",
            slept.stderr
        );
        assert!(slept.stderr.contains("horizontalpodautoscaler/auto"), "{}", slept.stderr);
        let missed = "cronjob.batch/report: a run that it misses while suspended starts as soon as it resumes";
        assert!(slept.stderr.contains(missed), "{}", slept.stderr);
        let status = world.plugin(&["status", &target]).await?;
        assert!(status.stderr.contains("not touched: daemonset.apps/agent"), "{}", status.stderr);
        assert_eq!(state(&world, &ns).await?, ASLEEP);
        let desired = shown(&world, &ns, "desired").await?;
        assert_eq!(desired.len(), 5);
        assert!(desired.iter().all(|line| line.ends_with(" Hibernating")), "{desired:?}");
        let observed = shown(&world, &ns, "observed").await?;
        assert_eq!(observed[3..], ["paused Suspended", "report Hibernating"]);
        let recorded = shown(&world, &ns, "recordedSuspend").await?;
        assert_eq!(recorded[3..], ["paused true", "report false"]);
        let again = world.plugin(&["namespace", &ns]).await?.ok()?;
        assert!(again.lines().skip(1).all(|line| line.ends_with(" unchanged")), "{again}");

        let woken = world.plugin(&["resume", &target, "--yes"]).await?;
        assert_eq!(woken.code, 0, "{}", woken.stderr);
        let missed = "warning: cronjob.batch/report: the last run that it has missed while suspended starts";
        assert!(woken.stderr.to_lowercase().contains(missed), "{}", woken.stderr);
        assert_eq!(
            lines(&woken),
            [
                "deployment.apps/idle unchanged (0 replicas, none recorded)",
                "deployment.apps/web resumed (3 replicas)",
                "statefulset.apps/owned resumed (2 replicas)",
                "cronjob.batch/paused left suspended, as it was before the sleep",
                "cronjob.batch/report resumed",
            ]
        );
        assert_eq!(state(&world, &ns).await?, AWAKE);
        let again = world.plugin(&["resume", &target]).await?.ok()?;
        assert!(again.contains("cronjob.batch/paused left suspended (nothing recorded)\n"), "{again}");
        assert_eq!(state(&world, &ns).await?, AWAKE);
        let one = world.plugin(&["cj/report", "-n", &ns, "--wait"]).await?.ok()?;
        assert!(one.contains("cronjob.batch/report suspended after "), "{one}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn one_set_whose_volumes_would_be_deleted_keeps_the_whole_namespace_awake() -> Result<()> {
    let world = World::shared_with(Options::bare_hub()).await?;
    with_temp_ns(&world, async |client, ns| {
        let mut volumes = stateful(2);
        volumes["persistentVolumeClaimRetentionPolicy"] = json!({ "whenScaled": "Delete" });
        let objects = [object(&ns, DEPLOYMENT, "web", &pods(3)), object(&ns, STATEFUL_SET, "db", &volumes)];
        apply::all(&client, &objects).await?;
        let awake = ["Deployment/web 3", "StatefulSet/db 2"];
        for more in ["--yes", "--dry-run=client", "--dry-run=server"] {
            let ran = world.plugin(&[&format!("ns/{ns}"), more]).await?;
            ran.refuses(3, &[])?;
            let refusal = "statefulset.apps/db: its persistentVolumeClaimRetentionPolicy.whenScaled is Delete";
            assert!(ran.stderr.contains(refusal), "{more}: {}", ran.stderr);
            assert!(ran.stderr.contains(&format!("nothing in namespace {ns} was changed")), "{more}: {}", ran.stderr);
            assert_eq!(state(&world, &ns).await?, awake, "{more}");
        }
        world.plugin(&["deploy/web", "-n", &ns]).await?.ok()?;
        assert_eq!(state(&world, &ns).await?, ["Deployment/web 0", "StatefulSet/db 2"], "the advice works");

        for (words, code, part) in [
            (vec!["ns/kube-system"], 3, "namespace/kube-system belongs to the control plane of the hub"),
            (vec!["resume", "ns/hive"], 3, "namespace/hive belongs to the control plane of the hub"),
            (vec!["ns/no-such-namespace"], 1, "namespace/no-such-namespace not found"),
        ] {
            let ran = world.plugin(&words).await?;
            ran.refuses(code, &[part])?;
        }
        let planned = world.plugin(&["plan", &format!("ns/{ns}")]).await?;
        assert!(planned.code == 3 && planned.stdout.contains("whenScaled is Delete"), "{planned:?}");
        Ok(())
    })
    .await
}
