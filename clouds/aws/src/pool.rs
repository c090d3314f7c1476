//! One [`Ec2`] for everybody who has the same credentials, so that their calls can be joined and share one limit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use aws_config::SdkConfig;

use crate::account::Account;
use crate::client::{Options, base};
use crate::credentials::Source;
use crate::driver::{Ec2, Fence};
use crate::errors::NoRoomIsAnAnswer;
use crate::quota::Limits;

/// The drivers in use. A driver is kept while a caller holds it.
///
/// Only who brings the same credentials, character by character, gets the same driver: a tenant never profits from what
/// another one may do.
pub(crate) struct Pool {
    options: Options,
    /// By region and access key ID, which are not secret; what else a source has is compared.
    kept: Mutex<HashMap<(String, String), Vec<Kept>>>,
}

type Kept = (Source, Weak<Ec2>);

impl Pool {
    /// An empty pool.
    pub(crate) fn new(options: Options) -> Self {
        Self { options, kept: Mutex::default() }
    }

    /// The driver for an account in a region. No request is made yet.
    pub(crate) async fn connect(&self, region: &str, source: Source) -> Arc<Ec2> {
        if let Some(driver) = self.find(region, &source) {
            return driver;
        }
        let driver = driver(&self.options, region, source.clone(), base(region, &self.options)).await;
        self.keep(region, source, Arc::new(driver))
    }

    fn find(&self, region: &str, source: &Source) -> Option<Arc<Ec2>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let same = kept.get(&key(region, source))?.iter().find(|(other, _)| other == source)?;
        same.1.upgrade()
    }

    /// Stores a new driver, or returns the one that another task stored first. Drops drivers without references.
    fn keep(&self, region: &str, source: Source, driver: Arc<Ec2>) -> Arc<Ec2> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|_, drivers| {
            drivers.retain(|(_, driver)| driver.strong_count() > 0);
            !drivers.is_empty()
        });
        let drivers = kept.entry(key(region, &source)).or_default();
        if let Some(first) = drivers.iter().find(|(other, _)| *other == source).and_then(|(_, driver)| driver.upgrade())
        {
            return first;
        }
        drivers.push((source, Arc::downgrade(&driver)));
        driver
    }
}

/// A driver of its own, on clients with the settings of `base`.
pub(crate) async fn driver(options: &Options, region: &str, source: Source, base: SdkConfig) -> Ec2 {
    let permit = &options.process.permit;
    let config = aws_sdk_ec2::config::Builder::from(&base)
        .credentials_provider(source.provider(&base).await)
        .interceptor(Fence(permit.clone()))
        .retry_classifier(NoRoomIsAnAnswer)
        .build();
    let client = aws_sdk_ec2::Client::from_conf(config);
    Ec2::new(Account::new(client, region.to_owned(), permit.clone(), Limits::new(&options.quotas)))
}

fn key(region: &str, source: &Source) -> (String, String) {
    (region.to_owned(), source.access_key_id().to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use cloud_common::Process;

    use super::*;

    fn source(id: &str, secret: &str) -> Source {
        let data = [("aws_access_key_id", id), ("aws_secret_access_key", secret)];
        let data: BTreeMap<_, _> = data.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec())).into();
        Source::read(&data).unwrap()
    }

    #[tokio::test]
    async fn the_same_credentials_share_a_driver_and_nobody_else() {
        let options = Options {
            endpoint_url: Some("http://127.0.0.1:9".into()),
            process: Process { identity: "test".into(), permit: Arc::new(|| true) },
            quotas: Vec::new(),
        };
        let pool = Pool::new(options);
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
        let kept = pool.kept.lock().unwrap();
        assert_eq!(kept.len(), 1, "what nobody holds is forgotten");
    }
}
