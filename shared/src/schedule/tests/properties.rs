//! What holds of every schedule, and of every text that a tenant may write into one.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::duration::after;
use crate::schedule::api::{Event, Exception, ExceptionPower, ScheduledPower, Window};
use crate::schedule::calendar::parse;
use crate::schedule::overrides::{Mode, Override, Overrides};
use crate::schedule::zone;

const DAY: Duration = Duration::from_hours(24);

fn time_of_day() -> impl Strategy<Value = String> {
    (0..24, 0..60).prop_map(|(hour, minute)| format!("{hour:02}:{minute:02}"))
}

fn window() -> impl Strategy<Value = Window> {
    let days = prop::sample::subsequence(vec!["Mon", "Tue-Thu", "Fri-Sun", "Sun"], 0..4);
    (days, time_of_day(), time_of_day()).prop_map(|(days, from, to)| Window {
        days: days.into_iter().map(str::to_owned).collect(),
        from,
        to,
    })
}

fn event() -> impl Strategy<Value = Event> {
    let power = prop::sample::select(vec![ScheduledPower::Sleep, ScheduledPower::Awake]);
    (0..60, 0..24, prop::sample::select(vec!["* * *", "* * 1-5", "1,15 * *", "* 3,10 0"]), power)
        .prop_map(|(minute, hour, days, power)| Event { cron: format!("{minute} {hour} {days}"), power })
}

fn exception() -> impl Strategy<Value = Exception> {
    let power = prop::sample::select(vec![ExceptionPower::Sleep, ExceptionPower::Awake, ExceptionPower::Unchanged]);
    (1_i32..28, time_of_day(), 1_i32..5, power).prop_map(|(day, time, days, power)| Exception {
        from: format!("2026-03-{day:02}T{time}"),
        to: Some(format!("2026-04-{:02}", (day + days).min(30)))
            .filter(|_| days > 2)
            .or(Some(format!("2026-03-{:02}", day + days))),
        power,
        reason: String::new(),
    })
}

