//! Why a reconcile of a cluster ended early.

use crate::runtime::{Class, Failure, WriteError};

/// Why a reconcile ended early. It is repeated soon; nothing is lost. The names are metric labels.
#[derive(Debug, thiserror::Error, strum::IntoStaticStr)]
pub enum HiveError {
    /// The user's field could not be written.
    #[error("write spec.powerState")]
    Intent(#[source] WriteError),
    /// The status could not be written.
    #[error("write the status")]
    Status(#[source] WriteError),
    /// Somebody wants something else by now than what was decided about, or the machines are another object's.
    #[error("spec.powerState or the owner of the machines changed during the reconcile")]
    Outdated,
    /// Another controller leads.
    #[error("this controller is no longer the leader")]
    NotLeader,
}

impl Failure for HiveError {
    fn class(&self) -> Class {
        match self {
            Self::Intent(error) | Self::Status(error) => error.class(),
            Self::Outdated => Class::Outdated,
            Self::NotLeader => Class::NotLeader,
        }
    }

    fn label(&self) -> &'static str {
        self.into()
    }

    fn refusal(&self) -> Option<String> {
        match self {
            Self::Intent(error) | Self::Status(error) => error.refusal(),
            Self::Outdated | Self::NotLeader => None,
        }
    }
}
