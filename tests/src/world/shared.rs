//! Worlds that tests of one process share, and limits for what would crowd out the others.

use std::collections::BTreeMap;
use std::env;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use anyhow::{Context as _, Result};
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

use super::{Inner, World};
use crate::options::Options;
use crate::supervisor::programs::Start;

/// Private worlds that run at the same time: each takes about 900 MB, and its start keeps a core busy for seconds.
const MAX_PRIVATE: usize = 6;

/// API servers that start at the same time: each keeps a core busy for seconds, and what runs already has to go on.
const MAX_STARTING: u32 = 6;

type Slot = Arc<tokio::sync::Mutex<Weak<Inner>>>;

/// Worlds by their key. Each ends with the last test that uses it: an API server that nobody asks anything keeps a core
/// busy all the same.
static WORLDS: Mutex<BTreeMap<String, Slot>> = Mutex::new(BTreeMap::new());
/// Never dropped: it ends when its supervisor sees the test process exit.
static COMMON: OnceCell<World> = OnceCell::const_new();
static PRIVATE: Semaphore = Semaphore::const_new(MAX_PRIVATE);
static STARTING: Semaphore = Semaphore::const_new(MAX_STARTING as usize);
static HEAVY: Semaphore = Semaphore::const_new(1);

/// Normalizes options, so that equal worlds have equal keys. A shared world chooses its own folder.
fn normalized(options: Options) -> Options {
    let mut without = options.without;
    without.sort_unstable();
    without.dedup();
    Options { state: None, while_pid: None, without, ..options }
}

/// Key of a shared world in the registry.
fn key(options: &Options, program: Option<&Start>) -> Result<String> {
    serde_json::to_string(&(options, program)).context("serialize the options of a shared world")
}

impl World {
    /// The world for tests that can share one: `$HIBERNATE_WORLD` if it is set, otherwise the one of
    /// [`Options::shared`].
    ///
    /// # Errors
    /// When a part does not start.
    pub async fn shared() -> Result<Self> {
        match env::var_os("HIBERNATE_WORLD").filter(|dir| !dir.is_empty()) {
            Some(dir) => Self::open(Path::new(&dir)),
            None => COMMON.get_or_try_init(|| Self::boot(normalized(Options::shared()), None)).await.cloned(),
        }
    }

    /// The world with these options that the tests share which run at the same time. The first caller starts it, and it
    /// ends with its last copy.
    ///
    /// # Errors
    /// When a part does not start.
    pub async fn shared_with(options: Options) -> Result<Self> {
        Self::shared_by(options, None).await
    }

    /// The world with these options and one program of ours with arguments of its own. Tests that pass the same
    /// arguments share it.
    ///
    /// # Errors
    /// When a part does not start.
    pub async fn shared_with_program(options: Options, program: &Start) -> Result<Self> {
        Self::shared_by(options, Some(program)).await
    }

    async fn shared_by(options: Options, program: Option<&Start>) -> Result<Self> {
        let options = normalized(options);
        let key = key(&options, program)?;
        let slot = WORLDS.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
        let mut running = slot.lock().await;
        if let Some(inner) = running.upgrade() {
            return Ok(Self { inner });
        }
        let world = Self::boot(options, None).await?;
        if let Some(program) = program {
            world.start(program).await?;
        }
        *running = Arc::downgrade(&world.inner);
        Ok(world)
    }
}

/// Waits until a private world may start.
pub(super) async fn private() -> Result<SemaphorePermit<'static>> {
    PRIVATE.acquire().await.context("wait for other tests' worlds")
}

/// Waits until a world of so many spokes and a hub may start. Hold the permits until it is up.
pub(super) async fn starting(spokes: usize) -> Result<SemaphorePermit<'static>> {
    let servers = u32::try_from(spokes + 1).unwrap_or(MAX_STARTING).min(MAX_STARTING);
    STARTING.acquire_many(servers).await.context("wait until other tests' worlds are up")
}

/// Waits until no other heavy test runs: one that saturates a core or creates dozens of clusters. Hold the permit until
/// the test ends.
///
/// # Errors
/// Never: the semaphore is not closed.
pub async fn heavy() -> Result<SemaphorePermit<'static>> {
    HEAVY.acquire().await.context("wait for another heavy test")
}
