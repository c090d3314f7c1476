//! Worlds that tests of one process share, and limits for what would crowd out the others.

use std::{
    collections::BTreeMap,
    env,
    path::Path,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use anyhow::{Context as _, Result};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

use super::World;
use crate::options::Options;

/// Worlds of a test's own that are up at the same time: each takes about 600 MB, and its start keeps a core busy for seconds.
const OWN: usize = 2;

type Registry = BTreeMap<String, Arc<OnceCell<World>>>;

/// Never dropped: each world ends when it notices that its process has ended.
static WORLDS: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);
static OWNED: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(OWN)));
static HEAVY: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(1)));

impl Options {
    /// The same for equal worlds, whatever the order of their parts. A shared world chooses its own folder.
    fn key(&self) -> Result<String> {
        let mut without = self.without.clone();
        without.sort_unstable();
        without.dedup();
        let normal = Self { state: None, while_pid: None, without, ..self.clone() };
        serde_json::to_string(&normal).context("name a shared world")
    }
}

impl World {
    /// The world for tests that can share one: `$HIBERNATE_WORLD` if it is set, otherwise the one of [`Options::shared`].
    ///
    /// # Errors
    /// When a part does not start.
    pub async fn shared() -> Result<Self> {
        match env::var_os("HIBERNATE_WORLD").filter(|dir| !dir.is_empty()) {
            Some(dir) => Self::open(Path::new(&dir)),
            None => Self::shared_with(Options::shared()).await,
        }
    }

    /// The world with these options that all tests of this process share. The first to ask starts it; it ends with the process.
    ///
    /// # Errors
    /// When a part does not start.
    pub async fn shared_with(options: Options) -> Result<Self> {
        Self::shared_as("", options).await
    }

    /// As [`World::shared_with`], for the tests that agree on a name: they may do to it what others must not see.
    ///
    /// # Errors
    /// When a part does not start.
    pub async fn shared_as(name: &str, options: Options) -> Result<Self> {
        let key = format!("{name} {}", options.key()?);
        let cell = WORLDS.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
        cell.get_or_try_init(|| Self::boot(options, None)).await.cloned()
    }
}

/// Waits until a world of a test's own may start.
pub(super) async fn owned() -> Result<OwnedSemaphorePermit> {
    OWNED.clone().acquire_owned().await.context("wait for other tests' worlds")
}

/// Waits until no other heavy test runs: one that keeps the processor busy by itself, or that makes dozens of clusters. Keep the answer until its
/// end.
///
/// # Errors
/// Never: the semaphore is not closed.
pub async fn heavy() -> Result<OwnedSemaphorePermit> {
    HEAVY.clone().acquire_owned().await.context("wait for another heavy test")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Program, Timings};

    #[test]
    fn worlds_are_told_apart_by_what_they_are_made_of() {
        let key = |options: Options| options.key().unwrap();
        let both = Options::without_programs();
        let swapped = Options { without: vec![Program::Webhook, Program::Controller], ..Options::default() };
        assert_eq!(key(both.clone()), key(swapped));
        assert_eq!(key(both.clone()), key(Options { while_pid: Some(1), state: Some("x".into()), ..both.clone() }));
        assert_ne!(key(both.clone()), key(Options { hub_proxy: true, ..both.clone() }));
        assert_ne!(key(both.clone()), key(Options { timings: Timings::fast(), ..both }));
    }
}
