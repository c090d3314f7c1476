//! When a target sleeps or wakes by itself, with the time left: by its schedule, or because its sleep or its hold ends.

use jiff::Timestamp;
use shared::annotation::format;
use shared::kinds::{Governed, Record};

use super::age::age;

/// The schedule that governs it, as the verbs of schedules name it.
pub fn name(record: &Record) -> String {
    let of = |schedule: &Governed| {
        let word = if schedule.namespace.is_empty() { "cpsch/" } else { "" };
        format!("{word}{}", schedule.name)
    };
    record.schedule.as_ref().map(of).unwrap_or_default()
}

/// `Sleep in 5h`, `suspended`.
pub fn next(record: &Record, now: Timestamp) -> String {
    match &record.schedule {
        Some(schedule) if schedule.suspended => "suspended".to_owned(),
        Some(schedule) => {
            let next = schedule.next.iter().find(|edge| edge.at > now);
            next.map(|edge| format!("{} in {}", edge.power, age(now, edge.at))).unwrap_or_default()
        }
        None => String::new(),
    }
}

/// `wakes in 13h`, `held awake for 4h by alice`: what still lies ahead. A hold that has passed means nothing any more;
/// a wake that is due and has not happened does.
pub fn ends(record: &Record, now: Timestamp) -> String {
    [wake(record, now), hold(record, now)].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// When its sleep ends by itself.
pub fn wake_at(record: &Record) -> Option<Timestamp> {
    format::time(record.wake_at.as_deref()?).filter(|_| record.desired == "Hibernating")
}

/// Until when it is held awake, if that has not passed.
pub fn held_until(record: &Record, now: Timestamp) -> Option<Timestamp> {
    format::time(record.hold_awake_until.as_deref()?).filter(|until| *until > now)
}

fn wake(record: &Record, now: Timestamp) -> Option<String> {
    let text = record.wake_at.as_deref()?;
    if format::time(text).is_none() {
        return Some(format!("wake-at {text:?} is not a valid time"));
    }
    let at = wake_at(record)?;
    Some(if at <= now { "wake is due".to_owned() } else { format!("wakes in {}", age(now, at)) })
}

/// `held awake for 4h by alice`.
pub fn hold(record: &Record, now: Timestamp) -> Option<String> {
    let text = record.hold_awake_until.as_deref()?;
    let by = record.hold_awake_by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
    if format::time(text).is_none() {
        return Some(format!("held awake{by} until {text:?}, which is not a valid time"));
    }
    held_until(record, now).map(|until| format!("held awake for {}{by}", age(now, until)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_ahead_is_shown_with_the_time_left() {
        let now = "2026-11-21T18:00:00Z".parse().unwrap();
        for (desired, wake_at, hold, expected) in [
            ("Hibernating", None, None, ""),
            ("Hibernating", Some("2026-11-22T08:00:00Z"), None, "wakes in 14h"),
            ("Hibernating", Some("2026-11-21T18:00:00Z"), None, "wake is due"),
            ("Hibernating", Some("soon"), None, r#"wake-at "soon" is not a valid time"#),
            ("Running", Some("2026-11-22T08:00:00Z"), None, ""),
            ("Running", None, Some("2026-11-21T22:00:00Z"), "held awake for 4h by bob"),
            ("Running", None, Some("2026-11-21T18:00:00Z"), ""),
            ("Running", None, Some("soon"), r#"held awake by bob until "soon", which is not a valid time"#),
            (
                "Hibernating",
                Some("2026-11-21T19:30:00Z"),
                Some("2026-11-21T22:00:00Z"),
                "wakes in 90m, held awake for 4h by bob",
            ),
        ] {
            let record = Record {
                desired: desired.to_owned(),
                wake_at: wake_at.map(str::to_owned),
                hold_awake_until: hold.map(str::to_owned),
                hold_awake_by: hold.map(|_| "bob".to_owned()),
                ..Record::default()
            };
            assert_eq!(ends(&record, now), expected, "{wake_at:?} {hold:?}");
        }
    }
}
