//! Tells the limits of every throttled attempt, also of those that the SDK repeats by itself.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_ec2::config::interceptors::FinalizerInterceptorContextRef;
use aws_sdk_ec2::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_ec2::error::{BoxError, ProvideErrorMetadata};
use aws_sdk_ec2::operation::start_instances::StartInstancesError;
use aws_sdk_ec2::operation::stop_instances::StopInstancesError;
use aws_sdk_ec2::operation::terminate_instances::TerminateInstancesError;
use aws_smithy_runtime_api::client::interceptors::context::Error;
use aws_smithy_runtime_api::client::interceptors::dyn_dispatch_hint;
use aws_smithy_runtime_api::client::orchestrator::OrchestratorError;
use shared::cloud::{CloudErrorKind, Verb};

use crate::errors::of_code;
use crate::quota::{Bucket, Limits};

/// How far our bucket may be ahead of EC2's: longer than a call takes to arrive. Each attempt that is throttled costs
/// this much time at most.
const MAX_BUCKET_LEAD: Duration = Duration::from_secs(2);

/// Sets the bucket of instances back for a throttled attempt. EC2 refills its bucket from the moment at which the first
/// call arrives, later than ours: at full use every call would come a little too early, and be throttled.
#[derive(Debug)]
pub(crate) struct Throttles {
    pub(crate) limits: Arc<Limits>,
    pub(crate) call: Verb,
}

#[dyn_dispatch_hint]
impl Intercept for Throttles {
    fn name(&self) -> &'static str {
        "Throttles"
    }

    fn read_after_attempt(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let error = context.output_or_error().and_then(Result::err).and_then(OrchestratorError::as_operation_error);
        if error.and_then(code).and_then(of_code) == Some(CloudErrorKind::Throttled) {
            self.limits.of(Bucket::Instances(self.call)).set_back(MAX_BUCKET_LEAD);
        }
        Ok(())
    }
}

fn code(error: &Error) -> Option<&str> {
    let start = || error.downcast_ref::<StartInstancesError>()?.code();
    let stop = || error.downcast_ref::<StopInstancesError>()?.code();
    start().or_else(stop).or_else(|| error.downcast_ref::<TerminateInstancesError>()?.code())
}
