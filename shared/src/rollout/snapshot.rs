//! Who was a member of a rollout when it started: the UIDs of the targets, by group.
//!
//! Labels and annotations belong to the tenants, and change while a rollout runs. The API server gives a UID once: who
//! was no member at the start never becomes one, and who was stays one until the object is gone. The controller keeps
//! this in a `ConfigMap` of its own namespace: ten thousand UIDs would not fit into a status that is written every
//! second.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};

use super::api::PowerRollout;
pub use crate::kinds::view::Uid;

/// Bytes of a UID.
const WIDTH: usize = 16;

/// Why the members of a rollout that has started are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// It was deleted.
    #[error("it is missing")]
    Missing,
    /// It was written for another object.
    #[error("metadata.ownerReferences does not name the UID of this rollout")]
    Foreign,
    /// It was not written by this code.
    #[error("binaryData is no list of UIDs by index of group")]
    Malformed,
}

/// The members of a rollout when it started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Sorted, by index of their group.
    groups: Vec<Vec<Uid>>,
}

impl Snapshot {
    /// What the name of each `ConfigMap` begins with.
    pub const PREFIX: &str = "rollout-members-";

    /// The snapshot of these members, each with the index of its group.
    pub fn of(members: impl IntoIterator<Item = (usize, Uid)>, groups: usize) -> Self {
        let mut all = vec![Vec::new(); groups];
        for (group, uid) in members {
            if let Some(group) = all.get_mut(group) {
                group.push(uid);
            }
        }
        for group in &mut all {
            group.sort_unstable();
        }
        Self { groups: all }
    }

    /// The index of a member's group. `None` if it is no member.
    pub fn group(&self, uid: Option<Uid>) -> Option<usize> {
        self.groups.iter().position(|group| uid.is_some_and(|uid| group.binary_search(&uid).is_ok()))
    }

    /// Name of the `ConfigMap` with the members that the spec of this generation selects.
    pub fn name(uid: &str, generation: i64) -> String {
        format!("{}{uid}-{generation}", Self::PREFIX)
    }

    /// The generation whose members count: until a rollout has started, that of its spec. What was recorded of an
    /// earlier one is void.
    pub fn generation(rollout: &PowerRollout) -> i64 {
        let begun = rollout.status.as_ref().filter(|status| status.started_at.is_some());
        begun.map_or(rollout.metadata.generation, |status| status.members_generation).unwrap_or_default()
    }

