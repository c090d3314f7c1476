//! `schedule explain`: which schedule governs a target, and what keeps the target from following.

use jiff::Timestamp;
use serde_json::{Value, json};
use shared::annotation::{format, keys};
use shared::kinds::{Kinds, View};
use shared::schedule::governs::may_govern;
use view::calendar::{CalendarNamespace, timetable};
use view::known;
use view::schedule::{ScheduleState, Schedules};
use view::target::place;

use super::next_text;
use crate::cli::schedule::ExplainArgs;
use crate::cli::{HubArgs, ReportOutput};
use crate::cmd::status::{described, table_below};
use crate::connect::connect;
use crate::error::{Exit, Failure, Problem, ScheduleError};
use crate::output;
use crate::select::{Flags, parse};

/// The width of the names in front of the values.
const NAMES: usize = 13;
/// Of a schedule that acts on the target.
const GOVERNS: &str = "governs";

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
    let schedules = with_reasons(&all.of(target.row, &view));
    let namespace = CalendarNamespace::new(args.read.calendars.calendar_namespace.as_deref());
    let next = match schedules.first() {
        Some((state, _)) if state.spec().suspend => Some("none: the schedule is suspended".to_owned()),
        Some((state, _)) => Some(match timetable(&hub, state, &namespace).await {
            Ok(timetable) => next_text(&timetable, &state.spec().time_zone, Timestamp::now()),
            Err(error) => format!("not known: {error}"),
        }),
        None => None,
    };
    let (what, obstacles) = (format!("{}{}", target.full_name(), target.place()), obstacles(&view, Timestamp::now()));
    match args.read.output {
        ReportOutput::Table => {
            for line in lines(&what, &schedules, next, &obstacles) {
                output::colored(&line);
            }
        }
        format => {
            let schedule = |(state, why): &(&ScheduleState, String)| {
                let mut item = json!(state);
                (item["governs"], item["why"]) = ((why == GOVERNS).into(), why.as_str().into());
                item
            };
            let items: Vec<Value> = schedules.iter().map(schedule).collect();
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
fn with_reasons<'a>(found: &[&'a ScheduleState]) -> Vec<(&'a ScheduleState, String)> {
    let is_same = |one: &ScheduleState, other: &ScheduleState| one.spec().targets.kind == other.spec().targets.kind;
    let reason = |state: &ScheduleState| {
        let first = found.iter().find(|one| is_same(one, state));
        first.map(|first| why(first, state)).unwrap_or_default()
    };
    found.iter().map(|state| (*state, reason(state))).collect()
}

/// Why the first one governs, and the other one does not.
fn why(first: &ScheduleState, other: &ScheduleState) -> String {
    let (wins, priority) = (first.spec().priority, other.spec().priority);
    if first == other {
        GOVERNS.to_owned()
    } else if first.namespace() != other.namespace() {
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
fn lines(
    what: &str,
    schedules: &[(&ScheduleState, String)],
    next: Option<String>,
    obstacles: &[String],
) -> Vec<String> {
    let full = |state: &ScheduleState| format!("{}{}", state.full_name(), place(state.namespace()));
    let (governing, others): (Vec<_>, Vec<_>) = schedules.iter().partition(|(_, why)| why == GOVERNS);
    let names: Vec<String> = governing.into_iter().map(|(state, _)| full(state)).collect();
    let governs = match names.as_slice() {
        [] => "no schedule".to_owned(),
        [one] => one.clone(),
        several => format!("{}: let one schedule govern it", several.join(" and ")),
    };
    let mut fields = vec![("Governed by", Some(governs)), ("Next edge", next)];
    fields.extend(obstacles.iter().map(|text| ("Now", Some(text.clone()))));
    let mut lines = described(what, NAMES, &fields, ("", None));
    let others = others.into_iter().map(|(state, why)| vec![full(state), why.clone()]);
    lines.extend(table_below(&["OTHER SCHEDULE", "WHY NOT"], others));
    lines
}

#[cfg(test)]
mod tests {
    use shared::kinds::operators::VIRTUAL_MACHINE;
    use shared::kinds::workload::DEPLOYMENT;
    use shared::kinds::{CLUSTER_DEPLOYMENT, KINDS};
    use shared::rollout::NamespaceLabels;

    use super::super::tests::{at, office};
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
        let ranked = with_reasons(&all.of(&CLUSTER_DEPLOYMENT, &cluster(&json!({}))));
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
        let shown = |row| lines("web", &with_reasons(&all.of(row, &cluster(&json!({})))), None, &[])[1].clone();
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
