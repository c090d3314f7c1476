//! The store that a world starts on: everything that each world installs is already in it. It is made once for each
//! version of that, next to the programs of the control plane, and spares an API server a fifth of the CPU time of its start.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use serde_json::json;

use super::children::Children;
use super::{hub, startup};
use crate::controlplane::assets::Assets;
use crate::controlplane::server;
use crate::options::Options;
use crate::pki::Authority;
use crate::{apply, paths};

/// Spokes that are in it.
pub(super) const SPOKES: usize = 2;
/// How long one is kept whose content is no longer installed: another checkout may use it.
const KEPT: Duration = Duration::from_hours(24);

/// Puts a copy of it into the folder of a world.
///
/// # Errors
/// When it cannot be made or copied.
pub(super) async fn plant(assets: &Assets, dir: &Path) -> Result<()> {
    let own = assets.api_server.parent().context("a folder of the control plane")?;
    let content = json!([hub::objects(None)?, startup::spoke_objects(), SPOKES]);
    let seed = own.join(format!("seed-{}", paths::fingerprint(&[&content.to_string()])));
    if !seed.is_dir() {
        let lock = File::create(own.join("seed.lock")).with_context(|| format!("write to {}", own.display()))?;
        let lock = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await??;
        if !seed.is_dir() {
            make(assets, &dir.join("seed"), &seed).await.context("make the store that worlds start on")?;
        }
        drop(lock);
    }
    let to = dir.join(server::STORE);
    tokio::task::spawn_blocking(move || copy(&seed, &to)).await?
}

async fn make(assets: &Assets, dir: &Path, seed: &Path) -> Result<()> {
    let children = Children::new(&dir.join("pids"), &dir.join("logs"))?;
    let made = fill(assets, dir, &children).await;
    children.end().await;
    made?;
    // What is installed has changed since those of earlier days.
    let old = seed.parent().into_iter().flat_map(fs::read_dir).flatten().flatten().map(|entry| entry.path());
    let is_old = |path: &PathBuf| {
        let is_seed = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("seed-"));
        let age = path.metadata().and_then(|found| found.modified()).map(|at| at.elapsed().unwrap_or_default());
        is_seed && age.is_ok_and(|age| age > KEPT)
    };
    old.filter(is_old).for_each(|path| drop(fs::remove_dir_all(path)));
    // A rename leaves no half of it. The folders may be on two disks.
    let part = seed.with_extension("part");
    drop(fs::remove_dir_all(&part));
    copy(&dir.join(server::STORE), &part)?;
    fs::rename(&part, seed).with_context(|| format!("rename to {}", seed.display()))?;
    fs::remove_dir_all(dir).with_context(|| format!("remove {}", dir.display()))
}

async fn fill(assets: &Assets, dir: &Path, children: &Children) -> Result<()> {
    let authority = Authority::new("kubectl-hibernate seed")?;
    let options = Options { spokes: SPOKES, ..Options::bare_hub() };
    let servers = startup::start_servers(dir, &options, children, assets, &authority, &hub::users())?;
    let hub = async {
        servers.hub.ready(children).await?;
        apply::all(&servers.hub.client().await?, &hub::objects(None)?).await
    };
    let spokes = try_join_all(servers.spokes.iter().map(|spoke| async {
        spoke.ready(children).await?;
        apply::all(&spoke.client().await?, &startup::spoke_objects()).await
    }));
    tokio::try_join!(hub, spokes)?;
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("read {}", from.display()))? {
        let path: PathBuf = entry?.path();
        let target = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy(&path, &target)?;
        } else {
            fs::copy(&path, &target).with_context(|| format!("copy {}", path.display()))?;
        }
    }
    Ok(())
}
