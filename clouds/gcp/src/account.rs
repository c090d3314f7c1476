//! The calls to one project, within its limits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cloud_http::{Bearer, CallError, Http, Method, StatusCode, Url, below};
use cloud_stopstart::{Cloud, Failure, ListResult, Machine, Move, Progress};
use parking_lot::Mutex;
use shared::cloud::{
    CloudError, CloudErrorKind, ClusterRef, InstanceState, PlatformSpec, Priority, Profile, ProviderIds,
};
use shared::text::sanitize_to;

use crate::key::ServiceAccount;
use crate::wire::{DISCARD_FIELD, FIELDS, Operation, Page, machine_error_kind};

/// Clusters whose zones are cached.
const MAX_CACHED_CLUSTERS: usize = 10_000;

/// What a list is asked for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ListKey {
    infra_id: String,
    /// Where they are; empty for anywhere.
    region: String,
    /// Whether the owner has said what becomes of local SSDs.
    has_decided: bool,
}

/// One project with its credentials.
pub(crate) struct Account {
    api: Bearer<ServiceAccount>,
    domain: Arc<str>,
    project: String,
    /// The project's URL.
    base: Url,
    /// The zones with machines of a cluster, by its last list.
    zones: Mutex<BTreeMap<ListKey, BTreeSet<String>>>,
}

impl Account {
    /// No request is made yet. `endpoint` is the host of the API.
    pub(crate) fn new(key: ServiceAccount, http: Http, endpoint: &Url) -> Self {
        let word = cloud_common::account_word(&key.email);
        let base = below(endpoint, &["compute", "v1", "projects", &key.project]);
        let (domain, project) = (format!("gcp/{}/{word}", key.project).into(), key.project.clone());
        Self { api: Bearer::new(Arc::new(http), key), domain, project, base, zones: Mutex::default() }
    }

    /// Checks that these are all machines of a cluster: scopes that did not answer are of another region, or had none of its
    /// machines when all answered.
    fn check_complete(
        &self,
        wanted: &ListKey,
        machines: &[Machine],
        missing: &[(String, String)],
    ) -> Result<(), CloudError> {
        let mut zones = self.zones.lock();
        let known = zones.get(wanted).filter(|known| !known.is_empty());
        let is_near = |scope: &str| {
            let of_region = scope.strip_prefix(wanted.region.as_str());
            scope.is_empty()
                || wanted.region.is_empty()
                || of_region.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        let matters =
            |scope: &str| is_near(scope) && known.is_none_or(|known| scope.is_empty() || known.contains(scope));
        if let Some((scope, code)) = missing.iter().find(|(scope, _)| matters(scope)) {
            let scope = if scope.is_empty() { "all zones" } else { scope };
            let message = format!("instances.aggregatedList does not list {scope}: {code}");
            return Err(CloudError::new(CloudErrorKind::Unavailable, message));
        }
        if zones.len() >= MAX_CACHED_CLUSTERS {
            zones.clear();
        }
        zones.insert(wanted.clone(), machines.iter().map(|machine| machine.at.clone()).collect());
        Ok(())
    }
}

/// Machines of one name get IDs with their zones.
fn distinct(machines: &mut [Machine]) {
    machines.sort_by(|a, b| (&a.instance.id, &a.at).cmp(&(&b.instance.id, &b.at)));
    for n in 1..machines.len() {
        if let [.., before, this] = &mut machines[..=n]
            && before.instance.node_names == this.instance.node_names
        {
            this.instance.id = format!("{}/{}", this.at, this.instance.id);
        }
    }
}

/// Whether local SSDs may be lost, if the owner has said.
fn discards_local_ssd(cluster: &ClusterRef) -> Option<bool> {
    if let PlatformSpec::Gcp { discard_local_ssd } = cluster.platform { discard_local_ssd } else { None }
}

/// The failure of a call, with advice where it is about local SSDs.
fn with_advice(error: CallError, cluster: &ClusterRef) -> Failure {
    let mut failure = Failure::of(error, machine_error_kind);
    if let Failure::Machine(reason) = &mut failure
        && discards_local_ssd(cluster) != Some(true)
        && is_about_ssd(&reason.message)
    {
        let advice = format!("; set {DISCARD_FIELD}: true to allow a stop that discards local SSD data");
        reason.message.push_str(&advice);
    }
    failure
}

fn is_about_ssd(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    message.contains("local ssd") || message.contains("discard-local-ssd") || message.contains("discardlocalssd")
}

impl Cloud for Account {
    type Key = ListKey;
    /// A project has 1,500 a minute, for everybody who works in it.
    const RATE: (u32, u32) = (400, 15);
    /// What a filter takes.
    const MAX_CLUSTERS_PER_LIST: usize = 50;

    fn domain(&self) -> Arc<str> {
        self.domain.clone()
    }

