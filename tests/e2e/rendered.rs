//! What kustomize makes of our manifests, and Helm of our chart: each is rendered once, for all tests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::{Context as _, Result};
use serde_json::Value;
use testbed::controlplane::assets::helm;

pub(crate) const NAMESPACE: &str = "hibernate-system";

/// What a program prints, or why it fails.
pub(crate) type Printed = Result<String, String>;

/// A file or folder of the checkout.
pub(crate) fn checkout(below: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(below)
}

fn run(program: &Path, line: &[&str]) -> Printed {
    let ran = Command::new(program).args(line).output().map_err(|error| format!("{}: {error}", program.display()))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    if ran.status.success() { Ok(text(ran.stdout)) } else { Err(text(ran.stderr)) }
}

/// The same, once for each line: whoever asks for one that is under way waits for it.
fn run_once(program: &Path, line: &[&str]) -> Printed {
    static PRINTED: Mutex<BTreeMap<String, Arc<OnceLock<Printed>>>> = Mutex::new(BTreeMap::new());
    let key = format!("{} {}", program.display(), line.join(" "));
    let slot = PRINTED.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
    slot.get_or_init(|| run(program, line)).clone()
}

/// A folder of `manifests/` as kustomize renders it.
pub(crate) fn kustomized(below: &str) -> Result<String> {
    let folder = checkout("manifests").join(below).display().to_string();
    run_once(Path::new("kubectl"), &["kustomize", &folder]).map_err(anyhow::Error::msg).with_context(|| folder)
}

/// A user's kustomization, in which paths to our manifests begin with `manifests`.
pub(crate) fn kustomized_by_user(kustomization: &str) -> Result<String> {
    let folder = tempfile::tempdir()?;
    let here = folder.path().canonicalize()?;
    // kustomize takes relative paths alone.
    let up = "../".repeat(here.components().count() - 1);
    let manifests = format!("- {up}{}", checkout("manifests").canonicalize()?.strip_prefix("/")?.display());
    std::fs::write(here.join("kustomization.yaml"), kustomization.replace("- manifests", &manifests))?;
    run(Path::new("kubectl"), &["kustomize", &here.display().to_string()]).map_err(anyhow::Error::msg)
}

/// The chart with these values, as a version of Helm renders it for a version of Kubernetes.
pub(crate) fn templated(version: u8, kubernetes: &str, values: &[&str]) -> Printed {
    let program = helm(version).map_err(|error| format!("{error:#}"))?;
    let chart = chart();
    let line = ["template", "one", &chart, "-n", NAMESPACE, "--kube-version", kubernetes];
    let set = values.iter().flat_map(|value| ["--set", value]);
    run_once(&program, &line.into_iter().chain(set).collect::<Vec<_>>())
}

/// The folder of the chart.
pub(crate) fn chart() -> String {
    checkout("charts/hibernate").display().to_string()
}

/// The documents of a text, but for those that are empty.
pub(crate) fn documents(text: &str) -> Result<Vec<Value>> {
    Ok(serde_saphyr::from_multiple::<Option<Value>>(text)?.into_iter().flatten().collect())
}

/// What is in a folder of `manifests/`, as paths below that.
pub(crate) fn below(folder: &str) -> Result<BTreeSet<String>> {
    let names = std::fs::read_dir(checkout("manifests").join(folder))?;
    names.map(|entry| Ok(format!("{folder}/{}", entry?.file_name().display()))).collect()
}