    /// The `ConfigMap`. It goes with its rollout, and the API server rejects changes of its data.
    pub fn config_map(&self, rollout: &PowerRollout) -> ConfigMap {
        let uid = rollout.uid().unwrap_or_default();
        let bytes = |group: &Vec<Uid>| ByteString(group.iter().flat_map(|uid| uid.0.to_be_bytes()).collect());
        let data = self.groups.iter().enumerate().map(|(index, group)| (index.to_string(), bytes(group)));
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(Self::name(&uid, Self::generation(rollout))),
                owner_references: rollout.owner_ref(&()).map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            binary_data: Some(data.collect()),
            immutable: Some(true),
            ..ConfigMap::default()
        }
    }

    /// Reads the `ConfigMap` of the rollout with this UID.
    ///
    /// # Errors
    /// When it is another rollout's, or no such list.
    pub fn read(found: &ConfigMap, uid: &str) -> Result<Self, SnapshotError> {
        if !found.owner_references().iter().any(|owner| owner.uid == uid) {
            return Err(SnapshotError::Foreign);
        }
        let data: &BTreeMap<String, ByteString> = found.binary_data.as_ref().ok_or(SnapshotError::Malformed)?;
        let group = |index: usize| -> Option<Vec<Uid>> {
            let (uids, rest) = data.get(&index.to_string())?.0.as_chunks::<WIDTH>();
            let uids: Vec<Uid> = uids.iter().map(|uid| Uid(u128::from_be_bytes(*uid))).collect();
            (rest.is_empty() && uids.is_sorted()).then_some(uids)
        };
        let groups: Option<Vec<Vec<Uid>>> = (0..data.len()).map(group).collect();
        groups.map(|groups| Self { groups }).ok_or(SnapshotError::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rollout::api::MAX_MEMBERS;

    fn uid(number: u32) -> Uid {
        Uid::parse(&format!("{number:08x}-0000-4000-8000-00000000000a")).unwrap()
    }

    fn rollout() -> PowerRollout {
        serde_json::from_value(json!({
            "apiVersion": "hibernate.sh/v1alpha1", "kind": "PowerRollout", "metadata": { "name": "night", "uid": "u" },
            "spec": {
                "action": "Hibernate", "targets": { "all": true }, "maxTargets": 1, "notAfter": "2126-01-01T00:00:00Z",
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_uid_is_a_uuid() {
        assert_eq!(Uid::parse("ffffffff-ffff-ffff-ffff-ffffffffffff"), Some(Uid(u128::MAX)));
        assert_ne!(uid(1), uid(2));
        for text in ["", "a", "+fffffff-ffff-ffff-ffff-ffffffffffff", "ffffffffffff-ffff-ffff-ffff-ffffffff", "ü"] {
            assert_eq!(Uid::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_snapshot_is_read_as_it_was_written_and_tells_members_from_others() {
        let snapshot = Snapshot::of([(1, uid(3)), (1, uid(1)), (0, uid(2)), (7, uid(9))], 3);
        let written = snapshot.config_map(&rollout());
        assert_eq!(Snapshot::read(&written, "u"), Ok(snapshot.clone()));
        let groups = [1, 2, 3, 9].map(|number| snapshot.group(Some(uid(number))));
        assert_eq!((groups, snapshot.group(None)), ([Some(1), Some(0), Some(1), None], None));
        let owner = &written.owner_references()[0];
        assert_eq!((owner.kind.as_str(), owner.uid.as_str(), written.immutable), ("PowerRollout", "u", Some(true)));
    }

    #[test]
    fn what_is_not_the_rollouts_own_is_not_believed() {
        let written = Snapshot::of([(0, uid(2)), (0, uid(1))], 1).config_map(&rollout());
        assert_eq!(Snapshot::read(&written, "other"), Err(SnapshotError::Foreign));
        assert_eq!(Snapshot::read(&ConfigMap::default(), "u"), Err(SnapshotError::Foreign));
        let data = |key: &str, bytes: Vec<u8>| ConfigMap {
            binary_data: Some([(key.to_owned(), ByteString(bytes))].into()),
            ..written.clone()
        };
        for (key, bytes) in
            [("1", vec![0; 16]), ("a", vec![0; 16]), ("0", vec![0; 15]), ("0", [[1; 16], [0; 16]].concat())]
        {
            assert_eq!(Snapshot::read(&data(key, bytes), "u"), Err(SnapshotError::Malformed), "{key}");
        }
    }

    /// An edit before the start makes what was recorded before it void; one after the start changes nothing.
    #[test]
    fn a_snapshot_is_named_by_the_generation_that_it_was_made_of() {
        let mut rollout = rollout();
        for (generation, status, name) in [
            (2, json!({}), "rollout-members-u-2"),
            (3, json!({}), "rollout-members-u-3"),
            (4, json!({ "startedAt": "2026-11-24T12:00:00Z", "membersGeneration": 3 }), "rollout-members-u-3"),
            (4, json!({ "startedAt": "2026-11-24T12:00:00Z" }), "rollout-members-u-0"),
        ] {
            rollout.metadata.generation = Some(generation);
            rollout.status = serde_json::from_value(status).unwrap();
            let written = Snapshot::of([], 1).config_map(&rollout);
            assert_eq!(written.metadata.name.as_deref(), Some(name));
        }
    }

    /// The API server takes 1 MiB of data.
    #[test]
    fn the_most_members_fit_into_one_object() {
        let members = (0..MAX_MEMBERS).map(|number| (0, uid(number)));
        let written = Snapshot::of(members, 1).config_map(&rollout());
        assert_eq!(written.binary_data.unwrap()["0"].0.len(), 800_000);
    }
}
