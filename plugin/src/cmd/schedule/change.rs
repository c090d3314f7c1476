//! `schedule skip|apply|suspend|resume`: what each writes.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use shared::annotation::format;
use shared::duration::after;
use shared::power::Power;
use shared::schedule::api::{Exception, ExceptionPower};
use shared::schedule::calendar::Holiday;
use shared::schedule::timetable::{Edge, Timetable};
use shared::schedule::zone::zone;
use shared::text::name_some;
use view::age::local;
use view::calendar::{CalendarNamespace, calendars, read};
use view::schedule::ScheduleState;

use super::{find, next_text, text, word};
use crate::cli::HubArgs;
use crate::cli::schedule::ChangeArgs;
use crate::cli::time::{self, moment};
use crate::cmd::rewrite::{Step, rewrite};
use crate::connect::connect;
use crate::error::{Exit, Problem, ScheduleError};
use crate::output;

/// Most exceptions of a schedule.
const MAX_EXCEPTIONS: usize = 64;
const MINUTE: Duration = Duration::from_mins(1);
/// How far around an exception edges can change: the longest lead, and a day with the shortest sleep.
const AROUND: Duration = Duration::from_hours(48);
/// How far ahead skipped edges are listed.
const LOOK: Duration = Duration::from_hours(400 * 24);
/// How many edges a message lists.
const LISTED: usize = 5;
const REASON: &str = "kubectl hibernate schedule skip";

/// What a verb changes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change<'a> {
    /// Nothing happens until then, or until after the next edge and the exception or calendar day that it begins.
    Skip(Option<&'a str>),
    /// Nothing happens at the next edge that puts targets to sleep.
    SkipSleep,
    Apply,
    Suspend(bool),
}

/// Runs the verb: reads the schedule and writes the change, again from the start if another client wrote it in between.
///
/// # Errors
/// When the change cannot work, or the hub refuses.
pub(super) async fn run(change: Change<'_>, args: &ChangeArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    let hub = connect(hub_args)?;
    let (row, object) = find(&hub, &args.schedule).await?;
    let now = time::now();
    let namespace = CalendarNamespace::new(args.calendars.calendar_namespace.as_deref());
    let step = async |object: &Value| {
        let state = ScheduleState::read(row, object.clone())?;
        let calendars = async || calendars(&hub, &state, &namespace).await.map_err(ScheduleError::from);
        let step = match change {
            Change::Suspend(on) => Ok(suspended(&state, on)),
            Change::Skip(until) => {
                let until = until.map(|text| moment("--until", text, &now)).transpose()?;
                let skip = until.map_or(Skip::Edge, Skip::Until);
                skipped(state.clone(), &calendars().await?, skip, now.timestamp())?
            }
            Change::SkipSleep => skipped(state.clone(), &calendars().await?, Skip::Sleep, now.timestamp())?,
            Change::Apply => {
                let timetable = read(&state, &calendars().await?).map_err(ScheduleError::from)?;
                applied(&state, &timetable, now.timestamp())
            }
        };
        Ok(step.map_err(|why| ScheduleError::Refused { what: state.full_name(), why })?)
    };
    let (object, done) = rewrite(&hub, row, object, &args.write, step).await?;
    let name = ScheduleState::read(row, object.clone())?.full_name();
    output::changed(&args.write, &name, &done, &object);
    Ok(Exit::Done)
}

fn suspended(state: &ScheduleState, on: bool) -> Step {
    let done = if on { "suspended" } else { "resumed" };
    (state.spec().suspend != on).then(|| (json!({ "spec": { "suspend": on } }), done.to_owned()))
}

/// The state of this time, applied once.
fn applied(state: &ScheduleState, timetable: &Timetable, now: Timestamp) -> Result<Step, String> {
    if state.spec().suspend {
        return Err("it is suspended: use `resume` first".to_owned());
    }
    let power = timetable
        .state(now)
        .ok_or("it asks for no state now: an exception leaves targets as they are, or no event has passed")?;
    Ok(Some((json!({ "spec": { "applyAt": format::seconds(now) } }), format!("applies {}", word(power)))))
}

