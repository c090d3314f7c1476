//! Schedules: when targets sleep and wake.
//!
//! A schedule acts at edges and enforces nothing between them: what people change stays until the next edge. Civil times
//! become instants in one place ([`zone::instant`]), windows and events become one list of edges ([`timetable`]), and each
//! edge becomes one rollout ([`rollout`]), whose name says which, or writes to workloads ([`workloads`]). Of several
//! schedules one governs a target ([`governs`]).

pub mod admission;
pub mod api;
pub mod calendar;
mod cron;
mod days;
pub mod decide;
pub mod governs;
pub mod rollout;
#[cfg(test)]
mod tests;
pub mod timetable;
pub mod workloads;
pub mod zone;
