//! Tests of the test world itself: worlds come and go, machines follow their instances, faults hit what they name, and
//! the FoundationDB double does what the real operator was seen to do. `make test-testbed` runs them; `make test` does
//! not.
#![allow(clippy::unwrap_used, clippy::panic)] // a helper of a test is part of the test

mod ec2;
mod fdb;
mod fdb_recovery;
mod fdb_special;
mod kkp;
mod kkp_machines;
mod lifecycle;
mod machines;
mod openstack;
mod proxy;
mod simulators;
