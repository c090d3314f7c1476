//! The EC2 simulator: its process, and what the world and its tests tell it beside the AWS interface.

pub mod check;
pub mod client;
pub mod server;

pub use client::{Call, Ec2, Fault, Instance, NewInstance, Settings};
