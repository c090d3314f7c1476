//! What only tests ask of a simulator, below `/_simulator`.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::credentials::{API_KEY, CLIENT, SECRET, SUBSCRIPTION, TENANT, service_account};
use crate::engine::{Engine, Machine};
use crate::{Answer, Call};

impl Engine {
    pub(crate) fn control(&mut self, call: &Call) -> Answer {
        match self.controlled(call) {
            Ok(body) => Answer::ok(body),
            Err(why) => Answer::of(400, json!({"error": why})),
        }
    }

    fn controlled(&mut self, call: &Call) -> Result<Value, String> {
        let malformed = |error: serde_json::Error| error.to_string();
        match (call.method.as_str(), call.path.get(1).map_or("", String::as_str)) {
            ("GET", "machines") => return Ok(json!(self.machines.values().collect::<Vec<_>>())),
            ("GET", "credentials") => {
                return Ok(json!({
                    "gcp": serde_json::from_str::<Value>(&service_account()).unwrap_or_default(),
                    "azure": {"subscription": SUBSCRIPTION, "tenant": TENANT, "client": CLIENT, "secret": SECRET},
                    "ibm": API_KEY,
                }));
            }
            ("GET", "calls") => return Ok(json!(self.calls)),
            ("POST", "machines") => {
                for mut machine in serde_json::from_slice::<Vec<Machine>>(&call.body).map_err(malformed)? {
                    if machine.word.is_empty() {
                        self.words().running.clone_into(&mut machine.word);
                    }
                    self.machines.insert(machine.name.clone(), machine);
                }
            }
            ("POST", "rules") => self.rule(serde_json::from_slice(&call.body).map_err(malformed)?),
            ("DELETE", "rules") => self.heal(),
            ("POST", "settings") => {
                let Settings { transition_ms, page } = serde_json::from_slice(&call.body).map_err(malformed)?;
                self.transition = transition_ms.map_or(self.transition, Duration::from_millis);
                self.page = page.unwrap_or(self.page);
            }
            _ => return Err("machines, calls, credentials, rules or settings".to_owned()),
        }
        Ok(json!({}))
    }
}

/// What tests set.
#[derive(Deserialize)]
struct Settings {
    transition_ms: Option<u64>,
    page: Option<usize>,
}
