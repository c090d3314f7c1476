//! What others of its namespace stop: what an object of a row controls or scales is its operator's to scale.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Kinds;
use super::operators::why_no_row;
use super::row::{Reader, TargetKind};
use crate::annotation::{annotation, keys};
use crate::object::{controller, group_of, name_of, text};
use crate::text::sanitize_to;

/// Characters of the name of an owner.
const MAX_NAME: usize = 200;

/// The objects of a namespace that scale others.
#[derive(Debug, Default)]
pub struct Owners {
    uids: BTreeSet<String>,
    /// Kind and name of what is scaled by a reference.
    scaled: BTreeSet<(String, String)>,
    /// The same of what stands between an object and what it runs; the kind with its group.
    made: BTreeSet<(String, String)>,
}

impl Owners {
    /// Those among these objects.
    pub fn of<'a>(objects: impl IntoIterator<Item = (&'static TargetKind, &'a Value)>) -> Self {
        let mut owners = Self::default();
        for (kind, object) in objects {
            owners.add(kind, object);
        }
        owners
    }

    /// Adds an object, if its kind is a row.
    pub fn add(&mut self, kind: &TargetKind, object: &Value) {
        let Reader::Row(row) = kind.reader else { return };
        self.uids.insert(text(object, "/metadata/uid").to_owned());
        let made = row.makes.map(|(group, kind)| (format!("{kind}.{group}"), name_of(object).to_owned()));
        self.made.extend(made);
        let named = row.scales.and_then(|at| object.pointer(at)).map(|named| {
            let kind = named["kind"].as_str().unwrap_or("Deployment");
            (kind.to_owned(), text(named, "/name").to_owned())
        });
        self.scaled.extend(named);
    }

    /// Whether a sleep, or a wake, leaves this object to one of them: it controls or scales the object. A wake leaves nothing
    /// that has a record of ours.
    pub fn own(&self, kind: &TargetKind, object: &Value, sleeps: bool) -> bool {
        if !sleeps && has_record(object) {
            return false;
        }
        let is_owned = controller(object).is_some_and(|owner| {
            let kind = format!("{}.{}", text(owner, "/kind"), group_of(text(owner, "/apiVersion")));
            self.uids.contains(text(owner, "/uid")) || self.made.contains(&(kind, text(owner, "/name").to_owned()))
        });
        is_owned || self.scaled.contains(&(kind.kind.kind.to_owned(), name_of(object).to_owned()))
    }
}

/// Why a workload is refused: its controller would scale it up again, and cannot sleep or is not among the [`Owners`]. Texts
/// of an owner are input.
pub fn refusal(kinds: Kinds, object: &Value) -> Option<String> {
    let owner = controller(object)?;
    let (group, kind) = (group_of(text(owner, "/apiVersion")), text(owner, "/kind"));
    let name = sanitize_to(&format!("{kind}.{group}/{}", text(owner, "/name")), MAX_NAME);
    if kinds.of_owner(owner).is_some_and(|row| row.sleep_row().is_some()) {
        return Some(format!("{name} would scale it up again: hibernate {name} instead"));
    }
    let why = why_no_row(group, kind)?;
    Some(format!("{name} would scale it up again and cannot sleep: {why}"))
}

