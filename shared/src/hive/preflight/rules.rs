//! From what was found to findings.
//!
//! | # | found | finding |
//! |---|---|---|
//! | C1 | credentials missing, malformed or refused | block `Credentials` |
//! | C2 | no instances | block `NoInstances` |
//! | C3 | the cloud does not answer | warn `CloudNotAsked` |
//! | C4 | instances | info `Credentials`, and `StopProtection`, `Recreated` or `Shelved` |
//! | C5 | one-time spot instances | warn `SpotInstances` |
//! | C6 | instances that can never be made again as they are | block `CannotSleep` |
//! | S1 | the cluster is not awake | info `SpokeNotAwake`, and what the last look said of it |
//! | S2 | its API server does not answer | warn `SpokeNotAsked` |
//! | S3 | `ClusterVersion` is `Progressing` | warn `UpgradeInProgress` |
//! | S4 | a certificate has expired, or will within a day; later | warn; info `CertificateExpires` |
//! | S5 | undecided certificate requests | warn `PendingRequests` |
//! | S6 | webhooks that hold up a start | warn `WebhooksOnWake` |
//! | S7 | disruption budgets that allow none | info `DisruptionBudgets` |
//! | S8 | a part that could not be read | warn `NotRead` |
//!
//! False, if anything but C3, S2 or S8 blocks or warns; Unknown, if these do; True otherwise.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::Answer;
use super::webhooks::{LONGEST_DELAY, WebhookObservation};
use crate::annotation::format;
use crate::cloud::CloudErrorKind::{Credentials, Denied, Invalid};
use crate::cloud::{CloudError, Inventory, Lifecycle};
use crate::finding::{Finding, Severity, code};
use crate::text::{count, list};

/// What the cluster's own API server said.
#[derive(Clone, Debug, PartialEq)]
pub enum SpokePreflight {
    /// It was not asked, because the cluster is not awake.
    NotAwake,
    /// It could not be asked, and why.
    NotAsked(String),
    /// It answered.
    Looked(Box<SpokeObservation>),
}

/// One part of it: `None` if the cluster has no such kind, an error if it could not be read.
pub type Part<T> = Result<Option<T>, String>;

/// What there was to see.
#[derive(Clone, Debug, PartialEq)]
pub struct SpokeObservation {
    /// The version, and whether it is changing.
    pub version: Part<VersionObservation>,
    /// Certificates of the control plane.
    pub certificates: Part<Vec<Certificate>>,
    /// Undecided certificate requests.
    pub pending_requests: Part<usize>,
    /// Validating and mutating webhooks.
    pub webhooks: Part<Vec<WebhookObservation>>,
    /// Labels of the namespace kube-system, by which webhooks may leave it out.
    pub kube_system: BTreeMap<String, String>,
    /// Disruption budgets that allow no disruption, as `namespace/name`.
    pub budgets: Part<Vec<String>>,
}

/// A `ClusterVersion`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionObservation {
    /// Condition Progressing is True.
    pub progressing: bool,
    /// The last version that was reached.
    pub from: Option<String>,
    /// The version that is wanted.
    pub to: Option<String>,
}

/// A certificate and its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Where it is, as `namespace/name` of its Secret.
    pub name: String,
    /// Until when it is valid.
    pub not_after: Timestamp,
}

/// A certificate that expires sooner than this causes a warning, however short the sleep.
const EXPIRY_WARNING_THRESHOLD: SignedDuration = SignedDuration::from_hours(24);

/// The answer to a preflight. `cloud` is none if the cloud was not asked; `previous` is what the condition holds, and
/// since when.
pub fn answer(
    cloud: Option<&Result<Inventory, CloudError>>,
    spoke: &SpokePreflight,
    previous: Option<(Vec<Finding>, Timestamp)>,
    now: Timestamp,
) -> Answer {
    let mut findings = of_cloud(cloud);
    findings.extend(match spoke {
        SpokePreflight::NotAwake => of_last_time(previous),
        SpokePreflight::NotAsked(why) => vec![Finding::warn(code::SPOKE_NOT_ASKED, why)], // S2
        SpokePreflight::Looked(observation) => of_spoke(observation, now),
    });
    let unseen = |finding: &Finding| code::UNSEEN.contains(&finding.code.as_str());
    let seen = findings.iter().filter(|finding| !unseen(finding)).map(|finding| finding.severity);
    let (status, reason) = match seen.min() {
        Some(Severity::Block) => ("False", "Blocked"),
        Some(Severity::Forceable | Severity::Warn) => ("False", "Slowed"),
        _ if findings.iter().any(unseen) => ("Unknown", "NotLookedAt"),
        _ => ("True", "Clear"),
    };
    findings.sort();
    findings.dedup();
    Answer { status, reason, findings }
}

