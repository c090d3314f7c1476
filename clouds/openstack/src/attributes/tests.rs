use cloud_recreate::{Machine, Record};
use serde_json::{Value, json};
use shared::cloud::ClusterRef;
use shared::record::Format as _;

use super::*;
use crate::project::Project;
use crate::testing::test_project;

const SERVER: &str = "5d0f3f2e-0000-4000-8000-000000000001";

pub(crate) fn server(change: &Value) -> wire::Server {
    let mut server = json!({
        "id": SERVER, "name": "demo-worker-0", "status": "ACTIVE", "OS-EXT-STS:task_state": null,
        "created": "2026-11-27T10:00:00Z", "updated": "2026-11-27T10:00:00Z", "OS-SRV-USG:launched_at": "2026-11-27T10:00:05.000000", "locked": false,
        "image": {"id": "i"}, "flavor": {"original_name": "m1.small", "ram": 64, "vcpus": 1, "disk": 1}, "key_name": "core", "config_drive": "True",
        "OS-EXT-SRV-ATTR:hostname": "demo-worker-0", "OS-EXT-AZ:availability_zone": "nova",
        "pinned_availability_zone": null, "description": "a worker", "tags": ["openshiftClusterID=demo"],
        "metadata": {"Name": "demo-worker", CYCLE_KEY: "c1"},
        "addresses": {
            "z-net": [{"OS-EXT-IPS-MAC:mac_addr": "fa:02"}, {"OS-EXT-IPS-MAC:mac_addr": "fa:02"}],
            "a-net": [{"OS-EXT-IPS-MAC:mac_addr": "fa:01"}],
        },
        "os-extended-volumes:volumes_attached": [{"id": "v1", "delete_on_termination": false}],
    });
    json_patch(&mut server, change);
    // As it comes: an object of serde_json has its keys in another order.
    let ordered = r#"{"z-net": [{"OS-EXT-IPS-MAC:mac_addr": "fa:02"}, {"OS-EXT-IPS-MAC:mac_addr": "fa:02"}],
                      "a-net": [{"OS-EXT-IPS-MAC:mac_addr": "fa:01"}]}"#;
    let mut found: wire::Server = serde_json::from_value(server).unwrap();
    found.addresses = serde_json::from_str(ordered).unwrap();
    found
}

pub(crate) fn json_patch(object: &mut Value, change: &Value) {
    for (key, value) in change.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
}

pub(crate) fn port(id: &str, change: &Value) -> wire::Port {
    let mut port = json!({
        "id": id, "name": id, "network_id": "own", "mac_address": "fa:01", "device_id": SERVER, "tags": [],
        "fixed_ips": [{"subnet_id": "s", "ip_address": "10.0.0.7"}], "security_groups": ["g"],
    });
    json_patch(&mut port, change);
    serde_json::from_value(port).unwrap()
}

pub(crate) fn project(ports: Vec<wire::Port>) -> Project {
    let floating = json!([
        {"id": "f1", "port_id": "p1", "fixed_ip_address": "10.0.0.7"},
        {"id": "f2", "port_id": null, "fixed_ip_address": null},
        {"id": "f3", "port_id": "elsewhere", "fixed_ip_address": "10.0.0.9", "floating_ip_address": "203.0.113.3"},
    ]);
    test_project(ports, serde_json::from_value(floating).unwrap())
}

/// A port that Nova has made goes with its server: all that its owner has given it is asked for again.
#[test]
fn a_port_is_recorded_with_what_its_owner_has_given_it() {
    let given = json!({
        "qos_policy_id": "q1", "dns_name": "etcd-0", "dns_domain": "cluster.test.", "admin_state_up": false,
        "extra_dhcp_opts": [{"opt_name": "mtu", "opt_value": "1400", "ip_version": 4}], "propagate_uplink_status": true,
    });
    let all = project(vec![port("p1", &given)]);
    let of = Attributes::of(&server(&json!({})), &all, &[]);
    let text = serde_json::to_value(&of.ports[0]).unwrap();
    assert_eq!(text["more"], given);
    assert_eq!(serde_json::from_value::<Port>(text).unwrap(), of.ports[0]);
}

#[test]
fn a_floating_ip_that_was_given_away_is_named() {
    let all = project(vec![port("p1", &json!({}))]);
    let of = Attributes::of(&server(&json!({})), &all, &[]);
    let lost = |id: &str| {
        let mut recorded = of.clone();
        recorded.ports[0].floating_ips.push((Id::try_from(id.to_owned()).unwrap(), None));
        of.lost(&recorded, &all)
    };
    assert_eq!(lost("f1"), [""; 0], "it has it");
    assert_eq!(lost("f2"), [""; 0], "it is free, and given back");
    assert_eq!(lost("f3"), ["floating IP 203.0.113.3, which port elsewhere has"]);
    assert_eq!(lost("f9"), ["floating IP f9, which its project has no more"]);
}

