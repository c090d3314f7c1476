//! Tests of the test world itself, of what no test of the product would notice: worlds leave nothing behind, faults
//! happen, simulators satisfy the vendors' SDKs, and doubles are as hard as the real programs were seen to be.
//! `make test-testbed` runs them; `make test` does not.
#![allow(clippy::unwrap_used, clippy::panic)] // a helper of a test is part of the test

mod ec2;
mod fdb;
mod kkp;
mod lifecycle;
mod openstack;
mod proxy;
mod simulators;
