//! What others build on the crates of the plugin: a program that streams `status`, and a kind that has a controller of
//! its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use shared::annotation::keys;
use shared::annotation::mark::{Mark, Outcome};
use testbed::check::webhook_only;
use testbed::supervisor::programs::Start;
use testbed::{Program, World, apply, ensure_that, eventually};
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

/// The plugin with the kind: its exit code and what it prints.
async fn with_kind(shell: &Shell, line: &str) -> Result<(i32, String)> {
    let kubeconfig: PathBuf = shell.world.file().hub.kubeconfig.clone();
    let words = line.split(' ').chain(["-n", &shell.ns, "--kubeconfig"]);
    let ran = Command::new(env!("CARGO_BIN_EXE_new-kind")).args(words).arg(kubeconfig).output().await?;
    let text = [ran.stdout, ran.stderr].concat();
    Ok((ran.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned()))
}

/// Workspaces of the test's namespace, on a hub that has their kind.
async fn workspaces(shell: &Shell, names: &[&str]) -> Result<Api<DynamicObject>> {
    let object = |name: &&str| {
        let metadata = json!({ "name": name, "namespace": shell.ns });
        json!({ "apiVersion": "test.hibernate.sh/v1", "kind": "Workspace", "metadata": metadata })
    };
    let objects: Vec<Value> = [definition()].into_iter().chain(names.iter().map(object)).collect();
    apply::all(&shell.client, &objects).await?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("test.hibernate.sh", "v1", "Workspace"));
    Ok(Api::namespaced_with(shell.client.clone(), &shell.ns, &resource))
}

/// The kind's own controller.
async fn follow(workspaces: &Api<DynamicObject>) -> Result<()> {
    loop {
        for found in workspaces.list(&ListParams::default()).await? {
            let paused = found.data["spec"]["paused"] == true;
            let status = json!({ "status": { "phase": if paused { "Paused" } else { "Active" } } });
            workspaces.patch_status(&found.name_any(), &PatchParams::default(), &Patch::Merge(status)).await?;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Runs each line beside the kind's own controller: it succeeds and prints these words.
async fn each(shell: &Shell, workspaces: &Api<DynamicObject>, lines: &[(&str, &[&str])]) -> Result<()> {
    let commands = async {
        for (line, words) in lines {
            let (code, text) = with_kind(shell, line).await?;
            ensure!(code == 0 && words.iter().all(|word| text.contains(word)), "{line}: {code}, {text}");
        }
        Ok(())
    };
    tokio::select! {
        ended = follow(workspaces) => ended,
        ended = commands => ended,
    }
}

#[tokio::test]
async fn a_kind_of_one_file_is_planned_slept_shown_and_woken() -> Result<()> {
    in_namespace(World::shared_with(webhook_only()).await?, async |shell| {
        let workspaces = workspaces(&shell, &["blue"]).await?;
        let lines: [(&str, &[&str]); 8] = [
            ("plan wsp/blue", &["workspace.test.hibernate.sh/blue"]),
            ("wsp/blue --wait --timeout 2m", &["Hibernating requested", "paused"]),
            ("status wsp/blue", &["blue", "Paused"]),
            ("status", &["blue", "Paused"]),
            ("plan blue", &["workspace.test.hibernate.sh/blue"]),
            ("resume wsp/blue --wait --timeout 2m", &["Running requested", "running"]),
            ("status wsp -o json", &["\"desired\": \"Running\"", "\"observed\": \"Active\""]),
            ("wsp -l team=none --yes", &[]),
        ];
        each(&shell, &workspaces, &lines).await
    })
    .await
}

/// What the controller may do with the kind: manifests grant what the product's own kinds need.
fn rights() -> Vec<Value> {
    let (api, name) = ("rbac.authorization.k8s.io", "testbed-workspaces");
    let account = json!({ "kind": "ServiceAccount", "name": keys::CONTROLLER, "namespace": keys::NAMESPACE });
    let verbs = ["get", "list", "watch", "patch"];
    vec![
        json!({
            "apiVersion": format!("{api}/v1"), "kind": "ClusterRole", "metadata": { "name": name },
            "rules": [{ "apiGroups": ["test.hibernate.sh"], "resources": ["workspaces"], "verbs": verbs }],
        }),
        json!({
            "apiVersion": format!("{api}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": name },
            "roleRef": { "apiGroup": api, "kind": "ClusterRole", "name": name }, "subjects": [account],
        }),
    ]
}

/// The definition and the policy of rollouts over the kind, as the program that writes manifests has them.
async fn written(program: &Path, folder: &Path) -> Result<Vec<Value>> {
    let ran = Command::new(program).arg("--folder").arg(folder).output().await?;
    ensure!(ran.status.success(), "{ran:?}");
    let mut objects = Vec::new();
    for file in ["base/crds.yaml", "base/rollout-policy.yaml"] {
        objects.extend(serde_saphyr::from_multiple::<Value>(&std::fs::read_to_string(folder.join(file))?)?);
    }
    Ok(objects)
}

#[tokio::test]
async fn a_rollout_puts_objects_of_that_kind_to_sleep_and_wakes_them() -> Result<()> {
    in_namespace(World::up(webhook_only()).await?, async |shell| {
        let workspaces = workspaces(&shell, &["blue", "green"]).await?;
        // The programs of the kind: the file's name says which one it is.
        let folder = shell.world.dir().join("with-workspace");
        std::fs::create_dir(&folder)?;
        let program = |name: &str| -> Result<PathBuf> {
            let path = folder.join(name);
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_new-kind"), &path)?;
            Ok(path)
        };
        let manifests = written(&program("hibernate-manifests")?, &folder.join("manifests")).await?;
        apply::all(&shell.client, &[manifests, rights()].concat()).await?;
        let executable = Some(program(Program::Controller.executable())?);
        shell.world.start(&Start { executable, ..Start::new(Program::Controller) }).await?;
        eventually(SOON, "controller that leads", async || {
            ensure_that(
                with_kind(&shell, "wsp --all --max-concurrency 2 --yes --dry-run=server").await?,
                |(code, _)| *code == 0,
            )
        })
        .await?;
        let lines: [(&str, &[&str]); 4] = [
            ("wsp --all --max-concurrency 2 --yes --wait --timeout 3m", &["created", "Succeeded", "2 Succeeded"]),
            ("status wsp", &["blue", "green", "Paused"]),
            ("resume wsp --all --max-concurrency 2 --yes --wait --timeout 3m", &["created", "2 Succeeded"]),
            ("status wsp", &["blue", "green", "Active"]),
        ];
        for (at, paused) in [(0, true), (2, false)] {
            each(&shell, &workspaces, &lines[at..at + 2]).await?;
            for name in ["blue", "green"] {
                let found = workspaces.get(name).await?;
                let mark = found.annotations().get(keys::ROLLOUT).and_then(|text| Mark::parse(text));
                let ended = mark.and_then(|mark| mark.ended).context("a record")?;
                ensure!(found.data["spec"]["paused"] == paused && ended.result == Outcome::Succeeded, "{found:?}");
            }
        }
        Ok(())
    })
    .await
}
