//! The simulator's own interface, below `/_world/`: instances, faults, access keys, the log of calls.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::json_http::JsonHttp;

/// Talks to one simulator.
#[derive(Clone, Debug)]
pub struct Ec2 {
    http: JsonHttp,
}

/// One instance, as the simulator knows it.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
pub struct Instance {
    /// `i-...`
    pub id: String,
    /// Account that owns it.
    pub account: String,
    /// Region.
    pub region: String,
    /// Availability zone.
    pub zone: String,
    /// EC2's word for its state.
    pub state: String,
    /// Since when it is in this state, seconds since 1970.
    pub since: f64,
    /// When it was last started, RFC 3339.
    pub launch_time: String,
    /// Private DNS name: the Node's name.
    pub private_dns: String,
    /// Private IPv4 address, unique in the world.
    pub private_ip: String,
    /// `spot`, or nothing.
    pub lifecycle: Option<String>,
    /// Tags.
    pub tags: BTreeMap<String, String>,
    /// What its Node and Machine call it, where EC2's form is not it.
    #[serde(default)]
    pub provider_id: Option<String>,
}

impl Instance {
    /// Tag with the role that the instance plays in its cluster.
    pub const ROLE: &'static str = "testbed.hibernate.sh/role";

    /// Whether it belongs to a cluster.
    pub fn is_of(&self, infra_id: &str) -> bool {
        self.tags.get(&cluster_tag(infra_id)).is_some_and(|value| value == "owned")
    }

    /// Whether it is of the control plane.
    pub fn is_master(&self) -> bool {
        self.tags.get(Self::ROLE).is_some_and(|role| role == "master")
    }

    /// What its Node and Machine call it.
    pub fn provider_id(&self) -> String {
        self.provider_id.clone().unwrap_or_else(|| format!("aws:///{}/{}", self.zone, self.id))
    }

    /// For how many seconds it has been running, if it is.
    pub fn running_for(&self, now: f64) -> Option<f64> {
        (self.state == "running").then_some(now - self.since)
    }
}

/// The tag that says which cluster an instance belongs to.
pub fn cluster_tag(infra_id: &str) -> String {
    format!("kubernetes.io/cluster/{infra_id}")
}

/// All instances at one moment.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Snapshot {
    /// The simulator's clock, seconds since 1970.
    pub now: f64,
    /// Every instance of every account and region, terminated ones too.
    pub instances: Vec<Instance>,
}

impl Snapshot {
    /// The instances of one cluster, by name tag.
    pub fn of(&self, infra_id: &str) -> Vec<&Instance> {
        let mut found: Vec<&Instance> = self.instances.iter().filter(|instance| instance.is_of(infra_id)).collect();
        found.sort_by_key(|instance| instance.tags.get("Name"));
        found
    }
}

/// An instance to be made.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NewInstance {
    /// Name tag.
    pub name: String,
    /// More tags.
    pub tags: BTreeMap<String, String>,
    /// `one-time` or `persistent` for a spot instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spot: Option<String>,
    /// State at once, without a transition; `running` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Since when it is in that state, seconds since 1970; now if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<f64>,
}

/// One injected fault of the EC2 simulator. Absent conditions match every call.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Fault {
    /// Name under which it can be removed; chosen by the simulator if absent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Such as `StopInstances`.
    pub action: Option<String>,
    /// Only calls that name this instance.
    pub instance: Option<String>,
    /// Only calls with this access key ID.
    pub access_key: Option<String>,
    /// Only calls to this region.
    pub region: Option<String>,
    /// Only calls whose user agent has this part.
    pub user_agent: Option<String>,
    /// Calls that pass first.
    pub skip: u32,
    /// Calls that are met after that; all if absent.
    pub count: Option<u32>,
    /// Seconds before anything else.
    pub delay: f64,
    /// Error code to answer; the call goes on if absent.
    pub code: Option<String>,
    /// HTTP status of the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Message of the error. `{instance}` becomes `: i-...`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Close the connection instead of answering.
    pub cut: bool,
    /// Do what was asked first, then answer the fault.
    pub after: bool,
    /// Calls met so far.
    pub hits: u32,
}

impl Fault {
    /// Answers an error to an action.
    pub fn error(action: &str, code: &str, status: u16) -> Self {
        Self { action: Some(action.to_owned()), code: Some(code.to_owned()), status: Some(status), ..Self::default() }
    }
}

/// One AWS call, as the log has it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Call {
    /// When it came in, seconds since 1970.
    pub start: f64,
    /// When it was answered.
    pub end: f64,
    /// Such as `StopInstances`.
    pub action: String,
    /// Instances that it names.
    pub instances: Vec<String>,
    /// Region of its signature.
    pub region: String,
    /// Access key ID of its signature.
    pub access_key: String,
    /// Account of that key.
    pub account: String,
    /// User-Agent and x-amz-user-agent.
    pub user_agent: String,
    /// HTTP status, 0 if the connection was cut.
    pub status: u16,
    /// AWS error code.
    pub error: Option<String>,
    /// Instances whose state this call changed.
    pub moved: Vec<String>,
}

/// How the simulator behaves.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Settings {
    /// Seconds from pending to running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<f64>,
    /// Seconds from stopping to stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<f64>,
    /// Seconds from shutting-down to terminated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminate: Option<f64>,
    /// Seconds by which launch times and the log of calls are ahead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shift: Option<f64>,
}

