//! What a rollout reads of a `ClusterDeployment`: everything that depends on nothing but one version of the object.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::snapshot::Uid;
use super::target::Cause;
use crate::admission::{Change, UnreadFields, User, from_map};
use crate::annotation::hold::{Hold, NAMELESS, hold};
use crate::annotation::mark::{Mark, Power};
use crate::annotation::{format, keys};
use crate::hive::admission::{Cluster, Settings, judge};
use crate::hive::api::{ClusterDeployment, Condition, Desired, POWERSTATE_PAUSE, RECONCILE_PAUSE};
use crate::hive::conditions::{HIBERNATING, PROGRESS, READY, reason};
use crate::text::sanitize_to;

/// Longest reason in characters.
const MAX_REASON: usize = 200;

/// What a rollout reads of one version of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: Option<Uid>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// When it was created.
    pub created: Timestamp,
    /// The state that it is asked for.
    pub desired: Power,
    /// The state that it is in, and since when; `None` between two states.
    pub observed: Option<(Power, Timestamp)>,
    /// When its state was asked for last.
    pub requested: Option<Timestamp>,
    /// The claim or record on it.
    pub mark: Option<Mark>,
    /// The rule that refuses its sleep.
    pub refused: Option<String>,
    /// Until when it is held awake, and what to say of that. A hold without an end lasts.
    pub held_awake: Option<(Timestamp, String)>,
    /// Why neither a sleep nor a wake can begin.
    pub waits: Option<String>,
    /// Why the change fails, and since when.
    pub failed: Option<(String, Timestamp)>,
    /// Why its cloud delays the change, and since when.
    pub held: Option<(Cause, Timestamp)>,
    /// Whether its spoke can tell about an upgrade: it runs, and it is no fake.
    pub has_spoke: bool,
}

impl Observed {
    /// Reads an object. `served`: the platforms whose clusters the controller can put to sleep.
    pub fn of(cluster: &ClusterDeployment, served: &[&str]) -> Self {
        let desired = match cluster.desired() {
            Desired::Running => Power::Running,
            Desired::Hibernating => Power::Hibernating,
        };
        let observed = observed(cluster);
        let is_fake = cluster.annotation_is_true(crate::hive::api::FAKE_CLUSTER);
        let runs = observed.is_some_and(|(power, _)| power == Power::Running);
        let (failed, held) = trouble(cluster);
        Self {
            namespace: cluster.namespace().unwrap_or_default(),
            name: cluster.name_any(),
            uid: cluster.metadata.uid.as_deref().and_then(Uid::parse),
            labels: cluster.labels().clone(),
            created: cluster.creation_timestamp().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            desired,
            observed,
            requested: cluster.moment(keys::REQUESTED_AT),
            mark: cluster.annotations().get(keys::ROLLOUT).and_then(|text| Mark::parse(text)),
            refused: if desired == Power::Running { refused(cluster, served) } else { None },
            held_awake: held_awake(cluster),
            waits: waits(cluster),
            failed,
            held,
            has_spoke: runs && !is_fake,
        }
    }
}

