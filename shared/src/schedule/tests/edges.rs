//! The edges of schedules, and what no schedule can be.

use super::*;
use crate::schedule::calendar::{CalendarError, MAX_BYTES, parse};

/// The edges of a spec from Friday, 2026-11-27, to the end of Monday, without their month.
fn edges(spec: &ScheduleSpec) -> String {
    let edges = timetable(spec).edges(at("2026-11-27T00:00:00Z"), at("2026-12-01T00:00:00Z"));
    texts(&edges).join(", ").replace("2026-11-", "")
}

#[test]
fn a_week_has_the_edges_that_a_person_would_say() {
    // Berlin is at UTC+1 in winter.
    let days = |days: &[&str], from: &str, to: &str| json!({ "days": days, "from": from, "to": to });
    for (what, fields, expected) in [
        (
            "nights and the weekend",
            json!({ "awake": [days(&["Mon-Fri"], "07:30", "18:00")] }),
            "27T06:30Z Awake, 27T17:00Z Sleep, 30T06:30Z Awake, 30T17:00Z Sleep",
        ),
        (
            "windows that meet or overlap are one, and one may end on the next day",
            json!({ "awake": [days(&["Fri"], "08:00", "12:00"), days(&["Fri"], "12:00", "24:00"), days(&["Fri", "Sat"], "23:00", "02:00"), days(&["Sat"], "01:00", "01:30")] }),
            "27T07:00Z Awake, 28T01:00Z Sleep, 28T22:00Z Awake, 29T01:00Z Sleep",
        ),
        (
            "a window from a time to the same time is a day",
            json!({ "awake": [days(&["Sat"], "06:00", "06:00")] }),
            "28T05:00Z Awake, 29T05:00Z Sleep",
        ),
        (
            "days over the end of the week",
            json!({ "awake": [days(&["Sun-Mon"], "10:00", "11:00")] }),
            "29T09:00Z Awake, 29T10:00Z Sleep, 30T09:00Z Awake, 30T10:00Z Sleep",
        ),
        (
            "events sleep only",
            json!({ "events": [{ "cron": "0 20 * * *", "power": "Sleep" }] }),
            "27T19:00Z Sleep, 28T19:00Z Sleep, 29T19:00Z Sleep, 30T19:00Z Sleep",
        ),
        (
            "events wake only, by name",
            json!({ "events": [{ "cron": "0 8 * NOV mon", "power": "Awake" }] }),
            "30T07:00Z Awake",
        ),
        (
            "the last of two events at one time counts",
            json!({ "events": [{ "cron": "0 8 28 * *", "power": "Awake" }, { "cron": "0 8 * * 6", "power": "Sleep" }] }),
            "28T07:00Z Sleep",
        ),
        (
            "wakes begin earlier, but not before the sleep before them",
            json!({ "lead": "20m", "minimumSleep": "0s", "awake": [days(&["Fri"], "07:30", "18:00"), days(&["Fri"], "18:10", "19:00")] }),
            "27T06:10Z Awake, 27T18:00Z Sleep",
        ),
        (
            "a sleep that is too short is left out",
            json!({ "awake": [days(&["Fri"], "07:30", "18:00"), days(&["Fri"], "18:29", "19:00"), days(&["Fri"], "19:30", "20:00")] }),
            "27T06:30Z Awake, 27T18:00Z Sleep, 27T18:30Z Awake, 27T19:00Z Sleep",
        ),
    ] {
        assert_eq!(edges(&spec(&fields)), expected, "{what}");
    }
}

