//! Each row of answers that once cost the memory of all, and what an honest API server answers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures::{StreamExt as _, stream};
use http::Request;
use kube::Client;
use kube::api::ListParams;
use kube::runtime::watcher::{Error, Event};
use serde_json::json;
use shared::kkp::keys::{CORDONED, SKIP_EVICTION};
use shared::read::{self, Limits};
use shared::spoke::kinds::{
    CertificateRequest, ClusterOperator, Kind, Machine, Namespace, Node, NodeName, SecretObservation,
};

use super::events::{Lines, Listing, events};
use super::{BoxError, Page, SpokeClient};
use fair::{Charge, Consumer, ConsumerMemory, MemoryLimit};

const MIB: usize = 1 << 20;

/// So many bytes of one part.
fn repeated(begin: &str, part: &str, end: &str, bytes: usize) -> Vec<u8> {
    let parts = vec![part; bytes / (part.len() + 1)].join(",");
    format!("{begin}{parts}{end}").into_bytes()
}

/// The size of what is built, if it is.
fn built<T: Kind>(text: &[u8]) -> Result<usize, String> {
    #[derive(serde::Deserialize)]
    #[serde(bound = "K: serde::de::DeserializeOwned")]
    struct List<K> {
        #[serde(default = "Vec::new")]
        items: Vec<K>,
    }

    let read = read::json::<List<T>>(text, &Limits::answer(text.len())).map_err(|error| error.to_string())?;
    assert!(read.kept >= read.value.items.len() * size_of::<T>());
    Ok(read.kept)
}

/// Small parts are refused in number, and what no type asks for costs nothing.
#[test]
fn an_answer_keeps_no_more_than_its_text_has() {
    for (begin, part, end, is_refused) in [
        ("{\"items\":[", "{}", "]}", true),
        ("{\"items\":[{\"metadata\":{\"ownerReferences\":[", "{}", "]}}]}", false), // none is kept
        ("{\"items\":[{\"metadata\":{\"managedFields\":[", "[]", "]}}]}", true),    // of another type
        ("{\"items\":[{\"status\":{\"conditions\":[", "{}", "]}}]}", false),        // one of them is kept
        ("{\"items\":[{\"spec\":{\"taints\":[", "0", "]}}]}", false),
        ("{\"x\":[", "\"\"", "]}", false),
    ] {
        let found = built::<Node>(&repeated(begin, part, end, 3 * MIB));
        assert_eq!(found.is_err(), is_refused, "{begin}{part}: {found:?}");
        assert!(found.is_err() || found.as_ref().is_ok_and(|kept| *kept < 3_000), "{begin}{part}: {found:?}");
    }
    let labels = (0..200_000).map(|number| format!("\"{number}\":\"\"")).collect::<Vec<_>>().join(",");
    let namespaces = format!("{{\"items\":[{{\"metadata\":{{\"labels\":{{{labels},\"x\":\"\"}}}}}}]}}");
    assert!(built::<Namespace>(namespaces.as_bytes()).is_err());
    let text = "x".repeat(MIB);
    let kept = format!("{{\"items\":[{{\"spec\":{{\"providerID\":\"{text}\"}}}}]}}");
    assert!(built::<Machine>(kept.as_bytes()).unwrap_err().starts_with("must be a text of at most 64 KiB at line 1"));
    let name = format!("{{\"items\":[{{\"metadata\":{{\"name\":\"{}\"}}}}]}}", &text[..300]);
    let found = built::<Node>(name.as_bytes()).unwrap_err();
    assert!(found.contains("must be a string of at most 253 bytes"), "{found}");
}