fn any_schedule() -> impl Strategy<Value = ScheduleSpec> {
    let zones: Vec<&str> = zone::names().collect();
    let base = prop_oneof![
        prop::collection::vec(window(), 1..4).prop_map(|awake| (awake, Vec::new())),
        prop::collection::vec(event(), 1..4).prop_map(|events| (Vec::new(), events)),
    ];
    let times = (prop::sample::select(vec!["0s", "20m", "3h", "24h"]), prop::sample::select(vec!["0s", "30m", "6h"]));
    (base, prop::collection::vec(exception(), 0..4), times, prop::sample::select(zones)).prop_map(
        |((awake, events), exceptions, (lead, minimum), zone)| ScheduleSpec {
            time_zone: zone.to_owned(),
            awake,
            events,
            exceptions,
            lead: Some(lead.to_owned()),
            minimum_sleep: Some(minimum.to_owned()),
            ..spec(&json!({}))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn edges_are_in_order_and_the_same_however_they_are_asked_for(
        spec in any_schedule(), begin in 0_i64..60 * 24 * 60, length in 1_u64..20 * 24 * 60, cut in 0_u64..20 * 24 * 60,
    ) {
        let Ok(table) = Timetable::of(&spec, &[]) else { return Ok(()) };
        let begin = after(at("2026-03-01T00:00:00Z"), Duration::from_secs(begin.unsigned_abs() * 60));
        let end = after(begin, Duration::from_secs(length * 60));
        let all = table.edges(begin, end);
        prop_assert!(all.is_sorted_by_key(|edge| edge.at));
        prop_assert!(all.iter().all(|edge| begin < edge.at && edge.at <= end));
        let middle = after(begin, Duration::from_secs(cut.min(length) * 60));
        let parts = [table.edges(begin, middle), table.edges(middle, end)].concat();
        prop_assert_eq!(&parts, &all);
        prop_assert_eq!(table.last(begin, end), all.last().copied());
        let next = table.next(begin, 3);
        prop_assert!(next.iter().zip(&all).all(|(one, other)| one == other), "{next:?} {all:?}");
        // A sleep is never shorter than the shortest, and its state holds from there on.
        for edge in &all {
            if edge.power == Power::Hibernating {
                let wake = table.next(edge.at, 3).into_iter().find(|next| next.power == Power::Running);
                let is_long = wake.is_none_or(|wake| crate::duration::age(edge.at, wake.at) >= table.minimum_sleep());
                prop_assert!(is_long, "{edge:?} {wake:?}");
            }
            if let Some(state) = table.state(edge.at) {
                prop_assert_eq!(state, edge.power);
            }
        }
    }

    #[test]
    fn of_overrides_the_last_one_that_holds_counts(
        all in prop::collection::vec((0_i64..40, -3_i64..20, prop::option::of(any::<bool>())), 0..12),
    ) {
        let time = |second: i64| Timestamp::from_second(second).expect("a time");
        let one = |(from, length, power): (i64, i64, Option<bool>)| Override {
            from: time(from),
            to: time(from + length),
            power: power.map(|runs| if runs { Power::Running } else { Power::Hibernating }),
            text: "".into(),
        };
        let all: Vec<Override> = all.into_iter().map(one).collect();
        let overrides = Overrides::new(all.clone());
        let mode = |at: Timestamp| {
            let holding = (0..).zip(&all).filter(|(_, one)| one.from <= at && at < one.to);
            holding.last().map_or(Mode::Base, |(index, one)| {
                one.power.map_or(Mode::Unchanged, |power| Mode::Fixed(power, index))
            })
        };
        for second in -5..65 {
            let (now, then) = (time(second), time(second + 1));
            let (found, until) = overrides.at(now);
            let changes = mode(now) != mode(then);
            prop_assert_eq!((found, until == then), (mode(now), changes));
            prop_assert_eq!(overrides.changes(now, then).count(), usize::from(changes));
        }
    }
}

#[test]
fn fuzz_schedules() {
    let seeds: [&[u8]; 4] = [
        b"30 7 * * 1-5\nEurope/Berlin\nMon-Fri\n07:30\n18:00\n2026-12-24",
        b"0 0 29 2 *\nAustralia/Lord_Howe\nSun\n00:00\n24:00\n2026-12-24T10:00",
        b"*/15 0-23 1,15 JAN-DEC SUN\nUTC\nSat-Mon\n23:30\n00:15\n2026-12-24..2027-01-02 x",
        b"0 20 31 * *\nPacific/Apia\nWed\n12:00\n12:00\n2011-12-30",
    ];
    let now = at("2026-11-27T12:00:00Z");
    ::fuzz::run("schedules", &seeds, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let parts: Vec<&str> = text.split('\n').collect();
        let part = |index: usize| parts.get(index).copied().unwrap_or_default().to_owned();
        let days = json!([{ "from": part(5), "power": "Sleep" }]);
        let events =
            json!({ "timeZone": part(1), "events": [{ "cron": part(0), "power": "Sleep" }], "exceptions": days });
        let awake = json!([{ "days": [part(2)], "from": part(3), "to": part(4) }]);
        let windows = json!({ "timeZone": part(1), "awake": awake, "lead": part(3), "minimumSleep": part(4) });
        let mut accepted = parse(&text).is_ok();
        for fields in [events, windows] {
            match Timetable::of(&spec(&fields), &[]) {
                Ok(table) => {
                    let next = table.next(now, 3);
                    assert!(next.iter().all(|edge| edge.at > now) && next.len() <= 3);
                    assert!(table.edges(now, after(now, 7 * DAY)).len() <= 7 * 25 + 2, "{fields}");
                    accepted = true;
                }
                Err(faults) => assert!(faults.iter().all(|fault| fault.to_string().len() < 512)),
            }
        }
        accepted
    });
}
