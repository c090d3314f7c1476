//! The durable record of a cluster whose machines are deleted while it sleeps.
//!
//! The trait is free of I/O. The controller implements it with one Secret per target; tests implement it in memory.

use futures::future::BoxFuture;

use super::{CloudError, CloudErrorKind};

/// A stored record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What the driver wrote, in its [format](crate::record::Format); or what another program has, if there is nothing
    /// else.
    pub text: String,
    /// Version of this content: a replacement or removal names the version that it is based on.
    pub version: String,
}

/// Why a record could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// Another writer was quicker. Nothing was written; read again.
    #[error("the record of the cluster's machines has changed since it was read")]
    Conflict,
    /// This process may no longer act. Nothing was written.
    #[error("the record of the cluster's machines is not written: not the leader any more")]
    NotLeader,
    /// The controller has no permission. Nothing was read or written.
    #[error("{0}")]
    Denied(String),
    /// What is stored is no record of this cluster: only a change of it helps. Nothing was written.
    #[error("{0}")]
    Refused(String),
    /// The store does not answer, or refuses. Whether a write took place is not known.
    #[error("{0}")]
    Failed(String),
}

impl From<LedgerError> for CloudError {
    fn from(error: LedgerError) -> Self {
        let kind = match error {
            LedgerError::NotLeader => CloudErrorKind::NotLeader,
            LedgerError::Denied(_) => CloudErrorKind::Denied,
            LedgerError::Refused(_) => CloudErrorKind::Invalid,
            LedgerError::Conflict | LedgerError::Failed(_) => CloudErrorKind::Unavailable,
        };
        Self { kind, message: error.to_string() }
    }
}

/// The answer of a ledger.
pub type LedgerFuture<'a, T> = BoxFuture<'a, Result<T, LedgerError>>;

/// Where one target's record is kept. Every write is a compare-and-swap, so that of two writers one loses and hears of
/// it.
pub trait Ledger: Send + Sync {
    /// The record, or `None` if there is none.
    fn read(&self) -> LedgerFuture<'_, Option<Entry>>;
    /// Writes the record and returns its new version. With `seen` it replaces that version; without, there must be
    /// none. `export` is the same in another program's format, which is kept beside it.
    fn write<'a>(&'a self, text: &'a str, export: Option<&'a str>, seen: Option<&'a str>) -> LedgerFuture<'a, String>;
    /// Removes the record, if it still is the version `seen`.
    fn clear<'a>(&'a self, seen: &'a str) -> LedgerFuture<'a, ()>;
}
