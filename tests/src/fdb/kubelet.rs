//! The process that answers `kubectl exec` for the Pods of the double.

use std::path::Path;

use anyhow::{Context as _, Result};
use tokio::process::Command;

use crate::controlplane::assets;
use crate::kubeconfig::write_private;
use crate::pki::Identity;
use crate::ports;
use crate::process::Rank;
use crate::supervisor::children::Children;
use crate::world_file::Control;

/// Name of the process.
pub(crate) const NAME: &str = "fdb-kubelet";

/// Starts it and answers its port, at which it listens soon.
pub(crate) async fn start(children: &Children, dir: &Path, identity: &Identity, control: &Control) -> Result<u16> {
    let program = tokio::task::spawn_blocking(assets::kubelet).await??;
    let folder = dir.join(NAME);
    std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    for (name, text) in [("tls.crt", &identity.certificate), ("tls.key", &identity.key), ("token", &control.token)] {
        write_private(&folder.join(name), text)?;
    }
    let port = ports::free()?;
    let mut command = Command::new(program);
    command
        .current_dir(&folder)
        .args(["--listen", &format!("127.0.0.1:{port}"), "--tls-cert-file=tls.crt", "--tls-private-key-file=tls.key"])
        .args(["--token-file=token", "--containers", &format!("{}/fdb/exec", control.url)]);
    children.spawn(NAME, Rank::Server, command)?;
    Ok(port)
}
