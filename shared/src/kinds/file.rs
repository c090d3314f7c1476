//! Rows that a user adds, as YAML: the same data as those of [`super::operators`], so confined that they can do no more than
//! set scalars that stop and start an object.

use std::fmt::Display;

use serde::Deserialize;

use super::Kinds;
use super::kind::Kind;
use super::operators::target;
use super::row::TargetKind;
use super::sleep_row::{At, Obstacle, Phase, Scalar, Seen, SleepRow, State, Switch, Test};
use crate::read::yaml;
use crate::text::sanitize_to;

/// Bytes of a file.
pub const MAX_FILE: usize = 64 << 10;
/// Most rows of a file, members of a list of a row, and characters of a text.
const MAX_ROWS: usize = 64;
const MAX_LIST: usize = 32;
const MAX_TEXT: usize = 200;
/// Where annotations are.
const ANNOTATIONS: &str = "/metadata/annotations/";
/// Groups whose objects have power states of ours, or on which the hub itself depends.
const OF_HUBS: [&str; 4] = ["hibernate.sh", "hive.openshift.io", "kubermatic.k8c.io", "apps.foundationdb.org"];
/// A field name may not contain one of these.
const REFUSED_PARTS: [&str; 8] =
    ["template", "image", "command", "secret", "serviceaccount", "password", "token", "volume"];
/// Nor be one of these.
const REFUSED_NAMES: [&str; 3] = ["args", "env", "envfrom"];

