//! What the database has to include again, and the command for it.

use super::{
    super::api::FoundationDBCluster,
    record::{Held, Record},
};

/// Classes that are excluded by their addresses besides their locality.
const LOG_CLASSES: &[&str] = &["log", "transaction"];
/// Seconds that `fdbcli` may take: an unavailable database makes it wait for ever.
pub const TIMEOUT: u32 = 10;

/// What to include for the groups that are not included yet: always the locality (later passes of the operator add it in
/// every mode), and for log classes and exclusion by IP the addresses that are known.
#[must_use]
pub fn targets(cluster: &FoundationDBCluster, record: &Record) -> Vec<String> {
    let mut targets = Vec::new();
    for held in record.groups.iter().filter(|held| !held.included) {
        targets.push(format!("locality_instance_id:{}", held.group));
        if !uses_localities(cluster) || LOG_CLASSES.contains(&held.class.as_str()) {
            targets.extend(held.addresses.iter().filter(|address| !is_of_another(cluster, held, address)).cloned());
        }
    }
    targets
}

/// Whether the operator excludes by locality: so unless the spec says otherwise, where the version of the database can.
fn uses_localities(cluster: &FoundationDBCluster) -> bool {
    let options = cluster.spec.automation_options.as_ref();
    options.and_then(|options| options.use_localities_for_exclusion).unwrap_or(true) && can_localities(cluster)
}

/// 7.1.42 and later of 7.1, 7.3.26 and later. A version that cannot be read is taken for one that cannot: more is included then.
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
fn is_of_another(cluster: &FoundationDBCluster, held: &Held, address: &str) -> bool {
    let others = cluster.groups().iter().filter(|group| group.process_group_id != held.group);
    others.into_iter().any(|group| group.addresses.iter().any(|other| other == address))
}

/// The command that includes them, to be run in a Pod of the cluster.
#[must_use]
pub fn command(targets: &[String]) -> Vec<String> {
    let include = format!("include {}", targets.join(" "));
    vec!["fdbcli".to_owned(), "--exec".to_owned(), include, "--timeout".to_owned(), TIMEOUT.to_string()]
}
