//! Targets: how they are named on the command line, and how they are found on the hub.

mod elsewhere;
pub(crate) mod nearest;
pub(crate) mod parse;
pub(crate) mod resolve;
pub(crate) mod target;
pub(crate) mod whole;
