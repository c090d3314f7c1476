//! `status fdb/NAME`: a cluster's health, and its process groups that are suspended.

mod record;
mod table;

use std::time::Duration;

use futures::future::join_all;
use hub::{HubClient, text};
use kube::ResourceExt;
use serde_json::Value;
use shared::annotation::keys;
use shared::fdb::api::ProcessGroup;
use shared::fdb::suspension::{Minimum, Stamp};
use shared::kinds::FOUNDATIONDB_CLUSTER;

use self::record::{ClusterRecord, GroupRecord};
use super::{ended, is_table, objects, searched};
use crate::cli::{HubArgs, StatusArgs};
use crate::connect::connect;
use crate::error::{Exit, Failure, Problem};
use crate::output;
use crate::read::fdb::DatabaseSnapshot;
use crate::read::protection;
use crate::recover::check::suspended;
use crate::recover::object::{deleted_at, name, size};
use crate::recover::{Facts, is_left_excluded};

/// Runs the command for FoundationDB clusters.
///
/// # Errors
/// When nothing can be asked at all. Failures of single clusters are printed and counted.
pub(crate) async fn run(names: &[String], args: &StatusArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    let hub = connect(hub_args)?;
    let (objects, mut exits) = objects(&hub, &FOUNDATIONDB_CLUSTER.kind, names, hub_args).await?;
    let mut records = Vec::new();
    for found in join_all(objects.into_iter().map(|object| record(&hub, object))).await {
        match found {
            Ok(record) => records.push(record),
            // One that the user may not read hides no other.
            Err(failure) => {
                exits.push(failure.problem.exit());
                output::error(&format!("{}: {}", failure.what, failure.problem));
            }
        }
    }
    if is_table(args, "FoundationDBStatusList", &FOUNDATIONDB_CLUSTER.kind, &records, |record| &record.name) {
        table::show(&records, args);
    }
    Ok(ended(args, records.is_empty(), exits, searched(&hub, hub_args)))
}

async fn record(hub: &HubClient, object: Value) -> Result<ClusterRecord, Failure> {
    let namespace = text(&object, "/metadata/namespace").to_owned();
    let place = format!("{namespace}/{}", name(&object));
    let observation =
        DatabaseSnapshot::around(hub, &namespace, object).await.map_err(|problem| Failure::new(place, problem))?;
    let protection = protection::of(hub, &namespace, &observation.cluster).await;
    Ok(of_cluster(&observation, namespace, protection))
}

fn of_cluster(observation: &DatabaseSnapshot, namespace: String, protection: protection::Protection) -> ClusterRecord {
    let cluster = &observation.cluster;
    let facts = observation.facts();
    let (protected, unprotected_because) = match protection {
        protection::Protection::Yes => ("yes", None),
        protection::Protection::No(why) => ("no", Some(why)),
        protection::Protection::Unknown(why) => ("unknown", Some(why)),
    };
    let record = facts.record();
    let suspended: Vec<GroupRecord> =
        suspended(&facts).into_iter().filter_map(|group| of_group(&facts, group)).collect();
    let has_key = |claim: &Value| Stamp::of(claim).key && deleted_at(claim).is_none();
    let groups = cluster.groups().iter();
    let unlocked = observation.claims.iter().filter(|claim| has_key(claim)).map(name);
    ClusterRecord {
        namespace,
        name: cluster.name_any(),
        protected,
        unprotected_because,
        minimum_suspension: cluster.annotations().get(keys::MINIMUM_SUSPENSION).cloned(),
        skipped: cluster.spec.skip == Some(true),
        recovering: record.iter().flat_map(|record| &record.groups).map(|held| held.group.clone()).collect(),
        health: cluster.status.as_ref().and_then(|status| status.health.clone()),
        unlocked: unlocked
            .filter(|claim| suspended.iter().all(|group| group.claim != *claim))
            .map(ToOwned::to_owned)
            .collect(),
        excluded: groups
            .filter(|group| is_left_excluded(&facts, group))
            .map(|group| group.process_group_id.clone())
            .collect(),
        suspended,
    }
}

