//! Every zone, 2020 to 2040: the edges around each clock change against a walk through every minute.

use std::collections::HashMap;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};

use super::*;
use crate::schedule::zone;

/// What is walked through before and after each change, in minutes.
const AROUND: i64 = 26 * 60;

/// The minutes around a clock change with their civil times, read off the zone one by one.
struct Walk {
    minutes: Vec<(Timestamp, DateTime)>,
    /// The first minute with each civil time.
    first: HashMap<DateTime, Timestamp>,
}

impl Walk {
    fn around(zone: &TimeZone, change: Timestamp) -> Self {
        let minute = |offset: i64| {
            let instant = change.saturating_add(offset.minutes()).expect("a time");
            (instant, zone.to_datetime(instant))
        };
        // Civil times of the day before and after are asked for, too.
        let minutes: Vec<_> = (-AROUND - 3 * 24 * 60..AROUND + 3 * 24 * 60).map(minute).collect();
        let first = minutes.iter().rev().map(|(instant, civil)| (*civil, *instant)).collect();
        Self { minutes, first }
    }

    /// The first minute with this civil time. In a gap: as long after the last minute before it as the clock would say.
    fn instant(&self, civil: DateTime) -> Timestamp {
        if let Some(instant) = self.first.get(&civil) {
            return *instant;
        }
        let gap = self.minutes.windows(2).find(|pair| pair[0].1 < civil && civil < pair[1].1);
        let (instant, before) = gap.expect("a gap")[0];
        instant.saturating_add(before.duration_until(civil)).expect("a time")
    }
}

/// Windows and events at times that clock changes like: whether each minute is awake, by the plainest reading.
fn check(zone: &TimeZone, name: &str, change: Timestamp, is_each_minute: bool) {
    let walk = Walk::around(zone, change);
    let (first, last) = (change.saturating_sub(AROUND.minutes()), change.saturating_add(AROUND.minutes()));
    let (first, last) = (first.expect("a time"), last.expect("a time"));
    let windows = [("00:00", "02:30"), ("02:45", "03:00"), ("23:30", "00:15"), ("12:00", "24:00")];
    let awake: Vec<Value> = windows.iter().map(|(from, to)| json!({ "from": from, "to": to })).collect();
    let spec = |mut fields: Value| {
        json_patch::merge(&mut fields, &json!({ "timeZone": name, "minimumSleep": "0s" }));
        super::spec(&fields)
    };
    let table = timetable(&spec(json!({ "awake": awake })));
    let mut dates: Vec<_> = walk.minutes.iter().map(|(_, civil)| civil.date()).collect();
    dates.dedup();
    let dates = &dates[1..dates.len() - 2];
    let time = |text: &str| -> i64 { i64::from(crate::schedule::days::minutes(text).expect("a time")) };
    let intervals: Vec<(Timestamp, Timestamp)> = dates
        .iter()
        .flat_map(|date| windows.iter().map(move |(from, to)| (date.at(0, 0, 0, 0), time(from), time(to))))
        .map(|(midnight, from, to)| {
            let to = if to > from { to } else { to + 24 * 60 };
            let civil = |minutes: i64| midnight.checked_add(minutes.minutes()).expect("a time");
            (walk.instant(civil(from)), walk.instant(civil(to)))
        })
        .collect();
    let is_awake = |at: Timestamp| intervals.iter().any(|(from, to)| *from <= at && at < *to);
    let minute = 1.minute();
    let mut expected = Vec::new();
    let mut at = first;
    let mut before = is_awake(at);
    while at < last {
        at = at.saturating_add(minute).expect("a time");
        if is_awake(at) != before {
            before = !before;
            expected.push((at, if before { Power::Running } else { Power::Hibernating }));
        }
    }
    let found: Vec<_> = table.edges(first, last).iter().map(|edge| (edge.at, edge.power)).collect();
    assert_eq!(found, expected, "{name} around {change}");

    let crons = [("15 2 * * *", "Sleep"), ("45 0,2,23 * * *", "Awake"), ("0 0 * * *", "Sleep")];
    let events: Vec<Value> = crons.iter().map(|(cron, power)| json!({ "cron": cron, "power": power })).collect();
    let table = timetable(&spec(json!({ "events": events })));
    let times = [
        ((2, 15), Power::Hibernating),
        ((0, 45), Power::Running),
        ((2, 45), Power::Running),
        ((23, 45), Power::Running),
        ((0, 0), Power::Hibernating),
    ];
    let mut expected: Vec<(Timestamp, DateTime, Power)> = dates
        .iter()
        .flat_map(|date| times.map(|((hour, minute), power)| (date.at(hour, minute, 0, 0), power)))
        .map(|(civil, power)| (walk.instant(civil), civil, power))
        .filter(|(at, ..)| first < *at && *at <= last)
        .collect();
    expected.sort_by_key(|(at, civil, _)| (*at, *civil));
    let mut at_once: Vec<(Timestamp, Power)> = Vec::new();
    for (at, _, power) in expected {
        at_once.retain(|(other, _)| *other != at);
        at_once.push((at, power));
    }
    let found: Vec<_> = table.edges(first, last).iter().map(|edge| (edge.at, edge.power)).collect();
    assert_eq!(found, at_once, "{name} around {change}");
    if !is_each_minute {
        return;
    }
    let mut at = first;
    while at < last {
        let next = at_once.iter().find(|(other, _)| *other > at).map(|(at, _)| *at).filter(|next| *next <= last);
        let forward = table.next(at, 1).first().map(|edge| edge.at).filter(|next| *next <= last);
        let back = table.last(first, at).map(|edge| edge.at);
        assert_eq!(
            (forward, back),
            (next, at_once.iter().rfind(|(other, _)| *other <= at).map(|(at, _)| *at)),
            "{name} {at}"
        );
        at = at.saturating_add(minute).expect("a time");
    }
}

#[test]
fn every_zone_around_each_of_its_clock_changes() {
    let (begin, end) = (at("2020-01-01T00:00:00Z"), at("2040-01-01T00:00:00Z"));
    let mut changes: Vec<(&str, TimeZone, Timestamp)> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for name in zone::names() {
        let zone = zone::zone(name).expect("a zone");
        let of_zone: Vec<Timestamp> =
            zone.following(begin).map(|one| one.timestamp()).take_while(|at| *at < end).collect();
        // Zones that have kept the same time since are one.
        let offsets = [begin].iter().chain(&of_zone).map(|at| zone.to_offset(*at)).collect::<Vec<_>>();
        if seen.insert((of_zone.clone(), offsets)) {
            changes.extend(of_zone.into_iter().map(|at| (name, zone.clone(), at)));
        }
    }
    assert!(changes.len() > 1_000, "{} changes", changes.len());
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some((name, zone, change)) = changes.get(index) else { break };
                    check(zone, name, *change, index.is_multiple_of(997));
                }
            });
        }
    });
}

/// A day that does not exist, changes of 30 minutes and of 24 hours.
#[test]
fn changes_that_are_not_an_hour() {
    for (name, change) in [
        ("Australia/Lord_Howe", "2026-10-03T15:30:00Z"),
        ("Pacific/Apia", "2011-12-30T10:00:00Z"),
        ("Pacific/Kwajalein", "1993-08-21T12:00:00Z"),
        ("America/Caracas", "2016-05-01T07:00:00Z"),
    ] {
        check(&zone::zone(name).expect("a zone"), name, at(change), name == "Australia/Lord_Howe");
    }
}
