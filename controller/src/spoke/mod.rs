//! The sleeping cluster's own API server, reached by the administrator's kubeconfig that the installer left in a
//! Secret.
//!
//! The Secret belongs to a tenant and this process is ours: a kubeconfig that would run a program, read a file or send
//! us through a proxy is refused, and so is one that would have us trust anybody's certificate.

mod config;
mod connection;
pub mod csr;
pub mod kubeconfig;
pub mod reader;
mod route;
mod state;
mod threads;
mod watch;
pub mod webhooks;

use std::time::Duration;

use shared::spoke::Upgrade;
use shared::spoke::kinds::{ClusterVersion, OperatorCondition};
use shared::text::sanitize;

pub use self::connection::{client, failure};
use self::reader::{SpokeClient, is_not_there};
pub use self::route::Route;
pub use self::threads::Threads;
pub use self::watch::{Scope, SpokeWatch};
use crate::runtime::slot;
pub use cloud_common::Dialer;
use fair::Memory;

/// How long an answer may take.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);

/// How spokes are reached, and the memory for their answers.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// Which addresses are dialed.
    pub dialer: Dialer,
    /// The memory for answers.
    pub memory: Memory,
    /// Which threads dial.
    pub threads: Threads,
}

/// Asks the spoke whether it is being upgraded. One that cannot be asked is not kept awake for that.
pub async fn upgrade(client: &SpokeClient) -> Upgrade {
    match slot::outside(tokio::time::timeout(ANSWER_TIMEOUT, client.get::<ClusterVersion>("version"))).await {
        Ok(Ok(version)) => {
            let message = |found: &OperatorCondition| sanitize(found.message.as_deref().unwrap_or_default());
            version.status.progressing().map_or(Upgrade::Idle, |found| Upgrade::Progressing(message(found)))
        }
        Ok(Err(error)) if is_not_there(&error) => Upgrade::Idle,
        Ok(Err(_)) | Err(_) => Upgrade::Unknown,
    }
}
