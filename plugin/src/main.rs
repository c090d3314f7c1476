//! `kubectl-hibernate`: see [`kubectl_hibernate`].

use std::process::ExitCode;

fn main() -> ExitCode {
    kubectl_hibernate::run(shared::kinds::KINDS)
}
