//! The EC2 simulator: its process, and its control interface beside the AWS API.

pub mod check;
pub mod client;
pub mod server;

pub use client::{Call, Ec2, Fault, Instance, NewInstance, Settings};
