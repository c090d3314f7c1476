//! FoundationDB's operator ([`operator`]), its databases ([`database`]) and fdbcli ([`fdbcli`]), simulated after
//! docs/reference/fdb.md. See "The FoundationDB double" in doubles.md of the docs.
//!
//! No client and no clock: what surrounds the operator implements [`operator::Surroundings`]. The test world does it
//! with a real API server, [`memory`] with plain objects and a clock of its own.

pub mod database;
pub mod fdbcli;
pub mod memory;
pub mod operator;

/// API group and version of the operator's kinds.
pub const API_VERSION: &str = "apps.foundationdb.org/v1beta2";

/// The operator's kind.
pub const KIND: &str = "FoundationDBCluster";
