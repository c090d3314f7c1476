//! Why a reconcile has ended early: one error of all systems. Each variant names the action that failed and keeps its
//! source; its name is a metric label, and its class says how soon the next reconcile follows.

use std::time::Duration;

use shared::record::RecordError;
use shared::spoke::SpokeError;

use super::WriteError;
use super::panics::Panic;
use super::write::{Moved, classify};

/// Why a reconcile has ended early. It is repeated as its [`Class`] says; nothing is lost. The names are metric labels.
#[derive(Debug, thiserror::Error, strum::IntoStaticStr)]
pub enum ReconcileError {
    /// The hub did not answer.
    #[error("read {0}")]
    Read(&'static str, #[source] Box<kube::Error>),
    /// What belongs to the target could not be listed.
    #[error("list {0}")]
    List(&'static str, #[source] Box<kube::Error>),
    /// The hub did not give what a connection to a spoke needs: that says nothing about the cluster.
    #[error("{0}")]
    Spoke(&'static str, #[source] SpokeError),
    /// The user cluster did not do what it was asked to.
    #[error("write {0} of the user cluster")]
    User(String, #[source] SpokeError),
    /// The user's field was not written.
    #[error("write spec.powerState")]
    Intent(#[source] WriteError),
    /// The status was not written.
    #[error("write the status")]
    Status(#[source] WriteError),
    /// KKP's Cluster was not written.
    #[error("write the Cluster")]
    Cluster(#[source] WriteError),
    /// A target of a rollout was not written.
    #[error("write a target")]
    Target(#[source] WriteError),
    /// Something that belongs to the target was not written.
    #[error("write {0}")]
    Write(String, #[source] WriteError),
    /// The record of a sleep, or of a rollout's members, was not written.
    #[error("write the record")]
    Record(#[source] WriteError),
    /// The record of a sleep has become too long.
    #[error("write the record")]
    TooLong(#[source] RecordError),
    /// The record of a rollout's members cannot be read.
    #[error("record the members: {0}")]
    Unrecorded(String),
    /// An earlier leader has recorded the members.
    #[error("the members are recorded")]
    Recorded,
    /// An expired rollout was not deleted.
    #[error("delete the expired rollout")]
    Delete(#[source] WriteError),
    /// The watch is late.
    #[error("the rollout has changed")]
    Moved,
    /// The desired state has changed since the decision, or the machines are those of another object.
    #[error("spec.powerState or the owner of the machines changed during the reconcile")]
    Outdated,
    /// The claim to lead does not hold.
    #[error("this controller is no longer the leader")]
    NotLeader,
    /// It was given up.
    #[error("the reconcile took longer than {0:?}")]
    TimedOut(Duration),
    /// It has panicked.
    #[error("the reconcile panicked")]
    Panicked(Panic),
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
    /// For what the hub did not give.
    pub fn read(what: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Read(what, Box::new(source))
    }

    /// For a write that names no version: what the API server refuses, it would refuse again.
    pub fn unversioned(what: String) -> impl FnOnce(kube::Error) -> Self {
        move |error| match error {
            kube::Error::Api(status) if matches!(status.code, 400 | 403 | 413 | 422) => {
                Self::Write(what, WriteError::Refused(Box::new(kube::Error::Api(status))))
            }
            error => Self::Write(what, classify(error, Moved::Unknown)),
        }
    }

    /// The write that has failed.
    fn write(&self) -> Option<&WriteError> {
        match self {
            Self::Intent(write)
            | Self::Status(write)
            | Self::Cluster(write)
            | Self::Target(write)
            | Self::Record(write)
            | Self::Write(_, write)
            | Self::Delete(write) => Some(write),
            _ => None,
        }
    }

    /// How soon the next reconcile follows.
    pub fn class(&self) -> Class {
        if let Some(write) = self.write() {
            let is_of_target = matches!(self, Self::Intent(_) | Self::Status(_) | Self::Cluster(_));
            // An object that is gone and is not the reconciled one is read again.
            return if write.class() == Class::Gone && !is_of_target { Class::Conflict } else { write.class() };
        }
        match self {
            Self::Recorded | Self::Moved | Self::Outdated => Class::Outdated,
            Self::NotLeader => Class::NotLeader,
            Self::TimedOut(_) => Class::TimedOut,
            Self::Panicked(_) => Class::Panicked,
            _ => Class::Failed,
        }
    }

    /// Its name as a metric label.
    pub fn label(&self) -> &'static str {
        match self.class() {
            Class::NotLeader => "NotLeader", // whatever was to be written
            _ => self.into(),
        }
    }

    /// The API server's words, if it has refused a write.
    pub fn refusal(&self) -> Option<String> {
        self.write()?.refusal()
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn status(code: u16) -> kube::Error {
        kube::Error::Api(Status::failure("no", "Any").with_code(code).boxed())
    }

    #[test]
    fn what_is_published_of_each_failure() {
        use ReconcileError as E;
        let answer = |code| Box::new(status(code));
        let (gone, conflict) = (|| WriteError::Gone(answer(404)), || WriteError::Conflict(answer(409)));
        let failed = || WriteError::Failed(answer(500));
        let unversioned = |code| E::unversioned("Deployment a".to_owned())(status(code));
        let spoke = || SpokeError::Failed("no".to_owned());
        let outdated = "spec.powerState or the owner of the machines changed during the reconcile";
        for (error, label, class, text) in [
            (E::Read("the record", answer(404)), "Read", Class::Failed, "read the record"),
            (E::List("PVCs of the cluster", answer(409)), "List", Class::Failed, "list PVCs of the cluster"),
            (E::Spoke("check a target", spoke()), "Spoke", Class::Failed, "check a target"),
            (E::User("Node a".to_owned(), spoke()), "User", Class::Failed, "write Node a of the user cluster"),
            // The target itself.
            (E::Intent(gone()), "Intent", Class::Gone, "write spec.powerState"),
            (E::Status(gone()), "Status", Class::Gone, "write the status"),
            (E::Cluster(gone()), "Cluster", Class::Gone, "write the Cluster"),
            (E::Status(conflict()), "Status", Class::Conflict, "write the status"),
            (E::Intent(failed()), "Intent", Class::Failed, "write spec.powerState"),
            // Anything else.
            (E::Target(failed()), "Target", Class::Failed, "write a target"),
            (E::Record(gone()), "Record", Class::Conflict, "write the record"),
            (E::Write("the stamp of a".to_owned(), gone()), "Write", Class::Conflict, "write the stamp of a"),
            (E::Write("the stamp of a".to_owned(), failed()), "Write", Class::Failed, "write the stamp of a"),
            (unversioned(404), "Write", Class::Conflict, "write Deployment a"),
            (unversioned(409), "Write", Class::Conflict, "write Deployment a"),
            (unversioned(500), "Write", Class::Failed, "write Deployment a"),
            (E::TooLong(RecordError::TooLong(9)), "TooLong", Class::Failed, "write the record"),
            (E::Unrecorded("why".to_owned()), "Unrecorded", Class::Failed, "record the members: why"),
            (E::Delete(failed()), "Delete", Class::Failed, "delete the expired rollout"),
            (E::Recorded, "Recorded", Class::Outdated, "the members are recorded"),
            (E::Moved, "Moved", Class::Outdated, "the rollout has changed"),
            (E::Outdated, "Outdated", Class::Outdated, outdated),
            // Not to lead is no failure, whatever was to be written.
            (E::NotLeader, "NotLeader", Class::NotLeader, "this controller is no longer the leader"),
            (E::Target(WriteError::NotLeader), "NotLeader", Class::NotLeader, "write a target"),
            (E::Status(WriteError::NotLeader), "NotLeader", Class::NotLeader, "write the status"),
            (E::TimedOut(Duration::from_secs(9)), "TimedOut", Class::TimedOut, "the reconcile took longer than 9s"),
        ] {
            assert_eq!((error.label(), error.class(), error.to_string().as_str()), (label, class, text));
            assert_eq!(error.refusal(), None, "{error}");
        }
    }

    #[test]
    fn a_refused_write_says_so_in_the_words_of_the_api_server() {
        use ReconcileError as E;
        let refused = || WriteError::Refused(Box::new(status(422)));
        let write = |source| E::Write("the stamp of a".to_owned(), source);
        let unversioned = [400, 403, 413, 422].map(|code| E::unversioned("Deployment a".to_owned())(status(code)));
        let versioned =
            [E::Intent(refused()), E::Status(refused()), E::Cluster(refused()), E::Record(refused()), write(refused())];
        for error in versioned.into_iter().chain(unversioned) {
            assert_eq!((error.class(), error.refusal().as_deref()), (Class::Refused, Some("no")), "{error}");
        }
    }
}
