//! Writes the generated part of `manifests/` and the chart, or says that the committed copy is stale.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Write the generated part of manifests/.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Write nothing; fail when a file differs from what would be written
    #[arg(long)]
    check: bool,
    /// Folder to write into or to compare with
    #[arg(long, default_value = "manifests")]
    folder: PathBuf,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {}", shared::text::sanitize_chain(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode, manifests::tree::TreeError> {
    if !arguments.check {
        manifests::tree::write(&arguments.folder)?;
        return Ok(ExitCode::SUCCESS);
    }
    let stale = manifests::tree::stale(&arguments.folder)?;
    for name in &stale {
        eprintln!("error: {name} is stale: run `cargo run --release -p hibernate-manifests`");
    }
    Ok(if stale.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
