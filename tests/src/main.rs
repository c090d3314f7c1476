//! `testbed`: the test world as a program. See `docs/development.md`.

mod cli;
mod cli_fdb;
mod cli_kkp;
mod cli_state;

use std::process::ExitCode;

fn main() -> ExitCode {
    testbed::install_tls();
    cli::main()
}
