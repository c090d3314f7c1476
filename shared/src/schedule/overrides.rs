//! Exceptions and calendars as one list of changes: of those that hold at a moment, the last one counts.

use std::collections::BTreeMap;
use std::iter;

use jiff::Timestamp;

use crate::power::Power;

/// What holds from a moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Windows or events.
    Base,
    /// The override with this index asks for this state.
    Fixed(Power, u32),
    /// An override leaves everything as it is.
    Unchanged,
}

/// An exception, or a line of a calendar.
#[derive(Clone, Debug)]
pub(super) struct Override {
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
    pub(super) power: Option<Power>,
    pub(super) text: Box<str>,
}

/// All of a schedule. A tenant may write tens of thousands, and each edge asks what holds: that is computed once.
#[derive(Clone, Debug)]
pub(super) struct Overrides {
    /// Where each comes from.
    texts: Box<[Box<str>]>,
    /// The moments at which what holds changes, in order.
    changes: Box<[(Timestamp, Mode)]>,
}

impl Overrides {
    /// Of a list in which a later one wins.
    pub(super) fn new(all: Vec<Override>) -> Self {
        // A clock change can leave nothing of one.
        let lasting = (0..).zip(&all).filter(|(_, one)| one.from < one.to);
        let bounds = lasting.flat_map(|(index, one)| [one.from, one.to].map(|at| (at, index, one.power)));
        let mut bounds: Vec<(Timestamp, u32, Option<Power>)> = bounds.collect();
        bounds.sort_unstable_by_key(|(at, ..)| *at);
        let mut holding: BTreeMap<u32, Option<Power>> = BTreeMap::new();
        let mut changes: Vec<(Timestamp, Mode)> = Vec::new();
        for moment in bounds.chunk_by(|(one, ..), (other, ..)| one == other) {
            for (_, index, power) in moment {
                // The begin of each comes first.
                if holding.remove(index).is_none() {
                    holding.insert(*index, *power);
                }
            }
            let mode = match holding.last_key_value() {
                None => Mode::Base,
                Some((index, power)) => power.map_or(Mode::Unchanged, |power| Mode::Fixed(power, *index)),
            };
            if changes.last().map_or(Mode::Base, |(_, mode)| *mode) != mode {
                changes.extend(moment.first().map(|(at, ..)| (*at, mode)));
            }
        }
        Self { texts: all.into_iter().map(|one| one.text).collect(), changes: changes.into() }
    }

    /// Whether none ever holds.
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// What holds at a moment, and until when.
    pub(super) fn at(&self, moment: Timestamp) -> (Mode, Timestamp) {
        let (past, coming) = self.changes.split_at(self.changes.partition_point(|(at, _)| *at <= moment));
        let mode = past.last().map_or(Mode::Base, |(_, mode)| *mode);
        (mode, coming.first().map_or(Timestamp::MAX, |(at, _)| *at))
    }

    /// Until when overrides ask for this state from a moment on, one after the other; none if none does at that moment.
    pub(super) fn fixed_until(&self, moment: Timestamp, power: Power) -> Option<Timestamp> {
        let end = |moment: Timestamp| {
            let (mode, end) = self.at(moment);
            matches!(mode, Mode::Fixed(found, _) if found == power).then_some(end)
        };
        iter::successors(end(moment), |last| end(*last)).last()
    }

    /// When everything is left as it is next, later than this moment.
    pub(super) fn next_unchanged(&self, moment: Timestamp) -> Option<Timestamp> {
        let (_, coming) = self.changes.split_at(self.changes.partition_point(|(at, _)| *at <= moment));
        coming.iter().find(|(_, mode)| *mode == Mode::Unchanged).map(|(at, _)| *at)
    }

    /// The last end of a time in which everything is left as it is, later than `from` and not later than `to`.
    pub(super) fn last_unchanged_end(&self, from: Timestamp, to: Timestamp) -> Option<Timestamp> {
        let (past, _) = self.changes.split_at(self.changes.partition_point(|(at, _)| *at <= to));
        let mut changes = past.windows(2).rev().take_while(|pair| from < pair[1].0);
        changes.find(|pair| pair[0].1 == Mode::Unchanged).map(|pair| pair[1].0)
    }

    /// The moments at which what holds changes, later than `from` and not later than `to`.
    pub(super) fn changes(&self, from: Timestamp, to: Timestamp) -> impl Iterator<Item = Timestamp> {
        let (_, coming) = self.changes.split_at(self.changes.partition_point(|(at, _)| *at <= from));
        coming.iter().map(|(at, _)| *at).take_while(move |at| *at <= to)
    }

    /// Where one comes from, by its index in the list.
    pub(super) fn text(&self, index: usize) -> Option<&str> {
        self.texts.get(index).map(AsRef::as_ref)
    }
}
