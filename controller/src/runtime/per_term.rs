//! What systems of several kinds share in one term of leadership.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use super::Hub;

/// A value of each term: what one term knew is never used in another.
#[derive(Debug, Default)]
pub struct PerTerm<T>(Mutex<Option<(Instant, Arc<T>)>>);

impl<T: Default> PerTerm<T> {
    /// The value of the term that this hub belongs to.
    pub fn of(&self, hub: &Hub) -> Arc<T> {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*current {
            Some((began, value)) if *began == hub.began => value.clone(),
            _ => current.insert((hub.began, Arc::default())).1.clone(),
        }
    }
}
