//! The calls to EC2 themselves, in one account and region, within its limits.

use std::collections::HashMap;
use std::sync::Arc;

use aws_sdk_ec2::types::{Filter, Instance, InstanceStateChange, Reservation, SpotInstanceType};
use cloud_common::Permit;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use shared::cloud::{CloudError, CloudErrorKind, InstanceState, Priority, Spot, Verb};

use crate::call::{Ec2Api, StateChanges, instance_state};
use crate::errors::Failure;
use crate::quota::{Bucket, Limits};
use crate::throttles::Throttles;

/// Values of a filter, by EC2's rule.
pub(crate) const MAX_FILTER_VALUES: usize = 200;

/// Most instances of one list.
const MAX_INSTANCES: usize = 50_000;

/// Spot instances whose kind is remembered. What is beyond is asked again.
const MAX_SPOTS: usize = 10_000;

/// While EC2 admits few instances, a caller moves at least so many of its own at once, so that large clusters get their
/// turn next to small ones.
const MIN_ADMITTED: u32 = 6;

/// One account in one region.
pub(crate) struct Account {
    client: aws_sdk_ec2::Client,
    pub(crate) region: String,
    /// See [`shared::cloud::Driver::domain`].
    pub(crate) domain: Arc<str>,
    permit: Permit,
    limits: Arc<Limits>,
    /// Kinds of spot instances by instance ID. An instance never changes its kind.
    spots: Mutex<HashMap<String, Spot>>,
}

impl Account {
    /// `account`: an opaque word for it.
    pub(crate) fn new(
        client: aws_sdk_ec2::Client,
        region: String,
        account: &str,
        permit: Permit,
        limits: Arc<Limits>,
    ) -> Self {
        let domain = format!("aws/{region}/{account}").into();
        Self { client, region, domain, permit, limits, spots: Mutex::default() }
    }

    /// Every instance that the filter lets through, page by page: one of the SDK takes several KB.
    pub(crate) async fn instances(
        &self,
        filter: Filter,
        priority: Priority,
        mut each: impl FnMut(&Instance) + Send,
    ) -> Result<(), CloudError> {
        let request = self.client.describe_instances().filters(filter).max_results(1000);
        let (mut listed, mut token) = (0, None);
        loop {
            self.limits.of(Bucket::Reads).acquire(priority).await;
            let page = request.clone().set_next_token(token).send().await;
            let page = page.map_err(|error| self.read_failed("DescribeInstances", Failure::new(&error)))?;
            for instance in page.reservations().iter().flat_map(Reservation::instances) {
                each(instance);
                listed += 1;
            }
            if listed > MAX_INSTANCES {
                let message = format!("DescribeInstances lists more than {MAX_INSTANCES} instances");
                return Err(CloudError::new(CloudErrorKind::Invalid, message));
            }
            token = page.next_token.filter(|token| !token.is_empty());
            if token.is_none() {
                return Ok(());
            }
        }
    }

    /// Finds out of what kind these spot instances are, for [`Account::spot`]. They are given with their requests.
    ///
    /// If the account may not read spot requests, they stay unknown: a stop is tried, and EC2 refuses one-time
    /// requests.
    pub(crate) async fn learn_spots(&self, mut instances: Vec<(String, String)>, priority: Priority) {
        instances.retain(|(id, _)| self.spot(id) == Spot::Unknown);
        for some in instances.chunks(MAX_FILTER_VALUES) {
            let requests = some.iter().map(|(_, request)| request.clone()).collect();
            let filter = Filter::builder().name("spot-instance-request-id").set_values(Some(requests)).build();
            self.limits.of(Bucket::Reads).acquire(priority).await;
            match self.client.describe_spot_instance_requests().filters(filter).send().await {
                Ok(answer) => {
                    for request in answer.spot_instance_requests() {
                        let of_request =
                            some.iter().find(|(_, id)| Some(id.as_str()) == request.spot_instance_request_id());
                        let kind = match request.r#type() {
                            Some(SpotInstanceType::OneTime) => Spot::OneTime,
                            Some(SpotInstanceType::Persistent) => Spot::Persistent,
                            _ => continue,
                        };
                        if let Some((instance, _)) = of_request {
                            self.is_spot(instance, kind);
                        }
                    }
                }
                Err(error) => {
                    self.read_failed("DescribeSpotInstanceRequests", Failure::new(&error));
                    return;
                }
            }
        }
    }

    /// Of what kind a spot instance is, as far as this account has said.
    pub(crate) fn spot(&self, instance: &str) -> Spot {
        let spots = self.spots.lock();
        spots.get(instance).copied().unwrap_or(Spot::Unknown)
    }

    fn is_spot(&self, instance: &str, kind: Spot) {
        let mut spots = self.spots.lock();
        if spots.len() >= MAX_SPOTS {
            spots.clear();
        }
        spots.insert(instance.to_owned(), kind);
    }

    fn read_failed(&self, call: &str, failure: Failure) -> CloudError {
        if failure.kind == CloudErrorKind::Throttled {
            self.limits.of(Bucket::Reads).slow_down();
        }
        self.failed(call, failure)
    }

    async fn change(&self, call: Verb, ids: &[String]) -> Result<StateChanges, Failure> {
        let throttles = Throttles { limits: self.limits.clone(), call };
        let ids = Some(ids.to_vec());
        macro_rules! send {
            ($request:ident, $changes:ident) => {{
                let request = self.client.$request().set_instance_ids(ids).customize().interceptor(throttles);
                request.send().await.map(|answer| answer.$changes).map_err(|error| Failure::new(&error))
            }};
        }
        let changes = match call {
            Verb::Start => send!(start_instances, starting_instances),
            Verb::Stop => send!(stop_instances, stopping_instances),
            Verb::Terminate => send!(terminate_instances, terminating_instances),
        };
        if changes.as_ref().is_err_and(|failure| failure.kind == CloudErrorKind::Throttled) {
            self.limits.of(Bucket::Requests(call)).slow_down();
        }
        Ok(changes?.unwrap_or_default().iter().filter_map(moved).collect())
    }
}

impl Ec2Api for Account {
    fn admit(&self, call: Verb, instances: usize) -> BoxFuture<'_, usize> {
        let most = u32::try_from(instances).unwrap_or(u32::MAX);
        let limit = self.limits.of(Bucket::Instances(call));
        async move { limit.acquire_some(call.priority(), most.min(MIN_ADMITTED), most).await as usize }.boxed()
    }

    fn turn(&self, call: Verb) -> BoxFuture<'_, ()> {
        self.limits.of(Bucket::Requests(call)).acquire(call.priority()).boxed()
    }

    fn send<'a>(&'a self, call: Verb, ids: &'a [String]) -> BoxFuture<'a, Result<StateChanges, Failure>> {
        self.change(call, ids).boxed()
    }

    fn failed(&self, call: &str, failure: Failure) -> CloudError {
        if (self.permit)() {
            failure.of(call, &self.region)
        } else {
            CloudError::new(CloudErrorKind::NotLeader, format!("{call} skipped: no longer the leader"))
        }
    }

    fn cannot_stop(&self, id: &str) {
        self.is_spot(id, Spot::OneTime);
    }
}

fn moved(change: &InstanceStateChange) -> Option<(String, InstanceState)> {
    Some((change.instance_id()?.to_owned(), instance_state(change.current_state()?.name()?)))
}
