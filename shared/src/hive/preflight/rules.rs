//! From what was found to findings.
//!
//! | # | found | finding |
//! |---|---|---|
//! | C1 | credentials missing, malformed or refused | block `Credentials` |
//! | C2 | no instances | block `NoInstances` |
//! | C3 | the cloud does not answer | warn `CloudNotAsked` |
//! | C4 | instances | info `Credentials`, `StopProtection` |
//! | C5 | one-time spot instances | warn `SpotInstances` |
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

use jiff::{SignedDuration, Timestamp};

use super::Answer;
use super::facts::{CloudLook, Part, SpokeLook, SpokePreflight, VersionLook};
use super::webhooks::LONGEST_DELAY;
use crate::annotation::format;
use crate::cloud::{CloudError, CloudErrorKind};
use crate::finding::{Finding, Severity, code};
use crate::text::name_some;

/// A certificate that expires sooner than this causes a warning, however short the sleep.
const EXPIRY_WARNING_THRESHOLD: SignedDuration = SignedDuration::from_hours(24);
/// Most names that a finding lists.
const MAX_NAMES: usize = 5;

/// The answer to a preflight. `cloud` is none if the cloud was not asked; `previous` is what the condition holds, and
/// since when.
pub fn answer(
    cloud: Option<&Result<CloudLook, CloudError>>,
    spoke: &SpokePreflight,
    previous: Option<(Vec<Finding>, Timestamp)>,
    now: Timestamp,
) -> Answer {
    let mut findings = of_cloud(cloud);
    findings.extend(match spoke {
        SpokePreflight::NotAwake => of_last_time(previous),
        SpokePreflight::NotAsked(why) => vec![warn(code::SPOKE_NOT_ASKED, why)], // S2
        SpokePreflight::Looked(look) => of_spoke(look, now),
    });
    let stands_in_the_way = |finding: &&Finding| finding.severity < Severity::Info;
    let unseen = |finding: &&Finding| code::UNSEEN.contains(&finding.code.as_str());
    let grave = findings.iter().filter(stands_in_the_way).filter(|finding| !unseen(finding));
    let (status, reason) = match grave.map(|finding| finding.severity).min() {
        Some(Severity::Block) => ("False", "Blocked"),
        Some(_) => ("False", "Slowed"),
        None if findings.iter().any(|finding| unseen(&finding)) => ("Unknown", "NotLookedAt"),
        None => ("True", "Clear"),
    };
    findings.sort();
    findings.dedup();
    Answer { status, reason, findings }
}

/// The same finding for a sleep until `end`: a certificate that ends before is more than good to know.
pub fn within(finding: Finding, end: Timestamp) -> Finding {
    let ends = finding.ends.filter(|_| finding.code == code::CERTIFICATE_EXPIRES);
    if finding.severity == Severity::Info && ends.is_some_and(|ends| ends <= end) {
        return Finding { severity: Severity::Warn, ..finding };
    }
    finding
}

fn info(code: &str, sentence: impl AsRef<str>) -> Finding {
    Finding::new(Severity::Info, code, sentence)
}

fn warn(code: &str, sentence: impl AsRef<str>) -> Finding {
    Finding::new(Severity::Warn, code, sentence)
}

fn block(code: &str, sentence: impl AsRef<str>) -> Finding {
    Finding::new(Severity::Block, code, sentence)
}

fn of_cloud(cloud: Option<&Result<CloudLook, CloudError>>) -> Vec<Finding> {
    use CloudErrorKind::{
        Capacity, Credentials, Denied, InTransit, Invalid, NotLeader, Refused, Throttled, Unavailable,
    };
    match cloud {
        None => vec![warn(code::CLOUD_NOT_ASKED, "the cloud was not checked: no cloud call is needed now")],
        Some(Err(error)) => match error.kind {
            Credentials | Denied | Invalid => vec![block(code::CREDENTIALS, &error.message)], // C1
            Throttled | Capacity | Unavailable | Refused | InTransit | NotLeader => {
                vec![warn(code::CLOUD_NOT_ASKED, &error.message)] // C3
            }
        },
        Some(Ok(look)) if look.instances == 0 => {
            let sentence = format!("nothing matches {}: check infraID, region and credentials", look.selector);
            vec![block(code::NO_INSTANCES, sentence)] // C2
        }
        Some(Ok(look)) => {
            let mut findings = vec![
                info(code::CREDENTIALS, format!("the credentials work: {} found", count(look.instances, "instance"))),
                info(
                    code::STOP_PROTECTION,
                    "whether an instance is protected from being stopped shows only at the stop",
                ),
            ]; // C4
            if !look.spot.is_empty() {
                findings.push(warn(
                    code::SPOT_INSTANCES,
                    format!(
                        "{} will be terminated by the stop, and the wake waits for new ones: {}",
                        count(look.spot.len(), "spot instance"),
                        name_some(&look.spot, MAX_NAMES)
                    ),
                )); // C5
            }
            findings
        }
    }
}

