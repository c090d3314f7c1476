//! Events and log lines about what was done: one for each kind of action, however many groups it concerns.

use std::collections::{BTreeMap, BTreeSet};

use kube::runtime::events::EventType;
use kube::{Resource, ResourceExt};
use shared::annotation::groups::ProcessGroups;
use shared::annotation::{format, keys};
use shared::fdb::api::FoundationDBCluster;
use shared::fdb::decide::{Action, Change, Facts, Plan};
use shared::fdb::suspension::{Minimum, Stamp, moment};
use shared::record::Format;
use shared::text::{name_some, quoted};
use tracing::info;

use super::Fdb;
use crate::runtime::System;
use crate::runtime::events::Details;
use crate::runtime::hub::full_name;

/// Reason of the Event about groups that are held from now on.
const SUSPENDED: &str = "Suspended";
/// Reason of the Event about released groups.
const RELEASED: &str = "Released";
/// Groups that an Event names.
const NAMED: usize = 40;

/// Tells what was carried out of a plan.
pub async fn done(fdb: &Fdb, facts: &Facts<'_>, plan: &Plan, written: &[Action]) {
    let name = full_name(facts.cluster);
    for (reason, type_, is, text) in KINDS {
        let actions = || written.iter().filter(|action| is(&action.change));
        let group = |action: &Action| facts.objects[action.object].group.as_deref();
        let groups: BTreeSet<&str> = actions().filter_map(group).collect();
        if groups.is_empty() {
            continue;
        }
        let until = actions().filter_map(|action| until(&action.change)).max();
        let until = until.map(|until| format!(" until {until} at least")).unwrap_or_default();
        let way_out = if *reason == SUSPENDED { recovery(facts.cluster) } else { String::new() };
        let note = format!("{}{until}: {text}{way_out}", name_some(&groups, NAMED));
        info!(cluster = name, reason, held = plan.held, waiting = plan.waiting, "{note}");
        fdb.handle.hub.metrics.noticed("fdb", reason);
        if *reason != RELEASED {
            fdb.handle.publish(facts.cluster, *type_, reason, &note).await;
            continue;
        }
        fdb.handle.hub.metrics.fdb.released(groups.len());
        // `recover` looks for the groups that it comes too late for.
        let groups = ProcessGroups::new(groups).text();
        let annotations = BTreeMap::from([(keys::PROCESS_GROUPS.to_owned(), groups)]);
        let details = Details { annotations, ..Details::default() };
        let (target, what) = (facts.cluster.object_ref(&()), (Fdb::ACTION, *reason));
        fdb.handle.hub.events.publish_annotated(&target, *type_, what, &note, details).await;
    }
}

/// Reason and type of the Event, which actions it is about, and what it says of them.
type Kind = (&'static str, EventType, fn(&Change) -> bool, &'static str);

const KINDS: &[Kind] = &[
    (
        SUSPENDED,
        EventType::Normal,
        |change| matches!(change, Change::Stamp(..)),
        "removed; volume and Service are kept",
    ),
    (
        RELEASED,
        EventType::Normal,
        |change| *change == Change::Release,
        "the suspension has expired; the operator may delete volume and Service",
    ),
    (
        "OperatorWoken",
        EventType::Warning,
        |change| *change == Change::Wake,
        "released, but the operator has not deleted them yet; the controller woke it again",
    ),
    (
        "SuspensionEnded",
        EventType::Normal,
        |change| *change == Change::Clear,
        "no longer marked for removal; the suspension annotations were removed",
    ),
];

/// The command that brings a group back.
fn recovery(cluster: &FoundationDBCluster) -> String {
    let (namespace, name) = (quoted(&cluster.namespace().unwrap_or_default()), quoted(&cluster.name_any()));
    format!(". To recover a group: kubectl hibernate recover process-groups -n {namespace} -c {name} ID")
}

fn until(change: &Change) -> Option<String> {
    let Change::Stamp(since, record) = change else { return None };
    let since = format::time(&moment(*since)); // as it is written
    let stamp = Stamp { since, record: Some(*record.clone()), ..Stamp::default() };
    stamp.until(&Minimum::Off).map(format::seconds)
}
