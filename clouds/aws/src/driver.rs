//! The [`Driver`] for EC2.

use std::sync::Arc;

use aws_sdk_ec2::config::interceptors::BeforeTransmitInterceptorContextMut;
use aws_sdk_ec2::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_ec2::error::BoxError;
use aws_smithy_runtime_api::client::interceptors::dyn_dispatch_hint;
use cloud_common::Permit;
use futures::FutureExt;
use shared::cloud::{
    CloudFuture, ClusterRef, Driver, Lifecycle, Listing, Outcome, Priority, Profile, ProviderIds, Target, Verb,
};

use crate::account::Account;
use crate::describe::Lists;
use crate::moves::Moves;

/// EC2 in one account and region, for all clusters there.
pub(crate) struct Ec2 {
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
        if (self.0)() { Ok(()) } else { Err("this controller is no longer the leader".into()) }
    }
}

impl Ec2 {
    pub(crate) fn new(account: Account) -> Self {
        let account = Arc::new(account);
        let [starts, stops, terminations] =
            [Verb::Start, Verb::Stop, Verb::Terminate].map(|call| Moves::new(call, account.clone()));
        Self { lists: Lists::new(account.clone()), account, starts, stops, terminations }
    }
}

impl Driver for Ec2 {
    fn domain(&self) -> Arc<str> {
        self.account.domain.clone()
    }

    fn profile(&self, cluster: &ClusterRef) -> Profile {
        Profile {
            selector: format!("tag kubernetes.io/cluster/{}=owned in {}", cluster.infra_id, self.account.region),
            lifecycle: Lifecycle::StopStart,
            provider_ids: ProviderIds { prefix: "aws:///", id_prefix: "i-" },
            reports_start_time: true,
            terminates_spot: true,
            ..Profile::default()
        }
    }

    fn list<'a>(&'a self, target: &'a Target, priority: Priority) -> CloudFuture<'a, Listing> {
        let instances = self.lists.list(&target.cluster.infra_id, priority);
        async move { Ok(Listing { instances: instances.await?, ..Listing::default() }) }.boxed()
    }

    fn advance<'a>(&'a self, _target: &'a Target, verb: Verb, ids: &'a [String]) -> CloudFuture<'a, Outcome> {
        let moves = match verb {
            Verb::Start => &self.starts,
            Verb::Stop => &self.stops,
            Verb::Terminate => &self.terminations,
        };
        moves.all(ids).boxed()
    }
}
