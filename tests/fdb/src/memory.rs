//! One cluster in memory, on a clock of its own: the objects as the API server keeps them, Pods that start and end, and
//! the operator, which works when its surroundings have changed or its time has come.

use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::Ipv4Addr;
use std::ops::DerefMut;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use anyhow::{Result, bail};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::database::{Database, Process, UpdateMode};
use crate::operator::api::Cluster;
use crate::operator::pass::{self, Ended, SubStep};
use crate::operator::{Conflict, Kind, Observed, Queue, Surroundings};
use crate::{API_VERSION, KIND};

/// Objects as the API server keeps them.
#[derive(Clone, Debug, PartialEq)]
pub struct Objects {
    pub cluster: Value,
    pub claims: Vec<Value>,
    pub services: Vec<Value>,
    pub pods: Vec<Value>,
    pub now: Timestamp,
}

impl Objects {
    /// A cluster as its owner creates it.
    pub fn new(name: &str, namespace: &str, spec: &Value, now: Timestamp) -> Self {
        let metadata = json!({
            "name": name, "namespace": namespace, "uid": "owner", "resourceVersion": "1", "generation": 1,
        });
        Self {
            cluster: json!({ "apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec }),
            claims: Vec::new(),
            services: Vec::new(),
            pods: Vec::new(),
            now,
        }
    }

    fn of_kind(&mut self, kind: Kind) -> &mut Vec<Value> {
        match kind {
            Kind::Pod => &mut self.pods,
            Kind::Claim => &mut self.claims,
            Kind::Service => &mut self.services,
            Kind::Cluster => unreachable!("there is one"),
        }
    }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Raises an object's resourceVersion.
pub fn bump(object: &mut Value) {
    let version = object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse::<u64>().ok());
    object["metadata"]["resourceVersion"] = json!((version.unwrap_or_default() + 1).to_string());
}

/// Numbers that are the same in every run of the tests.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        let mut dice = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..8 {
            dice.below(2);
        }
        dice
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % end
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// When something happens to a Pod, seconds since 1970.
struct Life {
    runs: i64,
    reports: i64,
    ends: Option<i64>,
}

/// Everything but the operator.
pub struct State<W> {
    pub objects: W,
    pub database: Database,
    pub dice: Dice,
    /// Whether the API server denies the DELETE of a volume claim.
    pub denies: fn(&Objects, &Value) -> bool,
    /// Something that the operator watches has changed.
    pub is_dirty: bool,
    /// Whether sub-steps and Pods take the time that the dice say.
    pub is_random: bool,
    /// A sub-step that is slow: for how many seconds, and in how many more passes.
    pub slow: Option<(SubStep, i64, u64)>,
    /// What happened, with the second.
    pub log: Vec<String>,
    lives: BTreeMap<String, Life>,
    made: u32,
}

impl<W: DerefMut<Target = Objects>> State<W> {
    pub fn note(&mut self, text: &str) {
        let now = self.objects.now.as_second();
        self.log.push(format!("{now} {text}"));
    }

    fn delay(&mut self, step: SubStep) -> i64 {
        match &mut self.slow {
            Some((slow, seconds, left)) if *slow == step && *left > 0 => {
                *left -= 1;
                *seconds
            }
            _ => i64::from(self.is_random && self.dice.one_in(9)),
        }
    }

    fn up_to(&mut self, most: u64) -> i64 {
        if self.is_random { self.dice.below(most + 1).cast_signed() } else { 0 }
    }

