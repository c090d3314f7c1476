//! `testbed`: the test world as a program. See `docs/test-world.md`.

mod cli;
mod cli_openstack;

use std::process::ExitCode;

fn main() -> ExitCode {
    testbed::install_tls();
    cli::main()
}
