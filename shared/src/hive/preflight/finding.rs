//! What a preflight finds. The controller writes one finding a line into a condition, for people, and all of them as data, for programs.

use std::fmt;

use jiff::Timestamp;

use crate::text::is_unsafe;

/// How grave a finding is; the gravest first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::Display, strum::EnumString, strum::IntoStaticStr,
)]
#[strum(serialize_all = "lowercase")]
pub enum Severity {
    /// The sleep or the wake will not happen.
    Block,
    /// It will take longer, or lose something.
    Warn,
    /// Good to know.
    Info,
}

/// The codes of findings. Scripts may match them: they are never renamed.
pub mod code {
    /// Credentials for the cloud are missing or refused; or they work.
    pub const CREDENTIALS: &str = "Credentials";
    /// No instance was found.
    pub const NO_INSTANCES: &str = "NoInstances";
    /// The cloud could not be asked.
    pub const CLOUD_NOT_ASKED: &str = "CloudNotAsked";
    /// Instances that a stop destroys.
    pub const SPOT_INSTANCES: &str = "SpotInstances";
    /// What the cloud does not report in advance.
    pub const STOP_PROTECTION: &str = "StopProtection";
    /// The cluster's API server was not asked, because it is not awake.
    pub const SPOKE_NOT_AWAKE: &str = "SpokeNotAwake";
    /// The cluster's API server could not be asked.
    pub const SPOKE_NOT_ASKED: &str = "SpokeNotAsked";
    /// The cluster's version is changing.
    pub const UPGRADE_IN_PROGRESS: &str = "UpgradeInProgress";
    /// When the first certificate expires.
    pub const CERTIFICATE_EXPIRES: &str = "CertificateExpires";
    /// Undecided certificate requests.
    pub const PENDING_REQUESTS: &str = "PendingRequests";
    /// Webhooks in the cluster that its own start would have to call.
    pub const WEBHOOKS_ON_WAKE: &str = "WebhooksOnWake";
    /// Disruption budgets that allow none.
    pub const DISRUPTION_BUDGETS: &str = "DisruptionBudgets";
    /// A part of the cluster that could not be read.
    pub const NOT_READ: &str = "NotRead";
    /// Findings that did not fit.
    pub const LEFT_OUT: &str = "LeftOut";

    /// Those that a list of the instances ends in if it fails or finds none.
    pub const OF_LIST: &[&str] = &[CREDENTIALS, NO_INSTANCES, CLOUD_NOT_ASKED];
    /// Those that only the cluster's own API server can answer for.
    pub const OF_SPOKE: &[&str] =
        &[UPGRADE_IN_PROGRESS, CERTIFICATE_EXPIRES, PENDING_REQUESTS, WEBHOOKS_ON_WAKE, DISRUPTION_BUDGETS, NOT_READ];
    /// Those that report that something could not be checked.
    pub const UNSEEN: &[&str] = &[CLOUD_NOT_ASKED, SPOKE_NOT_ASKED, NOT_READ];
}

/// Longest sentence in characters.
const MAX_SENTENCE_CHARS: usize = 600;

/// One thing that would block or slow a sleep or a wake, or is good to know before it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// How grave.
    pub severity: Severity,
    /// One word; see [`code`].
    pub code: String,
    /// One sentence, on one line.
    pub sentence: String,
    /// When what it is about ends: the certificate of [`code::CERTIFICATE_EXPIRES`].
    pub ends: Option<Timestamp>,
}

impl Finding {
    /// A finding. What does not fit on a line is made to.
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
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.severity, self.code, self.sentence)
    }
}
