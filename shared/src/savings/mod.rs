//! What sleep has avoided: a ledger on each cluster, and what people read of many of them.
//!
//! A controller writes the [`ledger`] in a status write that is due anyway. [`history`] reads a period out of it, [`report`] adds
//! up targets by what they are grouped by, at [`prices`] that the user has.

pub mod history;
pub mod ledger;
pub mod period;
pub mod prices;
pub mod report;
pub mod seen;
#[cfg(test)]
mod tests;
