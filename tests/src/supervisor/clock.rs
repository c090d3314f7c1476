//! What time it is in a world, and how fast things go there just now.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use shared::annotation::format;

use crate::options::Timings;

/// The world's timings, which can be changed while it runs.
#[derive(Clone)]
pub struct Clock {
    timings: Arc<RwLock<Timings>>,
}

impl Clock {
    /// A clock with these timings.
    pub fn new(timings: Timings) -> Self {
        Self { timings: Arc::new(RwLock::new(timings)) }
    }

    /// Seconds since 1970: the EC2 simulator, on the same machine, counts the same.
    pub fn now() -> f64 {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
    }

    /// Now, as Kubernetes writes it.
    pub fn text() -> String {
        format::seconds(Timestamp::now())
    }

    /// The timings that are in force.
    pub fn timings(&self) -> Timings {
        self.timings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts other timings in force.
    pub fn set(&self, timings: Timings) {
        *self.timings.write().unwrap_or_else(PoisonError::into_inner) = timings;
    }

    /// How long the simulators wait between two passes.
    pub async fn tick(&self) {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
