//! Why a reconcile has ended early: one error of all systems. It names the action that failed, and keeps its source. Its
//! class says how soon the next reconcile follows.

use std::borrow::Cow;
use std::error::Error;
use std::fmt::Display;

use kube::core::Status;
use shared::spoke::SpokeError;

use super::WriteError;

/// What an API server says of a write that has lost a race.
const MODIFIED: &str = "the object has been modified";

/// Why a reconcile has ended early. It is repeated as its [`Class`] says; nothing is lost.
#[derive(Debug, thiserror::Error)]
#[error("{action}")]
pub struct ReconcileError {
    action: Cow<'static, str>,
    label: &'static str,
    class: Class,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// What a reconcile, or a part of one, comes to.
pub type Reconciled<T> = Result<T, ReconcileError>;

/// The classes of failure, which decide how soon a target is reconciled again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The target does not exist any more: everything about it is forgotten.
    Gone,
    /// Another client wrote first: again at once, with some backoff.
    Conflict,
    /// The API server refuses what is written, and would refuse it again: reported, and tried again ever more slowly.
    Refused,
    /// The target has changed in the middle of the reconcile: again at once.
    Outdated,
    /// The claim to lead does not hold. If another controller leads, this term ends; if this one was late to renew, it
    /// goes on.
    NotLeader,
    /// The reconcile took too long.
    TimedOut,
    /// The reconcile has panicked: reported, and tried again very slowly.
    Panicked,
    /// Anything else: again in some seconds.
    Failed,
}

impl ReconcileError {
    /// Of an action that failed, in words that follow "cannot", and with a name as a metric label.
    pub fn new(label: &'static str, class: Class, action: impl Into<Cow<'static, str>>) -> Self {
        Self { action: action.into(), label, class, source: None }
    }

    /// The same with its source.
    pub fn because(self, source: impl Error + Send + Sync + 'static) -> Self {
        Self { source: Some(Box::new(source)), ..self }
    }

    /// For what the hub did not give.
    pub fn read(what: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::new("Read", Class::Failed, format!("read {what}")).because(source)
    }

    /// For what belongs to the target and could not be listed.
    pub fn list(what: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::new("List", Class::Failed, format!("list {what}")).because(source)
    }

    /// For what the hub did not give and a connection to a spoke needs: that says nothing about the cluster.
    pub fn spoke(action: &'static str) -> impl FnOnce(SpokeError) -> Self {
        move |source| Self::new("Spoke", Class::Failed, action).because(source)
    }

    /// For a write to the target itself.
    pub fn of_target(label: &'static str, action: &'static str) -> impl FnOnce(WriteError) -> Self {
        move |source| Self::new(label, source.class(), action).because(source)
    }

    /// For a write to any other object: one that is gone is read again.
    pub fn of_other(label: &'static str, action: impl Into<Cow<'static, str>>) -> impl FnOnce(WriteError) -> Self {
        move |source| {
            let class = if source.class() == Class::Gone { Class::Conflict } else { source.class() };
            Self::new(label, class, action).because(source)
        }
    }

    /// For the status of the target.
    pub fn status(source: WriteError) -> Self {
        Self::of_target("Status", "write the status")(source)
    }

    /// For something that belongs to the target.
    pub fn write(what: impl Display) -> impl FnOnce(WriteError) -> Self {
        move |source| Self::of_other("Write", format!("write {what}"))(source)
    }

    /// For a write that names no version: what the API server refuses, it would refuse again. A 409 is a denial, too, but
    /// for that of an API server whose own tries have all lost a race.
    pub fn unversioned(what: String) -> impl FnOnce(kube::Error) -> Self {
        move |error| {
            let is_race = |status: &Status| status.reason == "Conflict" && status.message.contains(MODIFIED);
            let kind = match &error {
                kube::Error::Api(status) if is_race(status) => WriteError::Conflict,
                kube::Error::Api(status) if matches!(status.code, 400 | 403 | 409 | 413 | 422) => WriteError::Refused,
                _ => WriteError::Failed,
            };
            Self::write(what)(kind(Box::new(error)))
        }
    }

