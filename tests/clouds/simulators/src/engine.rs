//! Machines that take time to start and stop, and what goes wrong with them.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Call;
use crate::credentials::opaque;

/// Machines of a page.
const PAGE: usize = 7;

/// A word of no cloud: such a machine does not move.
pub(crate) const CONFUSED: &str = "levitating";

/// The cloud's words.
#[derive(Clone, Copy, Debug, Default)]
pub struct Words {
    pub running: &'static str,
    /// On the way up.
    pub starting: &'static str,
    /// On the way down.
    pub stopping: &'static str,
    pub stopped: &'static str,
}

/// What a machine's disks are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Disks {
    /// They outlive a stop.
    #[default]
    Persistent,
    /// It has a local SSD, too.
    LocalSsd,
    /// That of the operating system does not.
    EphemeralOs,
}

/// A machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Its name, of which there is one.
    pub name: String,
    /// ID of the cloud, where it has one besides the name.
    pub id: String,
    /// The infraID of the cluster that it is labeled for.
    pub owner: String,
    pub group: String,
    pub zone: String,
    /// The cloud's word for its state.
    pub word: String,
    /// What its disks are.
    pub disks: Disks,
    /// Whether the cloud says that it cannot be started.
    pub blocked: bool,
    /// Why the last start was given up: code and message.
    pub reason: Option<(String, String)>,
    pub vpc: String,
    /// Whether it is a spot machine.
    pub spot: bool,
    /// Since when it is in this state, in seconds since 1970; 0 for long ago.
    pub since: f64,
    /// When it last came up, in seconds since 1970; 0 for long ago.
    pub started: f64,
    /// How often it has come up.
    pub starts: u32,
    /// How often it has gone down.
    pub stops: u32,
    /// When it moves on, to which word.
    #[serde(skip)]
    next: Option<(Duration, String)>,
    /// Until when lists show another word.
    #[serde(skip)]
    stale: Option<(Duration, String)>,
    /// Whether each call that waits for its turn is a start.
    #[serde(skip)]
    queue: VecDeque<bool>,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// The call is rejected.
    Status {
        status: u16,
        /// The cloud's code.
        code: String,
        /// The cloud's message.
        message: String,
        /// In seconds.
        retry_after: Option<u32>,
    },
    /// It is never answered.
    Hang,
    /// Links in the answer lead to another host.
    ForeignLink {
        /// Such as `http://127.0.0.1:1`.
        to: String,
    },
    /// A zone, or what is behind the first page, does not answer.
    Partial,
    /// Each zone with machines warns of this, and answers.
    Warning {
        /// The cloud's code.
        code: String,
    },
    /// Lists have no power state; who asks for a machine gets it.
    NoPower,
    /// A start or stop is accepted and ends with this.
    GivenUp {
        /// The cloud's code.
        code: String,
        /// The cloud's message.
        message: String,
    },
}

/// Which calls an [`Effect`] meets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// `list`, `start`, `token` and so on; empty for every call.
    #[serde(default)]
    pub call: String,
    /// Of this machine only; empty for all.
    #[serde(default)]
    pub machine: String,
    /// How often; `None` for always.
    #[serde(default)]
    pub times: Option<u32>,
    /// What goes wrong.
    pub effect: Effect,
}

/// A call that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// What it asked for.
    pub call: String,
    /// About which machine.
    pub machine: String,
    /// What was answered; 0 for nothing.
    pub status: u16,
    /// User agent of the caller.
    pub agent: String,
    pub query: BTreeMap<String, String>,
}

/// An accepted call.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    until: Duration,
    given_up: Option<(String, String)>,
}

/// A bucket of a rate limit.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    at: Duration,
}

