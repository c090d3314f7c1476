//! Schedules: created, asked what they will do, and changed.

mod change;
mod create;
mod explain;
mod next;

use hub::{HubClient, is_name};
use jiff::Timestamp;
use serde_json::Value;
use shared::kinds::{CLUSTER_SCHEDULE, Kinds, SCHEDULE, ShownKind};
use shared::power::Power;
use shared::schedule::api::ScheduledPower;
use shared::schedule::timetable::{Edge, Timetable};
use view::age::local;
use view::error::ViewError;
use view::schedule::ScheduleState;
use view::{Item, Listing, Namespaces, Query, Row};

use self::change::Change;
use crate::cli::HubArgs;
use crate::cli::schedule::{ScheduleArgs, ScheduleVerb, SkipArgs};
use crate::error::{Exit, Problem, ScheduleError};

/// Both kinds: what a name without a type is looked up in first comes first.
const KINDS: [&ShownKind; 2] = [&SCHEDULE, &CLUSTER_SCHEDULE];

/// Runs `schedule VERB`.
///
/// # Errors
/// When nothing is created, shown or changed.
pub(crate) async fn run(kinds: Kinds, args: &ScheduleArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    match &args.verb {
        ScheduleVerb::Create(args) => create::run(kinds, args, hub_args).await,
        ScheduleVerb::Next(args) => next::run(args, hub_args).await,
        ScheduleVerb::Explain(args) => explain::run(kinds, args, hub_args).await,
        ScheduleVerb::Skip(SkipArgs { change, until, sleep }) => {
            let skip = if *sleep { Change::SkipSleep } else { Change::Skip(until.as_deref()) };
            change::run(skip, change, hub_args).await
        }
        ScheduleVerb::Apply(args) => change::run(Change::Apply, args, hub_args).await,
        ScheduleVerb::Suspend(args) => change::run(Change::Suspend(true), args, hub_args).await,
        ScheduleVerb::Resume(args) => change::run(Change::Suspend(false), args, hub_args).await,
    }
}

/// The kinds that `NAME`, `schedule/NAME` or `cpsch/NAME` can mean, and the name.
fn named(word: &str) -> Result<(Vec<&'static ShownKind>, &str), ScheduleError> {
    let (rows, name) = match word.split_once('/') {
        Some((kind, name)) => (KINDS.into_iter().filter(|row| row.kind.is_named(kind)).collect(), name),
        None => (KINDS.to_vec(), word),
    };
    if rows.is_empty() || !is_name(name) {
        Err(ScheduleError::NotASchedule { name: word.to_owned() })
    } else {
        Ok((rows, name))
    }
}

/// The schedule of this name, as the hub sent it.
async fn find(hub: &HubClient, word: &str) -> Result<(&'static ShownKind, Value), Problem> {
    let (rows, name) = named(word)?;
    let mut missing = None;
    for row in rows {
        match view::object(hub, Row::Shown(row), name).await {
            Ok(object) => return Ok((row, object)),
            Err(error @ ViewError::NotFound { .. }) => missing = missing.or(Some(error)),
            // A user without rights on cluster-wide schedules gets the error of the first kind.
            Err(error) => return Err(missing.unwrap_or(error).into()),
        }
    }
    Err(missing.map_or_else(|| ScheduleError::NotASchedule { name: word.to_owned() }.into(), Problem::from))
}

/// The schedules of the namespace, or of all, and the cluster-wide ones.
async fn list(hub: &HubClient, args: &HubArgs) -> (Vec<ScheduleState>, Vec<view::error::Failure>) {
    let namespace = if args.all_namespaces { Namespaces::All } else { Namespaces::OfClient };
    let kinds = KINDS.into_iter().map(Row::Shown).collect();
    let query = Query { kinds, namespace, ..Query::default() };
    let Listing { items, failures, .. } = view::list(hub, &query).await;
    let schedule = |item| if let Item::Schedule(state) = item { Some(*state) } else { None };
    (items.into_iter().filter_map(schedule).collect(), failures)
}

/// `Sleep` or `Awake`.
fn word(power: Power) -> String {
    ScheduledPower::from(power).to_string()
}

/// `Sleep at 2026-11-27T18:00+01:00`.
fn text(edge: &Edge, zone: &str) -> String {
    format!("{} at {}", word(edge.power), local(edge.at, zone))
}

/// The next edge in words.
fn next_text(timetable: &Timetable, zone: &str, now: Timestamp) -> String {
    timetable.next(now, 1).first().map_or_else(|| "none".to_owned(), |edge| text(edge, zone))
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;
    use crate::error::Exit;

    /// Awake in Berlin from Monday to Friday, from 07:30 to 18:00, with these fields.
    pub(super) fn office(metadata: &Value, spec: &Value) -> ScheduleState {
        let mut object = json!({
            "metadata": { "name": "night", "namespace": "team", "resourceVersion": "7" },
            "spec": {
                "timeZone": "Europe/Berlin", "targets": { "all": true },
                "awake": [{ "days": ["Mon-Fri"], "from": "07:30", "to": "18:00" }],
            },
        });
        json_patch::merge(&mut object, &json!({ "metadata": metadata, "spec": spec }));
        let row = if object["metadata"].get("namespace").is_some() { &SCHEDULE } else { &CLUSTER_SCHEDULE };
        ScheduleState::read(row, object).unwrap()
    }

    pub(super) fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    pub(super) fn timetable(state: &ScheduleState) -> Timetable {
        Timetable::of(state.spec(), &[]).unwrap()
    }

    #[test]
    fn a_schedule_is_named_in_several_ways() {
        for (word, kinds) in [
            ("night", vec!["PowerSchedule", "ClusterPowerSchedule"]),
            ("schedule/night", vec!["PowerSchedule"]),
            ("psch/night", vec!["PowerSchedule"]),
            ("powerschedules.hibernate.sh/night", vec!["PowerSchedule"]),
            ("cpsch/night", vec!["ClusterPowerSchedule"]),
        ] {
            let (rows, name) = named(word).unwrap();
            let found: Vec<&str> = rows.into_iter().map(|row| row.kind.kind).collect();
            assert_eq!((found, name), (kinds, "night"), "{word}");
        }
        for word in ["cd/night", "", "cpsch/", "Night", "psch/a/b", "../night"] {
            let error = named(word).unwrap_err();
            assert_eq!(error.exit(), Exit::Usage);
            assert!(error.to_string().ends_with("write NAME, schedule/NAME or cpsch/NAME"), "{error}");
        }
    }
}
