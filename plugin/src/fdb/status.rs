//! `status fdb/NAME`: a cluster's health, and its process groups that are suspended.

use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use kube::ResourceExt;
use serde::Serialize;
use serde_json::{Value, json};
use shared::{
    admission::format,
    fdb::{
        api::ProcessGroup,
        recover::{
            Facts,
            check::suspended,
            object::{name, size},
        },
        suspension::{Minimum, Stamp},
    },
    keys,
    workload::replicas::annotation,
};

use super::{FDB_CLUSTER, Look, clusters, is_fdb_word, protect, resource};
use crate::{
    act::nothing_found,
    cli::{HubArgs, StatusArgs, StatusOutput},
    error::{Exit, Failure, Problem},
    hub::Hub,
    print,
    status::age::age,
    target::{full_name, parse::UsageError},
};

/// One cluster in the form that `-o json` documents. Later versions only add fields.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ClusterRecord {
    namespace: String,
    name: String,
    /// `yes`, `no` or `unknown`.
    protected: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    unprotected_because: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    minimum_suspension: Option<String>,
    /// Whether the operator leaves it alone.
    skipped: bool,
    /// IDs of groups that a recovery has begun with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    recovering: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    health: Option<HealthRecord>,
    suspended: Vec<GroupRecord>,
}

/// As the operator has seen the database last.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct HealthRecord {
    available: bool,
    healthy: bool,
    full_replication: bool,
}

/// One suspended process group.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupRecord {
    group: String,
    class: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    /// When the controller has stamped it; not yet if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    /// When it is released, at the earliest.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
    /// Whether it has been released: the operator deletes it at any moment.
    released: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    claim: String,
    size: String,
}

/// Names of clusters, if FoundationDB clusters were asked for; no name at all means every one of the namespace.
///
/// # Errors
/// When they and other targets are mixed.
pub(crate) fn asked(words: &[String]) -> Result<Option<Vec<String>>, UsageError> {
    let named =
        |word: &String| word.split_once('/').filter(|(type_, _)| is_fdb_word(type_)).map(|(_, name)| name.to_owned());
    if let Some((first, rest)) = words.split_first().filter(|(first, _)| is_fdb_word(first)) {
        if let Some(other) = rest.iter().find(|word| word.contains('/')) {
            return Err(UsageError::Mixed(first.clone(), other.clone()));
        }
        return Ok(Some(rest.to_vec()));
    }
    let found: Vec<String> = words.iter().filter_map(named).collect();
    match words.iter().find(|word| named(word).is_none()) {
        _ if found.is_empty() => Ok(None),
        Some(other) => Err(UsageError::FdbAndOthers(other.clone())),
        None => Ok(Some(found)),
    }
}

/// Runs the command for FoundationDB clusters.
///
/// # Errors
/// When nothing can be asked at all. Failures of single clusters are printed and counted.
pub(crate) async fn run(names: &[String], args: &StatusArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    if args.watch {
        return Err(UsageError::FdbIsNotWatched.into());
    }
    if hub_args.all_namespaces && !names.is_empty() {
        return Err(UsageError::NameInAllNamespaces.into());
    }
    let hub = Hub::connect(hub_args).await?;
    let namespace = (!hub_args.all_namespaces).then_some(hub.namespace.as_str());
    let (mut objects, mut exits) = (Vec::new(), Vec::new());
    if names.is_empty() {
        objects = clusters(&hub, namespace, hub_args.selector.as_deref().unwrap_or_default()).await?;
    } else {
        let looks = names.iter().map(|name| hub.get(resource(&FDB_CLUSTER), &hub.namespace, name));
        for (name, found) in names.iter().zip(join_all(looks).await) {
            match found {
                Ok(object) => objects.push(object),
                Err(error) => {
                    let failure = Failure::new(full_name(&FDB_CLUSTER, name), error.into());
                    exits.push(failure.problem.exit());
                    print::error(&failure.to_string());
                }
            }
        }
    }
    let records = join_all(objects.into_iter().map(|object| record(&hub, object))).await;
    let records = records.into_iter().collect::<Result<Vec<_>, _>>()?;
    show(&records, args);
    if records.is_empty() && exits.is_empty() && matches!(args.output, StatusOutput::Table | StatusOutput::Wide) {
        print::note(&nothing_found(namespace));
    }
    Ok(Exit::of(exits))
}

async fn record(hub: &Hub, object: Value) -> Result<ClusterRecord, Problem> {
    let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default().to_owned();
    let look = Look::around(hub, &namespace, object).await?;
    let protection = protect::of(hub, &namespace, &look.cluster).await;
    Ok(of_cluster(&look, namespace, protection))
}

