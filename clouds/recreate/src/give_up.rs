//! Whether a sleep can go on, or its machines have to run again.

use jiff::Timestamp;
use shared::cloud::CloudErrorKind::Refused;
use shared::cloud::Refusal;

use crate::cloud::{Attributes, Obstacle};
use crate::record::{Attempt, FailedSleep, IMAGE_FAILED, Machine, Record, STALL_TIMEOUT, is_within};
use crate::steps::Step;
use crate::survey::{Stage, Survey, View};

/// The step of each machine.
pub(crate) type Steps<'a, A> = Vec<(&'a View<'a, A>, Step<A>)>;

/// Why a sleep cannot go on: what stands in the way of a machine, an image that cannot be made, or a request that the
/// cloud refuses for too long.
pub(crate) fn abort_causes<A>(now: Timestamp, steps: &Steps<'_, A>, stall: Option<&FailedSleep>) -> Vec<Refusal> {
    let of_machine = steps.iter().filter_map(|(view, step)| match (view.obstacle(), step) {
        (Some(_), _) if is_past_point_of_no_return([*view]) && !matches!(step, Step::Wait) => None,
        (Some(why), _) => Some(refusal(view.name, why)),
        (None, Step::Fail(why)) => Some(refusal(view.name, Obstacle::new(IMAGE_FAILED, why))),
        _ => None,
    });
    let lasts = |stall: &&FailedSleep| stall.number > 1 && !is_within(now, stall.at, STALL_TIMEOUT);
    let stall = stall.filter(lasts).map(FailedSleep::refusal);
    of_machine.chain(stall).collect()
}

/// What holds a sleep up before a pass: what the cloud refused, or a busy server. One sighting is no reason to give up: the
/// next pass tries again, however late it comes.
pub(crate) fn stall_before<A: Attributes>(
    survey: &Survey<A>,
    views: &[View<'_, A>],
    before: Option<FailedSleep>,
) -> Option<FailedSleep> {
    let mut busy = views.iter().filter(|view| survey.is_busy(view));
    match before {
        Some(stall) if stall.code != Obstacle::BUSY => Some(stall),
        Some(stall) if busy.clone().any(|view| view.name == stall.machine) => Some(FailedSleep { number: 2, ..stall }),
        _ => busy.next().map(|view| FailedSleep::of(&does_not_halt(view), survey.decided, 1)),
    }
}

/// The same after a pass: the first request that the cloud refuses, as long as it is refused again, or its machine waits
/// for a request that may still arrive.
pub(crate) fn stall_after<A: Attributes>(
    survey: &Survey<A>,
    views: &[View<'_, A>],
    tried: &[&str],
    before: Option<FailedSleep>,
    refused: &[Refusal],
) -> Option<FailedSleep> {
    let waits = |stall: &FailedSleep| {
        let mut of_machine = views.iter().filter(|view| view.name == stall.machine);
        !tried.contains(&stall.machine.as_str()) && of_machine.any(|view| survey.has_no_image(view))
    };
    match before {
        Some(stall) if refused.iter().any(|refusal| refusal.id == stall.machine) => {
            Some(FailedSleep { number: 2, ..stall })
        }
        Some(stall) if stall.code == Obstacle::BUSY || waits(&stall) => Some(stall),
        _ => refused.first().map(|refusal| FailedSleep::of(refusal, survey.decided, 1)),
    }
}

fn does_not_halt<A>(view: &View<'_, A>) -> Refusal {
    let word = view.live.map_or("", |server| server.word.as_str());
    refusal(view.name, Obstacle::new(Obstacle::BUSY, &format!("it does not halt: its state is {word}")))
}

/// Whether a sleep has halted a machine that is to run again if it is given up.
pub(crate) fn has_begun<A>(views: &[View<'_, A>]) -> bool {
    views.iter().any(|view| {
        let is_open = view.entry.is_some_and(|entry| !entry.given_up) && view.is_recorded_server();
        is_open && matches!(view.stage, Stage::Halted | Stage::Stopping)
    })
}

/// Whether every machine has an image by which it may be given up: the sleep goes on with those that it can.
pub(crate) fn is_past_point_of_no_return<'a, A: 'a>(views: impl IntoIterator<Item = &'a View<'a, A>>) -> bool {
    views.into_iter().all(|view| {
        let is_kept = view.entry.is_some_and(|entry| entry.given_up || entry.image.is_some());
        let is_useless = matches!(view.stage, Stage::Useless | Stage::Stray | Stage::Broken);
        is_kept && (view.live.is_none() || view.is_recorded_server() || is_useless)
    })
}

impl FailedSleep {
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

/// Whether every machine has its image.
pub(crate) fn may_be_sealed<A>(steps: &Steps<'_, A>) -> bool {
    let is_ready = |(view, step): &(&View<'_, A>, Step<A>)| matches!(step, Step::Ready) || view.is_at(&Stage::Gone);
    !steps.is_empty() && steps.iter().all(is_ready)
}

/// Records that this sleep cannot succeed. All servers that are left may run again.
pub(crate) fn give_up<A: Attributes>(
    next: &mut Record<A>,
    why: &Refusal,
    at: Timestamp,
    new_cycle: impl Fn() -> String,
) {
    for machine in next.machines.values_mut().filter(|machine| !machine.given_up) {
        let started = Some(Attempt::after(None, at));
        *machine = Machine { cycle: new_cycle(), image: None, imaged: None, started, ..machine.clone() };
    }
    let number = next.failed.as_ref().map_or(0, |failed| failed.number).saturating_add(1);
    (next.sealed, next.stalled, next.failed) = (false, None, Some(FailedSleep::of(why, at, number)));
}
