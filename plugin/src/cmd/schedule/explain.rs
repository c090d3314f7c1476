//! `schedule explain`: which schedule governs a target, and what keeps the target from following.

use jiff::Timestamp;
use serde_json::{Value, json};
use shared::annotation::{format, keys};
use shared::kinds::{Kinds, View};
use shared::schedule::governs::{Candidate, may_govern};
use shared::schedule::timetable::Timetable;
use view::calendar::{CalendarNamespace, timetable};
use view::known;
use view::schedule::{ScheduleState, Schedules};
use view::target::place;

use super::text;
use crate::cli::schedule::ExplainArgs;
use crate::cli::{HubArgs, ReportOutput};
use crate::cmd::status::{described, table_below};
use crate::connect::connect;
use crate::error::{Exit, Failure, Problem, ScheduleError};
use crate::output;
use crate::select::{Flags, parse};

/// The width of the names in front of the values.
const NAMES: usize = 13;
/// Of a schedule that governs the target, and does nothing.
const UNREADABLE: &str = "its selector cannot be read";

/// A schedule that selects the target, and why it governs it or not.
struct Entry<'a> {
    state: &'a ScheduleState,
    candidate: Candidate<'a>,
    why: String,
}

/// Runs the verb.
///
/// # Errors
/// When the target is not found, or no schedule has targets of its type.
pub(super) async fn run(kinds: Kinds, args: &ExplainArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    let query = parse(kinds, &args.targets, Flags::new(hub_args, false))?;
    if query.names.len() != 1 {
        return Err(ScheduleError::NotOneTarget.into());
    }
    let hub = connect(hub_args)?;
    let target = match view::targets(&hub, &query).await.pop() {
        Some(Ok(target)) => target,
        Some(Err(failure)) => return Ok(output::failed(&Failure::from(failure))),
        None => return Err(ScheduleError::NotOneTarget.into()),
    };
    if !may_govern(target.row) {
        return Err(ScheduleError::Unscheduled { what: target.full_name(), known: known_types(kinds) }.into());
    }
    let view = target.row.read(&target.object)?.view(None);
    let (all, failures) = Schedules::list(&hub, Some(&target.namespace)).await;
    for failure in failures {
        output::warning(&format!("{failure}: not all schedules that may govern the target are known"));
    }
    let entries = with_reasons(all.of(target.row, &view));
    let namespace = CalendarNamespace::new(args.read.calendars.calendar_namespace.as_deref());
    let mut governing = Vec::new();
    for entry in entries.iter().filter(|entry| entry.candidate.governs) {
        let timetable = match idle(entry) {
            Some(why) => Err(format!("none: {why}")),
            None => timetable(&hub, entry.state, &namespace).await.map_err(|error| format!("not known: {error}")),
        };
        governing.push((entry.state, timetable));
    }
    let now = Timestamp::now();
    let (next, obstacles) = (next(&governing, now), obstacles(&view, now));
    let what = format!("{}{}", target.full_name(), target.place());
    match args.read.output {
        ReportOutput::Table => {
            for line in lines(&what, &entries, next, &obstacles) {
                output::colored(&line);
            }
        }
        format => {
            let schedule = |entry: &Entry<'_>| {
                let mut item = json!(entry.state);
                (item["governs"], item["why"]) = (entry.candidate.governs.into(), entry.why.as_str().into());
                item
            };
            let items: Vec<Value> = entries.iter().map(schedule).collect();
            let target = json!({
                "type": target.row.kind.type_name(), "namespace": view.identity.namespace, "name": view.identity.name,
            });
            let mut all = output::list("ScheduleExplanation", &items);
            (all["target"], all["next"], all["obstacles"]) = (target, next.into(), json!(obstacles));
            output::structured(&known(all), format == ReportOutput::Json);
        }
    }
    Ok(Exit::Done)
}

/// The types of targets that schedules have.
fn known_types(kinds: Kinds) -> String {
    let types = kinds.targets.iter().filter(|row| may_govern(row)).map(|row| row.kind.resource_name());
    types.collect::<Vec<_>>().join(", ")
}