    fn profile(&self, cluster: &ClusterRef) -> Profile {
        Profile {
            selector: format!("the names {}-* in project {}", cluster.infra_id, self.project),
            provider_ids: ProviderIds { prefix: "gce://", id_prefix: "" },
            reports_start_time: true,
            ..Profile::default()
        }
    }

    /// An infraID becomes a part of a regular expression.
    fn key(&self, cluster: &ClusterRef) -> Result<ListKey, CloudError> {
        let infra_id = &cluster.infra_id;
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if (1..=63).contains(&infra_id.len()) && infra_id.chars().all(is_plain) {
            let (infra_id, region) = (infra_id.clone(), cluster.region.clone());
            return Ok(ListKey { infra_id, region, has_decided: discards_local_ssd(cluster).is_some() });
        }
        let message = format!(
            "spec.clusterMetadata.infraID is {:?}: on GCP it has at most 63 lowercase letters, digits and hyphens",
            sanitize_to(infra_id, 63)
        );
        Err(CloudError::new(CloudErrorKind::Invalid, message))
    }

    async fn list(self: Arc<Self>, wanted: BTreeSet<ListKey>, priority: Priority) -> ListResult<ListKey> {
        let mut first = below(&self.base, &["aggregated", "instances"]);
        let names: BTreeSet<&str> = wanted.iter().map(|wanted| wanted.infra_id.as_str()).collect();
        let filter = format!("name eq \"({})-.*\"", Vec::from_iter(names).join("|"));
        first.query_pairs_mut().append_pair("filter", &filter).append_pair("fields", FIELDS);
        first.query_pairs_mut().append_pair("maxResults", "500");
        let next = |page: &Page| {
            let mut url = first.clone();
            url.query_pairs_mut().append_pair("pageToken", &page.next_page_token);
            Ok((!page.next_page_token.is_empty()).then_some(url))
        };
        let pages = self.api.pages(priority, first.clone(), next).await?;
        let missing: Vec<_> = pages.iter().flat_map(Page::missing).collect();
        let listed: Vec<_> =
            pages.iter().flat_map(|page| page.items.values()).flat_map(|scope| &scope.instances).collect();
        let found = wanted.into_iter().map(|wanted| {
            let of_cluster = listed.iter().filter(|instance| instance.is_of(&wanted.infra_id));
            let mut machines: Vec<Machine> = of_cluster.map(|instance| instance.machine(wanted.has_decided)).collect();
            distinct(&mut machines);
            let answer = self.check_complete(&wanted, &machines, &missing).map(|()| machines.into());
            (wanted, answer)
        });
        let found = found.collect();
        Ok(pages.map(|_| found))
    }

    async fn send(&self, cluster: &ClusterRef, to: Move, machine: &Machine) -> Result<Option<String>, Failure> {
        let zone = machine.at.as_str();
        let is_suspended = machine.instance.state == InstanceState::Stopped && machine.instance.word == "SUSPENDED";
        let call = match to {
            Move::Start if is_suspended => "resume",
            Move::Start => "start",
            Move::Stop => "stop",
        };
        let mut url = below(&self.base, &["zones", zone, "instances", machine.name(), call]);
        if let (Move::Stop, Some(discard)) = (to, discards_local_ssd(cluster)) {
            url.query_pairs_mut().append_pair("discardLocalSsd", if discard { "true" } else { "false" });
        }
        let answer = self.api.call(to.priority(), Method::POST, &url, None).await;
        let answer = answer.map_err(|error| with_advice(error, cluster))?;
        if answer.status == StatusCode::NOT_MODIFIED {
            return Ok(None);
        }
        let operation = answer.json::<Operation>().await.map_err(|error| Failure::Account(error.into()))?;
        Ok((!operation.name.is_empty()).then(|| format!("{zone} {}", operation.name)))
    }

    async fn progress(&self, operation: &str) -> Result<Progress, CallError> {
        let (zone, name) = operation.split_once(' ').unwrap_or_default();
        let mut url = below(&self.base, &["zones", zone, "operations", name]);
        url.query_pairs_mut().append_pair("fields", "status,error");
        let answer = self.api.call(Priority::Waking, Method::GET, &url, None).await?;
        Ok(answer.json::<Operation>().await?.progress())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_of_one_name_are_told_apart_by_zone() {
        let machine = |zone: &str, name: &str| Machine::new(name, zone, InstanceState::Running, "RUNNING");
        let mut machines =
            [("z-c", "a"), ("z-b", "a"), ("z-a", "b"), ("z-a", "a")].map(|(zone, name)| machine(zone, name));
        distinct(&mut machines);
        let ids = machines.map(|machine| machine.instance.id);
        assert_eq!(ids, ["a", "z-b/a", "z-c/a", "b"]);
    }
}
