//! KKP (Kubermatic): dehydration of user clusters.
//!
//! Row numbers in comments are those of docs/reference/kkp.md, which says what KKP's own controllers did when they were
//! run.

pub mod admission;
pub mod api;
pub mod certificates;
pub mod data;
pub mod decide;
pub mod keys;
pub mod phase;
pub mod record;
