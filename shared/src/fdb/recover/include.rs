//! Commands for the database: include the groups again, and clear the lists on which operators wait for them.
//!
//! IDs and addresses come from a status and an annotation, which others write. `fdbcli` reads `;` as the end of a
//! command, so only what is an ID or an address reaches it.

use std::net::{IpAddr, SocketAddr};

use crate::fdb::api::FoundationDBCluster;

use super::record::{GroupRecord, Record};

/// Classes that are excluded by their addresses besides their locality.
const LOG_CLASSES: &[&str] = &["log", "transaction"];
/// Seconds that `fdbcli` may take: an unavailable database makes it wait forever.
pub const TIMEOUT: u32 = 10;

/// What the operator's keys in the database begin with unless the spec says otherwise.
const LOCK_KEY_PREFIX: &[u8] = b"\xff\x02/org.foundationdb.kubernetes-operator";
/// The lists that operators keep there of the groups that they take away together.
const LISTS: [&str; 5] =
    ["pendingForRemoval", "pendingForExclusion", "readyForExclusion", "pendingForInclusion", "readyForInclusion"];

/// What an exclusion by locality begins with.
const LOCALITY: &str = "locality_instance_id:";
/// Longest ID of a process group that is accepted.
const MAX_ID_BYTES: usize = 253;

/// Whether `fdbcli` reads this as one target: an IP address with or without port and `:tls`, or the locality of a valid
/// ID.
fn is_target(text: &str) -> bool {
    if let Some(id) = text.strip_prefix(LOCALITY) {
        return is_id(id);
    }
    let address = text.strip_suffix(":tls").unwrap_or(text);
    let bare = address.strip_prefix('[').and_then(|address| address.strip_suffix(']')).unwrap_or(address);
    bare.parse::<IpAddr>().is_ok() || address.parse::<SocketAddr>().is_ok_and(|_| !address.contains('%'))
}

fn is_id(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !id.is_empty() && id.len() <= MAX_ID_BYTES && id.bytes().all(plain)
}

/// What is left out of the commands because it is neither an address nor the locality of a valid ID, with its group.
pub fn left_out(cluster: &FoundationDBCluster, record: &Record) -> Vec<String> {
    targets(cluster, record).into_iter().filter(|target| !is_target(target)).collect()
}

/// Whether a group is excluded by its addresses, too.
pub(super) fn by_address(cluster: &FoundationDBCluster, held: &GroupRecord) -> bool {
    !uses_localities(cluster) || LOG_CLASSES.contains(&held.class.as_str())
}

/// What to include for the groups that are not included yet: always the locality (later passes of the operator add it
/// in every mode), and for log classes and exclusion by IP the addresses that the group had and has.
fn targets(cluster: &FoundationDBCluster, record: &Record) -> Vec<String> {
    let mut targets = Vec::new();
    for held in record.groups.iter().filter(|held| !held.included) {
        targets.push(format!("{LOCALITY}{}", held.group));
        if by_address(cluster, held) {
            let has = cluster.group(&held.group).map(|group| group.addresses.as_slice()).unwrap_or_default();
            let has = has.iter().filter(|address| !held.addresses.contains(address));
            let all = held.addresses.iter().chain(has);
            targets.extend(all.filter(|address| !is_of_another(cluster, held, address)).cloned());
        }
    }
    targets
}

/// Whether the operator excludes by locality: so unless the spec says otherwise, where the version of the database can.
fn uses_localities(cluster: &FoundationDBCluster) -> bool {
    let chosen = cluster.options().and_then(|options| options.use_localities_for_exclusion);
    chosen.unwrap_or(true) && can_localities(cluster)
}

/// 7.1.42 and later of 7.1, 7.3.26 and later. A version that cannot be read is taken for one that cannot: more is
/// included then.
fn can_localities(cluster: &FoundationDBCluster) -> bool {
    let running = cluster.status.as_ref().and_then(|status| status.running_version.as_deref());
    let version = running.filter(|version| !version.is_empty()).unwrap_or(&cluster.spec.version);
    let number = |part: &str| part.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u32>().ok();
    let mut parts = version.splitn(3, '.').map(number);
    match (parts.next().flatten(), parts.next().flatten(), parts.next().flatten()) {
        (Some(7), Some(1), Some(patch)) => patch >= 42,
        (Some(7), Some(3), Some(patch)) => patch >= 26,
        (Some(major), Some(minor), Some(_)) => (major, minor) > (7, 3),
        _ => false,
    }
}

/// An address that another group has by now must not be included for this one.
fn is_of_another(cluster: &FoundationDBCluster, held: &GroupRecord, address: &str) -> bool {
    let others = cluster.groups().iter().filter(|group| group.process_group_id != held.group);
    others.into_iter().any(|group| group.addresses.iter().any(|other| other == address))
}

/// The `fdbcli` commands for the groups that are not included yet, in this order; none if there is no such group.
///
/// In global mode operators keep lists in the database and include nothing while somebody is on them who is not gone.
/// They never take a group off that is marked no longer, so `recover` does.
pub fn orders(cluster: &FoundationDBCluster, record: &Record) -> Vec<String> {
    let mut targets = targets(cluster, record);
    targets.retain(|target| is_target(target));
    if targets.is_empty() {
        return Vec::new();
    }
    let mut orders = vec![format!("include {}", targets.join(" "))];
    if is_global(cluster) {
        orders.extend(["writemode on", "option on ACCESS_SYSTEM_KEYS"].map(str::to_owned));
        for held in record.groups.iter().filter(|held| !held.included) {
            orders.extend(LISTS.map(|list| format!("clear {}", key(cluster, list, &held.group))));
        }
    }
    orders
}

