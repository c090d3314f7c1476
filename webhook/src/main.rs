//! `hibernate-webhook`: see [`webhook`].

use std::process::ExitCode;

use clap::Parser;
use server::log;
use shared::text::sanitize_chain;
use webhook::args::Args;
use webhook::run::run;

fn main() -> ExitCode {
    // Before anything else can pick one: two providers in one process panic.
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        eprintln!("error: another TLS provider is installed already");
        return ExitCode::FAILURE;
    }
    let args = Args::parse();
    log::init(args.log_format, true, "info");
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
            eprintln!("error: {}", sanitize_chain(&error));
            ExitCode::FAILURE
        }
    }
}
