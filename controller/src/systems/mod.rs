//! The systems that are put to sleep: each a [`crate::runtime::System`], registered by one line in `run.rs`.

pub mod fdb;
pub mod hive;
pub mod kkp;
pub mod reachability;
pub mod rollout;
