//! The next step of one machine, into sleep and out of it: two tables.

use shared::duration::go_string;

use crate::cloud::{Attributes, Image, ImageStatus, Request};
use crate::record::{Attempt, MAX_BACKOFF_FACTOR, Machine, REQUEST_LIFETIME, is_within};
use crate::survey::{Stage, Survey, View};

/// How often an image is tried in one sleep.
const MAX_IMAGE_TRIES: u32 = 2;

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

/// What a step is decided by.
pub(crate) struct MachineFacts<'a, A> {
    pub survey: &'a Survey<A>,
    pub view: &'a View<'a, A>,
    /// For an image or a server that is not of an earlier cycle.
    pub new_cycle: String,
}

impl<A: Attributes> MachineFacts<'_, A> {
    /// The next step into sleep. What stands in its way was asked before ([`View::obstacle`]).
    pub fn stop(&self) -> Step<A> {
        let (survey, view, server) = (self.survey, self.view, self.view.server());
        if let Some(extra) = view.extra {
            return Step::Send(Request::DeleteServer(extra.id.clone()));
        }
        let old = view.entry.filter(|_| view.is_recorded_server());
        match (&view.stage, old) {
            (Stage::Running, Some(entry))
                if entry.image.is_none() && survey.image(entry).is_none() && entry.imaged.is_none() =>
            {
                Step::Send(Request::Pause(server))
            }
            // It may have run since its image was begun.
            (Stage::Running | Stage::Unrestored, _) => self.renew(Some(Request::Pause(server))),
            (Stage::Halted, Some(entry)) => self.halted(entry),
            (Stage::Halted, None) => self.renew(None),
            (Stage::Stopping, Some(entry)) => self.abort(entry, survey.is_overdue(entry)),
            (Stage::GivenUp | Stage::Stray | Stage::Broken | Stage::Useless, _) => {
                Step::Send(Request::DeleteServer(server))
            }
            (Stage::Stopping | Stage::Deleting | Stage::Gone | Stage::Starting | Stage::Odd(_), _) => Step::Wait,
        }
    }

    /// A halted server that the record knows: it is imaged, waits for the seal, and is given up.
    fn halted(&self, entry: &Machine<A>) -> Step<A> {
        let survey = self.survey;
        let sealed = survey.record.as_ref().is_some_and(|(record, _)| record.sealed);
        if let Some(step) = self.changed(entry).filter(|_| entry.image.is_none()) {
            return step;
        }
        let may_still_run =
            entry.started.as_ref().is_some_and(|started| is_within(survey.now, started.at, REQUEST_LIFETIME));
        let tries = entry.imaged.as_ref().map_or(0, |imaged| imaged.number);
        let image = survey.image(entry).map(|image| image.status);
        let why = match (image, &entry.imaged) {
            (Some(ImageStatus::Active), _) if sealed && entry.image.is_some() => {
                let request = Request::DeleteServer(self.view.server());
                return if may_still_run {
                    Step::Wait
                } else {
                    Step::Record(Machine { given_up: true, ..entry.clone() }, Some(request))
                };
            }
            (Some(ImageStatus::Active), _) => return self.described(entry),
            // Someone has deleted its image after the seal.
            _ if entry.image.is_some() => return self.renew(None),
            (None, None) => return self.image_of(entry, &entry.cycle),
            (None, Some(imaged)) if is_within(survey.now, imaged.at, REQUEST_LIFETIME) => return Step::Wait,
            (Some(ImageStatus::Saving), _) if !survey.is_overdue(entry) => return Step::Wait,
            _ if tries < MAX_IMAGE_TRIES => return self.image_of(entry, &self.new_cycle),
            (None, _) => "its image vanished".to_owned(),
            (Some(ImageStatus::Failed), _) => "its image failed".to_owned(),
            (Some(ImageStatus::Withheld), _) => "its image was deactivated".to_owned(),
            (Some(ImageStatus::Saving), _) => {
                format!("its image was not ready after {}", go_string(survey.image_deadline))
            }
        };
        Step::Fail(format!("{why}, {tries} times"))
    }

    /// What its owner has changed of a halted server since it was recorded: nothing of it would come back.
    fn changed(&self, entry: &Machine<A>) -> Option<Step<A>> {
        let attributes = self.survey.attributes(self.view.live?);
        let step = || Step::Record(Machine { attributes: attributes.clone(), ..entry.clone() }, None);
        (*attributes != entry.attributes).then(step)
    }

    /// An image that is ready carries a tag, and a copy of the entry, before the record is sealed.
    fn described(&self, entry: &Machine<A>) -> Step<A> {
        let Some(image) = self.survey.image(entry) else { return Step::Wait };
        let copy = self.survey.copy(self.view.name, image, entry);
        if image.is_tagged && image.copy.as_ref() == Some(&copy) {
            return Step::Ready;
        }
        Step::Send(Request::Describe(image.clone(), copy))
    }

    /// Ends an image that is not waited for any longer: until then its server can go neither way.
    fn abort(&self, entry: &Machine<A>, is_due: bool) -> Step<A> {
        let saving = |image: &&Image| image.machine == self.view.name && image.status == ImageStatus::Saving;
        if let Some(image) = self.survey.unneeded_images().find(saving) {
            return Step::Send(Request::DeleteImage(image.id.clone()));
        }
        match self.survey.image(entry).filter(|image| is_due && image.status == ImageStatus::Saving) {
            // The delete may arrive late: no later list may count this image.
            Some(image) => {
                let imaged = entry.imaged.clone().map(|imaged| Attempt { at: self.survey.decided, ..imaged });
                let entry = Machine { cycle: self.new_cycle.clone(), imaged, ..entry.clone() };
                Step::Record(entry, Some(Request::DeleteImage(image.id.clone())))
            }
            None => Step::Wait,
        }
    }

    fn image_of(&self, entry: &Machine<A>, cycle: &str) -> Step<A> {
        let (machine, cycle) = (self.view.name.to_owned(), cycle.to_owned());
        let request = Request::CreateImage { server: self.view.server(), machine, cycle: cycle.clone() };
        let imaged = Some(Attempt::after(entry.imaged.as_ref(), self.survey.decided));
        Step::Record(Machine { cycle, imaged, ..entry.clone() }, Some(request))
    }

    /// A new cycle of a machine with a server, which is recorded as it is.
    fn renew(&self, request: Option<Request<A>>) -> Step<A> {
        self.new_entry().map_or(Step::Wait, |entry| Step::Record(entry, request))
    }

    /// A new entry of a machine with a server.
    fn new_entry(&self) -> Option<Machine<A>> {
        let started = self.view.entry.and_then(|entry| entry.started.as_ref()).map(|started| started.at);
        Some(Machine {
            attributes: self.survey.attributes(self.view.live?).clone(),
            server: self.view.server(),
            cycle: self.new_cycle.clone(),
            image: None,
            given_up: false,
            imaged: None,
            started: started.map(|at| Attempt { number: 0, at, fault: None }),
        })
    }

    /// What brings back the machines of a sleep that was given up.
    pub fn undo(&self) -> Step<A> {
        let image = self.survey.unneeded_images().find(|image| image.machine == self.view.name);
        match (&self.view.stage, image) {
            (Stage::Running, Some(image)) => Step::Send(Request::DeleteImage(image.id.clone())),
            (Stage::Gone, _) => Step::Wait,
            _ => self.start(),
        }
    }

    /// The next step out of sleep.
    pub fn start(&self) -> Step<A> {
        let (view, server) = (self.view, self.view.server());
        if let Some(extra) = view.extra {
            return Step::Send(Request::DeleteServer(extra.id.clone()));
        }
        match (&view.stage, view.live, view.entry) {
            (Stage::Halted, Some(live), entry) => {
                let started = entry.and_then(|entry| entry.started.as_ref());
                let started = Some(Attempt::after(started, self.survey.decided));
                let made = entry.filter(|entry| entry.server != live.id).cloned();
                match made.or_else(|| self.new_entry()) {
                    Some(entry) => Step::Record(Machine { started, ..entry }, Some(Request::Run(server))),
                    None => Step::Wait,
                }
            }
            (Stage::Broken, Some(live), Some(entry)) => {
                let fault = live.fault.clone();
                let recorded = entry.started.as_ref().and_then(|started| started.fault.as_ref());
                let request = Request::DeleteServer(server);
                if fault.is_none() || recorded == fault.as_ref() {
                    return Step::Send(request);
                }
                let started = entry.started.clone().map(|started| Attempt { fault, ..started });
                Step::Record(Machine { started, ..entry.clone() }, Some(request))
            }
            (Stage::Stopping, _, Some(entry)) if view.is_recorded_server() => self.abort(entry, true),
            (Stage::GivenUp | Stage::Stray | Stage::Broken | Stage::Useless, ..) => {
                Step::Send(Request::DeleteServer(server))
            }
            (Stage::Unrestored, _, Some(entry)) => Step::Send(Request::Restore(server, entry.attributes.clone())),
            (Stage::Gone, _, Some(entry)) => self.create(entry),
            _ => Step::Wait,
        }
    }

    fn create(&self, entry: &Machine<A>) -> Step<A> {
        let Some(image) = self.survey.ready_image(entry).cloned() else { return Step::Wait };
        let last = entry.started.as_ref().filter(|_| entry.given_up);
        let waits = |last: &Attempt| {
            is_within(self.survey.now, last.at, REQUEST_LIFETIME * last.number.clamp(1, MAX_BACKOFF_FACTOR))
        };
        if last.is_some_and(waits) {
            return Step::Wait;
        }
        let fault = last.and_then(|last| last.fault.clone());
        let started = Some(Attempt { fault, ..Attempt::after(last, self.survey.decided) });
        let request = Request::CreateServer {
            machine: self.view.name.to_owned(),
            image: image.clone(),
            cycle: entry.cycle.clone(),
            attributes: entry.attributes.clone(),
        };
        Step::Record(Machine { image: Some(image), given_up: true, started, ..entry.clone() }, Some(request))
    }
}

/// Whether an entry only says that a machine exists.
pub(crate) fn is_new<A>(entry: &Machine<A>) -> bool {
    !entry.given_up && entry.imaged.is_none()
}
