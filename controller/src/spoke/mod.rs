//! The sleeping cluster's own API server, reached by the administrator's kubeconfig that the installer left in a
//! Secret.
//!
//! The Secret belongs to a tenant and this process is ours: a kubeconfig that would run a program, read a file or send
//! us through a proxy is refused, and so is one that would have us trust anybody's certificate.

mod config;
mod connection;
pub mod kubeconfig;
mod objects;
pub mod reader;
mod route;
mod state;
mod watch;
pub mod webhooks;

use std::future::{Future, pending};
use std::num::NonZero;
use std::thread::available_parallelism;
use std::time::Duration;

use shared::spoke::Upgrade;
use shared::spoke::kinds::{ClusterVersion, OperatorCondition};
use shared::text::sanitize;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::{JoinError, JoinSet};

pub use self::connection::{client, failure};
use self::reader::{SpokeClient, is_not_there};
pub use self::route::Route;
pub use self::watch::{Scope, SpokeWatch};
use crate::runtime::slot;
pub use cloud_common::Dialer;
use fair::MemoryLimit;

/// How long an answer may take.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);

/// How spokes are reached, and the memory for their answers.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// Which addresses are dialed.
    pub dialer: Dialer,
    /// The memory for answers.
    pub memory: MemoryLimit,
    /// Which threads dial.
    pub threads: Threads,
}

/// Threads that make and encrypt connections to spokes; by default those of the caller. All reconciles run on one thread,
/// and a thousand TLS handshakes there would hold up every other cluster for seconds.
#[derive(Clone, Debug, Default)]
pub struct Threads(Option<Handle>);

impl Threads {
    /// A runtime with half of the cores, which the process keeps until it ends.
    ///
    /// # Errors
    /// If the operating system gives no thread.
    pub fn runtime() -> std::io::Result<Runtime> {
        let cores = available_parallelism().map_or(1, NonZero::get);
        Builder::new_multi_thread().worker_threads(cores.div_ceil(2)).thread_name("spokes").enable_all().build()
    }

    /// Runs this there, until its result is no longer waited for.
    ///
    /// # Errors
    /// If it panics, or the runtime ends.
    pub async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Result<T, JoinError> {
        // A set aborts its tasks when it is dropped.
        let mut tasks = JoinSet::new();
        tasks.spawn_on(work, &self.0.clone().unwrap_or_else(Handle::current));
        match tasks.join_next().await {
            Some(ended) => ended,
            None => pending().await, // the set has one
        }
    }
}

impl From<&Runtime> for Threads {
    fn from(runtime: &Runtime) -> Self {
        Self(Some(runtime.handle().clone()))
    }
}

/// Asks the spoke whether it is being upgraded.
pub async fn upgrade(client: &SpokeClient) -> Upgrade {
    match slot::outside(tokio::time::timeout(ANSWER_TIMEOUT, client.get::<ClusterVersion>("version"))).await {
        Ok(Ok(version)) => {
            let message = |found: &OperatorCondition| sanitize(found.message.as_deref().unwrap_or_default());
            version.status.progressing().map_or(Upgrade::Idle, |found| Upgrade::Progressing(message(found)))
        }
        Ok(Err(error)) if is_not_there(&error) => Upgrade::Idle,
        Ok(Err(_)) | Err(_) => {
            Upgrade::Unknown("its API server does not answer: a sleep could interrupt an upgrade".to_owned())
        }
    }
}