#[test]
fn an_exception_has_another_state_and_what_follows_is_as_ever() {
    let days = |from: &str, to: Option<&str>, power: &str| json!({ "from": from, "to": to, "power": power });
    for (what, exceptions, expected) in [
        ("a day off", json!([days("2026-11-27", None, "Sleep")]), "30T06:30Z Awake, 30T17:00Z Sleep"),
        (
            "tonight longer",
            json!([days("2026-11-27T17:00", Some("2026-11-27T22:00"), "Awake")]),
            "27T06:30Z Awake, 27T21:00Z Sleep, 30T06:30Z Awake, 30T17:00Z Sleep",
        ),
        (
            "a weekend of work, the last day of it is part of it",
            json!([days("2026-11-28", Some("2026-11-29"), "Awake")]),
            "27T06:30Z Awake, 27T17:00Z Sleep, 27T23:00Z Awake, 29T23:00Z Sleep, 30T06:30Z Awake, 30T17:00Z Sleep",
        ),
        (
            "an edge is skipped, and its state is not made up for",
            json!([days("2026-11-27T12:00", Some("2026-11-27T18:01"), "Unchanged")]),
            "27T06:30Z Awake, 30T06:30Z Awake, 30T17:00Z Sleep",
        ),
        (
            "an edge at the end of an exception is one",
            json!([days("2026-11-27T12:00", Some("2026-11-27T18:00"), "Unchanged")]),
            "27T06:30Z Awake, 27T17:00Z Sleep, 30T06:30Z Awake, 30T17:00Z Sleep",
        ),
        (
            "a later exception wins",
            json!([
                days("2026-11-27", Some("2026-11-30"), "Sleep"),
                days("2026-11-28T12:00", Some("2026-11-28T13:00"), "Awake")
            ]),
            "28T11:00Z Awake, 28T12:00Z Sleep",
        ),
        (
            "a wake at the end of an exception begins earlier, too",
            json!([days("2026-11-27", Some("2026-11-27T12:00"), "Sleep")]),
            "27T11:00Z Awake, 27T17:00Z Sleep, 30T06:30Z Awake, 30T17:00Z Sleep",
        ),
    ] {
        let spec = office(&json!({ "exceptions": exceptions }));
        assert_eq!(edges(&spec), expected, "{what}");
    }
    let unchanged = |from: &str, to: &str| days(from, Some(to), "Unchanged");
    for (what, exceptions, begins) in [
        ("not within an exception", json!([unchanged("2026-11-28", "2026-11-30T07:20")]), "06:20"),
        (
            "not before one, which would end its rollout",
            json!([unchanged("2026-11-30T07:00", "2026-11-30T07:20")]),
            "06:20",
        ),
        (
            "not between two",
            json!([
                unchanged("2026-11-30T06:50", "2026-11-30T06:55"),
                unchanged("2026-11-30T07:10", "2026-11-30T07:15")
            ]),
            "06:15",
        ),
        ("at its time, with the end of one", json!([unchanged("2026-11-30T07:29", "2026-11-30T07:30")]), "06:30"),
        ("after the end of one before it", json!([unchanged("2026-11-30T06:00", "2026-11-30T06:30")]), "05:30"),
    ] {
        let early = office(&json!({ "lead": "60m", "exceptions": exceptions }));
        let wake = timetable(&early).next(at("2026-11-27T18:00:00Z"), 1)[0];
        let begins = at(&format!("2026-11-30T{begins}:00Z"));
        assert_eq!((wake.at, wake.nominal), (begins, at("2026-11-30T06:30:00Z")), "{what}");
    }
    // A sleep exception over events ends with what an event has asked for before.
    let events = json!([{ "cron": "0 7 1 1 *", "power": "Awake" }]);
    let spec = spec(&json!({ "events": events, "exceptions": [days("2026-11-28", None, "Sleep")] }));
    let expected = "27T23:00Z Sleep, 28T23:00Z Awake";
    assert_eq!(edges(&spec), expected);
}

#[test]
fn a_calendar_is_read_line_by_line_and_exceptions_win_over_it() {
    let lines = "# holidays\n\n2026-12-24..2027-01-02  Christmas\n2026-11-30 \u{1b}[2Kbridge day # ours\n";
    let holidays = parse(lines).expect("a calendar");
    assert_eq!(holidays.len(), 2);
    assert_eq!((holidays[0].reason.as_str(), holidays[1].reason.as_str()), ("Christmas", "[2Kbridge day"));
    let calendars = json!([{ "configMap": "germany", "key": "2026", "power": "Sleep" }]);
    let noon = json!([{ "from": "2026-11-30T12:00", "to": "2026-11-30T13:00", "power": "Awake" }]);
    let spec = office(&json!({ "calendars": calendars, "exceptions": noon }));
    let timetable = Timetable::of(&spec, std::slice::from_ref(&holidays)).expect("a timetable");
    let edges = timetable.edges(at("2026-11-28T00:00:00Z"), at("2026-12-01T12:00:00Z"));
    assert_eq!(texts(&edges), ["2026-11-30T11:00Z Awake", "2026-11-30T12:00Z Sleep", "2026-12-01T06:30Z Awake"]);
    assert_eq!(timetable.describe(edges[1].source, &spec), "calendar germany ([2Kbridge day)");
    let edges = timetable.edges(at("2026-12-23T12:00:00Z"), at("2027-01-04T07:00:00Z"));
    assert_eq!(texts(&edges), ["2026-12-23T17:00Z Sleep", "2027-01-04T06:30Z Awake"]);
    for (text, line) in [
        ("2026-13-01 x", 1),
        ("\nChristmas", 2),
        ("2026-12-24..2026-12-23 x", 1),
        ("2026-12-24 .. 2026-12-25", 0),
        ("2026-1-1", 1),
    ] {
        match parse(text) {
            Err(CalendarError::Line(found)) => assert_eq!(found, line, "{text}"),
            other => assert_eq!((other.is_ok(), line), (true, 0), "{text}: {other:?}"),
        }
    }
    assert_eq!(parse(&"#".repeat(MAX_BYTES + 1)), Err(CalendarError::TooLong(MAX_BYTES + 1)));
}

