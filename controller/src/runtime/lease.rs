//! Leader election by a Lease: of several controllers one acts.
//!
//! A Lease cannot fence a cloud: a controller that is suspended in the middle of a decision resumes as if it were still
//! the leader. So the right to act, [`Claim`], expires `renew_deadline` after the last renewal was *sent*, which is
//! before another replica may take the Lease. The controller checks the claim before every action and every request to
//! a cloud. Each term has its own claim: a decision of an earlier term, during which another replica may have led, is
//! never executed in a later one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, PostParams};
use shared::text::sanitize_chain;
use tracing::{info, warn};

use super::clock;
use super::readiness::Readiness;

/// How often a standby controller checks whether the Lease is free.
const STANDBY_PERIOD: Duration = Duration::from_secs(1);

/// The right to act in one time of leading, until a moment that every renewal moves on.
#[derive(Clone, Debug, Default)]
pub struct Claim {
    /// Milliseconds since boot; 0 is never.
    until: Arc<AtomicU64>,
}

impl Claim {
    /// Whether this process may act now.
    pub fn holds(&self) -> bool {
        clock::since_boot().is_some_and(|now| millis(now) < self.until.load(Ordering::Acquire))
    }

    /// One that never expires.
    #[cfg(test)]
    pub fn held() -> Self {
        let claim = Self::default();
        claim.until.store(u64::MAX, Ordering::Release);
        claim
    }

    fn extend(&self, until: Duration) {
        self.until.store(millis(until), Ordering::Release);
    }

