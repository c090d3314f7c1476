use serde_json::{Value, json};

use super::*;
use crate::attributes::Volume;
use crate::attributes::tests::{json_patch, port, project, server};
use crate::names::Id;

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
