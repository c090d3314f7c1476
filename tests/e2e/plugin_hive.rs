//! The plugin and clusters of Hive on a real hub. Hive is played by the test, on a platform that our controller leaves
//! alone.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use shared::annotation::keys;
use shared::hive::api::ClusterDeployment;
use testbed::check::webhook_only;
use testbed::{Ran, World, ensure_that, eventually};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::hive_common::{SOON, create};
use crate::plugin_common::{Shell, in_namespace};

type Clusters = Api<ClusterDeployment>;

/// An installed cluster that runs, as plain Hive shows it, with changes merged into it.
async fn cluster(clusters: &Clusters, name: &str, change: Value) -> Result<ClusterDeployment> {
    let made = create(clusters, name, "gcp", &change).await?;
    hive_says(clusters, name, &json!({ "powerState": "Running", "conditions": running() })).await?;
    Ok(made)
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({
        "type": type_, "status": status, "reason": reason, "message": message,
        "lastProbeTime": now, "lastTransitionTime": now,
    })
}

fn running() -> Value {
    let message = "Cluster is resuming or running, see Ready condition for details";
    json!([
        condition("Hibernating", "False", "ResumingOrRunning", message),
        condition("Ready", "True", "Running", "Cluster is running"),
    ])
}

/// It runs, and our controller has checked it.
fn checked() -> Value {
    let mut conditions = running();
    if let Some(conditions) = conditions.as_array_mut() {
        conditions.push(condition("HibernationPreflight", "True", "Clear", "info Credentials: they work"));
    }
    json!({ "conditions": conditions })
}

/// What Hive writes while machines stop, and when they have.
fn stopping(names: &str) -> Value {
    let message = format!("Stopping cluster machines. Some machines have not yet stopped: {names}");
    json!({ "powerState": "WaitingForMachinesToStop", "conditions": [
        condition("Hibernating", "False", "WaitingForMachinesToStop", &message),
        condition("Ready", "False", "StoppingOrHibernating", "Cluster is shutting down or hibernating"),
    ] })
}

fn stopped() -> Value {
    json!({ "powerState": "Hibernating", "conditions": [
        condition("Hibernating", "True", "Hibernating", "Cluster is stopped"),
        condition("Ready", "False", "StoppingOrHibernating", "Cluster is shutting down or hibernating"),
    ] })
}