/// S1. What was carried over before is not dated anew.
fn of_last_time(previous: Option<(Vec<Finding>, Timestamp)>) -> Vec<Finding> {
    let (before, found) = previous.map_or_else(Default::default, |(before, found)| (before, Some(found)));
    let mut carried: Vec<Finding> =
        before.iter().filter(|finding| code::OF_SPOKE.contains(&finding.code.as_str())).cloned().collect();
    let dated = before.into_iter().find(|finding| finding.code == code::SPOKE_NOT_AWAKE);
    carried.push(match (dated, found) {
        (Some(dated), _) => dated,
        (None, Some(found)) => info(
            code::SPOKE_NOT_AWAKE,
            format!("the cluster is not awake; its API server was last checked at {}", format::seconds(found)),
        ),
        (None, None) => {
            info(code::SPOKE_NOT_AWAKE, "the cluster is not awake, and its API server has never been checked")
        }
    });
    carried
}

fn of_spoke(look: &SpokeLook, now: Timestamp) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(part("ClusterVersion", &look.version, |version| version.progressing.then(|| upgrade(version)))); // S3
    findings.extend(part("certificates", &look.certificates, |certificates| {
        let first = certificates.iter().min_by_key(|certificate| certificate.not_after)?;
        let (name, end) = (&first.name, format::seconds(first.not_after));
        let finding = match first.not_after.duration_since(now) {
            left if left <= SignedDuration::ZERO => {
                warn(code::CERTIFICATE_EXPIRES, format!("the certificate in {name} has expired at {end}"))
            }
            left if left < EXPIRY_WARNING_THRESHOLD => {
                warn(code::CERTIFICATE_EXPIRES, format!("the certificate in {name} expires within a day, at {end}"))
            }
            _ => {
                info(code::CERTIFICATE_EXPIRES, format!("the first certificate to expire is that in {name}, at {end}"))
            }
        };
        Some(Finding { ends: format::time(&end), ..finding })
    })); // S4
    findings.extend(part("certificate requests", &look.pending_requests, |pending| {
        (*pending > 0).then(|| {
            warn(
                code::PENDING_REQUESTS,
                format!("{}: nodes that wait for them are not ready", count(*pending, "undecided certificate request")),
            )
        })
    })); // S5
    findings.extend(part("webhooks", &look.webhooks, |webhooks| {
        let held: Vec<String> = webhooks
            .iter()
            .filter_map(|webhook| Some(format!("{} ({})", webhook.name, webhook.holds_up(&look.kube_system, &[])?)))
            .collect();
        (!held.is_empty()).then(|| {
            warn(
                code::WEBHOOKS_ON_WAKE,
                format!(
                    "{} in the cluster can block the wake while their backends are down: {}; exclude kube-system, or set \
                     failurePolicy: Ignore and timeoutSeconds to {LONGEST_DELAY} at most",
                    count(held.len(), "webhook"),
                    name_some(&held, MAX_NAMES)
                ),
            )
        })
    })); // S6
    findings.extend(part("disruption budgets", &look.budgets, |budgets| {
        (!budgets.is_empty()).then(|| {
            info(
                code::DISRUPTION_BUDGETS,
                format!(
                    "{} no disruption now; a stop ignores PodDisruptionBudgets: {}",
                    if budgets.len() == 1 {
                        "1 budget allows".to_owned()
                    } else {
                        format!("{} budgets allow", budgets.len())
                    },
                    name_some(budgets, MAX_NAMES)
                ),
            )
        })
    })); // S7
    findings
}

/// S8 for what could not be read; nothing for what the cluster does not have.
fn part<T>(what: &str, part: &Part<T>, judge: impl FnOnce(&T) -> Option<Finding>) -> Option<Finding> {
    match part {
        Err(why) => Some(warn(code::NOT_READ, format!("{what} could not be read: {why}"))),
        Ok(None) => None,
        Ok(Some(found)) => judge(found),
    }
}

fn upgrade(version: &VersionLook) -> Finding {
    let name = |version: &Option<String>| version.clone().unwrap_or_else(|| "an unknown version".to_owned());
    warn(
        code::UPGRADE_IN_PROGRESS,
        format!(
            "the cluster is being upgraded from {} to {}: a sleep interrupts it, and it goes on after the wake",
            name(&version.from),
            name(&version.to)
        ),
    )
}

/// `1 instance`, `6 instances`.
fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
