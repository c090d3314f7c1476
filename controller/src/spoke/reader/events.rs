//! Watches of a spoke: each event passes the reader, and is charged until it is dropped.

use std::collections::VecDeque;
use std::mem::take;
use std::time::Duration;

use axum::body::{BodyDataStream, Bytes};
use futures::{Stream, stream};
use kube::api::{ListParams, WatchParams};
use kube::runtime::watcher::{Error, Event};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use shared::spoke::kinds::Object;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::pages::{PAGE, PAGES, larger, smaller};
use super::{Cause, Failure, SpokeClient, Text, built, in_time, next, requests};
use fair::{ChargedValue, ConsumerMemory};

/// Maximum size of one event, in bytes: API servers keep objects of up to 1.5 MiB, which take more in JSON.
const MAX_EVENT_BYTES: usize = 3 << 20;
/// Bytes that are copied to the line buffer at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// How long one event may take, from its first byte to its last.
const EVENT_TIMEOUT: Duration = Duration::from_secs(8);
/// Between two openings of a watch that ends.
const OPEN_PERIOD: Duration = Duration::from_secs(1);

/// One item of a watch.
pub type WatchEvent<K> = Result<Event<ChargedValue<K>>, Error>;

/// How the server lists: with one request, or as servers before Kubernetes 1.32 do, with two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// The list is the beginning of the watch.
    Streamed,
    /// Pages, and then a watch.
    Plain,
}

/// All objects of a kind, and from then on what changes. It never ends; after an error it goes on, so that it needs a
/// backoff.
pub fn events<K: Object>(client: SpokeClient, listing: Listing) -> impl Stream<Item = WatchEvent<K>> + Send {
    let watch = Watch { client, listing, stage: Stage::Begin, page: VecDeque::new(), limit: PAGE, opened: None };
    stream::unfold(watch, |mut watch| async move { Some((watch.next().await, watch)) })
}

struct Watch<K> {
    client: SpokeClient,
    listing: Listing,
    stage: Stage,
    /// Objects of the page that are not emitted yet.
    page: VecDeque<ChargedValue<K>>,
    /// Objects of the next page.
    limit: u32,
    opened: Option<Instant>,
}

/// Progress of the watch. A failure restarts it.
#[derive(Default)]
enum Stage {
    #[default]
    Begin,
    /// The next page, by its token and number.
    Pages(Option<String>, u32),
    /// The last page is there, as of this version.
    Paged(String),
    /// Everything is listed, as of this version.
    Listed(String),
    /// The list is being streamed.
    Listing(Lines),
    Watching(String, Lines),
}

impl<K: Object> Watch<K> {
    async fn next(&mut self) -> WatchEvent<K> {
        loop {
            if let Some(object) = self.page.pop_front() {
                return Ok(Event::InitApply(object));
            }
            if let Some(event) = self.step().await? {
                return Ok(event);
            }
        }
    }

    async fn step(&mut self) -> Result<Option<Event<ChargedValue<K>>>, Error> {
        match take(&mut self.stage) {
            Stage::Begin => {
                self.stage = match self.listing {
                    Listing::Streamed => Stage::Listing(self.open("0", true).await?),
                    Listing::Plain => Stage::Pages(None, 1),
                };
                Ok(Some(Event::Init))
            }
            Stage::Pages(token, number) => {
                self.stage = self.list(token, number).await?;
                Ok(None)
            }
            Stage::Paged(version) => {
                self.stage = Stage::Listed(version);
                Ok(Some(Event::InitDone))
            }
            Stage::Listed(version) => {
                let lines = self.open(&version, false).await?;
                self.stage = Stage::Watching(version, lines);
                Ok(None)
            }
            Stage::Listing(mut lines) => match self.line(&mut lines).await? {
                None => Ok(None),
                Some(Line::Applied(object)) => {
                    self.stage = Stage::Listing(lines);
                    Ok(Some(Event::InitApply(object)))
                }
                Some(Line::Bookmark { version, list_ends: true }) => {
                    self.stage = Stage::Watching(version, lines);
                    Ok(Some(Event::InitDone))
                }
                Some(Line::Deleted(_) | Line::Bookmark { .. }) => {
                    self.stage = Stage::Listing(lines);
                    Ok(None)
                }
            },
            Stage::Watching(version, mut lines) => {
                let (version, event) = match self.line(&mut lines).await? {
                    None => {
                        self.stage = Stage::Listed(version);
                        return Ok(None);
                    }
                    Some(Line::Applied(object)) => (version_of(&*object)?, Some(Event::Apply(object))),
                    Some(Line::Deleted(object)) => (version_of(&*object)?, Some(Event::Delete(object))),
                    Some(Line::Bookmark { version, .. }) => (version, None),
                };
                self.stage = Stage::Watching(version, lines);
                Ok(event)
            }
        }
    }

