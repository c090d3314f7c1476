//! The calls to one region of one account.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cloud_common::ChargedValue;
use cloud_http::{Bearer, Body, CallError, FormLogin, Http, Method, Url, below, hosts, is_plain, link};
use cloud_stopstart::{Cloud, Failure, ListResult, Machine, Move};
use serde_json::json;
use shared::cloud::{CloudError, CloudErrorKind, ClusterRef, Priority, Profile, ProviderIds};
use shared::text::sanitize_to;
use tokio::sync::OnceCell;

use crate::wire::{ListedInstance, Page, Region, infra_ids, machine_error_kind, owner};

/// The version of the API that the fields here are of.
const API_VERSION: &str = "2026-11-01";

/// Of logins, and of the list of regions.
const HOSTS: [&str; 2] = ["https://iam.cloud.ibm.com", "https://us-south.iaas.cloud.ibm.com"];

/// The domain of every region's endpoint.
const ENDPOINT_DOMAIN: &str = ".cloud.ibm.com";

/// One account in one region, with its credentials.
pub(crate) struct Account {
    api: Bearer<FormLogin>,
    domain: Arc<str>,
    region: String,
    /// The host of the list of regions.
    regions: Url,
    /// Whether it is IBM's own.
    is_own: bool,
    endpoint: OnceCell<Url>,
}

impl Account {
    /// No request is made yet. `account` is a word for it; `endpoint` is used instead of IBM's hosts.
    pub(crate) fn new(
        api_key: &str,
        region: &str,
        account: &str,
        http: Http,
        endpoint: Option<&Url>,
    ) -> Result<Self, String> {
        let [iam, regions] = hosts(HOSTS, endpoint)?;
        let form = vec![
            ("grant_type", "urn:ibm:params:oauth:grant-type:apikey".to_owned()),
            ("apikey", api_key.to_owned()),
            ("response_type", "cloud_iam".to_owned()),
        ];
        Ok(Self {
            api: Bearer::by_form(http, below(&iam, &["identity", "token"]), form),
            domain: format!("ibmcloud/{region}/{}", cloud_common::account_word(account)).into(),
            region: region.to_owned(),
            regions,
            is_own: endpoint.is_none(),
            endpoint: OnceCell::new(),
        })
    }

    /// Where the region's machines are.
    async fn endpoint(&self, priority: Priority) -> Result<&Url, CallError> {
        self.endpoint
            .get_or_try_init(|| async {
                let url = versioned(below(&self.regions, &["v1", "regions", &self.region]));
                let answer = self.api.call(priority, Method::GET, &url, None).await;
                let found = answer.map_err(|error| self.no_region(error))?.json::<Region>().await?;
                let url = Url::parse(&found.endpoint).ok().filter(|url| is_plain(url) && self.is_trusted(url));
                url.ok_or_else(|| {
                    let (region, found) = (&self.region, sanitize_to(&found.endpoint, 100));
                    let message = format!("the endpoint of region {region} is {found:?}, which is not IBM Cloud's");
                    CallError::NotSent(CloudError::new(CloudErrorKind::Unavailable, message))
                })
            })
            .await
    }

    /// Whether an endpoint from an answer is used.
    pub(crate) fn is_trusted(&self, url: &Url) -> bool {
        let is_ibms = url.scheme() == "https" && url.host_str().is_some_and(|host| host.ends_with(ENDPOINT_DOMAIN));
        if self.is_own { is_ibms } else { url.origin() == self.regions.origin() }
    }

    fn no_region(&self, error: CallError) -> CallError {
        if !error.is_not_found() {
            return error;
        }
        let message = format!("spec.platform.ibmcloud.region is {}: IBM Cloud has no such region", self.region);
        CallError::NotSent(CloudError::new(CloudErrorKind::Invalid, message))
    }
}

/// A URL with the version that every call names, whatever it has named before.
fn versioned(mut url: Url) -> Url {
    let others: Vec<(String, String)> = url
        .query_pairs()
        .filter(|(key, _)| key != "version" && key != "generation")
        .map(|(k, v)| (k.into(), v.into()))
        .collect();
    url.query_pairs_mut()
        .clear()
        .append_pair("version", API_VERSION)
        .append_pair("generation", "2")
        .extend_pairs(others);
    url
}

impl Cloud for Account {
    type Key = String;
    /// IBM publishes no limit.
    const RATE: (u32, u32) = (200, 30);
    const MAX_CLUSTERS_PER_LIST: usize = usize::MAX;

    fn domain(&self) -> Arc<str> {
        self.domain.clone()
    }

    fn profile(&self, cluster: &ClusterRef) -> Profile {
        Profile {
            selector: format!("the names {}-* in region {}", cluster.infra_id, self.region),
            provider_ids: ProviderIds { prefix: "ibm://", id_prefix: "" },
            ..Profile::default()
        }
    }

    fn key(&self, cluster: &ClusterRef) -> Result<String, CloudError> {
        Ok(cluster.infra_id.clone())
    }

    async fn list(self: Arc<Self>, wanted: BTreeSet<String>, priority: Priority) -> ListResult<String> {
        let base = self.endpoint(priority).await?;
        let mut first = versioned(below(base, &["v1", "instances"]));
        first.query_pairs_mut().append_pair("limit", "100");
        let next = |page: &Page| {
            let found = page.next.as_ref().map(|next| link(base, &next.href)).transpose()?;
            Ok(found.map(versioned))
        };
        let pages: ChargedValue<Vec<Page>> = self.api.pages(priority, first, next).await?;
        let listed: Vec<&ListedInstance> = pages.iter().flat_map(|page| &page.instances).collect();
        let all = infra_ids(&wanted, &listed);
        let mut found: BTreeMap<&str, Vec<Machine>> =
            wanted.iter().map(|infra_id| (infra_id.as_str(), vec![])).collect();
        for instance in &listed {
            let owner = owner(&instance.name, &all);
            if let Some(machines) = owner.and_then(|owner| found.get_mut(owner)) {
                machines.push(instance.machine());
            }
        }
        let found = found.into_iter().map(|(infra_id, machines)| (infra_id.to_owned(), Ok(machines.into()))).collect();
        Ok(pages.map(|_| found))
    }

    async fn send(&self, _cluster: &ClusterRef, to: Move, machine: &Machine) -> Result<Option<String>, Failure> {
        let (priority, call) = (to.priority(), if to == Move::Start { "start" } else { "stop" });
        let base = self.endpoint(priority).await.map_err(|error| Failure::Account(error.into()))?;
        let url = versioned(below(base, &["v1", "instances", &machine.at, "actions"]));
        let body = Body::Json(json!({"type": call}));
        let answer = self.api.call(priority, Method::POST, &url, Some(&body)).await;
        answer.map_err(|error| Failure::of(error, machine_error_kind))?;
        Ok(None)
    }
}
