//! AWS: the EC2 calls that put a cluster's instances to sleep and wake them. The AWS SDK is named in this crate alone.

mod config_file;
mod credentials;
mod driver;
mod errors;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aws_config::SdkConfig;
use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_sdk_ec2::config::retry::RetryConfig;
use aws_sdk_ec2::config::timeout::TimeoutConfig;
use aws_sdk_ec2::config::{AppName, BehaviorVersion, Region, SharedCredentialsProvider};
use aws_smithy_async::rt::sleep::{SharedAsyncSleep, TokioSleep};
use aws_smithy_async::time::{SharedTimeSource, SystemTimeSource};
use shared::cloud::{CloudError, CloudErrorKind};

pub use credentials::Source;
pub use driver::Ec2;

/// Asked before every request that leaves this process, retries included: may it still act?
pub type Permit = Arc<dyn Fn() -> bool + Send + Sync>;

/// What every driver of this process has in common.
#[derive(Clone)]
pub struct Options {
    /// Another endpoint than AWS's own, for tests.
    pub endpoint_url: Option<String>,
    /// Sent with every request, so that a log of calls proves which controller made them.
    pub identity: String,
    /// Whether this process may act.
    pub permit: Permit,
}

/// Limits of one call. An attempt that hangs is cut off, so that one account cannot hold others up.
const CONNECT: Duration = Duration::from_secs(3);
const ATTEMPT: Duration = Duration::from_secs(10);
const CALL: Duration = Duration::from_secs(30);

/// Connects to one account and region with the credentials in a Secret's data. No request is made yet.
///
/// # Errors
/// When the Secret holds no credentials, or credentials of a form that is refused; the message names the key.
pub async fn connect(region: &str, secret: &BTreeMap<String, Vec<u8>>, options: &Options) -> Result<Ec2, CloudError> {
    let source = Source::read(secret)
        .map_err(|error| CloudError { kind: CloudErrorKind::Credentials, message: error.to_string() })?;
    let base = base(region, options);
    let provider = source.provider(&base).await;
    Ok(driver(&base, region, provider, options))
}

/// Connects to one region with the credentials of this process: its environment, its role, its machine's role.
pub async fn connect_with_own_credentials(region: &str, options: &Options) -> Ec2 {
    let base = base(region, options);
    let chain = DefaultCredentialsChain::builder().region(Region::new(region.to_owned())).build().await;
    driver(&base, region, SharedCredentialsProvider::new(chain), options)
}

fn driver(base: &SdkConfig, region: &str, provider: SharedCredentialsProvider, options: &Options) -> Ec2 {
    let config = aws_sdk_ec2::config::Builder::from(base)
        .credentials_provider(provider)
        .interceptor(driver::Fence(options.permit.clone()))
        .build();
    Ec2::new(aws_sdk_ec2::Client::from_conf(config), region.to_owned(), options.permit.clone())
}

/// What EC2 and STS clients have in common.
fn base(region: &str, options: &Options) -> SdkConfig {
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECT)
        .operation_attempt_timeout(ATTEMPT)
        .operation_timeout(CALL)
        .build();
    let mut base = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(region.to_owned()))
        .timeout_config(timeouts)
        .retry_config(RetryConfig::standard().with_max_attempts(3))
        .sleep_impl(SharedAsyncSleep::new(TokioSleep::new()))
        .time_source(SharedTimeSource::new(SystemTimeSource::new()));
    base.set_endpoint_url(options.endpoint_url.clone());
    base.set_app_name(AppName::new(app_name(&options.identity)).ok());
    base.build()
}

/// The identity in the letters that the SDK allows in an application name.
fn app_name(identity: &str) -> String {
    identity.chars().map(|c| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '-' }).take(50).collect()
}