    async fn list(&mut self, token: Option<String>, number: u32) -> Result<Stage, Error> {
        let params = ListParams { limit: Some(self.limit), continue_token: token.clone(), ..ListParams::default() };
        let (page, charge) = match self.client.page::<K>(None, &params).await {
            Ok(found) => found,
            Err(error) => {
                self.limit = smaller(self.limit, &error).ok_or(Error::InitialListFailed(error))?;
                return Ok(Stage::Pages(token, number));
            }
        };
        self.limit = larger(self.limit);
        self.page = ChargedValue::new(page.items, charge).each().collect();
        let (next, version) = (page.metadata.next, page.metadata.resource_version);
        match (next.is_empty(), version.is_empty()) {
            (false, _) if number == PAGES || token.as_ref() == Some(&next) => {
                let endless = format!("the list of {} does not end", K::PLURAL);
                Err(Error::InitialListFailed(kube::Error::Service(endless.into())))
            }
            (false, _) => Ok(Stage::Pages(Some(next), number + 1)),
            (true, false) => Ok(Stage::Paged(version)),
            (true, true) => Err(Error::NoResourceVersion),
        }
    }

    async fn open(&mut self, version: &str, streamed: bool) -> Result<Lines, Error> {
        if let Some(opened) = self.opened {
            sleep_until(opened + OPEN_PERIOD).await;
        }
        self.opened = Some(Instant::now());
        let params = WatchParams { bookmarks: true, send_initial_events: streamed, ..WatchParams::default() };
        let request = requests::<K>(None).watch(&params, version);
        let (answer, path) = in_time(self.client.send(request)).await.map_err(Error::WatchStartFailed)?;
        let memory = self.client.memory();
        let text = Text::new(memory);
        let chunks = answer.into_body().into_data_stream();
        Ok(Lines { chunks, rest: Bytes::new(), text, seen: 0, begun: None, path })
    }

    /// The next event; `None` at the end of the watch.
    async fn line(&mut self, lines: &mut Lines) -> Result<Option<Line<K>>, Error> {
        match lines.next(self.client.memory()).await {
            Ok(found) => found.transpose(),
            Err(Cause::Refused(why)) => Err(Error::WatchFailed(self.client.refuse(&lines.path, why))),
            Err(Cause::Transient(error)) => Err(Error::WatchFailed(kube::Error::Service(error))),
        }
    }
}

fn version_of<K: Object>(object: &K) -> Result<String, Error> {
    let version = object.metadata().resource_version.clone();
    if version.is_empty() { Err(Error::NoResourceVersion) } else { Ok(version) }
}

/// One event.
pub(super) enum Line<K> {
    Applied(ChargedValue<K>),
    Deleted(ChargedValue<K>),
    Bookmark { version: String, list_ends: bool },
}

/// The lines of a watch.
pub(super) struct Lines {
    chunks: BodyDataStream,
    /// Received bytes that are not parsed yet.
    rest: Bytes,
    text: Text,
    /// How much of the text has no end of a line.
    seen: usize,
    /// When the first byte of the next line came.
    begun: Option<Instant>,
    path: String,
}