async fn hive_says(clusters: &Clusters, name: &str, status: &Value) -> Result<()> {
    let patch = json!({ "status": status });
    clusters.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

fn requests(stderr: &str) -> Vec<&str> {
    stderr.lines().filter_map(|line| line.split_once(" https://").map(|(method, _)| method)).collect()
}

/// Runs a test in a namespace of a hub with our webhook.
async fn on_hub(test: impl AsyncFnOnce(Shell, Clusters) -> Result<()>) -> Result<()> {
    in_namespace(World::shared_with(webhook_only()).await?, async |shell| {
        let clusters = Api::namespaced(shell.client.clone(), &shell.ns);
        test(shell, clusters).await
    })
    .await
}

/// Runs a line that waits, and does something once all of these clusters are to sleep.
async fn meanwhile(
    (shell, clusters): (&Shell, &Clusters),
    line: &str,
    names: &[&str],
    act: impl AsyncFnOnce() -> Result<()>,
) -> Result<Ran> {
    let acts = async {
        for name in names {
            eventually(SOON, "wish", async || {
                ensure_that(clusters.get(name).await?.spec.power_state, |wish| wish.as_deref() == Some("Hibernating"))
            })
            .await?;
        }
        act().await
    };
    Ok(tokio::try_join!(shell.run(line), acts)?.0)
}

const PAUSE: Duration = Duration::from_millis(700);
/// Begins what is printed about `demo`.
const DEMO: &str = "clusterdeployment.hive.openshift.io/demo";

#[tokio::test]
async fn sleeping_and_waking_is_one_read_and_one_small_write() -> Result<()> {
    on_hub(async |shell, clusters| {
        cluster(&clusters, "demo", json!({})).await?;
        let ran = shell.run("cd/demo --reason weekend -v").await?;
        assert_eq!(ran.stdout, format!("{DEMO} hibernation requested\n"), "{}", ran.stderr);
        assert_eq!(requests(&ran.stderr), ["GET", "PATCH"]);
        let asleep = clusters.get("demo").await?;
        assert_eq!(asleep.spec.power_state.as_deref(), Some("Hibernating"));
        assert_eq!(asleep.annotations().get(keys::REASON).map(String::as_str), Some("weekend"));
        let ours = asleep.managed_fields().iter().find(|entry| entry.manager.as_deref() == Some(keys::PLUGIN));
        let fields = &ours.context("a field manager of the plugin")?.fields_v1.as_ref().context("fields")?.0;
        assert_eq!(fields["f:spec"], json!({ "f:powerState": {} }), "nothing else of the spec is written");
        let item = shell.status("demo").await?;
        assert_eq!((&item["requestedBy"], &item["reason"]), (&json!("admin"), &json!("weekend")));
        assert!(item["requestedAt"].as_str().is_some_and(|at| at.parse::<Timestamp>().is_ok()), "{item}");

        let again = shell.run("cd/demo -v").await?;
        assert_eq!(again.stdout, format!("{DEMO} unchanged\n"));
        assert_eq!(requests(&again.stderr), ["GET"]);
        assert_eq!(clusters.get("demo").await?.resource_version(), asleep.resource_version());

        shell.prints("wake demo", &format!("{DEMO} resume requested\n")).await?;
        let awake = clusters.get("demo").await?;
        assert_eq!(awake.spec.power_state.as_deref(), Some("Running"));
        assert!(!awake.annotations().contains_key(keys::REASON), "the reason of the sleep does not survive");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn targets_are_reported_in_order_and_one_failure_stops_no_other() -> Result<()> {
    on_hub(async |shell, clusters| {
        for name in ["a1", "a2", "a3"] {
            cluster(&clusters, name, json!({ "metadata": { "labels": { "team": "blue" } } })).await?;
        }
        let ran = shell.run("a3 a4 a1 cd/a2 a1 -o name").await?;
        let names = ["a3", "a1", "a2"].map(|name| format!("clusterdeployment.hive.openshift.io/{name}\n"));
        assert_eq!(ran.stdout, names.concat());
        ran.says(1, &[r#"target "a4" not found"#, "did you mean a1 or a2 or a3?"])?;
        let woken = shell.world.plugin(&["resume", "-l", "team=blue", "-A"]).await?.ok()?;
        let requested = format!("resume requested (namespace {})", shell.ns);
        assert_eq!(woken.lines().filter(|line| line.ends_with(&requested)).count(), 3, "{woken}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn refusals_by_webhook_and_schema_are_exit_code_3_and_missing_rights_are_not() -> Result<()> {
    on_hub(async |shell, clusters| {
        let annotations = |key: &str, value: &str| json!({ "metadata": { "annotations": { key: value } } });
        cluster(&clusters, "prod", annotations(keys::PROTECTED, "true")).await?;
        // The API server refuses more than 256 KiB of annotations before any webhook is asked.
        cluster(&clusters, "full", annotations("example.com/notes", &"x".repeat(200 * 1024))).await?;
        let full = format!("cd/full --reason {}", "y".repeat(100 * 1024));
        shell
            .refused(&[("cd/prod", 3, &["refused by admission webhook"]), (&full, 3, &["refused by the schema"])])
            .await?;
        // A refusal and another failure are an error.
        shell.each(&[("cd/prod cd/missing", 1, &[])]).await?;
        for name in ["prod", "full"] {
            assert_eq!(clusters.get(name).await?.spec.power_state, None);
        }

        shell.kubectl("create role r --verb=get --resource=clusterdeployments.hive.openshift.io").await?;
        shell.kubectl("create rolebinding r --role=r --user=reader").await?;
        let reader = r#"User "reader" cannot patch resource "clusterdeployments""#;
        shell
            .each(&[
                ("cd/prod --as nobody", 1, &[r#"User "nobody" cannot get resource "clusterdeployments""#]),
                ("cd/prod --as reader", 1, &[reader]),
                ("cd/prod --token wrong", 1, &["401 Unauthorized", "log in again"]),
            ])
            .await
    })
    .await
}

#[tokio::test]
async fn warnings_of_the_webhook_are_shown_as_kubectl_shows_them() -> Result<()> {
    on_hub(async |shell, clusters| {
        for name in ["demo", "one", "two"] {
            cluster(&clusters, name, json!({ "spec": { "installed": false } })).await?;
        }
        let sleep = r#"{"spec":{"powerState":"Hibernating"}}"#;
        let patch = ["patch", "cd", "demo", "-n", &shell.ns, "--type=merge", "--dry-run=server", "-p", sleep];
        let kubectl = shell.world.kubectl(&patch).await?;
        let ran = shell.run("cd/demo").await?;
        assert_eq!(ran.stdout, format!("{DEMO} hibernation requested\n"), "{}", ran.stderr);
        assert!(ran.stderr.starts_with("Warning: "), "{}", ran.stderr);
        assert_eq!(ran.stderr, kubectl.stderr);

        let both = shell.run("cd/one cd/two").await?;
        for name in ["one", "two"] {
            let of = format!("Warning: clusterdeployment.hive.openshift.io/{name}: the cluster is not installed yet");
            assert!(both.stderr.lines().any(|line| line.starts_with(&of)), "each has its own: {}", both.stderr);
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn waiting_follows_hive_step_by_step() -> Result<()> {
    on_hub(async |shell, clusters| {
        cluster(&clusters, "demo", json!({})).await?;
        let ran = meanwhile((&shell, &clusters), "cd/demo --wait --timeout 2m", &["demo"], async || {
            for status in [stopping("i-1,i-2"), stopping("i-2"), stopped()] {
                tokio::time::sleep(PAUSE).await;
                hive_says(&clusters, "demo", &status).await?;
            }
            Ok(())
        })
        .await?;
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let lines: Vec<&str> = ran.stdout.lines().collect();
        assert_eq!(lines[0], format!("{DEMO} hibernation requested"));
        assert!(lines[1].starts_with(&format!("{DEMO} hibernating after ")), "{lines:?}");
        let steps: Vec<&str> =
            ran.stderr.lines().filter_map(|line| Some(line.split_once(": ")?.1.rsplit_once(" (")?.0)).collect();
        let stopping = "Stopping cluster machines. Some machines have not yet stopped";
        let [first, second] = ["i-1,i-2", "i-2"].map(|names| format!("{stopping}: {names}"));
        assert_eq!(steps, ["waiting for a controller to reconcile", &first, &second], "{ran:?}");
        let already = shell.ok("cd/demo --wait").await?;
        assert!(already.ends_with(&format!("demo unchanged\n{DEMO} already hibernating\n")), "{already}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn waiting_gives_up_in_time_and_when_somebody_decides_otherwise() -> Result<()> {
    on_hub(async |shell, clusters| {
        for name in ["stuck", "contested", "gone", "running"] {
            cluster(&clusters, name, json!({})).await?;
        }
        let elsewhere = shell.ok("resume cd/running --wait --timeout 2m").await?;
        assert!(elsewhere.contains("running"), "a cluster that our controller never served: {elsewhere}");
        hive_says(&clusters, "running", &checked()).await?;
        hive_says(&clusters, "stuck", &stopping("i-9")).await?;
        let cause = "clusterdeployment.hive.openshift.io/running: timed out after 2s: waiting for a check of its machines: \
                     hibernate-controller has not answered; is it running, and does it serve the platform gcp?";
        let slow = ["timed out after 2s: Stopping cluster machines.", "i-9"];
        shell.each(&[("resume cd/running --wait --timeout 2s", 4, &[cause]), ("cd/stuck --wait --timeout 2s", 4, &slow)]).await?;

        let both = "cd/contested cd/gone --wait --timeout 2m";
        let ran = meanwhile((&shell, &clusters), both, &["contested", "gone"], async || {
            tokio::time::sleep(PAUSE).await;
            let awake = json!({ "spec": { "powerState": "Running" } });
            clusters.patch("contested", &PatchParams::default(), &Patch::Merge(awake)).await?;
            clusters.delete("gone", &kube::api::DeleteParams::default()).await?;
            Ok(())
        })
        .await?;
        ran.says(1, &["spec.powerState was changed to Running"])?;
        let gone = ["it does not exist any more", "it is being deleted"];
        assert!(gone.iter().any(|words| ran.stderr.contains(words)), "{ran:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn status_reads_plain_hive_and_follows_it() -> Result<()> {
    on_hub(async |shell, clusters| {
        cluster(&clusters, "demo", json!({ "spec": { "hibernateAfter": "8h" } })).await?;
        cluster(&clusters, "other", json!({})).await?;
        hive_says(&clusters, "other", &stopped()).await?;
        let table = shell.ok("status").await?;
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["NAME", "DESIRED", "STATE", "SINCE", "REQUESTED-BY", "REASON", "STEP"]);
        assert_eq!(lines[1][..3], ["demo", "Running", "Running"]);
        assert_eq!(lines[2][..3], ["other", "Running", "Hibernating"]);

        let item = shell.status("cd/demo").await?;
        assert_eq!((&item["platform"], &item["region"]), (&json!("gcp"), &json!("europe-west1")));
        let ready: Timestamp = item["since"].as_str().context("since")?.parse()?;
        let fires: Timestamp = item["firesAt"].as_str().context("firesAt")?.parse()?;
        assert_eq!(fires.duration_since(ready).as_hours(), 8);
        assert_eq!(item.get("requestedBy"), None);

        let mut command = shell.world.command(testbed::paths::program(keys::PLUGIN)?);
        command.args(["status", "cd/demo", "-n", &shell.ns, "--watch"]).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("stdout")?).lines();
        let mut next =
            async || -> Result<String> { tokio::time::timeout(SOON, lines.next_line()).await??.context("a line") };
        assert!(next().await?.starts_with("NAME"));
        assert!(next().await?.contains("Running"));
        shell.ok("cd/demo --reason tests").await?;
        let line = next().await?;
        let shown = ["Hibernating", "tests", "waiting for a controller"];
        assert!(shown.iter().all(|part| line.contains(part)), "{line}");
        hive_says(&clusters, "demo", &stopping("i-1")).await?;
        assert!(next().await?.contains("Some machines have not yet stopped: i-1"));
        child.kill().await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn kubectl_runs_and_completes_it() -> Result<()> {
    on_hub(async |shell, clusters| {
        cluster(&clusters, "demo", json!({})).await?;
        let ran = shell.kubectl("hibernate demo").await?;
        assert_eq!(ran, format!("{DEMO} hibernation requested\n"));
        let refused = shell.world.kubectl(&["hibernate", "resume", "nope", "-n", &shell.ns]).await?;
        assert_eq!(refused.code, 1, "kubectl passes the exit code on");
        let complete = async |args: &[&str]| shell.world.plugin(args).await?.ok();
        assert_eq!(complete(&["__complete", "resume", "-n", &shell.ns, "cd/d"]).await?, "cd/demo\n:4\n");
        assert_eq!(complete(&["__complete", "status", "-n", &shell.ns]).await?, format!("{}\n:4\n", shell.ns));
        Ok(())
    })
    .await
}

/// Runs the plugin on a terminal, and returns what it writes there.
async fn on_terminal(world: &World, args: &[&str]) -> Result<String> {
    let terminal = nix::pty::openpty(None, None)?;
    let mut command = world.command(testbed::paths::program(keys::PLUGIN)?);
    command.args(args).stdout(terminal.slave.try_clone()?).stderr(terminal.slave).env("TERM", "xterm");
    let mut child = command.spawn()?;
    drop(command); // the last other holder of the terminal
    let written = tokio::task::spawn_blocking(move || {
        let mut written = Vec::new();
        let _ = std::io::Read::read_to_end(&mut std::fs::File::from(terminal.master), &mut written); // ends with EIO
        String::from_utf8_lossy(&written).into_owned()
    });
    child.wait().await?;
    Ok(written.await?)
}

#[tokio::test]
async fn hostile_texts_do_not_control_the_terminal() -> Result<()> {
    const HOSTILE: &str = "\u{1b}]0;title\u{7}\u{1b}[31mevil\u{202e}\u{9b}2J";
    on_hub(async |shell, clusters| {
        let annotations = json!({ keys::REASON: HOSTILE });
        let change = json!({ "metadata": { "annotations": annotations }, "spec": { "powerState": "Hibernating" } });
        cluster(&clusters, "hostile", change).await?;
        let stuck = json!([condition("Ready", "False", "WaitingForNodes", HOSTILE)]);
        hive_says(&clusters, "hostile", &json!({ "powerState": "WaitingForNodes", "conditions": stuck })).await?;
        for (args, shown) in [
            (&["status", "hostile", "-o", "wide"][..], true),
            (&["plan", "hostile"], false),
            (&["resume", "hostile", "--wait", "--timeout", "3s"], true),
        ] {
            let written = on_terminal(&shell.world, &[args, &["-n", &shell.ns]].concat()).await?;
            ensure!(!shown || written.contains("evil"), "{args:?}: {written:?}");
            for part in ["\u{1b}]0;", "\u{1b}[31mevil", "\u{7}", "\u{202e}", "\u{9b}"] {
                ensure!(!written.contains(part), "{args:?} writes {part:?}: {written:?}");
            }
        }
        let exact = shell.status("hostile").await?;
        ensure!(exact["step"]["message"] == HOSTILE, "{exact}");
        Ok(())
    })
    .await
}
