//! Bounds of answers: a spoke belongs to a tenant, and what it says is held in the memory of all.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures::{StreamExt, TryStreamExt, stream};
use http::Request;
use kube::Client;
use kube::client::Body as KubeBody;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tower::BoxError;

use super::cost;
use super::refused::Refused;
use crate::runtime::watch_backoff::is_watch;

/// Bytes of one answer. A page of Nodes has 2 MB.
const ANSWER: usize = 8 << 20;
/// Bytes of an error.
const ERROR: usize = 64 << 10;
/// Bytes of one watch, first list included. One that was good until then is opened again where it ended.
const WATCH: usize = 256 << 20;
/// Bytes of one event of a watch.
const EVENT: usize = 1 << 20;

/// Bytes of all answers that are being read.
const ALL_ANSWERS: usize = 64 << 20;
/// Bytes of the answers of one spoke that are being read.
const ANSWERS_OF_ONE: usize = 12 << 20;
/// How long an answer waits for another one to be done with.
const TURN_TIMEOUT: Duration = Duration::from_secs(1);

/// The memory for answers of all spokes.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Semaphore>);

impl Default for Memory {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ALL_ANSWERS)))
    }
}

/// The memory for the answers of one spoke: its share of that of all.
#[derive(Clone, Debug)]
struct Share {
    own: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

/// Bytes that are in use until this is dropped.
struct Charge {
    own: OwnedSemaphorePermit,
    all: OwnedSemaphorePermit,
}

impl Share {
    async fn charge(&self, bytes: usize) -> Result<Charge, BoxError> {
        let bytes = u32::try_from(bytes)?;
        let turn = |of: &Arc<Semaphore>| timeout(TURN_TIMEOUT, Arc::clone(of).acquire_many_owned(bytes));
        let own = turn(&self.own).await.map_err(|_| "the cluster's answers are too large together")??;
        let all = turn(&self.all).await.map_err(|_| "the answers of all clusters are too large together")??;
        Ok(Charge { own, all })
    }
}

/// An answer and what it is charged.
struct Charged {
    answer: Vec<u8>,
    _charge: Option<Charge>,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.answer
    }
}

/// The same client, whose answers end with an error when they are larger than that.
pub fn bounded(client: Client, memory: &Memory) -> Client {
    let namespace = client.default_namespace().to_owned();
    let share = Share { own: Arc::new(Semaphore::new(ANSWERS_OF_ONE)), all: Arc::clone(&memory.0) };
    let refused = Refused::default();
    let service = tower::service_fn(move |request: Request<KubeBody>| {
        let (client, share, refused) = (client.clone(), share.clone(), refused.clone());
        let (watch, path) = (is_watch(request.uri()), request.uri().path().to_owned());
        async move {
            if let Some(why) = refused.why(&path) {
                return Err(kube::Error::Service(why));
            }
            let answer = client.send(request).await?;
            let failed = !answer.status().is_success();
            Ok::<_, kube::Error>(answer.map(|body| {
                let body = Body::new(body);
                if watch && !failed {
                    cut(body, WATCH, EVENT, move |why| refused.add(&path, why))
                } else {
                    Body::from_stream(stream::once(async move {
                        let most = if failed { ERROR } else { ANSWER };
                        let read = whole(body, share, most).await;
                        match &read {
                            Ok(_) => refused.remove(&path),
                            Err(Unread::TooLarge(why)) => refused.add(&path, &why.to_string()),
                            Err(Unread::Other(_)) => {}
                        }
                        read.map_err(|(Unread::TooLarge(why) | Unread::Other(why))| why)
                    }))
                }
            }))
        }
    });
    Client::new(service, namespace)
}

/// Why an answer was not read.
enum Unread {
    /// It is larger than what we ask for.
    TooLarge(BoxError),
    /// The connection broke, or the answers of others left no room.
    Other(BoxError),
}

/// Reads an answer, and checks what would be made of it.
async fn whole(body: Body, share: Share, most: usize) -> Result<Bytes, Unread> {
    let (mut answer, mut charge): (_, Option<Charge>) = (Vec::new(), None);
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.try_next().await.map_err(|error| Unread::Other(error.into()))? {
        if answer.len() + chunk.len() > most {
            return Err(Unread::TooLarge(too_large(most)));
        }
        let more = share.charge(chunk.len()).await.map_err(Unread::Other)?;
        match &mut charge {
            None => charge = Some(more),
            Some(charge) => {
                charge.own.merge(more.own);
                charge.all.merge(more.all);
            }
        }
        answer.extend_from_slice(&chunk);
    }
    cost::check(&answer).map_err(|why| Unread::TooLarge(why.into()))?;
    Ok(Bytes::from_owner(Charged { answer, _charge: charge }))
}

fn too_large(most: usize) -> BoxError {
    let (size, unit) = if most < 1 << 20 { (most >> 10, "KiB") } else { (most >> 20, "MiB") };
    format!("the answer has more than {size} {unit}").into()
}

