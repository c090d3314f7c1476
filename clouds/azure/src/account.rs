//! The calls to one subscription, within its limits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cloud_common::{Permit, RateLimiter};
use cloud_http::{Bearer, CallError, Http, Method, StatusCode, Url, below, link};
use cloud_stopstart::{Cloud, Failure, Found, Machine, Progress, failed};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use shared::cloud::{CloudError, CloudErrorKind, ClusterRef, Priority, Profile, ProviderIds, Verb};
use tokio::time::timeout;

use crate::principal::{Entra, Environment, Principal};
use crate::wire::{Page, is_full, progress};

/// Calls at once, and calls a second. Azure Resource Manager, for one principal: 250 reads, and 25 a second.
pub(crate) const RATE: (u32, u32) = (200, 20);

/// Of them, starts and deallocations. Azure Resource Manager, for one principal: 200 writes, and 10 a second; the
/// machines' own provider, for a subscription: 1,500, and 500 a minute.
const CHANGES: (u32, u32) = (190, 10);

/// How long a call waits for its turn among those.
const TURN: Duration = Duration::from_secs(10);

/// The version of the API that Hive asks for.
const VERSION: &str = "2019-12-01";

/// Machines without a power state that one list asks for once more.
const ASKED_AGAIN: usize = 20;

/// One subscription with its credentials.
pub(crate) struct Account {
    api: Bearer<Entra>,
    permit: Permit,
    domain: Arc<str>,
    /// The subscription's URL.
    base: Url,
    changes: RateLimiter,
}

impl Account {
    /// No request is made yet. `endpoint` is used instead of Azure's hosts.
    pub(crate) fn new(
        principal: Principal,
        environment: Environment,
        http: Http,
        permit: Permit,
        endpoint: Option<&Url>,
    ) -> Result<Self, String> {
        let [login, management] = environment.hosts();
        let scope = format!("{management}/.default");
        let parsed = |text: &str| Url::parse(text).map_err(|error| error.to_string());
        let (login, management) = match endpoint {
            Some(url) => (url.clone(), url.clone()),
            None => (parsed(login)?, parsed(management)?),
        };
        let base = below(&management, &["subscriptions", &principal.subscription]);
        let word = cloud_common::account_word(&format!("{} {}", principal.tenant, principal.client));
        let domain = format!("azure/{}/{word}", principal.subscription).into();
        let http = Arc::new(http);
        let api = Bearer::new(http.clone(), Entra { http, principal, host: login, scope });
        Ok(Self { api, permit, domain, base, changes: RateLimiter::new(CHANGES.0, CHANGES.1) })
    }

    fn url(&self, segments: &[&str]) -> Url {
        let mut url = below(&self.base, segments);
        url.query_pairs_mut().append_pair("api-version", VERSION);
        url
    }

    fn machine_url(&self, group: &str, name: &str, call: &str) -> Url {
        let provider = ["providers", "Microsoft.Compute", "virtualMachines"];
        self.url(&[&["resourceGroups", group][..], &provider, &[name, call]].concat())
    }

