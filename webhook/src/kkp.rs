//! Deletions of KKP's Clusters that this replica refused: the only thing that an answer remembers. Each replica refuses once at most, and
//! a restart forgets.

use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use shared::admission::Judgement;
use shared::kkp::admission::{Deletion, Refusals, judge_deletion};

/// The refusals.
#[derive(Debug, Default)]
pub struct Deletions(Mutex<Refusals>);

impl Deletions {
    /// Judges a DELETE. What was refused before passes with a warning. A dry run is remembered nowhere.
    #[must_use]
    pub fn judge(&self, deletion: &Deletion, now: Timestamp, dry_run: bool) -> Judgement {
        let judgement = judge_deletion(deletion, now);
        if judgement.allows() {
            return judgement;
        }
        // Nothing panics while it holds the lock, and the table is sound at any time.
        let mut refusals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if refusals.contains(&deletion.uid, now) {
            return judgement.softened();
        }
        if !dry_run {
            refusals.remember(&deletion.uid, now);
        }
        judgement
    }
}
