//! AWS: the EC2 calls that put a cluster's instances to sleep and wake them. Only this crate names the AWS SDK.

mod account;
#[cfg(test)]
mod bench;
mod call;
mod client;
mod config_file;
mod credentials;
mod describe;
mod driver;
mod errors;
mod moves;
mod pool;
mod quota;
mod refusal_cache;
mod registration;
mod roles;
mod throttles;

pub use quota::Quota;
pub use registration::{Account, Aws, AwsFlags};
pub use roles::AllowedRole;
