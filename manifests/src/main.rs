//! `hibernate-manifests`: writes the generated part of `manifests/` and the chart, or says that the committed copy is stale.

use std::process::ExitCode;

fn main() -> ExitCode {
    manifests::run(shared::kinds::KINDS)
}