    /// A second passes: Pods start, report and end.
    fn advance(&mut self) {
        self.objects.now += SignedDuration::from_secs(1);
        let now = self.objects.now.as_second();
        for pod in &mut self.objects.pods {
            let Some(life) = self.lives.get(name(pod)).filter(|life| life.ends.is_none()) else { continue };
            if life.runs == now {
                pod["status"]["phase"] = json!("Running");
            }
            if life.reports == now {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let variables = pod["spec"]["containers"][0]["env"].as_array().into_iter().flatten();
                let variable =
                    |wanted: &str| variables.clone().find(|one| one["name"] == wanted).map(|one| text(&one["value"]));
                let claim = text(&pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"]);
                let group = variable("FDB_INSTANCE_ID").unwrap_or_default();
                self.database.mount(&claim, &claim, &group);
                let address = variable("FDB_PUBLIC_IP").unwrap_or_else(|| text(&pod["status"]["podIP"]));
                let zone = text(&pod["spec"]["nodeName"]);
                let pod = name(pod).to_owned();
                self.database.report(&group, Process { address, zone, pod, volume: Some(claim) });
            }
        }
        let ended = |pod: &Value| self.lives.get(name(pod)).is_some_and(|life| life.ends.is_some_and(|at| at <= now));
        let before = self.objects.pods.len();
        self.objects.pods.retain(|pod| !ended(pod));
        self.is_dirty |= self.objects.pods.len() < before;
    }

    fn create(&mut self, kind: Kind, mut object: Value) {
        self.made += 1;
        self.is_dirty = true;
        let (now, made) = (self.objects.now, self.made);
        object["metadata"]["uid"] = json!(format!("uid-{made}"));
        object["metadata"]["resourceVersion"] = json!("1");
        object["metadata"]["creationTimestamp"] = json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        if kind == Kind::Service {
            object["spec"]["clusterIP"] = json!(Ipv4Addr::from(0x0A60_0000 + made).to_string());
        }
        if kind == Kind::Pod {
            let zone = if self.is_random { self.dice.below(3) } else { u64::from(made % 3) };
            object["spec"]["nodeName"] = json!(format!("zone-{zone}"));
            object["status"] = json!({ "phase": "Pending", "podIP": Ipv4Addr::from(0x0A00_0000 + made).to_string() });
            let runs = now.as_second() + 1 + self.up_to(2);
            let reports = runs + self.up_to(4);
            self.lives.insert(name(&object).to_owned(), Life { runs, reports, ends: None });
        }
        self.objects.of_kind(kind).push(object);
    }

    fn delete(&mut self, kind: Kind, wanted: &str) -> Result<()> {
        let now = self.objects.now;
        let Some(at) = self.objects.of_kind(kind).iter().position(|object| name(object) == wanted) else {
            return Ok(());
        };
        if kind == Kind::Claim && (self.denies)(&self.objects, &self.objects.claims[at]) {
            self.note(&format!("DELETE {} {wanted}: denied", kind.name()));
            bail!("admission webhook denied the request");
        }
        self.note(&format!("DELETE {} {wanted}", kind.name()));
        self.is_dirty = true;
        if kind == Kind::Pod {
            self.objects.pods[at]["metadata"]["deletionTimestamp"] = json!(now.to_string());
            self.database.fall_silent(wanted);
            let ends = Some(now.as_second() + 1 + self.up_to(2));
            self.lives.entry(wanted.to_owned()).and_modify(|life| life.ends = ends);
        } else {
            self.objects.of_kind(kind).remove(at);
        }
        if kind == Kind::Claim {
            self.database.lose(wanted);
        }
        Ok(())
    }
}

/// What the operator works on.
struct Hub<W>(Rc<RefCell<State<W>>>);

impl<W: DerefMut<Target = Objects>> Hub<W> {
    async fn wait_until(&self, second: i64) {
        poll_fn(|_| if self.0.borrow().objects.now.as_second() >= second { Poll::Ready(()) } else { Poll::Pending })
            .await;
    }
}

impl<W: DerefMut<Target = Objects>> Surroundings for Hub<W> {
    const SPEED: f64 = 1.0;
    const EXCLUSION_RECOVERY: f64 = 0.0;

    fn now(&self) -> Timestamp {
        self.0.borrow().objects.now
    }

    fn random(&self) -> u32 {
        u32::try_from(self.0.borrow_mut().dice.below(1 << 32)).unwrap_or_default()
    }

    #[expect(clippy::cast_possible_truncation, reason = "whole seconds")]
    async fn sleep(&self, seconds: f64) {
        self.wait_until(self.now().as_second() + seconds as i64).await;
    }

