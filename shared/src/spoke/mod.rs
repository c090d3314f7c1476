//! What is seen of a spoke while its API server answers: Nodes, operators, Machines and certificate requests.
//!
//! This module depends on neither the system that manages the spoke nor the cloud it runs on.

mod facts;
pub mod kinds;
pub mod machine;

pub use facts::{NodeLook, OperatorLook, Spoke, SpokeError, Upgrade};
