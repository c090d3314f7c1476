//! Our conditions as versioned data: [`PREFLIGHT`] is the answer to a requested preflight, [`STATE`] what the condition
//! [`DEHYDRATED`] reports in words.
//!
//! A status patch cannot write annotations, and KKP prunes unknown fields. The map of conditions takes any key.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::api::{Cluster, Condition};
use super::keys::DEHYDRATED;
use super::phase::Phase;
use super::record::Numbers;
use crate::annotation::format;
use crate::finding::Finding;
use crate::record::{Format, is_zero};

/// Condition type of ours. `True` if a dehydration is admitted without a force.
pub const PREFLIGHT: &str = "DehydrationPreflight";
/// Condition type of ours, written by the same call as [`DEHYDRATED`].
pub const STATE: &str = "DehydrationState";

/// Reason of [`DEHYDRATED`] while a record is missed and cannot be rebuilt.
pub const RECORD_MISSING: &str = "RecordMissing";

/// Reason of [`STATE`]: its version, for people.
const REASON: &str = "V1";

/// What [`DEHYDRATED`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The phase of the operation. `None` if none has begun.
    pub phase: Option<Phase>,
    /// How it stands.
    pub outcome: Outcome,
}

/// The state of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// In progress, or waiting.
    Pending,
    /// The cluster sleeps as it should.
    Asleep,
    /// Ended without a sleep: refused by the preflight, or undone.
    Failed,
    /// Blocked: its record is unusable. The reason of the condition says why.
    Held,
}

/// A state as it is written.
#[derive(Clone, Serialize, Deserialize)]
struct Written {
    /// `lastHeartbeatTime` of the condition that the state describes. If that differs, another client wrote the
    /// condition since, and the state does not count.
    at: String,
    #[serde(flatten)]
    state: State,
}

impl Format for Written {
    const MAX_BYTES: usize = 1024;
}

impl State {
    /// The state of a Cluster with our condition. If no state matches the current condition, only its reason counts,
    /// never its message.
    pub fn of(cluster: &Cluster) -> Option<Self> {
        let described = cluster.condition(DEHYDRATED)?;
        let phase: Option<Phase> = described.reason.as_deref().and_then(|reason| reason.parse().ok());
        let message = cluster.condition(STATE).and_then(|condition| condition.message.as_deref());
        let written = message.and_then(|message| Written::read(message).ok());
        let written =
            written.filter(|written| written.at == described.last_heartbeat_time).map(|written| written.state);
        let is_of = |state: &Self| match state.outcome {
            Outcome::Held => phase.is_none(),
            _ => phase.is_some() && state.phase == phase,
        };
        Some(written.filter(is_of).unwrap_or_else(|| phase.map_or(Self::HELD, Self::entered)))
    }

    /// Held without a phase.
    const HELD: Self = Self { phase: None, outcome: Outcome::Held };

    /// The state of a phase that was just entered.
    pub fn entered(phase: Phase) -> Self {
        let outcome = match phase {
            Phase::Dehydrated => Outcome::Asleep,
            Phase::DrainTimedOut => Outcome::Failed,
            _ => Outcome::Pending,
        };
        Self { phase: Some(phase), outcome }
    }

    /// Status, reason and message of the condition beside one that has this `lastHeartbeatTime`.
    pub fn condition(self, at: &str) -> Condition {
        let written = Written { at: at.to_owned(), state: self };
        let (reason, message) = (Some(REASON.to_owned()), Some(written.text()));
        Condition { status: "True".to_owned(), reason, message, ..Condition::default() }
    }
}

/// What a preflight found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Preflight {
    /// The value of [`crate::annotation::keys::PREFLIGHT_REQUESTED_AT`] that this answers, as it was written.
    pub requested: String,
    /// When the cluster was read.
    pub at: Timestamp,
    /// What was found, the most severe first.
    pub findings: Vec<Finding>,
    /// Findings left out to keep the message short, the least severe first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: usize,
    /// Pods that the drain deletes.
    pub pods: u32,
    /// What stays, and what comes back with a wake.
    pub numbers: Numbers,
    /// `MachineDeployments` by `namespace/name`, and their replicas.
    #[serde(default)]
    pub machine_deployments: BTreeMap<String, u32>,
    /// What the cluster uses of its project's quota, by resource. Empty outside the Enterprise edition.
    #[serde(default)]
    pub quota: BTreeMap<String, String>,
}

impl Format for Preflight {
    const MAX_BYTES: usize = 16 * 1024;

