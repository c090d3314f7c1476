//! User clusters of the KKP double that come while a world runs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Map, Value, json};

use super::{World, hub};
use crate::cluster::nodes::is_ready;
use crate::controlplane::assets;
use crate::kkp::options::{KkpOptions, PROVIDER, VERSION};
use crate::kkp::registry::{KkpInfo, Manager, UserCluster};
use crate::kkp::seed::{self, webhooks};
use crate::kkp::{control_plane, is_pod_ready, kubermatic, workloads};
use crate::proxy::{Proxy, Settings, Upstream};
use crate::world::helpers::eventually;
use crate::{apply, foreign};

/// Longest time that a user cluster may take to come up.
const UP: Duration = Duration::from_mins(2);

impl World {
    /// Makes a user cluster, and waits until it is up with all its machines. The first one brings KKP along.
    pub(crate) async fn add_kkp(&self, id: &str, options: KkpOptions) -> Result<KkpInfo> {
        ensure!(!self.kkp.clusters().contains_key(id), "user cluster {id} exists already");
        let spoke = self.kkp.take_spoke(self.spokes.len())?;
        let server = &self.spokes[spoke];
        let upstream = self.kkp_webhooks().await?;
        let user = server.client.clone();
        let folder = server.server.kubeconfig.parent().context("a folder")?;
        self.install_user_cluster(&user).await?;
        let gate = self.gate(Upstream::new(&server.server.url, &self.authority)?, false)?;
        let info = KkpInfo { id: id.to_owned(), namespace: format!("cluster-{id}"), spoke, gate: gate.url() };
        let guards = [
            ("machine-controller-webhook", "machine-controller.kubermatic.io"),
            ("operating-system-manager-webhook", "operating-system-manager.kubermatic.io"),
        ];
        let mut proxies = Vec::new();
        for (deployment, name) in guards {
            let proxy = self.gate(upstream.clone(), false)?;
            apply::all(&user, &[webhooks::of_user_cluster(name, &proxy.url(), &self.authority)]).await?;
            proxies.push((deployment, proxy));
        }
        apply::all(&self.hub_client, &control_plane::surroundings(&info.namespace, id)).await?;
        let clients = (self.hub_client.clone(), user);
        let manager = self.manager(folder)?;
        let cluster =
            UserCluster::new(info.clone(), &options, clients, gate, proxies, self.authority.clone(), manager)?;
        self.kkp.clusters().insert(id.to_owned(), cluster.clone());
        cluster.play(&self.kkp);
        let result = self.bring_up(&cluster, &options).await;
        if result.is_err() {
            cluster.end();
            self.kkp.clusters().remove(id);
        }
        result.with_context(|| format!("make user cluster {id}")).map(|()| info)
    }

    fn gate(&self, upstream: Upstream, open: bool) -> Result<Proxy> {
        Proxy::start(Settings { upstream, tls: Some(self.gate_tls.clone()), lists: None, open })
    }

    fn manager(&self, folder: &Path) -> Result<Manager> {
        let executable = assets::find()?.controller_manager;
        Ok(Manager { children: self.children.clone(), executable, folder: folder.to_owned() })
    }

    /// KKP's kinds and webhooks on the seed, once.
    async fn kkp_webhooks(&self) -> Result<Upstream> {
        let start = async || {
            let upstream = self.options.upstream_crds.as_deref();
            apply::all(&self.hub_client, &hub::preferred(foreign::of_seed(), upstream)?).await?;
            let plain = webhooks::serve(self.kkp.clone()).await?;
            let proxy = self.gate(Upstream::new(&plain, &self.authority)?, true)?;
            proxy.listening().await?;
            apply::all(&self.hub_client, &webhooks::of_seed(&proxy.url(), &self.authority)).await?;
            anyhow::Ok((proxy, plain))
        };
        let (_, plain) = self.kkp.webhooks.get_or_try_init(start).await?;
        Upstream::new(plain, &self.authority)
    }

    async fn install_user_cluster(&self, user: &Client) -> Result<()> {
        let upstream = self.options.upstream_crds.as_deref();
        apply::all(user, &hub::preferred(foreign::of_user_cluster(), upstream)?).await?;
        apply::all(user, &workloads::namespaces()).await
    }

