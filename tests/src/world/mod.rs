//! A world as tests see it.

pub mod copy;
pub mod handle;
pub mod helpers;
pub mod run;
pub mod shared;

use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use kube::Client;
use serde_json::Value;
use tokio::sync::SemaphorePermit;

use self::handle::Cluster;
use crate::cluster::{ClusterInfo, ClusterOptions, Platform};
use crate::ec2::Ec2;
use crate::json_http::JsonHttp;
use crate::openstack::OpenStack;
use crate::options::{Options, Timings};
use crate::proxy::faults::Rule;
use crate::simulated::Simulated;
use crate::supervisor::control::{NewCluster, Status};
use crate::supervisor::programs::Start;
use crate::world_file::{ProgramAddress, WorldFile};
use crate::{kubeconfig, launch, process};

/// A running world. Copies are the same world; one that this process has started ends with the last copy.
#[derive(Clone)]
pub struct World {
    inner: Arc<Inner>,
}

struct Inner {
    dir: PathBuf,
    file: WorldFile,
    control: JsonHttp,
    owned: bool,
    /// Released after `drop` has ended the world.
    _permit: Option<SemaphorePermit<'static>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        if let Err(error) = launch::down(&self.dir) {
            eprintln!("testbed: {error:#}");
        }
        if env::var_os("HIBERNATE_KEEP_LOGS").is_none() {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

impl World {
    /// Starts a world for one test, in a new folder unless the options name one. Waits while too many of them are up.
    /// It ends with the last copy of the answer, and in any case with this process. `$HIBERNATE_UPSTREAM_CRDS` names a
    /// folder of definitions to install instead of ours, so that every test can run against the real ones.
    ///
    /// # Errors
    /// When a part does not start.
    pub async fn up(options: Options) -> Result<Self> {
        let permit = shared::private().await?;
        Self::boot(options, Some(permit)).await
    }

    async fn boot(options: Options, permit: Option<SemaphorePermit<'static>>) -> Result<Self> {
        crate::install_tls();
        let pid = std::process::id().cast_signed();
        let options = Options {
            state: Some(options.state.unwrap_or_else(|| {
                env::temp_dir().join(format!("hibernate-world-{pid}-{:08x}", rand::random::<u32>()))
            })),
            while_pid: Some(pid),
            upstream_crds: options.upstream_crds.or_else(|| env::var_os("HIBERNATE_UPSTREAM_CRDS").map(PathBuf::from)),
            ..options
        };
        let _starting = shared::starting(options.spokes).await?;
        let up = tokio::task::spawn_blocking(move || launch::up(&options, &mut |line| eprintln!("testbed: {line}")));
        let (dir, file) = up.await.context("start a world")??;
        Ok(Self::new(dir, file, true, permit))
    }

    /// Uses a world that is up already.
    ///
    /// # Errors
    /// When none is up in this folder.
    pub fn open(dir: &Path) -> Result<Self> {
        crate::install_tls();
        Ok(Self::new(dir.to_owned(), launch::find(dir)?, false, None))
    }

    fn new(dir: PathBuf, file: WorldFile, owned: bool, permit: Option<SemaphorePermit<'static>>) -> Self {
        let control = JsonHttp::with_token(&file.control.url, &file.control.token);
        Self { inner: Arc::new(Inner { dir, file, control, owned, _permit: permit }) }
    }

    /// The supervisor's interface.
    pub fn supervisor(&self) -> &JsonHttp {
        &self.inner.control
    }

    /// Its folder.
    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    /// Where everything was when this object was made.
    pub fn file(&self) -> &WorldFile {
        &self.inner.file
    }

    /// Where everything is now.
    ///
    /// # Errors
    /// When the world has ended.
    pub async fn now(&self) -> Result<WorldFile> {
        self.inner.control.get("/world").await
    }

    /// What is alive.
    ///
    /// # Errors
    /// When the world has ended.
    pub async fn status(&self) -> Result<Status> {
        self.inner.control.get("/status").await
    }

    /// Memory of a program in MB: all of it at its peak, all of it now, and what is its own.
    ///
    /// # Errors
    /// When it does not run.
    pub async fn memory(&self, program: &str) -> Result<[f64; 3]> {
        process::memory(self.pid(program).await?)
    }

    /// Seconds of CPU that a program has used.
    ///
    /// # Errors
    /// When it does not run.
    pub async fn cpu(&self, program: &str) -> Result<f64> {
        process::cpu(self.pid(program).await?)
    }

    /// The process of a program.
    ///
    /// # Errors
    /// When it does not run.
    pub async fn pid(&self, program: &str) -> Result<i32> {
        self.now().await?.pids.get(program).copied().with_context(|| format!("no {program} runs"))
    }

    /// The controller's requests so far, from the audit log of a server such as `hub`, after the API server has had
    /// time to write it.
    ///
    /// # Errors
    /// When the world keeps no audit logs.
    pub async fn audited(&self, server: &str) -> Result<Vec<Value>> {
        self.audited_of(server, "hibernate-controller/").await
    }

    /// The same of the client whose user agent begins with this.
    ///
    /// # Errors
    /// When the world keeps no audit logs.
    pub async fn audited_of(&self, server: &str, agent: &str) -> Result<Vec<Value>> {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        let path = self.file().logs.join(format!("{server}-audit.jsonl"));
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let is_ours = |event: &Value| event["userAgent"].as_str().is_some_and(|found| found.starts_with(agent));
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).filter(is_ours).collect())
    }

    /// A client of the hub's administrator. Clients belong to the runtime that they were made in: make one per test.
    ///
    /// # Errors
    /// When its kubeconfig cannot be read.
    pub async fn hub(&self) -> Result<Client> {
        kubeconfig::client_from(&self.file().hub.kubeconfig).await
    }

    /// A client of another user: `alice`, `bob`, `hive-controllers`, `hibernate-controller`, `hibernate-webhook`.
    ///
    /// # Errors
    /// When there is no such user.
    pub async fn hub_as(&self, user: &str) -> Result<Client> {
        kubeconfig::client_from(self.kubeconfig_of(user)?).await
    }

    /// Kubeconfig file of another user of the hub.
    ///
    /// # Errors
    /// When there is no such user.
    pub fn kubeconfig_of(&self, user: &str) -> Result<&Path> {
        let users = &self.file().hub.users;
        let path = users
            .get(user)
            .with_context(|| format!("no user {user}: there are {:?}", users.keys().collect::<Vec<_>>()))?;
        Ok(path)
    }

    /// A client of a spoke's administrator, past all gates.
    ///
    /// # Errors
    /// When there is no such spoke.
    pub async fn spoke(&self, index: usize) -> Result<Client> {
        let spoke = self.file().spokes.get(index).with_context(|| format!("no spoke {index}"))?;
        kubeconfig::client_from(&spoke.kubeconfig).await
    }

    /// The EC2 simulator's own interface.
    pub fn ec2(&self) -> Ec2 {
        Ec2::new(&self.file().ec2.endpoint)
    }

    /// OpenStack past its proxies, as the administrator `admin` or as `demo`, the member that clusters log in as.
    ///
    /// # Errors
    /// When the world has none, or Keystone refuses.
    pub async fn openstack(&self, user: &str) -> Result<OpenStack> {
        OpenStack::of(self.file().openstack.as_ref().context("this world has no OpenStack")?, user).await
    }

    /// The simulator of a platform.
    ///
    /// # Errors
    /// When the platform has none.
    pub fn simulated(&self, platform: Platform) -> Result<Simulated> {
        let endpoint =
            self.file().simulators.get(&platform).with_context(|| format!("no simulator of {platform:?}"))?;
        Ok(Simulated::new(platform, endpoint))
    }

    /// Makes a cluster in a namespace of its own (`options.namespace`, or its name and some random characters) and
    /// waits until its Nodes are ready.
    ///
    /// # Errors
    /// When the hub, the spoke or EC2 refuses something.
    pub async fn cluster(&self, name: &str, options: ClusterOptions) -> Result<Cluster> {
        let namespace =
            options.namespace.clone().unwrap_or_else(|| format!("{name}-{:06x}", rand::random::<u32>() >> 8));
        let options = ClusterOptions { namespace: Some(namespace), ..options };
        let info = self.add_cluster(name, &options).await?;
        Cluster::new(self.clone(), info).await
    }

    /// Makes a cluster, in the namespace that the options say.
    ///
    /// # Errors
    /// As [`World::cluster`].
    pub async fn add_cluster(&self, name: &str, options: &ClusterOptions) -> Result<ClusterInfo> {
        let new = NewCluster { name: name.to_owned(), options: options.clone() };
        self.inner.control.post("/clusters", &new).await.with_context(|| format!("make cluster {name}"))
    }

    /// Removes a cluster with everything that it has.
    ///
    /// # Errors
    /// When there is none.
    pub async fn remove_cluster(&self, namespace: &str, name: &str) -> Result<()> {
        self.inner.control.delete(&format!("/clusters/{namespace}/{name}")).await
    }

    /// Starts a program of ours, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start(&self, start: &Start) -> Result<ProgramAddress> {
        self.inner.control.post("/programs", start).await.with_context(|| format!("start {}", start.name()))
    }

    /// `stop`, `kill`, `restart`, `freeze` or `thaw` for any process of the world, by its name. The first three wait
    /// until it has ended; `restart` does not wait until it is ready again.
    ///
    /// # Errors
    /// When no such process runs.
    pub async fn signal(&self, process: &str, action: &str) -> Result<()> {
        self.inner.control.post::<Value>(&format!("/programs/{process}/{action}"), &Value::Null).await.map(drop)
    }

    /// Changes timings by name, such as `{"ec2Stop": "20s"}`, and answers all.
    ///
    /// # Errors
    /// When there is no such timing.
    pub async fn change_timings(&self, change: &Value) -> Result<Timings> {
        self.inner.control.patch("/timings", change).await
    }

    /// Injects a fault into a proxy: `hub`, or a cluster's infraID for its gate.
    ///
    /// # Errors
    /// When there is no such proxy.
    pub async fn inject(&self, proxy: &str, rule: &Rule) -> Result<Rule> {
        self.inner.control.post(&format!("/proxies/{proxy}/faults"), rule).await
    }

    /// The faults of a proxy, with their hits.
    ///
    /// # Errors
    /// When there is no such proxy.
    pub async fn faults(&self, proxy: &str) -> Result<Vec<Rule>> {
        self.inner.control.get(&format!("/proxies/{proxy}/faults")).await
    }

    /// How many requests a fault of a proxy has met. A fault that does nothing, `Rule::default()`, counts them.
    ///
    /// # Errors
    /// When there is no such proxy or fault.
    pub async fn hits(&self, proxy: &str, id: &str) -> Result<u32> {
        let found = self.faults(proxy).await?.into_iter().find(|rule| rule.id == id);
        Ok(found.with_context(|| format!("no fault {id} in proxy {proxy}"))?.hits)
    }

    /// Removes one fault of a proxy, or all.
    ///
    /// # Errors
    /// When there is no such proxy.
    pub async fn heal(&self, proxy: &str, id: Option<&str>) -> Result<()> {
        let query = id.map(|id| format!("?id={id}")).unwrap_or_default();
        self.inner.control.delete(&format!("/proxies/{proxy}/faults{query}")).await
    }
}