    fn cut(&mut self) -> bool {
        let finding = self.findings.pop();
        self.left_out += usize::from(finding.is_some());
        finding.is_some() || !std::mem::take(&mut self.machine_deployments).is_empty()
    }
}

impl Preflight {
    /// The answer on a Cluster to the request that has this value, or to a later one: the annotation holds one request,
    /// so a later one replaces it. `None` if there is none, or one of another version.
    pub fn answer(cluster: &Cluster, requested: &str) -> Option<Self> {
        let message = cluster.condition(PREFLIGHT)?.message.as_deref()?;
        Self::read(message).ok().filter(|answer| answer.is_to(requested))
    }

    /// A request dated in the future counts as made when the cluster was read: otherwise its answer would satisfy every
    /// request until that date.
    fn is_to(&self, requested: &str) -> bool {
        let (answered, requested_at) = (format::time(&self.requested), format::time(requested));
        self.requested == requested
            || requested_at.zip(answered).is_some_and(|(requested_at, answered)| answered.min(self.at) >= requested_at)
    }

    /// Status, reason and message of the condition. Findings that make the message too long are counted instead.
    pub fn condition(&self) -> Condition {
        let (status, reason) = match (admits(&self.findings, false), admits(&self.findings, true)) {
            (true, _) => ("True", "Admitted"),
            (false, true) => ("False", "NeedsForce"),
            (false, false) => ("False", "Refused"),
        };
        Condition {
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(self.text()),
            ..Condition::default()
        }
    }
}

