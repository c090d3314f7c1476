//! The calls to one project of one cloud, within its limits.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use cloud_common::{Charge, Consumer, MemoryLimit, Process};
use cloud_http::{Answer, Body, CallError, Http, Method, Options, Tokens};
use futures::FutureExt;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use shared::cloud::{CloudError, CloudErrorKind, Priority};

use crate::clouds_yaml::Cloud;
use crate::keystone::{Keystone, Service, Session};
use crate::names::Id;
use crate::project::{Project, Surroundings};
use crate::wire::{Attachment, Attachments, Server};

/// Calls at once, and calls a second.
const RATE: (u32, u32) = (40, 20);

/// Servers whose attachments are cached.
const MAX_CACHED_SERVERS: usize = 10_000;

/// Most volumes of a server whose attachments are cached.
const MAX_CACHED_VOLUMES: usize = 64;

/// A server, and its volumes.
type Holder = (Id, BTreeSet<Id>);

/// How volumes are attached, by server and volumes: an attachment never changes its device or tag.
struct AttachmentCache {
    all: HashMap<Holder, Vec<Attachment>>,
    charge: Charge,
}

/// One project with its credentials.
pub(crate) struct Account {
    memory: MemoryLimit,
    consumer: Consumer,
    http: Arc<Http>,
    tokens: Tokens<Keystone>,
    attachments: Mutex<AttachmentCache>,
    /// With the time of their list.
    pub(crate) surroundings: Mutex<Option<(Instant, Arc<Surroundings>)>>,
    /// The last snapshot of the project.
    last: Mutex<Option<Arc<Project>>>,
    /// Held while a server group is made: of several servers the first one makes it.
    pub(crate) groups: tokio::sync::Mutex<()>,
}

impl Account {
    /// No request is made yet.
    pub(crate) fn new(mut cloud: Cloud, process: Process, tenant: Arc<str>) -> Result<Self, String> {
        let (authorities, account, memory) = (cloud.authorities.take(), cloud.word(), process.memory.clone());
        let consumer = Consumer::new(&tenant, account.clone());
        let account = account.into();
        let http = Http::new(Options { process, tenant: Some(tenant), account, authorities, rate: RATE });
        let http = Arc::new(http.map_err(|why| format!("the certificates of certificatesSecretRef: {why}"))?);
        let tokens = Tokens::new(Keystone { http: http.clone(), cloud });
        let attachments = Mutex::new(AttachmentCache { all: HashMap::new(), charge: http.charge() });
        let (surroundings, last, groups) = <(_, _, tokio::sync::Mutex<()>)>::default();
        Ok(Self { memory, consumer, http, tokens, attachments, surroundings, last, groups })
    }

    pub(crate) async fn session(&self) -> Result<Session, CallError> {
        self.tokens.get().await
    }

    /// Makes a call, and once more with a new token if the token is not accepted.
    pub(crate) async fn call(
        &self,
        priority: Priority,
        service: Service,
        method: Method,
        path: &str,
        body: Option<Body>,
    ) -> Result<Answer, CallError> {
        let call = |session: Session| {
            let (method, body) = (method.clone(), body.clone());
            let url = session.url(service, path);
            async move { self.http.call(priority, method, url?, &session.headers(service), body.as_ref()).await }
                .boxed()
        };
        self.tokens.with(call).await
    }

    /// The answer to a GET, and its charge.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        priority: Priority,
        service: Service,
        path: &str,
    ) -> Result<(T, Charge), CallError> {
        self.call(priority, service, Method::GET, path, None).await?.open().await
    }

    /// Memory for what is kept of a list or built of it for one cluster, apart from that of answers.
    pub(crate) fn charge(&self, part: &str) -> Charge {
        let id = format!("{} {part}", self.consumer.id);
        self.memory.of(Consumer { id, ..self.consumer.clone() }).charge()
    }

    /// How the volumes of a server are attached.
    pub(crate) async fn attachments(&self, server: &Server, priority: Priority) -> Result<Vec<Attachment>, CallError> {
        if server.volumes.is_empty() {
            return Ok(Vec::new());
        }
        let key = (server.id.clone(), server.volumes.iter().map(|volume| volume.id.clone()).collect::<BTreeSet<_>>());
        if let Some(known) = self.attachments.lock().all.get(&key) {
            return Ok(known.clone());
        }
        let path = format!("/servers/{}/os-volume_attachments", server.id);
        let (mut found, charge): (Attachments, _) = match self.get(priority, Service::Compute, &path).await {
            Err(error) if error.is_not_found() => return Ok(Vec::new()), // it is gone, as the next list shows
            found => found?,
        };
        found.all.truncate(MAX_CACHED_VOLUMES + key.1.len());
        let mut known = self.attachments.lock();
        if known.all.len() >= MAX_CACHED_SERVERS {
            *known = AttachmentCache { all: HashMap::new(), charge: self.http.charge() };
        }
        // One that is under way has no device yet.
        let is_known = |attachment: &Attachment| attachment.device.is_some() && key.1.contains(&attachment.volume);
        if found.all.len() == key.1.len() && key.1.len() <= MAX_CACHED_VOLUMES && found.all.iter().all(is_known) {
            known.all.insert(key, found.all.clone());
            known.charge.merge(charge);
            known.charge.refund(0); // what neither of them uses
        }
        Ok(found.all)
    }

    /// The last snapshot of the project, which the planner's requests follow from.
    pub(crate) fn last(&self) -> Result<Arc<Project>, CloudError> {
        let unknown = || CloudError::new(CloudErrorKind::Unavailable, "the project was not listed yet");
        self.last.lock().clone().ok_or_else(unknown)
    }

    /// Keeps a snapshot, unless there is a newer one.
    pub(crate) fn keep(&self, project: &Arc<Project>) {
        let mut last = self.last.lock();
        if last.as_ref().is_none_or(|last| last.begun < project.begun) {
            *last = Some(project.clone());
        }
    }
}

#[cfg(test)]
mod tests;
