//! What sleep has avoided: a ledger on each cluster, and what people read of many of them.
//!
//! A controller writes the [`ledger`] in a status write that is due anyway. [`usage`] reads a period out of it, [`report`] adds
//! up targets by what they are grouped by, at [`prices`] that the user has.

pub mod ledger;
pub mod period;
pub mod prices;
pub mod report;
#[cfg(test)]
mod tests;
pub mod usage;
