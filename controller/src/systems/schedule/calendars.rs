//! Calendars: `ConfigMaps` of tenants.

use k8s_openapi::api::core::v1::ConfigMap;
use shared::schedule::api::CalendarReference;
use shared::schedule::calendar::{Holiday, of_key};
use shared::text::sanitize_to;

use crate::runtime::hub::named;
use crate::runtime::{Hub, ReconcileError, Reconciled};

/// Longest name in a message, in characters.
const MAX_NAME: usize = 100;

/// The calendars of one schedule.
pub struct Calendars<'a> {
    pub hub: &'a Hub,
    /// Where they are.
    pub namespace: &'a str,
}

impl Calendars<'_> {
    /// The days of a calendar, or why they are not known.
    pub async fn read(&self, reference: &CalendarReference) -> Reconciled<Result<Vec<Holiday>, String>> {
        let found = self.hub.find(&named::<ConfigMap>(self.namespace, &reference.config_map, None)).await;
        let (name, key) = (sanitize_to(&reference.config_map, MAX_NAME), sanitize_to(&reference.key, MAX_NAME));
        let name = format!("ConfigMap {}/{name}", self.namespace);
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
}