    async fn find(&self, wanted: BTreeSet<Group>, priority: Priority) -> Result<Found<Group>, CloudError> {
        let mut first = self.url(&["providers", "Microsoft.Compute", "virtualMachines"]);
        first.query_pairs_mut().append_pair("statusOnly", "true");
        let next = |page: &Page| {
            let found = page.next_link.as_deref().filter(|link| !link.is_empty());
            found.map(|found| link(&first, found)).transpose()
        };
        let pages: Vec<Page> = self.api.pages(priority, first.clone(), next).await?;
        let mut found: BTreeMap<Group, Vec<Machine>> = wanted.into_iter().map(|group| (group, Vec::new())).collect();
        let mut again = ASKED_AGAIN;
        for listed in pages.iter().flat_map(|page| &page.value) {
            let Some(group) = listed.group() else { continue };
            if !found.keys().any(|wanted| wanted.is(group)) {
                continue;
            }
            let mut view = listed.view().clone();
            if !view.has_power() && again > 0 {
                again -= 1;
                let url = self.machine_url(group, &listed.name, "instanceView");
                match self.api.call(priority, Method::GET, &url, None).await {
                    Ok(answer) => view = answer.json()?,
                    Err(CallError::Rejected(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            for (wanted, machines) in found.iter_mut().filter(|(wanted, _)| wanted.is(group)) {
                machines.push(listed.machine(group, &view, &wanted.infra_id));
            }
        }
        Ok(found.into_iter().map(|(group, machines)| (group, machines.into())).collect())
    }

    async fn change(&self, verb: Verb, machine: &Machine) -> Result<Option<String>, Failure> {
        let (call, priority) = match verb {
            Verb::Start => ("start", Priority::Waking),
            Verb::Stop => ("deallocate", Priority::Sleeping),
            Verb::Terminate => {
                let message = "machines on Azure are never deleted";
                return Err(Failure::Account(CloudError::new(CloudErrorKind::Invalid, message)));
            }
        };
        if timeout(TURN, self.changes.acquire(priority)).await.is_err() {
            let message = format!("{call} not sent: too many machines of this subscription wait");
            return Err(Failure::Account(CloudError::new(CloudErrorKind::Throttled, message)));
        }
        let url = self.machine_url(&machine.at, &machine.instance.id, call);
        let answer = self.api.call(priority, Method::POST, &url, None).await.map_err(|error| failed(error, is_full))?;
        let header = |name| answer.headers.get(name).and_then(|value| value.to_str().ok());
        let operation = header("azure-asyncoperation").or_else(|| header("location"));
        let operation = operation.filter(|_| answer.status == StatusCode::ACCEPTED).map(|found| link(&url, found));
        Ok(operation.transpose().map_err(Failure::Account)?.map(String::from))
    }
}

/// A resource group, compared ignoring case, with the infraID of the cluster in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group {
    lower: String,
    infra_id: String,
}

impl Group {
    fn is(&self, group: &str) -> bool {
        group.to_lowercase() == self.lower
    }
}

impl Cloud for Account {
    type Key = Group;
    const TOGETHER: usize = usize::MAX;
    /// Azure: twelve at once, and four a minute.
    const PER_MINUTE: usize = 4;

    fn domain(&self) -> Arc<str> {
        self.domain.clone()
    }

    fn profile(&self, cluster: &ClusterRef) -> Profile {
        let group = cluster.resource_group.as_deref().unwrap_or_default();
        Profile {
            selector: format!("resource group {group} of cluster {} in the subscription", cluster.infra_id),
            provider_ids: ProviderIds { prefix: "azure:///", id_prefix: "" },
            ..Profile::default()
        }
    }

    fn may_act(&self) -> bool {
        (self.permit)()
    }

    fn key(&self, cluster: &ClusterRef) -> Result<Group, CloudError> {
        let group = cluster.resource_group.as_deref().filter(|group| !group.is_empty());
        let message = "spec.clusterMetadata.platform.azure.resourceGroupName is missing: without the name of the resource \
                       group the cluster's machines on Azure cannot be found";
        let group = group.ok_or_else(|| CloudError::new(CloudErrorKind::Invalid, message))?;
        Ok(Group { lower: group.to_lowercase(), infra_id: cluster.infra_id.clone() })
    }

    fn list(
        self: Arc<Self>,
        wanted: BTreeSet<Group>,
        priority: Priority,
    ) -> BoxFuture<'static, Result<Found<Group>, CloudError>> {
        async move { self.find(wanted, priority).await }.boxed()
    }

    fn send<'a>(
        &'a self,
        _cluster: &'a ClusterRef,
        verb: Verb,
        machine: &'a Machine,
        _previous: Option<String>,
    ) -> BoxFuture<'a, Result<Option<String>, Failure>> {
        self.change(verb, machine).boxed()
    }

    fn progress<'a>(&'a self, operation: &'a str) -> BoxFuture<'a, Result<Progress, CallError>> {
        async move {
            let url = link(&self.base, operation).map_err(CallError::NotSent)?;
            let answer = self.api.call(Priority::Waking, Method::GET, &url, None).await?;
            if answer.status == StatusCode::ACCEPTED {
                return Ok(Progress::UnderWay);
            }
            Ok(if answer.len() == 0 { Progress::Done } else { progress(&answer.json::<Value>()?) })
        }
        .boxed()
    }
}
