//! From a schedule and its calendars to edges: moments at which targets are to sleep or to wake.

use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};

use super::api::{ScheduleSpec, Window};
use super::calendar::Holiday;
use super::cron::Cron;
use super::days;
pub use super::fields::Invalid;
use super::fields::{Awake, EDGES_A_DAY, Faults, SHOWN, reasoned};
use super::overrides::{Mode, Override, Overrides};
use super::zone::{instant, zone};
use crate::duration::{self, after, before};
use crate::power::Power;
use crate::text::sanitize_to;

/// Targets do not fall asleep for less than this, unless the schedule says otherwise.
const MINIMUM_SLEEP: Duration = Duration::from_mins(30);
/// What is computed before and after a range: a window of a day, the longest lead and sleep, and a change of date.
const MARGIN: Duration = Duration::from_hours(5 * 24);
/// How far edges to come are looked for, step by step: a leap day is four or eight years away.
const LOOKS: [Duration; 4] = [
    Duration::from_hours(8 * 24),
    Duration::from_hours(60 * 24),
    Duration::from_hours(400 * 24),
    Duration::from_hours(9 * 366 * 24),
];

/// A schedule that is ready to answer when targets sleep and wake.
#[derive(Clone, Debug)]
pub struct Timetable {
    zone: TimeZone,
    base: Base,
    overrides: Overrides,
    lead: Duration,
    minimum_sleep: Duration,
}

#[derive(Clone, Debug)]
enum Base {
    Windows(Vec<Awake>),
    Events(Vec<(Cron, Power)>),
}

/// A moment at which targets are to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// When.
    pub at: Timestamp,
    /// The time that the schedule names: a wake begins earlier by `lead`.
    pub nominal: Timestamp,
    /// The state from then on.
    pub power: Power,
    /// Where it comes from.
    pub source: Source,
}

/// Where an edge comes from, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The begin or the end of a window.
    Window(usize),
    /// An event.
    Event(usize),
    /// The begin or the end of an exception, or of days of a calendar.
    Override(usize),
    /// A person, who asks for the state of this time.
    Apply,
    /// The end of a hold, in a time of sleep.
    Hold,
}

impl Timetable {
    /// Reads a schedule, with what its calendars say, in their order.
    ///
    /// # Errors
    /// Every field that cannot be.
    pub fn of(spec: &ScheduleSpec, calendars: &[Vec<Holiday>]) -> Result<Self, Vec<Invalid>> {
        let mut faults = Faults::default();
        let found = zone(&spec.time_zone);
        let zone = found.unwrap_or_else(|| {
            let found = sanitize_to(&spec.time_zone, SHOWN);
            faults.add(
                "timeZone",
                format!("found {found:?}, must be the IANA name of a time zone, such as Europe/Berlin or UTC"),
            );
            TimeZone::UTC
        });
        let base = if spec.events.is_empty() {
            Base::Windows(spec.awake.iter().enumerate().filter_map(|(at, one)| faults.window(at, one)).collect())
        } else {
            Base::Events(spec.events.iter().enumerate().filter_map(|(at, one)| faults.event(at, one)).collect())
        };
        let lines = spec.calendars.iter().zip(calendars).flat_map(|(calendar, lines)| {
            lines.iter().map(|line| Override {
                from: instant(&zone, line.from),
                to: instant(&zone, line.to),
                power: calendar.power.power(),
                text: reasoned(&format!("calendar {}", sanitize_to(&calendar.config_map, SHOWN)), &line.reason).into(),
            })
        });
        let mut overrides: Vec<Override> = lines.collect();
        overrides.extend(spec.exceptions.iter().enumerate().filter_map(|(at, one)| faults.exception(at, one, &zone)));
        let lead = faults.length("lead", spec.lead.as_deref(), Duration::ZERO);
        let minimum_sleep = faults.length("minimumSleep", spec.minimum_sleep.as_deref(), MINIMUM_SLEEP);
        faults.selectors(spec);
        let timetable = Self { zone, base, overrides: Overrides::new(overrides), lead, minimum_sleep };
        if faults.0.is_empty() {
            timetable.find_extremes(&mut faults);
        }
        if faults.0.is_empty() { Ok(timetable) } else { Err(faults.0) }
    }