/// Whether a sleep may begin.
pub fn admits(findings: &[Finding], forced: bool) -> bool {
    !findings.iter().any(|finding| finding.severity.refuses(forced))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::finding::Severity;
    use crate::kkp::api::{ClusterSpec, ClusterStatus};

    fn with(conditions: impl IntoIterator<Item = (&'static str, Condition)>) -> Cluster {
        let mut cluster = Cluster::new("abc", ClusterSpec::default());
        let conditions = conditions.into_iter().map(|(name, condition)| (name.to_owned(), condition)).collect();
        cluster.status = Some(ClusterStatus { conditions, ..ClusterStatus::default() });
        cluster
    }

    fn words(reason: &str, at: &str) -> Condition {
        let (last_heartbeat_time, reason) = (at.to_owned(), Some(reason.to_owned()));
        Condition { last_heartbeat_time, reason, ..Condition::default() }
    }

    /// What another client has written, or nobody, is never taken for a state of ours.
    #[test]
    fn a_state_counts_with_the_condition_that_it_describes() {
        use Outcome::{Asleep, Failed, Held, Pending};
        use Phase::{Dehydrated, Draining, Preflight};
        let (now, later) = ("2026-11-22T18:00:00Z", "2026-11-22T18:00:01Z");
        for (reason, written, at, phase, outcome) in [
            ("Preflight", Some((Some(Preflight), Failed)), now, Some(Preflight), Failed),
            ("Dehydrated", Some((Some(Dehydrated), Pending)), now, Some(Dehydrated), Pending),
            ("RecordForeign", Some((Some(Draining), Held)), now, Some(Draining), Held),
            ("RecordForeign", Some((None, Held)), now, None, Held),
            // Of another time, of another phase, or none.
            ("Dehydrated", Some((Some(Dehydrated), Pending)), later, Some(Dehydrated), Asleep),
            ("RecordForeign", Some((Some(Draining), Held)), later, None, Held),
            ("Draining", Some((Some(Dehydrated), Asleep)), now, Some(Draining), Pending),
            ("Draining", Some((Some(Draining), Held)), now, Some(Draining), Pending),
            ("RecordForeign", Some((Some(Draining), Pending)), now, None, Held),
            ("DrainTimedOut", None, now, Some(Phase::DrainTimedOut), Failed),
            ("Preflight", None, now, Some(Preflight), Pending),
            ("", None, now, None, Held),
        ] {
            let state = written.map(|(phase, outcome)| (STATE, State { phase, outcome }.condition(now)));
            let cluster = with(state.into_iter().chain([(DEHYDRATED, words(reason, at))]));
            assert_eq!(State::of(&cluster), Some(State { phase, outcome }), "{reason} {written:?} {at}");
        }
        let alone = State::entered(Dehydrated).condition(now);
        assert_eq!(State::of(&with([(STATE, alone)])), None, "it describes nothing");
    }

    proptest! {
        #[test]
        fn no_message_is_a_state(message in ".{0,80}", data in ".{0,80}") {
            let of = |message: &str, data: &str| {
                let words = Condition { message: Some(message.to_owned()), ..words("RecordForeign", "t") };
                let data = Condition { message: Some(data.to_owned()), ..Condition::default() };
                State::of(&with([(DEHYDRATED, words), (STATE, data)]))
            };
            prop_assert_eq!(of(&message, &data), of("", ""));
        }
    }

    fn answered(findings: &[Finding], deployments: usize) -> (Cluster, Option<Preflight>) {
        let preflight = Preflight {
            requested: "2026-11-22T18:00:00Z".into(),
            at: "2026-11-22T18:00:01Z".parse().unwrap(),
            findings: findings.to_vec(),
            left_out: 0,
            pods: 7,
            numbers: Numbers { volumes: 3, load_balancers: 2, machines: 5 },
            machine_deployments: (0..deployments).map(|at| (format!("kube-system/{at:0>60}"), 1)).collect(),
            quota: [("cpu".to_owned(), "8".to_owned())].into(),
        };
        let condition = preflight.condition();
        let mut cluster = Cluster::new("abc", ClusterSpec::default());
        let conditions = [(PREFLIGHT.to_owned(), condition)].into();
        cluster.status = Some(ClusterStatus { conditions, ..ClusterStatus::default() });
        let answer = Preflight::answer(&cluster, "2026-11-22T18:00:00Z");
        (cluster, answer)
    }

    fn finding(severity: Severity, length: usize) -> Finding {
        Finding { sentence: "x".repeat(length), ..Finding::new(severity, "BarePods", "") }
    }

    #[test]
    fn the_answer_is_read_back_and_belongs_to_its_request() {
        for (findings, status, reason) in [
            (vec![], "True", "Admitted"),
            (vec![finding(Severity::Warn, 9)], "True", "Admitted"),
            (vec![finding(Severity::Forceable, 9)], "False", "NeedsForce"),
            (vec![finding(Severity::Block, 9), finding(Severity::Forceable, 9)], "False", "Refused"),
        ] {
            let (cluster, answer) = answered(&findings, 2);
            let condition = cluster.condition(PREFLIGHT).unwrap();
            assert_eq!((condition.status.as_str(), condition.reason.as_deref()), (status, Some(reason)));
            let answer = answer.unwrap();
            assert_eq!((answer.findings.len(), answer.left_out, answer.pods), (findings.len(), 0, 7));
            assert_eq!(Preflight::answer(&cluster, "2026-11-22T18:00:02Z"), None);
        }
    }

    /// Two requests at once: the annotation holds the later one, and its answer is fresh enough for both.
    #[test]
    fn an_answer_counts_for_all_requests_before_it() {
        let at: Timestamp = "2026-11-22T18:00:05Z".parse().unwrap();
        for (given, asked, counts) in [
            ("2026-11-22T18:00:04Z", "2026-11-22T18:00:04Z", true),
            ("2026-11-22T18:00:04Z", "2026-11-22T18:00:03Z", true),
            ("2026-11-22T18:00:04Z", "2026-11-22T19:00:04+01:00", true),
            ("2026-11-22T18:00:04Z", "2026-11-22T18:00:05Z", false),
            ("2126-11-22T18:00:04Z", "2126-11-22T18:00:04Z", true),
            ("2126-11-22T18:00:04Z", "2026-11-22T18:00:05Z", true),
            ("2126-11-22T18:00:04Z", "2026-11-22T18:00:06Z", false), // not before the cluster was read
            ("now", "now", true),
            ("now", "2026-11-22T18:00:03Z", false),
            ("2026-11-22T18:00:04Z", "now", false),
        ] {
            let (mut cluster, answer) = answered(&[], 0);
            let answer = Preflight { requested: given.to_owned(), at, ..answer.unwrap() };
            let conditions = [(PREFLIGHT.to_owned(), answer.condition())].into();
            cluster.status = Some(ClusterStatus { conditions, ..ClusterStatus::default() });
            assert_eq!(Preflight::answer(&cluster, asked).is_some(), counts, "{given} {asked}");
        }
    }

    #[test]
    fn an_answer_stays_within_its_bound() {
        let (_, answer) = answered(&[finding(Severity::Block, 10_000), finding(Severity::Warn, 10_000)], 2);
        let answer = answer.unwrap();
        assert_eq!((answer.findings.len(), answer.left_out, answer.machine_deployments.len()), (1, 1, 2));
        let (_, answer) = answered(&[], 1_000);
        assert!(answer.unwrap().machine_deployments.is_empty());
    }
}
