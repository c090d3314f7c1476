//! The plugin and clusters of Hive on a real hub. Hive is played by the test, on a platform that our controller leaves
//! alone.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use shared::annotation::keys;
use shared::hive::api::ClusterDeployment;
use testbed::check::webhook_only;
use testbed::{World, eventually, with_temp_ns};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::hive_common::{SOON, create};

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
    json!([
        condition(
            "Hibernating",
            "False",
            "ResumingOrRunning",
            "Cluster is resuming or running, see Ready condition for details"
        ),
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

fn clusters(client: &Client, namespace: &str) -> Clusters {
    Api::namespaced(client.clone(), namespace)
}

fn requests(stderr: &str) -> Vec<&str> {
    stderr.lines().filter_map(|line| line.split_once(" https://").map(|(method, _)| method)).collect()
}

#[tokio::test]
async fn sleeping_and_waking_is_one_read_and_one_small_write() -> Result<()> {
    let world = World::shared_with(webhook_only()).await?;
    with_temp_ns(&world, async |client, ns| {
        let clusters = clusters(&client, &ns);
        cluster(&clusters, "demo", json!({})).await?;
        let ran = world.plugin(&["cd/demo", "-n", &ns, "--reason", "weekend", "-v"]).await?;
        assert_eq!(ran.stdout, "clusterdeployment.hive.openshift.io/demo hibernation requested\n", "{}", ran.stderr);
        assert_eq!(requests(&ran.stderr), ["GET", "PATCH"]);
        let asleep = clusters.get("demo").await?;
        assert_eq!(asleep.spec.power_state.as_deref(), Some("Hibernating"));
        assert_eq!(asleep.annotations().get(keys::REASON).map(String::as_str), Some("weekend"));
        let ours = asleep.managed_fields().iter().find(|entry| entry.manager.as_deref() == Some(keys::PLUGIN));
        let fields = &ours.context("a field manager of the plugin")?.fields_v1.as_ref().context("fields")?.0;
        assert_eq!(fields["f:spec"], json!({ "f:powerState": {} }), "nothing else of the spec is written");

        let again = world.plugin(&["cd/demo", "-n", &ns, "-v"]).await?;
        assert_eq!(again.stdout, "clusterdeployment.hive.openshift.io/demo unchanged\n");
        assert_eq!(requests(&again.stderr), ["GET"]);
        assert_eq!(clusters.get("demo").await?.resource_version(), asleep.resource_version());

        let woken = world.plugin(&["wake", "demo", "-n", &ns]).await?.ok()?;
        assert_eq!(woken, "clusterdeployment.hive.openshift.io/demo resume requested\n");
        let awake = clusters.get("demo").await?;
        assert_eq!(awake.spec.power_state.as_deref(), Some("Running"));
        assert!(!awake.annotations().contains_key(keys::REASON), "the reason of the sleep does not survive");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn targets_are_reported_in_order_and_one_failure_stops_no_other() -> Result<()> {
    let world = World::shared_with(webhook_only()).await?;
    with_temp_ns(&world, async |client, ns| {
        let clusters = clusters(&client, &ns);
        for name in ["a1", "a2", "a3"] {
            cluster(&clusters, name, json!({ "metadata": { "labels": { "team": "blue" } } })).await?;
        }
        let ran = world.plugin(&["a3", "a4", "a1", "cd/a2", "a1", "-n", &ns, "-o", "name"]).await?;
        assert_eq!(ran.code, 1);
        let names = ["a3", "a1", "a2"].map(|name| format!("clusterdeployment.hive.openshift.io/{name}\n"));
        assert_eq!(ran.stdout, names.concat());
        assert!(ran.stderr.contains(r#"target "a4" not found"#) && ran.stderr.contains("did you mean a1 or a2 or a3?"));
        let woken = world.plugin(&["resume", "-l", "team=blue", "-A"]).await?.ok()?;
        let requested = format!("resume requested (namespace {ns})");
        assert_eq!(woken.lines().filter(|line| line.ends_with(&requested)).count(), 3, "{woken}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn refusals_by_webhook_and_schema_are_exit_code_3_and_missing_rights_are_not() -> Result<()> {
    let world = World::shared_with(webhook_only()).await?;
    with_temp_ns(&world, async |client, ns| {
        let clusters = clusters(&client, &ns);
        let annotations = |key: &str, value: &str| json!({ "metadata": { "annotations": { key: value } } });
        cluster(&clusters, "prod", annotations(keys::PROTECTED, "true")).await?;
        // The API server refuses more than 256 KiB of annotations before any webhook is asked.
        cluster(&clusters, "full", annotations("example.com/notes", &"x".repeat(200 * 1024))).await?;
        let long = "y".repeat(100 * 1024);
        for (args, by) in [
            (vec!["cd/prod"], "refused by admission webhook"),
            (vec!["cd/full", "--reason", &long], "refused by the schema"),
        ] {
            let ran = world.plugin(&[&args[..], &["-n", &ns]].concat()).await?;
            ran.refuses(3, &[by])?;
        }
        let both = world.plugin(&["cd/prod", "cd/missing", "-n", &ns]).await?;
        assert_eq!(both.code, 1, "a refusal and another failure are an error");
        for name in ["prod", "full"] {
            assert_eq!(clusters.get(name).await?.spec.power_state, None);
        }

        let blind = world.plugin(&["cd/prod", "-n", &ns, "--as", "nobody"]).await?;
        blind.says(1, &[r#"User "nobody" cannot get resource "clusterdeployments""#])?;
        let role = ["create", "role", "r", "--verb=get", "--resource=clusterdeployments.hive.openshift.io", "-n", &ns];
        world.kubectl(&role).await?.ok()?;
        world.kubectl(&["create", "rolebinding", "r", "--role=r", "--user=reader", "-n", &ns]).await?.ok()?;
        let reader = world.plugin(&["cd/prod", "-n", &ns, "--as", "reader"]).await?;
        reader.says(1, &[r#"User "reader" cannot patch resource "clusterdeployments""#])?;
        let stranger = world.plugin(&["cd/prod", "-n", &ns, "--token", "wrong"]).await?;
        stranger.says(1, &["401 Unauthorized", "log in again"])?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn warnings_of_the_webhook_are_shown_as_kubectl_shows_them() -> Result<()> {
    let world = World::shared_with(webhook_only()).await?;
    with_temp_ns(&world, async |client, ns| {
        let clusters = clusters(&client, &ns);
        cluster(&clusters, "new", json!({ "spec": { "installed": false } })).await?;
        let sleep = r#"{"spec":{"powerState":"Hibernating"}}"#;
        let patch = ["patch", "cd", "new", "-n", &ns, "--type=merge", "--dry-run=server", "-p", sleep];
        let kubectl = world.kubectl(&patch).await?;
        let ran = world.plugin(&["cd/new", "-n", &ns]).await?;
        assert_eq!(ran.stdout, "clusterdeployment.hive.openshift.io/new hibernation requested\n", "{}", ran.stderr);
        assert!(ran.stderr.starts_with("Warning: "), "{}", ran.stderr);
        assert_eq!(ran.stderr, kubectl.stderr);

        for name in ["one", "two"] {
            cluster(&clusters, name, json!({ "spec": { "installed": false } })).await?;
        }
        let both = world.plugin(&["cd/one", "cd/two", "-n", &ns]).await?;
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
    let world = World::shared_with(webhook_only()).await?;
    with_temp_ns(&world, async |client, ns| {
        let clusters = clusters(&client, &ns);
        cluster(&clusters, "demo", json!({})).await?;
        let waiting = tokio::spawn({
            let (world, ns) = (world.clone(), ns.clone());
            async move { world.plugin(&["cd/demo", "-n", &ns, "--wait", "--timeout", "60s"]).await }
        });
        eventually(SOON, "wish", async || {
            let wish = clusters.get("demo").await?.spec.power_state;
            anyhow::ensure!(wish.as_deref() == Some("Hibernating"), "{wish:?}");
            Ok(())
        })
        .await?;
        for status in [stopping("i-1,i-2"), stopping("i-2"), stopped()] {
            tokio::time::sleep(Duration::from_millis(700)).await;
            hive_says(&clusters, "demo", &status).await?;
        }
        let ran = waiting.await??;
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let lines: Vec<&str> = ran.stdout.lines().collect();
        assert_eq!(lines[0], "clusterdeployment.hive.openshift.io/demo hibernation requested");
        assert!(lines[1].starts_with("clusterdeployment.hive.openshift.io/demo hibernating after "), "{lines:?}");
        let steps: Vec<&str> =
            ran.stderr.lines().filter_map(|line| Some(line.split_once(": ")?.1.rsplit_once(" (")?.0)).collect();
        let stopping = "Stopping cluster machines. Some machines have not yet stopped";
        assert_eq!(
            steps,
            ["waiting for a controller to reconcile", &format!("{stopping}: i-1,i-2"), &format!("{stopping}: i-2")],
            "{ran:?}"
        );
        let already = world.plugin(&["cd/demo", "-n", &ns, "--wait"]).await?.ok()?;
        assert!(
            already.ends_with("demo unchanged\nclusterdeployment.hive.openshift.io/demo already hibernating\n"),
            "{already}"
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn waiting_gives_up_in_time_and_when_somebody_decides_otherwise() -> Result<()> {
    let world = World::shared_with(webhook_only()).await?;
    with_temp_ns(&world, async |client, ns| {
        let clusters = clusters(&client, &ns);
        for name in ["stuck", "contested", "gone", "running"] {
            cluster(&clusters, name, json!({})).await?;
        }
        let resume = ["resume", "cd/running", "-n", &ns, "--wait", "--timeout", "2s"];
        let elsewhere = world.plugin(&resume).await?.ok()?;
        assert!(elsewhere.contains("running"), "a cluster that our controller never served: {elsewhere}");
        hive_says(&clusters, "running", &checked()).await?;
        let unanswered = world.plugin(&resume).await?;
        assert_eq!(unanswered.code, 4, "{}", unanswered.stderr);
        let cause = "clusterdeployment.hive.openshift.io/running: timed out after 2s: waiting for a check of its machines: \
                     hibernate-controller has not answered; is it running, and does it serve the platform gcp?";
        assert!(unanswered.stderr.contains(cause), "{}", unanswered.stderr);
        hive_says(&clusters, "stuck", &stopping("i-9")).await?;
        let slow = world.plugin(&["cd/stuck", "-n", &ns, "--wait", "--timeout", "2s"]).await?;
        slow.says(4, &["timed out after 2s: Stopping cluster machines.", "i-9"])?;

        let waiting = tokio::spawn({
            let (world, ns) = (world.clone(), ns.clone());
            async move { world.plugin(&["cd/contested", "cd/gone", "-n", &ns, "--wait", "--timeout", "60s"]).await }
        });
        for name in ["contested", "gone"] {
            eventually(SOON, "wish", async || {
                let wish = clusters.get(name).await?.spec.power_state;
                anyhow::ensure!(wish.as_deref() == Some("Hibernating"), "{wish:?}");
                Ok(())
            })
            .await?;
        }
        tokio::time::sleep(Duration::from_millis(700)).await;
        let awake = json!({ "spec": { "powerState": "Running" } });
        clusters.patch("contested", &PatchParams::default(), &Patch::Merge(awake)).await?;
        clusters.delete("gone", &kube::api::DeleteParams::default()).await?;
        let ran = waiting.await??;
        ran.says(1, &["spec.powerState was changed to Running"])?;
        assert!(
            ran.stderr.contains("it does not exist any more") || ran.stderr.contains("it is being deleted"),
            "{ran:?}"
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn status_reads_plain_hive_and_follows_it() -> Result<()> {
    let world = World::shared_with(webhook_only()).await?;
    with_temp_ns(&world, async |client, ns| {
        let clusters = clusters(&client, &ns);
        cluster(&clusters, "demo", json!({ "spec": { "hibernateAfter": "8h" } })).await?;
        cluster(&clusters, "other", json!({})).await?;
        hive_says(&clusters, "other", &stopped()).await?;
        let table = world.plugin(&["status", "-n", &ns]).await?.ok()?;
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["NAME", "DESIRED", "STATE", "SINCE", "REQUESTED-BY", "REASON", "STEP"]);
        assert_eq!(lines[1][..3], ["demo", "Running", "Running"]);
        assert_eq!(lines[2][..3], ["other", "Running", "Hibernating"]);

        let list = world.plugin(&["status", "cd/demo", "-n", &ns, "-o", "json"]).await?.json()?;
        let item = &list["items"][0];
        assert_eq!((&item["platform"], &item["region"]), (&json!("gcp"), &json!("europe-west1")));
        let ready: Timestamp = item["since"].as_str().context("since")?.parse()?;
        let fires: Timestamp = item["firesAt"].as_str().context("firesAt")?.parse()?;
        assert_eq!(fires.duration_since(ready).as_hours(), 8);
        assert_eq!(item.get("requestedBy"), None);

        let mut command = world.command(testbed::paths::program(keys::PLUGIN)?);
        command.args(["status", "cd/demo", "-n", &ns, "--watch"]).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("stdout")?).lines();
        let next = async |lines: &mut tokio::io::Lines<_>| -> Result<String> {
            tokio::time::timeout(SOON, lines.next_line()).await??.context("a line")
        };
        assert!(next(&mut lines).await?.starts_with("NAME"));
        assert!(next(&mut lines).await?.contains("Running"));
        let asleep = world.plugin(&["cd/demo", "-n", &ns, "--reason", "tests"]).await?;
        assert_eq!(asleep.code, 0, "{}", asleep.stderr);
        let line = next(&mut lines).await?;
        assert!(
            line.contains("Hibernating") && line.contains("tests") && line.contains("waiting for a controller"),
            "{line}"
        );
        hive_says(&clusters, "demo", &stopping("i-1")).await?;
        assert!(next(&mut lines).await?.contains("Some machines have not yet stopped: i-1"));
        child.kill().await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_webhooks_stamp_is_shown_by_status() -> Result<()> {
    let world = World::shared_with(webhook_only()).await?;
    with_temp_ns(&world, async |client, ns| {
        let clusters = clusters(&client, &ns);
        cluster(&clusters, "demo", json!({})).await?;
        world
            .plugin(&["cd/demo", "-n", &ns, "--reason", "audit", "--as", "admin", "--as-group", "system:masters"])
            .await?
            .ok()?;
        let list = world.plugin(&["status", "demo", "-n", &ns, "-o", "json"]).await?.json()?;
        let item = &list["items"][0];
        assert_eq!((&item["requestedBy"], &item["reason"]), (&json!("admin"), &json!("audit")));
        assert!(item["requestedAt"].as_str().is_some_and(|at| at.parse::<Timestamp>().is_ok()), "{item}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn kubectl_runs_and_completes_it() -> Result<()> {
    let world = World::shared_with(webhook_only()).await?;
    with_temp_ns(&world, async |client, ns| {
        cluster(&clusters(&client, &ns), "demo", json!({})).await?;
        let ran = world.kubectl(&["hibernate", "demo", "-n", &ns]).await?;
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (0, "clusterdeployment.hive.openshift.io/demo hibernation requested\n")
        );
        let refused = world.kubectl(&["hibernate", "resume", "nope", "-n", &ns]).await?;
        assert_eq!(refused.code, 1, "kubectl passes the exit code on");
        let names = world.plugin(&["__complete", "resume", "-n", &ns, "cd/d"]).await?.ok()?;
        assert_eq!(names, "cd/demo\n:4\n");
        let namespaces = world.plugin(&["__complete", "status", "-n", &ns]).await?.ok()?;
        assert_eq!(namespaces, format!("{ns}\n:4\n"));
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
    let world = World::shared_with(webhook_only()).await?;
    with_temp_ns(&world, async |client, ns| {
        let clusters = clusters(&client, &ns);
        let change = json!({
            "metadata": { "annotations": { keys::REASON: HOSTILE } },
            "spec": { "powerState": "Hibernating" },
        });
        cluster(&clusters, "hostile", change).await?;
        let stuck = json!([condition("Ready", "False", "WaitingForNodes", HOSTILE)]);
        let status = json!({ "status": { "powerState": "WaitingForNodes", "conditions": stuck } });
        clusters.patch_status("hostile", &PatchParams::default(), &Patch::Merge(status)).await?;
        for (args, shown) in [
            (&["status", "hostile", "-o", "wide"][..], true),
            (&["plan", "hostile"], false),
            (&["resume", "hostile", "--wait", "--timeout", "3s"], true),
        ] {
            let written = on_terminal(&world, &[args, &["-n", &ns]].concat()).await?;
            anyhow::ensure!(!shown || written.contains("evil"), "{args:?}: {written:?}");
            for part in ["\u{1b}]0;", "\u{1b}[31mevil", "\u{7}", "\u{202e}", "\u{9b}"] {
                anyhow::ensure!(!written.contains(part), "{args:?} writes {part:?}: {written:?}");
            }
        }
        let exact = world.plugin(&["status", "hostile", "-n", &ns, "-o", "json"]).await?.json()?;
        anyhow::ensure!(exact["items"][0]["step"]["message"] == HOSTILE, "{exact}");
        Ok(())
    })
    .await
}