/// Whether one of our records says what was there before a sleep.
fn has_record(object: &Value) -> bool {
    [keys::REPLICAS, keys::CRON_JOB_SUSPEND, keys::BEFORE].iter().any(|key| annotation(object, key).is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::KINDS;
    use crate::kinds::operators::{CNPG_POOLER, PERCONA_POSTGRES, SCALED_OBJECT};
    use crate::kinds::workload::{DEPLOYMENT, STATEFUL_SET};

    fn named(name: &str, more: &Value) -> Value {
        let mut object = json!({ "metadata": { "name": name, "namespace": "shop", "uid": name } });
        json_patch::merge(&mut object, more);
        object
    }

    fn owned(api_version: &str, kind: &str, uid: &str, controller: bool) -> Value {
        let owner =
            json!({ "apiVersion": api_version, "kind": kind, "name": uid, "uid": uid, "controller": controller });
        json!({ "metadata": { "ownerReferences": [owner] } })
    }

    #[test]
    fn what_an_object_controls_or_scales_is_its_own_to_stop() {
        let of_pooler = |uid: &str, controller| owned("postgresql.cnpg.io/v1", "Pooler", uid, controller);
        let scaler = |target: Value| json!({ "spec": { "scaleTargetRef": target } });
        let objects = [
            (&CNPG_POOLER, named("pool", &json!({})), false),
            (&DEPLOYMENT, named("pool-rw", &of_pooler("pool", true)), true),
            (&DEPLOYMENT, named("other", &of_pooler("pool", false)), false),
            (&DEPLOYMENT, named("unknown", &of_pooler("gone", true)), false),
            (&SCALED_OBJECT, named("scaler", &scaler(json!({ "name": "web" }))), false),
            (&SCALED_OBJECT, named("sets", &scaler(json!({ "kind": "StatefulSet", "name": "db" }))), false),
            (&DEPLOYMENT, named("web", &json!({})), true),
            (&DEPLOYMENT, named("db", &json!({})), false),
            (&STATEFUL_SET, named("db", &json!({})), true),
            (&PERCONA_POSTGRES, named("pg", &json!({})), false),
            (
                &STATEFUL_SET,
                named("pg-set", &owned("upstream.pgv2.percona.com/v1", "PostgresCluster", "pg", true)),
                true,
            ),
        ];
        let owners = Owners::of(objects.iter().map(|(kind, object, _)| (*kind, object)));
        for (kind, object, stopped) in &objects {
            assert_eq!(owners.own(kind, object, true), *stopped, "{object}");
            assert_eq!(owners.own(kind, object, false), *stopped, "{object}");
            let mut recorded = object.clone();
            recorded["metadata"]["annotations"] = json!({ keys::REPLICAS: "3" });
            assert!(!owners.own(kind, &recorded, false), "{recorded}");
            assert_eq!(owners.own(kind, &recorded, true), *stopped, "{recorded}");
        }
    }

    #[test]
    fn what_an_operator_without_a_row_scales_is_refused_by_name() {
        for (api_version, kind, controller, part) in [
            ("elasticsearch.k8s.elastic.co/v1", "Elasticsearch", true, "Elasticsearch.elasticsearch.k8s.elastic.co/x "),
            (
                "rabbitmq.com/v1beta1",
                "RabbitmqCluster",
                true,
                "RabbitmqCluster.rabbitmq.com/x would scale it up again and cannot sleep",
            ),
            ("grafana.integreatly.org/v1beta1", "Grafana", true, "its suspend pauses only the operator"),
            ("grafana.integreatly.org/v1beta1", "GrafanaDashboard", true, ""),
            ("elasticsearch.k8s.elastic.co/v1", "Elasticsearch", false, ""),
            ("example.com/v1", "Elasticsearch", true, ""),
            ("v1", "Elasticsearch", true, ""),
            (
                "postgresql.cnpg.io/v1",
                "Pooler",
                true,
                "Pooler.postgresql.cnpg.io/x would scale it up again: hibernate Pooler",
            ),
            ("kubermatic.k8c.io/v1", "Cluster", true, ""),
        ] {
            let found = refusal(KINDS, &named("es", &owned(api_version, kind, "x", controller)));
            assert_eq!(found.is_some(), !part.is_empty(), "{api_version} {kind}");
            assert!(found.unwrap_or_default().contains(part), "{api_version} {kind}");
        }
        let text =
            refusal(KINDS, &named("es", &owned("rabbitmq.com/v1", "RabbitmqCluster", "\u{1b}[31m", true))).unwrap();
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