const ONE_TEST: &str = "when: a test must be desired alone, or at or condition with one of is, startsWith, present, \
                        zero: true, atLeast";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    kinds: Vec<Row>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Row {
    group: String,
    versions: Vec<String>,
    kind: String,
    plural: String,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default = "two")]
    stage: u8,
    #[serde(default = "yes")]
    in_namespace: bool,
    switches: Vec<RowSwitch>,
    #[serde(default)]
    states: Vec<RowState>,
    /// Where the operator says which generation its status is about.
    observed_generation: Option<String>,
    #[serde(default)]
    refuse_when: Vec<RowObstacle>,
    #[serde(default)]
    may_stop: bool,
    may_wait: Option<String>,
    loses: Option<String>,
    still_billed: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RowSwitch {
    at: String,
    asleep: Value,
    /// Words that it may have while the object is awake, if it is a text.
    #[serde(default)]
    awake: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Value {
    Bool(bool),
    Number(u64),
    Text(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RowState {
    is: Phase,
    #[serde(default)]
    when: Vec<RowTest>,
    message: Option<RowPlace>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RowObstacle {
    when: Vec<RowTest>,
    message: String,
}

/// A field, or a member of a condition: `status` unless it says which.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RowPlace {
    at: Option<String>,
    condition: Option<String>,
    member: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RowTest {
    at: Option<String>,
    condition: Option<String>,
    member: Option<String>,
    is: Option<Vec<String>>,
    starts_with: Option<String>,
    present: Option<bool>,
    zero: Option<bool>,
    at_least: Option<String>,
    /// Whether a sleep is requested.
    desired: Option<Desired>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Desired {
    Asleep,
    Awake,
}

fn two() -> u8 {
    2
}

fn yes() -> bool {
    true
}

/// The table with the rows of a file, which last as long as the program.
///
/// # Errors
/// A sentence that names the row, the field, what was found and what would be right.
pub fn extended(kinds: Kinds, text: &str) -> Result<Kinds, String> {
    let File { kinds: rows } = yaml::read(text, MAX_FILE).map_err(|error| error.to_string())?;
    at_most("kinds", rows.len(), MAX_ROWS)?;
    let mut targets = kinds.targets.to_vec();
    for (number, row) in rows.into_iter().enumerate() {
        let name = sanitize_to(&row.kind, MAX_TEXT);
        let row = row.checked(&targets).map_err(|why| format!("kinds[{number}] ({name}): {why}"))?;
        targets.push(Box::leak(Box::new(row)));
    }
    Ok(Kinds { targets: targets.leak(), ..kinds })
}

impl Row {
    fn checked(self, others: &[&'static TargetKind]) -> Result<TargetKind, String> {
        let is_of_kubernetes = !self.group.contains('.') || self.group.ends_with(".k8s.io");
        if is_of_kubernetes || OF_HUBS.iter().any(|one| self.group == *one) || !is_dns(&self.group) {
            return Err(wrong(
                "group",
                &self.group,
                "the API group of an operator, and none of Kubernetes or of a hub",
            ));
        }
        let is_kind = self.kind.bytes().all(|byte| byte.is_ascii_alphanumeric()) && (1..=63).contains(&self.kind.len());
        if !is_kind || !self.kind.starts_with(|first: char| first.is_ascii_uppercase()) {
            return Err(wrong("kind", &self.kind, "a kind, such as Widget"));
        }
        for (field, words) in [("versions", &self.versions), ("shortNames", &self.short_names)] {
            at_most(field, words.len(), MAX_LIST)?;
            if let Some(word) = words.iter().find(|word| !is_dns(word) || word.contains('.')) {
                return Err(wrong(field, word, "lower case letters, digits and -"));
            }
        }
        if self.versions.is_empty() || self.switches.is_empty() {
            return Err("versions and switches must have one entry each".to_owned());
        }
        if !is_dns(&self.plural) || self.plural.contains('.') {
            return Err(wrong("plural", &self.plural, "the resource, such as widgets"));
        }
        if !(1..=5).contains(&self.stage) {
            return Err(wrong("stage", &self.stage.to_string(), "1 to 5"));
        }
        let known = |word: &str| others.iter().any(|other| other.kind.is_named(word));
        if let Some(word) = self.short_names.iter().find(|word| known(word)) {
            return Err(wrong("shortNames", word, "a name that no other kind of the table has"));
        }
        let resource = format!("{}.{}", self.plural, self.group);
        if known(&resource) {
            return Err(format!("{resource} is in the table already"));
        }
        let kind = Kind::namespaced(leak(self.group), leak_all(self.versions), leak(self.kind), leak(self.plural))
            .with_short(leak_all(self.short_names));
        let is_homonym = known(kind.kind) || known(kind.plural);
        let kind = if is_homonym { kind.as_homonym() } else { kind };
        let switches = list("switches", self.switches, RowSwitch::checked)?;
        let is_within = |one: &Switch, other: &Switch| {
            one.at.strip_prefix(other.at).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        for (index, one) in switches.iter().enumerate() {
            if let Some(other) = switches[..index].iter().find(|other| is_within(one, other) || is_within(other, one)) {
                return Err(format!("switches: found {} and {}, must not overlap", other.at, one.at));
            }
        }
        let row: &'static SleepRow = Box::leak(Box::new(SleepRow {
            switches,
            states: list("states", self.states, RowState::checked)?,
            seen: match self.observed_generation {
                Some(at) => Seen::Generation(leak(read_only("observedGeneration", at)?)),
                None => Seen::Nowhere,
            },
            obstacles: list("refuseWhen", self.refuse_when, RowObstacle::checked)?,
            may_stop: self.may_stop,
            may_wait: self.may_wait.map_or(SleepRow::PLAIN.may_wait, line),
            loses: self.loses.map(line),
            stays: self.still_billed.map_or(SleepRow::PLAIN.stays, line),
            ..SleepRow::PLAIN
        }));
        Ok(TargetKind { in_namespace: self.in_namespace, ..target(kind, self.stage, row) })
    }
}

impl RowSwitch {
    fn checked(self) -> Result<Switch, String> {
        let at = written(self.at)?;
        if !matches!(self.asleep, Value::Text(_)) && !self.awake.is_empty() {
            return Err(format!("awake of {at}: only if asleep is a string"));
        }
        let is_annotation = at.starts_with(ANNOTATIONS);
        match self.asleep {
            Value::Bool(found) if is_annotation => Err(no_text(at, found)),
            Value::Number(found) if is_annotation => Err(no_text(at, found)),
            Value::Bool(asleep) => {
                let (asleep, absent) = (Scalar::Bool(asleep), Scalar::Bool(!asleep));
                Ok(Switch { asleep, absent, ..Switch::flag(at) })
            }
            Value::Number(0) => Ok(Switch::count(at)),
            Value::Number(other) => Err(wrong("asleep", &other.to_string(), "true, false, 0 or a text")),
            Value::Text(word) => {
                at_most("awake", self.awake.len(), MAX_LIST)?;
                Ok(Switch::word(at, line(word), leak_lines(self.awake)))
            }
        }
    }
}

impl RowState {
    fn checked(self) -> Result<State, String> {
        let text = self.message.map(|RowPlace { at, condition, member }| place(at, condition, member)).transpose()?;
        Ok(State { when: list("when", self.when, RowTest::checked)?, is: self.is, text })
    }
}

impl RowObstacle {
    fn checked(self) -> Result<Obstacle, String> {
        Ok(Obstacle::refusing(list("when", self.when, RowTest::checked)?, line(self.message)))
    }
}

impl RowTest {
    fn checked(self) -> Result<Test, String> {
        let Self { at, condition, member, is, starts_with, present, zero, at_least, desired } = self;
        let is_of_place = at.is_some() || condition.is_some() || member.is_some();
        let at = if is_of_place { Some(place(at, condition, member)?) } else { None };
        Ok(match (desired, at, is, starts_with, present, zero, at_least) {
            (Some(desired), None, None, None, None, None, None) => Test::Asked(desired == Desired::Asleep),
            (None, Some(at), Some(words), None, None, None, None) => {
                at_most("is", words.len(), MAX_LIST)?;
                Test::Is(at, leak_lines(words))
            }
            (None, Some(at), None, Some(text), None, None, None) => Test::Begins(at, line(text)),
            (None, Some(at), None, None, Some(true), None, None) => Test::Present(at),
            (None, Some(at), None, None, Some(false), None, None) => Test::Absent(at),
            (None, Some(at), None, None, None, Some(true), None) => Test::Zero(at),
            (None, Some(at), None, None, None, None, Some(other)) => {
                Test::AtLeast(at, At::Field(leak(read_only("atLeast", other)?)))
            }
            _ => return Err(ONE_TEST.to_owned()),
        })
    }
}

fn place(at: Option<String>, condition: Option<String>, member: Option<String>) -> Result<At, String> {
    match (at, condition) {
        (Some(at), None) if member.is_none() => Ok(At::Field(leak(read_only("at", at)?))),
        (None, Some(condition)) => Ok(At::Condition(line(condition), member.map_or("status", line))),
        _ => Err("a test and a text have `at`, or `condition` with an optional `member`".to_owned()),
    }
}

/// The API server reads no other value of an annotation, so that no sleep could be written.
fn no_text(at: &str, found: impl Display) -> String {
    format!("asleep of {at}: found {found}, must be a text, as every annotation is: \"{found}\" in quotes")
}

/// A place that a sleep may write: a field of the spec or an annotation, neither of which is about more than power.
fn written(at: String) -> Result<&'static str, String> {
    const RIGHT: &str = "a field under /spec/ or /metadata/annotations/KEY, and none of templates, images, commands, \
                         environments, volumes, Secrets, nor annotations of Kubernetes or of hibernate.sh";
    let is_right = match (at.strip_prefix("/spec/"), at.strip_prefix(ANNOTATIONS)) {
        (Some(path), None) => path.split('/').all(|part| {
            let lower = part.to_ascii_lowercase();
            let is_name = part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
            let refused = REFUSED_PARTS.iter().any(|word| lower.contains(word)) || REFUSED_NAMES.contains(&&*lower);
            is_name && part.starts_with(|first: char| first.is_ascii_alphabetic()) && !refused
        }),
        (None, Some(key)) => is_free_annotation(key),
        _ => false,
    };
    if is_right && at.len() <= MAX_TEXT { Ok(leak(at)) } else { Err(wrong("at", &at, RIGHT)) }
}

fn is_free_annotation(key: &str) -> bool {
    let (domain, name) = key.split_once("~1").unwrap_or(("", key));
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    let taken = ["hibernate.sh", "kubernetes.io", "k8s.io"];
    let is_taken = taken.iter().any(|one| domain == *one || domain.ends_with(&format!(".{one}")));
    is_name && (domain.is_empty() || is_dns(domain)) && !is_taken
}

/// A place that is only read.
fn read_only(field: &str, at: String) -> Result<String, String> {
    let begins = ["/spec/", "/status/", "/metadata/"].iter().any(|begin| at.starts_with(begin));
    let is_right = begins && at.len() <= MAX_TEXT && at.bytes().all(|byte| byte.is_ascii_graphic());
    if is_right { Ok(at) } else { Err(wrong(field, &at, "a JSON pointer under /spec/, /status/ or /metadata/")) }
}

fn is_dns(name: &str) -> bool {
    let is_part = |part: &str| {
        (1..=63).contains(&part.len())
            && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    name.len() <= 253 && name.split('.').all(is_part)
}

fn list<T, U>(field: &str, found: Vec<T>, checked: impl Fn(T) -> Result<U, String>) -> Result<&'static [U], String> {
    at_most(field, found.len(), MAX_LIST)?;
    let checked: Result<Vec<U>, String> = found.into_iter().map(checked).collect();
    Ok(checked.map_err(|why| format!("{field}: {why}"))?.leak())
}

fn at_most(field: &str, found: usize, most: usize) -> Result<(), String> {
    if found <= most { Ok(()) } else { Err(format!("{field}: found {found}, must be {most} at most")) }
}

fn wrong(field: &str, found: &str, right: &str) -> String {
    format!("{field}: found {:?}, must be {right}", sanitize_to(found, MAX_TEXT))
}

/// One line for a message, or a word to compare with.
fn line(text: impl AsRef<str>) -> &'static str {
    leak(sanitize_to(text.as_ref(), MAX_TEXT))
}

fn leak(text: String) -> &'static str {
    text.leak()
}

fn leak_all(words: Vec<String>) -> &'static [&'static str] {
    words.into_iter().map(leak).collect::<Vec<_>>().leak()
}

fn leak_lines(words: Vec<String>) -> &'static [&'static str] {
    words.into_iter().map(line).collect::<Vec<_>>().leak()
}

#[cfg(test)]
mod tests;
