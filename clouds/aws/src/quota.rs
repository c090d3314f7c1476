//! EC2's limits of an account and region: token buckets by request, and by instance for the calls that move instances.
//! <https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html>

use std::str::FromStr;

use cloud_common::RateLimiter;
use shared::cloud::Verb;

/// A bucket of EC2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bucket {
    /// Filtered and paged reading.
    Reads,
    /// Requests of a call.
    Requests(Verb),
    /// Instances that a call moves.
    Instances(Verb),
}

/// The buckets by name, with EC2's defaults for an account: burst, and refill per second.
const BUCKETS: [(&str, Bucket, (u32, u32)); 7] = [
    ("describe-requests", Bucket::Reads, (100, 20)),
    ("start-requests", Bucket::Requests(Verb::Start), (5, 2)),
    ("start-instances", Bucket::Instances(Verb::Start), (1000, 2)),
    ("stop-requests", Bucket::Requests(Verb::Stop), (50, 5)),
    ("stop-instances", Bucket::Instances(Verb::Stop), (1000, 20)),
    ("terminate-requests", Bucket::Requests(Verb::Terminate), (50, 5)),
    ("terminate-instances", Bucket::Instances(Verb::Terminate), (1000, 20)),
];

/// A quota that AWS has raised: `start-instances=5000/20`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    bucket: Bucket,
    burst: u32,
    rate: u32,
}

impl FromStr for Quota {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let quota = || {
            let (name, numbers) = text.split_once('=')?;
            let (burst, rate) = numbers.split_once('/')?;
            let (_, bucket, _) = BUCKETS.into_iter().find(|(known, ..)| *known == name)?;
            let number = |text: &str| text.parse().ok().filter(|number| *number > 0);
            Some(Self { bucket, burst: number(burst)?, rate: number(rate)? })
        };
        quota().ok_or_else(|| {
            let names = BUCKETS.map(|(name, ..)| name).join(", ");
            format!("write NAME=BURST/RATE with whole numbers above 0, such as start-instances=5000/20; NAME is one of {names}")
        })
    }
}

/// The rate limiters of one account and region.
#[derive(Debug)]
pub(crate) struct Limits(Vec<(Bucket, RateLimiter)>);

impl Limits {
    /// EC2's defaults, except for raised quotas. If a bucket is raised twice, the last one counts.
    pub(crate) fn new(raised: &[Quota]) -> Self {
        let limiter = |bucket: Bucket, (burst, rate)| {
            let raised = raised.iter().rfind(|quota| quota.bucket == bucket);
            let (burst, rate) = raised.map_or((burst, rate), |quota| (quota.burst, quota.rate));
            (bucket, RateLimiter::new(burst, rate))
        };
        Self(BUCKETS.into_iter().map(|(_, bucket, limits)| limiter(bucket, limits)).collect())
    }

    /// Whether every bucket is full: dropping the limiters then loses nothing.
    pub(crate) fn are_full(&self) -> bool {
        self.0.iter().all(|(_, limiter)| limiter.is_full())
    }

    pub(crate) fn of(&self, bucket: Bucket) -> &RateLimiter {
        // Every bucket is in the table.
        self.0.iter().find(|(known, _)| *known == bucket).map_or(&self.0[0].1, |(_, limiter)| limiter)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shared::cloud::Priority::Waking;
    use tokio::time::{Instant, timeout};

    use super::*;

    #[test]
    fn quotas_are_read_from_the_command_line() {
        for text in ["start-instances=5000/20", "describe-requests=1/1"] {
            text.parse::<Quota>().unwrap();
        }
        for text in [
            "",
            "start-instances",
            "start-instances=5",
            "start-instances=0/1",
            "start-instances=1/0",
            "x=1/1",
            "start-instances=a/b",
        ] {
            let error = text.parse::<Quota>().unwrap_err();
            assert!(error.contains("write NAME=BURST/RATE"), "{error}");
            let (example, names) = error.split_once("such as ").unwrap().1.split_once("; NAME is one of ").unwrap();
            for quota in names.split(", ").map(|name| format!("{name}=1/1")).chain([example.to_owned()]) {
                assert!(quota.parse::<Quota>().is_ok(), "{quota}: {error}");
            }
        }
    }

    /// How long a fleet of one account takes until its last call is admitted.
    async fn admitted(limits: &Limits, call: Verb, clusters: u32) -> Duration {
        let begin = Instant::now();
        for _ in 0..clusters {
            limits.of(Bucket::Instances(call)).acquire_some(Waking, 6, 6).await;
        }
        begin.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_fleet_of_one_account_takes_what_ec2_says() {
        let limits = Limits::new(&[]);
        assert_eq!(admitted(&limits, Verb::Start, 300).await.as_secs(), 400, "1,800 instances");
        assert_eq!(admitted(&limits, Verb::Stop, 300).await.as_secs(), 40);
        let raised =
            Limits::new(&["start-instances=1000/2".parse().unwrap(), "start-instances=5000/20".parse().unwrap()]);
        assert_eq!(admitted(&raised, Verb::Start, 300).await.as_secs(), 0);
        let requests = limits.of(Bucket::Requests(Verb::Start));
        for _ in 0..5 {
            requests.acquire(Waking).await;
        }
        timeout(Duration::from_millis(400), requests.acquire(Waking)).await.unwrap_err();
    }
}
