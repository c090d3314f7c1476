//! Findings about a sleep or a wake. The controller writes them into a condition, one per line for people, and all of them as
//! data for programs.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::annotation::format;
use crate::text::is_unsafe;

/// The most severe comes first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::Display, strum::EnumString, strum::IntoStaticStr,
)]
#[strum(serialize_all = "lowercase")]
pub enum Severity {
    /// The sleep or wake will not happen.
    Block,
    /// The sleep will not happen unless the user forces it.
    Forceable,
    /// It will take longer, or lose something.
    Warn,
    Info,
}

impl Severity {
    pub fn refuses(self, forced: bool) -> bool {
        match self {
            Self::Block => true,
            Self::Forceable => !forced,
            Self::Warn | Self::Info => false,
        }
    }
}

/// Codes of findings about clusters of Hive. Scripts match them: they are never renamed.
pub mod code {
    /// Credentials for the cloud are missing or refused; or they work.
    pub const CREDENTIALS: &str = "Credentials";
    pub const NO_INSTANCES: &str = "NoInstances";
    /// The cloud did not answer.
    pub const CLOUD_NOT_ASKED: &str = "CloudNotAsked";
    /// Instances that a stop destroys.
    pub const SPOT_INSTANCES: &str = "SpotInstances";
    /// Protection from stops, which the cloud does not report in advance.
    pub const STOP_PROTECTION: &str = "StopProtection";
    /// Instances that a sleep deletes and a wake recreates.
    pub const RECREATED: &str = "Recreated";
    /// How a cloud sleeps that shelves its machines.
    pub const SHELVED: &str = "Shelved";
    /// An instance that could not be recreated as it is.
    pub const CANNOT_SLEEP: &str = "CannotSleep";
    /// The cluster's API server was not queried because the cluster is not awake.
    pub const SPOKE_NOT_AWAKE: &str = "SpokeNotAwake";
    /// The cluster's API server did not answer.
    pub const SPOKE_NOT_ASKED: &str = "SpokeNotAsked";
    pub const UPGRADE_IN_PROGRESS: &str = "UpgradeInProgress";
    /// When the first certificate expires.
    pub const CERTIFICATE_EXPIRES: &str = "CertificateExpires";
    /// Undecided certificate requests.
    pub const PENDING_REQUESTS: &str = "PendingRequests";
    /// Webhooks in the cluster that block its own start.
    pub const WEBHOOKS_ON_WAKE: &str = "WebhooksOnWake";
    /// Disruption budgets that allow none.
    pub const DISRUPTION_BUDGETS: &str = "DisruptionBudgets";
    /// A part of the cluster that could not be read.
    pub const NOT_READ: &str = "NotRead";
    /// Findings that did not fit.
    pub const LEFT_OUT: &str = "LeftOut";

    /// The outcome of a list of the instances that fails or finds none.
    pub const OF_LIST: &[&str] = &[CREDENTIALS, NO_INSTANCES, CLOUD_NOT_ASKED];
    /// Only the cluster's own API server can tell.
    pub const OF_SPOKE: &[&str] =
        &[UPGRADE_IN_PROGRESS, CERTIFICATE_EXPIRES, PENDING_REQUESTS, WEBHOOKS_ON_WAKE, DISRUPTION_BUDGETS, NOT_READ];
    /// Something could not be checked.
    pub const UNSEEN: &[&str] = &[CLOUD_NOT_ASKED, SPOKE_NOT_ASKED, NOT_READ];
}

const MAX_SENTENCE_CHARS: usize = 600;

/// Something that would block or slow a sleep or a wake, or is good to know before it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(from = "Data", into = "Data")]
pub struct Finding {
    pub severity: Severity,
    /// One word, for scripts: never renamed. See [`code`].
    pub code: String,
    /// On one line.
    pub sentence: String,
    /// When the certificate of [`code::CERTIFICATE_EXPIRES`] expires.
    pub ends: Option<Timestamp>,
}

impl Finding {
    /// `sentence` is put on one line.
    pub fn new(severity: Severity, code: &str, sentence: impl AsRef<str>) -> Self {
        let code: String = code.chars().filter(char::is_ascii_alphanumeric).collect();
        let sentence = sentence.as_ref().split(|c: char| c.is_whitespace() || is_unsafe(c));
        let sentence = sentence.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        let sentence: String = sentence.chars().take(MAX_SENTENCE_CHARS).collect();
        Self {
            severity,
            code: if code.is_empty() { "Unnamed".to_owned() } else { code },
            sentence: sentence.trim_end().to_owned(),
            ends: None,
        }
    }

    pub fn block(code: &str, sentence: impl AsRef<str>) -> Self {
        Self::new(Severity::Block, code, sentence)
    }

    pub fn warn(code: &str, sentence: impl AsRef<str>) -> Self {
        Self::new(Severity::Warn, code, sentence)
    }

    pub fn info(code: &str, sentence: impl AsRef<str>) -> Self {
        Self::new(Severity::Info, code, sentence)
    }
}

/// A finding as data. Anyone who may write the status can write it, so it is sanitized when it is read.
#[derive(Deserialize, Serialize)]
struct Data {
    severity: String,
    code: String,
    sentence: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ends: Option<String>,
}

impl From<Finding> for Data {
    fn from(Finding { severity, code, sentence, ends }: Finding) -> Self {
        Self { severity: severity.to_string(), code, sentence, ends: ends.map(format::seconds) }
    }
}

impl From<Data> for Finding {
    fn from(data: Data) -> Self {
        // An unknown severity blocks.
        let severity = data.severity.parse().unwrap_or(Severity::Block);
        let ends = data.ends.as_deref().and_then(format::time);
        Self { ends, ..Self::new(severity, &data.code, data.sentence) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.severity, self.code, self.sentence)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_finding_is_read_back_from_its_data_and_sanitized() {
        let ends = format::time("2027-02-01T00:00:00Z");
        for (severity, word) in
            [(Severity::Block, "block"), (Severity::Forceable, "forceable"), (Severity::Warn, "warn")]
        {
            let finding = Finding::new(severity, "BarePods", "Pods: a/b");
            let data = json!({ "severity": word, "code": "BarePods", "sentence": "Pods: a/b" });
            assert_eq!((json!(finding), serde_json::from_value::<Finding>(data.clone()).ok()), (data, Some(finding)));
        }
        let forged =
            json!({ "severity": "dire", "code": "a b", "sentence": "x\n\u{1b}y", "ends": "2027-02-01T00:00:00Z" });
        let read = serde_json::from_value::<Finding>(forged).unwrap();
        assert_eq!(read, Finding { ends, ..Finding::new(Severity::Block, "ab", "x y") });
    }

    #[test]
    fn the_gravest_come_first_and_a_force_accepts_what_it_may() {
        use Severity::{Block, Forceable, Info, Warn};
        assert!(Block < Forceable && Forceable < Warn && Warn < Info);
        for (severity, refuses, refuses_a_force) in
            [(Block, true, true), (Forceable, true, false), (Warn, false, false), (Info, false, false)]
        {
            assert_eq!((severity.refuses(false), severity.refuses(true)), (refuses, refuses_a_force), "{severity}");
        }
    }
}
