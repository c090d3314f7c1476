//! The rules, asked before anybody writes: would the sleep of this Cluster be denied?

use std::collections::BTreeMap;

use serde::de::IgnoredAny;

use super::cluster::{Cloud, Cluster, Condition, Conditions, Encryption, Spec, Status};
use super::{HIBERNATING, judge};
use crate::admission::{Denial, Finding, Meta, Settings, sleep_denial};
use crate::annotation::Annotations;
use crate::kkp::{api, keys};

/// The rule that denies the sleep of a Cluster that runs, with its row: K1 to K6, but for holds.
pub fn refusal(cluster: &api::Cluster) -> Option<Finding<Denial>> {
    let none = BTreeMap::new();
    let annotations = cluster.metadata.annotations.as_ref().unwrap_or(&none);
    let awake = |(key, _): &(&String, &String)| *key != keys::POWER_STATE;
    let annotations = annotations.iter().filter(awake).map(|(key, value)| (key.clone(), value.clone())).collect();
    sleep_denial(&annotations, &Settings::default(), judge, |annotations, asleep| read(cluster, annotations, asleep))
}

/// The Cluster as the rules read it.
fn read(cluster: &api::Cluster, annotations: Annotations, asleep: bool) -> Cluster {
    let (meta, spec) = (&cluster.metadata, &cluster.spec);
    let power = asleep.then_some((keys::POWER_STATE, HIBERNATING));
    let condition = |name: &str| {
        let found = cluster.condition(name)?;
        Some(Condition { status: found.status.clone(), reason: found.reason.clone() })
    };
    Cluster {
        metadata: Meta {
            name: meta.name.clone().unwrap_or_default(),
            namespace: String::new(),
            annotations: annotations.with(power),
            finalizers: Vec::new(),
            deletion_timestamp: meta.deletion_timestamp.as_ref().map(|_| IgnoredAny),
        },
        spec: Some(Spec {
            pause: Some(spec.pause),
            pause_reason: spec.pause_reason.clone(),
            version: Some(spec.version.clone()),
            cloud: Some(Cloud {
                dc: Some(spec.cloud.dc.clone()),
                provider_name: Some(spec.cloud.provider_name.clone()),
            }),
        }),
        status: Some(Status {
            phase: cluster.status.as_ref().and_then(|status| status.phase.clone()),
            conditions: Some(Conditions {
                up_to_date: condition("SeedResourcesUpToDate"),
                dehydrated: condition(keys::DEHYDRATED),
            }),
            encryption: cluster.status.as_ref().and_then(|status| {
                status.encryption.as_ref().map(|encryption| Encryption { phase: encryption.phase.clone() })
            }),
        }),
    }
}