/// The same finding for a sleep until `end`: a certificate that ends before is more than good to know.
pub fn within(finding: Finding, end: Option<Timestamp>) -> Finding {
    let ends = finding.ends.filter(|_| finding.code == code::CERTIFICATE_EXPIRES);
    if finding.severity == Severity::Info && ends.zip(end).is_some_and(|(ends, end)| ends <= end) {
        return Finding { severity: Severity::Warn, ..finding };
    }
    finding
}

fn of_cloud(cloud: Option<&Result<Inventory, CloudError>>) -> Vec<Finding> {
    let machines = match cloud {
        None => {
            let sentence = "the cloud was not checked: no cloud call is needed now";
            return vec![Finding::warn(code::CLOUD_NOT_ASKED, sentence)];
        }
        // C1
        Some(Err(CloudError { kind: Credentials | Denied | Invalid, message })) => {
            return vec![Finding::block(code::CREDENTIALS, message)];
        }
        // C3
        Some(Err(error)) => return vec![Finding::warn(code::CLOUD_NOT_ASKED, &error.message)],
        // C2
        Some(Ok(machines)) if machines.instances.is_empty() => {
            return vec![Finding::block(code::NO_INSTANCES, machines.profile.nothing_matches())];
        }
        Some(Ok(machines)) => machines,
    };
    // C4
    let instances = count(machines.instances.len(), "instance");
    let unsure = match machines.profile.lifecycle {
        Lifecycle::StopStart => {
            let protection = "whether an instance is protected from being stopped shows only at the stop";
            Finding::info(code::STOP_PROTECTION, protection)
        }
        Lifecycle::Recreate => Finding::info(
            code::RECREATED,
            "a sleep images and deletes the instances, and a wake makes them again under new IDs: Machines follow, Nodes keep \
             the old providerID, and user data, which only a first boot reads, is not kept",
        ),
        Lifecycle::Shelve => {
            let what =
                "a sleep shelves the instances, which keep their IDs; whether that frees quota is up to the cloud";
            Finding::info(code::SHELVED, what)
        }
    };
    let mut findings =
        vec![Finding::info(code::CREDENTIALS, format!("the credentials work: {instances} found")), unsure];
    // C5
    let spot: Vec<&str> = machines.instances.iter().filter(|i| i.is_one_time_spot()).map(|i| i.id.as_str()).collect();
    findings.extend((!spot.is_empty()).then(|| {
        let (instances, names) = (count(spot.len(), "spot instance"), list(&spot));
        let sentence = format!("{instances} will be terminated by the stop, and the wake waits for new ones: {names}");
        Finding::warn(code::SPOT_INSTANCES, sentence)
    }));
    // C6
    findings.extend(machines.obstacles().map(|obstacle| Finding::block(code::CANNOT_SLEEP, obstacle)));
    findings
}

/// S1. What was carried over before is not dated anew.
fn of_last_time(previous: Option<(Vec<Finding>, Timestamp)>) -> Vec<Finding> {
    let (before, found) = previous.map_or_else(Default::default, |(before, found)| (before, Some(found)));
    let mut carried: Vec<Finding> =
        before.iter().filter(|finding| code::OF_SPOKE.contains(&finding.code.as_str())).cloned().collect();
    let dated = before.into_iter().find(|finding| finding.code == code::SPOKE_NOT_AWAKE);
    carried.push(dated.unwrap_or_else(|| {
        let checked = found.map_or(", and its API server has never been checked".to_owned(), |found| {
            format!("; its API server was last checked at {}", format::seconds(found))
        });
        Finding::info(code::SPOKE_NOT_AWAKE, format!("the cluster is not awake{checked}"))
    }));
    carried
}

