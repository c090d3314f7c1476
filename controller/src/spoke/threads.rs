//! Where connections to spokes are made and encrypted: on threads of their own. All reconciles run on one thread, and a
//! thousand TLS handshakes there would hold up every other cluster for seconds.

use std::future::{Future, pending};
use std::num::NonZero;
use std::thread::available_parallelism;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::{JoinError, JoinSet};

/// The runtime of those threads. By default that of the caller.
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
