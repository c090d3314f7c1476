//! Which requests a fault meets, and what happens to them then.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

/// One injected fault. Absent conditions match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// Name under which it can be removed; chosen if empty.
    pub id: String,
    /// HTTP method.
    pub method: Option<String>,
    /// Beginning of the path; with `*` in it, a pattern for the whole path.
    pub path: Option<String>,
    /// A part of the query, such as `watch=true`.
    pub query: Option<String>,
    /// A part of the User-Agent header: meets one program only.
    pub user_agent: Option<String>,
    /// Requests that pass first.
    pub skip: u32,
    /// Requests that are met after that; all if absent.
    pub count: Option<u32>,
    /// What happens to a request that is met.
    pub effect: Effect,
    /// Requests met so far.
    pub hits: u32,
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Effect {
    /// It goes on after a while, to the next rule.
    Delay {
        /// Milliseconds.
        millis: u64,
    },
    /// It is answered with an error, as the API server writes them: a `metav1.Status`.
    Status {
        /// HTTP status: 409, 410, 429, 500, 503, ...
        code: u16,
        /// Seconds for the Retry-After header, if any.
        #[serde(default)]
        retry_after: Option<u32>,
        /// The Status's message.
        #[serde(default)]
        message: Option<String>,
    },
    /// It is answered with 200 and a JSON body that is made up on the way.
    Body {
        /// How the body begins.
        begin: String,
        /// What follows, again and again.
        unit: String,
        /// How often.
        times: u32,
        /// How it ends.
        end: String,
    },
    /// It is answered with an error in words, as gateways and OpenStack's services write them.
    Words {
        /// HTTP status.
        code: u16,
        /// The body.
        text: String,
    },
    /// The connection is closed instead of an answer.
    Cut {
        /// Whether the request reaches the server first and only its answer is lost.
        after_upstream: bool,
    },
    /// The request is taken and never answered.
    Hang,
    /// The answer breaks off after a while: a watch that is dropped, a body that is cut short.
    DropWatch {
        /// Milliseconds after the head of the answer.
        after_millis: u64,
    },
    /// The answer, a watch, gets an ERROR event that says 410 Expired after a while, and ends.
    WatchExpired {
        /// Milliseconds after the head of the answer.
        after_millis: u64,
    },
}

impl Default for Effect {
    fn default() -> Self {
        Self::Delay { millis: 0 }
    }
}

impl Rule {
    /// A rule that meets every request; narrow it with the fields.
    pub fn new(effect: Effect) -> Self {
        Self { effect, ..Self::default() }
    }

    /// Narrows it to a method.
    pub fn method(mut self, method: &str) -> Self {
        self.method = Some(method.to_owned());
        self
    }

    /// Narrows it to paths that begin so, or that match a pattern with `*`.
    pub fn path(mut self, path: &str) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    /// Narrows it to queries with this part.
    pub fn query(mut self, part: &str) -> Self {
        self.query = Some(part.to_owned());
        self
    }

    /// Narrows it to clients whose User-Agent has this part.
    pub fn user_agent(mut self, part: &str) -> Self {
        self.user_agent = Some(part.to_owned());
        self
    }

    /// Lets some requests pass first.
    pub fn skip(mut self, requests: u32) -> Self {
        self.skip = requests;
        self
    }

    /// Ends it after some requests.
    pub fn count(mut self, requests: u32) -> Self {
        self.count = Some(requests);
        self
    }

    fn matches(&self, seen: &Seen<'_>) -> bool {
        let equal = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        let part = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| found.contains(wanted));
        equal(&self.method, seen.method)
            && self.path.as_deref().is_none_or(|pattern| path_matches(pattern, seen.path))
            && part(&self.query, seen.query)
            && part(&self.user_agent, seen.user_agent)
    }

    /// Counts a request that matches, and says whether it is met.
    fn meet(&mut self, seen: &Seen<'_>) -> bool {
        if self.count == Some(0) || !self.matches(seen) {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        self.count = self.count.map(|left| left - 1);
        self.hits += 1;
        true
    }
}

/// What a rule may match.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// HTTP method.
    pub method: &'a str,
    /// Path without query.
    pub path: &'a str,
    /// Query without `?`, empty if there is none.
    pub query: &'a str,
    /// User-Agent header, empty if there is none.
    pub user_agent: &'a str,
}

fn path_matches(pattern: &str, path: &str) -> bool {
    if !pattern.contains('*') {
        return path.starts_with(pattern);
    }
    let mut parts = pattern.split('*');
    let Some(mut rest) = path.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.is_empty()
}

/// The faults of one proxy, in the order in which they were added.
#[derive(Debug, Default)]
pub struct Faults(Mutex<Vec<Rule>>);

/// What the rules make of a request: first a delay, then at most one other effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sentence {
    /// Milliseconds.
    pub delay: u64,
    /// What happens then; `None`: nothing.
    pub effect: Option<Effect>,
}

impl Faults {
    /// Adds a rule and answers it with its ID.
    pub fn add(&self, mut rule: Rule) -> Rule {
        if rule.id.is_empty() {
            rule.id = format!("{:08x}", rand::random::<u32>());
        }
        self.lock().push(rule.clone());
        rule
    }

    /// Every rule, with its hits.
    pub fn list(&self) -> Vec<Rule> {
        self.lock().clone()
    }

    /// Removes one rule, or all.
    pub fn remove(&self, id: Option<&str>) {
        self.lock().retain(|rule| id.is_some_and(|id| id != rule.id));
    }

    /// Judges a request. The first rule that is not a delay decides; delays before it add up.
    pub fn meet(&self, seen: &Seen<'_>) -> Sentence {
        let mut sentence = Sentence::default();
        for rule in self.lock().iter_mut() {
            if !rule.meet(seen) {
                continue;
            }
            match &rule.effect {
                Effect::Delay { millis } => sentence.delay += millis,
                other => {
                    sentence.effect = Some(other.clone());
                    break;
                }
            }
        }
        sentence
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