fn of_spoke(observation: &SpokeObservation, now: Timestamp) -> Vec<Finding> {
    let parts = [
        part("ClusterVersion", &observation.version, upgrade), // S3
        part("certificates", &observation.certificates, |certificates| expiry(certificates, now)), // S4
        part("certificate requests", &observation.pending_requests, |requests| pending(*requests)), // S5
        part("webhooks", &observation.webhooks, |webhooks| held_up(webhooks, &observation.kube_system)), // S6
        part("disruption budgets", &observation.budgets, |budgets| {
            (!budgets.is_empty()).then(|| disruption_budgets(budgets)) // S7
        }),
    ];
    parts.into_iter().flatten().collect()
}

/// S8 for what could not be read; nothing for what the cluster does not have.
fn part<T>(what: &str, part: &Part<T>, judge: impl FnOnce(&T) -> Option<Finding>) -> Option<Finding> {
    match part {
        Err(why) => Some(Finding::warn(code::NOT_READ, format!("{what} could not be read: {why}"))),
        Ok(None) => None,
        Ok(Some(found)) => judge(found),
    }
}

fn upgrade(version: &VersionObservation) -> Option<Finding> {
    let name = |version: &Option<String>| version.clone().unwrap_or_else(|| "an unknown version".to_owned());
    let (from, to) = (name(&version.from), name(&version.to));
    let sentence = format!(
        "the cluster is being upgraded from {from} to {to}: a sleep interrupts it, and it goes on after the wake"
    );
    version.progressing.then(|| Finding::warn(code::UPGRADE_IN_PROGRESS, sentence))
}

fn expiry(certificates: &[Certificate], now: Timestamp) -> Option<Finding> {
    let first = certificates.iter().min_by_key(|certificate| certificate.not_after)?;
    let (name, end) = (&first.name, format::seconds(first.not_after));
    let left = first.not_after.duration_since(now);
    let finding = if left <= SignedDuration::ZERO {
        Finding::warn(code::CERTIFICATE_EXPIRES, format!("the certificate in {name} has expired at {end}"))
    } else if left < EXPIRY_WARNING_THRESHOLD {
        Finding::warn(code::CERTIFICATE_EXPIRES, format!("the certificate in {name} expires within a day, at {end}"))
    } else {
        let sentence = format!("the first certificate to expire is that in {name}, at {end}");
        Finding::info(code::CERTIFICATE_EXPIRES, sentence)
    };
    Some(Finding { ends: Some(first.not_after), ..finding })
}

fn pending(requests: usize) -> Option<Finding> {
    let what = count(requests, "undecided certificate request");
    let sentence = format!("{what}: nodes that wait for them are not ready");
    (requests > 0).then(|| Finding::warn(code::PENDING_REQUESTS, sentence))
}

fn held_up(webhooks: &[WebhookObservation], kube_system: &BTreeMap<String, String>) -> Option<Finding> {
    let held_up =
        |webhook: &WebhookObservation| Some(format!("{} ({})", webhook.name, webhook.holds_up(kube_system, &[])?));
    let held: Vec<String> = webhooks.iter().filter_map(held_up).collect();
    if held.is_empty() {
        return None;
    }
    let (webhooks, names) = (count(held.len(), "webhook"), list(&held));
    let sentence = format!(
        "{webhooks} in the cluster can block the wake while their backends are down: {names}; exclude kube-system, or set \
         failurePolicy: Ignore and timeoutSeconds to {LONGEST_DELAY} at most"
    );
    Some(Finding::warn(code::WEBHOOKS_ON_WAKE, sentence))
}

fn disruption_budgets(budgets: &[String]) -> Finding {
    let allow = if budgets.len() == 1 { "allows" } else { "allow" };
    let (budgets, names) = (count(budgets.len(), "budget"), list(budgets));
    let sentence = format!("{budgets} {allow} no disruption now; a stop ignores PodDisruptionBudgets: {names}");
    Finding::info(code::DISRUPTION_BUDGETS, sentence)
}