/// Whoever may write one object cannot hide the others of its kind.
#[test]
fn a_field_of_one_object_that_is_too_long_does_not_hide_the_others() {
    let long = "x".repeat(65 << 10);
    let owners = json!([{ "kind": long, "uid": "u" }]);
    let metadata = json!({ "name": "a", "annotations": { CORDONED: long, SKIP_EVICTION: "true" } });
    let condition = |type_: &str| json!([{ "type": type_, "status": "True" }]);
    for (status, provider) in [(condition(&long), "x"), (condition("Ready"), long.as_str())] {
        let one =
            json!({ "metadata": metadata, "spec": { "providerID": provider }, "status": { "conditions": status } });
        let text = json!({ "items": [one, { "metadata": { "name": "b", "ownerReferences": owners } }] }).to_string();
        let read = read::json::<Page<Node>>(text.as_bytes(), &Limits::answer(text.len())).unwrap();
        let names: Vec<_> = read.value.items.iter().map(|node| node.metadata.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        let annotations = &read.value.items[0].metadata.annotations;
        assert_eq!((annotations.get(CORDONED), annotations.get(SKIP_EVICTION)), (Some(""), Some("true")));
    }
    let request = |request: &str| json!({ "spec": { "signerName": "s", "request": request } });
    let text = json!({ "items": [request(&long), request("aGVsbG8=")] }).to_string();
    let read = read::json::<Page<CertificateRequest>>(text.as_bytes(), &Limits::answer(text.len())).unwrap();
    let requests: Vec<_> = read.value.items.iter().map(|one| one.spec.request.0.as_slice()).collect();
    assert_eq!(requests, [b"".as_slice(), b"hello"]);
}

/// As a Node of OpenShift is.
fn node() -> serde_json::Value {
    let images: Vec<_> = (0..50)
        .map(
            |number| json!({ "names": [format!("quay.io/openshift/image@sha256:{number:064x}"), "x"], "sizeBytes": 1 }),
        )
        .collect();
    let fields: serde_json::Map<String, serde_json::Value> =
        (0..150).map(|number| (format!("k:{{\"type\":\"field-{number}\"}}"), json!({}))).collect();
    let conditions =
        vec![json!({ "type": "Ready", "status": "True", "lastTransitionTime": "2026-11-22T18:00:00Z" }); 6];
    json!({
        "metadata": {
            "name": "worker-1", "uid": "5f0bb9a2-0c9a-4d74-8d74-5f0bb9a20c9a", "resourceVersion": "123456",
            "labels": { "machine-controller/owned-by": "m", "kubernetes.io/os": "linux" },
            "annotations": null,
            "managedFields": [{ "fieldsV1": fields, "time": "2026-11-22T18:00:00Z", "subresource": "status" }],
        },
        "spec": { "providerID": "aws:///us-east-1a/i-0", "taints": null },
        "status": { "conditions": conditions, "images": images },
    })
}

#[test]
fn a_page_of_large_nodes_is_read_and_takes_little() {
    let page = serde_json::to_vec(&json!({ "kind": "NodeList", "metadata": {}, "items": vec![node(); 100] })).unwrap();
    let size = built::<Node>(&page).unwrap();
    assert!(size < page.len() / 3, "{size} of {}", page.len());
    let text = node().to_string();
    let one = read::json::<ClusterOperator>(text.as_bytes(), &Limits::answer(text.len())).unwrap().value;
    assert_eq!(one.metadata.status_written.map(|at| at.to_string()).as_deref(), Some("2026-11-22T18:00:00Z"));
    assert_eq!(one.metadata.labels.get("machine-controller/owned-by"), Some("m"));
    assert_eq!(one.metadata.labels.get("kubernetes.io/os"), None, "nobody asks for it");
}

fn consumer_memory(memory: &MemoryLimit) -> ConsumerMemory {
    memory.of(Consumer::new("tenant", "spoke"))
}

/// A server that answers so, the requests numbered.
fn server(memory: &MemoryLimit, answer: impl Fn(usize) -> (u16, Body) + Clone + Send + 'static) -> SpokeClient {
    let count = std::sync::Arc::new(AtomicUsize::new(0));
    let service = tower::service_fn(move |_: Request<kube::client::Body>| {
        let (code, body) = answer(count.fetch_add(1, Ordering::Relaxed));
        let answer = http::Response::builder().status(code).body(body).map_err(BoxError::from);
        std::future::ready(answer)
    });
    SpokeClient::new(Client::new(service, "default"), consumer_memory(memory))
}

async fn list(client: &SpokeClient) -> Result<fair::ChargedValue<Vec<Node>>, String> {
    client.list(None, &ListParams::default(), "Nodes").await.map_err(|error| match error {
        kube::Error::Service(why) => why.to_string(),
        other => other.to_string(),
    })
}

fn left(memory: &MemoryLimit) -> usize {
    let mut charge: Charge = consumer_memory(memory).charge();
    let mut left = 0;
    while charge.spend(64 << 10).is_ok() && left < 10 * MIB {
        left += 64 << 10;
    }
    left
}

#[tokio::test]
async fn pages_are_charged_until_the_list_is_dropped() {
    let memory = MemoryLimit::default();
    // Each page has 3 MB, of which 100 Nodes with a long ID are kept.
    let page = |number: usize| {
        let node = json!({ "metadata": { "name": "n" }, "spec": { "providerID": "x".repeat(10_000) } });
        let filler = vec!["y".repeat(200_000); 10];
        let page = json!({ "metadata": { "continue": number.to_string() }, "items": vec![node; 100], "x": filler });
        (200, Body::from(page.to_string()))
    };
    let client = server(&memory, page);
    assert_eq!(list(&client).await.map(|_| ()), Err("the cluster's answers are too large together".to_owned()));
    assert_eq!(left(&memory), 10 * MIB, "everything is given back");
    let last = move |number: usize| match number {
        0..=3 => page(number),
        _ => (200, Body::from(r#"{"items":[]}"#)),
    };
    let client = server(&memory, last);
    let kept = list(&client).await.unwrap();
    let mut charge = client.charge();
    assert_eq!(kept.len(), 400);
    assert!(charge.spend(12 * MIB - 400 * 10_000).is_err(), "the list is charged");
    drop(kept);
    assert!(charge.spend(11 * MIB).is_ok());
}

#[tokio::test]
async fn the_bound_holds_for_whatever_a_client_reads() {
    let endless = || Body::from_stream(stream::repeat_with(|| Ok::<_, BoxError>(Bytes::from_static(&[b' '; 1 << 13]))));
    for (code, why) in [(200, "the answer has more than 8 MiB"), (403, "the answer has more than 64 KiB")] {
        assert_eq!(list(&server(&MemoryLimit::default(), move |_| (code, endless()))).await.unwrap_err(), why);
    }
    let status = || Body::from(r#"{"kind":"Status","code":403,"message":"no \ud83d\ude00","reason":"Forbidden"}"#);
    // Words of a service that is no API server are not quoted.
    let of_others =
        [r#"{"kind":"Secret","message":"internal words"}"#, r#"{"message":"internal words"}"#, "internal words"];
    let of_others = of_others.map(|text| (Body::from(text), "Forbidden"));
    for (body, message) in of_others.into_iter().chain([(status(), "no 😀")]) {
        let text = axum::body::to_bytes(body, MIB).await.unwrap();
        let client = server(&MemoryLimit::default(), move |_| (403, Body::from(text.clone())));
        let error = client.get::<Node>("a").await.unwrap_err();
        let kube::Error::Api(status) = error else { panic!("{error}") };
        assert_eq!((status.code, status.message.as_str()), (403, message));
    }
    let bomb = repeated("{\"metadata\":{\"managedFields\":[", "{}", "]}}", MIB);
    let writes = server(&MemoryLimit::default(), move |_| (200, Body::from(bomb.clone())));
    let patch = kube::api::Patch::Merge(json!({}));
    assert!(writes.patch::<Node>(None, "a", &patch).await.is_ok(), "it is not read");
    let endless = server(&MemoryLimit::default(), move |_| (200, endless()));
    assert!(endless.version().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_answer_was_refused_is_not_sent_again_at_once() {
    static SENT: AtomicUsize = AtomicUsize::new(0);
    let client = server(&MemoryLimit::default(), |_| {
        SENT.fetch_add(1, Ordering::Relaxed);
        (200, Body::from(r#"{"items":[{"x":tru}]}"#))
    });
    let first = list(&client).await.unwrap_err();
    for _ in 0..10 {
        assert_eq!(list(&client).await.unwrap_err(), first);
    }
    assert_eq!(SENT.load(Ordering::Relaxed), 1);
    tokio::time::sleep(Duration::from_secs(6)).await;
    list(&client).await.unwrap_err();
    assert_eq!(SENT.load(Ordering::Relaxed), 2);
}

fn event(type_: &str, name: &str, version: &str) -> String {
    format!("{}\n", json!({ "type": type_, "object": { "metadata": { "name": name, "resourceVersion": version } } }))
}

const LIST_ENDS: &str = "{\"object\":{\"metadata\":{\"annotations\":{\"k8s.io/initial-events-end\":\"true\"},\"resourceVersion\":\"7\"}},\"type\":\"BOOKMARK\"}\n";

/// What a watch says, in short, until it has said so much.
async fn words(client: SpokeClient, listing: Listing, most: usize) -> Vec<String> {
    let events = events::<NodeName>(client, listing).take(most).map(|event| match event {
        Ok(Event::Init) => "init".to_owned(),
        Ok(Event::InitApply(node)) => format!("lists {}", node.metadata.name),
        Ok(Event::InitDone) => "listed".to_owned(),
        Ok(Event::Apply(node)) => format!("has {}", node.metadata.name),
        Ok(Event::Delete(node)) => format!("lacks {}", node.metadata.name),
        Err(Error::WatchFailed(kube::Error::Service(why)) | Error::WatchStartFailed(kube::Error::Service(why))) => {
            why.to_string()
        }
        Err(error) => error.to_string(),
    });
    events.collect().await
}

#[tokio::test(start_paused = true)]
async fn a_watch_lists_and_goes_on_where_it_ended() {
    let streamed = |number: usize| match number {
        0 => {
            let first = event("ADDED", "a", "1") + &event("ADDED", "b", "2") + LIST_ENDS + &event("MODIFIED", "a", "8");
            // Whatever the chunks are. What has no end is cut off.
            let chunks: Vec<_> =
                (first + "{\"type\":").into_bytes().chunks(7).map(|chunk| Ok::<_, BoxError>(chunk.to_vec())).collect();
            (200, Body::from_stream(stream::iter(chunks)))
        }
        1 => (200, Body::from(event("DELETED", "b", "9"))),
        _ => (200, Body::from("{\"type\":\"ERROR\",\"object\":{\"code\":410,\"message\":\"too old\"}}\n")),
    };
    let found = words(server(&MemoryLimit::default(), streamed), Listing::Streamed, 8).await;
    assert_eq!(found[..6], ["init", "lists a", "lists b", "listed", "has a", "lacks b"]);
    assert!(found[6].contains("too old") && found[7] == "init", "{found:?}");
    let plain = |number: usize| match number {
        0 => (200, Body::from(r#"{"metadata":{"continue":"x"},"items":[{"metadata":{"name":"a"}}]}"#)),
        1 => (200, Body::from(r#"{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"b"}}]}"#)),
        _ => (200, Body::from(event("ADDED", "c", "8"))),
    };
    let found = words(server(&MemoryLimit::default(), plain), Listing::Plain, 5).await;
    assert_eq!(found, ["init", "lists a", "lists b", "listed", "has c"]);
}

#[tokio::test(start_paused = true)]
async fn events_are_read_and_charged_as_lists_are() {
    let fields = String::from_utf8(repeated("[", "{}", "]", MIB - 200)).unwrap();
    let bomb = |field: &str| format!("{{\"type\":\"ADDED\",\"object\":{{\"metadata\":{{\"{field}\":{fields}}}}}}}\n");
    let memory = MemoryLimit::default();
    let skipped = [bomb("managedFields"), bomb("ownerReferences")].concat().repeat(10);
    let client = server(&memory, move |_| (200, Body::from(skipped.clone())));
    let kept: Vec<_> = events::<NodeName>(client.clone(), Listing::Streamed).take(21).collect().await;
    assert!(kept.iter().all(Result::is_ok) && client.charge().spend(11 * MIB).is_ok(), "of these nothing is kept");
    let large = format!("{{\"type\":\"ADDED\",\"object\":{{\"x\":[\"{}\"", "y\",\"".repeat(MIB));
    let fault = "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"x\":tru}}}\n".to_owned();
    for (text, why) in [
        (large, "a watch event has more than 3 MiB"),
        (fault, "the answer cannot be read: expected ident at line 1 column 46"),
        ("{\"type\":\"OTHER\",\"object\":{}}\n".to_owned(), "unknown type of watch event"),
    ] {
        let memory = MemoryLimit::default();
        let client = server(&memory, move |_| (200, Body::from(text.clone())));
        assert_eq!(words(client, Listing::Streamed, 3).await, ["init", why, why], "and not asked for again at once");
        assert_eq!(left(&memory), 10 * MIB);
    }
    // Events of which each is sound are charged while they wait to be applied.
    let sound = format!(
        "{{\"type\":\"ADDED\",\"object\":{{\"metadata\":{{\"ownerReferences\":[{{\"uid\":\"{}\"}}]}}}}}}\n",
        "u".repeat(60_000)
    );
    let memory = MemoryLimit::default();
    let client = server(&memory, move |_| (200, Body::from(sound.repeat(400))));
    let mut events = Box::pin(events::<NodeName>(client, Listing::Streamed));
    let mut batch = Vec::new();
    let error = loop {
        match events.next().await.unwrap() {
            Ok(event) => batch.push(event),
            Err(error) => break error,
        }
    };
    assert!((150..210).contains(&batch.len()), "{}", batch.len());
    assert!(
        matches!(error, Error::WatchFailed(kube::Error::Service(why)) if why.to_string().contains("too large together"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_that_never_ends_and_an_answer_that_trickles_are_given_up() {
    for token in ["same", ""] {
        let endless = move |number: usize| {
            let token = if token.is_empty() { number.to_string() } else { token.to_owned() };
            (200, Body::from(json!({ "metadata": { "continue": token }, "items": [] }).to_string()))
        };
        let found = words(server(&MemoryLimit::default(), endless), Listing::Plain, 2).await;
        assert_eq!(found[0], "init");
        assert!(found[1].contains("the list of nodes does not end"), "{found:?}");
    }
    let trickle = || {
        Body::from_stream(stream::repeat(()).then(|()| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok::<_, BoxError>(Bytes::from_static(b" "))
        }))
    };
    let memory = MemoryLimit::default();
    let client = server(&memory, move |_| (200, trickle()));
    let late = "the answer takes more than 15s";
    assert_eq!(list(&client).await.unwrap_err(), late);
    assert!(matches!(client.version().await, Err(kube::Error::Service(why)) if why.to_string() == late));
    assert!(memory.is_free());
}

#[tokio::test(start_paused = true)]
async fn an_event_that_never_ends_is_given_up() {
    let slow = || {
        let begin = stream::once(async { Ok::<_, BoxError>(Bytes::from_static(b"{\"type\"")) });
        let drops = stream::repeat_with(|| tokio::time::sleep(Duration::from_secs(1)));
        Body::from_stream(begin.chain(drops.then(|pause| async {
            pause.await;
            Ok(Bytes::from_static(b" "))
        })))
    };
    let found = words(server(&MemoryLimit::default(), move |_| (200, slow())), Listing::Streamed, 2).await;
    assert_eq!(found, ["init", "an event takes more than 8s"]);
}

/// Whatever is read, no more is in use and charged than one answer may cost, and all of it is given back.
#[test]
fn fuzz_memory_of_lists() {
    let page = json!({ "metadata": { "continue": "x" }, "items": [node()] }).to_string();
    fuzz_reader::<Page<Node>>("spoke lists", &[page.as_bytes(), b"{\"items\":[{},{\"metadata\":null}]}"]);
    let secrets = json!({ "items": [{ "metadata": { "annotations": { "a": "b" } } }] }).to_string();
    fuzz_reader::<Page<SecretObservation>>("spoke metadata", &[secrets.as_bytes()]);
}

fn fuzz_reader<T: serde::de::DeserializeOwned>(name: &str, seeds: &[&[u8]]) {
    ::fuzz::run(name, seeds, |text| {
        let limits = Limits::answer(text.len());
        let (read, peak) = ::fuzz::peak(|| read::json::<T>(text, &limits));
        assert!(read.as_ref().is_ok_and(|read| read.kept <= limits.kept) || read.is_err());
        // Besides the text, which is there already.
        assert!(peak.is_none_or(|peak| peak <= 3 * text.len() + MIB / 2), "{peak:?} bytes in use for {}", text.len());
        read.is_ok()
    });
}

#[test]
fn fuzz_memory_of_events() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let memory = MemoryLimit::default();
    let node = json!({ "type": "ADDED", "object": node() }).to_string();
    let error = r#"{"type":"ERROR","object":{"code":410,"message":"too old"}}"#;
    ::fuzz::run("spoke events", &[node.as_bytes(), LIST_ENDS.as_bytes(), error.as_bytes()], |line| {
        let (read, peak) =
            ::fuzz::peak(|| runtime.block_on(Lines::read::<Node>(line, &consumer_memory(&memory))).is_ok());
        // Charged for what one answer may cost; here, of a line of so many bytes.
        assert!(
            peak.is_none_or(|peak| peak <= 16 * line.len() + (16 << 10)),
            "{peak:?} bytes in use for {}",
            line.len()
        );
        assert!(memory.is_free());
        read
    });
}
