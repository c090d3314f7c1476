//! One driver for all clusters with the same credentials.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Drivers in use, so that clusters of one account share calls and limits.
///
/// Only who brings the same credentials, character by character, gets the same driver: a tenant never profits from what
/// another one may do.
pub struct Pool<K, D>(Mutex<Vec<(K, Weak<D>)>>);

impl<K, D> Default for Pool<K, D> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: PartialEq, D> Pool<K, D> {
    /// The driver for these credentials: one that is in use, or a new one.
    ///
    /// # Errors
    /// As `make` says.
    pub fn get<E>(&self, credentials: K, make: impl FnOnce(&K) -> Result<D, E>) -> Result<Arc<D>, E> {
        let mut kept = self.0.lock();
        kept.retain(|(_, driver)| driver.strong_count() > 0);
        if let Some(driver) = kept.iter().find(|(of, _)| *of == credentials).and_then(|(_, driver)| driver.upgrade()) {
            return Ok(driver);
        }
        let driver = Arc::new(make(&credentials)?);
        kept.push((credentials, Arc::downgrade(&driver)));
        Ok(driver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_credentials_get_the_same_driver_while_it_is_in_use() {
        let pool = Pool::default();
        let get = |key| pool.get(key, |key| Ok::<_, ()>(*key)).unwrap();
        let (first, second, other) = (get("a"), get("a"), get("b"));
        assert!(Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&first, &other));
        drop((first, second));
        assert_eq!(pool.get("a", |_| Err("made anew")).err(), Some("made anew"));
    }
}
