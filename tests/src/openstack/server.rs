//! The services' processes, in a Python environment of their own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Serialize;
use tokio::net::TcpStream;
use tokio::process::Command;

use super::OpenStack;
use crate::controlplane::assets;
use crate::ports;
use crate::process::Rank;
use crate::proxy::{Proxy, Settings, Upstream};
use crate::supervisor::children::Children;

/// The services, in the order in which the program takes their ports.
const SERVICES: [&str; 5] = ["keystone", "placement", "glance", "neutron", "nova"];

const SOURCE: &str = include_str!("../../clouds/openstack_world.py");

/// How long services take to come up, with other tests beside.
const PATIENCE: Duration = Duration::from_secs(90);

/// The services of a world.
pub struct Server {
    /// What sees them past the proxies.
    pub client: OpenStack,
    /// By service. The catalog names them.
    pub(crate) proxies: BTreeMap<&'static str, Proxy>,
}

/// How the hypervisor behaves, from now on.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Knobs {
    /// Seconds that a server takes to be made.
    pub spawn_s: f64,
    /// Seconds that a snapshot takes.
    pub snapshot_s: f64,
    /// Whether snapshots fail.
    pub snapshot_fails: bool,
}

impl Knobs {
    /// Writes them where the hypervisor reads them.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, world: &Path) -> Result<()> {
        let path = folder(world).join("knobs.json");
        let new = path.with_extension("new");
        fs::write(&new, serde_json::to_vec(self)?).with_context(|| format!("write {}", new.display()))?;
        fs::rename(&new, &path).with_context(|| format!("write {}", path.display()))
    }
}

fn folder(world: &Path) -> PathBuf {
    world.join("openstack")
}

/// Starts the services, each behind a proxy: Nova last, because it needs the catalog.
///
/// # Errors
/// When one does not start; its log says why.
pub async fn start(children: &Children, world: &Path, authority: &str) -> Result<Server> {
    let (python, template) = tokio::task::spawn_blocking(assets::openstack).await??;
    let folder = folder(world);
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let program = world.join("openstack_world.py");
    fs::write(&program, SOURCE).context("write openstack_world.py")?;
    let (mut own, mut proxies) = (Vec::new(), BTreeMap::new());
    for service in SERVICES {
        let port = ports::free()?;
        let upstream = Upstream::new(&format!("http://127.0.0.1:{port}"), authority)?;
        proxies.insert(service, Proxy::start(Settings { upstream, tls: None, lists: None, open: true })?);
        own.push(port);
    }
    let public = SERVICES.iter().filter_map(|service| proxies.get(service).map(Proxy::port));
    let ports: Vec<String> = own.iter().copied().chain(public).map(|port| port.to_string()).collect();
    let run = || {
        let mut command = Command::new(&python);
        command.args(["-W", "ignore", "-B"]).arg(&program).env_remove("PYTHONPATH");
        command
    };
    let cloned =
        run().arg("clone").args([&template, &folder]).args(&ports).output().await.context("clone OpenStack")?;
    ensure!(cloned.status.success(), "clone OpenStack: {}", String::from_utf8_lossy(&cloned.stderr));
    let (nova, others) = SERVICES.split_last().context("there are services")?;
    for services in [others, &[*nova]] {
        for service in services {
            let mut command = run();
            command.arg("serve").arg(&folder).arg(service);
            children.spawn(service, Rank::Server, command)?;
        }
        for (service, port) in SERVICES.iter().zip(&own).filter(|(service, _)| services.contains(service)) {
            listens(children, service, *port).await?;
        }
    }
    let client = OpenStack::open(own[0], &proxies["keystone"].url()).await?;
    Ok(Server { client, proxies })
}

async fn listens(children: &Children, service: &str, port: u16) -> Result<()> {
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        children.still_alive(service)?;
        if begun.elapsed() > PATIENCE {
            bail!("{service} does not listen after {PATIENCE:?}: see {}", children.log(service).display());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
