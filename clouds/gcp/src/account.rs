//! The calls to one project, within its limits.

use std::collections::BTreeSet;
use std::sync::Arc;

use cloud_common::Kept;
use cloud_http::{Bearer, CallError, Http, Method, StatusCode, Url, below};
use cloud_stopstart::{Cloud, Failure, Found, Machine, Move, Progress, failed};
use shared::cloud::{CloudError, CloudErrorKind, ClusterRef, InstanceState, Priority, Profile, ProviderIds};
use shared::text::sanitize_to;

use crate::key::ServiceAccount;
use crate::wire::{FIELDS, Operation, Page, known};

/// Calls at once, and calls a second: a project has 1,500 a minute, for everybody who works in it.
pub(crate) const RATE: (u32, u32) = (400, 15);

/// Where a cluster says what becomes of its local SSDs.
const DISCARD: &str = "spec.platform.gcp.discardLocalSsdOnHibernate";

/// One project with its credentials.
pub(crate) struct Account {
    api: Bearer<ServiceAccount>,
    domain: Arc<str>,
    project: String,
    /// Below it are zones and lists.
    base: Url,
}

impl Account {
    /// No request is made yet. `endpoint` is the host of the API.
    pub(crate) fn new(key: ServiceAccount, http: Http, endpoint: &Url) -> Self {
        let word = cloud_common::account_word(&key.email);
        let base = below(endpoint, &["compute", "v1", "projects", &key.project]);
        let (domain, project) = (format!("gcp/{}/{word}", key.project).into(), key.project.clone());
        Self { api: Bearer::new(Arc::new(http), key), domain, project, base }
    }
}

/// GCP tells machines of one name apart by their zones.
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

/// Of a machine with local SSDs the owner has to say what becomes of them.
fn explained(error: CallError, cluster: &ClusterRef) -> Failure {
    let failure = failed(error, known);
    match failure {
        Failure::Machine { kind, code, message }
            if cluster.discard_local_ssd != Some(true) && is_about_ssd(&message) =>
        {
            let message = format!("{message}; set {DISCARD}: true to allow a stop that discards local SSD data");
            Failure::Machine { kind, code, message }
        }
        other => other,
    }
}

fn is_about_ssd(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    message.contains("local ssd") || message.contains("discard-local-ssd") || message.contains("discardlocalssd")
}

impl Cloud for Account {
    type Key = String;
    /// What a filter takes.
    const TOGETHER: usize = 50;

    fn domain(&self) -> Arc<str> {
        self.domain.clone()
    }

    fn profile(&self, cluster: &ClusterRef) -> Profile {
        Profile {
            selector: format!("the names {}-* in project {}", cluster.infra_id, self.project),
            provider_ids: ProviderIds { prefix: "gce://", id_prefix: "" },
            ..Profile::default()
        }
    }

    /// An infraID becomes a part of a regular expression.
    fn key(&self, cluster: &ClusterRef) -> Result<String, CloudError> {
        let infra_id = &cluster.infra_id;
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if (1..=63).contains(&infra_id.len()) && infra_id.chars().all(is_plain) {
            return Ok(infra_id.clone());
        }
        let message = format!(
            "spec.clusterMetadata.infraID is {:?}: on GCP it has at most 63 lowercase letters, digits and hyphens",
            sanitize_to(infra_id, 63)
        );
        Err(CloudError::new(CloudErrorKind::Invalid, message))
    }

    async fn list(
        self: Arc<Self>,
        wanted: BTreeSet<String>,
        priority: Priority,
    ) -> Result<Kept<Found<String>>, CloudError> {
        let mut first = below(&self.base, &["aggregated", "instances"]);
        let names: Vec<&str> = wanted.iter().map(String::as_str).collect();
        let filter = format!("name eq \"({})-.*\"", names.join("|"));
        first.query_pairs_mut().append_pair("filter", &filter).append_pair("fields", FIELDS);
        first.query_pairs_mut().append_pair("maxResults", "500");
        let next = |page: &Page| {
            page.check()?;
            let mut url = first.clone();
            url.query_pairs_mut().append_pair("pageToken", &page.next_page_token);
            Ok((!page.next_page_token.is_empty()).then_some(url))
        };
        let pages = self.api.pages(priority, first.clone(), next).await?;
        let mut found = Found::new();
        let listed: Vec<_> =
            pages.iter().flat_map(|page| page.items.values()).flat_map(|scope| &scope.instances).collect();
        for infra_id in wanted {
            let of_cluster = listed.iter().filter(|instance| instance.is_of(&infra_id));
            let mut machines: Vec<Machine> = of_cluster.map(|instance| instance.machine()).collect();
            distinct(&mut machines);
            found.insert(infra_id, machines.into());
        }
        Ok(pages.map(|_| found))
    }

    async fn send(&self, cluster: &ClusterRef, to: Move, machine: &Machine) -> Result<Option<String>, Failure> {
        let zone = machine.at.as_str();
        let name = machine.instance.node_names.first().map_or("", String::as_str);
        let is_suspended = machine.instance.state == InstanceState::Stopped && machine.instance.word == "SUSPENDED";
        let call = match to {
            Move::Start if is_suspended => "resume",
            Move::Start => "start",
            Move::Stop => "stop",
        };
        let mut url = below(&self.base, &["zones", zone, "instances", name, call]);
        if let (Move::Stop, Some(discard)) = (to, cluster.discard_local_ssd) {
            url.query_pairs_mut().append_pair("discardLocalSsd", if discard { "true" } else { "false" });
        }
        let answer =
            self.api.call(to.priority(), Method::POST, &url, None).await.map_err(|error| explained(error, cluster))?;
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
    use shared::cloud::Instance;

    use super::*;

    #[test]
    fn machines_of_one_name_are_told_apart_by_zone() {
        let machine = |zone: &str, name: &str| Machine {
            instance: Instance { node_names: vec![name.to_owned()], ..Instance::new(name, InstanceState::Running) },
            at: zone.to_owned(),
            ..Machine::default()
        };
        let mut machines =
            [("z-c", "a"), ("z-b", "a"), ("z-a", "b"), ("z-a", "a")].map(|(zone, name)| machine(zone, name));
        distinct(&mut machines);
        let ids = machines.map(|machine| machine.instance.id);
        assert_eq!(ids, ["a", "z-b/a", "z-c/a", "b"]);
    }
}
