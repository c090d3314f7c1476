//! Finds or builds the control plane's programs.

use std::{
    env, fs,
    fs::File,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Context as _, Result, bail};
use nix::fcntl::{Flock, FlockArg};

use crate::paths;

const MAIN: &str = include_str!("../../controlplane/main.go");
const MODULE: &str = include_str!("../../controlplane/go.mod");
const SUMS: &str = include_str!("../../controlplane/go.sum");
const KUBELET: &str = include_str!("../../controlplane/kubelet/main.go");

/// The version that the programs say they are, and the linker flags that make them say it.
const FLAGS: &str = "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.4 \
    -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36";
const BINARY: &str = "controlplane";
const NAMES: [&str; 3] = ["etcd", "kube-apiserver", "kube-controller-manager"];

/// The three programs.
#[derive(Clone, Debug)]
pub struct Assets {
    /// etcd, 3.5.13 or newer.
    pub etcd: PathBuf,
    /// kube-apiserver.
    pub api_server: PathBuf,
    /// kube-controller-manager.
    pub controller_manager: PathBuf,
}

/// Finds each program in `$KUBEBUILDER_ASSETS`, otherwise in the cache, where they are built if need be.
///
/// # Errors
/// When they have to be built and that fails.
pub fn find() -> Result<Assets> {
    let given = env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    let mut built = None;
    let mut one = |name: &str| -> Result<PathBuf> {
        if let Some(path) = given.as_ref().map(|folder| folder.join(name)).filter(|path| path.is_file()) {
            return Ok(path);
        }
        let folder = match &built {
            Some(folder) => folder,
            None => built.insert(cached()?),
        };
        Ok(folder.join(name))
    };
    Ok(Assets { etcd: one(NAMES[0])?, api_server: one(NAMES[1])?, controller_manager: one(NAMES[2])? })
}

/// Builds the programs unless they are in the cache already, and answers the folder.
///
/// # Errors
/// When Go is missing or the build fails.
pub fn cached() -> Result<PathBuf> {
    let folder = paths::cache()?.join("controlplane").join(paths::fingerprint(&[MAIN, MODULE, SUMS, FLAGS]));
    if NAMES.iter().all(|name| folder.join(name).is_file()) {
        return Ok(folder);
    }
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let _lock = lock(&folder)?;
    if !folder.join(BINARY).is_file() {
        build(&folder)?;
    }
    for name in NAMES {
        let link = folder.join(name);
        if !link.is_file() {
            symlink(BINARY, &link).with_context(|| format!("link {}", link.display()))?;
        }
    }
    Ok(folder)
}

/// Waits until nobody else builds in this folder. The lock ends with the answer, or with this process.
///
/// # Errors
/// When the lock file cannot be made.
pub fn lock(folder: &Path) -> Result<Flock<File>> {
    let path = folder.join("lock");
    let file = File::create(&path).with_context(|| format!("create {}", path.display()))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(lock),
        Err((file, _)) => {
            eprintln!("testbed: waiting for another process that builds in {}", folder.display());
            Flock::lock(file, FlockArg::LockExclusive)
                .map_err(|(_, errno)| errno)
                .with_context(|| format!("lock {}", path.display()))
        }
    }
}

fn build(folder: &Path) -> Result<()> {
    eprintln!(
        "testbed: building etcd, kube-apiserver and kube-controller-manager 1.36 once, about 6 minutes and 2.3 GB of memory"
    );
    go_build(folder, MAIN, BINARY, FLAGS)
}

/// The kubelet that answers `kubectl exec`: built in some seconds from the same module, and kept beside the control plane.
///
/// # Errors
/// When Go is missing or the build fails.
pub fn kubelet() -> Result<PathBuf> {
    let folder = paths::cache()?.join("kubelet").join(paths::fingerprint(&[KUBELET, MODULE, SUMS]));
    let program = folder.join("kubelet");
    if !program.is_file() {
        fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        let _lock = lock(&folder)?;
        if !program.is_file() {
            go_build(&folder, KUBELET, "kubelet", "-s -w")?;
        }
    }
    Ok(program)
}

/// Builds one program of the module into the folder.
fn go_build(folder: &Path, main: &str, name: &str, flags: &str) -> Result<()> {
    let source = folder.join("source");
    fs::create_dir_all(&source).with_context(|| format!("create {}", source.display()))?;
    for (name, text) in [("main.go", main), ("go.mod", MODULE), ("go.sum", SUMS)] {
        fs::write(source.join(name), text).with_context(|| format!("write {name} into {}", source.display()))?;
    }
    let start = Instant::now();
    let partial = folder.join(format!("{name}.partial"));
    let status = Command::new("go")
        .args(["build", "-trimpath", "-ldflags", flags, "-o"])
        .arg(&partial)
        .arg(".")
        .current_dir(&source)
        .envs([("GOTOOLCHAIN", "local"), ("CGO_ENABLED", "0")])
        .status()
        .context("run `go`: the control plane is built with Go 1.26; install it, or set KUBEBUILDER_ASSETS")?;
    if !status.success() {
        bail!("go build in {} failed ({status}); its messages are above", source.display());
    }
    fs::rename(&partial, folder.join(name)).context("move the built program to its place")?;
    eprintln!("testbed: built {name} in {} s", start.elapsed().as_secs());
    Ok(())
}
