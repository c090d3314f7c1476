//! What belongs to an object on the hub and has to be read with it.

pub(crate) mod fdb;
pub(crate) mod installation;
pub(crate) mod preflight;
pub(crate) mod reverts;
pub(crate) mod rights;
pub(crate) mod untouched;