#[test]
fn what_cannot_be_is_named_with_its_field_and_what_would_be_right() {
    let window = |fields: Value| {
        let mut window = json!({ "days": ["Mon"], "from": "08:00", "to": "18:00" });
        json_patch::merge(&mut window, &fields);
        json!({ "awake": [window] })
    };
    let event = |cron: &str| json!({ "events": [{ "cron": cron, "power": "Sleep" }] });
    let exception = |from: &str, to: Option<&str>| {
        let exceptions = json!([{ "from": from, "to": to, "power": "Sleep" }]);
        json!({ "awake": [{ "from": "08:00", "to": "18:00" }], "exceptions": exceptions })
    };
    let hourly: Vec<Value> =
        (0..25).map(|hour| json!({ "cron": format!("{hour} {} * * *", hour % 24), "power": "Sleep" })).collect();
    for (fields, expected) in [
        (json!({ "timeZone": "Europe/Berln" }), r#"spec.timeZone: found "Europe/Berln", must be the IANA name"#),
        (json!({ "timeZone": "\u{1b}[2K" }), r#"spec.timeZone: found " [2K", must be"#),
        (
            window(json!({ "days": ["Mon", "Monday"] })),
            r#"spec.awake[0].days[1]: found "Monday", must be a day such as Sat"#,
        ),
        (window(json!({ "from": "24:00" })), r#"spec.awake[0].from: found "24:00", must be a time such as 07:30"#),
        (window(json!({ "to": "24:01" })), r#"spec.awake[0].to: found "24:01", must be"#),
        (window(json!({ "to": "8:00" })), r#"spec.awake[0].to: found "8:00", must be"#),
        (
            json!({ "awake": [{ "from": "00:00", "to": "24:00" }] }),
            "spec.awake: found windows that leave no time to sleep",
        ),
        (event("0 20 * *"), r#"spec.events[0].cron: found "0 20 * *", must be minute, hour"#),
        (event("@daily and 3 more"), "spec.events[0].cron: found"),
        (event("0 20 L * *"), "spec.events[0].cron: found"),
        (event("0 20 30 2 *"), "spec.events[0].cron: found"),
        (event("61 20 * * *"), "spec.events[0].cron: found"),
        (event("0 20 * * * 2027"), "spec.events[0].cron: found"),
        (event("*/5 * * * *"), "spec.events[0].cron: found 288 times a day, must be 24 at most"),
        (json!({ "events": hourly }), "spec.events: found more than 24 on "),
        (exception("2026-12-24T10:00", None), "spec.exceptions[0]: found 2026-12-24T10:00, must be days or times"),
        (exception("2026-12-24", Some("2026-12-23")), "spec.exceptions[0]: found 2026-12-24 to 2026-12-23, must be"),
        (exception("2026-02-30", None), "spec.exceptions[0]: found"),
        (
            json!({ "awake": [{ "from": "00:10", "to": "00:00" }] }),
            "spec.awake: found windows that leave no time to sleep, must leave 30m0s at least",
        ),
        (json!({ "lead": "25h" }), r#"spec.lead: found "25h", must be a duration of 24h at most"#),
        (json!({ "minimumSleep": "soon" }), r#"spec.minimumSleep: found "soon", must be"#),
    ] {
        let spec = if fields.get("awake").or(fields.get("events")).is_some() { spec(&fields) } else { office(&fields) };
        let faults = Timetable::of(&spec, &[]).expect_err(&fields.to_string());
        assert!(faults[0].to_string().starts_with(expected), "{fields}: {}", faults[0]);
        assert!(!faults[0].to_string().contains('\u{1b}'));
    }
    let both = office(&json!({ "timeZone": "x", "lead": "x" }));
    assert_eq!(Timetable::of(&both, &[]).expect_err("faults").len(), 2, "all that is wrong at once");
}

#[test]
fn what_comes_next_and_what_holds_now() {
    let spec = office(&json!({}));
    let office = timetable(&spec);
    let friday = at("2026-11-27T12:00:00Z");
    assert_eq!(
        texts(&office.next(friday, 3)),
        ["2026-11-27T17:00Z Sleep", "2026-11-30T06:30Z Awake", "2026-11-30T17:00Z Sleep"]
    );
    assert_eq!(office.describe(office.next(friday, 1)[0].source, &spec), "awake Mon-Fri 07:30-18:00");
    assert_eq!(
        office.last(at("2026-11-20T00:00:00Z"), friday).map(|edge| text(&edge)).as_deref(),
        Some("2026-11-27T06:30Z Awake")
    );
    assert_eq!(office.last(friday, friday), None);
    assert_eq!(
        (office.state(friday), office.state(at("2026-11-28T12:00:00Z"))),
        (Some(Power::Running), Some(Power::Hibernating))
    );
    let leap = timetable(&super::spec(&json!({ "events": [{ "cron": "0 0 29 2 *", "power": "Awake" }] })));
    assert_eq!(texts(&leap.next(friday, 2)), ["2028-02-28T23:00Z Awake", "2032-02-28T23:00Z Awake"]);
    assert_eq!(leap.state(friday), Some(Power::Running), "since 2024");
    let off = timetable(&super::office(
        &json!({ "exceptions": [{ "from": "2026-11-01", "to": "2027-11-01", "power": "Unchanged" }] }),
    ));
    assert_eq!((off.state(friday), texts(&off.next(friday, 1))), (None, vec!["2027-11-02T06:30Z Awake".to_owned()]));
}

/// Nine years of windows, and tens of thousands of days of calendars.
#[test]
fn a_long_exception_in_large_calendars_has_no_edge() {
    let time = |minutes: usize| format!("{:02}:{:02}", minutes / 60, minutes % 60);
    let awake: Vec<Value> = (0..32).map(|at| json!({ "from": time(45 * at), "to": time(45 * at + 10) })).collect();
    let lines = |first: &str| parse(&format!("{first}\n{}", "2025-12-24\n".repeat(5_900))).expect("a calendar");
    let mut days = vec![lines(""); 8];
    days[0] = lines("2026-01-01..2036-01-01");
    for (power, state) in [("Unchanged", None), ("Awake", Some(Power::Running))] {
        let calendar = |at: usize| json!({ "configMap": "days", "key": at.to_string(), "power": if at == 0 { power } else { "Sleep" } });
        let calendars: Vec<Value> = (0..8).map(calendar).collect();
        let spec = spec(&json!({ "awake": awake, "calendars": calendars }));
        let timetable = Timetable::of(&spec, &days).expect("a timetable");
        for day in 1..7 {
            let now = at(&format!("2026-06-0{day}T12:00:00Z"));
            assert_eq!((timetable.next(now, 3), timetable.state(now)), (vec![], state), "{power} {now}");
        }
    }
}

/// Found by the property: the state at the begin of a range is that of an exception longer than the margin.
#[test]
fn a_wake_after_a_sleep_that_is_left_out_is_none_in_every_range() {
    let spec = spec(&json!({
        "timeZone": "Africa/Abidjan", "awake": [{ "days": ["Tue-Thu"], "from": "00:00", "to": "15:01" }],
        "exceptions": [{ "from": "2026-03-09T00:00", "to": "2026-04-13", "power": "Awake" }],
        "lead": "3h", "minimumSleep": "6h",
    }));
    let (begin, middle, end) = ("2026-04-02T00:00:00Z", "2026-04-10T00:00:00Z", "2026-04-14T21:00:00Z");
    for begin in [begin, middle] {
        assert!(timetable(&spec).edges(at(begin), at(end)).is_empty(), "{begin}");
    }
}
