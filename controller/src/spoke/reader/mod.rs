//! The only reader of what spokes answer: bounded, charged and into small types of our own.

mod events;
mod pages;
mod refused;
#[cfg(test)]
mod tests;

use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use futures::TryStreamExt as _;
use http::{Request, Response, StatusCode};
use kube::Client;
use kube::api::{DeleteParams, GetParams, ListParams, Patch};
use kube::core::{Request as Requests, Status};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use shared::read::{self, Limits, Read};
use shared::spoke::kinds::Kind;
use tokio::time::timeout;

pub use self::events::{Listing, events};
pub use self::pages::{MOST, if_there, is_not_there};
use self::refused::RefusedPaths;
use crate::runtime::hub::as_controller;
use fair::{Charge, ChargedValue, ConsumerMemory, MemoryFull};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Bytes of one answer. A page of Nodes has 2 MB.
const ANSWER: usize = 8 << 20;
/// Bytes of an error.
const ERROR: usize = 64 << 10;
/// Bytes by which the room for an answer grows at most.
const GROW: usize = 1 << 20;
/// How long an answer may take, from the request to its last byte. A watch is read line by line.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// A client of one spoke.
#[derive(Clone)]
pub struct SpokeClient {
    /// It reads no answer.
    http: Client,
    memory: ConsumerMemory,
    refused: RefusedPaths,
}

/// What an API server says of a request that it does not grant.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Failure {
    kind: String,
    message: String,
    reason: String,
    code: u16,
}

impl Failure {
    /// The same, as kube has it.
    pub fn into_status(self) -> Box<Status> {
        Status::failure(&self.message, &self.reason).with_code(self.code).boxed()
    }
}

impl SpokeClient {
    /// Reads what this client is answered, within the part of the spoke.
    pub fn new(client: Client, memory: ConsumerMemory) -> Self {
        Self { http: client, memory, refused: RefusedPaths::default() }
    }

    /// One object.
    ///
    /// # Errors
    /// When there is none, or the answer cannot be read.
    pub async fn get<K: Kind>(&self, name: &str) -> kube::Result<ChargedValue<K>> {
        self.read(requests::<K>(None).get(name, &GetParams::default())).await
    }

    /// One page of a list.
    pub(super) async fn page<K: Kind>(
        &self,
        namespace: Option<&str>,
        params: &ListParams,
    ) -> kube::Result<(Page<K>, Charge)> {
        let requests = requests::<K>(namespace);
        let request = if K::METADATA_ONLY { requests.list_metadata(params) } else { requests.list(params) };
        self.answer(request, params.limit > Some(1)).await
    }

    /// Whether the API server says its version.
    ///
    /// # Errors
    /// When it does not.
    pub async fn version(&self) -> kube::Result<()> {
        self.write(Request::get("/version").body(Vec::new()).map_err(kube::core::request::Error::BuildRequest)).await
    }

    /// Patches an object under our name.
    ///
    /// # Errors
    /// When the spoke refuses.
    pub async fn patch<K: Kind>(
        &self,
        namespace: Option<&str>,
        name: &str,
        patch: &Patch<impl Serialize>,
    ) -> kube::Result<()> {
        self.write(requests::<K>(namespace).patch(name, &as_controller(), patch)).await
    }