    /// The claim to lead does not hold.
    pub fn not_leader() -> Self {
        Self::new("NotLeader", Class::NotLeader, "this controller is no longer the leader")
    }

    /// How soon the next reconcile follows.
    pub fn class(&self) -> Class {
        self.class
    }

    /// Its name as a metric label.
    pub fn label(&self) -> &'static str {
        match self.class {
            Class::NotLeader => "NotLeader", // whatever was to be written
            _ => self.label,
        }
    }

    /// The source, if it is of this type.
    pub fn cause<E: Error + 'static>(&self) -> Option<&E> {
        self.source.as_deref()?.downcast_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16) -> kube::Error {
        kube::Error::Api(Status::failure("no", "Any").with_code(code).boxed())
    }

    fn lost_race() -> kube::Error {
        let message =
            format!("Operation cannot be fulfilled: {MODIFIED}; please apply your changes to the latest version");
        kube::Error::Api(Status::failure(&message, "Conflict").with_code(409).boxed())
    }

    #[test]
    fn what_is_published_of_each_failure() {
        use ReconcileError as E;
        let answer = |code| Box::new(status(code));
        let (gone, conflict) = (|| WriteError::Gone(answer(404)), || WriteError::Conflict(answer(409)));
        let failed = || WriteError::Failed(answer(500));
        let of_target = |source| E::of_target("Intent", "write spec.powerState")(source);
        let of_other = |source| E::of_other("Record", "write the record")(source);
        let unversioned = |code| E::unversioned("Deployment a".to_owned())(status(code));
        let stamp = |source| E::write("the stamp of a")(source);
        let spoke = SpokeError::Failed("no".to_owned());
        for (error, label, class, text) in [
            (E::read("the record")(status(404)), "Read", Class::Failed, "read the record"),
            (E::list("PVCs of the cluster")(status(409)), "List", Class::Failed, "list PVCs of the cluster"),
            (E::spoke("check a target")(spoke), "Spoke", Class::Failed, "check a target"),
            (E::new("Moved", Class::Outdated, "it has changed"), "Moved", Class::Outdated, "it has changed"),
            // The target itself.
            (of_target(gone()), "Intent", Class::Gone, "write spec.powerState"),
            (of_target(failed()), "Intent", Class::Failed, "write spec.powerState"),
            (E::status(gone()), "Status", Class::Gone, "write the status"),
            (E::status(conflict()), "Status", Class::Conflict, "write the status"),
            // Anything else.
            (of_other(gone()), "Record", Class::Conflict, "write the record"),
            (of_other(failed()), "Record", Class::Failed, "write the record"),
            (stamp(gone()), "Write", Class::Conflict, "write the stamp of a"),
            (stamp(failed()), "Write", Class::Failed, "write the stamp of a"),
            (unversioned(404), "Write", Class::Failed, "write Deployment a"),
            (E::unversioned("Deployment a".to_owned())(lost_race()), "Write", Class::Conflict, "write Deployment a"),
            (unversioned(500), "Write", Class::Failed, "write Deployment a"),
            // Not to lead is no failure, whatever was to be written.
            (E::not_leader(), "NotLeader", Class::NotLeader, "this controller is no longer the leader"),
            (of_other(WriteError::NotLeader), "NotLeader", Class::NotLeader, "write the record"),
            (E::status(WriteError::NotLeader), "NotLeader", Class::NotLeader, "write the status"),
        ] {
            assert_eq!((error.label(), error.class(), error.to_string().as_str()), (label, class, text));
            assert_eq!(error.cause().and_then(WriteError::refusal), None, "{error}");
        }
    }

    #[test]
    fn a_refused_write_says_so_in_the_words_of_the_api_server() {
        use ReconcileError as E;
        let refused = || WriteError::Refused(Box::new(status(422)));
        let codes = [400, 403, 409, 413, 422];
        let unversioned = codes.map(|code| E::unversioned("Deployment a".to_owned())(status(code)));
        let versioned = [E::status(refused()), E::write("the stamp of a")(refused())];
        for error in versioned.into_iter().chain(unversioned) {
            let words = error.cause().and_then(WriteError::refusal);
            assert_eq!((error.class(), words.as_deref()), (Class::Refused, Some("no")), "{error}");
        }
    }
}
