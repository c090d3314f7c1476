use cloud_recreate::{Machine, Record};
use serde_json::{Value, json};
use shared::cloud::ClusterRef;
use shared::record::Format as _;

use super::*;
use crate::project::Project;

const SERVER: &str = "5d0f3f2e-0000-4000-8000-000000000001";

fn server(change: &Value) -> wire::Server {
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

fn json_patch(object: &mut Value, change: &Value) {
    for (key, value) in change.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
}

fn port(id: &str, change: &Value) -> wire::Port {
    let mut port = json!({
        "id": id, "name": id, "network_id": "own", "mac_address": "fa:01", "device_id": SERVER, "tags": [],
        "fixed_ips": [{"subnet_id": "s", "ip_address": "10.0.0.7"}], "security_groups": ["g"],
    });
    json_patch(&mut port, change);
    serde_json::from_value(port).unwrap()
}

fn project(ports: Vec<wire::Port>) -> Project {
    let floating = json!([
        {"id": "f1", "port_id": "p1", "fixed_ip_address": "10.0.0.7"},
        {"id": "f2", "port_id": null, "fixed_ip_address": null},
        {"id": "f3", "port_id": "elsewhere", "fixed_ip_address": "10.0.0.9", "floating_ip_address": "203.0.113.3"},
    ]);
    Project::for_tests(ports, serde_json::from_value(floating).unwrap())
}

/// A flavor of the size of `flavor-1`.
fn flavor(name: &str, more: &Value) -> Value {
    let mut flavor = json!({"original_name": name, "ram": 64, "vcpus": 1, "disk": 1});
    json_patch(&mut flavor, more);
    json!({ "flavor": flavor })
}

#[test]
fn what_cannot_be_made_again_is_named_with_what_would_be_right() {
    let none = json!({});
    for (code, says, change, of_port) in [
        ("Status", "its status is SUSPENDED: only servers that are ACTIVE", json!({"status": "SUSPENDED"}), &none),
        ("Locked", "unlock it, as by openstack server unlock 5d0f3f2e", json!({"locked": true}), &none),
        ("BootFromVolume", "boots from a volume", json!({"image": ""}), &none),
        (
            "DeleteOnTermination",
            "its volume v1 would be deleted with it: set delete_on_termination",
            json!({"os-extended-volumes:volumes_attached": [{"id": "v1", "delete_on_termination": true}]}),
            &none,
        ),
        ("EphemeralDisk", "an ephemeral disk", flavor("m1.small", &json!({"ephemeral": 20})), &none),
        ("VirtualTpm", "a virtual TPM", flavor("m1.small", &json!({"extra_specs": {"hw:tpm_version": "2.0"}})), &none),
        ("VirtualTpm", "its image", json!({"image": {"id": "i", "properties": {"hw_tpm_version": "2.0"}}}), &none),
        ("FlavorMissing", "its flavor gone exists no more", flavor("gone", &none), &none),
        (
            "FlavorChanged",
            "its flavor m1.replaced is now 8192 MiB with 1 vCPUs and disks of 1 and 0 GB, and it has 64 MiB",
            flavor("m1.replaced", &none),
            &none,
        ),
        ("Trunk", "its port p1 is the parent of a trunk", none.clone(), &json!({"trunk_details": {"trunk_id": "t"}})),
        ("DnsName", "its port p1 has another DNS name than", none.clone(), &json!({"dns_name": "etcd-0"})),
        ("ForeignPort", "its port p1 would be lost", none.clone(), &json!({"name": "", "network_id": "shared"})),
    ] {
        let found = obstacle(&server(&change), &project(vec![port("p1", of_port)]), false).unwrap();
        assert_eq!(found.code, code);
        assert!(found.message.contains(says), "{code}: {}", found.message);
    }
    let named = json!({"dns_name": "demo-worker-0"});
    for fine in [json!({}), json!({"name": ""}), json!({"network_id": "shared"}), json!({"dns_name": ""}), named] {
        assert_eq!(obstacle(&server(&json!({})), &project(vec![port("p1", &fine)]), false), None, "{fine}");
    }
}

/// Whatever is the mode of its sleep.
#[test]
fn what_no_sleep_keeps_is_refused_in_every_mode() {
    for (code, change) in [
        ("Status", json!({"status": "RESCUE"})),
        ("Status", json!({"status": "ERROR"})),
        ("Status", json!({"status": "MIGRATING"})),
        ("Locked", json!({"locked": true})),
        ("EphemeralDisk", flavor("m1.small", &json!({"ephemeral": 20}))),
        ("VirtualTpm", flavor("m1.small", &json!({"extra_specs": {"hw:tpm_version": "2.0"}}))),
        ("VirtualTpm", json!({"image": {"properties": {"hw_tpm_version": "1.2", "os_type": "linux"}, "id": "i"}})),
    ] {
        let found = server(&change);
        let codes = [unmovable(&found), obstacle(&found, &project(Vec::new()), true)].map(|found| found.unwrap().code);
        assert_eq!(codes, [code, code], "{change}");
    }
    for fine in [json!({}), json!({"image": ""}), json!({"image": {"id": "i", "properties": {"os_type": "linux"}}})] {
        assert_eq!(unmovable(&server(&fine)), None, "{fine}");
    }
}

#[test]
fn interfaces_whose_order_nova_does_not_show_are_named_unless_any_order_is_accepted() {
    let of = |networks: &str, ports: &[(&str, bool)]| {
        let mut found = server(&json!({}));
        found.addresses = serde_json::from_str(networks).unwrap();
        let port = |(mac, has_address): &(&str, bool)| {
            let ips = if *has_address { json!([{"subnet_id": "s", "ip_address": "10.0.0.7"}]) } else { json!([]) };
            port(mac, &json!({"id": mac.replace(':', ""), "mac_address": mac, "fixed_ips": ips}))
        };
        let all = project(ports.iter().map(port).collect());
        assert_eq!(obstacle(&found, &all, true), None, "accepted");
        obstacle(&found, &all, false)
    };
    let [a, b, c] = ["fa:01", "fa:02", "fa:03"].map(|mac| format!(r#"{{"OS-EXT-IPS-MAC:mac_addr": "{mac}"}}"#));
    let all = [("fa:01", true), ("fa:02", true), ("fa:03", true)];
    for (networks, ports, is_ambiguous) in [
        (format!(r#"{{"x": [{a}, {b}, {c}]}}"#), &all[..], false),
        (format!(r#"{{"x": [{a}], "y": [{b}, {b}, {c}]}}"#), &all[..], false),
        (format!(r#"{{"x": [{a}, {a}], "y": [{b}]}}"#), &all[..2], false),
        (format!(r#"{{"x": [{a}, {c}], "y": [{b}]}}"#), &all[..], true),
        (format!(r#"{{"x": [{a}]}}"#), &[("fa:01", true), ("fa:02", false)], true),
        ("{}".to_owned(), &[("fa:02", false)], false),
    ] {
        let found = of(&networks, ports);
        assert_eq!(found.is_some(), is_ambiguous, "{networks} {found:?}");
        let says =
            |found: &Obstacle| found.code == "PortOrder" && found.message.contains("hibernate.sh/force: \"true\"");
        assert!(found.is_none_or(|found| says(&found)), "{networks}");
    }
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

#[test]
fn what_nova_shows_and_no_list_has_is_named() {
    let all = project(vec![port("p1", &json!({})), port("p2", &json!({"mac_address": "fa:02"}))]);
    let found = server(&json!({}));
    let of = Attributes::of(&found, &all, &[]);
    assert!(incomplete(&found, &of).unwrap().message.contains("its volume v1"));
    let volume = Volume { id: Id::try_from("v1".to_owned()).unwrap(), device: None, tag: None };
    let of = Attributes { volumes: vec![volume], ..of };
    assert_eq!(incomplete(&found, &of), None);
    let of = Attributes { ports: of.ports[..1].to_vec(), ..of };
    assert!(incomplete(&found, &of).unwrap().message.contains("its interface fa:01"));
}
