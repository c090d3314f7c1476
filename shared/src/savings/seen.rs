//! How long a target was observed asleep by this process.

use std::time::Duration;

use jiff::Timestamp;

use super::period::{Span, intersection};
use crate::duration::age;

/// How much later than planned the second next observation may be, so that it follows without a gap.
const SLACK: Duration = Duration::from_mins(1);

/// From when to when observations without a gap have found a target asleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    span: Option<Span>,
    /// Whether the last observation found it awake.
    is_over: bool,
}

impl Seen {
    /// Adds an observation. `every`: how often a sleeping target is observed.
    pub fn observe(&mut self, asleep: bool, now: Timestamp, every: Duration) {
        if !asleep {
            self.is_over = true;
            return;
        }
        let follows = |(from, until): &Span| *from <= now && age(*until, now) <= every * 2 + SLACK;
        let from = self.span.filter(|span| !self.is_over && follows(span)).map_or(now, |(from, _)| from);
        *self = Self { span: Some((from, now)), is_over: false };
    }

    /// The part of a sleep that was observed; empty if none was.
    pub fn of(&self, sleep: Span) -> Span {
        self.span.map_or((sleep.0, sleep.0), |seen| intersection(sleep, seen))
    }
}
