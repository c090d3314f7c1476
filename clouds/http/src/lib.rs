//! The HTTP client of drivers for clouds whose SDK we do not use, and a cache for their tokens.
//!
//! Tenants choose the URLs, and whatever answers is a stranger: every address is checked when it is dialed, no redirect
//! is followed, no proxy of the environment is used, answers are bounded, every call has a deadline, and of an error
//! only its message is quoted. Every attempt asks first whether this process may still act.

mod answer;
mod client;
mod token;

pub use reqwest::{Method, StatusCode, Url};

pub use self::answer::{Answer, CallError, Rejection};
pub use self::client::{Body, Http, Options};
pub use self::token::{Login, Tokens};
