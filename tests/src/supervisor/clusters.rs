//! Clusters that come and go while a world runs.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Namespace, Node},
};
use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde_json::json;
use tokio::task::JoinHandle;

use super::{World, clock::Clock, startup::SHARED_ACCOUNT};
use crate::{
    apply,
    cluster::{
        ClusterInfo, ClusterOptions, LABEL, gate, nodes,
        objects::{self, Credentials},
        operators,
    },
    controlplane::server::secret,
    ec2::{Instance, NewInstance},
    kubeconfig::{Access, write_private},
    proxy::{Proxy, Upstream},
};

/// A cluster and who plays it.
pub(crate) struct Entry {
    pub(crate) info: ClusterInfo,
    pub(crate) gate: Arc<Proxy>,
    players: Vec<JoinHandle<()>>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        for player in &self.players {
            player.abort();
        }
    }
}

impl World {
    /// Makes a cluster and waits until its Nodes are there.
    pub(crate) async fn add_cluster(&self, name: &str, options: ClusterOptions) -> Result<ClusterInfo> {
        let _making = self.making.lock().await;
        let namespace = options.namespace.clone().unwrap_or_else(|| name.to_owned());
        if self.entries().values().any(|entry| entry.info.namespace == namespace && entry.info.name == name) {
            bail!("cluster {namespace}/{name} exists already");
        }
        let spoke_index = self.choose_spoke(&options)?;
        let spoke = &self.spokes[spoke_index];
        let infra_id = infra_id(name);
        let upstream = Upstream::new(&spoke.server.url, &self.authority)?;
        let gate = Arc::new(gate::start(&infra_id, upstream, self.gate_tls.clone())?);
        let (account, access_key_id, secret_access_key) = self.aws_key(&options).await?;
        let kubeconfig = Access {
            cluster: name,
            server: &gate.url(),
            authority: &self.authority,
            user: "admin",
            token: &spoke.server.admin_token,
            namespace: "default",
        }
        .yaml()?;
        let path = self.dir.join(format!("cluster-{infra_id}.kubeconfig"));
        write_private(&path, &kubeconfig)?;
        let info = ClusterInfo {
            namespace,
            name: name.to_owned(),
            infra_id: infra_id.clone(),
            spoke: spoke_index,
            gate: gate.url(),
            kubeconfig: path.display().to_string(),
            region: options.region.clone(),
            account,
            access_key_id,
        };
        self.ec2.create(&info.account, &info.region, &infra_id, &machines(&infra_id, &options)).await?;
        operators::create(&spoke.client, &infra_id).await?;
        let awake = options.instance_state == "running";
        self.entries().insert(
            infra_id.clone(),
            Entry { info: info.clone(), players: self.play(&gate, &infra_id, spoke_index, awake), gate },
        );
        if options.on_hub {
            let credentials = Credentials { secret_access_key: &secret_access_key, kubeconfig: &kubeconfig };
            self.put_on_hub(&info, &options, &credentials).await?;
        }
        if awake && options.control_plane > 0 {
            nodes::all_there(&spoke.client, &infra_id, options.control_plane + options.workers).await?;
        }
        Ok(info)
    }

    fn choose_spoke(&self, options: &ClusterOptions) -> Result<usize> {
        let entries = self.entries();
        let load = |spoke: &usize| entries.values().filter(|entry| entry.info.spoke == *spoke).count();
        match options.spoke {
            Some(spoke) if spoke < self.spokes.len() => Ok(spoke),
            Some(spoke) => bail!("no spoke {spoke}: this world has {}", self.spokes.len()),
            None => (0..self.spokes.len()).min_by_key(load).context("this world has no spokes"),
        }
    }

    async fn aws_key(&self, options: &ClusterOptions) -> Result<(String, String, String)> {
        if !options.own_account {
            let shared = &self.ec2_address;
            return Ok((SHARED_ACCOUNT.to_owned(), shared.access_key_id.clone(), shared.secret_access_key.clone()));
        }
        let number = rand::random::<u64>();
        let (account, id) = (format!("2{:011}", number % 100_000_000_000), format!("AKIA{number:016X}"));
        let secret = secret();
        self.ec2.set_key(&id, &secret, &account, &[]).await?;
        Ok((account, id, secret))
    }

