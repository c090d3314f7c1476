//! `schedule next`: the edges to come, computed here.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use shared::annotation::format;
use shared::schedule::timetable::{Edge, Timetable};
use shared::schedule::zone::zone;
use shared::text::quoted;
use view::age::local;
use view::calendar::{CalendarNamespace, timetable};
use view::known;
use view::schedule::ScheduleState;

use super::{find, list, word};
use crate::cli::schedule::NextArgs;
use crate::cli::{HubArgs, ReportOutput};
use crate::connect::connect;
use crate::error::{Exit, Failure, Problem, ScheduleError};
use crate::output;

/// An edge of a schedule, and where it comes from.
struct Next<'a>(&'a ScheduleState, Edge, String);

/// Runs the verb.
///
/// # Errors
/// When no schedule can be read.
pub(super) async fn run(args: &NextArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    let hub = connect(hub_args)?;
    let (states, failures) = match &args.schedule {
        Some(word) => {
            let (row, object) = find(&hub, word).await?;
            (vec![ScheduleState::read(row, object)?], Vec::new())
        }
        None => list(&hub, hub_args).await,
    };
    let mut exits: Vec<Exit> = failures.into_iter().map(|failure| output::failed(&failure.into())).collect();
    let now = Timestamp::now();
    let until = now.checked_add(SignedDuration::from_hours(24 * i64::from(args.days))).unwrap_or(Timestamp::MAX);
    let namespace = CalendarNamespace::new(args.read.calendars.calendar_namespace.as_deref());
    let mut edges = Vec::new();
    for state in &states {
        if state.spec().suspend {
            let name = quoted(&format!("{}/{}", state.row.word, state.name()));
            output::warning(&format!(
                "{} is suspended: it does nothing until `kubectl hibernate schedule resume {name}`",
                state.full_name()
            ));
        }
        match timetable(&hub, state, &namespace).await {
            // Of a suspended schedule that was asked for, what would happen.
            Ok(_) if state.spec().suspend && args.schedule.is_none() => {}
            Ok(timetable) => edges.extend(between(state, &timetable, now, until)),
            Err(error) => {
                exits.push(output::failed(&Failure::new(state.full_name(), ScheduleError::from(error).into())));
            }
        }
    }
    edges.sort_by_key(|Next(_, edge, _)| edge.at);
    match args.read.output {
        ReportOutput::Table if edges.is_empty() && exits.is_empty() => {
            output::note(&format!("No edge in the next {} days", args.days));
        }
        ReportOutput::Table => table(&edges, args.schedule.is_none()).iter().for_each(|line| output::colored(line)),
        format => {
            let items: Vec<Value> = edges.iter().map(item).collect();
            output::structured(&output::list("ScheduleEdgeList", &items), format == ReportOutput::Json);
        }
    }
    Ok(Exit::of(exits))
}

fn between<'a>(state: &'a ScheduleState, timetable: &Timetable, now: Timestamp, until: Timestamp) -> Vec<Next<'a>> {
    let edges = timetable.edges(now, until).into_iter();
    edges.map(|edge| Next(state, edge, timetable.describe(edge.source, state.spec()))).collect()
}

/// Sanitized lines.
fn table(edges: &[Next<'_>], has_names: bool) -> Vec<String> {
    let row = |Next(state, edge, source): &Next<'_>| {
        let zone_name = &state.spec().time_zone;
        let day = zone(zone_name).map(|zone| edge.at.to_zoned(zone).strftime("%a").to_string()).unwrap_or_default();
        let slash = if state.namespace().is_empty() { "" } else { "/" };
        let name = has_names.then(|| format!("{}{slash}{}", state.namespace(), state.name()));
        let times = [day, local(edge.at, zone_name), format::seconds(edge.at)];
        name.into_iter().chain(times).chain([word(edge.power), source.clone()]).collect()
    };
    let head = ["SCHEDULE", "DAY", "AT", "UTC", "POWER", "SOURCE"];
    output::table(if edges.is_empty() { &[] } else { &head[usize::from(!has_names)..] }, edges.iter().map(row))
}

/// In the form that `-o json` documents.
fn item(Next(state, edge, source): &Next<'_>) -> Value {
    known(json!({
        "type": state.row.kind.type_name(), "namespace": state.schedule.metadata.namespace, "schedule": state.name(),
        "at": format::seconds(edge.at), "localTime": local(edge.at, &state.spec().time_zone),
        "timeZone": state.spec().time_zone, "power": word(edge.power), "source": source,
    }))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{at, office, timetable};
    use super::*;

    #[test]
    fn edges_of_several_schedules_are_merged_by_time() {
        let platform = json!({ "name": "plat\u{1b}[2J", "namespace": null });
        let events =
            json!({ "timeZone": "UTC", "awake": null, "events": [{ "cron": "30 5 * * 1", "power": "Awake" }] });
        let states = [office(&json!({}), &json!({ "lead": "20m" })), office(&platform, &events)];
        let (now, until) = (at("2026-11-27T12:00:00Z"), at("2026-11-30T12:00:00Z"));
        let mut edges: Vec<_> = states.iter().flat_map(|one| between(one, &timetable(one), now, until)).collect();
        edges.sort_by_key(|Next(_, edge, _)| edge.at);
        insta::assert_snapshot!(table(&edges, true).join("\n"), @r"
        SCHEDULE     DAY   AT                       UTC                    POWER   SOURCE
        team/night   Fri   2026-11-27T18:00+01:00   2026-11-27T17:00:00Z   Sleep   awake Mon-Fri 07:30-18:00
        plat [2J     Mon   2026-11-30T05:30+00:00   2026-11-30T05:30:00Z   Awake   event 30 5 * * 1
        team/night   Mon   2026-11-30T07:10+01:00   2026-11-30T06:10:00Z   Awake   awake Mon-Fri 07:30-18:00
        ");
        assert!(table(&edges[..1], false)[0].starts_with("DAY   AT"));
        assert!(table(&[], true).is_empty());
        assert_eq!(
            item(&edges[0]),
            json!({
                "type": "powerschedule.hibernate.sh", "namespace": "team", "schedule": "night",
                "at": "2026-11-27T17:00:00Z", "localTime": "2026-11-27T18:00+01:00", "timeZone": "Europe/Berlin",
                "power": "Sleep", "source": "awake Mon-Fri 07:30-18:00",
            })
        );
    }
}
