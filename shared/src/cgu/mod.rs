//! TALM's `ClusterGroupUpgrade`: policies enforced over a fleet, batch by batch.
//!
//! Rows and sections are those of docs/reference/talm.md. The strings are TALM's: other software parses them.

pub mod api;
pub mod conditions;
pub mod decide;
pub mod events;
pub mod objects;
pub mod plan;
pub mod policy;
pub mod select;
pub mod upgrades;
pub mod version;
