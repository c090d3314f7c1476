//! AWS: the EC2 calls that put a cluster's instances to sleep and wake them. Only this crate names the AWS SDK.

mod account;
mod call;
mod client;
mod config_file;
mod credentials;
mod describe;
mod driver;
mod errors;
mod moves;
mod pool;
mod refused;
mod state;

pub use client::{Options, Permit};
pub use credentials::{Source, SourceError};
pub use driver::Ec2;
pub use pool::Pool;
