//! A ledger in memory.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use parking_lot::Mutex;
use shared::cloud::{Entry, Ledger, LedgerError, LedgerFuture};

/// One record, with a version for each write. It counts its calls.
#[derive(Debug, Default)]
pub struct TestLedger {
    record: Mutex<Option<Entry>>,
    calls: AtomicUsize,
}

impl TestLedger {
    /// How often it was called.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Puts this in place of the version that was seen.
    fn swap(&self, text: Option<&str>, seen: Option<&str>) -> Result<String, LedgerError> {
        let version = self.calls.fetch_add(1, Ordering::SeqCst).to_string();
        let mut record = self.record.lock();
        if record.as_ref().map(|entry| entry.version.as_str()) != seen {
            return Err(LedgerError::Conflict);
        }
        *record = text.map(|text| Entry { text: text.to_owned(), version: version.clone() });
        Ok(version)
    }
}

impl Ledger for TestLedger {
    fn read(&self) -> LedgerFuture<'_, Option<Entry>> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let record = self.record.lock().clone();
        async { Ok(record) }.boxed()
    }

    fn write<'a>(&'a self, text: &'a str, _export: Option<&'a str>, seen: Option<&'a str>) -> LedgerFuture<'a, String> {
        async move { self.swap(Some(text), seen) }.boxed()
    }

    fn clear<'a>(&'a self, seen: &'a str) -> LedgerFuture<'a, ()> {
        async move { self.swap(None, Some(seen)).map(drop) }.boxed()
    }
}
