//! FoundationDB: process groups are suspended before their volumes go, from outside an unmodified operator.
//!
//! The operator marks a group, excludes it and deletes its Pod, PVC and Service within half a second. The webhook
//! denies the deletion of PVC and Service until the object itself carries a release; the controller stamps what is
//! held, waits for the window on its own clock and releases.

pub mod admission;
pub mod api;
pub mod decide;
pub mod recover;
pub mod suspension;
