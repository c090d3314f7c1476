//! How a platform of this kind connects.

use std::hash::Hash;
use std::sync::Arc;

use cloud_common::{Pool, Process};
use cloud_http::{Http, Options};
use shared::cloud::Driver;

use crate::cloud::Cloud;
use crate::driver::StopStart;

/// One driver for all clusters with the same credentials.
pub struct Accounts<C: Cloud> {
    process: Process,
    pool: Pool<StopStart<C>>,
}

impl<C: Cloud> Accounts<C> {
    /// No request is made yet.
    pub fn new(process: &Process) -> Self {
        Self { process: process.clone(), pool: Pool::default() }
    }

    /// The driver for these credentials. `account` is a word for their account, which answers are charged to; `make` puts
    /// the credentials and the account's client together.
    pub fn connect<K: Hash>(
        &self,
        credentials: K,
        account: String,
        make: impl FnOnce(K, Http) -> Result<C, String>,
    ) -> Result<Arc<dyn Driver>, String> {
        let driver = self.pool.get(credentials, |credentials| {
            let (process, account) = (self.process.clone(), account.into());
            let http = Http::new(Options { process, tenant: None, account, authorities: None, rate: C::RATE })?;
            Ok::<_, String>(StopStart::new(make(credentials, http)?, self.process.permit.clone()))
        })?;
        Ok(driver)
    }
}
