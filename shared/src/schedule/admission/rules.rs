//! Rows S2 to S4, one function each.

use super::Schedule;
use crate::admission::stamp::own_stamp;
use crate::admission::{Change, Fault, Rule, Verdict};
use crate::annotation::format;
use crate::duration::age;
use crate::schedule::decide::APPLY_WINDOW;
use crate::schedule::timetable::Timetable;

/// The table.
pub const RULES: &[Rule<Schedule>] =
    &[Rule { row: "S2", judge: stamped }, Rule { row: "S3", judge: readable }, Rule { row: "S4", judge: applies_now }];

/// S2
fn stamped(change: &Change<'_, Schedule>) -> Verdict {
    if change.starts_targets() { own_stamp(change) } else { Verdict::Allow }
}

/// S3. The first fault stands for all: each names its field.
fn readable(change: &Change<'_, Schedule>) -> Verdict {
    let Some(spec) = change.new.spec.as_ref().filter(|_| change.starts_targets()) else { return Verdict::Allow };
    match Timetable::of(spec, &[]) {
        Ok(_) => Verdict::Allow,
        Err(faults) => match faults.into_iter().next() {
            Some(fault) => Verdict::deny(Fault::Invalid, fault.field, fault.message),
            None => Verdict::Allow,
        },
    }
}

/// S4. A file that is applied again later does nothing.
fn applies_now(change: &Change<'_, Schedule>) -> Verdict {
    let at = |schedule: &Schedule| Some(schedule.spec.as_ref()?.apply_at.as_ref()?.0);
    let Some(found) = at(&change.new) else { return Verdict::Allow };
    let is_same = change.old.as_ref().and_then(at) == Some(found);
    if is_same || age(found, change.now).max(age(change.now, found)) < APPLY_WINDOW {
        return Verdict::Allow;
    }
    let (found, now) = (format::seconds(found), format::seconds(change.now));
    let message =
        format!("found {found}, must be about now, {now}: leave it out, or use `kubectl hibernate schedule apply`");
    Verdict::deny(Fault::Invalid, "spec.applyAt", message)
}
