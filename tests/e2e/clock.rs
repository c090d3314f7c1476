//! The wall clock of a program, which a test moves.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use jiff::SignedDuration;
use testbed::World;
use testbed::supervisor::programs::Start;

/// The wall clock of one program.
pub(crate) struct Clock {
    library: PathBuf,
    shift: PathBuf,
}

impl Clock {
    /// Compiles the library that moves it. Rust needs `cc` as its linker.
    pub(crate) fn new(world: &World) -> Result<Self> {
        let (source, library) = (world.dir().join("shift.c"), world.dir().join("shift.so"));
        fs::write(&source, include_str!("clock/shift.c"))?;
        let mut compiler = Command::new("cc");
        let compiled =
            compiler.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]).arg(&library).arg(&source).status();
        ensure!(compiled.context("run cc")?.success(), "cc {} failed", source.display());
        let clock = Self { library, shift: world.dir().join("shift") };
        clock.set(SignedDuration::ZERO)?;
        Ok(clock)
    }

    pub(crate) fn set(&self, shift: SignedDuration) -> Result<()> {
        let new = self.shift.with_extension("new");
        fs::write(&new, shift.as_secs().to_string())?;
        Ok(fs::rename(new, &self.shift)?)
    }

    /// A program that reads it.
    pub(crate) fn of(&self, mut program: Start) -> Start {
        let text = |path: &PathBuf| path.display().to_string();
        program.environment.insert("LD_PRELOAD".to_owned(), text(&self.library));
        program.environment.insert("CLOCK_SHIFT".to_owned(), text(&self.shift));
        program
    }
}