    /// Patches a subresource of an object under our name.
    ///
    /// # Errors
    /// When the spoke refuses.
    pub async fn patch_subresource<K: Kind>(
        &self,
        namespace: Option<&str>,
        subresource: &str,
        name: &str,
        patch: &Patch<impl Serialize>,
    ) -> kube::Result<()> {
        self.write(requests::<K>(namespace).patch_subresource(subresource, name, &as_controller(), patch)).await
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// When the spoke refuses.
    pub async fn delete<K: Kind>(
        &self,
        namespace: Option<&str>,
        name: &str,
        params: &DeleteParams,
    ) -> kube::Result<()> {
        self.write(requests::<K>(namespace).delete(name, params)).await
    }

    async fn read<T: DeserializeOwned>(&self, request: Built) -> kube::Result<ChargedValue<T>> {
        self.answer(request, false).await.map(|(value, charge)| ChargedValue::new(value, charge))
    }

    /// Sends a request, and builds a value of its answer. With `less`, the caller can ask for less than that.
    async fn answer<T: DeserializeOwned>(&self, request: Built, less: bool) -> kube::Result<(T, Charge)> {
        let answer = in_time(async {
            let (answer, path) = self.send(request).await?;
            Ok((whole(answer.into_body().into_data_stream(), &self.memory, ANSWER).await, path))
        });
        let (text, path) = answer.await?;
        let read = match text {
            Ok(text) => built(text.bytes(), &self.memory).await,
            Err(Cause::Refused(why)) if less => return Err(kube::Error::Service(TooLarge(why).into())),
            Err(cause) => Err(cause),
        };
        match read {
            Ok(found) => {
                self.refused.remove(&path);
                Ok(found)
            }
            Err(Cause::Refused(why)) => Err(self.refuse(&path, why)),
            Err(Cause::Transient(error)) => Err(kube::Error::Service(error)),
        }
    }

    /// Sends a write. Of its answer only the code is read.
    async fn write(&self, request: Built) -> kube::Result<()> {
        in_time(async {
            let (answer, path) = self.send(request).await?;
            let mut left = ANSWER;
            let mut chunks = answer.into_body().into_data_stream();
            while let Some(chunk) = chunks.try_next().await.map_err(|error| kube::Error::Service(error.into()))? {
                left = left.checked_sub(chunk.len()).ok_or_else(|| self.refuse(&path, too_large(ANSWER)))?;
            }
            Ok(())
        })
        .await
    }

    /// Sends a request. An answer that is no success is the error that it says.
    pub(super) async fn send(&self, request: Built) -> kube::Result<(Response<Body>, String)> {
        let request = request.map_err(kube::Error::BuildRequest)?;
        let path = request.uri().path().to_owned();
        if let Some(why) = self.refused.why(&path) {
            return Err(kube::Error::Service(why));
        }
        let answer = self.http.send(request.map(kube::client::Body::from)).await?.map(Body::new);
        if answer.status().is_success() {
            return Ok((answer, path));
        }
        Err(self.failure(answer.status(), answer.into_body(), &path).await)
    }

    async fn failure(&self, code: StatusCode, body: Body, path: &str) -> kube::Error {
        let text = match whole(body.into_data_stream(), &self.memory, ERROR).await {
            Ok(text) => text,
            Err(Cause::Refused(why)) => return self.refuse(path, why),
            Err(Cause::Transient(error)) => return kube::Error::Service(error),
        };
        let failure = match built::<Failure>(text.bytes(), &self.memory).await {
            Ok((failure, _)) if failure.kind == "Status" => {
                Failure { code: if failure.code == 0 { code.as_u16() } else { failure.code }, ..failure }
            }
            // A tenant chooses the server and its CA: what is no API server's is not quoted.
            _ => {
                let message = code.canonical_reason().unwrap_or_default().to_owned();
                Failure { message, code: code.as_u16(), ..Failure::default() }
            }
        };
        kube::Error::Api(failure.into_status())
    }

    /// An answer to this path was refused: the same request is not sent again at once.
    pub(super) fn refuse(&self, path: &str, why: String) -> kube::Error {
        self.refused.add(path, &why);
        kube::Error::Service(why.into())
    }

    /// What is kept of the spoke's answers is charged with this.
    pub fn charge(&self) -> Charge {
        self.memory.charge()
    }

    pub(super) fn memory(&self) -> &ConsumerMemory {
        &self.memory
    }
}

/// The answer, unless it takes too long.
pub async fn in_time<T>(answer: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    let late = |_| kube::Error::Service(format!("the answer takes more than {ANSWER_TIMEOUT:?}").into());
    timeout(ANSWER_TIMEOUT, Box::pin(answer)).await.map_err(late)?
}

/// A request, if its parameters are sound.
type Built = Result<Request<Vec<u8>>, kube::core::request::Error>;

/// Requests for objects of a kind.
pub fn requests<K: Kind>(namespace: Option<&str>) -> Requests {
    let (version, plural) = (K::VERSION, K::PLURAL);
    Requests::new(match namespace {
        Some(namespace) => format!("{version}/namespaces/{namespace}/{plural}"),
        None => format!("{version}/{plural}"),
    })
}

/// One page of a list.
#[derive(Deserialize)]
#[serde(bound = "K: DeserializeOwned")]
pub struct Page<K> {
    #[serde(default)]
    pub metadata: PageMetadata,
    #[serde(default = "Vec::new")]
    pub items: Vec<K>,
}

/// Metadata of a page.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PageMetadata {
    /// Version of the list.
    pub resource_version: String,
    /// By which the next page is asked for.
    #[serde(rename = "continue")]
    pub next: String,
}