fn of_cluster(look: &Look, namespace: String, protection: protect::Protection) -> ClusterRecord {
    let cluster = &look.cluster;
    let facts = look.facts();
    let (protected, unprotected_because) = match protection {
        protect::Protection::Yes => ("yes", None),
        protect::Protection::No(why) => ("no", Some(why)),
        protect::Protection::Unknown(why) => ("unknown", Some(why)),
    };
    let health = cluster.status.as_ref().and_then(|status| status.health.as_ref());
    let record = facts.record();
    ClusterRecord {
        namespace,
        name: cluster.name_any(),
        protected,
        unprotected_because,
        minimum_suspension: cluster.annotations().get(keys::MINIMUM_SUSPENSION).cloned(),
        skipped: cluster.spec.skip == Some(true),
        recovering: record.iter().flat_map(|record| &record.groups).map(|held| held.group.clone()).collect(),
        health: health.map(|health| HealthRecord {
            available: health.available,
            healthy: health.healthy,
            full_replication: health.full_replication,
        }),
        suspended: suspended(&facts).into_iter().filter_map(|group| of_group(&facts, group)).collect(),
    }
}

fn of_group(facts: &Facts<'_>, group: &ProcessGroup) -> Option<GroupRecord> {
    let pod = facts.cluster.pod_name(group)?;
    let claim = facts.claim_of(&group.process_group_id, &pod)?;
    let stamp = Stamp::read(|key| annotation(claim, key));
    let in_force = facts.cluster.annotations().get(keys::MINIMUM_SUSPENSION).map(String::as_str);
    Some(GroupRecord {
        group: group.process_group_id.clone(),
        class: group.process_class.clone(),
        zone: group.fault_domain.clone(),
        since: stamp.since,
        expires: stamp.until(&Minimum::of(in_force, Duration::ZERO)),
        released: stamp.key || stamp.is_released_for(group.removal_timestamp.as_deref()),
        why: stamp.record.map(|record| record.why).filter(|why| !why.is_empty()),
        claim: name(claim).to_owned(),
        size: size(claim).to_owned(),
    })
}

fn show(records: &[ClusterRecord], args: &StatusArgs) {
    let list = || json!({ "apiVersion": "hibernate.sh/v1alpha1", "kind": "FoundationDBStatusList", "items": records });
    match args.output {
        StatusOutput::Json => print::text(&print::json(&list())),
        StatusOutput::Yaml => print::text(&print::yaml(&list())),
        StatusOutput::Name => records.iter().for_each(|record| print::line(&full_name(&FDB_CLUSTER, &record.name))),
        StatusOutput::Table | StatusOutput::Wide => {
            for (at, record) in records.iter().enumerate() {
                if at > 0 {
                    print::line("");
                }
                let lines = table(record, !args.no_headers, args.output == StatusOutput::Wide, Timestamp::now());
                for line in &lines {
                    print::line(line);
                }
                if record.protected == "no" && record.minimum_suspension.is_some() {
                    let why = record.unprotected_because.as_deref().unwrap_or_default();
                    print::warning(&format!("{}/{} is NOT PROTECTED: {why}", record.namespace, record.name));
                }
            }
        }
    }
}

fn table(record: &ClusterRecord, headers: bool, wide: bool, now: Timestamp) -> Vec<String> {
    let protection = match (record.protected, &record.unprotected_because) {
        ("no", _) => "NOT PROTECTED".to_owned(),
        ("unknown", Some(why)) => format!("unknown ({why})"),
        (word, _) => word.to_owned(),
    };
    let mut lines = vec![
        format!("{}/{}", record.namespace, record.name),
        format!("  Health:      {}", health(record.health.as_ref())),
        format!(
            "  Suspension:  {}",
            record.minimum_suspension.as_deref().unwrap_or("no annotation hibernate.sh/minimum-suspension")
        ),
        format!("  Protected:   {protection}"),
    ];
    if record.skipped {
        lines.push("  Operator:    told to leave the cluster alone (spec.skip)".to_owned());
    }
    if !record.recovering.is_empty() {
        lines.push(format!(
            "  Recovering:  {} (run `recover process-groups` again if nothing goes on)",
            record.recovering.join(", ")
        ));
    }
    if record.suspended.is_empty() {
        lines.push("  Suspended:   nothing".to_owned());
        return lines;
    }
    let mut header = vec!["GROUP", "CLASS", "ZONE", "SINCE", "EXPIRES", "SIZE"];
    if wide {
        header.extend(["WHY", "CLAIM"]);
    }
    let header: Vec<String> = header.into_iter().map(ToOwned::to_owned).collect();
    let rows = record.suspended.iter().map(|group| {
        let mut cells = vec![
            group.group.clone(),
            group.class.clone(),
            group.zone.clone().unwrap_or_else(|| "-".to_owned()),
            group.since.map_or_else(|| "not stamped yet".to_owned(), |since| age(since, now)),
            expires(group, now),
            group.size.clone(),
        ];
        if wide {
            cells.extend([group.why.clone().unwrap_or_else(|| "-".to_owned()), group.claim.clone()]);
        }
        cells
    });
    lines.extend(print::aligned(&headers.then_some(header).into_iter().chain(rows).collect::<Vec<_>>()));
    lines
}

