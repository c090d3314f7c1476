//! Reads a schedule with its calendars, which are `ConfigMaps` of tenants, and keeps that for a while.

use std::sync::Arc;
use std::time::Duration;

use fair::{Charge, Consumer};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use serde::Serialize;
use shared::schedule::api::{CalendarReference, Schedule};
use shared::schedule::calendar::{Holiday, of_key};
use shared::schedule::timetable::Timetable;
use shared::text::sanitize_to;
use tokio::time::Instant;

use super::{MAX_BLOCKED, Schedules};
use crate::runtime::hub::named;
use crate::runtime::{Hub, Object, ReconcileError, Reconciled, System};

/// How often calendars are read again.
pub(super) const CALENDARS_KEPT: Duration = Duration::from_mins(10);
/// Why a calendar is not read.
const FULL: &str = "found no memory left for the calendars of this namespace, must have fewer days: shorten them";
/// Longest name in a message, in characters.
const MAX_NAME: usize = 100;

/// A schedule as it was read.
#[derive(Clone)]
pub(super) struct Reading {
    /// Ready to answer, without calendars that cannot be read; none if its spec cannot be read.
    pub(super) timetable: Option<Arc<Timetable>>,
    /// What cannot be read, and why.
    pub(super) fault: Option<String>,
}

/// A generation of a schedule as it was read.
pub(super) struct KeptReading {
    generation: Option<i64>,
    at: Instant,
    /// The next edge then. Calendars are read again before it is acted on: they may have changed.
    until: Option<Timestamp>,
    reading: Reading,
    /// What the days of its calendars take.
    _memory: Charge,
}

impl KeptReading {
    fn is_current(&self, schedule: &impl Schedule, now: Timestamp) -> bool {
        let is_fresh = || self.at.elapsed() < CALENDARS_KEPT && self.until.is_none_or(|edge| now < edge);
        self.generation == schedule.meta().generation && (schedule.spec().calendars.is_empty() || is_fresh())
    }
}

impl<S: Schedule + Object + Serialize> Schedules<S> {
    /// What is kept of a schedule, or read now.
    pub(super) async fn reading(
        &self,
        schedule: &S,
        kept: &mut Option<KeptReading>,
        now: Timestamp,
    ) -> Reconciled<Reading> {
        if let Some(kept) = kept.as_ref().filter(|kept| kept.is_current(schedule, now)) {
            return Ok(kept.reading.clone());
        }
        *kept = None; // and what it takes
        let consumer = Consumer::new(&self.tenant(schedule), schedule.uid().unwrap_or_default());
        let mut memory = self.handle.hub.memory.of(consumer).charge();
        let reading = self.read(schedule, &mut memory).await?;
        let until = reading.timetable.as_ref().and_then(|timetable| timetable.next(now, 1).first().map(|edge| edge.at));
        let (generation, at) = (schedule.meta().generation, Instant::now());
        *kept = Some(KeptReading { generation, at, until, reading: reading.clone(), _memory: memory });
        Ok(reading)
    }

    /// Reads the calendars of a schedule, and makes it ready to answer.
    async fn read(&self, schedule: &S, memory: &mut Charge) -> Reconciled<Reading> {
        let namespace = schedule.namespace().unwrap_or_else(|| self.namespace.clone());
        let (mut lines, mut fault) = (Vec::new(), None);
        for (index, reference) in schedule.spec().calendars.iter().enumerate() {
            let read = calendar(&self.handle.hub, &namespace, reference).await?;
            let read = read.and_then(|read| memory.spend(size_of(&read)).map(|()| read).map_err(|_| FULL.to_owned()));
            lines.push(read.unwrap_or_else(|why| {
                fault.get_or_insert(format!("spec.calendars[{index}]: {why}"));
                Vec::new()
            }));
        }
        Ok(match Timetable::of(schedule.spec(), &lines) {
            Ok(timetable) => Reading { timetable: Some(Arc::new(timetable)), fault },
            Err(faults) => {
                let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
                Reading { timetable: None, fault: Some(sanitize_to(&faults.join("; "), MAX_BLOCKED)) }
            }
        })
    }
}

/// The days of a calendar of this namespace, or why they are not known.
async fn calendar(
    hub: &Hub,
    namespace: &str,
    reference: &CalendarReference,
) -> Reconciled<Result<Vec<Holiday>, String>> {
    let found = hub.find(&named::<ConfigMap>(namespace, &reference.config_map, None)).await;
    let (name, key) = (sanitize_to(&reference.config_map, MAX_NAME), sanitize_to(&reference.key, MAX_NAME));
    let name = format!("ConfigMap {namespace}/{name}");
    let found = match found {
        Err(kube::Error::Api(status)) if status.code == 403 => {
            let bind = "bind the ClusterRole hibernate-controller-calendars to it in this namespace";
            return Ok(Err(format!("hibernate-controller may not read {name}: {bind}")));
        }
        found => found.map_err(ReconcileError::read("a calendar"))?,
    };
    let Some(found) = found else { return Ok(Err(format!("{name} is missing: create it"))) };
    let text = found.data.as_ref().and_then(|data| data.get(&reference.key));
    Ok(of_key(&name, &key, text.map(String::as_str)))
}

/// What the days of a calendar take, in bytes.
fn size_of(lines: &[Holiday]) -> usize {
    lines.iter().map(|line| 2 * std::mem::size_of::<Holiday>() + line.reason.len()).sum()
}
