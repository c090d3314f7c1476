//! The record as openshift/hive#2722 keeps it: an array in key `hibernation-config`. It says less than ours, so that it
//! is written for who goes back to that program, and read only where nothing else is left.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use cloud_recreate::{Machine, Machines, Record};
use serde::{Deserialize, Serialize};
use shared::read::{self, Limits};
use shared::text::sanitize_to;

use crate::attributes::{Attributes, Port};
use crate::names::{CLUSTER_KEY, Id, image_name, tag};
use crate::project::Project;
use crate::wire;

/// One server. Go writes `null` for what is empty.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Instance {
    name: String,
    flavor: String,
    #[serde(rename = "portID")]
    port: Option<Id>,
    #[serde(rename = "snapshotID")]
    snapshot: Id,
    #[serde(default)]
    snapshot_name: String,
    security_groups: Option<BTreeSet<String>>,
    #[serde(rename = "clusterID")]
    cluster: String,
    #[serde(rename = "networkID")]
    network: Option<String>,
    #[serde(default, rename = "openshiftClusterID")]
    tag: String,
    metadata: Option<BTreeMap<String, String>>,
    tags: Option<BTreeSet<String>>,
}

/// The array of a sealed record. A server without a port has no place in it.
pub(crate) fn write(record: &Record<Attributes>) -> Option<String> {
    let instance = |(name, machine): (&String, &Machine<Attributes>)| {
        let of = &machine.attributes;
        let port = of.ports.first()?;
        Some(Instance {
            name: name.clone(),
            flavor: of.flavor.clone(),
            port: Some(port.id.clone()),
            snapshot: machine.image.clone()?.try_into().ok()?,
            snapshot_name: image_name(name, &machine.cycle),
            security_groups: Some(port.security_groups.iter().map(ToString::to_string).collect()),
            cluster: record.infra_id.clone(),
            network: Some(port.network.to_string()),
            tag: record.infra_id.clone(),
            metadata: Some(of.metadata.clone()),
            tags: Some(of.tags.clone()),
        })
    };
    let instances: Option<Vec<Instance>> = record.machines.iter().map(instance).collect();
    serde_json::to_string(&instances?).ok()
}

/// The machines of an array; `None` if the text is none. The rest of each port is what Neutron says of it.
pub(crate) fn read(infra_id: &str, text: &str, project: &Project) -> Option<Result<Machines<Attributes>, String>> {
    if !text.trim_start().starts_with('[') {
        return None;
    }
    let instances = match read::json::<Vec<Instance>>(text.as_bytes(), &Limits::answer(text.len())) {
        Ok(read) => read.value,
        Err(why) => return Some(Err(sanitize_to(&format!("the array of Hive is malformed: {why}"), 200))),
    };
    let mut ports: HashMap<&Id, &wire::Port> = project.ports.iter().map(|port| (&port.id, port)).collect();
    let machine = |instance: Instance| {
        let Instance { name, flavor, port, snapshot, cluster, metadata, tags, .. } = instance;
        if cluster != infra_id {
            return Err("it is another cluster's".to_owned());
        }
        let port = port.and_then(|id| ports.remove(&id)); // once, so that what is made is no larger than the list
        let port = port.ok_or_else(|| format!("the port of {name} does not exist any more"))?;
        let (mut metadata, mut tags) = (metadata.unwrap_or_default(), tags.unwrap_or_default());
        metadata.entry(CLUSTER_KEY.to_owned()).or_insert_with(|| infra_id.to_owned());
        tags.insert(tag(infra_id));
        let ports = vec![Port::of(port, project)];
        let attributes = Attributes { flavor, tags, metadata, ports, ..Attributes::default() };
        // `server` is the snapshot's ID, so that no server that exists is given up. So is the cycle, which marks what is made.
        let (server, image) = (snapshot.to_string(), Some(snapshot.to_string()));
        let cycle = server.clone();
        Ok((name, Machine { server, cycle, image, given_up: true, imaged: None, started: None, attributes }))
    };
    Some(instances.into_iter().map(machine).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shared::cloud::ClusterRef;

    use super::*;
    use crate::testing::test_project;

    fn project() -> Project {
        let port = json!({
            "id": "port-1", "name": "demo-master-0-0", "network_id": "own", "mac_address": "fa:16:3e:00:00:01",
            "device_id": "", "fixed_ips": [{"subnet_id": "s", "ip_address": "10.0.0.7"}], "security_groups": ["group-1"],
        });
        test_project(vec![serde_json::from_value(port).unwrap()], Vec::new())
    }

    fn instance() -> Value {
        json!({
            "name": "demo-master-0", "flavor": "flavor-1", "portID": "port-1", "snapshotID": "image-1",
            "snapshotName": "demo-master-0-hibernation-20251112-101500", "securityGroups": ["group-1"],
            "clusterID": "demo", "networkID": "own", "openshiftClusterID": "demo",
            "metadata": {"Name": "demo-master"}, "tags": null,
        })
    }

    fn read(array: &Value) -> Option<Result<Machines<Attributes>, String>> {
        super::read("demo", &array.to_string(), &project())
    }

    #[test]
    fn an_array_becomes_machines_that_wake_of_their_snapshots() {
        let machines = read(&json!([instance()])).unwrap().unwrap();
        let machine = &machines["demo-master-0"];
        assert_eq!((machine.image.as_deref(), machine.given_up), (Some("image-1"), true));
        let of = &machine.attributes;
        assert_eq!((of.flavor.as_str(), of.ports[0].mac.as_str()), ("flavor-1", "fa:16:3e:00:00:01"));
        assert_eq!(of.tags, ["openshiftClusterID=demo".to_owned()].into());
        assert_eq!((of.metadata["Name"].as_str(), of.metadata[CLUSTER_KEY].as_str()), ("demo-master", "demo"));
    }

    #[test]
    fn what_is_written_is_read_as_it_was() {
        let machines = read(&json!([instance()])).unwrap().unwrap();
        let cluster = ClusterRef { infra_id: "demo".to_owned(), ..ClusterRef::default() };
        let mut record = Record::new(&cluster);
        record.machines.clone_from(&machines);
        let text = write(&record).unwrap();
        let mut written: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read(&written), Some(Ok(machines)));
        let (name, metadata, tags) =
            (json!("demo-master-0-image-1"), json!({"Name": "demo-master", CLUSTER_KEY: "demo"}), json!([tag("demo")]));
        let expected = [("snapshotName", name), ("metadata", metadata), ("tags", tags)];
        let mut same = instance();
        for (key, value) in expected {
            assert_eq!(written[0][key].take(), value);
            same[key].take();
        }
        assert_eq!(written[0], same);
    }

    #[test]
    fn what_cannot_wake_is_refused_by_name() {
        for (key, value, says) in [
            ("clusterID", json!("other"), "it is another cluster's"),
            ("portID", json!("port-2"), "the port of demo-master-0 does not exist any more"),
            ("portID", json!(null), "the port of demo-master-0 does not exist any more"),
        ] {
            let mut instance = instance();
            instance[key] = value;
            assert_eq!(read(&json!([instance])), Some(Err(says.to_owned())));
        }
        for (key, value) in [("snapshotID", json!("../x")), ("portID", json!("a/b")), ("flavor", json!(1))] {
            let mut instance = instance();
            instance[key] = value;
            let why = read(&json!([instance])).unwrap().unwrap_err();
            assert!(why.starts_with("the array of Hive is malformed: "), "{key}: {why}");
        }
        assert!(read(&json!({})).is_none());
    }
}
