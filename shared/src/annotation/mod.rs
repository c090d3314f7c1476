//! Every annotation of ours: its key, and how its value is written and read.
//!
//! Annotations are untrusted text. Parsing is bounded, and distinguishes a malformed value from a missing one.

pub mod format;
pub mod groups;
pub mod hold;
pub mod keys;
mod map;
pub mod mark;

pub(crate) use map::is_judged;
pub use map::{Annotations, annotation, is_ours};
