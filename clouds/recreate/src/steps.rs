//! The next step of one machine, into sleep and out of it: two tables.

use shared::duration::go_string;
use shared::record::Format;

use crate::cloud::{Image, ImageStatus, Request};
use crate::limits::{BACKOFF, LATE, is_within};
use crate::record::{Attempt, Copied, Machine};
use crate::survey::{Stage, Survey, View};

/// How often an image is tried in one sleep.
const IMAGES: u32 = 2;

/// What a pass does to one machine: the record is changed first, then the request is sent.
#[derive(Debug)]
pub(crate) enum Step<A> {
    /// Nothing: it is there, or something is under way.
    Wait,
    /// A request that needs no record.
    Send(Request<A>),
    /// The entry has to say so first.
    Record(Machine<A>, Option<Request<A>>),
    /// It has its image.
    Ready,
    /// This sleep cannot succeed.
    Fail(String),
}

/// The next step of a machine into sleep. What stands in its way was asked before ([`View::obstacle`]).
pub(crate) fn stop<A: Clone + PartialEq>(survey: &Survey<A>, view: &View<'_, A>, cycle: impl Fn() -> String) -> Step<A>
where
    Copied<A>: Format,
{
    let server = view.server();
    if let Some(extra) = view.extra {
        return delete(&extra.id);
    }
    let old = view.entry.filter(|_| view.is_recorded_server());
    match (&view.stage, old) {
        (Stage::Running, Some(entry))
            if entry.image.is_none() && survey.image(entry).is_none() && entry.imaged.is_none() =>
        {
            Step::Send(Request::Pause { server })
        }
        // It may have run since its image was begun.
        (Stage::Running | Stage::Unrestored, _) => renew(survey, view, cycle(), Some(Request::Pause { server })),
        (Stage::Halted, Some(entry)) => halted(survey, view, entry, cycle),
        (Stage::Halted, None) => renew(survey, view, cycle(), None),
        (Stage::Stopping, Some(entry)) => abort(survey, view, entry, survey.is_overdue(entry), cycle),
        (Stage::GivenUp | Stage::Stray | Stage::Broken | Stage::Useless, _) => delete(&server),
        (Stage::Stopping | Stage::Deleting | Stage::Gone | Stage::Starting | Stage::Odd(_), _) => Step::Wait,
    }
}

/// A halted server that the record knows: it is imaged, waits for the seal, and is given up.
fn halted<A: Clone + PartialEq>(
    survey: &Survey<A>,
    view: &View<'_, A>,
    entry: &Machine<A>,
    cycle: impl Fn() -> String,
) -> Step<A>
where
    Copied<A>: Format,
{
    let sealed = survey.record.as_ref().is_some_and(|(record, _)| record.sealed);
    if let Some(step) = changed(survey, view, entry).filter(|_| entry.image.is_none()) {
        return step;
    }
    let may_still_run = entry.started.as_ref().is_some_and(|started| is_within(survey.now, started.at, LATE));
    let tries = entry.imaged.as_ref().map_or(0, |imaged| imaged.number);
    let image = survey.image(entry).map(|image| image.status);
    let late = format!("its image was not ready after {}", go_string(survey.image_deadline));
    let why = match (image, &entry.imaged) {
        (Some(ImageStatus::Active), _) if sealed && entry.image.is_some() => {
            let entry = Machine { given_up: true, ..entry.clone() };
            return if may_still_run {
                Step::Wait
            } else {
                Step::Record(entry, Some(Request::DeleteServer { server: view.server() }))
            };
        }
        (Some(ImageStatus::Active), _) => return described(survey, view, entry),
        // Someone has deleted its image after the seal.
        _ if entry.image.is_some() => return renew(survey, view, cycle(), None),
        (None, None) => return image_of(survey, view, entry, entry.cycle.clone()),
        (None, Some(imaged)) if is_within(survey.now, imaged.at, LATE) => return Step::Wait,
        (Some(ImageStatus::Saving), _) if !survey.is_overdue(entry) => return Step::Wait,
        (None, _) => "its image vanished",
        (Some(ImageStatus::Failed), _) => "its image failed",
        (Some(ImageStatus::Withheld), _) => "its image was deactivated",
        (Some(_), _) => late.as_str(),
    };
    if tries < IMAGES {
        return image_of(survey, view, entry, cycle());
    }
    Step::Fail(format!("{why}, {tries} times"))
}

/// What its owner has changed of a halted server since it was recorded: nothing of it would come back.
fn changed<A: Clone + PartialEq>(survey: &Survey<A>, view: &View<'_, A>, entry: &Machine<A>) -> Option<Step<A>> {
    let server = view.live?;
    let attributes = survey.merged.get(&server.id).unwrap_or(&server.attributes);
    let entry = Machine { attributes: attributes.clone(), ..entry.clone() };
    (*attributes != view.entry?.attributes).then_some(Step::Record(entry, None))
}

/// An image that is ready carries a tag, and a copy of the entry, before the record is sealed.
fn described<A: Clone + PartialEq>(survey: &Survey<A>, view: &View<'_, A>, entry: &Machine<A>) -> Step<A>
where
    Copied<A>: Format,
{
    let Some(image) = survey.image(entry) else { return Step::Wait };
    let copy = survey.copy(survey.names(), view.name, image, entry);
    if image.is_tagged && image.copy.as_ref() == Some(&copy) {
        return Step::Ready;
    }
    Step::Send(Request::Describe { image: image.clone(), copy })
}

/// Ends an image that is not waited for any longer: until then its server can go neither way.
fn abort<A: Clone + PartialEq>(
    survey: &Survey<A>,
    view: &View<'_, A>,
    entry: &Machine<A>,
    is_due: bool,
    cycle: impl Fn() -> String,
) -> Step<A> {
    let saving = |image: &&Image| image.machine == view.name && image.status == ImageStatus::Saving;
    if let Some(image) = survey.unneeded_images().find(saving) {
        return Step::Send(Request::DeleteImage { image: image.id.clone() });
    }
    match survey.image(entry).filter(|image| is_due && image.status == ImageStatus::Saving) {
        // The delete may arrive late: no later list may count this image.
        Some(image) => {
            let imaged = entry.imaged.clone().map(|imaged| Attempt { at: survey.decided, ..imaged });
            let entry = Machine { cycle: cycle(), imaged, ..entry.clone() };
            Step::Record(entry, Some(Request::DeleteImage { image: image.id.clone() }))
        }
        None => Step::Wait,
    }
}

fn image_of<A: Clone>(survey: &Survey<A>, view: &View<'_, A>, entry: &Machine<A>, cycle: String) -> Step<A> {
    let request = Request::CreateImage { server: view.server(), machine: view.name.to_owned(), cycle: cycle.clone() };
    let imaged = Some(Attempt::after(entry.imaged.as_ref(), survey.decided));
    Step::Record(Machine { cycle, imaged, ..entry.clone() }, Some(request))
}

/// A new cycle of a machine with a server, which is recorded as it is.
fn renew<A: Clone + PartialEq>(
    survey: &Survey<A>,
    view: &View<'_, A>,
    cycle: String,
    request: Option<Request<A>>,
) -> Step<A> {
    entry_of(survey, view, cycle).map_or(Step::Wait, |entry| Step::Record(entry, request))
}

/// A new entry of a machine with a server.
fn entry_of<A: Clone + PartialEq>(survey: &Survey<A>, view: &View<'_, A>, cycle: String) -> Option<Machine<A>> {
    let live = view.live?;
    let started = view.entry.and_then(|entry| entry.started.as_ref()).map(|started| started.at);
    Some(Machine {
        server: view.server(),
        cycle,
        image: None,
        given_up: false,
        imaged: None,
        started: started.map(|at| Attempt { number: 0, at, fault: None }),
        attributes: survey.merged.get(&live.id).unwrap_or(&live.attributes).clone(),
    })
}

/// What brings back the machines of a sleep that was given up.
pub(crate) fn undo<A: Clone + PartialEq>(
    survey: &Survey<A>,
    view: &View<'_, A>,
    cycle: impl Fn() -> String,
) -> Step<A> {
    let image = survey.unneeded_images().find(|image| image.machine == view.name);
    match (&view.stage, image) {
        (Stage::Running, Some(image)) => Step::Send(Request::DeleteImage { image: image.id.clone() }),
        (Stage::Gone, _) => Step::Wait,
        _ => start(survey, view, cycle),
    }
}

/// The next step of a machine out of sleep.
pub(crate) fn start<A: Clone + PartialEq>(
    survey: &Survey<A>,
    view: &View<'_, A>,
    cycle: impl Fn() -> String,
) -> Step<A> {
    let server = view.server();
    if let Some(extra) = view.extra {
        return delete(&extra.id);
    }
    match (&view.stage, view.live, view.entry) {
        (Stage::Halted, Some(live), entry) => {
            let started = entry.and_then(|entry| entry.started.as_ref());
            let started = Some(Attempt::after(started, survey.decided));
            let is_new = entry.is_some_and(|entry| entry.server != live.id);
            let next = match entry {
                Some(entry) if is_new => Machine { started, ..entry.clone() },
                _ => match entry_of(survey, view, cycle()) {
                    Some(entry) => Machine { started, ..entry },
                    None => return Step::Wait,
                },
            };
            Step::Record(next, Some(Request::Run { server }))
        }
        (Stage::Broken, Some(live), Some(entry)) => {
            let fault = live.fault.clone();
            let recorded = entry.started.as_ref().and_then(|started| started.fault.as_ref());
            if fault.is_none() || recorded == fault.as_ref() {
                return delete(&server);
            }
            let started = entry.started.clone().map(|started| Attempt { fault, ..started });
            Step::Record(Machine { started, ..entry.clone() }, Some(Request::DeleteServer { server }))
        }
        (Stage::Stopping, _, Some(entry)) if view.is_recorded_server() => abort(survey, view, entry, true, cycle),
        (Stage::GivenUp | Stage::Stray | Stage::Broken | Stage::Useless, ..) => delete(&server),
        (Stage::Unrestored, ..) => restore(view),
        (Stage::Gone, _, Some(entry)) => create(survey, view, entry),
        _ => Step::Wait,
    }
}

fn create<A: Clone + PartialEq>(survey: &Survey<A>, view: &View<'_, A>, entry: &Machine<A>) -> Step<A> {
    let Some(image) = survey.ready_image(entry).cloned() else { return Step::Wait };
    if let Some(last) = &entry.started
        && entry.given_up
        && is_within(survey.now, last.at, LATE * last.number.clamp(1, BACKOFF))
    {
        return Step::Wait;
    }
    let last = entry.started.as_ref().filter(|_| entry.given_up);
    let fault = last.and_then(|last| last.fault.clone());
    let started = Some(Attempt { fault, ..Attempt::after(last, survey.decided) });
    let request = Request::CreateServer {
        machine: view.name.to_owned(),
        image: image.clone(),
        cycle: entry.cycle.clone(),
        attributes: entry.attributes.clone(),
    };
    Step::Record(Machine { image: Some(image), given_up: true, started, ..entry.clone() }, Some(request))
}

fn restore<A: Clone>(view: &View<'_, A>) -> Step<A> {
    let Some(entry) = view.entry else { return Step::Wait };
    Step::Send(Request::Restore { server: view.server(), attributes: entry.attributes.clone() })
}

fn delete<A>(server: &str) -> Step<A> {
    Step::Send(Request::DeleteServer { server: server.to_owned() })
}