    async fn begin(&self, step: SubStep) {
        let seconds = self.0.borrow_mut().delay(step);
        self.wait_until(self.now().as_second() + seconds).await;
    }

    fn cluster(&self) -> Result<Option<Cluster>> {
        Cluster::new(self.0.borrow().objects.cluster.clone()).map(Some)
    }

    fn observe(&self, kind: Kind, wanted: &str) -> Option<Observed> {
        let mut state = self.0.borrow_mut();
        let found = state.objects.of_kind(kind).iter().find(|object| name(object) == wanted)?;
        Some(Observed::new(wanted, is_terminating(found), found))
    }

    fn claims(&self, labels: &BTreeMap<String, String>) -> Vec<Observed> {
        let state = self.0.borrow();
        let has_all = |claim: &&Value| labels.iter().all(|(key, value)| claim["metadata"]["labels"][key] == **value);
        let found = state.objects.claims.iter().filter(has_all);
        found.map(|claim| Observed::new(name(claim), is_terminating(claim), claim)).collect()
    }

    async fn create(&self, kind: Kind, objects: Vec<Value>) -> Result<()> {
        let mut state = self.0.borrow_mut();
        for object in objects {
            state.create(kind, object);
        }
        Ok(())
    }

    async fn delete(&self, kind: Kind, name: &str) -> Result<()> {
        self.0.borrow_mut().delete(kind, name)
    }

    async fn write_status(&self, cluster: &mut Cluster) -> Result<()> {
        let mut state = self.0.borrow_mut();
        let is_update = state.database.settings.update_mode == UpdateMode::Update;
        let stored = &mut state.objects.cluster;
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        if is_update && version(stored) != version(&cluster.object) {
            return Err(Conflict.into());
        }
        stored["status"] = serde_json::to_value(&cluster.status)?;
        bump(stored);
        if is_update {
            cluster.object = stored.clone();
        }
        Ok(())
    }

    fn with_database<T>(&self, act: impl FnOnce(&mut Database) -> T) -> Result<T> {
        Ok(act(&mut self.0.borrow_mut().database))
    }

    fn log_command(&self, text: String) -> Result<()> {
        self.0.borrow_mut().note(&text);
        Ok(())
    }
}

/// A cluster with its operator.
pub struct Memory<W = Box<Objects>> {
    state: Rc<RefCell<State<W>>>,
    queue: Queue,
    pass: Option<Pin<Box<dyn Future<Output = Result<Ended>>>>>,
}

impl<W: DerefMut<Target = Objects> + 'static> Memory<W> {
    /// A database whose operator has yet to make everything.
    pub fn new(objects: W, seed: u64, denies: fn(&Objects, &Value) -> bool) -> Self {
        let state = State {
            objects,
            database: Database::default(),
            dice: Dice::new(seed),
            denies,
            is_dirty: true,
            is_random: false,
            slow: None,
            log: Vec::new(),
            lives: BTreeMap::new(),
            made: 0,
        };
        Self { state: Rc::new(RefCell::new(state)), queue: Queue::default(), pass: None }
    }

    /// Everything but the operator. Not to be kept while a second passes.
    pub fn state(&self) -> RefMut<'_, State<W>> {
        self.state.borrow_mut()
    }

    /// A second passes, and the operator works as far as it gets.
    pub fn tick(&mut self) {
        self.state().advance();
        for _ in 0..40 {
            let now = pass::seconds(self.state().objects.now);
            let mut pass = if let Some(pass) = self.pass.take() {
                pass
            } else {
                let is_due = self.queue.take(now);
                if !std::mem::take(&mut self.state().is_dirty) && !is_due {
                    return;
                }
                self.state().note("pass begins");
                let hub = Hub(self.state.clone());
                Box::pin(async move { pass::run(&hub).await })
            };
            match pass.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => {
                    self.pass = Some(pass);
                    return;
                }
                Poll::Ready(result) => {
                    let Ended { result, again } = self.queue.put(result, now);
                    self.state().note(&format!("pass ends: {result}; again in {again:?}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
