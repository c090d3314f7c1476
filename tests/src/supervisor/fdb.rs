//! Databases of the `FoundationDB` double that come and go while a world runs.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};

use super::World;
use crate::fdb::cluster::{self, FdbInfo};
use crate::fdb::database::{Database, Log};
use crate::fdb::machines::{Entry, Key};
use crate::fdb::options::FdbOptions;
use crate::fdb::{OPERATOR, kubelet, operator};
use crate::{apply, kubeconfig};

impl World {
    /// Makes a database. The first one brings the kubelet along.
    pub(crate) async fn add_fdb(&self, name: &str, options: FdbOptions) -> Result<FdbInfo> {
        let namespace =
            options.namespace.clone().unwrap_or_else(|| format!("{name}-{:06x}", rand::random::<u32>() >> 8));
        self.make_nodes(options.zones).await?;
        let database = Database::new(options.settings.clone());
        let entry = Entry { database, log: Log::default(), zones: options.zones, operator: Arc::default() };
        let key = (namespace.clone(), name.to_owned());
        if self.machines.entries().insert(key, entry).is_some() {
            bail!("database {namespace}/{name} existed already");
        }
        apply::all(&self.hub_client, &cluster::objects(&namespace, name, &options)).await?;
        Ok(FdbInfo { namespace, name: name.to_owned() })
    }

    /// Runs the operator of a database, under its own service account.
    pub(crate) async fn operate(&self, of: Key) -> Result<()> {
        let account = self.hub.users.get(OPERATOR).context("the operator's kubeconfig")?;
        operator::run(&kubeconfig::client_from(account).await?, self.machines.clone(), of).await
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

    /// Removes a database with everything that it has, and its namespace.
    pub(crate) async fn remove_fdb(&self, of: &Key) -> Result<()> {
        self.machines.entries().remove(of).with_context(|| format!("no database {}/{}", of.0, of.1))?;
        let namespaces: Api<Namespace> = Api::all(self.hub_client.clone());
        match namespaces.delete(&of.0, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            other => other.map(drop).with_context(|| format!("remove database {}/{}", of.0, of.1)),
        }
    }
}
