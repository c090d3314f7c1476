//! One cluster in the hands of a test.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use shared::hive::api::ClusterDeployment;
use tokio::time::Instant;

use super::World;
use super::copy::copy;
use super::helpers::PERIOD;
use crate::cluster::ClusterInfo;
use crate::ec2::{Instance, NewInstance};
use crate::kubeconfig;
use crate::proxy::faults::Rule;

/// One cluster of a world. Its client belongs to the runtime that it was made in.
#[derive(Clone)]
pub struct Cluster {
    world: World,
    info: ClusterInfo,
    hub: Client,
}

impl Cluster {
    pub(super) async fn new(world: World, info: ClusterInfo) -> Result<Self> {
        let hub = world.hub().await?;
        Ok(Self { world, info, hub })
    }

    /// Where it is.
    pub fn info(&self) -> &ClusterInfo {
        &self.info
    }

    /// Name of its `ClusterDeployment`.
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// Namespace of its `ClusterDeployment`.
    pub fn namespace(&self) -> &str {
        &self.info.namespace
    }

    /// Its instances, by name.
    ///
    /// # Errors
    /// When the simulator cannot be reached.
    pub async fn instances(&self) -> Result<Vec<Instance>> {
        let infra_id = &self.info.infra_id;
        match self.world.simulated(self.info.platform) {
            Ok(simulated) => simulated.instances(infra_id).await,
            Err(_) => self.world.ec2().instances(infra_id).await,
        }
    }

    /// How many of its instances are in which state.
    ///
    /// # Errors
    /// When the simulator cannot be reached.
    pub async fn states(&self) -> Result<BTreeMap<String, usize>> {
        let mut states = BTreeMap::new();
        for instance in self.instances().await? {
            *states.entry(instance.state).or_insert(0) += 1;
        }
        Ok(states)
    }

    /// Its `ClusterDeployment`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn get(&self) -> Result<ClusterDeployment> {
        let found = self.api().get(&self.info.name).await;
        found.with_context(|| format!("read ClusterDeployment {}/{}", self.info.namespace, self.info.name))
    }

    /// Its `ClusterDeployment` with every field that it has.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn raw(&self) -> Result<DynamicObject> {
        let found = self.raw_api().get(&self.info.name).await;
        found.with_context(|| format!("read {}/{}", self.info.namespace, self.info.name))
    }

    /// Its observed power state.
    ///
    /// # Errors
    /// When its `ClusterDeployment` cannot be read.
    pub async fn power_state(&self) -> Result<String> {
        Ok(self.get().await?.power_state().to_owned())
    }

    /// Merge-patches its `ClusterDeployment` as the administrator.
    ///
    /// # Errors
    /// When the hub refuses; the error is a [`kube::Error`].
    pub async fn patch(&self, patch: &Value) -> Result<ClusterDeployment> {
        Ok(self.api().patch(&self.info.name, &PatchParams::default(), &Patch::Merge(patch)).await?)
    }

    /// Asks for sleep.
    ///
    /// # Errors
    /// When the hub refuses.
    pub async fn sleep(&self) -> Result<ClusterDeployment> {
        self.request("Hibernating").await
    }

    /// Asks for waking.
    ///
    /// # Errors
    /// When the hub refuses.
    pub async fn wake(&self) -> Result<ClusterDeployment> {
        self.request("Running").await
    }

    /// Asks for a power state.
    ///
    /// # Errors
    /// When the hub refuses.
    pub async fn request(&self, state: &str) -> Result<ClusterDeployment> {
        self.patch(&json!({"spec": {"powerState": state}})).await
    }

    /// Makes so many copies of it in its namespace, `PREFIX-0` and so on: with its Secrets, a name and an infraID of
    /// their own, these annotations and, if a state is given, one instance.
    ///
    /// # Errors
    /// When the hub or EC2 refuses one.
    pub async fn copies(&self, prefix: &str, count: usize, annotations: &Value, instance: Option<&str>) -> Result<()> {
        let model = serde_json::to_value(self.raw().await?)?;
        let ec2 = self.world.ec2();
        let copy = async |number: usize| {
            let name = format!("{prefix}-{number}");
            if let Some(state) = instance {
                let new = NewInstance { name: name.clone(), state: Some(state.to_owned()), ..NewInstance::default() };
                ec2.create(&self.info.account, &self.info.region, &name, &[new]).await?;
            }
            let annotate = |object: &mut Value| object["metadata"]["annotations"] = annotations.clone();
            copy(&self.hub, &model, &self.info.namespace, &name, annotate).await
        };
        stream::iter(0..count).map(copy).buffer_unordered(8).try_collect().await
    }

    /// Waits until its `ClusterDeployment` is as wanted.
    ///
    /// # Errors
    /// When it is not in time; the error shows the conditions and the instances.
    pub async fn wait_for(
        &self,
        what: &str,
        within: Duration,
        wanted: impl Fn(&ClusterDeployment) -> bool,
    ) -> Result<ClusterDeployment> {
        let api = self.api();
        let deadline = Instant::now() + within;
        loop {
            let found = api.get(&self.info.name).await.with_context(|| format!("wait for {what}"))?;
            if wanted(&found) {
                return Ok(found);
            }
            if Instant::now() > deadline {
                bail!("no {what} within {within:?}\n{}", self.describe(&found).await);
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Waits for an observed power state.
    ///
    /// # Errors
    /// As [`Cluster::wait_for`].
    pub async fn wait_for_power_state(&self, state: &str, within: Duration) -> Result<ClusterDeployment> {
        self.wait_for(&format!("power state {state}"), within, |cluster| cluster.power_state() == state).await
    }

    /// A client of its API server, through its gate.
    ///
    /// # Errors
    /// When its kubeconfig cannot be read.
    pub async fn spoke(&self) -> Result<Client> {
        kubeconfig::client_from(self.info.kubeconfig.as_ref()).await
    }

    /// Injects a fault into its gate.
    ///
    /// # Errors
    /// When the cluster is gone.
    pub async fn inject(&self, rule: &Rule) -> Result<Rule> {
        self.world.inject(&self.info.infra_id, rule).await
    }

    /// Removes it with everything that it has.
    ///
    /// # Errors
    /// When it is gone already.
    pub async fn remove(self) -> Result<()> {
        self.world.remove_cluster(&self.info.namespace, &self.info.name).await
    }

    fn raw_api(&self) -> Api<DynamicObject> {
        let resource = ApiResource::erase::<ClusterDeployment>(&());
        Api::namespaced_with(self.hub.clone(), &self.info.namespace, &resource)
    }

    fn api(&self) -> Api<ClusterDeployment> {
        Api::namespaced(self.hub.clone(), &self.info.namespace)
    }

    async fn describe(&self, cluster: &ClusterDeployment) -> String {
        let mut lines = vec![format!(
            "ClusterDeployment {}/{}: spec.powerState {:?}, status.powerState {:?}",
            self.info.namespace,
            self.info.name,
            cluster.spec.power_state.as_deref().unwrap_or_default(),
            cluster.power_state()
        )];
        for condition in cluster.status.iter().flat_map(|status| &status.conditions) {
            let (reason, message) =
                (condition.reason.as_deref().unwrap_or_default(), condition.message.as_deref().unwrap_or_default());
            lines.push(format!("  {}={} {reason}: {message}", condition.type_, condition.status));
        }
        for instance in self.instances().await.unwrap_or_default() {
            let name = instance.tags.get("Name").cloned().unwrap_or_default();
            lines.push(format!("  {} {name} {}", instance.id, instance.state));
        }
        lines.join("\n")
    }
}
