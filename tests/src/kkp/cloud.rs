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
    /// When that token expires.
    pub token_expires: f64,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_gone_some_time_after_its_termination() {
        let instance = Instance {
            name: "a-0".to_owned(),
            id: "i-0".to_owned(),
            deployment: "a".to_owned(),
            created: 0.0,
            token: String::new(),
            token_expires: 0.0,
            terminating: Some(10.0),
            joined: true,
            joins: None,
        };
        let other = Instance { terminating: None, name: "a-1".to_owned(), ..instance.clone() };
        let mut cloud =
            Cloud { instances: [("0".to_owned(), instance), ("1".to_owned(), other)].into(), ..Cloud::default() };
        assert!(cloud.take_terminated(13.0, 4.0).is_empty());
        assert_eq!(cloud.take_terminated(14.0, 4.0).len(), 1);
        assert!(cloud.of_node("a-0").is_none() && cloud.of_node("a-1").is_some());
    }
}