#[test]
fn a_server_is_recorded_with_its_ports_in_order_and_without_our_mark() {
    let ports = vec![
        port("p1", &json!({})),
        port("p2", &json!({"mac_address": "fa:02"})),
        port("p0", &json!({"mac_address": "fa:03"})), // not in Nova's cache yet
        port("p3", &json!({"device_id": "another"})),
    ];
    let attachments = serde_json::from_value(json!([
        {"volumeId": "v2", "device": "/dev/vdc", "tag": null}, {"volumeId": "v1", "device": "/dev/vdb", "tag": "etcd"},
    ]));
    let of = Attributes::of(
        &server(&json!({})),
        &project(ports),
        &attachments.unwrap_or_else(|_: serde_json::Error| vec![]),
    );
    let ids = |ports: &[Port]| ports.iter().map(|port| port.id.to_string()).collect::<Vec<_>>();
    assert_eq!(ids(&of.ports), ["p2", "p1", "p0"]);
    assert_eq!(of.ports[1].floating_ips.len(), 1);
    assert_eq!(of.metadata.keys().collect::<Vec<_>>(), ["Name"]);
    let volumes: Vec<_> = of.volumes.iter().map(|volume| (volume.id.as_str(), volume.tag.as_deref())).collect();
    assert_eq!(volumes, [("v1", Some("etcd")), ("v2", None)]);
    assert_eq!((of.flavor.as_str(), of.config_drive, of.zone.as_deref()), ("flavor-1", true, None));
    let text = serde_json::to_string(&of).unwrap();
    assert_eq!(serde_json::from_str::<Attributes>(&text).unwrap(), of);
}

/// The longest records that are written keep less than what a record may keep.
#[test]
fn a_record_as_long_as_its_secret_is_read() {
    let ports = vec![port("p1", &json!({})), port("p2", &json!({"mac_address": "fa:02"}))];
    let of = Attributes::of(&server(&json!({})), &project(ports), &[]);
    for (attributes, number) in [(of, 1_200), (Attributes::default(), 2_000)] {
        let mut record = Record::new(&ClusterRef::default());
        for number in 0..number {
            let (server, cycle) = (format!("{SERVER}-{number}"), "0123456789abcdef".to_owned());
            let machine = Machine {
                server,
                cycle,
                image: None,
                given_up: false,
                imaged: None,
                started: None,
                attributes: attributes.clone(),
            };
            record.machines.insert(format!("demo-7xk2p-worker-{number}"), machine);
        }
        let text = record.bounded_text().unwrap();
        let mut kept = 0;
        let read = Record::<Attributes>::read_charged(&text, &mut |bytes| {
            kept += bytes;
            true
        });
        assert!(read.is_ok_and(|read| read == record) && kept < 9 * text.len(), "{kept} bytes for {}", text.len());
    }
}

#[test]
fn what_a_server_has_more_is_its_owners() {
    let all = project(vec![port("p1", &json!({}))]);
    let of = Attributes::of(&server(&json!({})), &all, &[]);
    let lacks = |change: &dyn Fn(&mut Attributes)| {
        let mut recorded = of.clone();
        change(&mut recorded);
        !of.lacking(&recorded, &all).is_complete()
    };
    let volume = |id: &str| Volume { id: Id::try_from(id.to_owned()).unwrap(), device: None, tag: None };
    let id = |id: &str| Id::try_from(id.to_owned()).unwrap();
    assert!(!lacks(&|_| {}));
    assert!(lacks(&|recorded| recorded.tags.extend(["more".to_owned()])));
    assert!(lacks(&|recorded| recorded.metadata.extend([("Name".to_owned(), "other".to_owned())])));
    assert!(!lacks(&|recorded| recorded.volumes.push(volume("v9"))), "a pod has moved");
    assert!(lacks(&|recorded| recorded.ports.push(Port {
        id: id("p9"),
        mac: "fa:09".to_owned(),
        ..recorded.ports[0].clone()
    })));
    // A floating IP is given back if nobody has taken it.
    assert!(lacks(&|recorded| recorded.ports[0].floating_ips.push((id("f2"), None))));
    assert!(!lacks(&|recorded| recorded.ports[0].floating_ips.push((id("f3"), None))), "another one has it");
    assert!(!lacks(&|recorded| recorded.ports[0].floating_ips.push((id("f9"), None))), "it is gone");
    // A port that was made in its place has another ID.
    assert!(!lacks(&|recorded| recorded.ports[0].id = id("before")));
    assert!(!lacks(&|recorded| recorded.tags.clear()));
}

#[test]
fn an_id_that_could_leave_its_url_is_none() {
    for text in ["", "../x", "a/b", "a?b", "a b", "é", &"x".repeat(65)] {
        assert!(serde_json::from_value::<Id>(json!(text)).is_err(), "{text}");
    }
    assert!(serde_json::from_value::<Id>(json!(SERVER)).is_ok());
}