/// A cloud, without an API.
#[derive(Debug, Default)]
pub struct Engine {
    words: Words,
    now: Duration,
    /// How long a transition takes.
    pub transition: Duration,
    /// How long lists do not show what was accepted.
    pub lag: Duration,
    /// Whether a call for a machine that moves waits for its turn; otherwise it is rejected.
    pub queues: bool,
    /// Whether Azure answers with `Location` alone.
    pub only_location: bool,
    /// How long a token lives.
    pub token_life: Duration,
    /// When time began, in seconds since 1970.
    pub epoch: f64,
    /// Machines of a page.
    pub page: usize,
    /// By name.
    pub machines: BTreeMap<String, Machine>,
    made: usize,
    operations: BTreeMap<String, Operation>,
    tokens: BTreeMap<String, Duration>,
    buckets: BTreeMap<String, Bucket>,
    rules: Vec<Rule>,
    /// Every call.
    pub calls: Vec<LogEntry>,
}

/// What comes of a call to move a machine.
pub(crate) enum Moved {
    /// There is none of this name.
    NotFound,
    /// It is on its way elsewhere.
    Busy(String),
    There,
    /// The call is accepted: the ID of its operation.
    Accepted(String),
}

impl Machine {
    /// The word that lists show.
    pub(crate) fn shown(&self) -> &str {
        self.stale.as_ref().map_or(self.word.as_str(), |(_, word)| word)
    }
}

impl Engine {
    pub(crate) fn new(words: Words) -> Self {
        let (transition, token_life) = (Duration::from_secs(5), Duration::from_hours(1));
        Self { words, transition, token_life, page: PAGE, ..Self::default() }
    }

    /// The cloud's words.
    pub fn words(&self) -> Words {
        self.words
    }

    pub(crate) fn tick(&mut self, now: Duration) {
        self.now = self.now.max(now);
        let mut waiting = Vec::new();
        for machine in self.machines.values_mut() {
            machine.stale.take_if(|(until, _)| *until <= self.now);
            if let Some((_, word)) = machine.next.take_if(|(until, _)| *until <= self.now) {
                if word == self.words.running && machine.word == self.words.starting {
                    machine.starts += 1;
                    machine.started = self.epoch + self.now.as_secs_f64();
                }
                machine.stops += u32::from(word == self.words.stopped && machine.word == self.words.stopping);
                machine.word = word;
                machine.since = self.epoch + self.now.as_secs_f64();
                waiting.extend(machine.queue.pop_front().map(|up| (machine.name.clone(), up)));
            }
        }
        for (name, up) in waiting {
            self.move_to(&name, up, None);
        }
    }

    /// No token is valid any more.
    pub fn revoke(&mut self) {
        self.tokens.clear();
    }

    /// Everything under way ends.
    pub fn finish(&mut self) {
        self.tick(self.now + self.transition);
    }

    /// A machine that runs.
    pub fn boot(&mut self, name: &str, owner: &str, group: &str) {
        let number = self.made;
        self.made += 1;
        let machine = Machine {
            name: name.to_owned(),
            id: format!("0717_{number:08x}"),
            owner: owner.to_owned(),
            group: group.to_owned(),
            vpc: format!("{owner}-vpc"),
            zone: ["a", "b", "c"][number % 3].to_owned(),
            word: self.words.running.to_owned(),
            ..Machine::default()
        };
        self.machines.insert(name.to_owned(), machine);
    }

