//! One driver for all clusters with the same credentials.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

/// Drivers in use, so that clusters of one account share calls and limits.
///
/// Clusters share a driver only if their credentials are identical: no tenant gains another's permissions. It keeps no
/// credentials, only their [`digest`].
pub struct Pool<D>(Mutex<Vec<([u8; 32], Weak<D>)>>);

impl<D> Default for Pool<D> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<D> Pool<D> {
    /// The driver for these credentials: one that is in use, or a new one.
    pub fn get<K: Hash, E>(&self, credentials: K, make: impl FnOnce(K) -> Result<D, E>) -> Result<Arc<D>, E> {
        let digest = digest(&credentials);
        let mut kept = self.0.lock();
        kept.retain(|(_, driver)| driver.strong_count() > 0);
        if let Some(driver) = kept.iter().find(|(of, _)| *of == digest).and_then(|(_, driver)| driver.upgrade()) {
            return Ok(driver);
        }
        let driver = Arc::new(make(credentials)?);
        kept.push((digest, Arc::downgrade(&driver)));
        Ok(driver)
    }
}

/// SHA-256 of credentials: the key of their pool.
pub fn digest(credentials: &impl Hash) -> [u8; 32] {
    struct Bytes(Sha256);

    impl Hasher for Bytes {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }

        fn finish(&self) -> u64 {
            0 // nobody asks
        }
    }

    let mut bytes = Bytes(Sha256::new());
    credentials.hash(&mut bytes);
    bytes.0.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_credentials_get_the_same_driver_while_it_is_in_use() {
        let pool = Pool::default();
        let get = |key| pool.get(key, Ok::<_, ()>).unwrap();
        let (first, second, other) = (get("a"), get("a"), get("b"));
        assert!(Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&first, &other));
        drop((first, second));
        assert_eq!(pool.get("a", |_| Err("made anew")).err(), Some("made anew"));
    }

    #[test]
    fn credentials_that_read_alike_are_told_apart() {
        assert_eq!(digest(&("a", "b")), digest(&("a".to_owned(), "b")));
        for other in [("ab", ""), ("", "ab"), ("b", "a")] {
            assert_ne!(digest(&("a", "b")), digest(&other));
        }
        assert_ne!(digest(&Some("")), digest(&None::<&str>));
        let pool = Pool::default();
        let _driver = pool.get("hush", Ok::<_, ()>).unwrap();
        assert_eq!(pool.0.lock()[0].0, digest(&"hush"), "nothing else is kept");
    }
}
