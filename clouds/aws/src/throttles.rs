//! Tells the limits of every throttled attempt, also of those that the SDK repeats by itself.

use std::sync::Arc;

use aws_sdk_ec2::config::ConfigBag;
use aws_sdk_ec2::config::interceptors::{BeforeSerializationInterceptorContextRef, FinalizerInterceptorContextRef};
use aws_sdk_ec2::config::{Intercept, RuntimeComponents};
use aws_sdk_ec2::error::{BoxError, ProvideErrorMetadata};
use aws_sdk_ec2::operation::start_instances::{StartInstancesError, StartInstancesInput};
use aws_sdk_ec2::operation::stop_instances::{StopInstancesError, StopInstancesInput};
use aws_sdk_ec2::operation::terminate_instances::{TerminateInstancesError, TerminateInstancesInput};
use aws_smithy_runtime_api::client::interceptors::context::{Error, Input};
use aws_smithy_runtime_api::client::interceptors::dyn_dispatch_hint;
use aws_smithy_runtime_api::client::orchestrator::OrchestratorError;
use aws_smithy_types::config_bag::{Storable, StoreReplace};
use shared::cloud::CloudErrorKind;

use crate::call::Call;
use crate::errors::of_code;
use crate::quota::{Bucket, Limits};

/// Takes the instances of a throttled attempt from the bucket once more. EC2 refills its bucket from the moment at which the first call
/// arrives, later than ours: at full use every call would come a little too early, and be throttled.
#[derive(Clone)]
pub(crate) struct Throttles(pub(crate) Arc<Limits>);

impl std::fmt::Debug for Throttles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Throttles")
    }
}

#[dyn_dispatch_hint]
impl Intercept for Throttles {
    fn name(&self) -> &'static str {
        "Throttles"
    }

    fn read_before_serialization(
        &self,
        context: &BeforeSerializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Some(moves) = moves(context.input()) {
            config.interceptor_state().store_put(moves);
        }
        Ok(())
    }

    fn read_after_attempt(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let error = context.output_or_error().and_then(Result::err).and_then(OrchestratorError::as_operation_error);
        if error.and_then(code).and_then(of_code) == Some(CloudErrorKind::Throttled)
            && let Some(Moves(call, instances)) = config.load::<Moves>()
        {
            self.0.of(Bucket::Instances(*call)).spend(*instances);
        }
        Ok(())
    }
}

fn code(error: &Error) -> Option<&str> {
    let start = || error.downcast_ref::<StartInstancesError>()?.code();
    let stop = || error.downcast_ref::<StopInstancesError>()?.code();
    start().or_else(stop).or_else(|| error.downcast_ref::<TerminateInstancesError>()?.code())
}

/// A call, and how many instances it moves. Kept with the call: the SDK drops the input once it is serialized.
#[derive(Debug)]
struct Moves(Call, usize);

impl Storable for Moves {
    type Storer = StoreReplace<Self>;
}

fn moves(input: &Input) -> Option<Moves> {
    let start = || Some(Moves(Call::Start, input.downcast_ref::<StartInstancesInput>()?.instance_ids().len()));
    let stop = || Some(Moves(Call::Stop, input.downcast_ref::<StopInstancesInput>()?.instance_ids().len()));
    let terminate =
        || Some(Moves(Call::Terminate, input.downcast_ref::<TerminateInstancesInput>()?.instance_ids().len()));
    start().or_else(stop).or_else(terminate)
}