    /// A schedule that never sleeps, and one with too many edges on a day.
    fn find_extremes(&self, faults: &mut Faults) {
        let begin = Timestamp::UNIX_EPOCH;
        match &self.base {
            Base::Windows(_) => {
                let edges = self.edges(begin, after(begin, LOOKS[0]));
                if !edges.iter().any(|edge| edge.power == Power::Hibernating) {
                    let least = duration::go_string(self.minimum_sleep);
                    let message =
                        format!("found windows that leave no time to sleep, must leave {least} at least: shorten one");
                    faults.add("awake", message);
                }
            }
            Base::Events(events) => {
                let most: usize = events.iter().map(|(cron, _)| cron.times_a_day()).sum();
                if most <= EDGES_A_DAY {
                    return;
                }
                let mut day = (None, 0);
                // The first days first: what has far too many is refused at once.
                let looks = [LOOKS[0], LOOKS[1]].into_iter().flat_map(|look| self.flips(begin, after(begin, look)));
                for flip in looks {
                    let date = self.zone.to_datetime(flip.at).date();
                    day = if day.0 == Some(date) { (day.0, day.1 + 1) } else { (Some(date), 1) };
                    if day.1 > EDGES_A_DAY {
                        let message =
                            format!("found more than {EDGES_A_DAY} on {date}, must be {EDGES_A_DAY} a day at most");
                        return faults.add("events", message);
                    }
                }
            }
        }
    }

    /// The edges later than `from` and not later than `to`, in order.
    pub fn edges(&self, from: Timestamp, to: Timestamp) -> Vec<Edge> {
        let (state, edges) = self.nominal(before(from, MARGIN), after(to, MARGIN));
        self.spaced(state, &self.ahead(edges)).into_iter().filter(|edge| from < edge.at && edge.at <= to).collect()
    }

    /// The first edges after a moment.
    pub fn next(&self, now: Timestamp, count: usize) -> Vec<Edge> {
        // No edge is earlier than the end of what leaves everything as it is.
        let begin = self.unchanged_until(now).map_or(now, |end| before(end, Duration::from_nanos(1)));
        let mut edges = Vec::new();
        for end in LOOKS.map(|look| after(now, look)).into_iter().filter(|end| begin < *end) {
            edges = self.edges(begin, end);
            if edges.len() >= count {
                break;
            }
        }
        edges.truncate(count);
        edges
    }

    /// The last edge after `since` and not after `now`.
    pub fn last(&self, since: Timestamp, now: Timestamp) -> Option<Edge> {
        let since = since.max(before(now, LOOKS[2]));
        (since < now).then(|| self.edges(since, now).pop())?
    }

    /// Since when targets are to sleep, as far as [`Timetable::last`] looks back; none if the last edge was a wake.
    pub fn asleep_since(&self, now: Timestamp) -> Option<Timestamp> {
        let last = self.last(Timestamp::MIN, now);
        let is_sleep = last.is_none_or(|edge| edge.power == Power::Hibernating);
        is_sleep.then(|| last.map_or_else(|| before(now, LOOKS[2]), |edge| edge.at))
    }

    /// Until when an exception or a calendar leaves everything as it is, if one does at this moment.
    pub fn unchanged_until(&self, now: Timestamp) -> Option<Timestamp> {
        let (mode, end) = self.overrides.at(now);
        (mode == Mode::Unchanged).then_some(end)
    }

    /// When an exception or a calendar leaves everything as it is next.
    pub fn next_unchanged(&self, now: Timestamp) -> Option<Timestamp> {
        self.overrides.next_unchanged(now)
    }

    /// Until when exceptions and calendars ask for the state of an edge, if one does from the edge on.
    pub fn overridden_until(&self, edge: &Edge) -> Option<Timestamp> {
        self.overrides.fixed_until(edge.nominal, edge.power)
    }

    /// The state that it asks for at a moment; none while an exception leaves everything as it is, and before the first
    /// event.
    pub fn state(&self, now: Timestamp) -> Option<Power> {
        let (mode, _) = self.overrides.at(now);
        if mode == Mode::Unchanged {
            return None;
        }
        let last = self.edges(before(now, LOOKS[0]), now).pop().map(|edge| edge.power);
        last.or_else(|| match mode {
            Mode::Fixed(power, _) => Some(power),
            Mode::Base | Mode::Unchanged => self.base_state(now),
        })
    }

