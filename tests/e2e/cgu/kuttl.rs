//! Upstream's own cases against our controller, by kuttl's rules: every map of an assertion is a subset of what is
//! found, lists have equal lengths, and there is a minute for each step.
//!
//! It takes TALM's sources, in `HIBERNATE_TALM_SOURCE` (docs/test-world.md); `HIBERNATE_TALM_CASES` names the cases.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use axum::routing::get;
use axum::{Json, Router};
use tokio::net::TcpListener;

use super::*;

/// What upstream's scripts expect of `kubectl proxy`.
const PROXY_PORT: &str = "8001";
const IMAGE: &str = "quay.io/openshift-kni/cluster-group-upgrades-operator-precache:5.0.0";
/// Of release 4.9.8.
const DIGEST: &str = "c91c0faf7ae3c480724a935b3dab7e5f49aae19d195b12f3a4ae38f8440ea96b";

/// Where a value lacks what is wanted.
fn differences(wanted: &Value, found: &Value, path: &str) -> Vec<String> {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(_)) => {
            wanted.iter().flat_map(|(key, one)| differences(one, &found[key], &format!("{path}.{key}"))).collect()
        }
        (Value::Array(wanted), Value::Array(found)) if wanted.len() == found.len() => {
            let pairs = wanted.iter().zip(found).enumerate();
            pairs.flat_map(|(at, (wanted, found))| differences(wanted, found, &format!("{path}[{at}]"))).collect()
        }
        (wanted, found) if wanted == found => Vec::new(),
        (wanted, found) => vec![format!("{path}: {found}, wanted {wanted}")],
    }
}

/// What goes first in a step of a pull: TALM acts on the rest only when a changed time-out wakes it, we act at once.
const FIRST: [&str; 3] = ["mca-cleanup", "overrides-configmap", "remediationStrategy"];

struct Kuttl {
    world: World,
    source: PathBuf,
}

impl Kuttl {
    /// Runs a command of a step in the folder of its case.
    async fn run(&self, folder: &Path, step: &Value) -> Result<()> {
        let line = step["command"].as_str().context("a command")?;
        let is_namespaced = step["namespaced"] == true && !line.contains("--namespace");
        // Its text is folded, and may go on in another line.
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        let line = if is_namespaced { format!("{line} --namespace default") } else { line };
        let mut command = self.world.command("sh");
        let path = std::env::var("PATH")?;
        command.current_dir(folder).args(["-c", &line]);
        command.env("PATH", format!("{}:{path}", self.world.dir().join("oc").display()));
        let ran = self.world.run(command).await?;
        ensure!(ran.code == 0 || step["ignoreFailure"] == true, "{line}: {}{}", ran.stdout, ran.stderr);
        Ok(())
    }

    /// What is found for an object of an assertion.
    async fn found(&self, wanted: &Value) -> Result<Vec<Value>> {
        let (version, kind) = (wanted["apiVersion"].as_str().context("a version")?, wanted["kind"].as_str());
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let kind = format!("{}.{version}.{group}", kind.context("a kind")?);
        let metadata = &wanted["metadata"];
        let mut args = vec!["get", &kind, "--output=json", "--namespace"];
        args.push(metadata["namespace"].as_str().unwrap_or("default"));
        args.extend(metadata["name"].as_str());
        let ran = self.world.kubectl(&args).await?;
        if ran.stderr.contains("NotFound") {
            return Ok(Vec::new());
        }
        let found: Value = serde_json::from_str(&ran.ok()?)?;
        Ok(found["items"].as_array().cloned().unwrap_or_else(|| vec![found]))
    }

    /// Waits until each object is found, or, for `errors`, until none is.
    async fn check(&self, file: &Path, is_wanted: bool) -> Result<()> {
        for wanted in documents(file)? {
            let what = format!("{} {}", wanted["kind"], wanted["metadata"]["name"]);
            eventually(SOON, &what, async || {
                let found = self.found(&wanted).await?;
                let mut lacks: Vec<_> = found.iter().map(|found| differences(&wanted, found, "")).collect();
                lacks.sort_by_key(Vec::len);
                let is_found = lacks.first().is_some_and(Vec::is_empty);
                ensure!(is_found == is_wanted, "{} found, the nearest: {:#?}", found.len(), lacks.first());
                Ok(())
            })
            .await
            .with_context(|| file.display().to_string())?;
        }
        Ok(())
    }

