//! The [`Driver`] for EC2.

use std::sync::Arc;

use aws_sdk_ec2::config::interceptors::BeforeTransmitInterceptorContextMut;
use aws_sdk_ec2::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_ec2::error::BoxError;
use aws_smithy_runtime_api::client::interceptors::dyn_dispatch_hint;
use futures::FutureExt;
use futures::future::BoxFuture;
use shared::cloud::{CloudError, Driver, Instance, Outcome, Priority};

use crate::account::Account;
use crate::call::Call;
use crate::client::Permit;
use crate::describe::Lists;
use crate::moves::Moves;

/// EC2 in one account and region, for all clusters there.
pub struct Ec2 {
    account: Arc<Account>,
    lists: Lists,
    starts: Moves,
    stops: Moves,
    terminations: Moves,
}

/// Stops requests of a process that may no longer act, at the last moment before they leave, retries included.
#[derive(Clone)]
pub(crate) struct Fence(pub(crate) Permit);

impl std::fmt::Debug for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fence")
    }
}

#[dyn_dispatch_hint]
impl Intercept for Fence {
    fn name(&self) -> &'static str {
        "Fence"
    }

    fn modify_before_transmit(
        &self,
        _context: &mut BeforeTransmitInterceptorContextMut<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if (self.0)() { Ok(()) } else { Err("this controller is not the leader any more".into()) }
    }
}

impl Ec2 {
    pub(crate) fn new(account: Account) -> Self {
        let account = Arc::new(account);
        let [starts, stops, terminations] =
            [Call::Start, Call::Stop, Call::Terminate].map(|call| Moves::new(call, account.clone()));
        Self { lists: Lists::new(account.clone()), account, starts, stops, terminations }
    }
}

impl Driver for Ec2 {
    fn selector(&self, infra_id: &str) -> String {
        format!("tag kubernetes.io/cluster/{infra_id}=owned in {}", self.account.region())
    }

    fn list<'a>(&'a self, infra_id: &'a str, priority: Priority) -> BoxFuture<'a, Result<Vec<Instance>, CloudError>> {
        self.lists.list(infra_id, priority).boxed()
    }

    fn stop<'a>(&'a self, ids: &'a [String]) -> BoxFuture<'a, Result<Outcome, CloudError>> {
        self.stops.all(ids).boxed()
    }

    fn start<'a>(&'a self, ids: &'a [String]) -> BoxFuture<'a, Result<Outcome, CloudError>> {
        self.starts.all(ids).boxed()
    }

    fn terminate<'a>(&'a self, ids: &'a [String]) -> BoxFuture<'a, Result<Outcome, CloudError>> {
        self.terminations.all(ids).boxed()
    }
}
