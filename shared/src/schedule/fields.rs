//! The fields of a schedule, read one by one: all that cannot be is found at once.

use std::time::Duration;

use jiff::tz::TimeZone;

use super::api::{Event, Exception, ScheduleSpec, Window};
use super::cron::Cron;
use super::days::{self, Days};
use super::overrides::Override;
use super::zone::instant;
use crate::duration;
use crate::power::Power;
use crate::rollout::selector::compile;
use crate::text::{sanitize, sanitize_to};

/// Longest `lead` and `minimumSleep`.
const LONGEST: Duration = Duration::from_hours(24);
/// Most edges on one day.
pub(super) const EDGES_A_DAY: usize = 24;
/// Longest text of a tenant in a message, in characters.
pub(super) const SHOWN: usize = 64;

/// A field of a schedule that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct Invalid {
    /// The field, such as `spec.timeZone`.
    pub field: String,
    /// What was found, and what would be right.
    pub message: String,
}

/// A window: days, and minutes since midnight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Awake {
    pub(super) days: Days,
    pub(super) from: i16,
    pub(super) to: i16,
}

pub(super) fn reasoned(what: &str, reason: &str) -> String {
    if reason.is_empty() { what.to_owned() } else { format!("{what} ({})", sanitize_to(reason, SHOWN)) }
}

/// What is wrong with a schedule, field by field.
#[derive(Default)]
pub(super) struct Faults(pub(super) Vec<Invalid>);

impl Faults {
    pub(super) fn add(&mut self, field: &str, message: String) {
        self.0.push(Invalid { field: format!("spec.{field}"), message });
    }

    pub(super) fn window(&mut self, at: usize, window: &Window) -> Option<Awake> {
        let mut days = if window.days.is_empty() { Some(Days::ALL) } else { None };
        for (index, text) in window.days.iter().enumerate() {
            let Some(more) = Days::parse(text) else {
                let found = sanitize_to(text, SHOWN);
                let message = format!("found {found:?}, must be a day such as Sat, or days such as Mon-Fri");
                self.add(&format!("awake[{at}].days[{index}]"), message);
                continue;
            };
            days = Some(days.map_or(more, |days| days.and(more)));
        }
        let mut time = |name: &str, text: &str, most: i16| {
            let found = days::minutes(text).filter(|minutes| *minutes <= most);
            if found.is_none() {
                let found = sanitize_to(text, SHOWN);
                self.add(&format!("awake[{at}].{name}"), format!("found {found:?}, must be a time such as 07:30"));
            }
            found
        };
        let (from, to) = (time("from", &window.from, 24 * 60 - 1), time("to", &window.to, 24 * 60));
        Some(Awake { days: days?, from: from?, to: to? })
    }

    pub(super) fn event(&mut self, at: usize, event: &Event) -> Option<(Cron, Power)> {
        match Cron::parse(&event.cron) {
            Ok(cron) if cron.times_a_day() > EDGES_A_DAY => {
                let message = format!("found {} times a day, must be {EDGES_A_DAY} at most", cron.times_a_day());
                self.add(&format!("events[{at}].cron"), message);
                None
            }
            Ok(cron) => Some((cron, event.power.into())),
            Err(why) => {
                let found = sanitize_to(&event.cron, SHOWN);
                let message = format!(
                    "found {found:?}, must be minute, hour, day of the month, month and day of the week, such as \"30 7 * * 1-5\": {why}"
                );
                self.add(&format!("events[{at}].cron"), message);
                None
            }
        }
    }

    pub(super) fn exception(&mut self, at: usize, exception: &Exception, zone: &TimeZone) -> Option<Override> {
        let Exception { from, to, power, reason } = exception;
        let Some((begin, end)) = days::between(from, to.as_deref()) else {
            let to = to.as_deref().map(|to| format!(" to {to}")).unwrap_or_default();
            let found = sanitize_to(&format!("{from}{to}"), SHOWN);
            let message = format!(
                "found {found}, must be days or times such as 2026-12-24 or 2026-12-24T18:00, and end after they begin; a time needs `to`"
            );
            self.add(&format!("exceptions[{at}]"), message);
            return None;
        };
        let to = to.as_deref().map(|to| format!("..{to}")).unwrap_or_default();
        let text = reasoned(&sanitize_to(&format!("exception {from}{to}"), SHOWN), reason);
        Some(Override { from: instant(zone, begin), to: instant(zone, end), power: power.power(), text: text.into() })
    }

    pub(super) fn length(&mut self, field: &str, text: Option<&str>, default: Duration) -> Duration {
        let Some(text) = text else { return default };
        match duration::parse_unsigned(text) {
            Ok(length) if length <= LONGEST => length,
            _ => {
                let found = sanitize_to(text, SHOWN);
                self.add(field, format!("found {found:?}, must be a duration of 24h at most, such as 20m"));
                default
            }
        }
    }

    /// The selectors of targets and groups. What cannot be read selects nothing.
    pub(super) fn selectors(&mut self, spec: &ScheduleSpec) {
        let targets = [("selector", &spec.targets.selector), ("namespaceSelector", &spec.targets.namespace_selector)];
        let targets = targets.map(|(name, selector)| (format!("targets.{name}"), selector));
        let groups = spec.rollout.groups.iter().enumerate();
        let groups = groups.map(|(at, group)| (format!("rollout.groups[{at}].selector"), &group.selector));
        for (field, selector) in targets.into_iter().chain(groups) {
            if let Some(Err(why)) = selector.as_ref().map(compile) {
                self.add(&field, sanitize(&why));
            }
        }
    }
}
