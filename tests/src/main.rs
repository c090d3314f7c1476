//! `testbed`: the test world as a program. See `docs/test-world.md`.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    testbed::install_tls();
    cli::main()
}