    /// Where an edge comes from, for people.
    pub fn describe(&self, source: Source, spec: &ScheduleSpec) -> String {
        match source {
            Source::Window(at) => spec.awake.get(at).map(window_text),
            Source::Event(at) => spec.events.get(at).map(|event| format!("event {}", sanitize_to(&event.cron, SHOWN))),
            Source::Override(at) => self.overrides.text(at).map(str::to_owned),
            Source::Apply => Some("applied by hand".to_owned()),
            Source::Hold => Some("end of a hold".to_owned()),
        }
        .unwrap_or_default()
    }

    /// The state that windows or events ask for at a moment; none before the first event.
    fn base_state(&self, at: Timestamp) -> Option<Power> {
        match &self.base {
            Base::Windows(_) => {
                let flips = self.flips(before(at, MARGIN), at);
                Some(flips.last().map_or(Power::Hibernating, |flip| flip.power))
            }
            Base::Events(events) => {
                let civil = self.zone.to_datetime(at).checked_add(1.day()).unwrap_or(DateTime::MAX);
                let last = |(index, (cron, power)): (usize, &(Cron, Power))| {
                    let mut earlier = cron.before(civil).map(|civil| (instant(&self.zone, civil), civil));
                    let (instant, civil) = earlier.find(|(instant, _)| *instant <= at)?;
                    Some(((instant, civil, index), *power))
                };
                events.iter().enumerate().filter_map(last).max_by_key(|(when, _)| *when).map(|(_, power)| power)
            }
        }
    }

    /// The changes that windows or events ask for, later than `from` and not later than `to`.
    fn flips(&self, from: Timestamp, to: Timestamp) -> Vec<Edge> {
        let mut flips = match &self.base {
            Base::Windows(windows) => self.of_windows(windows, from, to),
            Base::Events(events) => self.of_events(events, from, to),
        };
        flips.retain(|flip| from < flip.at && flip.at <= to);
        flips
    }

    fn of_windows(&self, windows: &[Awake], from: Timestamp, to: Timestamp) -> Vec<Edge> {
        let date = |at: Timestamp, days: i64| self.zone.to_datetime(at).date().saturating_add(days.days());
        let dates = date(from, -3).series(1.day()).take_while(|day| *day <= date(to, 1));
        let mut times: Vec<(Timestamp, Timestamp, usize)> = Vec::new();
        for day in dates {
            for (index, window) in windows.iter().enumerate().filter(|(_, window)| window.days.contain(day)) {
                let end = if window.to > window.from { window.to } else { window.to + 24 * 60 };
                let Some((begin, end)) = days::at(day, window.from).zip(days::at(day, end)) else { continue };
                let (begin, end) = (instant(&self.zone, begin), instant(&self.zone, end));
                // A clock change can leave nothing of a window.
                if begin < end {
                    times.push((begin, end, index));
                }
            }
        }
        times.sort_unstable();
        let mut flips: Vec<Edge> = Vec::new();
        for (begin, end, index) in times {
            let end = Edge { at: end, nominal: end, power: Power::Hibernating, source: Source::Window(index) };
            match flips.last_mut() {
                Some(last) if begin <= last.at => {
                    if end.at > last.at {
                        *last = end;
                    }
                }
                _ => flips.extend([
                    Edge { at: begin, nominal: begin, power: Power::Running, source: Source::Window(index) },
                    end,
                ]),
            }
        }
        flips
    }

    fn of_events(&self, events: &[(Cron, Power)], from: Timestamp, to: Timestamp) -> Vec<Edge> {
        let civil = |at: Timestamp, days: i64| self.zone.to_datetime(at).saturating_add(days.days());
        let (first, last) = (civil(from, -2), civil(to, 2));
        let mut times: Vec<(Timestamp, DateTime, usize, Power)> = Vec::new();
        for (index, (cron, power)) in events.iter().enumerate() {
            let of_event = cron.from(first).take_while(|civil| *civil <= last);
            times.extend(of_event.map(|civil| (instant(&self.zone, civil), civil, index, *power)));
        }
        times.sort_unstable_by_key(|(at, civil, index, _)| (*at, *civil, *index));
        let mut flips: Vec<Edge> = Vec::new();
        for (at, _, index, power) in times {
            // Of two events at one time the last one counts.
            if flips.last().is_some_and(|last| last.at == at) {
                flips.pop();
            }
            flips.push(Edge { at, nominal: at, power, source: Source::Event(index) });
        }
        flips
    }

