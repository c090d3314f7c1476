//! Databases of the `FoundationDB` double that come and go while a world runs.

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use tokio::process::Command;

use super::World;
use crate::apply;
use crate::fdb::cluster::{self, FdbInfo};
use crate::fdb::database::{Database, Log};
use crate::fdb::kubelet;
use crate::fdb::machines::Entry;
use crate::fdb::options::{FdbOptions, Runner};
use crate::process::Rank;

impl World {
    /// Makes a database. The first one brings the kubelet along.
    pub(crate) async fn add_fdb(&self, name: &str, options: FdbOptions) -> Result<FdbInfo> {
        let namespace =
            options.namespace.clone().unwrap_or_else(|| format!("{name}-{:06x}", rand::random::<u32>() >> 8));
        let info = FdbInfo { namespace: namespace.clone(), name: name.to_owned(), runner: options.runner };
        self.make_nodes(options.zones).await?;
        {
            let mut entries = self.machines.entries();
            let key = (namespace.clone(), name.to_owned());
            if entries.contains_key(&key) {
                bail!("database {namespace}/{name} exists already");
            }
            let database = Database::new(options.settings.clone());
            entries.insert(key, Entry { info: info.clone(), database, log: Log::default(), zones: options.zones });
        }
        apply::all(&self.hub_client, &cluster::objects(&namespace, name, &options)).await?;
        if options.runner == Runner::Program {
            self.start_operator(&info)?;
        }
        Ok(info)
    }

    fn start_operator(&self, info: &FdbInfo) -> Result<()> {
        let mut command = Command::new(std::env::current_exe().context("find the testbed's own program")?);
        command.args(["fdb", "operator", &info.namespace, &info.name, "--state"]).arg(&self.dir);
        self.children.spawn(&info.process(), Rank::Program, command).map(drop)
    }

    /// Makes the Nodes of this many zones, and the kubelet behind them.
    async fn make_nodes(&self, zones: usize) -> Result<()> {
        let start = async || {
            let port = kubelet::start(&self.children, &self.dir, &self.kubelet_tls, &self.control).await?;
            self.machines.play();
            anyhow::Ok(port)
        };
        let port = *self.machines.kubelet.get_or_try_init(start).await?;
        let nodes: Api<Node> = Api::all(self.hub_client.clone());
        for zone in 0..zones {
            let (object, status) = cluster::node(zone, port);
            apply::all(&self.hub_client, &[object]).await?;
            let written = nodes
                .patch_status(&cluster::node_name(zone), &PatchParams::default(), &Patch::Strategic(&status))
                .await;
            written.with_context(|| format!("make Node {} Ready", cluster::node_name(zone)))?;
        }
        Ok(())
    }

    /// Removes a database with everything that it has, its namespace too if no other database is in it.
    pub(crate) async fn remove_fdb(&self, namespace: &str, name: &str) -> Result<()> {
        let key = (namespace.to_owned(), name.to_owned());
        let info = self.machines.entries().get(&key).map(|entry| entry.info.clone());
        let info = info.with_context(|| format!("no database {namespace}/{name}"))?;
        if self.children.record(&info.process()).is_some() {
            self.children.signal(&info.process(), crate::process::Signal::SIGKILL).await?;
        }
        let alone = self.machines.entries().keys().filter(|(other, _)| other == namespace).count() == 1;
        let now = DeleteParams::default();
        let deleted = if alone {
            Api::<Namespace>::all(self.hub_client.clone()).delete(namespace, &now).await.map(drop)
        } else {
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.hub_client.clone(), namespace, &crate::fdb::resource());
            api.delete(name, &now).await.map(drop)
        };
        self.machines.entries().remove(&key);
        match deleted {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            other => other.with_context(|| format!("remove database {namespace}/{name}")),
        }
    }
}