/// Ends a watch after so many bytes, or at an event that has more, which is reported.
fn cut(body: Body, most: usize, most_of_event: usize, report: impl Fn(&str) + Send + 'static) -> Body {
    let (mut left, mut of_event) = (Some(most), 0_usize);
    Body::from_stream(body.into_data_stream().map(move |chunk| {
        let chunk: Bytes = chunk.map_err(BoxError::from)?;
        left = left.and_then(|left| left.checked_sub(chunk.len()));
        let mut longest = 0;
        for (number, part) in chunk.split(|byte| *byte == b'\n').enumerate() {
            of_event = if number == 0 { of_event + part.len() } else { part.len() };
            longest = longest.max(of_event);
        }
        match left {
            _ if longest > most_of_event => {
                let why = format!("an event has more than {most_of_event} bytes");
                report(&why);
                Err(BoxError::from(why))
            }
            Some(_) => Ok(chunk),
            None => Err(too_large(most)),
        }
    }))
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;

    use super::*;

    async fn length(body: Body) -> Result<usize, String> {
        to_bytes(body, usize::MAX)
            .await
            .map(|bytes| bytes.len())
            .map_err(|error| std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string))
    }

    #[tokio::test]
    async fn a_watch_that_is_too_long_or_has_a_large_event_is_an_error() {
        for (chunks, most, read) in [
            (vec!["four"; 3], 12, Ok(12)),
            (vec!["four"; 4], 12, Err("the answer has more than 0 KiB".to_owned())),
            (vec![], 0, Ok(0)),
            (vec!["12345678\n", "12345678\n12", "345678\n"], 100, Ok(27)),
            (vec!["12345678\n", "1234", "56789"], 100, Err("an event has more than 8 bytes".to_owned())),
            (vec!["1\n123456789\n"], 100, Err("an event has more than 8 bytes".to_owned())),
        ] {
            let chunks: Vec<_> = chunks.into_iter().map(|chunk| Ok::<_, BoxError>(Bytes::from(chunk))).collect();
            let most_of_event = if most == 100 { 8 } else { 100 };
            let reported = Refused::default();
            let report = {
                let reported = reported.clone();
                move |why: &str| reported.add("", why)
            };
            let body = cut(Body::from_stream(stream::iter(chunks)), most, most_of_event, report);
            let of_an_event = read.as_ref().is_err_and(|why| why.contains("event"));
            assert_eq!(length(body).await, read, "{most}");
            assert_eq!(reported.why("").is_some(), of_an_event);
        }
    }

    fn server(answer: fn() -> Body) -> Client {
        let service = tower::service_fn(move |_: Request<KubeBody>| {
            std::future::ready(Ok::<_, BoxError>(http::Response::new(answer())))
        });
        bounded(Client::new(service, "default"), &Memory::default())
    }

    async fn fails(client: Client) -> String {
        crate::spoke::failure(&client.apiserver_version().await.unwrap_err()).to_string()
    }

    #[tokio::test]
    async fn the_bound_holds_for_what_a_client_reads() {
        let endless =
            || Body::from_stream(stream::repeat_with(|| Ok::<_, BoxError>(Bytes::from_static(&[b' '; 1 << 13]))));
        let error = fails(server(endless)).await;
        assert!(error.ends_with("the answer has more than 8 MiB"), "{error}");
        let bomb = || Body::from(format!("{{\"items\":[{}]}}", vec!["{}"; 700_000].join(",")));
        let error = fails(server(bomb)).await;
        assert!(error.ends_with("the answer has more objects than were asked for"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_whose_answer_was_too_large_is_not_sent_again_at_once() {
        static SENT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let client = server(|| {
            SENT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Body::from(vec![b' '; ANSWER + 1])
        });
        let first = fails(client.clone()).await;
        for _ in 0..10 {
            assert!(fails(client.clone()).await.ends_with("the answer has more than 8 MiB"), "{first}");
        }
        assert_eq!(SENT.load(std::sync::atomic::Ordering::Relaxed), 1);
        tokio::time::sleep(Duration::from_secs(6)).await;
        fails(client).await;
        assert_eq!(SENT.load(std::sync::atomic::Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_spoke_over_its_share_fails_alone() {
        let memory = Memory::default();
        let share = |memory: &Memory| Share { own: Arc::new(Semaphore::new(ANSWERS_OF_ONE)), all: memory.0.clone() };
        let hostile = share(&memory);
        // Answers that never end, up to the share of one.
        let held: Vec<_> = [hostile.charge(8 << 20).await, hostile.charge(4 << 20).await].into_iter().collect();
        assert!(held.iter().all(Result::is_ok));
        assert!(hostile.charge(1).await.is_err());
        assert!(share(&memory).charge(8 << 20).await.is_ok(), "others are served");
        drop(held);
        assert!(hostile.charge(1).await.is_ok());
    }
}