    async fn bring_up(&self, cluster: &Arc<UserCluster>, options: &KkpOptions) -> Result<()> {
        let api: Api<DynamicObject> = Api::all_with(self.hub_client.clone(), &kubermatic("Cluster"));
        let object = cluster_object(&cluster.info.id, options);
        api.create(&PostParams::default(), &serde_json::from_value(object)?).await.context("create the Cluster")?;
        eventually(UP, "control plane", async || {
            let webhooks = cluster.webhooks.iter().all(|(deployment, _)| cluster.runs(deployment));
            let state = cluster.state();
            ensure!(cluster.answers() && webhooks, "{:?}, answers: {}", state.etcd, cluster.answers());
            Ok(())
        })
        .await?;
        self.volumes(cluster, options).await?;
        let machines = options.machine_deployments.iter();
        let machines: Vec<Value> = machines.map(workloads::machine_deployment).collect();
        // A proxy that was opened listens a moment later.
        eventually(UP, "webhooks of MachineDeployments", async || apply::all(&cluster.user, &machines).await).await?;
        let wanted: u32 = options.machine_deployments.iter().map(|one| one.replicas).sum();
        eventually(UP, "machines", async || {
            let ready = cluster.of_user.nodes.all().iter().filter(|node| is_ready(node)).count();
            let linked = cluster.of_user.machines.all().iter().all(|one| one.data.pointer("/status/nodeRef").is_some());
            ensure!(ready == wanted as usize && linked, "{ready} of {wanted} Nodes are Ready");
            Ok(())
        })
        .await?;
        apply::all(&cluster.user, &workloads::objects(options)).await?;
        eventually(UP, "workloads", async || {
            let (pods, wanted) = (cluster.of_user.pods.all(), workloads::pods(options));
            let ready = pods.iter().filter(|pod| is_pod_ready(pod)).count();
            let attached = cluster.of_user.attachments.all().len();
            ensure!(ready >= wanted, "{ready} of {wanted} Pods are Ready");
            ensure!(attached == options.volumes as usize, "{attached} volumes are attached");
            ensure!(cluster.state().cloud.load_balancers.len() == options.load_balancers as usize, "load balancers");
            let phase = cluster.cluster().map(|object| crate::kkp::text(&object, "/status/phase").to_owned());
            let object = cluster.cluster().context("a Cluster")?;
            ensure!(
                phase.as_deref() == Some("Running") && seed::is_true(&object, "SeedResourcesUpToDate"),
                "{phase:?}"
            );
            Ok(())
        })
        .await
    }

    /// Volumes and their claims, bound, each with something on it.
    async fn volumes(&self, cluster: &UserCluster, options: &KkpOptions) -> Result<()> {
        let volumes: Api<PersistentVolume> = Api::all(cluster.user.clone());
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(cluster.user.clone(), workloads::NAMESPACE);
        let bound = Patch::Merge(json!({ "status": { "phase": "Bound" } }));
        for number in 0..options.volumes {
            let handle = format!("vol-{:08x}", rand::random::<u32>());
            cluster.state().cloud.volumes.insert(handle.clone(), format!("{:016x}", rand::random::<u64>()));
            apply::all(&cluster.user, &workloads::volume(number, &handle)).await?;
            volumes.patch_status(&format!("pvc-{handle}"), &PatchParams::default(), &bound).await?;
            claims.patch_status(&format!("data-db-{number}"), &PatchParams::default(), &bound).await?;
        }
        Ok(())
    }
}

fn cluster_object(id: &str, options: &KkpOptions) -> Value {
    // What upstream's own definition requires.
    let fields = ["instanceProfileName", "roleARN", "routeTableID", "securityGroupID", "vpcID"];
    let fields: Map<_, _> = fields.map(|field| (field.to_owned(), json!("made-by-kkp"))).into_iter().collect();
    let cloud = json!({ "dc": options.datacenter, "providerName": PROVIDER, PROVIDER: fields });
    json!({
        "apiVersion": "kubermatic.k8c.io/v1", "kind": "Cluster",
        "metadata": {
            "name": id, "labels": { "project-id": "p7x9q2" }, "finalizers": seed::finalizers(options.cleanup_finalizers),
        },
        "spec": {
            "humanReadableName": id, "version": VERSION, "cloud": cloud, "exposeStrategy": "LoadBalancer",
            "clusterNetwork": {
                "services": { "cidrBlocks": ["10.240.16.0/20"] }, "pods": { "cidrBlocks": ["172.25.0.0/16"] },
                "dnsDomain": "cluster.local", "proxyMode": "ipvs",
            },
        },
    })
}
