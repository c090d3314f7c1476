//! Clusters that come and go while a world runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::json;
use shared::hive::api::{ClusterSync, RECONCILE_PAUSE};
use tokio::task::JoinHandle;

use super::World;
use super::clock::Clock;
use super::startup::SHARED_ACCOUNT;
use crate::apply;
use crate::cluster::objects::{self, Credentials};
use crate::cluster::{ClusterInfo, ClusterOptions, LABEL, Platform, gate, machines, nodes, openstack, operators};
use crate::controlplane::server::secret;
use crate::ec2::{Instance, NewInstance};
use crate::kubeconfig::{Access, write_private};
use crate::proxy::{Proxy, Upstream};
use crate::simulated;

/// A cluster and who plays it.
pub(crate) struct Entry {
    pub(crate) info: ClusterInfo,
    pub(crate) gate: Arc<Proxy>,
    pub(crate) made: Instant,
    players: Vec<JoinHandle<()>>,
}

/// An access key with the account that it opens.
struct AwsKey {
    account: String,
    id: String,
    secret: String,
}

impl Drop for Entry {
    fn drop(&mut self) {
        for player in &self.players {
            player.abort();
        }
    }
}

impl World {
    /// Makes a cluster and waits until its Nodes are there. What a failure leaves behind is removed.
    pub(crate) async fn add_cluster(&self, name: &str, options: ClusterOptions) -> Result<ClusterInfo> {
        let key = self.aws_key(&options).await?;
        let (info, kubeconfig) = self.enter(name, &options, &key)?;
        let result = self.build(&info, &options, &key, &kubeconfig).await;
        if result.is_err() {
            self.entries().remove(&info.infra_id);
            if let Err(error) = self.clean_up(&info).await {
                tracing::warn!(cluster = name, "what is left of a cluster that failed: {error:#}");
            }
        }
        result.map(|()| info)
    }

    /// Chooses a spoke and opens the books on a cluster that has nothing yet. In one step, because others do the same.
    fn enter(&self, name: &str, options: &ClusterOptions, key: &AwsKey) -> Result<(ClusterInfo, String)> {
        let mut entries = self.entries();
        let namespace = options.namespace.clone().unwrap_or_else(|| name.to_owned());
        if entries.values().any(|entry| entry.info.namespace == namespace && entry.info.name == name) {
            bail!("cluster {namespace}/{name} exists already");
        }
        let spoke = self.choose_spoke(&entries, options)?;
        let server = &self.spokes[spoke].server;
        let infra_id = infra_id(name);
        let upstream = Upstream::new(&server.url, &self.authority)?;
        let gate = Arc::new(gate::start(&infra_id, upstream, self.gate_tls.clone())?);
        let kubeconfig = Access {
            cluster: name,
            server: &gate.url(),
            authority: &self.authority,
            user: "admin",
            token: &server.admin_token,
            namespace: "default",
        }
        .yaml()?;
        let path = self.dir.join(format!("cluster-{infra_id}.kubeconfig"));
        write_private(&path, &kubeconfig)?;
        let info = ClusterInfo {
            namespace,
            name: name.to_owned(),
            infra_id: infra_id.clone(),
            spoke,
            gate: gate.url(),
            kubeconfig: path.display().to_string(),
            platform: options.platform,
            region: options.region.clone(),
            account: key.account.clone(),
            access_key_id: key.id.clone(),
        };
        let players = self.play(&gate, &infra_id, spoke, options);
        entries.insert(infra_id, Entry { info: info.clone(), gate, made: Instant::now(), players });
        Ok((info, kubeconfig))
    }