fn is_global(cluster: &FoundationDBCluster) -> bool {
    cluster.options().and_then(|options| options.synchronization_mode.as_deref()) == Some("global")
}

/// The key of a group in one of the lists: prefix, list, the groups' own prefix if they have one, ID.
fn key(cluster: &FoundationDBCluster, list: &str, group: &str) -> String {
    let prefix = cluster.spec.lock_options.as_ref().and_then(|options| options.lock_key_prefix.as_deref());
    let prefix = prefix.filter(|prefix| !prefix.is_empty()).map_or(LOCK_KEY_PREFIX, str::as_bytes);
    let part = cluster.spec.process_group_id_prefix.as_deref().unwrap_or_default();
    // The operator joins them as a path, in which nothing is empty.
    let absolute = if prefix.starts_with(b"/") { "/" } else { "" };
    let parts = prefix.split(|byte| *byte == b'/').chain([list, part, group].map(str::as_bytes));
    absolute.to_owned() + &parts.filter(|part| !part.is_empty()).map(escaped).collect::<Vec<_>>().join("/")
}

/// As `fdbcli` reads a key: whatever could end a word or a command is written as a number.
fn escaped(bytes: &[u8]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/.-_:".contains(&byte);
    let write = |&byte: &u8| if plain(byte) { char::from(byte).to_string() } else { format!("\\x{byte:02x}") };
    bytes.iter().map(write).collect()
}

/// The command with these orders, to be run in a Pod of the cluster.
pub fn command(orders: &[String]) -> Vec<String> {
    vec!["fdbcli".to_owned(), "--exec".to_owned(), orders.join("; "), "--timeout".to_owned(), TIMEOUT.to_string()]
}

#[cfg(test)]
mod tests {
    use crate::text::quoted;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn cluster(prefix: &str, key_prefix: &str) -> FoundationDBCluster {
        let object = json!({
            "apiVersion": "apps.foundationdb.org/v1beta2", "kind": "FoundationDBCluster", "metadata": { "name": "sample" },
            "spec": {
                "version": "7.1.26", "processGroupIDPrefix": prefix, "lockOptions": { "lockKeyPrefix": key_prefix },
                "automationOptions": { "synchronizationMode": "global", "useLocalitiesForExclusion": false },
            },
        });
        serde_json::from_value(object).unwrap()
    }

    fn record(group: &str, addresses: &[String]) -> Record {
        let held = GroupRecord {
            group: group.to_owned(),
            class: "log".to_owned(),
            addresses: addresses.to_vec(),
            ..GroupRecord::default()
        };
        Record { groups: vec![held], ..Record::default() }
    }

    #[test]
    fn a_target_is_an_address_or_a_locality() {
        for (target, accepted) in [
            ("10.0.0.1", true),
            ("10.0.0.1:4501", true),
            ("10.0.0.1:4501:tls", true),
            ("10.0.0.1:tls", true),
            ("fd00::1", true),
            ("[fd00::1]", true),
            ("[fd00::1]:4501", true),
            ("[fd00::1]:4501:tls", true),
            ("locality_instance_id:dc1-storage-17", true),
            ("locality_instance_id:storage-1_a.b", true),
            ("", false),
            ("all", false),
            ("failed", false),
            ("10.0.0", false),
            ("10.0.0.1/8", false),
            ("10.0.0.1:99999", false),
            ("10.0.0.1 10.0.0.2", false),
            ("10.0.0.1; writemode on; clearrange \"\" \\xff", false),
            ("locality_dcid:dc1", false),
            ("locality_instance_id:", false),
            ("locality_instance_id:a b", false),
            ("locality_instance_id:a;status", false),
            ("localhost:4501", false),
        ] {
            assert_eq!(is_target(target), accepted, "{target}");
        }
    }

    #[test]
    fn what_is_no_target_is_left_out_and_named() {
        let hostile = "10.0.0.1; writemode on; clearrange \"\" \\xff".to_owned();
        let record = record("log-1", &[hostile.clone(), "10.0.0.2:4501".to_owned()]);
        let cluster = cluster("", "");
        assert_eq!(orders(&cluster, &record)[0], "include locality_instance_id:log-1 10.0.0.2:4501");
        assert_eq!(left_out(&cluster, &record), [hostile]);
    }

    proptest! {
        /// Every field of the cluster and the record that reaches `fdbcli` or a printed command.
        #[test]
        fn nothing_from_outside_adds_a_command(
            group in any::<String>(), addresses in proptest::collection::vec(any::<String>(), 0..4),
            prefix in any::<String>(), key_prefix in any::<String>(), real in any::<IpAddr>(), port in any::<u16>(),
        ) {
            let known = SocketAddr::new(real, port).to_string();
            let addresses = [addresses, vec![known.clone()]].concat();
            let orders = orders(&cluster(&prefix, &key_prefix), &record(&group, &addresses));
            prop_assert!(orders[0].starts_with("include ") && orders[0].ends_with(&known));
            let plain = |c: char| c.is_ascii_alphanumeric() || " /.-_:[]\\".contains(c);
            prop_assert!(orders.iter().all(|order| order.chars().all(plain)), "{:?}", orders);
            prop_assert_eq!(orders.len(), 3 + LISTS.len());
            let printed = format!("fdbcli --exec {}", quoted(&orders[0]));
            prop_assert_eq!(shlex::split(&printed).map(|words| words.len()), Some(3));
        }
    }
}
