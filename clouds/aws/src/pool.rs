//! One [`Ec2`] for everybody who has the same credentials, so that their calls can be joined and share one limit.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use aws_config::SdkConfig;
use parking_lot::Mutex;

use crate::account::Account;
use crate::client::{Options, base};
use crate::credentials::Source;
use crate::driver::{Ec2, Fence};
use crate::errors::NoRetryWithoutCapacity;
use crate::quota::Limits;

/// The drivers in use. A driver is kept while a caller holds it, its limits until they are full again: EC2 still counts
/// the calls of a driver that was dropped.
///
/// Clusters share a driver only if their credentials are identical: no tenant gains another's permissions.
///
/// Not [`cloud_common::Pool`]: making a driver is async, and its limits outlive it.
pub(crate) struct Ec2Pool {
    options: Options,
    /// By [`Source::digest`].
    kept: Mutex<HashMap<[u8; 32], PoolEntry>>,
}

struct PoolEntry {
    driver: Weak<Ec2>,
    limits: Arc<Limits>,
}

impl PoolEntry {
    fn is_needed(&self) -> bool {
        self.driver.strong_count() > 0 || !self.limits.are_full()
    }
}

impl Ec2Pool {
    pub(crate) fn new(options: Options) -> Self {
        Self { options, kept: Mutex::default() }
    }

    /// The driver for an account in a region. No request is made yet.
    pub(crate) async fn connect(&self, region: &str, source: Source) -> Arc<Ec2> {
        let of = source.digest(region);
        if let Some(driver) = self.kept.lock().get(&of).and_then(|kept| kept.driver.upgrade()) {
            return driver;
        }
        let limits = self.limits(of);
        let driver = driver(&self.options, region, source, base(region, &self.options), limits.clone()).await;
        let mut kept = self.kept.lock();
        kept.retain(|_, kept| kept.is_needed());
        // Another task may have been first.
        if let Some(first) = kept.get(&of).and_then(|kept| kept.driver.upgrade()) {
            return first;
        }
        let driver = Arc::new(driver);
        kept.insert(of, PoolEntry { driver: Arc::downgrade(&driver), limits });
        driver
    }

    /// The limits of an earlier driver, or new ones.
    fn limits(&self, of: [u8; 32]) -> Arc<Limits> {
        let used = self.kept.lock().get(&of).map(|kept| kept.limits.clone());
        used.unwrap_or_else(|| Arc::new(Limits::new(&self.options.quotas)))
    }
}

/// A driver of its own, on clients with the settings of `base`.
pub(crate) async fn driver(
    options: &Options,
    region: &str,
    source: Source,
    base: SdkConfig,
    limits: Arc<Limits>,
) -> Ec2 {
    let (permit, account) = (&options.process.permit, source.account());
    let config = aws_sdk_ec2::config::Builder::from(&base)
        .credentials_provider(source.provider(&base).await)
        .interceptor(Fence(permit.clone()))
        .retry_classifier(NoRetryWithoutCapacity)
        .build();
    let client = aws_sdk_ec2::Client::from_conf(config);
    Ec2::new(Account::new(client, region.to_owned(), &account, permit.clone(), limits))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use shared::cloud::Priority::Waking;
    use shared::cloud::Verb;

    use crate::quota::Bucket;

    use super::*;

    fn source(id: &str, secret: &str) -> Source {
        let data = [("aws_access_key_id", id), ("aws_secret_access_key", secret)];
        let data: BTreeMap<_, _> = data.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec())).into();
        Source::read(&data).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_credentials_share_a_driver_and_nobody_else() {
        let options = Options {
            endpoint_url: Some("http://127.0.0.1:9".into()),
            process: cloud_conformance::process(Arc::new(|| true)),
            quotas: Vec::new(),
        };
        let pool = Ec2Pool::new(options);
        let mine = pool.connect("us-east-1", source("A", "s")).await;
        for (region, other, shares) in [
            ("us-east-1", source("A", "s"), true),
            ("us-east-1", source("A", "wrong"), false),
            ("us-east-1", source("B", "s"), false),
            ("us-east-1", source("A", "s").assume("arn:r", None), false),
            ("us-east-1", Source::process(), false),
            ("eu-west-1", source("A", "s"), false),
        ] {
            assert_eq!(Arc::ptr_eq(&mine, &pool.connect(region, other.clone()).await), shares, "{region} {other:?}");
        }
        drop(mine);
        drop(pool.connect("us-east-1", source("C", "s")).await);
        drop(pool.connect("us-east-1", source("D", "s")).await);
        assert_eq!(pool.kept.lock().len(), 1, "drivers without references are dropped");

        // A driver that is dropped leaves what it has used up.
        let limits = pool.limits(source("D", "s").digest("us-east-1"));
        limits.of(Bucket::Requests(Verb::Start)).acquire(Waking).await;
        let again = pool.limits(source("D", "s").digest("us-east-1"));
        assert!(Arc::ptr_eq(&limits, &again));
        drop(pool.connect("us-east-1", source("E", "s")).await);
        let later = pool.limits(source("D", "s").digest("us-east-1"));
        assert!(Arc::ptr_eq(&limits, &later), "until the bucket is full");
        tokio::time::advance(Duration::from_secs(1)).await;
        drop(pool.connect("us-east-1", source("F", "s")).await);
        assert!(!Arc::ptr_eq(&limits, &pool.limits(source("D", "s").digest("us-east-1"))));
    }
}
