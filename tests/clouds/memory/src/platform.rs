//! The platform `memory`, as a cloud registers it.

use std::sync::Arc;

use cloud_common::{Access, Platform, Process, SecretData};
use shared::cloud::{CloudError, ClusterRef, Driver};

use crate::faults;

/// The controller's flags for this platform.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct MemoryFlags {
    /// Name of a cloud in memory
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub memory_cloud: String,
}

/// One cloud in the memory of this process.
pub struct Memory {
    account: faults::Account,
}

impl Platform for Memory {
    const NAME: &'static str = "memory";
    type Flags = MemoryFlags;
    type Account = ();

    fn new(_flags: &MemoryFlags, process: &Process) -> Self {
        Self { account: faults::Account::new().by(process.permit.clone()) }
    }

    fn access(&self, _cluster: &ClusterRef) -> Result<Access<()>, CloudError> {
        Ok(Access { secrets: Vec::new(), account: () })
    }

    async fn connect(&self, _account: &(), _secrets: &[SecretData]) -> Result<Arc<dyn Driver>, String> {
        Ok(Arc::new(self.account.planner()))
    }
}
