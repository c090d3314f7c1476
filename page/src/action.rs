//! From a request of a dialog to command lines.

use std::collections::BTreeMap;

use serde::Deserialize;
use shared::text::count;

use crate::cache::{Objects, key};

/// Targets of one request.
const MAX_TARGETS: usize = 1_000;
/// From so many targets on, a person types their number, as the module of the page has it.
const COUNTED: usize = 11;
/// Longest text of a dialog, in bytes.
const MAX_TEXT: usize = 1_024;

/// A request of a dialog.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ActionRequest {
    pub verb: Verb,
    /// Objects, as [`crate::cache::id`] names them.
    pub ids: Vec<String>,
    #[serde(default)]
    pub reason: String,
    /// `--until`; empty for none.
    #[serde(default)]
    pub until: String,
    /// `--for`; empty for none.
    #[serde(default, rename = "for")]
    pub length: String,
    /// Whether the API server and the webhook only judge it.
    #[serde(default)]
    pub dry_run: bool,
    /// The number that a person has typed.
    #[serde(default)]
    pub confirmed: usize,
}

/// Verbs of the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    #[default]
    Plan,
    Hibernate,
    Resume,
    /// A wake that is held.
    Hold,
    /// A schedule leaves out its next sleep.
    Skip,
}

impl ActionRequest {
    /// Whether it changes nothing.
    pub fn is_read_only(&self) -> bool {
        self.verb == Verb::Plan || self.dry_run
    }

    /// The command lines, one for each namespace. Only objects that the page shows can be named.
    ///
    /// # Errors
    /// What is wrong with the request, for a person.
    pub fn commands(&self, objects: &Objects) -> Result<Vec<Vec<String>>, String> {
        if self.ids.is_empty() || self.ids.len() > MAX_TARGETS {
            return Err(format!("found {}, must be 1 to {MAX_TARGETS}", count(self.ids.len() as u64, "target")));
        }
        if let Some(long) = [&self.reason, &self.until, &self.length].into_iter().find(|text| text.len() > MAX_TEXT) {
            return Err(format!("found a text of {} bytes, must be at most {MAX_TEXT}", long.len()));
        }
        if !self.is_read_only() && self.ids.len() >= COUNTED && self.confirmed != self.ids.len() {
            return Err(format!("found {}, must be the number of targets: {}", self.confirmed, self.ids.len()));
        }
        let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for id in &self.ids {
            let key = key(id).filter(|key| objects.item(key).is_some());
            let (kind, namespace, name) = key.ok_or_else(|| "a target does not exist any more: reload".to_owned())?;
            places.entry(namespace).or_default().push(format!("{kind}/{name}"));
        }
        if self.verb == Verb::Skip {
            let one = |(namespace, names): (String, Vec<String>)| {
                let command = move |name| self.command(&["schedule", "skip"], vec![name], &namespace);
                names.into_iter().map(command).collect::<Vec<_>>()
            };
            return Ok(places.into_iter().flat_map(one).collect());
        }
        let verb: &[&str] = match self.verb {
            Verb::Plan => &["plan"],
            Verb::Hibernate => &[],
            Verb::Resume | Verb::Hold | Verb::Skip => &["resume"],
        };
        Ok(places.into_iter().map(|(namespace, names)| self.command(verb, names, &namespace)).collect())
    }