    /// Machines, operators and the objects on the hub.
    async fn build(&self, info: &ClusterInfo, options: &ClusterOptions, key: &AwsKey, kubeconfig: &str) -> Result<()> {
        let spoke = &self.spokes[info.spoke].client;
        let new = instances(&info.infra_id, options);
        let (instances, secret) = match (options.platform, self.clouds.of(options.platform)) {
            (Platform::OpenStack, _) => {
                let openstack = &self.openstack.as_ref().context("this world has no OpenStack")?.client;
                let made = openstack.create(&info.infra_id, &new).await?;
                (made, Some(("clouds.yaml", openstack.clouds_yaml())))
            }
            (platform, Some(cloud)) => (cloud.create(&info.infra_id, &new), simulated::credentials(platform)),
            (_, None) => (self.ec2.create(&info.account, &info.region, &info.infra_id, &new).await?, None),
        };
        if options.certificates || options.platform != Platform::Aws {
            machines::create(spoke, &info.infra_id, &instances).await?;
            if !options.awake() {
                nodes::asleep(spoke, &info.infra_id, &instances).await?;
            }
        }
        operators::create(spoke, &info.infra_id, options.awake()).await?;
        let cloud = secret.as_ref().map(|(key, value)| (*key, value.as_str()));
        let credentials = Credentials { secret_access_key: &key.secret, cloud, kubeconfig };
        self.put_on_hub(info, options, &credentials).await?;
        if options.awake() && options.control_plane > 0 {
            nodes::all_there(spoke, &info.infra_id, options.control_plane + options.workers).await?;
        }
        Ok(())
    }

    fn choose_spoke(&self, entries: &BTreeMap<String, Entry>, options: &ClusterOptions) -> Result<usize> {
        let load = |spoke: &usize| entries.values().filter(|entry| entry.info.spoke == *spoke).count();
        match options.spoke {
            Some(spoke) if spoke < self.spokes.len() => Ok(spoke),
            Some(spoke) => bail!("no spoke {spoke}: this world has {}", self.spokes.len()),
            None => (0..self.spokes.len()).min_by_key(load).context("this world has no spokes"),
        }
    }

    async fn aws_key(&self, options: &ClusterOptions) -> Result<AwsKey> {
        if !options.own_account {
            let (id, secret) = (self.ec2_address.access_key_id.clone(), self.ec2_address.secret_access_key.clone());
            return Ok(AwsKey { account: SHARED_ACCOUNT.to_owned(), id, secret });
        }
        let number = rand::random::<u64>();
        let account = format!("2{:011}", number % 100_000_000_000);
        let key = AwsKey { account, id: format!("AKIA{number:016X}"), secret: secret() };
        self.ec2.set_key(&key.id, &key.secret, &key.account, &[]).await?;
        Ok(key)
    }

    fn play(&self, gate: &Arc<Proxy>, infra_id: &str, spoke: usize, options: &ClusterOptions) -> Vec<JoinHandle<()>> {
        let (client, clock, awake) = (self.spokes[spoke].client.clone(), self.clock.clone(), options.awake());
        let issuance = options.certificates.then(|| self.spokes[spoke].issuance.clone());
        let infra_id = infra_id.to_owned();
        let on_openstack = (options.platform == Platform::OpenStack).then(|| {
            let (client, snapshots) = (client.clone(), self.snapshots.clone());
            tokio::spawn(openstack::play(client, infra_id.clone(), snapshots, gate.opened(), clock.clone()))
        });
        let players = vec![
            tokio::spawn(gate::guard(gate.clone(), infra_id.clone(), self.snapshots.clone(), clock.clone())),
            tokio::spawn(nodes::play(
                client.clone(),
                infra_id.clone(),
                issuance,
                self.snapshots.clone(),
                gate.opened(),
                clock.clone(),
            )),
            tokio::spawn(operators::lead(client.clone(), infra_id.clone(), gate.opened(), clock.clone(), awake)),
            tokio::spawn(operators::play(client, infra_id, gate.opened(), clock, awake)),
        ];
        players.into_iter().chain(on_openstack).collect()
    }

