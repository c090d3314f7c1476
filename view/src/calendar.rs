//! When a schedule's targets sleep and wake, with the calendars that the hub keeps.

use hub::{HubClient, Resource, is_name, is_namespace};
use serde_json::Value;
use shared::schedule::api::CalendarReference;
use shared::schedule::calendar::{self, Holiday};
use shared::schedule::timetable::{Invalid, Timetable};
use tokio::sync::OnceCell;

use super::installed;
use super::savings::CONFIG_MAPS;
use super::schedule::ScheduleState;

/// The days of each calendar of a schedule.
pub type Calendars = Vec<Vec<Holiday>>;

/// Why it is not known when a schedule acts.
#[derive(Debug, thiserror::Error)]
pub enum TimetableError {
    #[error("{what}:\n  {}", lines(.faults))]
    Invalid { what: String, faults: Vec<Invalid> },
    #[error("{what}: spec.calendars[{index}]: {why}")]
    Calendar { what: String, index: usize, why: String },
}

/// Where the calendars of cluster-wide schedules are. The hub is asked once for all of them, when the first one is read.
#[derive(Debug)]
pub struct CalendarNamespace(OnceCell<Result<String, String>>);

impl CalendarNamespace {
    /// This one, or that of our controller.
    pub fn new(given: Option<&str>) -> Self {
        Self(OnceCell::new_with(given.map(|name| Ok(name.to_owned()))))
    }

    async fn get(&self, hub: &HubClient) -> Result<&str, String> {
        let installed = async { installed::namespace(hub).await.map_err(|error| error.to_string()) };
        self.0.get_or_init(|| installed).await.as_deref().map_err(Clone::clone)
    }
}

/// Faults of a schedule, a line each.
pub fn lines(faults: &[Invalid]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n  ")
}

/// The calendars of a schedule.
///
/// # Errors
/// When one cannot be read.
pub async fn calendars(
    hub: &HubClient,
    state: &ScheduleState,
    cluster_wide: &CalendarNamespace,
) -> Result<Calendars, TimetableError> {
    let mut calendars = Vec::new();
    let fail = |index, why| TimetableError::Calendar { what: state.full_name(), index, why };
    for (index, reference) in state.spec().calendars.iter().enumerate() {
        let namespace = match state.namespace() {
            "" => cluster_wide.get(hub).await.map_err(|why| fail(index, why))?,
            own => own,
        };
        calendars.push(calendar(hub, namespace, reference).await.map_err(|why| fail(index, why))?);
    }
    Ok(calendars)
}

/// A schedule that is ready to answer.
///
/// # Errors
/// When a field of it cannot be.
pub fn read(state: &ScheduleState, calendars: &[Vec<Holiday>]) -> Result<Timetable, TimetableError> {
    Timetable::of(state.spec(), calendars).map_err(|faults| TimetableError::Invalid { what: state.full_name(), faults })
}

/// The same with the calendars of the hub.
///
/// # Errors
/// When it cannot be read, or one of them.
pub async fn timetable(
    hub: &HubClient,
    state: &ScheduleState,
    cluster_wide: &CalendarNamespace,
) -> Result<Timetable, TimetableError> {
    read(state, &calendars(hub, state, cluster_wide).await?)
}

/// The days of a calendar, or why they are not known.
async fn calendar(hub: &HubClient, namespace: &str, reference: &CalendarReference) -> Result<Vec<Holiday>, String> {
    let CalendarReference { config_map, key, .. } = reference;
    // Only what can be a name goes into a URL.
    if !is_name(config_map) || !is_namespace(namespace) {
        return Err(format!("found {namespace}/{config_map}, must be the name of a ConfigMap"));
    }
    let found = hub.get(Resource::preferred(&CONFIG_MAPS), namespace, config_map).await;
    let found = found.map_err(|error| error.to_string())?;
    let text = found["data"].get(key).and_then(Value::as_str);
    calendar::of_key(&format!("ConfigMap {namespace}/{config_map}"), key, text)
}