    fn command(&self, verb: &[&str], names: Vec<String>, namespace: &str) -> Vec<String> {
        let has_end = !matches!(self.verb, Verb::Resume | Verb::Skip);
        let sets_power = !matches!(self.verb, Verb::Plan | Verb::Skip);
        let valued = [
            ("--namespace", namespace, true),
            ("--until", self.until.as_str(), has_end),
            ("--for", self.length.as_str(), has_end),
            ("--reason", self.reason.as_str(), sets_power),
            ("--dry-run", "server", self.dry_run && self.verb != Verb::Plan),
        ];
        let valued = valued.into_iter().filter(|(_, value, has)| *has && !value.is_empty());
        let (holds, skips) = (self.verb == Verb::Hold, self.verb == Verb::Skip);
        let switches = [("--yes", sets_power), ("--hold-awake", holds), ("--sleep", skips)];
        let words = verb.iter().map(|word| (*word).to_owned()).chain(names);
        words
            .chain(valued.map(|(flag, value, _)| format!("{flag}={value}")))
            .chain(switches.into_iter().filter(|(_, has)| *has).map(|(flag, _)| flag.to_owned()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shared::kinds::{CLUSTER_DEPLOYMENT, SCHEDULE};
    use view::Item;
    use view::schedule::ScheduleState;
    use view::target::Target;

    use super::*;

    fn known() -> Objects {
        let mut known = Objects::default();
        for (namespace, name) in [("a", "one"), ("b", "one"), ("a", "two")] {
            let object = json!({
                "metadata": { "namespace": namespace, "name": name }, "spec": { "clusterName": name, "baseDomain": "example.org", "platform": {} },
            });
            let state = Target::new(&CLUSTER_DEPLOYMENT, "v1", object).state().unwrap();
            let item = Item::Target(Box::new(state));
            known.insert(item);
        }
        let schedule = json!({
            "metadata": { "namespace": "a", "name": "night" }, "spec": { "timeZone": "UTC", "targets": { "all": true } },
        });
        known.insert(Item::Schedule(Box::new(ScheduleState::read(&SCHEDULE, schedule).unwrap())));
        known
    }

    fn commands(act: &Value) -> Result<Vec<String>, String> {
        let act: ActionRequest = serde_json::from_value(act.clone()).map_err(|error| error.to_string())?;
        Ok(act.commands(&known())?.into_iter().map(|words| words.join(" ")).collect())
    }

    const A: &str = "clusterdeployment.hive.openshift.io/a/one";
    const B: &str = "clusterdeployment.hive.openshift.io/b/one";

    #[test]
    fn a_dialog_is_a_command_for_each_namespace() {
        let one = "clusterdeployment.hive.openshift.io/one";
        for (act, expected) in [
            (json!({ "verb": "plan", "ids": [A] }), vec![format!("plan {one} --namespace=a")]),
            (
                json!({ "verb": "hibernate", "ids": [A, B], "reason": "-x --force", "until": "18:00", "dryRun": true }),
                ["a", "b"]
                    .map(|place| {
                        format!("{one} --namespace={place} --until=18:00 --reason=-x --force --dry-run=server --yes")
                    })
                    .into(),
            ),
            (json!({ "verb": "resume", "ids": [B], "until": "x" }), vec![format!("resume {one} --namespace=b --yes")]),
            (
                json!({ "verb": "hold", "ids": [B], "for": "3h" }),
                vec![format!("resume {one} --namespace=b --for=3h --yes --hold-awake")],
            ),
            (
                json!({ "verb": "skip", "ids": ["powerschedule.hibernate.sh/a/night"], "until": "x", "dryRun": true }),
                vec![
                    "schedule skip powerschedule.hibernate.sh/night --namespace=a --dry-run=server --sleep".to_owned(),
                ],
            ),
        ] {
            assert_eq!(commands(&act).unwrap(), expected, "{act}");
        }
        let words = ActionRequest {
            verb: Verb::Hibernate,
            ids: vec![A.to_owned()],
            reason: "-x --force".to_owned(),
            ..ActionRequest::default()
        };
        let words = words.commands(&known()).unwrap();
        assert!(words[0].contains(&"--reason=-x --force".to_owned()), "one word: {words:?}");
    }

    #[test]
    fn what_the_page_does_not_show_is_not_named() {
        let many: Vec<&str> = vec![A; COUNTED];
        for (act, why) in [
            (json!({ "verb": "hibernate", "ids": [] }), "found 0 targets, must be 1 to 1000"),
            (json!({ "verb": "hibernate", "ids": ["--all"] }), "a target does not exist any more"),
            (json!({ "verb": "hibernate", "ids": ["clusterdeployment.hive.openshift.io/a/--all"] }), "does not exist"),
            (json!({ "verb": "hibernate", "ids": [format!("{A}/x")] }), "does not exist"),
            (json!({ "verb": "hibernate", "ids": [A], "reason": "x".repeat(MAX_TEXT + 1) }), "a text of 1025 bytes"),
            (json!({ "verb": "hibernate", "ids": many }), "found 0, must be the number of targets: 11"),
            (json!({ "verb": "delete", "ids": [A] }), "unknown variant"),
            (json!({ "verb": "resume", "ids": [A], "force": true }), "unknown field"),
        ] {
            let found = commands(&act).unwrap_err();
            assert!(found.contains(why), "{act}: {found}");
        }
        assert!(commands(&json!({ "verb": "hibernate", "ids": many, "confirmed": COUNTED })).is_ok());
        assert!(commands(&json!({ "verb": "plan", "ids": many })).is_ok());
    }
}