    fn play(&self, gate: &Arc<Proxy>, infra_id: &str, spoke: usize, awake: bool) -> Vec<JoinHandle<()>> {
        let (client, clock) = (self.spokes[spoke].client.clone(), self.clock.clone());
        let infra_id = infra_id.to_owned();
        vec![
            tokio::spawn(gate::guard(gate.clone(), infra_id.clone(), self.snapshots.clone(), clock.clone())),
            tokio::spawn(nodes::play(
                client.clone(),
                infra_id.clone(),
                self.snapshots.clone(),
                gate.opened(),
                clock.clone(),
            )),
            tokio::spawn(operators::play(client, infra_id, gate.opened(), clock, awake)),
        ]
    }

    async fn put_on_hub(
        &self,
        info: &ClusterInfo,
        options: &ClusterOptions,
        credentials: &Credentials<'_>,
    ) -> Result<()> {
        let client = &self.hub_client;
        apply::all(client, &objects::surroundings(info, credentials)).await?;
        apply::all(client, &[objects::cluster_deployment(info, options)]).await?;
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &info.namespace, &cluster_deployments());
        let status = json!({"status": objects::status(info, options)});
        let written = api.patch_status(&info.name, &PatchParams::default(), &Patch::Merge(&status)).await;
        written
            .with_context(|| format!("write the status of ClusterDeployment {}/{}", info.namespace, info.name))
            .map(drop)
    }

    /// Removes a cluster with everything that it has, its namespace too if no other cluster is in it.
    pub(crate) async fn remove_cluster(&self, namespace: &str, name: &str) -> Result<()> {
        let _making = self.making.lock().await;
        let entry = {
            let mut entries = self.entries();
            let found = entries.values().find(|entry| entry.info.namespace == namespace && entry.info.name == name);
            let key = found
                .map(|entry| entry.info.infra_id.clone())
                .with_context(|| format!("no cluster {namespace}/{name}"))?;
            entries.remove(&key).context("removed meanwhile")?
        };
        let shared = self.entries().values().any(|other| other.info.namespace == namespace);
        let infra_id = entry.info.infra_id.clone();
        let spoke = self.spokes[entry.info.spoke].client.clone();
        drop(entry);
        self.ec2.forget(&infra_id).await?;
        if shared {
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.hub_client.clone(), namespace, &cluster_deployments());
            gone(api.delete(name, &DeleteParams::default()).await).context("delete the ClusterDeployment")?;
        } else {
            let namespaces: Api<Namespace> = Api::all(self.hub_client.clone());
            gone(namespaces.delete(namespace, &DeleteParams::default()).await)
                .with_context(|| format!("delete namespace {namespace}"))?;
        }
        let ours = ListParams::default().labels(&format!("{LABEL}={infra_id}"));
        let now = DeleteParams::default();
        Api::<Node>::all(spoke.clone()).delete_collection(&now, &ours).await.context("delete Nodes")?;
        Api::<Lease>::namespaced(spoke.clone(), "kube-node-lease")
            .delete_collection(&now, &ours)
            .await
            .context("delete Leases")?;
        Api::<DynamicObject>::all_with(spoke, &operators::resource())
            .delete_collection(&now, &ours)
            .await
            .context("delete ClusterOperators")?;
        Ok(())
    }
}

fn gone<T>(result: kube::Result<T>) -> Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn machines(infra_id: &str, options: &ClusterOptions) -> Vec<NewInstance> {
    let long_ago = Clock::now() - 3.0 * 24.0 * 3600.0;
    let machine = |role: &str, number: usize, spot: bool| NewInstance {
        name: format!("{infra_id}-{role}-{number}"),
        tags: [(Instance::ROLE.to_owned(), role.to_owned())].into(),
        spot: spot.then(|| "one-time".to_owned()),
        state: Some(options.instance_state.clone()),
        since: Some(long_ago),
    };
    let masters = (0..options.control_plane).map(|number| machine("master", number, false));
    let workers = (0..options.workers).map(|number| machine("worker", number, number < options.spot_workers));
    masters.chain(workers).collect()
}

/// As the installer makes them: the name and five characters. `demo` always has the same, for documentation.
fn infra_id(name: &str) -> String {
    const LETTERS: &[u8; 32] = b"23456789bcdfghjklmnpqrstvwxzaeuy";
    if name == "demo" {
        return "demo-x7k2p".to_owned();
    }
    let suffix: String = (0..5).map(|_| char::from(LETTERS[usize::from(rand::random::<u8>() % 32)])).collect();
    format!("{name}-{suffix}")
}

fn cluster_deployments() -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("hive.openshift.io", "v1", "ClusterDeployment"),
        "clusterdeployments",
    )
}
