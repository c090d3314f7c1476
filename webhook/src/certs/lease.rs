//! The Lease of the replica that may write. It keeps replicas from doing the same work at the same time. If two of them do,
//! the resourceVersion of each write prevents harm.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, PostParams};

/// How long a Lease is valid without renewal. The work takes a second, so a crashed holder delays it by this time at most.
const LEASE_DURATION: Duration = Duration::from_secs(15);

/// Acquires or renews the Lease. False if another replica holds it or was faster.
pub(super) async fn acquire(api: &Api<Lease>, name: &str, identity: &str, now: Timestamp) -> kube::Result<bool> {
    let answer = match api.get_opt(name).await? {
        None => {
            let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
            let lease = Lease { metadata, spec: Some(taken(None, identity, now)) };
            api.create(&PostParams::default(), &lease).await
        }
        Some(lease) if !may_take(lease.spec.as_ref(), identity, now) => return Ok(false),
        Some(lease) => {
            let spec = Some(taken(lease.spec.as_ref(), identity, now));
            api.replace(name, &PostParams::default(), &Lease { spec, ..lease }).await
        }
    };
    match answer {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => Ok(false),
        Err(error) => Err(error),
    }
}

fn may_take(spec: Option<&LeaseSpec>, identity: &str, now: Timestamp) -> bool {
    let Some(spec) = spec else { return true };
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or_default();
    let ends = spec.renew_time.as_ref().and_then(|renewed| renewed.0.saturating_add(Duration::from_secs(seconds)).ok());
    holder.is_empty() || holder == identity || ends.is_none_or(|ends| ends < now)
}

fn taken(old: Option<&LeaseSpec>, identity: &str, now: Timestamp) -> LeaseSpec {
    let old = old.cloned().unwrap_or_default();
    let mine = old.holder_identity.as_deref() == Some(identity);
    LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
        acquire_time: if mine { old.acquire_time } else { Some(MicroTime(now)) },
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(old.lease_transitions.unwrap_or_default() + i32::from(!mine)),
        ..old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    #[test]
    fn an_empty_an_own_and_an_expired_lease_may_be_taken() {
        let held = taken(None, "a", at(0));
        assert!(may_take(None, "a", at(0)));
        assert!(may_take(Some(&LeaseSpec::default()), "a", at(0)));
        assert!(may_take(Some(&held), "a", at(1)));
        assert!(!may_take(Some(&held), "b", at(15)));
        assert!(may_take(Some(&held), "b", at(16)));
    }

    #[test]
    fn renewing_keeps_the_time_of_taking_and_taking_over_counts() {
        let held = taken(None, "a", at(0));
        let renewed = taken(Some(&held), "a", at(5));
        assert_eq!((&renewed.acquire_time, renewed.lease_transitions), (&held.acquire_time, Some(1)));
        let over = taken(Some(&renewed), "b", at(30));
        assert_eq!((over.acquire_time, over.lease_transitions), (Some(MicroTime(at(30))), Some(2)));
    }
}