fn of_group(facts: &Facts<'_>, group: &ProcessGroup) -> Option<GroupRecord> {
    let pod = facts.cluster.pod_name(group)?;
    let claim = facts.claim_of(&group.process_group_id, &pod)?;
    let stamp = Stamp::of(claim);
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

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::table::table;
    use super::*;

    fn now() -> Timestamp {
        "2026-11-21T18:30:00Z".parse().unwrap()
    }

    fn held() -> Value {
        json!({
            keys::SUSPENDED_AT: "2026-11-21T18:00:05Z",
            keys::SUSPENSION: json!({ "v": 1, "uid": "p-1", "group": "storage-1", "removal": "2026-11-21T17:59:58Z", "minimum": "2h", "why": "operator" }).to_string(),
        })
    }

    fn observation(annotations: &Value) -> DatabaseSnapshot {
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
            "metadata": { "name": "sample-storage-1-data", "uid": "p-1", "labels": labels, "annotations": annotations },
            "spec": { "resources": { "requests": { "storage": "16Gi" } } },
        });
        let cluster = crate::read::fdb::read(&object).unwrap();
        DatabaseSnapshot {
            object,
            cluster,
            claims: vec![claim],
            services: vec![],
            pods: vec![],
            pods_version: String::new(),
        }
    }

    fn shown(annotations: &Value, protection: protection::Protection) -> String {
        let record = of_cluster(&observation(annotations), "db".to_owned(), protection);
        table(&record, true, true, now()).join("\n")
    }

    #[test]
    fn a_suspended_group_shows_until_when() {
        let held = held();
        insta::assert_snapshot!(shown(&held, protection::Protection::Yes));
        insta::assert_snapshot!(shown(&json!({}), protection::Protection::No("x".to_owned())));
        let mut released = held;
        released[keys::RELEASED_AT] = json!("2026-11-21T20:00:05Z");
        assert!(shown(&released, protection::Protection::Yes).contains("released"));
    }

    #[test]
    fn a_minimum_that_cannot_be_read_is_said_to_keep_everything() {
        let mut observation = observation(&held());
        observation.cluster.annotations_mut().insert(keys::MINIMUM_SUSPENSION.to_owned(), "bad".to_owned());
        let record = of_cluster(&observation, "db".to_owned(), protection::Protection::Yes);
        let text = table(&record, true, false, now()).join("\n");
        let part = "  Suspension:  \"bad\" is invalid: all suspended groups are kept until it is corrected";
        assert!(text.contains(part), "{text}");
        assert_eq!(record.minimum_suspension.as_deref(), Some("bad"));
        assert!(record.suspended.iter().all(|group| group.expires.is_none()), "{record:?}");
    }

    #[test]
    fn a_group_that_stays_excluded_is_shown() {
        let mut observation = observation(&held());
        observation.object["status"]["processGroups"][1]["processGroupConditions"] =
            json!([{ "type": "ProcessIsMarkedAsExcluded", "timestamp": 1 }]);
        observation.cluster = crate::read::fdb::read(&observation.object).unwrap();
        let record = of_cluster(&observation, "db".to_owned(), protection::Protection::Yes);
        let text = table(&record, true, false, now()).join("\n");
        let part = "  EXCLUDED:    storage-2: not removed, but excluded in the database";
        assert!(text.contains(part), "{text}");
        observation.object["spec"]["processGroupsToRemove"] = json!(["storage-2"]);
        observation.cluster = crate::read::fdb::read(&observation.object).unwrap();
        assert!(
            of_cluster(&observation, "db".to_owned(), protection::Protection::Yes).excluded.is_empty(),
            "it is being removed"
        );
    }

    #[test]
    fn a_key_on_a_volume_in_use_is_shown() {
        let mut observation = observation(&json!({ keys::RELEASE: "p-1" }));
        let of = |name: &str, key: &str| json!({ "metadata": { "name": name, "uid": "p-2", "annotations": { keys::RELEASE: key } } });
        observation.claims.extend([of("sample-storage-2-data", "p-2"), of("sample-storage-3-data", "p-1")]);
        let record = of_cluster(&observation, "db".to_owned(), protection::Protection::Yes);
        assert!(record.suspended[0].released, "it is shown where it is suspended");
        let text = table(&record, true, false, now()).join("\n");
        let part = "  NOT PROTECTED: sample-storage-2-data, because of hibernate.sh/release\n";
        assert!(text.contains(part), "{text}");
    }
}
