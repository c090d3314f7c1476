//! The cloud of a user cluster: instances, volumes and load balancers. Plain data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What the cloud has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cloud {
    /// Instances by the UID of their Machine. Terminated ones are gone.
    pub instances: BTreeMap<String, Instance>,
    /// What is on each volume, by its handle: a text that nothing writes twice.
    pub volumes: BTreeMap<String, String>,
    /// Addresses of load balancers, by `namespace/name` of their Services.
    pub load_balancers: BTreeMap<String, String>,
}

/// An instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// Name of its Machine, and of its Node.
    pub name: String,
    /// ID.
    pub id: String,
    /// Name of its `MachineDeployment`.
    pub deployment: String,
    /// When it was created.
    pub created: f64,
    /// Which bootstrap token it was given.
    pub token: String,
    /// When its termination was requested.
    pub terminating: Option<f64>,
    /// Whether its kubelet has registered the Node.
    pub joined: bool,
    /// When its kubelet joins; never if that is absent.
    pub joins: Option<f64>,
}

impl Cloud {
    /// The instance of a Node.
    pub fn of_node(&self, name: &str) -> Option<&Instance> {
        self.instances.values().find(|instance| instance.name == name)
    }

    /// Instances that are gone by now; they are removed.
    pub(crate) fn take_terminated(&mut self, now: f64, takes: f64) -> Vec<Instance> {
        let gone = |instance: &Instance| instance.terminating.is_some_and(|since| now - since >= takes);
        let uids: Vec<String> =
            self.instances.iter().filter(|(_, one)| gone(one)).map(|(uid, _)| uid.clone()).collect();
        uids.iter().filter_map(|uid| self.instances.remove(uid)).collect()
    }
}
