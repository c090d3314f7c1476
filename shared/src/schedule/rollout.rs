//! The rollout that carries out an edge.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube::ResourceExt as _;

use super::api::{RolloutSettings, Schedule, ScheduleSpec};
use super::decide::Due;
use crate::annotation::keys;
use crate::power::Power;
use crate::rollout::api::{PowerRollout, PowerRolloutSpec, ScheduleReference, TargetName, Targets};
use crate::rollout::draft;
use crate::rollout::{NAMESPACE_NAME, Share};
use crate::text::sanitize_to;

/// How long a finished rollout is kept: over a weekend.
const TTL: &str = "72h";
/// Longest part of a schedule's name in the name of a rollout, in characters.
const MAX_NAME: usize = 200;
/// How much of the end of a schedule's UID tells its rollouts from those of others.
const UID: usize = 12;
/// Longest reason.
const MAX_REASON: usize = 512;

/// What a schedule selects, as a rollout does: one of a namespace selects in it alone.
pub fn targets(spec: &ScheduleSpec, namespace: Option<&str>) -> Targets {
    let mut targets = spec.targets.clone();
    let Some(namespace) = namespace else { return targets };
    own_names(&mut targets.names, namespace);
    if targets.names.is_empty() {
        let label = [(NAMESPACE_NAME.to_owned(), namespace.to_owned())].into();
        targets.namespace_selector = Some(LabelSelector { match_labels: Some(label), match_expressions: None });
        targets.all = false;
    }
    targets
}

fn own_names(names: &mut [TargetName], namespace: &str) {
    for name in names {
        namespace.clone_into(&mut name.namespace);
    }
}

/// The name of the rollout of an edge, or of some targets of the schedule: the same for every leader, at any time.
pub fn name(schedule: &impl Schedule, at: Timestamp, only: &[TargetName]) -> String {
    let uid: String = schedule.uid().unwrap_or_default().chars().filter(char::is_ascii_alphanumeric).collect();
    let name: String = schedule.name_any().chars().take(MAX_NAME).collect();
    let some = if only.is_empty() { String::new() } else { format!("-{:016x}", digest(only)) };
    format!("{name}-{}-{}{some}", at.strftime("%Y%m%d-%H%M%S"), &uid[uid.len().saturating_sub(UID)..])
}

/// FNV-1a of the names: of every version of this program the same.
fn digest(names: &[TargetName]) -> u64 {
    let bytes = names.iter().flat_map(|one| [one.namespace.as_bytes(), b"/", one.name.as_bytes(), b","]).flatten();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The rollout of what is due, which starts targets until `until`. `author`: who wrote the schedule. `source`: where the edge
/// comes from.
pub fn rollout<S: Schedule>(schedule: &S, due: &Due, source: &str, author: &str, until: Timestamp) -> PowerRollout {
    let (Due { edge, targets: only, .. }, spec, namespace) = (due, schedule.spec(), schedule.namespace());
    let mut targets = targets(spec, namespace.as_deref());
    if !only.is_empty() {
        targets = Targets { kind: targets.kind, names: only.clone(), ..Targets::default() };
    }
    let RolloutSettings { max_targets: _, max_concurrency, starts_per_minute, max_failures, groups, deadline } =
        spec.rollout.clone();
    let mut groups = if only.is_empty() { groups } else { Vec::new() };
    if let Some(namespace) = &namespace {
        for group in &mut groups {
            own_names(&mut group.names, namespace);
        }
    }
    let sleeps = edge.power == Power::Hibernating;
    let name_of = |schedule: &S| match &namespace {
        Some(namespace) => format!("{namespace}/{}", schedule.name_any()),
        None => schedule.name_any(),
    };
    let reason = sanitize_to(&format!("schedule {}: {source}", name_of(schedule)), MAX_REASON);
    let spec = PowerRolloutSpec {
        groups,
        max_concurrency: max_concurrency.or(sleeps.then_some(Share::Percent(100))),
        starts_per_minute: starts_per_minute.filter(|_| !sleeps),
        max_failures,
        deadline,
        reason: Some(reason),
        ttl_after_finished: Some(TTL.to_owned()),
        as_of: Some(Time(edge.at)),
        scheduled_by: Some(ScheduleReference {
            kind: S::kind(&()).into_owned(),
            namespace: namespace.clone().unwrap_or_default(),
            name: schedule.name_any(),
            uid: schedule.uid().unwrap_or_default(),
        }),
        ..draft::of_power(edge.power, targets, spec.rollout.most_targets(), until)
    };
    let mut rollout = PowerRollout::new(&name(schedule, edge.at, only), spec);
    rollout.annotations_mut().insert(keys::REQUESTED_BY.to_owned(), author.to_owned());
    rollout
}
