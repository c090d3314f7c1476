//! The plugin puts a whole namespace to sleep on a bare hub: neither webhook nor controller runs.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testbed::{Options, World, apply};

use crate::plugin_common::{Shell, in_namespace, pods, stateful, template};

fn object(ns: &str, kind: (&str, &str), name: &str, spec: &Value) -> Value {
    let metadata = json!({ "name": name, "namespace": ns });
    json!({ "apiVersion": kind.0, "kind": kind.1, "metadata": metadata, "spec": spec })
}

const DEPLOYMENT: (&str, &str) = ("apps/v1", "Deployment");
const STATEFUL_SET: (&str, &str) = ("apps/v1", "StatefulSet");

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
async fn state(shell: &Shell) -> Result<Vec<String>> {
    let path = r#"jsonpath={range .items[*]}{.kind}/{.metadata.name} {.spec.replicas}{.spec.suspend}{"\n"}{end}"#;
    let ran = shell.world.kubectl(&["get", "deploy,sts,cj", "-n", &shell.ns, "-o", path]).await?;
    Ok(ran.ok()?.lines().map(str::to_owned).collect())
}

/// `idle Hibernating`: what `status ns/...` shows of each workload.
async fn shown(shell: &Shell, field: &str) -> Result<Vec<String>> {
    let list = shell.world.plugin(&["status", &format!("ns/{}", shell.ns), "-o", "json"]).await?.json()?;
    let text = |item: &Value, key: &str| item[key].as_str().unwrap_or("-").to_owned();
    let items = list["items"].as_array().cloned().unwrap_or_default();
    Ok(items.iter().map(|item| format!("{} {}", text(item, "name"), text(item, field))).collect())
}

async fn create(shell: &Shell) -> Result<()> {
    let ns = shell.ns.as_str();
    shell.kubectl("create configmap owner").await?;
    let uid = shell.kubectl("get configmap owner -o jsonpath={.metadata.uid}").await?;
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
    apply::all(&shell.client, &objects).await
}

const AWAKE: [&str; 5] =
    ["Deployment/idle 0", "Deployment/web 3", "StatefulSet/owned 2", "CronJob/paused true", "CronJob/report false"];
const ASLEEP: [&str; 5] =
    ["Deployment/idle 0", "Deployment/web 0", "StatefulSet/owned 0", "CronJob/paused true", "CronJob/report true"];

const UNTOUCHED: &str = "not touched: daemonset.apps/agent";
const MISSED: &str = "cronjob.batch/report: a run that it misses while suspended starts as soon as it resumes";

#[tokio::test]
async fn a_whole_namespace_sleeps_and_wakes_to_what_it_was() -> Result<()> {
    in_namespace(World::shared_with(Options::bare_hub()).await?, async |shell| {
        create(&shell).await?;
        let target = format!("ns/{}", shell.ns);
        let run = async |args: &[&str]| shell.world.plugin(args).await;
        assert_eq!(state(&shell).await?, AWAKE);

        let tried = run(&[&target, "--dry-run=server"]).await?.ok()?;
        let line = tried.lines().nth(1).unwrap_or_default();
        assert!(line.ends_with("hibernated (3 replicas recorded) (server dry run)"), "{tried}");
        assert_eq!(state(&shell).await?, AWAKE, "a dry run changes nothing");

        let slept = run(&[&target]).await?;
        let all = format!("{UNTOUCHED}, replicaset.apps/old, job.batch/import, pod/bare\n");
        slept.says(0, &[&all, "horizontalpodautoscaler/auto", MISSED])?;
        assert_eq!(
            slept.stdout,
            "deployment.apps/idle unchanged (0 replicas, none recorded)\n\
             deployment.apps/web hibernated (3 replicas recorded)\n\
             statefulset.apps/owned hibernated (2 replicas recorded)\n\
             cronjob.batch/paused already suspended (a resume leaves it so)\n\
             cronjob.batch/report hibernated (suspended)\n"
        );
        run(&["status", &target]).await?.says(0, &[UNTOUCHED])?;
        assert_eq!(state(&shell).await?, ASLEEP);
        let desired = shown(&shell, "desired").await?;
        assert!(desired.len() == 5 && desired.iter().all(|line| line.ends_with(" Hibernating")), "{desired:?}");
        assert_eq!(shown(&shell, "observed").await?[3..], ["paused Suspended", "report Hibernating"]);
        assert_eq!(shown(&shell, "recordedSuspend").await?[3..], ["paused true", "report false"]);
        let again = run(&["namespace", &shell.ns]).await?.ok()?;
        assert!(again.lines().skip(1).all(|line| line.ends_with(" unchanged")), "{again}");

        let woken = run(&["resume", &target, "--yes"]).await?;
        let missed = "warning: cronjob.batch/report: the last run that it has missed while suspended starts";
        assert!(woken.code == 0 && woken.stderr.to_lowercase().contains(missed), "{woken:?}");
        assert_eq!(
            woken.stdout,
            "deployment.apps/idle unchanged (0 replicas, none recorded)\n\
             deployment.apps/web resumed (3 replicas)\n\
             statefulset.apps/owned resumed (2 replicas)\n\
             cronjob.batch/paused left suspended, as it was before the sleep\n\
             cronjob.batch/report resumed\n"
        );
        assert_eq!(state(&shell).await?, AWAKE);
        let again = run(&["resume", &target]).await?.ok()?;
        assert!(again.contains("cronjob.batch/paused left suspended (nothing recorded)\n"), "{again}");
        assert_eq!(state(&shell).await?, AWAKE);
        shell.each(&[("cj/report --wait", 0, &["cronjob.batch/report suspended after "])]).await
    })
    .await
}

#[tokio::test]
async fn one_set_whose_volumes_would_be_deleted_keeps_the_whole_namespace_awake() -> Result<()> {
    in_namespace(World::shared_with(Options::bare_hub()).await?, async |shell| {
        let (target, ns) = (format!("ns/{}", shell.ns), shell.ns.as_str());
        let mut volumes = stateful(2);
        volumes["persistentVolumeClaimRetentionPolicy"] = json!({ "whenScaled": "Delete" });
        let objects = [object(ns, DEPLOYMENT, "web", &pods(3)), object(ns, STATEFUL_SET, "db", &volumes)];
        apply::all(&shell.client, &objects).await?;
        let refusal = "statefulset.apps/db: its persistentVolumeClaimRetentionPolicy.whenScaled is Delete";
        for more in ["--yes", "--dry-run=client", "--dry-run=server"] {
            let ran = shell.world.plugin(&[&target, more]).await?;
            ran.refuses(3, &[refusal, &format!("nothing in namespace {ns} was changed")])?;
            assert_eq!(state(&shell).await?, ["Deployment/web 3", "StatefulSet/db 2"], "{more}");
        }
        shell.ok("deploy/web").await?;
        assert_eq!(state(&shell).await?, ["Deployment/web 0", "StatefulSet/db 2"], "the advice works");

        let of_hub = "belongs to the control plane of the hub";
        for (line, code, part) in [
            ("ns/kube-system", 3, format!("namespace/kube-system {of_hub}")),
            ("resume ns/hive", 3, format!("namespace/hive {of_hub}")),
            ("ns/no-such-namespace", 1, "namespace/no-such-namespace not found".to_owned()),
        ] {
            shell.world.plugin(&line.split(' ').collect::<Vec<_>>()).await?.refuses(code, &[&part])?;
        }
        let planned = shell.world.plugin(&["plan", &target]).await?;
        ensure!(planned.code == 3 && planned.stdout.contains("whenScaled is Delete"), "{planned:?}");
        Ok(())
    })
    .await
}
