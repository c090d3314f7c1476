//! The calls to one subscription, within its limits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cloud_common::{ChargedValue, RateLimiter};
use cloud_http::{Bearer, CallError, FormLogin, Http, Method, StatusCode, Url, below, hosts, link};
use cloud_stopstart::{Cloud, Failure, ListResult, Machine, Move, Progress};
use futures::{StreamExt, stream, try_join};
use parking_lot::Mutex;
use shared::cloud::{CloudError, CloudErrorKind, ClusterRef, PlatformSpec, Priority, Profile, ProviderIds};
use tokio::time::{Instant, timeout};

use crate::principal::{Environment, Principal};
use crate::wire::{ListedInstance, Model, Operation, Page, View, given_up, machine_error_kind};

/// Burst, and rate per second, of starts and deallocations, just below the limits: Azure Resource Manager's for one
/// principal, 200 writes, and 10 a second; the machines' own provider's for a subscription, 1,500, and 500 a minute.
const CHANGE_RATE: (u32, u32) = (190, 10);

const RATE_LIMIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The version of the API that Hive asks for.
const API_VERSION: &str = "2019-12-01";

/// How long the list of what machines are made of is cached while a cluster goes to sleep: the disk of a machine never
/// changes.
const MODELS_TTL_SLEEPING: Duration = Duration::from_mins(1);
/// The same while none does.
const MODELS_TTL_IDLE: Duration = Duration::from_mins(10);

/// Why such a machine is not put to sleep.
const EPHEMERAL_DISK: &str = "its OS disk is ephemeral, and Azure cannot deallocate such a machine: replace it with one \
                              that has a managed OS disk";

/// Machines without a power state that one list asks for once more, in each resource group; how many at once, and how long
/// that may take.
const MAX_RETRIED: usize = 20;
const MAX_IN_FLIGHT: usize = 8;
const RETRY_TIMEOUT: Duration = Duration::from_secs(10);

/// What machines are made of, by resource group and name in lowercase.
type Models = ChargedValue<BTreeMap<(String, String), Model>>;

/// One subscription with its credentials.
pub(crate) struct Account {
    api: Bearer<FormLogin>,
    domain: Arc<str>,
    /// The subscription's URL.
    base: Url,
    changes: RateLimiter,
    /// What the machines of the subscription are made of, and when they were listed.
    models: Mutex<Option<(Instant, Arc<Models>)>>,
}

impl Account {
    /// No request is made yet. `endpoint` is used instead of Azure's hosts.
    pub(crate) fn new(
        principal: &Principal,
        environment: Environment,
        http: Http,
        endpoint: Option<&Url>,
    ) -> Result<Self, String> {
        let [login, management] = hosts(environment.hosts(), endpoint)?;
        let base = below(&management, &["subscriptions", &principal.subscription]);
        let word = cloud_common::account_word(&format!("{} {}", principal.tenant, principal.client));
        let domain = format!("azure/{}/{word}", principal.subscription).into();
        let api = Bearer::by_form(http, below(&login, &principal.token_path()), principal.form(environment));
        let changes = RateLimiter::new(CHANGE_RATE.0, CHANGE_RATE.1);
        Ok(Self { api, domain, base, changes, models: Mutex::default() })
    }

    fn url(&self, segments: &[&str]) -> Url {
        let mut url = below(&self.base, segments);
        url.query_pairs_mut().append_pair("api-version", API_VERSION);
        url
    }

    fn machine_url(&self, group: &str, name: &str, call: &str) -> Url {
        let provider = ["providers", "Microsoft.Compute", "virtualMachines"];
        self.url(&[&["resourceGroups", group][..], &provider, &[name, call]].concat())
    }

    /// All machines of the subscription, with their states or with what they are made of.
    async fn machines(&self, priority: Priority, with_states: bool) -> Result<ChargedValue<Vec<Page>>, CloudError> {
        let mut first = self.url(&["providers", "Microsoft.Compute", "virtualMachines"]);
        if with_states {
            first.query_pairs_mut().append_pair("statusOnly", "true");
        }
        let next = |page: &Page| {
            let found = page.next_link.as_deref().filter(|link| !link.is_empty());
            found.map(|found| link(&first, found)).transpose()
        };
        self.api.pages(priority, first.clone(), next).await
    }

    /// What machines are made of: their sizes, and which of them cannot be deallocated. A wake does not wait for it.
    async fn models(&self, priority: Priority) -> Result<Option<Arc<Models>>, CloudError> {
        let known = self.models.lock().clone();
        let age = if priority == Priority::Sleeping { MODELS_TTL_SLEEPING } else { MODELS_TTL_IDLE };
        if priority == Priority::Waking || known.as_ref().is_some_and(|(at, _)| at.elapsed() < age) {
            return Ok(known.map(|(_, found)| found));
        }
        let found: Arc<Models> = Arc::new(self.machines(priority, false).await?.map(|pages| {
            let listed = pages.iter().flat_map(|page| &page.value);
            listed.filter_map(|listed| Some((listed.key()?, listed.model()))).collect::<BTreeMap<_, _>>()
        }));
        *self.models.lock() = Some((Instant::now(), found.clone()));
        Ok(Some(found))
    }