    fn end(&self) {
        self.until.store(0, Ordering::Release);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Why the Lease could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The API server refused to do this with the Lease of this name, or did not answer.
    #[error("{0} Lease {1}")]
    Api(&'static str, String, #[source] Box<kube::Error>),
    /// The API server did not answer in this time.
    #[error("{0} Lease {1}: no answer within {2:?}")]
    TimedOut(&'static str, String, Duration),
    /// There is no clock that counts suspension.
    #[error("the system has no monotonic clock")]
    NoClock,
}

/// One controller's part in the election.
pub struct Election {
    api: Api<Lease>,
    name: String,
    identity: String,
    times: Times,
    claim: Claim,
    /// The Lease as last seen, and when its holder was last seen to renew it.
    seen: Option<(Lease, Duration)>,
    readiness: Arc<Readiness>,
}

/// The three times of an election: `lease` > `deadline` > `retry`.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Duration of the lease: without a renewal, another controller may lead after this time.
    pub lease: Duration,
    /// After this long without a renewal this controller no longer acts.
    pub deadline: Duration,
    /// How often the Lease is renewed.
    pub retry: Duration,
}

impl Times {
    /// Whether the times are in the order that makes the election safe.
    pub fn are_ordered(self) -> bool {
        self.lease > self.deadline && self.deadline > self.retry && !self.retry.is_zero()
    }
}

impl Election {
    /// Takes part under this identity. No request is made yet.
    pub fn new(api: Api<Lease>, name: String, identity: String, times: Times, readiness: Arc<Readiness>) -> Self {
        Self { api, name, identity, times, claim: Claim::default(), seen: None, readiness }
    }

    /// The claim of this time of leading, which is renewed while it lasts and holds no more afterwards.
    pub fn claim(&self) -> Claim {
        self.claim.clone()
    }

    /// Returns once this controller leads.
    pub async fn win(&mut self) {
        self.begin();
        loop {
            match self.attempt(false).await {
                Ok(true) => {
                    info!(lease = self.name, identity = self.identity, "leading");
                    return;
                }
                Ok(false) => {}
                Err(error) => warn!(error = sanitize_chain(&error), "leader election failed, will retry"),
            }
            tokio::time::sleep(STANDBY_PERIOD.min(self.times.retry)).await;
        }
    }

    /// From here on another time of leading may come. The claim of the one before does not hold in it.
    fn begin(&mut self) {
        self.claim.end();
        self.claim = Claim::default();
    }

    /// Renews; returns once this controller leads no more.
    pub async fn keep(&mut self) {
        loop {
            tokio::time::sleep(self.times.retry).await;
            match self.attempt(true).await {
                Ok(true) => continue,
                Ok(false) => warn!(lease = self.name, "lost the lease: another controller leads or has led"),
                Err(error) if self.claim.holds() => {
                    warn!(error = sanitize_chain(&error), "cannot renew, will try again");
                    continue;
                }
                Err(error) => warn!(error = sanitize_chain(&error), "could not renew in time"),
            }
            self.claim.end();
            return;
        }
    }

    /// Gives the Lease back, so that the next controller need not wait for it to run out.
    pub async fn release(&mut self) {
        self.claim.end();
        let Some((lease, _)) = self.seen.take().filter(|(lease, _)| holder(lease) == Some(self.identity.as_str()))
        else {
            return;
        };
        let released = self.written(Some(&lease), String::new(), Duration::from_secs(1));
        if let Err(error) = self.write("release", &released).await {
            warn!(error = sanitize_chain(&error), "cannot release the lease: it expires by itself");
        }
    }

    /// [`Self::try_once`], with its failure in `/readyz`. That another replica holds the Lease is none.
    async fn attempt(&mut self, leads: bool) -> Result<bool, LeaseError> {
        let tried = self.try_once(leads).await;
        self.readiness.elects(tried.as_ref().err().map(|error| sanitize_chain(error)));
        tried
    }

    /// One read, and one write if the Lease may be written. True if this replica holds it now.
    async fn try_once(&mut self, leads: bool) -> Result<bool, LeaseError> {
        let begun = clock::since_boot().ok_or(LeaseError::NoClock)?;
        let found = self.call("read", self.api.get_opt(&self.name)).await?;
        // What was read may have been written just before the answer: its holder's time runs from here, ours from the
        // beginning.
        let now = clock::since_boot().ok_or(LeaseError::NoClock)?;
        let version = |lease: &Lease| lease.metadata.resource_version.clone();
        if let Some(lease) = &found
            && self.seen.as_ref().is_none_or(|(seen, _)| version(seen) != version(lease))
        {
            self.seen = Some((lease.clone(), now));
        }
        if !self.may_write(found.as_ref(), now, leads) {
            return Ok(false);
        }
        let lease = self.written(found.as_ref(), self.identity.clone(), self.times.lease);
        match self.write("renew", &lease).await {
            Ok(written) => {
                self.seen = Some((written, now));
                self.claim.extend(begun + self.times.deadline);
                Ok(true)
            }
            // Another write came first. If it was ours and its answer was lost, the next read shows that.
            Err(LeaseError::Api(.., source)) if is_conflict(&source) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The leader may only renew a Lease that it still holds: if the Lease is gone or free, another replica may have
    /// led in between.
    fn may_write(&self, found: Option<&Lease>, now: Duration, leads: bool) -> bool {
        let Some(lease) = found else { return !leads };
        if leads { holder(lease) == Some(self.identity.as_str()) } else { self.is_free(lease, now) }
    }

    /// Held by this replica, by none, or not renewed within the holder's lease duration.
    fn is_free(&self, lease: &Lease, now: Duration) -> bool {
        let Some(holder) = holder(lease).filter(|holder| !holder.is_empty()) else { return true };
        let promised = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
        let promised =
            promised.and_then(|seconds| u64::try_from(seconds).ok()).map_or(self.times.lease, Duration::from_secs);
        let since = self.seen.as_ref().map_or(now, |(_, since)| *since);
        holder == self.identity || now.saturating_sub(since) >= promised
    }

    fn written(&self, old: Option<&Lease>, holder_identity: String, promised: Duration) -> Lease {
        let now = MicroTime(Timestamp::now());
        let old_spec = old.and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let same = old_spec.holder_identity.as_deref() == Some(&holder_identity);
        let transitions = old_spec.lease_transitions.unwrap_or_default() + i32::from(!same && old.is_some());
        let metadata = old.map_or_else(
            || ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
            |lease| lease.metadata.clone(),
        );
        let spec = LeaseSpec {
            acquire_time: if same { old_spec.acquire_time } else { Some(now.clone()) },
            renew_time: Some(now),
            lease_duration_seconds: i32::try_from(whole_seconds(promised)).ok(),
            lease_transitions: Some(transitions),
            holder_identity: Some(holder_identity),
            ..old_spec
        };
        Lease { metadata, spec: Some(spec) }
    }

    async fn write(&self, verb: &'static str, lease: &Lease) -> Result<Lease, LeaseError> {
        let params = PostParams {
            field_manager: Some(shared::annotation::keys::CONTROLLER.to_owned()),
            ..PostParams::default()
        };
        if lease.metadata.resource_version.is_none() {
            self.call("create", self.api.create(&params, lease)).await
        } else {
            self.call(verb, self.api.replace(&self.name, &params, lease)).await
        }
    }

    async fn call<T>(&self, verb: &'static str, call: impl Future<Output = kube::Result<T>>) -> Result<T, LeaseError> {
        let (limit, name) = (self.times.deadline / 2, self.name.clone());
        match tokio::time::timeout(limit, call).await {
            Ok(result) => result.map_err(|source| LeaseError::Api(verb, name, Box::new(source))),
            Err(_) => Err(LeaseError::TimedOut(verb, name, limit)),
        }
    }
}

/// Rounded up: no other replica may lead before the time is over.
fn whole_seconds(time: Duration) -> u64 {
    (time.as_secs() + u64::from(time.subsec_nanos() > 0)).max(1)
}

fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref()
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict() || status.is_already_exists())
}

#[cfg(test)]
mod tests {
    use http::{Request, Response, StatusCode};
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tower::BoxError;

    use super::*;

    const RETRY: Duration = Duration::from_secs(2);

    /// One that takes part as `a`, without a hub.
    fn election() -> Election {
        let nobody = |_: Request<Body>| std::future::ready(Err::<Response<Body>, BoxError>("nobody answers".into()));
        let api = Api::namespaced(Client::new(tower::service_fn(nobody), "default"), "default");
        let times = Times { lease: 6 * RETRY, deadline: 4 * RETRY, retry: RETRY };
        Election::new(api, "lease".to_owned(), "a".to_owned(), times, Arc::new(Readiness::new(Arc::default())))
    }

    #[tokio::test]
    async fn readyz_fails_while_the_lease_cannot_be_read_and_not_while_another_replica_holds_it() {
        let hub = |code: u16, body: Value| -> Api<Lease> {
            let answer = move |_: Request<Body>| {
                let response = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
                std::future::ready(response.map_err(BoxError::from))
            };
            Api::namespaced(Client::new(tower::service_fn(answer), "default"), "default")
        };
        let mut election = election();
        let readiness = election.readiness.clone();
        assert_eq!(readiness.answer(false, false).0, StatusCode::SERVICE_UNAVAILABLE, "not read yet");

        let message = "leases \"lease\" is forbidden in the namespace \"default\"\u{1b}[31m";
        let forbidden = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": "Forbidden", "code": 403,
        });
        election.api = hub(403, forbidden);
        assert!(election.attempt(false).await.is_err());
        let (code, text) = readiness.answer(false, false);
        assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE, "{text}");
        assert!(text.starts_with("leader election: read Lease lease: ") && text.contains("is forbidden"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
        let (code, text) = readiness.answer(true, false);
        assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE);
        assert!(text.starts_with("[-]leader read Lease lease: ") && text.ends_with("readyz check failed\n"), "{text}");

        let held = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "lease", "resourceVersion": "1" },
            "spec": { "holderIdentity": "b", "leaseDurationSeconds": 15 },
        });
        election.api = hub(200, held);
        assert!(!election.attempt(false).await.unwrap());
        assert_eq!(readiness.answer(false, false), (StatusCode::OK, "ok".to_owned()));
        assert!(readiness.answer(true, false).1.ends_with("readyz check passed\n"));
    }

    #[tokio::test]
    async fn what_was_begun_in_one_time_of_leading_does_not_go_on_in_the_next() {
        let mut election = election();
        let later = clock::since_boot().unwrap() + Duration::from_mins(1);
        election.begin();
        let first = election.claim();
        assert!(!first.holds());
        election.claim.extend(later);
        assert!(first.holds());
        election.begin();
        election.claim.extend(later);
        assert!(election.claim().holds() && !first.holds());
    }

    #[tokio::test]
    async fn a_holder_has_its_time_from_when_its_lease_was_read() {
        let slow = |_: Request<Body>| async {
            tokio::time::sleep(RETRY / 10).await;
            let spec = LeaseSpec { holder_identity: Some("b".to_owned()), ..LeaseSpec::default() };
            let metadata = ObjectMeta { resource_version: Some("1".to_owned()), ..ObjectMeta::default() };
            let lease = serde_json::to_vec(&Lease { metadata, spec: Some(spec) })?;
            Ok::<_, BoxError>(Response::new(Body::from(lease)))
        };
        let mut election = election();
        election.api = Api::namespaced(Client::new(tower::service_fn(slow), "default"), "default");
        let begun = clock::since_boot().unwrap();
        assert!(!election.try_once(false).await.unwrap());
        assert!(election.seen.unwrap().1 >= begun + RETRY / 10);
    }

    #[tokio::test]
    async fn what_is_promised_to_others_is_never_less_than_what_is_kept() {
        for (promised, seconds) in [(10_000, 10), (10_900, 11), (10_001, 11), (1, 1), (0, 1)] {
            let lease = election().written(None, "a".to_owned(), Duration::from_millis(promised));
            assert_eq!(lease.spec.unwrap().lease_duration_seconds, Some(seconds), "{promised} ms");
        }
    }

    #[tokio::test]
    async fn who_leads_only_renews_what_is_still_its_own() {
        let mut election = election();
        let held_by = |holder: &str| {
            let spec = LeaseSpec { holder_identity: Some(holder.to_owned()), ..LeaseSpec::default() };
            Lease { spec: Some(spec), ..Lease::default() }
        };
        let (now, long_ago) = (Duration::from_hours(1), Duration::ZERO);
        for (case, found, since, wins, renews) in [
            ("ours", Some("a"), now, true, true),
            ("another's", Some("b"), now, false, false),
            ("another's, run out", Some("b"), long_ago, true, false),
            ("given back", Some(""), now, true, false),
            ("deleted", None, now, true, false),
        ] {
            let found = found.map(held_by);
            election.seen = found.clone().map(|lease| (lease, since));
            assert_eq!(election.may_write(found.as_ref(), now, false), wins, "{case}");
            assert_eq!(election.may_write(found.as_ref(), now, true), renews, "{case}");
        }
    }
}
