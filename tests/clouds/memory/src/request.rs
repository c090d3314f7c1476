//! What a driver can ask of the cloud and its ledger.

use serde::{Deserialize, Serialize};
use shared::cloud::Entry;

/// What the planner records of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerAttributes {
    /// Whether it has its tags.
    pub tagged: bool,
    /// Whether the ports of the machine are bound to it.
    pub bound: bool,
}

impl cloud_recreate::Attributes for ServerAttributes {
    fn machine_type(&self) -> &str {
        if self.tagged { "m1.large" } else { "" }
    }
}

/// What can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Request {
    Servers { infra_id: String },
    Images { infra_id: String },
    Plan { infra_id: String, request: cloud_recreate::Request<ServerAttributes> },
    Read { record: String },
    Write { record: String, text: String, seen: Option<String> },
    Clear { record: String, seen: String },
}

/// What the cloud answers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Answer {
    Servers(Vec<cloud_recreate::Server<ServerAttributes>>),
    Images(Vec<cloud_recreate::Image>),
    Record(Option<Entry>),
    /// A new ID or version; empty where there is none.
    Done(String),
}

/// Why the cloud refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such thing.
    NotFound,
    /// Not in this state, or in use.
    Conflict,
    /// This machine may not be moved.
    Locked,
    /// There may be no more of it.
    Quota,
}