    async fn case(&self, name: &str) -> Result<()> {
        let folder = self.source.join("tests/kuttl/cgu").join(name);
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(&folder)?.map(|file| Ok(file?.path())).collect::<Result<_>>()?;
        let part = |file: &Path| {
            let (number, part) = file.file_name()?.to_str()?.split_once('-')?;
            Some((number.to_owned(), part == "errors.yaml", part == "assert.yaml"))
        };
        // The commands of a step, its assertions, then its errors.
        files.sort_by_key(|file| part(file));
        let mut first = Ok(());
        for file in files {
            let (_, is_errors, is_assert) = part(&file).with_context(|| file.display().to_string())?;
            if is_errors || is_assert {
                // The other steps of one that has failed clean up.
                if first.is_ok() {
                    first = self.check(&file, is_assert).await;
                }
                continue;
            }
            for step in documents(&file)? {
                let mut commands = step["commands"].as_array().context("commands")?.clone();
                if name.starts_with("pre-caching") {
                    commands.sort_by_key(|command| !FIRST.iter().any(|text| command.to_string().contains(text)));
                }
                for command in &commands {
                    let ran = self.run(&folder, command).await.with_context(|| file.display().to_string());
                    first = first.and(ran);
                }
            }
        }
        first
    }
}

fn documents(file: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(file)?;
    serde_saphyr::from_multiple(&text).with_context(|| file.display().to_string())
}

/// Serves the release that the policies ask for.
async fn graph() -> Result<String> {
    let node =
        json!({ "version": "4.9.8", "payload": format!("quay.io/openshift-release-dev/ocp-release@sha256:{DIGEST}") });
    let answer = Json(json!({ "nodes": [node] }));
    let router = Router::new().fallback(get(move || std::future::ready(answer.clone())));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { drop(axum::serve(listener, router).await) });
    Ok(format!("http://{address}"))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs TALM's sources: HIBERNATE_TALM_SOURCE=FOLDER"]
async fn upstreams_cases_pass() -> Result<()> {
    upstream_folder("talm").context("the definitions: set HIBERNATE_UPSTREAM_CRDS")?;
    let source = std::env::var_os("HIBERNATE_TALM_SOURCE").context("HIBERNATE_TALM_SOURCE is not set")?;
    let (world, _) = hub().await?;
    // A copy, in which the graph of releases is ours.
    let graph = graph().await?;
    let kuttl = Kuttl { source: world.dir().join("talm"), world };
    let copy =
        "mkdir talm && cp -r $FROM/deploy $FROM/tests talm && grep -rl $REAL talm | xargs sed -i s,$REAL,$GRAPH,";
    let mut command = kuttl.world.command("sh");
    command.current_dir(kuttl.world.dir()).args(["-c", copy]).env("FROM", source);
    command.env("REAL", "https://api.openshift.com").env("GRAPH", &graph);
    kuttl.world.run(command).await?.ok()?;
    let folder = kuttl.world.dir().join("oc");
    std::fs::create_dir(&folder)?;
    let path = std::env::var_os("PATH").context("PATH is not set")?;
    let mut kubectls = std::env::split_paths(&path).map(|folder| folder.join("kubectl"));
    let kubectl = kubectls.find(|file| file.is_file()).context("kubectl is not in PATH")?;
    std::os::unix::fs::symlink(kubectl, folder.join("oc"))?;
    let mut proxy = kuttl.world.command("kubectl");
    proxy.args(["proxy", "--port", PROXY_PORT]).stdout(Stdio::null());
    let _proxy = proxy.spawn()?;
    for file in ["setup-managed-spoke-clusters-namespaces.yaml", "setup-managed-spoke-clusters.yaml"] {
        let file = kuttl.source.join("deploy/acm/managed-clusters").join(file);
        kuttl.world.kubectl(&["apply", "-f", file.to_str().context("a path in UTF-8")?]).await?.ok()?;
    }
    let mut start = controller();
    start.args.extend(["--cgu-precache-image", IMAGE, "--cgu-graph", &graph].map(str::to_owned));
    kuttl.world.start(&start).await?;

    let mut cases: Vec<String> = std::fs::read_dir(kuttl.source.join("tests/kuttl/cgu"))?
        .map(|case| Ok(case?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    cases.sort();
    let asked = std::env::var("HIBERNATE_TALM_CASES").unwrap_or_default();
    let mut failures = Vec::new();
    for case in cases {
        // Not served: docs/cgu.md.
        let is_served = !case.starts_with("backup-") && !case.starts_with("manifestwork-");
        if !is_served || !(asked.is_empty() || asked.split(',').any(|asked| asked == case)) {
            continue;
        }
        match kuttl.case(&case).await {
            Ok(()) => eprintln!("passed {case}"),
            Err(error) => {
                eprintln!("FAILED {case}: {error:#}");
                failures.push(case);
            }
        }
    }
    ensure!(failures.is_empty(), "{failures:?}");
    Ok(())
}