/// What is left out.
#[derive(Clone, Copy, Debug)]
enum Skip {
    /// The next edge.
    Edge,
    /// The next edge that puts targets to sleep. A wake before it is none of it.
    Sleep,
    /// All edges until then.
    Until(Timestamp),
}

impl Skip {
    /// From when to when the schedule is to change nothing; none if there is nothing to skip.
    fn times(self, timetable: &Timetable, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let sleeps = |edge: &Edge| edge.power == Power::Hibernating;
        // What an exception or a calendar day asks for, it asks for again when a skip ends inside it.
        let end = |edge: &Edge| timetable.overridden_until(edge).unwrap_or_else(|| after(edge.nominal, MINUTE));
        match self {
            Self::Until(until) => Some((now, until)),
            Self::Edge => timetable.next(now, 1).first().map(|edge| (now, end(edge))),
            Self::Sleep => {
                let edge = timetable.edges(now, after(now, LOOK)).into_iter().find(sleeps)?;
                Some((edge.at, end(&edge)))
            }
        }
    }
}

/// An exception that leaves targets as they are. The inner error says why there can be none.
fn skipped(
    mut state: ScheduleState,
    calendars: &[Vec<Holiday>],
    skip: Skip,
    now: Timestamp,
) -> Result<Result<Step, String>, ScheduleError> {
    let timetable = read(&state, calendars)?;
    let zone_name = state.spec().time_zone.clone();
    let zone = zone(&zone_name).unwrap_or(TimeZone::UTC);
    let Some((begin, end)) = skip.times(&timetable, now) else {
        let what = if matches!(skip, Skip::Sleep) { "sleep" } else { "edge" };
        return Ok(Err(format!("no {what} is to come that it could skip")));
    };
    // A minute that has begun is part of it.
    let end = if end.as_second() % 60 == 0 { end } else { after(end, MINUTE) };
    let civil = |at: Timestamp| at.to_zoned(zone.clone()).strftime("%Y-%m-%dT%H:%M").to_string();
    let exceptions = &mut state.schedule.spec.0.exceptions;
    if exceptions.len() >= MAX_EXCEPTIONS {
        exceptions.retain(|one| one.end(&zone).is_none_or(|end| end > now));
    }
    if exceptions.len() >= MAX_EXCEPTIONS {
        let found = exceptions.len();
        return Ok(Err(format!(
            "spec.exceptions: found {found} to come, must be {MAX_EXCEPTIONS} at most: remove one"
        )));
    }
    let (power, reason) = (ExceptionPower::Unchanged, REASON.to_owned());
    exceptions.push(Exception { from: civil(begin), to: Some(civil(end)), power, reason });
    let patch = json!({
        "metadata": { "resourceVersion": state.schedule.metadata.resource_version },
        "spec": { "exceptions": state.spec().exceptions },
    });
    let changed = read(&state, calendars)?;
    let last = after(end, AROUND).min(after(now, LOOK));
    let remaining: Vec<(Timestamp, Power)> =
        changed.edges(now, last).iter().map(|edge| (edge.at, edge.power)).collect();
    let edges = timetable.edges(now, last);
    let gone = edges.iter().filter(|edge| !remaining.contains(&(edge.at, edge.power)));
    let gone = name_some(gone.map(|edge| text(edge, &zone_name)), LISTED);
    let gone = if gone.is_empty() { "no edge" } else { gone.as_str() };
    let next = next_text(&changed, &zone_name, now);
    let from = if begin > now { format!("from {} ", local(begin, &zone_name)) } else { String::new() };
    let until = local(end, &zone_name);
    Ok(Ok(Some((patch, format!("skips {gone}; leaves targets as they are {from}until {until}; next: {next}")))))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{at, office};
    use super::*;

    /// Friday noon in Berlin.
    const NOW: &str = "2026-11-27T11:00:30Z";

    fn skip(spec: &Value, skip: Skip, now: &str) -> (Vec<Value>, String) {
        let state = office(&json!({}), spec);
        let (patch, done) = skipped(state, &[], skip, at(now)).unwrap().unwrap().unwrap();
        assert_eq!(patch["metadata"], json!({ "resourceVersion": "7" }));
        (patch["spec"]["exceptions"].as_array().unwrap().clone(), done)
    }

    #[test]
    fn a_skip_is_an_exception_that_ends_after_its_edge() {
        let one = |from: &str, to: &str| json!({ "from": from, "to": to, "power": "Unchanged", "reason": REASON });
        let other = |from: &str, to: &str, power: &str| json!({ "from": from, "to": to, "power": power });
        for (spec, what, now, expected, done) in [
            (
                json!({}),
                Skip::Edge,
                NOW,
                one("2026-11-27T12:00", "2026-11-27T18:01"),
                "skips Sleep at 2026-11-27T18:00+01:00; leaves targets as they are until 2026-11-27T18:01+01:00; next: Awake at \
                 2026-11-30T07:30+01:00",
            ),
            (
                json!({ "lead": "20m" }),
                Skip::Edge,
                "2026-11-27T20:00:00Z",
                one("2026-11-27T21:00", "2026-11-30T07:31"),
                "skips Awake at 2026-11-30T07:10+01:00; leaves targets as they are until 2026-11-30T07:31+01:00; next: Sleep at \
                 2026-11-30T18:00+01:00",
            ),
            (
                json!({}),
                Skip::Sleep,
                NOW,
                one("2026-11-27T18:00", "2026-11-27T18:01"),
                "skips Sleep at 2026-11-27T18:00+01:00; leaves targets as they are from 2026-11-27T18:00+01:00 until \
                 2026-11-27T18:01+01:00; next: Awake at 2026-11-30T07:30+01:00",
            ),
            // At night the wake comes first, and stays.
            (
                json!({ "lead": "20m" }),
                Skip::Sleep,
                "2026-11-27T20:00:00Z",
                one("2026-11-30T18:00", "2026-11-30T18:01"),
                "skips Sleep at 2026-11-30T18:00+01:00; leaves targets as they are from 2026-11-30T18:00+01:00 until \
                 2026-11-30T18:01+01:00; next: Awake at 2026-11-30T07:10+01:00",
            ),
            (
                json!({}),
                Skip::Until(at("2026-11-27T13:00:01Z")),
                NOW,
                one("2026-11-27T12:00", "2026-11-27T14:01"),
                "skips no edge; leaves targets as they are until 2026-11-27T14:01+01:00; next: Sleep at \
                 2026-11-27T18:00+01:00",
            ),
            // The sleep that an exception begins lasts as long as that, and as what follows with the same state.
            (
                json!({ "exceptions": [other("2026-11-27T13:00", "2026-11-29", "Sleep")] }),
                Skip::Sleep,
                NOW,
                one("2026-11-27T13:00", "2026-11-30T00:00"),
                "skips Sleep at 2026-11-27T13:00+01:00; leaves targets as they are from 2026-11-27T13:00+01:00 until \
                 2026-11-30T00:00+01:00; next: Awake at 2026-11-30T07:30+01:00",
            ),
            (
                json!({ "exceptions": [other("2026-11-27T20:00", "2026-11-28T12:00", "Sleep"), other("2026-11-27T13:00", "2026-11-27T20:00", "Sleep")] }),
                Skip::Edge,
                NOW,
                one("2026-11-27T12:00", "2026-11-28T12:00"),
                "skips Sleep at 2026-11-27T13:00+01:00; leaves targets as they are until 2026-11-28T12:00+01:00; next: \
                 Awake at 2026-11-30T07:30+01:00",
            ),
            (
                json!({ "exceptions": [other("2026-11-28T09:00", "2026-11-28T12:00", "Awake")], "lead": "20m" }),
                Skip::Edge,
                "2026-11-27T20:00:00Z",
                one("2026-11-27T21:00", "2026-11-28T12:00"),
                "skips Awake at 2026-11-28T08:40+01:00, Sleep at 2026-11-28T12:00+01:00; leaves targets as they are until \
                 2026-11-28T12:00+01:00; next: Awake at 2026-11-30T07:10+01:00",
            ),
            // At the end of one the state of the windows applies: the minute of the edge is enough.
            (
                json!({ "exceptions": [other("2026-11-27T12:00", "2026-11-27T22:00", "Awake")] }),
                Skip::Sleep,
                NOW,
                one("2026-11-27T22:00", "2026-11-27T22:01"),
                "skips Sleep at 2026-11-27T22:00+01:00; leaves targets as they are from 2026-11-27T22:00+01:00 until \
                 2026-11-27T22:01+01:00; next: Awake at 2026-11-30T07:30+01:00",
            ),
        ] {
            let (mut exceptions, said) = skip(&spec, what, now);
            assert_eq!((exceptions.pop(), said.as_str()), (Some(expected), done), "{spec} {what:?}");
        }
        let (_, done) = skip(&json!({}), Skip::Until(at("2026-12-01T00:00:00Z")), NOW);
        assert!(
            done.starts_with("skips Sleep at 2026-11-27T18:00+01:00, Awake at 2026-11-30T07:30+01:00, Sleep"),
            "{done}"
        );
        let wakes = json!({ "awake": null, "events": [{ "cron": "30 7 * * 1", "power": "Awake" }] });
        let why = skipped(office(&json!({}), &wakes), &[], Skip::Sleep, at(NOW)).unwrap().unwrap_err();
        assert_eq!(why, "no sleep is to come that it could skip");
    }

    #[test]
    fn exceptions_that_have_ended_make_room() {
        let days = |year: u32, count: usize| vec![json!({ "from": format!("{year}-12-24"), "power": "Sleep" }); count];
        let (exceptions, _) = skip(&json!({ "exceptions": days(2025, 63) }), Skip::Edge, NOW);
        assert_eq!(exceptions.len(), 64);
        let mixed = [days(2025, 1), days(2026, 63)].concat();
        let (exceptions, _) = skip(&json!({ "exceptions": mixed }), Skip::Edge, NOW);
        assert_eq!(exceptions.len(), 64);
        assert_eq!(exceptions[0]["from"], "2026-12-24");
        let full = office(&json!({}), &json!({ "exceptions": days(2026, 64) }));
        let why = skipped(full, &[], Skip::Edge, at(NOW)).unwrap().unwrap_err();
        assert_eq!(why, "spec.exceptions: found 64 to come, must be 64 at most: remove one");
    }

    #[test]
    fn the_other_verbs_write_one_field() {
        let state = |spec: &Value| office(&json!({}), spec);
        let (awake, asleep) = (state(&json!({})), state(&json!({ "suspend": true })));
        let step = |on: bool, done: &str| Some((json!({ "spec": { "suspend": on } }), done.to_owned()));
        assert_eq!((suspended(&awake, true), suspended(&awake, false)), (step(true, "suspended"), None));
        assert_eq!((suspended(&asleep, false), suspended(&asleep, true)), (step(false, "resumed"), None));
        let applied = |spec: &Value| applied(&state(spec), &read(&state(spec), &[]).unwrap(), at(NOW));
        let patch = json!({ "spec": { "applyAt": "2026-11-27T11:00:30Z" } });
        assert_eq!(applied(&json!({})), Ok(Some((patch, "applies Awake".to_owned()))));
        assert!(applied(&json!({ "suspend": true })).unwrap_err().ends_with("use `resume` first"));
        let left = json!({ "exceptions": [{ "from": "2026-11-27", "power": "Unchanged" }] });
        assert!(applied(&left).unwrap_err().starts_with("it asks for no state now"));
    }
}