/// The same with the reason of each. A schedule of Workloads and one of the target's own kind do not know of each other.
fn with_reasons<'a>(found: Vec<(&'a ScheduleState, Candidate<'a>)>) -> Vec<Entry<'a>> {
    let governing = found.iter().filter(|(_, candidate)| candidate.governs);
    let governing: Vec<&ScheduleState> = governing.map(|(state, _)| *state).collect();
    let entry = |(state, candidate): (&'a ScheduleState, Candidate<'a>)| {
        let is_same = |one: &&&ScheduleState| one.spec().targets.kind == state.spec().targets.kind;
        let why = match governing.iter().find(is_same) {
            _ if candidate.acts() => "governs".to_owned(),
            _ if candidate.governs => format!("governs{}", but(candidate)),
            Some(first) => why(first, state),
            None => String::new(),
        };
        Entry { state, candidate, why }
    };
    found.into_iter().map(entry).collect()
}

/// Behind a schedule that governs the target: what is to be known of it.
fn but(candidate: Candidate<'_>) -> String {
    if candidate.acts() { String::new() } else { format!(", but {UNREADABLE}: nothing acts on it") }
}

/// Why a schedule that governs the target has no edges.
fn idle(entry: &Entry<'_>) -> Option<&'static str> {
    if !entry.candidate.acts() {
        Some(UNREADABLE)
    } else if entry.state.spec().suspend {
        Some("the schedule is suspended")
    } else {
        None
    }
}

/// The next edge of the schedules that govern the target, and what is to be said of those that have none; none without any.
fn next(governing: &[(&ScheduleState, Result<Timetable, String>)], now: Timestamp) -> Option<String> {
    let named = |state: &ScheduleState, text: &str| match governing {
        [_] => text.to_owned(),
        _ => format!("{}: {text}", state.full_name()),
    };
    let edges = governing.iter().filter_map(|(state, found)| {
        let edge = *found.as_ref().ok()?.next(now, 1).first()?;
        Some((edge.at, named(state, &text(&edge, &state.spec().time_zone))))
    });
    let first = edges.min_by_key(|(at, _)| *at).map(|(_, text)| text);
    let others = governing.iter().filter_map(|(state, found)| Some(named(state, found.as_ref().err()?)));
    let texts: Vec<String> = first.into_iter().chain(others).collect();
    match texts.as_slice() {
        [] => (!governing.is_empty()).then(|| "none".to_owned()),
        texts => Some(texts.join("; ")),
    }
}

/// Why the first one governs, and the other one does not.
fn why(first: &ScheduleState, other: &ScheduleState) -> String {
    let (wins, priority) = (first.spec().priority, other.spec().priority);
    if first.namespace() != other.namespace() {
        "a schedule of the namespace comes first".to_owned()
    } else if wins != priority {
        format!("priority {priority} is lower than {wins}")
    } else {
        format!("priority {priority} is the same, and it is younger")
    }
}

/// What would refuse or defer a change now.
fn obstacles(view: &View, now: Timestamp) -> Vec<String> {
    let (desired, obstacles) = (&view.desired, &view.obstacles);
    let protected = desired.protected.then(|| format!("sleep refused: protected ({})", keys::PROTECTED));
    let refused = obstacles.refused.as_ref().map(|why| format!("sleep refused: {why}"));
    let held = obstacles.not_asleep_before.as_ref().filter(|(until, _)| *until > now);
    let wakes = desired.wakes_at().filter(|at| *at > now);
    [
        protected,
        refused,
        held.map(|(_, why)| format!("sleep deferred: {why}")),
        obstacles.waits.as_ref().map(|why| format!("sleep and wake deferred: {why}")),
        wakes.map(|at| format!("wake left out before {} ({})", format::seconds(at), keys::WAKE_AT)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Sanitized lines.
fn lines(what: &str, entries: &[Entry<'_>], next: Option<String>, obstacles: &[String]) -> Vec<String> {
    let full = |state: &ScheduleState| format!("{}{}", state.full_name(), place(state.namespace()));
    let (governing, others): (Vec<&Entry<'_>>, Vec<_>) = entries.iter().partition(|entry| entry.candidate.governs);
    let names = governing.into_iter().map(|entry| full(entry.state) + &but(entry.candidate));
    let names: Vec<String> = names.collect();
    let governs = match names.as_slice() {
        [] => "no schedule".to_owned(),
        [one] => one.clone(),
        several => format!("{}: let one schedule govern it", several.join(" and ")),
    };
    let mut fields = vec![("Governed by", Some(governs)), ("Next edge", next)];
    fields.extend(obstacles.iter().map(|text| ("Now", Some(text.clone()))));
    let mut lines = described(what, NAMES, &fields, ("", None));
    let others = others.into_iter().map(|entry| vec![full(entry.state), entry.why.clone()]);
    lines.extend(table_below(&["OTHER SCHEDULE", "WHY NOT"], others));
    lines
}

#[cfg(test)]
mod tests {
    use shared::kinds::operators::VIRTUAL_MACHINE;
    use shared::kinds::workload::DEPLOYMENT;
    use shared::kinds::{CLUSTER_DEPLOYMENT, KINDS};
    use shared::rollout::NamespaceLabels;

    use super::super::tests::{at, office, timetable};
    use super::*;

    fn cluster(annotations: &Value) -> View {
        let object = json!({
            "metadata": { "name": "demo", "namespace": "team", "annotations": annotations },
            "spec": { "baseDomain": "d", "clusterName": "demo", "installed": true, "platform": {} },
        });
        CLUSTER_DEPLOYMENT.read(&object).unwrap().view(None)
    }

    #[test]
    fn the_governing_schedule_comes_first_and_the_others_say_why_not() {
        let schedule = |name: &str, namespace: Option<&str>, priority: i32, created: u8| {
            let created = format!("2026-11-01T00:00:{created:02}Z");
            let metadata = json!({ "name": name, "namespace": namespace, "uid": name, "creationTimestamp": created });
            office(&metadata, &json!({ "priority": priority }))
        };
        let states = [
            schedule("platform", None, 1_000, 0),
            schedule("young", Some("team"), 5, 2),
            schedule("old\u{1b}[2J", Some("team"), 5, 1),
            schedule("low", Some("team"), 0, 0),
            schedule("elsewhere", Some("other"), 9, 0),
        ];
        let all = Schedules::of_states(states.into(), NamespaceLabels::new());
        let ranked = with_reasons(all.of(&CLUSTER_DEPLOYMENT, &cluster(&json!({}))));
        insta::assert_snapshot!(lines("demo", &ranked, Some("Sleep at x".to_owned()), &["y".to_owned()]).join("\n"), @r"
        demo
          Governed by: powerschedule.hibernate.sh/old [2J (namespace team)
          Next edge:   Sleep at x
          Now:         y

        OTHER SCHEDULE                                      WHY NOT
        powerschedule.hibernate.sh/young (namespace team)   priority 5 is the same, and it is younger
        powerschedule.hibernate.sh/low (namespace team)     priority 0 is lower than 5
        clusterpowerschedule.hibernate.sh/platform          a schedule of the namespace comes first
        ");
        assert_eq!(lines("demo", &[], None, &[]), ["demo", "  Governed by: no schedule"]);
    }

    #[test]
    fn workloads_and_what_operators_run_are_explained() {
        let schedule = |name: &str, targets: Value| {
            let metadata = json!({ "name": name, "namespace": null, "uid": name });
            let operators =
                if targets["kind"] == "Workloads" { json!(["virtualmachines.kubevirt.io"]) } else { json!(null) };
            office(&metadata, &json!({ "targets": targets, "operatorKinds": operators }))
        };
        let states = [
            schedule("machines", json!({ "kind": "VirtualMachine" })),
            schedule("shop", json!({ "kind": "Workloads", "all": false, "names": [{ "name": "team" }] })),
        ];
        let all = Schedules::of_states(states.into(), NamespaceLabels::new());
        let shown = |row| lines("web", &with_reasons(all.of(row, &cluster(&json!({})))), None, &[])[1].clone();
        assert_eq!(shown(&DEPLOYMENT), "  Governed by: clusterpowerschedule.hibernate.sh/shop");
        assert_eq!(
            shown(&VIRTUAL_MACHINE),
            "  Governed by: clusterpowerschedule.hibernate.sh/machines and clusterpowerschedule.hibernate.sh/shop: let one \
             schedule govern it"
        );
        let known = known_types(KINDS);
        for (kind, is_known) in [
            ("virtualmachines.kubevirt.io", true),
            ("clusters.postgresql.cnpg.io", true),
            ("cronjobs.batch", true),
            ("machinedeployments.cluster.x-k8s.io", false),
        ] {
            assert_eq!(known.split(", ").any(|one| one == kind), is_known, "{kind}: {known}");
        }
    }

    #[test]
    fn a_selector_that_cannot_be_read_governs_and_the_reason_says_that_nothing_acts() {
        let broken = json!({ "matchExpressions": [{ "key": "env", "operator": "NotIn", "values": ["prod "] }] });
        let states = [
            office(&json!({ "uid": "night" }), &json!({ "targets": { "all": null, "selector": broken } })),
            office(&json!({ "name": "platform", "namespace": null, "uid": "platform" }), &json!({ "suspend": true })),
        ];
        let all = Schedules::of_states(states.into(), NamespaceLabels::new());
        let entries = with_reasons(all.of(&CLUSTER_DEPLOYMENT, &cluster(&json!({}))));
        let found: Vec<_> = entries.iter().map(|one| (one.candidate.governs, one.why.as_str(), idle(one))).collect();
        assert_eq!(
            found[0],
            (true, "governs, but its selector cannot be read: nothing acts on it", Some("its selector cannot be read"))
        );
        assert_eq!((found[1].0, found[1].1), (false, "a schedule of the namespace comes first"));
        assert_eq!(
            lines("demo", &entries, None, &[])[1],
            "  Governed by: powerschedule.hibernate.sh/night (namespace team), but its selector cannot be read: nothing acts \
             on it"
        );
        let suspended =
            Schedules::of_states(vec![office(&json!({}), &json!({ "suspend": true }))], NamespaceLabels::new());
        let entries = with_reasons(suspended.of(&CLUSTER_DEPLOYMENT, &cluster(&json!({}))));
        assert_eq!((entries[0].why.as_str(), idle(&entries[0])), ("governs", Some("the schedule is suspended")));
    }

    #[test]
    fn the_next_edge_is_that_of_all_schedules_that_govern() {
        let office = |name: &str, to: &str| {
            let awake = json!([{ "days": ["Mon-Fri"], "from": "07:30", "to": to }]);
            office(&json!({ "name": name, "namespace": null }), &json!({ "awake": awake }))
        };
        let (machines, shop) = (office("machines", "18:00"), office("shop", "17:00"));
        let (late, early) = (|| Ok(timetable(&machines)), || Ok(timetable(&shop)));
        let suspended = || Err("none: the schedule is suspended".to_owned());
        for (governing, expected) in [
            (vec![], None),
            (vec![(&machines, late())], Some("Sleep at 2026-11-27T18:00+01:00")),
            (vec![(&machines, suspended())], Some("none: the schedule is suspended")),
            (
                vec![(&machines, late()), (&shop, early())],
                Some("clusterpowerschedule.hibernate.sh/shop: Sleep at 2026-11-27T17:00+01:00"),
            ),
            (
                vec![(&machines, suspended()), (&shop, early())],
                Some(
                    "clusterpowerschedule.hibernate.sh/shop: Sleep at 2026-11-27T17:00+01:00; \
                     clusterpowerschedule.hibernate.sh/machines: none: the schedule is suspended",
                ),
            ),
        ] {
            assert_eq!(next(&governing, at("2026-11-27T12:00:00Z")).as_deref(), expected);
        }
    }

    #[test]
    fn what_refuses_or_defers_a_change_is_named() {
        let now = at("2026-11-27T12:00:00Z");
        for (annotations, expected) in [
            (json!({}), vec![]),
            (json!({ "hibernate.sh/protected": "true" }), vec!["sleep refused: protected (hibernate.sh/protected)"]),
            (
                json!({ "hibernate.sh/hold-awake-until": "2026-11-27T18:00:00Z", "hibernate.sh/hold-awake-by": "ann" }),
                vec!["sleep deferred: held awake until 2026-11-27T18:00:00Z by ann"],
            ),
            (json!({ "hibernate.sh/hold-awake-until": "2026-11-27T11:00:00Z" }), vec![]),
            (
                json!({ "hibernate.sh/wake-at": "2026-11-30T06:00:00Z" }),
                vec!["wake left out before 2026-11-30T06:00:00Z (hibernate.sh/wake-at)"],
            ),
        ] {
            assert_eq!(obstacles(&cluster(&annotations), now), expected, "{annotations}");
        }
    }
}