fn since(condition: &Condition) -> Timestamp {
    condition.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

fn observed(cluster: &ClusterDeployment) -> Option<(Power, Timestamp)> {
    let is_true = |type_| cluster.condition(type_).filter(|condition| condition.status == "True");
    match (is_true(HIBERNATING), is_true(READY)) {
        (Some(asleep), None) => Some((Power::Hibernating, since(asleep))),
        (None, Some(awake)) => Some((Power::Running, since(awake))),
        _ => None,
    }
}

/// What fails, and what its cloud delays, each with its beginning.
type Trouble = (Option<(String, Timestamp)>, Option<(Cause, Timestamp)>);

fn trouble(cluster: &ClusterDeployment) -> Trouble {
    let probed = |condition: &Condition| condition.last_probe_time.as_ref().map_or_else(|| since(condition), |at| at.0);
    let awaited = cluster.condition(PROGRESS).filter(|condition| condition.status == "True");
    let cause = awaited.and_then(|condition| match condition.reason.as_deref()? {
        reason::CAPACITY => Some((Cause::Capacity, probed(condition))),
        reason::THROTTLED => Some((Cause::Throttled, probed(condition))),
        _ => None,
    });
    let passing = [reason::CLOUD_UNREACHABLE, reason::IN_TRANSIT];
    let passes = awaited.and_then(|condition| condition.reason.as_deref()).is_some_and(|why| passing.contains(&why));
    if cause.is_some() || passes {
        return (None, cause);
    }
    let failed = [HIBERNATING, READY].into_iter().filter_map(|type_| cluster.condition(type_));
    let is_failure = |condition: &&Condition| condition.reason.as_deref().is_some_and(reason::is_failure);
    let failed = failed.into_iter().find(is_failure);
    let message = |condition: &Condition| sanitize_to(condition.message.as_deref().unwrap_or_default(), MAX_REASON);
    (failed.map(|condition| (message(condition), probed(condition))), None)
}

/// The rules of admission V1 to V8 and `protected`, as if a person asked for the sleep. Holds are not among them: they
/// end.
fn refused(cluster: &ClusterDeployment, served: &[&str]) -> Option<String> {
    const USER: &str = "rollout";
    let mut before = json!(cluster);
    let annotations = &mut before["metadata"]["annotations"];
    match annotations.as_object_mut() {
        Some(annotations) => {
            annotations.remove(keys::HOLD_AWAKE_UNTIL);
            annotations.remove(keys::HOLD_AWAKE_BY);
        }
        None => *annotations = json!({}),
    }
    let mut after = before.clone();
    after["spec"]["powerState"] = "Hibernating".into();
    after["metadata"]["annotations"][keys::REQUESTED_BY] = USER.into();
    let (Some(old), Some(new)) = (read(&before), read(&after)) else {
        return Some("the object cannot be read".to_owned());
    };
    let served_platforms = served.iter().copied().map(str::to_owned).collect();
    let settings = Settings { served_platforms, ..Settings::default() };
    let user = User { username: USER.to_owned() };
    // No rule denies for what an object already says about time.
    let now = Timestamp::UNIX_EPOCH;
    let change = Change {
        old: Some(old),
        new,
        user: &user,
        field_manager: keys::CONTROLLER,
        now,
        settings: &settings,
        unread: UnreadFields::default(),
    };
    let judgement = judge(&change);
    let first = judgement.denials.first()?;
    Some(sanitize_to(&format!("{}: {}", first.row, first.said), MAX_REASON))
}

fn read(object: &Value) -> Option<Cluster> {
    from_map(object).ok()
}

fn held_awake(cluster: &ClusterDeployment) -> Option<(Timestamp, String)> {
    let by = |by: Option<&str>| sanitize_to(by.unwrap_or(NAMELESS), MAX_REASON / 2);
    match hold(|key| cluster.annotations().get(key).map(String::as_str), Timestamp::UNIX_EPOCH) {
        Hold::None => None,
        Hold::Until { until, by: holder } => {
            Some((until, format!("held awake until {} by {}", format::seconds(until), by(holder))))
        }
        Hold::Malformed { by: holder, .. } => {
            Some((Timestamp::MAX, format!("held awake by {}: the hold has no end that can be read", by(holder))))
        }
    }
}

fn waits(cluster: &ClusterDeployment) -> Option<String> {
    if cluster.metadata.deletion_timestamp.is_some() {
        return Some("it is being deleted".to_owned());
    }
    if !cluster.spec.installed {
        return Some("not installed yet".to_owned());
    }
    if let Some(key) = [RECONCILE_PAUSE, POWERSTATE_PAUSE].into_iter().find(|key| cluster.annotation_is_true(key)) {
        return Some(format!("paused: {key} is set"));
    }
    let pool = cluster.spec.cluster_pool_ref.as_ref()?;
    let is_claimed = pool.claim_name.as_ref().is_some_and(|name| !name.is_empty()) && pool.claimed_timestamp.is_some();
    let name = sanitize_to(&pool.pool_name, MAX_REASON / 2);
    (!is_claimed).then(|| format!("unclaimed cluster of ClusterPool {name}, which sets its powerState"))
}

/// What a cluster shares a cloud's limits with, as far as names tell: platform, region and the name of its credentials.
/// An estimate for forecasts: the controller knows the account. The names are compared without their namespaces: hubs
/// keep a copy of an account's Secret in the namespace of each cluster.
pub fn domain(cluster: &ClusterDeployment) -> String {
    let (platform, name) = (&cluster.spec.platform, cluster.name_any());
    let account = if let Some(aws) = &platform.aws {
        let secret = || account(aws.credentials_secret_ref.as_ref().map_or("", |secret| &secret.name), &name);
        aws.credentials_assume_role.as_ref().map_or_else(secret, |role| role.role_arn.clone())
    } else {
        let member = platform.other.get(platform.name());
        let secret = member.and_then(|member| member.pointer("/credentialsSecretRef/name")?.as_str());
        account(secret.unwrap_or_default(), &name)
    };
    sanitize_to(&format!("{}/{}/{account}", platform.name(), platform.region().unwrap_or_default()), MAX_REASON)
}

/// The account that a Secret is of, as far as names tell. Consoles give each cluster a copy of the account's Secret,
/// named after the cluster, such as `demo-aws-creds`: those count as one.
fn account(secret: &str, cluster: &str) -> String {
    let rest = secret.strip_prefix(cluster).filter(|rest| rest.starts_with('-'));
    rest.map_or_else(|| secret.to_owned(), |rest| format!("*{rest}"))
}
