//! Every annotation of ours: its key, and how its value is written and read.
//!
//! Annotations are strangers' text. What is read here is bounded, and what cannot be read is told from what is not there.

pub mod format;
pub mod groups;
pub mod hold;
pub mod keys;
mod map;

pub use map::{Annotations, annotation};
