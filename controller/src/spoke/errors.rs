//! Errors of a spoke, in one line.

use shared::spoke::SpokeError;
use shared::text::sanitize;

/// What an error of the spoke's API server means.
pub fn failure(error: &kube::Error) -> SpokeError {
    match error {
        kube::Error::Api(status) => {
            let detail = sanitize(&status.message);
            SpokeError::Failed(format!("the cluster's API server answered {}: {detail}", status.code))
        }
        other => SpokeError::Unreachable(format!("the cluster's API server cannot be reached: {}", innermost(other))),
    }
}

/// The last error of the chain: `connection refused` says more than `client error (Connect)`.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    first_line(innermost)
}

/// The first line of an error, which may quote what the tenant has written.
pub(super) fn first_line(error: &(impl std::fmt::Display + ?Sized)) -> String {
    sanitize(error.to_string().lines().next().unwrap_or_default())
}