    /// From now on this goes wrong too.
    pub fn rule(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// Nothing goes wrong any more.
    pub fn heal(&mut self) {
        self.rules.clear();
    }

    /// The name of the machine with this ID, or what was given.
    pub(crate) fn name_of(&self, id: &str) -> String {
        let found = self.machines.values().find(|machine| machine.id == id);
        found.map_or_else(|| id.to_owned(), |machine| machine.name.clone())
    }

    pub(crate) fn fault(&mut self, call: &Call) -> Option<Effect> {
        let meets = |rule: &Rule| {
            let is_left = rule.times != Some(0);
            let of_call = rule.call.is_empty() || rule.call == call.name;
            is_left && of_call && (rule.machine.is_empty() || rule.machine == call.machine)
        };
        let rule = self.rules.iter_mut().find(|rule| meets(rule))?;
        rule.times = rule.times.map(|times| times - 1);
        Some(rule.effect.clone())
    }

    pub(crate) fn log(&mut self, call: &Call, status: u16) {
        let (name, machine, agent) = (call.name.to_owned(), call.machine.clone(), call.agent.clone());
        self.calls.push(LogEntry { call: name, machine, status, agent, query: call.query.clone() });
    }

    /// A new token.
    pub(crate) fn grant(&mut self) -> Value {
        let issued = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let life = self.token_life.as_secs();
        let token = opaque(self.tokens.len(), issued, life);
        self.tokens.insert(token.clone(), self.now + self.token_life);
        json!({"access_token": token, "token_type": "Bearer", "expires_in": life, "expiration": issued + life})
    }

    pub(crate) fn is_granted(&self, token: &str) -> bool {
        self.tokens.get(token).is_some_and(|until| self.now < *until)
    }

    /// Takes one of `burst` tokens that come back at so many a minute.
    pub(crate) fn admit(&mut self, bucket: &str, burst: f64, a_minute: f64) -> bool {
        let now = self.now;
        let bucket = self.buckets.entry(bucket.to_owned()).or_insert(Bucket { tokens: burst, at: now });
        let back = now.saturating_sub(bucket.at).as_secs_f64() * a_minute / 60.0;
        *bucket = Bucket { tokens: (bucket.tokens + back).min(burst), at: now };
        let is_admitted = bucket.tokens >= 1.0;
        bucket.tokens -= f64::from(u8::from(is_admitted));
        is_admitted
    }

    pub(crate) fn move_to(&mut self, name: &str, up: bool, effect: Option<Effect>) -> Moved {
        let Words { running, starting, stopping, stopped } = self.words;
        let Some(machine) = self.machines.get_mut(name) else { return Moved::NotFound };
        let (until, id) = (self.now + self.transition, format!("operation-{}", self.operations.len()));
        let (on_the_way, end, other) = if up { (starting, running, stopping) } else { (stopping, stopped, starting) };
        let mut operation = Operation { until, given_up: None };
        match machine.word.as_str() {
            _ if self.queues && machine.next.is_some() => machine.queue.push_back(up),
            CONFUSED => return Moved::Busy(CONFUSED.to_owned()),
            // One that hangs goes on to whatever is asked for.
            word if word == other && machine.next.is_some() => return Moved::Busy(machine.word.clone()),
            word if word == end => return Moved::There,
            word if word == on_the_way => {}
            _ => {
                let before = std::mem::replace(&mut machine.word, on_the_way.to_owned());
                machine.stale = (!self.lag.is_zero()).then(|| (self.now + self.lag, before.clone()));
                machine.reason = None;
                let mut then = end.to_owned();
                if let Some(Effect::GivenUp { code, message }) = effect {
                    then = before;
                    operation.given_up = Some((code.clone(), message.clone()));
                    machine.reason = up.then_some((code, message));
                }
                machine.next = Some((until, then));
            }
        }
        self.operations.insert(id.clone(), operation);
        Moved::Accepted(id)
    }

    /// Whether an operation is done, and why it was given up.
    pub(crate) fn operation(&self, id: &str) -> Option<(bool, Option<(String, String)>)> {
        let operation = self.operations.get(id)?;
        let is_done = operation.until <= self.now;
        Some((is_done, operation.given_up.clone().filter(|_| is_done)))
    }

    /// A page of the machines in this order, and where the next one begins.
    pub(crate) fn page<'a>(&self, all: &[&'a Machine], from: &str, most: usize) -> (Vec<&'a Machine>, Option<usize>) {
        let (from, most) = (from.parse().unwrap_or(0), most.clamp(1, self.page));
        let page = all.iter().skip(from).take(most).copied().collect();
        (page, (all.len() > from + most).then_some(from + most))
    }
}