    async fn put_on_hub(
        &self,
        info: &ClusterInfo,
        options: &ClusterOptions,
        credentials: &Credentials<'_>,
    ) -> Result<()> {
        let client = &self.hub_client;
        apply::all(client, &objects::surroundings(info, credentials)).await?;
        // Nobody is to act on it before its status is there: a controller may be watching.
        let mut object = objects::cluster_deployment(info, options);
        let pause = &mut object["metadata"]["annotations"][RECONCILE_PAUSE];
        let own_pause = pause.clone();
        *pause = json!("true");
        apply::all(client, &[object]).await?;
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &info.namespace, &cluster_deployments());
        let what = || format!("finish ClusterDeployment {}/{}", info.namespace, info.name);
        let (params, status) = (PatchParams::default(), json!({"status": objects::status(info, options)}));
        self.put_cluster_sync(info).await?;
        api.patch_status(&info.name, &params, &Patch::Merge(&status)).await.with_context(what)?;
        let unpause = json!({"metadata": {"annotations": {RECONCILE_PAUSE: own_pause}}});
        api.patch(&info.name, &params, &Patch::Merge(&unpause)).await.with_context(what)?;
        Ok(())
    }

    /// As Hive's clustersync controller leaves it once every `SyncSet` has been applied.
    async fn put_cluster_sync(&self, info: &ClusterInfo) -> Result<()> {
        let sync = json!({
            "apiVersion": "hiveinternal.openshift.io/v1alpha1",
            "kind": "ClusterSync",
            "metadata": {"name": info.name, "namespace": info.namespace},
            "spec": {},
        });
        apply::all(&self.hub_client, &[sync]).await?;
        let status = json!({"status": {"firstSuccessTime": objects::days_ago(3)}});
        let api: Api<ClusterSync> = Api::namespaced(self.hub_client.clone(), &info.namespace);
        let written = api.patch_status(&info.name, &PatchParams::default(), &Patch::Merge(&status)).await;
        written.with_context(|| format!("finish ClusterSync {}/{}", info.namespace, info.name))?;
        Ok(())
    }

    /// Removes a cluster with everything that it has, its namespace too if no other cluster is in it.
    pub(crate) async fn remove_cluster(&self, namespace: &str, name: &str) -> Result<()> {
        let info = {
            let mut entries = self.entries();
            let found = entries.values().find(|entry| entry.info.namespace == namespace && entry.info.name == name);
            let info =
                found.map(|entry| entry.info.clone()).with_context(|| format!("no cluster {namespace}/{name}"))?;
            entries.remove(&info.infra_id);
            info
        };
        self.clean_up(&info).await
    }

    async fn clean_up(&self, info: &ClusterInfo) -> Result<()> {
        let (namespace, name, infra_id) = (&info.namespace, &info.name, &info.infra_id);
        self.ec2.forget(infra_id).await?;
        self.clouds.forget(infra_id);
        if let Some(openstack) = &self.openstack {
            openstack.client.forget(infra_id).await?;
        }
        let now = DeleteParams::default();
        if self.entries().values().any(|other| other.info.namespace == *namespace) {
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.hub_client.clone(), namespace, &cluster_deployments());
            gone(api.delete(name, &now).await).context("delete the ClusterDeployment")?;
            let syncs: Api<ClusterSync> = Api::namespaced(self.hub_client.clone(), namespace);
            gone(syncs.delete(name, &now).await).context("delete the ClusterSync")?;
        } else {
            let namespaces: Api<Namespace> = Api::all(self.hub_client.clone());
            gone(namespaces.delete(namespace, &now).await).with_context(|| format!("delete namespace {namespace}"))?;
        }
        let spoke = self.spokes[info.spoke].client.clone();
        let ours = ListParams::default().labels(&format!("{LABEL}={infra_id}"));
        Api::<Node>::all(spoke.clone()).delete_collection(&now, &ours).await.context("delete Nodes")?;
        let leases: Api<Lease> = Api::namespaced(spoke.clone(), "kube-node-lease");
        leases.delete_collection(&now, &ours).await.context("delete Leases")?;
        machines::remove(&spoke, infra_id).await?;
        let requests: Api<CertificateSigningRequest> = Api::all(spoke.clone());
        requests.delete_collection(&now, &ours).await.context("delete certificate signing requests")?;
        operators::remove(&spoke, infra_id).await
    }
}

fn gone<T>(result: kube::Result<T>) -> Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn instances(infra_id: &str, options: &ClusterOptions) -> Vec<NewInstance> {
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