/// Why an answer was not read.
pub enum Cause {
    /// It is larger than what we ask for, or malformed.
    Refused(String),
    /// The connection broke, or the responses of other spokes left no memory.
    Transient(BoxError),
}

/// An answer was too large, and one with fewer objects may fit.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TooLarge(pub String);

/// Builds a value. What it may keep is charged before, and what it keeps from then on.
pub async fn built<T: DeserializeOwned>(text: &[u8], memory: &ConsumerMemory) -> Result<(T, Charge), Cause> {
    let (limits, mut charge) = (Limits::answer(text.len()), memory.charge());
    charge.spend_soon(limits.kept).await.map_err(|full| Cause::Transient(full.into()))?;
    let refused = |error| Cause::Refused(format!("the answer cannot be read: {error}"));
    let Read { value, kept, .. } = read::json(text, &limits).map_err(refused)?;
    charge.refund(limits.kept.saturating_sub(kept));
    Ok((value, charge))
}

/// Text that is being read. It is charged for what it has room for.
pub struct Text {
    bytes: Vec<u8>,
    /// What was done with.
    begin: usize,
    charge: Charge,
}

impl Text {
    pub fn new(memory: &ConsumerMemory) -> Self {
        Self { bytes: Vec::new(), begin: 0, charge: memory.charge() }
    }

    /// What has come and was not done with.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(self.begin..).unwrap_or_default()
    }

    /// So much of it is done with.
    pub fn skip(&mut self, bytes: usize) {
        self.begin += bytes;
        if self.begin >= self.bytes.len() {
            self.bytes = Vec::new();
            self.begin = 0;
            self.charge.refund(self.charge.used());
        }
    }

    /// More has come.
    pub async fn push(&mut self, chunk: &[u8]) -> Result<(), MemoryFull> {
        self.bytes.drain(..self.begin);
        self.begin = 0;
        let (length, room) = (self.bytes.len() + chunk.len(), self.bytes.capacity());
        if length > room {
            let more = length.max(room + (room / 2).min(GROW));
            self.charge.spend_soon(more - room).await?;
            self.bytes.reserve_exact(more - self.bytes.len());
        }
        self.bytes.extend_from_slice(chunk);
        Ok(())
    }
}

/// Reads an answer to its end.
async fn whole(mut chunks: BodyDataStream, memory: &ConsumerMemory, most: usize) -> Result<Text, Cause> {
    let mut text = Text::new(memory);
    while let Some(chunk) = next(&mut chunks).await? {
        if text.bytes().len() + chunk.len() > most {
            return Err(Cause::Refused(too_large(most)));
        }
        text.push(&chunk).await.map_err(|full| Cause::Transient(full.into()))?;
    }
    Ok(text)
}

/// The next bytes of a body.
pub async fn next(chunks: &mut BodyDataStream) -> Result<Option<Bytes>, Cause> {
    chunks.try_next().await.map_err(|error| Cause::Transient(error.into()))
}

fn too_large(most: usize) -> String {
    let (size, unit) = if most < 1 << 20 { (most >> 10, "KiB") } else { (most >> 20, "MiB") };
    format!("the answer has more than {size} {unit}")
}
