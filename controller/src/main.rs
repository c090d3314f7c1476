//! `hibernate-controller`: see [`hibernate_controller`].

use std::process::ExitCode;

fn main() -> ExitCode {
    hibernate_controller::run(shared::kinds::KINDS, Vec::new())
}
