//! What every EC2 and STS client of this process has in common.

use std::time::Duration;

use aws_config::SdkConfig;
use aws_sdk_ec2::config::retry::RetryConfig;
use aws_sdk_ec2::config::timeout::TimeoutConfig;
use aws_sdk_ec2::config::{AppName, BehaviorVersion, Region};
use aws_smithy_async::rt::sleep::{SharedAsyncSleep, TokioSleep};
use aws_smithy_async::time::{SharedTimeSource, SystemTimeSource};
use cloud_common::Process;

use crate::quota::Quota;

/// What the clients of this process have in common.
#[derive(Clone)]
pub(crate) struct Options {
    /// Another endpoint than AWS's own.
    pub endpoint_url: Option<String>,
    /// Who makes the calls, and whether it may.
    pub process: Process,
    /// Quotas that AWS has raised.
    pub quotas: Vec<Quota>,
}

/// Limits of one call. An attempt that hangs is cut off, so that one account cannot hold others up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// What EC2 and STS clients have in common.
pub(crate) fn base(region: &str, options: &Options) -> SdkConfig {
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_attempt_timeout(ATTEMPT_TIMEOUT)
        .operation_timeout(CALL_TIMEOUT)
        .build();
    let mut base = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(region.to_owned()))
        .timeout_config(timeouts)
        .retry_config(RetryConfig::standard().with_max_attempts(3))
        .sleep_impl(SharedAsyncSleep::new(TokioSleep::new()))
        .time_source(SharedTimeSource::new(SystemTimeSource::new()));
    base.set_endpoint_url(options.endpoint_url.clone());
    base.set_app_name(AppName::new(app_name(&options.process.identity)).ok());
    base.build()
}

/// The identity in the letters that the SDK allows in an application name.
fn app_name(identity: &str) -> String {
    identity.chars().map(|c| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '-' }).take(50).collect()
}
