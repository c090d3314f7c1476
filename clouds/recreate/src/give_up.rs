//! Whether a sleep can go on, or its machines have to run again.

use std::time::Duration;

use jiff::Timestamp;
use shared::cloud::CloudErrorKind::Refused;
use shared::cloud::Refusal;

use crate::cloud::Obstacle;
use crate::record::{Failed, IMAGE_FAILED};
use crate::steps::{Step, is_within};
use crate::survey::{Stage, Survey, View};

/// How long a sleep tries again what the cloud refuses, while machines are paused.
const PATIENCE: Duration = Duration::from_mins(1);

/// The step of each machine.
pub(crate) type Steps<'a, A> = Vec<(&'a View<'a, A>, Step<A>)>;

/// Why a sleep cannot go on: what stands in the way of a machine, an image that cannot be made, or a request that the
/// cloud refuses for too long.
pub(crate) fn hopeless<A>(now: Timestamp, steps: &Steps<'_, A>, stuck: Option<&Failed>) -> Vec<Refusal> {
    let of_machine = steps.iter().filter_map(|(view, step)| match (view.obstacle(), step) {
        (Some(_), _) if is_past_return([*view]) && !matches!(step, Step::Wait) => None,
        (Some(why), _) => Some(refusal(view.name, why)),
        (None, Step::Fail(why)) => Some(refusal(view.name, Obstacle::new(IMAGE_FAILED, why))),
        _ => None,
    });
    let stuck = stuck.filter(|stuck| !is_within(now, stuck.at, PATIENCE)).map(Failed::refusal);
    of_machine.chain(stuck).collect()
}

/// The first request that the cloud refuses again and again, after a pass: the one of before as long as it is refused, or
/// waits for a request that may still arrive and is where it was.
pub(crate) fn stuck<A: Clone + PartialEq>(
    survey: &Survey<A>,
    views: &[View<'_, A>],
    is_tried: impl Fn(&str) -> bool,
    before: Option<Failed>,
    refused: &[Refusal],
) -> Option<Failed> {
    let is_where_it_was = |stuck: &Failed| {
        let mut of_machine = views.iter().filter(|view| view.name == stuck.machine);
        !is_tried(&stuck.machine) && of_machine.any(|view| survey.has_no_image(view))
    };
    let is_refused = |stuck: &Failed| refused.iter().any(|refusal| refusal.id == stuck.machine);
    let still = before.filter(|stuck| is_refused(stuck) || is_where_it_was(stuck));
    still.or_else(|| refused.first().map(|refusal| Failed::of(refusal, survey.decided, 0)))
}

/// Whether a sleep has halted a machine that is to run again if it is given up.
pub(crate) fn has_begun<A>(views: &[View<'_, A>]) -> bool {
    views.iter().any(|view| {
        let is_open = view.entry.is_some_and(|entry| !entry.given_up) && view.is_recorded_server();
        is_open && matches!(view.stage, Stage::Halted | Stage::Stopping)
    })
}

/// Whether every machine has an image by which it may be given up: the sleep goes on with those that it can.
pub(crate) fn is_past_return<'a, A: 'a>(views: impl IntoIterator<Item = &'a View<'a, A>>) -> bool {
    views.into_iter().all(|view| {
        let is_kept = view.entry.is_some_and(|entry| entry.given_up || entry.image.is_some());
        let is_useless = matches!(view.stage, Stage::Useless | Stage::Stray | Stage::Broken);
        is_kept && (view.live.is_none() || view.is_recorded_server() || is_useless)
    })
}

impl Failed {
    pub(crate) fn of(refusal: &Refusal, at: Timestamp, number: u32) -> Self {
        let Refusal { id, code, message, .. } = refusal.clone();
        Self { at, machine: id, code, message, number }
    }

    pub(crate) fn refusal(&self) -> Refusal {
        refusal(&self.machine, Obstacle { code: self.code.clone(), message: self.message.clone() })
    }
}

pub(crate) fn refusal(machine: &str, why: Obstacle) -> Refusal {
    why.refusal(machine, Refused)
}
