//! What EC2's errors mean for us.

use aws_sdk_ec2::error::{DisplayErrorContext, ErrorMetadata, ProvideErrorMetadata, SdkError};
use aws_sdk_ec2::operation::start_instances::StartInstancesError;
use aws_smithy_runtime_api::client::interceptors::context::InterceptorContext;
use aws_smithy_runtime_api::client::orchestrator::{HttpResponse, OrchestratorError};
use aws_smithy_runtime_api::client::retries::classifiers::{ClassifyRetry, RetryAction};
use shared::cloud::{CloudError, CloudErrorKind};
use shared::text::{sanitize_chain, sanitize_to};

/// An error as EC2 reports it.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// Such as `IncorrectInstanceState`; empty when EC2 was not reached.
    pub code: String,
    /// EC2's words, or those of the network.
    pub message: String,
    /// HTTP status, 0 when there was no answer.
    pub status: u16,
    pub kind: CloudErrorKind,
}

/// What is about the account, its credentials, the rate of calls or capacity. Any other 4xx may be due to single
/// instances: EC2 has more codes for these than anybody lists.
const CODES_BY_KIND: [(CloudErrorKind, &str); 3] = [
    (
        CloudErrorKind::Throttled,
        "BandwidthLimitExceeded EC2ThrottledException RequestLimitExceeded RequestThrottled RequestThrottledException \
         SlowDown Throttling ThrottledException ThrottlingException TooManyRequests TooManyRequestsException",
    ),
    (
        CloudErrorKind::Capacity,
        "InsufficientInstanceCapacity InsufficientHostCapacity InsufficientReservedInstanceCapacity \
         InstanceLimitExceeded VcpuLimitExceeded",
    ),
    (
        CloudErrorKind::Denied,
        "AuthFailure Blocked ExpiredToken IncompleteSignature InvalidClientTokenId MissingAuthenticationToken \
         OptInRequired PendingVerification RequestExpired UnauthorizedOperation",
    ),
];

impl Failure {
    pub(crate) fn new<E>(error: &SdkError<E, HttpResponse>) -> Self
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        let status = error.raw_response().map_or(0, |response| response.status().as_u16());
        // When a role is not to be had, EC2 is not even asked, and what STS said is deep inside.
        let sts = matches!(error, SdkError::DispatchFailure(_)).then(|| innermost(error)).flatten();
        let code = sanitize_to(error.code().or_else(|| sts?.code()).unwrap_or_default(), 128);
        let message = error.message().or_else(|| sts?.message());
        let message = message.map_or_else(|| sanitize_chain(error), str::to_owned);
        let kind = of_code(&code).unwrap_or_else(|| match (error, status) {
            (_, 401 | 403) => CloudErrorKind::Denied,
            (_, 429) => CloudErrorKind::Throttled,
            (SdkError::DispatchFailure(_), _) if sts.is_some() => CloudErrorKind::Credentials,
            (SdkError::DispatchFailure(_), _)
                if DisplayErrorContext(error).to_string().contains("CredentialsError") =>
            {
                CloudErrorKind::Credentials
            }
            (SdkError::ServiceError(_), 400..=499) => CloudErrorKind::Invalid,
            _ => CloudErrorKind::Unavailable,
        });
        Self { code, message: stable(&message), status, kind }
    }

    /// Whether single instances may be to blame, so that the rest of the batch can go on without them. What has no code
    /// does not come from EC2.
    pub(crate) fn blames_instances(&self) -> bool {
        self.kind == CloudErrorKind::Invalid && (400..500).contains(&self.status) && !self.code.is_empty()
    }

    /// Whether a part of the batch may go although all of it may not: single instances are to blame, or there is no
    /// room for all.
    pub(crate) fn may_be_of_some(&self) -> bool {
        self.blames_instances() || self.kind == CloudErrorKind::Capacity
    }

    /// What it means for an instance that was refused by it.
    pub(crate) fn refuses_as(&self) -> CloudErrorKind {
        match self.kind {
            CloudErrorKind::Capacity => CloudErrorKind::Capacity,
            _ if self.code == "IncorrectInstanceState" => CloudErrorKind::InTransit,
            _ => CloudErrorKind::Refused,
        }
    }

    /// The whole call has failed.
    pub(crate) fn of(self, call: &str, region: &str) -> CloudError {
        let Self { code, message, .. } = &self;
        let separator = if code.is_empty() { "" } else { ": " };
        CloudError::new(self.kind, format!("{call} in {region}: {code}{separator}{message}"))
    }
}

pub(crate) fn of_code(code: &str) -> Option<CloudErrorKind> {
    CODES_BY_KIND.into_iter().find(|(_, codes)| codes.split(' ').any(|known| known == code)).map(|(kind, _)| kind)
}

/// Stops the SDK from retrying when EC2 lacks capacity: EC2 answers with status 500, but a retry gets the same answer,
/// and other calls wait for this one.
#[derive(Debug)]
pub(crate) struct NoRetryWithoutCapacity;

impl ClassifyRetry for NoRetryWithoutCapacity {
    fn name(&self) -> &'static str {
        "NoRoomIsAnAnswer"
    }

    fn classify_retry(&self, context: &InterceptorContext) -> RetryAction {
        let error = context.output_or_error().and_then(Result::err).and_then(OrchestratorError::as_operation_error);
        let code = error.and_then(|error| error.downcast_ref::<StartInstancesError>()?.code());
        match code.and_then(of_code) {
            Some(CloudErrorKind::Capacity) => RetryAction::RetryForbidden,
            _ => RetryAction::NoActionIndicated,
        }
    }
}

/// A call that ended with its task, which happens when the process ends.
pub(crate) fn given_up(call: &str) -> CloudError {
    CloudError::new(CloudErrorKind::Unavailable, format!("{call} was canceled"))
}

/// What a service answered, somewhere in the chain of errors.
fn innermost<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a ErrorMetadata> {
    let mut chain = std::iter::successors(Some(error), |error| error.source());
    chain.find_map(|error| error.downcast_ref::<ErrorMetadata>())
}

/// The message without what differs from try to try, so that a condition does not change with each. Sanitized.
pub(crate) fn stable(message: &str) -> String {
    let cut = ["Encoded authorization failure message:", "(request id:", "RequestId:", "request ID:"];
    let end = cut.iter().filter_map(|mark| message.find(mark)).min().unwrap_or(message.len());
    sanitize_to(message[..end].trim_end(), 400)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_4xx_may_be_due_to_one_instance_unless_it_is_about_credentials_rights_or_rate() {
        for (code, status, blames) in [
            ("IncorrectInstanceState", 400, true),
            ("Unsupported", 400, true),
            ("MaxSpotInstanceCountExceeded", 400, true),
            ("ACodeOfNextYear", 409, true),
            ("", 407, false), // a proxy's answer
            ("PendingVerification", 400, false),
            ("RequestExpired", 400, false),
            ("UnauthorizedOperation", 403, false),
            ("RequestThrottled", 400, false),
            ("InternalError", 500, false),
        ] {
            let by_status = if status < 500 { CloudErrorKind::Invalid } else { CloudErrorKind::Unavailable };
            let kind = of_code(code).unwrap_or(by_status);
            let failure = Failure { code: code.to_owned(), message: String::new(), status, kind };
            assert_eq!(failure.blames_instances(), blames, "{code}");
        }
    }
}
