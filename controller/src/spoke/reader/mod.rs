//! The only reader of what spokes answer: bounded, charged and into small types of our own.

mod client;
mod events;
mod pages;
mod refused;
#[cfg(test)]
mod tests;

pub use self::client::SpokeClient;
pub use self::events::{Listing, events};
pub use self::pages::{MOST, is_not_there};

type BoxError = Box<dyn std::error::Error + Send + Sync>;