    /// Reads the power state of one machine that a list has left out.
    async fn read_again(&self, group: &str, name: &str, view: &mut View, priority: Priority) {
        let url = self.machine_url(group, name, "instanceView");
        if let Ok(answer) = self.api.call(priority, Method::GET, &url, None).await {
            *view = answer.json::<View>().await.map(|found| found.clone()).unwrap_or_default();
        }
    }
}

/// Where a cluster's machines are; empty if it does not say.
fn resource_group(cluster: &ClusterRef) -> &str {
    if let PlatformSpec::Azure { resource_group, .. } = &cluster.platform { resource_group } else { "" }
}

impl Cloud for Account {
    /// A resource group in lowercase: case does not count. All clusters that name one share its machines.
    type Key = String;
    /// Below Azure Resource Manager's limit for one principal: 250 reads, refilled at 25 a second.
    const RATE: (u32, u32) = (200, 20);
    const MAX_CLUSTERS_PER_LIST: usize = usize::MAX;
    /// Azure allows a burst of 12 and 4 a minute; only the rate is used.
    const MAX_CALLS_PER_MINUTE: usize = 4;

    fn domain(&self) -> Arc<str> {
        self.domain.clone()
    }

    fn profile(&self, cluster: &ClusterRef) -> Profile {
        let group = resource_group(cluster);
        Profile {
            selector: format!("resource group {group} of cluster {} in the subscription", cluster.infra_id),
            provider_ids: ProviderIds { prefix: "azure:///", id_prefix: "" },
            ..Profile::default()
        }
    }

    fn key(&self, cluster: &ClusterRef) -> Result<String, CloudError> {
        let group = resource_group(cluster);
        let message = "spec.clusterMetadata.platform.azure.resourceGroupName is missing: without the name of the resource \
                       group the cluster's machines on Azure cannot be found";
        if group.is_empty() { Err(CloudError::new(CloudErrorKind::Invalid, message)) } else { Ok(group.to_lowercase()) }
    }

    async fn list(self: Arc<Self>, wanted: BTreeSet<String>, priority: Priority) -> ListResult<String> {
        let (pages, models) = try_join!(self.machines(priority, true), self.models(priority))?;
        let mut found: BTreeMap<String, Vec<(&ListedInstance, String, View)>> =
            wanted.into_iter().map(|group| (group, Vec::new())).collect();
        for listed in pages.iter().flat_map(|page| &page.value) {
            let Some(group) = listed.group() else { continue };
            if let Some(machines) = found.get_mut(&group.to_lowercase()) {
                machines.push((listed, group.to_owned(), listed.view().clone()));
            }
        }
        let mut again = Vec::new();
        for machines in found.values_mut() {
            let silent = machines.iter_mut().filter(|(_, _, view)| !view.has_power()).take(MAX_RETRIED);
            again.extend(silent.map(|(listed, group, view)| self.read_again(group, &listed.name, view, priority)));
        }
        let again = stream::iter(again).buffer_unordered(MAX_IN_FLIGHT).collect::<()>();
        let _ = timeout(RETRY_TIMEOUT, again).await; // who has not answered is unknown
        let machine = |(listed, at, view): &(&ListedInstance, String, View)| {
            let mut machine = listed.machine(at, view);
            let Some(model) = models.as_ref().and_then(|models| models.get(&listed.key()?)) else { return machine };
            machine.instance.obstacle = model.is_ephemeral.then(|| EPHEMERAL_DISK.to_owned());
            machine.of_type(&model.size)
        };
        let found = found.iter().map(|(group, all)| (group.clone(), Ok(all.iter().map(machine).collect()))).collect();
        Ok(pages.map(|_| found))
    }

    async fn send(&self, _cluster: &ClusterRef, to: Move, machine: &Machine) -> Result<Option<String>, Failure> {
        let call = match to {
            Move::Start => "start",
            Move::Stop => "deallocate",
        };
        if timeout(RATE_LIMIT_TIMEOUT, self.changes.acquire(to.priority())).await.is_err() {
            let message = format!("{call} not sent: too many machines of this subscription wait");
            return Err(Failure::Account(CloudError::new(CloudErrorKind::Throttled, message)));
        }
        let url = self.machine_url(&machine.at, machine.name(), call);
        let answer = self.api.call(to.priority(), Method::POST, &url, None).await;
        let answer = answer.map_err(|error| Failure::of(error, machine_error_kind))?;
        let header = |name| answer.headers.get(name).and_then(|value| value.to_str().ok());
        let operation = header("azure-asyncoperation").or_else(|| header("location"));
        let operation = operation.filter(|_| answer.status == StatusCode::ACCEPTED).map(|found| link(&url, found));
        Ok(operation.transpose().map_err(Failure::Account)?.map(String::from))
    }

    async fn progress(&self, operation: &str) -> Result<Progress, CallError> {
        let url = link(&self.base, operation).map_err(CallError::NotSent)?;
        let answer = match self.api.call(Priority::Waking, Method::GET, &url, None).await {
            // At a `Location` URL, a failed operation answers with its failure.
            Err(CallError::Rejected(failed)) if failed.kind == CloudErrorKind::Invalid && failed.status != 404 => {
                return Ok(given_up(failed.code, failed.message));
            }
            answer => answer?,
        };
        if answer.status == StatusCode::ACCEPTED {
            return Ok(Progress::InProgress);
        }
        if answer.is_empty() {
            return Ok(Progress::Done);
        }
        Ok(answer.json::<Operation>().await?.progress())
    }
}