    /// The state at the begin, and the edges at the times that the schedule names.
    fn nominal(&self, from: Timestamp, to: Timestamp) -> (Option<Power>, Vec<Edge>) {
        let flips = self.flips(from, to);
        let mut moments: Vec<Timestamp> = flips.iter().map(|flip| flip.at).collect();
        moments.extend(self.overrides.changes(from, to));
        moments.sort_unstable();
        moments.dedup();
        let is_events = matches!(self.base, Base::Events(_));
        let (mut mode, _) = self.overrides.at(from);
        // Only an override asks what events have asked for long ago.
        let mut base = if is_events && self.overrides.is_empty() { None } else { self.base_state(from) };
        let mut state = match mode {
            Mode::Base => base,
            Mode::Fixed(power, _) => Some(power),
            Mode::Unchanged => None,
        };
        let begin = state;
        let mut edges = Vec::new();
        let mut flips = flips.into_iter().peekable();
        for at in moments {
            let flip = flips.next_if(|flip| flip.at == at);
            base = flip.map(|flip| flip.power).or(base);
            let (next, _) = self.overrides.at(at);
            let own = flip.map(|flip| (flip.power, flip.source));
            let edge = match (mode, next) {
                (_, Mode::Unchanged) => None,
                (_, Mode::Fixed(power, index)) => {
                    Some((power, Source::Override(index as usize))).filter(|_| state != Some(power))
                }
                // People may have changed it meanwhile: it stays until the next edge.
                (Mode::Unchanged, Mode::Base) => own,
                (Mode::Base, Mode::Base) => own.filter(|(power, _)| is_events || state != Some(*power)),
                (Mode::Fixed(_, index), Mode::Base) => own
                    .or(base.map(|power| (power, Source::Override(index as usize))))
                    .filter(|(power, _)| state != Some(*power)),
            };
            state = match (mode, next, edge) {
                (_, _, Some((power, _))) => Some(power),
                (_, Mode::Unchanged, None) => None,
                (Mode::Unchanged, Mode::Base, None) => base,
                _ => state,
            };
            edges.extend(edge.map(|(power, source)| Edge { at, nominal: at, power, source }));
            mode = next;
        }
        (begin, edges)
    }

    /// Wakes begin earlier, but not before the edge before them, and not before the end of an exception that changes
    /// nothing: it would cut off those that have not started.
    fn ahead(&self, mut edges: Vec<Edge>) -> Vec<Edge> {
        let mut earliest = Timestamp::MIN;
        for edge in &mut edges {
            if edge.power == Power::Running {
                let at = before(edge.at, self.lead).max(earliest);
                edge.at = self.overrides.last_unchanged_end(at, edge.at).unwrap_or(at);
            }
            earliest = edge.at;
        }
        edges
    }

    /// Without sleeps that are too short. A window's wake after such a sleep changes nothing. `state`: that before the edges.
    fn spaced(&self, state: Option<Power>, edges: &[Edge]) -> Vec<Edge> {
        let mut spaced: Vec<Edge> = Vec::with_capacity(edges.len());
        let mut skipped = false;
        let mut wakes = edges.iter().enumerate().filter(|(_, edge)| edge.power == Power::Running).peekable();
        for (index, edge) in edges.iter().enumerate() {
            while wakes.next_if(|(wake, _)| *wake < index).is_some() {}
            let is_short = |(_, wake): &(usize, &Edge)| {
                duration::age(edge.at, wake.at) < self.minimum_sleep.max(Duration::from_secs(1))
            };
            if edge.power == Power::Hibernating && wakes.peek().is_some_and(is_short) {
                skipped = true;
                continue;
            }
            let before = spaced.last().map(|edge| edge.power).or(state);
            let repeats = skipped && matches!(self.base, Base::Windows(_)) && before == Some(Power::Running);
            skipped = false;
            if !repeats {
                spaced.push(*edge);
            }
        }
        spaced
    }

    /// The shortest sleep.
    pub fn minimum_sleep(&self) -> Duration {
        self.minimum_sleep
    }
}

/// `awake Mon-Fri 07:30-18:00`.
fn window_text(window: &Window) -> String {
    let days = if window.days.is_empty() { "every day".to_owned() } else { window.days.join(",") };
    sanitize_to(&format!("awake {days} {}-{}", window.from, window.to), SHOWN)
}
