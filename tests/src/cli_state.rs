//! The flag of every subcommand: which world.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use testbed::{World, paths};

#[derive(Args)]
pub(crate) struct State {
    /// Folder of the world [default: kubectl-hibernate-testbed in the folder for temporary files]
    #[arg(long, value_name = "DIR", env = "HIBERNATE_WORLD")]
    state: Option<PathBuf>,
}

impl State {
    pub(crate) fn dir(&self) -> PathBuf {
        self.state.clone().unwrap_or_else(paths::default_world)
    }

    pub(crate) fn open(&self) -> Result<World> {
        World::open(&self.dir())
    }
}
