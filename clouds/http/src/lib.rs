//! The HTTP client of drivers for clouds whose SDK we do not use, and a cache for their tokens.
//!
//! Whatever answers is a stranger: no redirect is followed, answers are bounded, every call has a deadline, and of an
//! error only its code and message are quoted. Where tenants choose the URLs, every address is checked when it is dialed,
//! and no proxy of the environment is used. Every attempt asks first whether this process may still act.

mod answer;
mod bearer;
mod client;
mod error;
mod stranger;
mod token;
mod transport;
mod urls;

pub use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
pub use reqwest::{Method, StatusCode, Url};

pub use self::answer::Answer;
pub use self::bearer::{Bearer, FormLogin, bearer};
pub use self::client::{Http, Options};
pub use self::error::{CallError, Rejection, Words};
pub use self::token::{Login, Tokens};
pub use self::transport::{Body, Reply, Request, Transport};
pub use self::urls::{below, endpoint, hosts, is_plain, link};
