//! Events about targets.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event as EventObject;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use parking_lot::Mutex;
use shared::text::{sanitize_chain, sanitize_to};
use tokio::time::Instant;
use tracing::warn;

use super::backoff::{REFUSED_BACKOFF, Streak};
use super::hash;
use crate::metrics::Metrics;

/// Recorders kept at a time, one for each text.
const MAX_RECORDERS: usize = 1_000;
/// Longest note in bytes; the API server accepts 1,024.
const MAX_NOTE_BYTES: usize = 1_000;
/// Longest part of an Event's name that names its object. The API server accepts 253 in all, and a dot and 16 digits of the
/// time follow.
const MAX_OBJECT_NAME: usize = 253 - 17;

/// What an Event holds for programs.
#[derive(Default)]
pub struct Details {
    /// What the note says, for them.
    pub annotations: BTreeMap<String, String>,
    /// What it is about besides its target.
    pub related: Option<ObjectReference>,
    /// The controller in whose place it is reported.
    pub controller: Option<&'static str>,
}

/// Writes Events.
///
/// Kube's recorder counts Events with one reason about one object as repetitions of the first, whatever their notes
/// say, and the later notes are lost. So each text has a recorder of its own.
#[derive(Clone)]
pub struct Events {
    client: Client,
    reporter: Reporter,
    recorders: Arc<Mutex<HashMap<u64, Recorder>>>,
}

impl Events {
    /// Reports as this reporter.
    pub fn new(client: Client, reporter: Reporter) -> Self {
        Self { client, reporter, recorders: Arc::default() }
    }

    /// Writes an Event about an action of ours. An Event that cannot be written is logged. Whether it is written.
    pub async fn publish(
        &self,
        target: &ObjectReference,
        type_: EventType,
        (action, reason): (&str, &str),
        note: &str,
    ) -> bool {
        if reason.is_empty() {
            return true;
        }
        // Kube's recorder shortens no name.
        if target.name.as_ref().is_some_and(|name| name.len() > MAX_OBJECT_NAME) {
            return self.publish_annotated(target, type_, (action, reason), note, Details::default()).await;
        }
        let (name, note) = (full_name(target), cut(note));
        let recorder = self.recorder(&(&target.uid, &name, reason, &note));
        let event =
            Event { type_, reason: reason.to_owned(), note: Some(note), action: action.to_owned(), secondary: None };
        is_written(&name, recorder.publish(&event, target).await)
    }

    /// The same with what kube's recorder does not write. These Events are not repeated: each is an object of its own.
    /// Whether it is written.
    pub async fn publish_annotated(
        &self,
        target: &ObjectReference,
        type_: EventType,
        (action, reason): (&str, &str),
        note: &str,
        details: Details,
    ) -> bool {
        let now = Timestamp::now();
        let namespace = target.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let object = target.name.as_deref().unwrap_or_default();
        let event = EventObject {
            metadata: ObjectMeta {
                name: Some(event_name(object, now)),
                namespace: Some(namespace.clone()),
                annotations: Some(details.annotations),
                ..ObjectMeta::default()
            },
            action: Some(action.to_owned()),
            reason: Some(reason.to_owned()),
            note: Some(cut(note)),
            event_time: Some(MicroTime(now)),
            regarding: Some(target.clone()),
            related: details.related,
            reporting_controller: Some(details.controller.unwrap_or(&self.reporter.controller).to_owned()),
            reporting_instance: self.reporter.instance.clone().or_else(|| Some(self.reporter.controller.clone())),
            type_: Some(if matches!(type_, EventType::Warning) { "Warning" } else { "Normal" }.to_owned()),
            ..EventObject::default()
        };
        let events: Api<EventObject> = Api::namespaced(self.client.clone(), &namespace);
        is_written(&full_name(target), events.create(&PostParams::default(), &event).await)
    }

    fn recorder(&self, text: &impl Hash) -> Recorder {
        let new = || Recorder::new(self.client.clone(), self.reporter.clone());
        let mut recorders = self.recorders.lock();
        if recorders.len() >= MAX_RECORDERS {
            recorders.clear();
        }
        recorders.entry(hash(text)).or_insert_with(new).clone()
    }
}