fn health(health: Option<&HealthRecord>) -> String {
    let Some(health) = health else { return "nothing is known".to_owned() };
    let words = [
        if health.available { "available" } else { "NOT AVAILABLE" },
        if health.healthy { "healthy" } else { "not healthy" },
        if health.full_replication { "fully replicated" } else { "not fully replicated" },
    ];
    words.join(", ")
}

/// `in 1h59m (2026-11-21T20:00:00Z)`.
fn expires(group: &GroupRecord, now: Timestamp) -> String {
    match group.expires {
        _ if group.released => "released".to_owned(),
        None => "-".to_owned(),
        Some(at) if at <= now => format!("due ({})", format::seconds(at)),
        Some(at) => format!("in {} ({})", age(now, at), format::seconds(at)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(annotations: &Value) -> Look {
        let object = json!({
            "apiVersion": "apps.foundationdb.org/v1beta2", "kind": "FoundationDBCluster",
            "metadata": { "name": "sample", "namespace": "db", "annotations": { keys::MINIMUM_SUSPENSION: "2h" } },
            "spec": { "version": "7.3.69", "skip": true },
            "status": {
                "health": { "available": true, "healthy": true, "fullReplication": false },
                "processGroups": [
                    { "processGroupID": "storage-1", "processClass": "storage", "faultDomain": "zone-a",
                      "removalTimestamp": "2026-11-21T17:59:58Z", "exclusionTimestamp": "2026-11-21T18:00:00Z" },
                    { "processGroupID": "storage-2", "processClass": "storage" },
                ],
            },
        });
        let labels = json!({ "foundationdb.org/fdb-cluster-name": "sample", "foundationdb.org/fdb-process-group-id": "storage-1" });
        let claim = json!({
            "metadata": { "name": "sample-storage-1-data", "labels": labels, "annotations": annotations },
            "spec": { "resources": { "requests": { "storage": "16Gi" } } },
        });
        let cluster = super::super::read(&object).unwrap();
        Look { object, cluster, claims: vec![claim], services: vec![], pods: vec![], pods_version: String::new() }
    }

    fn shown(annotations: &Value, protection: protect::Protection) -> String {
        let now: Timestamp = "2026-11-21T18:30:00Z".parse().unwrap();
        let record = of_cluster(&look(annotations), "db".to_owned(), protection);
        table(&record, true, true, now).join("\n")
    }

    #[test]
    fn a_suspended_group_shows_until_when() {
        let held = json!({
            keys::SUSPENDED_AT: "2026-11-21T18:00:05Z",
            keys::SUSPENSION: json!({ "group": "storage-1", "removal": "2026-11-21T17:59:58Z", "minimum": "2h", "why": "operator" }).to_string(),
        });
        insta::assert_snapshot!(shown(&held, protect::Protection::Yes));
        insta::assert_snapshot!(shown(&json!({}), protect::Protection::No("x".to_owned())));
        let mut released = held;
        released[keys::RELEASED_AT] = json!("2026-11-21T20:00:05Z");
        assert!(shown(&released, protect::Protection::Yes).contains("released"));
    }

    #[test]
    fn clusters_are_told_from_other_targets() {
        let answer = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(Into::into).collect();
            match asked(&words) {
                Ok(None) => "others".to_owned(),
                Ok(Some(names)) => format!("[{}]", names.join(" ")),
                Err(error) => error.to_string(),
            }
        };
        for (line, expected) in [
            ("", "others"),
            ("demo", "others"),
            ("cd/fdb", "others"),
            ("fdb/sample", "[sample]"),
            ("fdb sample other", "[sample other]"),
            ("fdb", "[]"),
            ("foundationdbclusters.apps.foundationdb.org/sample", "[sample]"),
        ] {
            assert_eq!(answer(line), expected, "{line}");
        }
        assert!(answer("fdb/sample demo").contains("not together with \"demo\""));
        assert!(answer("fdb sample cd/demo").contains("not both"));
    }
}
