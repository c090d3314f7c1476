//! The generated files: what is computed, and the chart's templates. Written, and compared with what is committed.
//!
//! Everything else in `manifests/` is YAML that is edited by hand.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use clap::Parser;
use shared::kinds::Kinds;

use crate::{chart, generated, operators};

/// Write the generated part of manifests/.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Write nothing; fail when a file differs from what would be written
    #[arg(long)]
    check: bool,
    /// Folder to write into or to compare with
    #[arg(long, default_value = "manifests")]
    folder: PathBuf,
}

/// The program `hibernate-manifests`, for these kinds.
pub fn run(kinds: Kinds) -> ExitCode {
    let Arguments { check, folder } = Arguments::parse();
    let done = if check { stale(kinds, &folder) } else { write(kinds, &folder).map(|()| Vec::new()) };
    match done {
        Ok(stale) => {
            for name in &stale {
                eprintln!("error: {name} is stale: run `cargo run --release -p hibernate-manifests`");
            }
            if stale.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("error: {}", shared::text::sanitize_chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// Why the files could not be made, written or compared.
#[derive(Debug, thiserror::Error)]
enum TreeError {
    /// An object has no form in YAML. This cannot happen with what this crate makes.
    #[error("write {path} as YAML")]
    Render {
        /// File within the folder.
        path: String,
        /// What the serializer said.
        source: serde_saphyr::SerializeError,
    },
    /// The file system refused.
    #[error("{action} {}", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To which file or folder.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
}

/// The chart's templates, beside `manifests/`.
const CHART: &str = "../charts/hibernate/templates";

/// Every generated file: path within `manifests/` and text.
fn files(kinds: Kinds) -> Result<BTreeMap<String, String>, TreeError> {
    let tree = [
        ("base/crds.yaml", generated::own_definitions(kinds)),
        ("base/rollout-policy.yaml", generated::own_policies(kinds)),
        ("components/shoots/shoots.yaml", operators::shoots()),
        ("components/virtual-machines/virtual-machines.yaml", operators::virtual_machines()),
        ("components/workload-schedules/operators.yaml", operators::of_schedules()),
        ("overlays/cgu-crds/crds.yaml", generated::cgu_definitions()),
    ];
    let render = |path: &str| {
        let path = path.to_owned();
        |source| TreeError::Render { path, source }
    };
    let mut files = BTreeMap::new();
    for (path, objects) in tree {
        files.insert(path.to_owned(), generated::file(&objects).map_err(render(path))?);
    }
    for (name, text) in chart::templates(kinds).map_err(render(CHART))? {
        files.insert(format!("{CHART}/{name}"), text);
    }
    Ok(files)
}

/// Writes every generated file below `folder`.
fn write(kinds: Kinds, folder: &Path) -> Result<(), TreeError> {
    for (name, text) in files(kinds)? {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(io_error("create folder", parent))?;
        }
        fs::write(&path, text).map_err(io_error("write", &path))?;
    }
    Ok(())
}

/// Files below `folder` that are missing or hold another text than they should.
fn stale(kinds: Kinds, folder: &Path) -> Result<Vec<String>, TreeError> {
    let mut stale = Vec::new();
    for (name, text) in files(kinds)? {
        let path = folder.join(&name);
        let committed = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            other => Some(other.map_err(io_error("read", &path))?),
        };
        if committed.as_deref() != Some(&text) {
            stale.push(name);
        }
    }
    Ok(stale)
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> TreeError {
    let path = path.to_owned();
    move |source| TreeError::Io { action, path, source }
}

#[cfg(test)]
mod tests {
    use shared::kinds::KINDS;

    use super::*;

    #[test]
    fn the_committed_files_are_the_generated_ones() {
        let stale = stale(KINDS, Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
        assert_eq!(stale, Vec::<String>::new(), "run `cargo run --release -p hibernate-manifests`");
    }

    /// An overlay that is applied over the default installation keeps what guards FoundationDB, as its rights stay.
    #[test]
    fn overlays_of_the_default_installation_guard_foundationdb() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("overlays");
        let mut of_others = Vec::new();
        for overlay in fs::read_dir(folder).unwrap() {
            let overlay = overlay.unwrap();
            let text = fs::read_to_string(overlay.path().join("kustomization.yaml")).unwrap();
            let name = overlay.file_name().into_string().unwrap();
            if !text.contains("- ../../components/fdb\n") {
                of_others.push(name);
            } else if !text.contains("- ../../components/ca-bundle-only\n") {
                assert_eq!(text.matches("name: hibernate-controller-fdb\n").count(), 2, "{name} deletes the policy");
            }
        }
        of_others.sort();
        assert_eq!(of_others, ["cgu-crds", "kkp", "policy-only"]);
    }

    #[test]
    fn a_changed_file_and_a_missing_file_are_stale() {
        let folder = tempfile::tempdir().unwrap();
        write(KINDS, folder.path()).unwrap();
        fs::write(folder.path().join("overlays/cgu-crds/crds.yaml"), "kind: X\n").unwrap();
        fs::remove_file(folder.path().join("base/rollout-policy.yaml")).unwrap();
        assert_eq!(stale(KINDS, folder.path()).unwrap(), ["base/rollout-policy.yaml", "overlays/cgu-crds/crds.yaml"]);
    }
}
