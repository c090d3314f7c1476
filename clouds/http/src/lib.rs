//! The HTTP client of drivers for clouds whose SDK we do not use, and a cache for their tokens.
//!
//! Tenants choose the URLs, and whatever answers is a stranger: every address is checked when it is dialed, no redirect
//! is followed, no proxy of the environment is used, answers are bounded, every call has a deadline, and of an error
//! only its message is quoted. Every attempt asks first whether this process may still act.

mod answer;
mod bearer;
mod client;
mod token;
mod urls;

pub use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
pub use reqwest::{Method, StatusCode, Url};

pub use self::answer::{Answer, CallError, Rejection, words};
pub use self::bearer::{Bearer, Granted, bearer};
pub use self::client::{Body, Http, Options, Reply, Request, Transport};
pub use self::token::{Login, Tokens};
pub use self::urls::{below, endpoint, is_plain, link};