impl Lines {
    async fn next<K: Object>(&mut self, memory: &ConsumerMemory) -> Result<Option<Result<Line<K>, Error>>, Cause> {
        loop {
            let text = self.text.bytes();
            if let Some(end) = text.get(self.seen..).and_then(|new| new.iter().position(|byte| *byte == b'\n')) {
                let end = self.seen + end;
                let line =
                    if end > MAX_EVENT_BYTES { Err(too_large()) } else { Self::read(&text[..end], memory).await };
                self.text.skip(end + 1);
                (self.seen, self.begun) = (0, None);
                return line.map(Some);
            }
            self.seen = text.len();
            if self.seen > MAX_EVENT_BYTES {
                return Err(too_large());
            }
            if self.seen > 0 {
                self.begun.get_or_insert_with(Instant::now);
            }
            if !self.rest.is_empty() {
                let some = self.rest.split_to(self.rest.len().min(CHUNK_BYTES));
                self.text.push(&some).await.map_err(|full| Cause::Transient(full.into()))?;
                continue;
            }
            let chunk = match self.begun {
                None => next(&mut self.chunks).await?,
                Some(begun) => match timeout_at(begun + EVENT_TIMEOUT, next(&mut self.chunks)).await {
                    Ok(chunk) => chunk?,
                    Err(_) => return Err(Cause::Refused(format!("an event takes more than {EVENT_TIMEOUT:?}"))),
                },
            };
            // A partial line at the end of the watch is dropped.
            let Some(chunk) = chunk else { return Ok(None) };
            self.rest = chunk;
        }
    }

    /// Parses the type first, then the object: JSON fields come in any order.
    pub(super) async fn read<K: Object>(line: &[u8], memory: &ConsumerMemory) -> Result<Result<Line<K>, Error>, Cause> {
        let (EventType { type_, .. }, _) = built::<EventType>(line, memory).await?;
        Ok(match type_.as_str() {
            "ADDED" | "MODIFIED" => Ok(Line::Applied(object(line, memory).await?)),
            "DELETED" => Ok(Line::Deleted(object(line, memory).await?)),
            "BOOKMARK" => {
                let (Bookmark { metadata }, _) = object::<Bookmark>(line, memory).await?.into_parts();
                let list_ends = metadata.annotations.list_ends.is_some();
                Ok(Line::Bookmark { version: metadata.resource_version, list_ends })
            }
            "ERROR" => {
                let (failure, _) = object::<Failure>(line, memory).await?.into_parts();
                Err(Error::WatchError(failure.into_status()))
            }
            _ => return Err(Cause::Refused("unknown type of watch event".to_owned())),
        })
    }
}

fn too_large() -> Cause {
    Cause::Refused(format!("a watch event has more than {} MiB", MAX_EVENT_BYTES >> 20))
}

async fn object<T: DeserializeOwned>(line: &[u8], memory: &ConsumerMemory) -> Result<ChargedValue<T>, Cause> {
    let (EventObject { object, .. }, charge) = built::<EventObject<T>>(line, memory).await?;
    Ok(ChargedValue::new(object, charge))
}

/// An event without its object.
#[derive(Deserialize)]
struct EventType {
    #[serde(rename = "type")]
    type_: String,
    #[serde(rename = "object")]
    _object: IgnoredAny,
}

/// The object of an event.
#[derive(Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
struct EventObject<T> {
    #[serde(rename = "type")]
    _type: IgnoredAny,
    object: T,
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: BookmarkMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMetadata {
    resource_version: String,
    #[serde(default)]
    annotations: BookmarkAnnotations,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BookmarkAnnotations {
    /// It is on the bookmark after the last object of a list that is streamed.
    #[serde(rename = "k8s.io/initial-events-end")]
    list_ends: Option<IgnoredAny>,
}