impl Ec2 {
    /// A client of the simulator at this URL, which is also the endpoint for AWS clients.
    pub fn new(endpoint: &str) -> Self {
        Self { http: JsonHttp::new(endpoint) }
    }

    /// The endpoint for AWS clients.
    pub fn endpoint(&self) -> &str {
        self.http.base()
    }

    /// Every instance.
    ///
    /// # Errors
    /// When the simulator cannot be reached; so for all methods below.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        self.http.get("/_world/instances").await
    }

    /// The instances of one cluster.
    ///
    /// # Errors
    /// When the simulator cannot be reached.
    pub async fn instances(&self, infra_id: &str) -> Result<Vec<Instance>> {
        let snapshot = self.snapshot().await?;
        Ok(snapshot.of(infra_id).into_iter().cloned().collect())
    }

    /// Makes instances of a cluster.
    ///
    /// # Errors
    /// When the simulator refuses: unknown region.
    pub async fn create(
        &self,
        account: &str,
        region: &str,
        infra_id: &str,
        instances: &[NewInstance],
    ) -> Result<Vec<Instance>> {
        let body = json!({"account": account, "region": region, "infra_id": infra_id, "instances": instances});
        let made: Snapshot = self
            .http
            .post("/_world/instances", &body)
            .await
            .with_context(|| format!("make instances of {infra_id}"))?;
        Ok(made.instances)
    }

    /// Puts an instance into a state at once, whatever EC2's rules say.
    ///
    /// # Errors
    /// When there is no such instance.
    pub async fn set_state(&self, id: &str, state: &str) -> Result<Instance> {
        self.change(id, &json!({"state": state})).await
    }

    /// Turns stop protection on or off.
    ///
    /// # Errors
    /// When there is no such instance.
    pub async fn protect(&self, id: &str, protected: bool) -> Result<Instance> {
        self.change(id, &json!({"protected": protected})).await
    }

    /// Each start of an instance is accepted, and it stops again with this `StateReason`; `None` ends that.
    ///
    /// # Errors
    /// When there is no such instance.
    pub async fn stops_again(&self, id: &str, why: Option<&str>) -> Result<Instance> {
        self.change(id, &json!({"stops_again": why})).await
    }

    async fn change(&self, id: &str, change: &Value) -> Result<Instance> {
        self.http.post(&format!("/_world/instances/{id}"), change).await
    }

    /// Forgets all instances of a cluster.
    ///
    /// # Errors
    /// When the simulator cannot be reached.
    pub async fn forget(&self, infra_id: &str) -> Result<()> {
        self.http.delete(&format!("/_world/instances?tag={}", cluster_tag(infra_id))).await
    }

    /// Makes an access key known, or changes it. `denied` lists actions (or `*`) that answer `UnauthorizedOperation`.
    ///
    /// # Errors
    /// When the simulator cannot be reached.
    pub async fn set_key(&self, id: &str, secret: &str, account: &str, denied: &[&str]) -> Result<()> {
        let body = json!({"access_key_id": id, "secret_access_key": secret, "account": account, "denied": denied});
        self.http.post::<Value>("/_world/keys", &body).await.map(drop)
    }

    /// Makes a role known that `AssumeRole` hands out.
    ///
    /// # Errors
    /// When the simulator cannot be reached.
    pub async fn set_role(&self, arn: &str, external_id: Option<&str>) -> Result<()> {
        self.http.post::<Value>("/_world/roles", &json!({"arn": arn, "external_id": external_id})).await.map(drop)
    }

    /// Changes how the simulator behaves, and answers how it does now.
    ///
    /// # Errors
    /// When the simulator cannot be reached.
    pub async fn settings(&self, change: &Settings) -> Result<Settings> {
        self.http.patch("/_world/settings", change).await
    }

    /// Injects a fault and answers it with its ID.
    ///
    /// # Errors
    /// When the simulator cannot be reached.
    pub async fn inject(&self, fault: &Fault) -> Result<Fault> {
        self.http.post("/_world/faults", fault).await.context("inject a fault into EC2")
    }

    /// Every fault, with its hits.
    ///
    /// # Errors
    /// When the simulator cannot be reached.
    pub async fn faults(&self) -> Result<Vec<Fault>> {
        self.http.get("/_world/faults").await
    }

    /// Removes one fault, or all.
    ///
    /// # Errors
    /// When the simulator cannot be reached.
    pub async fn heal(&self, id: Option<&str>) -> Result<()> {
        let query = id.map(|id| format!("?id={id}")).unwrap_or_default();
        self.http.delete(&format!("/_world/faults{query}")).await
    }

    /// Every AWS call since the start or the last reset, in the order of their answers.
    ///
    /// # Errors
    /// When the simulator cannot be reached.
    pub async fn calls(&self) -> Result<Vec<Call>> {
        let lines = self.http.text(Method::GET, "/_world/calls", None::<&()>).await?;
        lines.lines().map(|line| serde_json::from_str(line).with_context(|| format!("read {line}"))).collect()
    }

    /// Empties the log that [`Ec2::calls`] reads. The file in the logs keeps everything.
    ///
    /// # Errors
    /// When the simulator cannot be reached.
    pub async fn reset_calls(&self) -> Result<()> {
        self.http.delete("/_world/calls").await
    }
}
