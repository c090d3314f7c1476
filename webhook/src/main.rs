//! `hibernate-webhook`: see [`webhook`].

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;
use webhook::args::{Args, LogFormat};
use webhook::run::run;

fn main() -> ExitCode {
    // Before anything else can pick one: two providers in one process panic.
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        eprintln!("error: another TLS provider is installed already");
        return ExitCode::FAILURE;
    }
    let args = Args::parse();
    log(args.log_format);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// An error with all its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Log lines go to standard error; `RUST_LOG` chooses which, `info` and worse by default.
fn log(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let mut lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if !std::io::stderr().is_terminal() {
        lines = lines.with_ansi(false);
    }
    match format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}
