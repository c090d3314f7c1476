//! The [`Driver`] for EC2.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use aws_sdk_ec2::config::interceptors::BeforeTransmitInterceptorContextMut;
use aws_sdk_ec2::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_ec2::error::BoxError;
use aws_sdk_ec2::types::{Filter, Instance as Ec2Instance, InstanceStateChange, InstanceStateName};
use aws_smithy_runtime_api::client::interceptors::dyn_dispatch_hint;
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use shared::cloud::{CloudError, CloudErrorKind, Driver, Instance, InstanceState, Outcome, Refusal};
use tokio::time::Instant;

use crate::Permit;
use crate::errors::Failure;

/// Instances of one start or stop call.
const BATCH: usize = 100;

/// How seldom a batch that is refused without naming an instance is tried one by one.
const ONE_BY_ONE_EVERY: Duration = Duration::from_mins(5);

/// EC2 in one account and region.
pub struct Ec2 {
    client: aws_sdk_ec2::Client,
    region: String,
    permit: Permit,
    /// When a batch was last tried one by one, by its first instance.
    one_by_one: Mutex<HashMap<String, Instant>>,
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

/// The two calls that move instances.
#[derive(Clone, Copy)]
enum Call {
    Start,
    Stop,
}

impl Call {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "StartInstances",
            Self::Stop => "StopInstances",
        }
    }
}

impl Ec2 {
    pub(crate) fn new(client: aws_sdk_ec2::Client, region: String, permit: Permit) -> Self {
        Self { client, region, permit, one_by_one: Mutex::default() }
    }

    async fn describe(&self, infra_id: &str) -> Result<Vec<Instance>, CloudError> {
        let tag = Filter::builder().name(format!("tag:kubernetes.io/cluster/{infra_id}")).values("owned").build();
        let mut pages = self.client.describe_instances().filters(tag).max_results(1000).into_paginator().send();
        let mut found = Vec::new();
        while let Some(page) = pages.next().await {
            let page = page.map_err(|error| self.failed("DescribeInstances", Failure::new(&error)))?;
            found.extend(
                page.reservations().iter().flat_map(aws_sdk_ec2::types::Reservation::instances).filter_map(instance),
            );
        }
        Ok(found)
    }

    /// Starts or stops the instances; those that EC2 blames for refusing the batch are left out and the rest is tried again.
    async fn act(&self, call: Call, ids: &[String]) -> Result<Outcome, CloudError> {
        let mut outcome = Outcome::default();
        for batch in ids.chunks(BATCH) {
            self.batch(call, batch.to_vec(), &mut outcome).await?;
        }
        Ok(outcome)
    }

    async fn batch(&self, call: Call, mut batch: Vec<String>, outcome: &mut Outcome) -> Result<(), CloudError> {
        while !batch.is_empty() {
            let failure = match self.send(call, &batch).await {
                Ok(moved) => {
                    outcome.moved.extend(moved);
                    return Ok(());
                }
                Err(failure) if failure.blames_instances() => failure,
                Err(failure) => return Err(self.failed(call.name(), failure)),
            };
            let (named, rest): (Vec<_>, Vec<_>) = batch.iter().cloned().partition(|id| names(&failure.message, id));
            if named.is_empty() && rest.len() > 1 && self.may_go_one_by_one(&rest[0]) {
                return self.one_by_one(call, &rest, outcome).await;
            }
            let (blamed, rest) = if named.is_empty() { (rest, named) } else { (named, rest) };
            outcome.refused.extend(blamed.into_iter().map(|id| refusal(id, &failure)));
            batch = rest;
        }
        Ok(())
    }

    async fn one_by_one(&self, call: Call, batch: &[String], outcome: &mut Outcome) -> Result<(), CloudError> {
        for id in batch {
            match self.send(call, std::slice::from_ref(id)).await {
                Ok(moved) => outcome.moved.extend(moved),
                Err(failure) if failure.blames_instances() => outcome.refused.push(refusal(id.clone(), &failure)),
                Err(failure) => return Err(self.failed(call.name(), failure)),
            }
        }
        Ok(())
    }

    fn may_go_one_by_one(&self, first: &str) -> bool {
        let Ok(mut tried) = self.one_by_one.lock() else { return false };
        tried.retain(|_, at| at.elapsed() < ONE_BY_ONE_EVERY);
        tried.len() < 1000 && tried.insert(first.to_owned(), Instant::now()).is_none()
    }

    async fn send(&self, call: Call, ids: &[String]) -> Result<Vec<(String, InstanceState)>, Failure> {
        let ids = Some(ids.to_vec());
        let changes = match call {
            Call::Start => {
                let answer = self.client.start_instances().set_instance_ids(ids).send().await;
                answer.map_err(|error| Failure::new(&error))?.starting_instances
            }
            Call::Stop => {
                let answer = self.client.stop_instances().set_instance_ids(ids).send().await;
                answer.map_err(|error| Failure::new(&error))?.stopping_instances
            }
        };
        Ok(changes.unwrap_or_default().iter().filter_map(change).collect())
    }

    fn failed(&self, call: &str, failure: Failure) -> CloudError {
        if (self.permit)() {
            failure.of(call, &self.region)
        } else {
            CloudError { kind: CloudErrorKind::NotLeader, message: format!("{call} not made: not the leader any more") }
        }
    }
}

impl Driver for Ec2 {
    fn selector(&self, infra_id: &str) -> String {
        format!("tag kubernetes.io/cluster/{infra_id}=owned in {}", self.region)
    }

    fn list<'a>(&'a self, infra_id: &'a str) -> BoxFuture<'a, Result<Vec<Instance>, CloudError>> {
        self.describe(infra_id).boxed()
    }

    fn stop<'a>(&'a self, ids: &'a [String]) -> BoxFuture<'a, Result<Outcome, CloudError>> {
        self.act(Call::Stop, ids).boxed()
    }

    fn start<'a>(&'a self, ids: &'a [String]) -> BoxFuture<'a, Result<Outcome, CloudError>> {
        self.act(Call::Start, ids).boxed()
    }
}

/// Whether the message names this instance, and not one whose ID only begins alike.
fn names(message: &str, id: &str) -> bool {
    message.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').any(|word| word == id)
}

fn refusal(id: String, failure: &Failure) -> Refusal {
    Refusal { id, code: failure.code.clone(), message: failure.message.clone() }
}

fn instance(found: &Ec2Instance) -> Option<Instance> {
    Some(Instance {
        id: found.instance_id()?.to_owned(),
        state: state(found.state()?.name()?)?,
        private_dns: found.private_dns_name().filter(|name| !name.is_empty()).map(str::to_owned),
        launched_at: found.launch_time().and_then(|at| Timestamp::from_second(at.secs()).ok()),
    })
}

fn change(change: &InstanceStateChange) -> Option<(String, InstanceState)> {
    Some((change.instance_id()?.to_owned(), state(change.current_state()?.name()?)?))
}

fn state(name: &InstanceStateName) -> Option<InstanceState> {
    Some(match name {
        InstanceStateName::Pending => InstanceState::Pending,
        InstanceStateName::Running => InstanceState::Running,
        InstanceStateName::Stopping => InstanceState::Stopping,
        InstanceStateName::Stopped => InstanceState::Stopped,
        InstanceStateName::ShuttingDown => InstanceState::ShuttingDown,
        InstanceStateName::Terminated => InstanceState::Terminated,
        _ => return None,
    })
}
