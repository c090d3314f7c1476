//! Finds or builds what the world runs and cargo does not build: the control plane, the kubelet, the EC2 simulator's
//! Python, OpenStack's services.
//!
//! `tests/assets.sh` knows versions, flags and folders. This program holds a copy of it and of its sources, so that
//! `testbed` works without the checkout.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, fs};

use anyhow::{Context as _, Result, bail};

const SCRIPT: &str = "assets.sh";
const SOURCES: [(&str, &str); 9] = [
    (SCRIPT, include_str!("../../assets.sh")),
    ("controlplane/main.go", include_str!("../../controlplane/main.go")),
    ("controlplane/go.mod", include_str!("../../controlplane/go.mod")),
    ("controlplane/go.sum", include_str!("../../controlplane/go.sum")),
    ("controlplane/kubelet/main.go", include_str!("../../controlplane/kubelet/main.go")),
    ("clouds/requirements.txt", include_str!("../../clouds/requirements.txt")),
    ("clouds/openstack-requirements.txt", include_str!("../../clouds/openstack-requirements.txt")),
    ("clouds/sdk-requirements.txt", include_str!("../../clouds/sdk-requirements.txt")),
    ("clouds/openstack_world.py", include_str!("../../clouds/openstack_world.py")),
];

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
            None => built.insert(asset("controlplane")?),
        };
        Ok(folder.join(name))
    };
    Ok(Assets {
        etcd: one("etcd")?,
        api_server: one("kube-apiserver")?,
        controller_manager: one("kube-controller-manager")?,
    })
}

/// The kubelet that answers `kubectl exec`: built in some seconds from the control plane's module.
///
/// # Errors
/// When Go is missing or the build fails.
pub fn kubelet() -> Result<PathBuf> {
    Ok(asset("kubelet")?.join("kubelet"))
}

/// The Python interpreter that has what the EC2 simulator needs.
///
/// # Errors
/// When Python 3 or its `venv` is missing, or the packages cannot be installed.
pub fn python() -> Result<PathBuf> {
    Ok(asset("python")?.join("venv/bin/python"))
}

/// The vendors' SDKs of the clouds that we simulate: their Python interpreter.
///
/// # Errors
/// When Python is missing, or the packages cannot be installed.
pub fn sdks() -> Result<PathBuf> {
    Ok(asset("sdks")?.join("venv/bin/python"))
}

/// OpenStack's services: their Python interpreter, and the template of a world.
///
/// # Errors
/// When Python 3.11 is missing, or the packages cannot be installed.
pub fn openstack() -> Result<(PathBuf, PathBuf)> {
    let folder = asset("openstack")?;
    Ok((folder.join("venv/bin/python"), folder.join("template")))
}

/// Helm in this major version.
///
/// # Errors
/// When Go is missing or the build fails.
pub fn helm(version: u8) -> Result<PathBuf> {
    Ok(asset("helm")?.join(format!("v{version}/helm")))
}

/// The folder of one asset, which is built first unless it is in the cache. Messages go to our stderr.
fn asset(name: &str) -> Result<PathBuf> {
    let sources = tempfile::tempdir().context("make a folder for the sources of the assets")?;
    for (path, text) in SOURCES {
        let path = sources.path().join(path);
        let folder = path.parent().context("a source has a folder")?;
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    let output = Command::new("bash")
        .arg(sources.path().join(SCRIPT))
        .arg(name)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("run bash on {SCRIPT}"))?;
    if !output.status.success() {
        bail!("{SCRIPT} {name} failed ({}); its messages are above", output.status);
    }
    let folder = String::from_utf8(output.stdout).context("read the folder of an asset")?;
    Ok(PathBuf::from(folder.trim_end()))
}