/// `namespace/name`, or the name of an object without a namespace, for logs.
pub fn full_name(target: &ObjectReference) -> String {
    let name = target.name.as_deref().unwrap_or_default();
    target.namespace.as_ref().map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

fn is_written<T>(name: &str, result: kube::Result<T>) -> bool {
    result.inspect_err(|error| warn!(cluster = name, error = sanitize_chain(error), "event not written")).is_ok()
}

/// An Event that is published once for each reason. While it cannot be written it is tried again, with backoff.
#[derive(Debug, Default)]
pub struct EventOnce {
    reason: Option<&'static str>,
    failures: Streak,
    /// When it is due again; `None` once it is written.
    retry_at: Option<Instant>,
}

impl EventOnce {
    /// Publishes an Event and counts it, unless the last one had this reason and is written or not due yet.
    pub async fn publish(
        &mut self,
        metrics: &Metrics,
        system: &'static str,
        reason: &'static str,
        publish: impl Future<Output = bool>,
    ) {
        if self.reason != Some(reason) {
            // Due until it is written, also if the reconcile ends before that.
            *self = Self { reason: Some(reason), retry_at: Some(Instant::now()), ..Self::default() };
            metrics.noticed(system, reason);
        } else if self.retry_in() != Some(Duration::ZERO) {
            return;
        }
        let is_written = publish.await;
        self.retry_at = (!is_written).then(|| Instant::now() + self.failures.next(REFUSED_BACKOFF));
    }

    /// How soon the next try is due.
    pub fn retry_in(&self) -> Option<Duration> {
        self.retry_at.map(|at| at.saturating_duration_since(Instant::now()))
    }
}

/// The name of an Event about an object of this name, a DNS subdomain as that is.
fn event_name(object: &str, at: Timestamp) -> String {
    let object: String = object.chars().take(MAX_OBJECT_NAME).collect();
    // No part of a subdomain is empty or ends in a dash.
    format!("{}.{:x}", object.trim_end_matches(['.', '-']), at.as_nanosecond())
}

/// The note, sanitized and cut at a character.
fn cut(note: &str) -> String {
    sanitize_to(note, MAX_NOTE_BYTES)
        .char_indices()
        .take_while(|(at, c)| at + c.len_utf8() <= MAX_NOTE_BYTES)
        .map(|(_, c)| c)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::testing::MemoryHub;

    #[test]
    fn the_name_of_an_event_is_a_subdomain_however_long_that_of_its_object_is() {
        let at = "2026-11-21T20:30:00Z".parse().unwrap();
        let time = event_name("", at);
        let cut = |object: String| event_name(&object, at).strip_suffix(time.as_str()).unwrap().to_owned();
        assert_eq!((cut("demo".to_owned()), time.len()), ("demo".to_owned(), 253 - MAX_OBJECT_NAME));
        let longest = "a".repeat(MAX_OBJECT_NAME);
        assert_eq!((cut(longest.clone()), cut("a".repeat(253))), (longest.clone(), longest.clone()));
        for end in ["-b", ".b", "--b", ".-b"] {
            let kept = &longest[end.len() - 1..];
            assert_eq!(cut(format!("{kept}{end}")), kept, "{end}");
        }
    }

    /// Also by kube's recorder, which shortens no name.
    #[tokio::test(start_paused = true)]
    async fn an_event_about_an_object_with_a_long_name_is_written() {
        let hub = MemoryHub::default();
        hub.inject(|_, _, body| (body["metadata"]["name"].as_str()?.len() > 253).then_some(422));
        let (name, namespace) = (Some("a".repeat(253)), Some("shop".to_owned()));
        let target = ObjectReference { name, namespace, ..ObjectReference::default() };
        let (events, what) = (hub.term().hub.events, ("Hibernation", "Slept"));
        assert!(events.publish(&target, EventType::Normal, what, "one").await);
        assert!(events.publish_annotated(&target, EventType::Normal, what, "two", Details::default()).await);
        let notes: Vec<String> = hub.events().into_iter().map(|(_, note)| note).collect();
        assert_eq!(notes, ["one", "two"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_is_not_written_is_tried_again_with_backoff() {
        let (metrics, mut once) = (Metrics::default(), EventOnce::default());
        let cancelled = once.publish(&metrics, "hive", "Reason", std::future::pending());
        assert!(tokio::time::timeout(Duration::from_secs(1), cancelled).await.is_err());
        assert_eq!(once.retry_in(), Some(Duration::ZERO), "the reconcile has ended first");
        once.publish(&metrics, "hive", "Reason", async { false }).await;
        let pause = once.retry_in().unwrap();
        assert!(pause > Duration::ZERO, "{pause:?}");
        once.publish(&metrics, "hive", "Reason", async { unreachable!("not due yet") }).await;
        tokio::time::advance(pause).await;
        once.publish(&metrics, "hive", "Reason", async { true }).await;
        assert_eq!(once.retry_in(), None);
        once.publish(&metrics, "hive", "Reason", async { unreachable!("it is written") }).await;
        let mut count = 0;
        once.publish(&metrics, "hive", "Another", async {
            count += 1;
            true
        })
        .await;
        assert_eq!(count, 1);
    }
}
