//! Rollouts as they change.

use std::{collections::BTreeSet, ops::ControlFlow, pin::pin, time::Duration};

use futures::StreamExt;
use kube::api::WatchEvent;
use serde_json::Value;
use shared::target::POWER_ROLLOUT;

use crate::{
    api::{Hub, Resource, error::HubError},
    output,
};

/// After this long without an event the rollouts are listed again.
const SILENCE: Duration = Duration::from_mins(1);
/// Pause after a failed request; the hub may be restarting.
const PAUSE: Duration = Duration::from_secs(2);

/// What is seen of the rollouts.
pub(crate) enum Seen {
    /// One as it is now.
    Object(Value),
    /// One that does not exist any more.
    Gone(String),
    /// Nothing has changed, but time has passed.
    Time,
}

/// Which rollouts are followed.
pub(crate) struct Followed<'a> {
    pub(crate) hub: &'a Hub,
    /// All if empty.
    pub(crate) names: &'a [String],
    pub(crate) labels: &'a str,
    /// How often [`Seen::Time`] comes while nothing changes.
    pub(crate) tick: Duration,
}

impl Followed<'_> {
    /// Shows the rollouts, and every change of them, until `look` breaks. Transient errors are retried: the caller sets the deadline.
    ///
    /// # Errors
    /// When the hub refuses to be asked.
    pub(crate) async fn follow<T>(&self, mut look: impl FnMut(Seen) -> ControlFlow<T>) -> Result<T, HubError> {
        let mut known = self.names.iter().cloned().collect();
        loop {
            match self.round(&mut known, &mut look).await {
                Ok(ControlFlow::Break(result)) => return Ok(result),
                Ok(ControlFlow::Continue(())) => {}
                Err(error) if error.is_transient() => {
                    if self.hub.verbose {
                        output::note(&format!("still waiting, despite an error: {error}"));
                    }
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// One list, and the changes after it until the watch ends or falls silent.
    async fn round<T>(
        &self,
        known: &mut BTreeSet<String>,
        look: &mut impl FnMut(Seen) -> ControlFlow<T>,
    ) -> Result<ControlFlow<T>, HubError> {
        let resource = Resource::preferred(&POWER_ROLLOUT.kind);
        let fields = match self.names {
            [name] => format!("metadata.name={name}"),
            _ => String::new(),
        };
        let list = self.hub.list(resource, None, &fields, self.labels).await?;
        let found: Vec<Value> = list.items.into_iter().filter(|object| self.is_followed(object)).collect();
        let here: BTreeSet<String> = found.iter().map(|object| name_of(object).to_owned()).collect();
        for name in known.difference(&here) {
            if let ControlFlow::Break(result) = look(Seen::Gone(name.clone())) {
                return Ok(ControlFlow::Break(result));
            }
        }
        *known = here;
        for object in found {
            if let ControlFlow::Break(result) = look(Seen::Object(object)) {
                return Ok(ControlFlow::Break(result));
            }
        }
        let mut changes = pin!(self.hub.watch(resource, None, (&fields, self.labels), &list.version).await?);
        let mut silent = Duration::ZERO;
        while silent < SILENCE {
            let seen = match tokio::time::timeout(self.tick, changes.next()).await {
                Err(_) => {
                    silent += self.tick;
                    Seen::Time
                }
                Ok(None) => break,
                Ok(Some(event)) => {
                    silent = Duration::ZERO;
                    match event? {
                        WatchEvent::Added(object) | WatchEvent::Modified(object) if self.is_followed(&object) => {
                            known.insert(name_of(&object).to_owned());
                            Seen::Object(object)
                        }
                        WatchEvent::Deleted(object) if self.is_followed(&object) => {
                            known.remove(name_of(&object));
                            Seen::Gone(name_of(&object).to_owned())
                        }
                        WatchEvent::Error(_) => break, // too old: the next round lists
                        _ => continue,
                    }
                }
            };
            if let ControlFlow::Break(result) = look(seen) {
                return Ok(ControlFlow::Break(result));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn is_followed(&self, object: &Value) -> bool {
        self.names.is_empty() || self.names.iter().any(|name| name == name_of(object))
    }
}

fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}
