//! A ledger for drivers that keep no record.

use futures::FutureExt;
use futures::future::BoxFuture;
use shared::cloud::{Entry, Ledger, LedgerError};

/// It is empty, and refuses every write.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLedger;

impl NoLedger {
    fn refused<T>() -> Result<T, LedgerError> {
        Err(LedgerError::Failed("this platform keeps no record of machines".to_owned()))
    }
}

impl Ledger for NoLedger {
    fn read(&self) -> BoxFuture<'_, Result<Option<Entry>, LedgerError>> {
        async { Ok(None) }.boxed()
    }

    fn write<'a>(
        &'a self,
        _text: &'a str,
        _export: Option<&'a str>,
        _seen: Option<&'a str>,
    ) -> BoxFuture<'a, Result<String, LedgerError>> {
        async { Self::refused() }.boxed()
    }

    fn clear<'a>(&'a self, _seen: &'a str) -> BoxFuture<'a, Result<(), LedgerError>> {
        async { Self::refused() }.boxed()
    }
}
