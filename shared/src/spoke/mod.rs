//! What is seen of a spoke while its API server answers: Nodes, operators, Machines and certificate requests.
//!
//! Nothing in here knows who manages the spoke or which cloud it runs on.

pub mod csr;
mod facts;
pub mod machines;
pub mod openshift;

pub use facts::{NodeLook, OperatorLook, Spoke, SpokeError, Upgrade};
