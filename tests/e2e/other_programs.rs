//! What others build on the crates of the plugin: a program that streams `status`, and a kind that has a controller of
//! its own.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use testbed::check::webhook_only;
use testbed::{World, apply};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::hive_common::{SOON, create};
use crate::plugin_common::{Shell, in_namespace};

/// Started, and the first line that it prints.
async fn started(program: &str, words: &[&str]) -> Result<(Child, String)> {
    let mut child = Command::new(program).args(words).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
    Ok((child, timeout(SOON, lines.next_line()).await??.context("a line")?))
}

/// The first line of a stream that is like this.
async fn line(lines: &mut Lines<BufReader<TcpStream>>, is_it: impl Fn(&Value) -> bool) -> Result<Value> {
    timeout(SOON, async {
        while let Some(line) = lines.next_line().await? {
            if let Some(found) = serde_json::from_str(&line).ok().filter(&is_it) {
                return Ok(found);
            }
        }
        anyhow::bail!("the stream has ended")
    })
    .await?
}

#[tokio::test]
async fn a_program_streams_what_status_shows_without_the_plugin() -> Result<()> {
    in_namespace(World::shared_with(webhook_only()).await?, async |shell| {
        let kubeconfig = shell.world.file().hub.kubeconfig.display().to_string();
        let (_program, address) = started(env!("CARGO_BIN_EXE_status-stream"), &[&kubeconfig, &shell.ns]).await?;
        create(&Api::namespaced(shell.client.clone(), &shell.ns), "demo", "aws", &json!({})).await?;
        let mut client = TcpStream::connect(&address).await?;
        client.write_all(b"GET /status HTTP/1.1\r\nHost: x\r\n\r\n").await?;
        let mut lines = BufReader::new(client).lines();
        let awake = line(&mut lines, |line| line["set"]["name"] == "demo").await?;
        ensure!(awake["set"] == shell.status("cd/demo").await?, "as status documents it: {awake}");
        shell.ok("demo --reason weekend").await?;
        let asleep = line(&mut lines, |line| line["set"]["desired"] == "Hibernating").await?;
        ensure!(asleep["set"] == shell.status("cd/demo").await?, "as status documents it: {asleep}");
        shell.kubectl("delete cd/demo --wait=false").await?;
        let gone = line(&mut lines, |line| !line["gone"].is_null()).await?;
        let expected = json!({ "type": "clusterdeployment.hive.openshift.io", "namespace": shell.ns, "name": "demo" });
        ensure!(gone["gone"] == expected, "{gone}");
        Ok(())
    })
    .await
}

/// The definition of a kind that sleeps by a field of its own.
fn definition() -> Value {
    let schema = json!({ "type": "object", "properties": {
        "spec": { "type": "object", "properties": { "paused": { "type": "boolean" } } },
        "status": { "type": "object", "properties": { "phase": { "type": "string" } } },
    } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "workspaces.test.hibernate.sh" },
        "spec": {
            "group": "test.hibernate.sh", "scope": "Namespaced",
            "names": { "plural": "workspaces", "singular": "workspace", "kind": "Workspace", "shortNames": ["wsp"] },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema },
                "subresources": { "status": {} },
            }],
        },
    })
}

/// The plugin that knows the kind: its exit code and what it prints.
async fn with_kind(shell: &Shell, line: &str) -> Result<(i32, String)> {
    let kubeconfig: PathBuf = shell.world.file().hub.kubeconfig.clone();
    let words = line.split(' ').chain(["-n", &shell.ns, "--kubeconfig"]);
    let ran = Command::new(env!("CARGO_BIN_EXE_new-kind")).args(words).arg(kubeconfig).output().await?;
    let text = [ran.stdout, ran.stderr].concat();
    Ok((ran.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned()))
}

#[tokio::test]
async fn a_kind_of_one_file_is_planned_slept_shown_and_woken() -> Result<()> {
    in_namespace(World::shared_with(webhook_only()).await?, async |shell| {
        let object = json!({
            "apiVersion": "test.hibernate.sh/v1", "kind": "Workspace", "metadata": { "name": "blue", "namespace": shell.ns },
        });
        apply::all(&shell.client, &[definition(), object]).await?;
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("test.hibernate.sh", "v1", "Workspace"));
        let workspaces: Api<DynamicObject> = Api::namespaced_with(shell.client.clone(), &shell.ns, &resource);
        // The kind's own controller.
        let follow = async {
            loop {
                let paused = workspaces.get("blue").await?.data["spec"]["paused"] == true;
                let status = json!({ "status": { "phase": if paused { "Paused" } else { "Active" } } });
                workspaces.patch_status("blue", &PatchParams::default(), &Patch::Merge(status)).await?;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let commands = async {
            for (line, words) in [
                ("plan wsp/blue", &["workspace.test.hibernate.sh/blue"][..]),
                ("wsp/blue --wait --timeout 60s", &["Hibernating requested", "paused"]),
                ("status wsp/blue", &["blue", "Paused"]),
                ("status", &["blue", "Paused"]),
                ("plan blue", &["workspace.test.hibernate.sh/blue"]),
                ("resume wsp/blue --wait --timeout 60s", &["Running requested", "running"]),
                ("status wsp -o json", &["\"desired\": \"Running\"", "\"observed\": \"Active\""]),
                ("wsp -l team=none --yes", &[]),
            ] {
                let (code, text) = with_kind(&shell, line).await?;
                ensure!(code == 0 && words.iter().all(|word| text.contains(word)), "{line}: {code}, {text}");
            }
            Ok(())
        };
        tokio::select! {
            ended = follow => ended,
            ended = commands => ended,
        }
    })
    .await
}
