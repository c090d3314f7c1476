//! The policy says what the rules say: thousands of writes, and those of tests/corpus/hive.yaml, through the
//! `ValidatingAdmissionPolicy`, through the webhook on the same API server, and through the pure rules, compared write by
//! write for the rows that the policy has.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::Status;
use kube::{Client, ResourceExt as _};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use shared::admission::{Change, Edit, Exempts, Object as _, Objects, UNREADABLE, User};
use shared::annotation::keys;
use shared::hive::admission::{Cluster, default_settings, judge, stamp};
use shared::hive::api::ClusterDeployment;
use testbed::options::{Options, Program};
use testbed::supervisor::programs::Start;
use testbed::{World, apply, eventually};

use crate::match_writes::{self, Verb, applied, sent};

/// The same writes on every run.
const SEED: u64 = 20_261_121;
/// Stored clusters, each of them changed this many times, and clusters that are created.
const STORED: usize = 80;
const CHANGES: usize = 25;
const CREATIONS: usize = 400;
const AT_ONCE: usize = 24;

const NAMESPACE: &str = "twin";
const HIVE: &str = "system:serviceaccount:hive:hive-controllers";
const FINALIZER: &str = "hibernate.sh/test";
const ROWS: [&str; 7] = ["V3", "V5", "V6", "V8", "V9", "V10", UNREADABLE];

type Rows = BTreeSet<&'static str>;

/// A cluster as it is drawn. `None` is an absent field.
#[derive(Clone, Debug)]
struct Draft {
    power: Option<&'static str>,
    after: Option<String>,
    installed: Option<bool>,
    identity: Option<(&'static str, Option<&'static str>)>,
    annotations: [Option<&'static str>; NOTES],
}

const NOTES: usize = 10;
const FIELDS: usize = 4 + NOTES;

const ANNOTATIONS: [(&str, &[Option<&str>]); NOTES] = [
    (keys::PROTECTED, &[None, None, None, Some("true"), Some("false"), Some("TRUE"), Some("")]),
    (keys::REQUESTED_BY, &[None, None, Some("alice"), Some("bob"), Some("")]),
    (keys::REQUESTED_AT, &[None, None, Some("2026-11-21T18:00:00Z"), Some("2026-11-22T08:00:00Z"), Some("today")]),
    (keys::WAKE_AT, &[None, None, None, None, Some("2126-11-21T18:00:00Z"), Some("2126-02-30T18:00:00Z"), Some("")]),
    (
        keys::HOLD_AWAKE_UNTIL,
        &[
            None,
            None,
            None,
            None,
            Some("2126-11-21T18:00:00.5-08:30"),
            Some("2126-11-21T18:00:00Z"),
            Some("2126-02-29T00:00:00Z"),
        ],
    ),
    (keys::HOLD_AWAKE_BY, &[None, None, None, Some("alice"), Some("bob")]),
    (keys::REPLICAS, &[None, None, None, Some("3"), Some("007"), Some("2147483648"), Some("three")]),
    (keys::REASON, &[None, Some("weekend"), Some("quote \" and \\ and 'apostrophe'")]),
    (keys::ROLLOUT, &[None, None, None, None, Some("{}"), Some("claim")]),
    ("example.com/other", &[None, Some("x")]),
];

/// Durations that the schema lets through: good, zero in many disguises, at the edge of what Go can hold, beyond it.
const DURATIONS: &[&str] = &[
    "8h",
    "1h30m",
    "1.5h",
    "5m",
    "90s",
    "300ms",
    "7us",
    "7µs",
    "1ns",
    "1m1ms",
    "0s",
    "0h",
    "0h0m0.0s",
    "0.4ns",
    "0.0000000001s",
    "0.5ns0.5ns",
    "2562047h47m16.854775807s",
    "2562047h47m16.854775808s",
    "2562048h",
    "153722867m",
    "153722868m",
    "9223372036854775807ns",
    "9223372036854775808ns",
    "99999999h",
    "99999999999999999999999h",
    "2562047h100m",
    "1h99999999999h",
];

impl Draft {
    fn new(random: &mut StdRng) -> Self {
        let mut draft = Self { power: None, after: None, installed: None, identity: None, annotations: [None; NOTES] };
        (0..FIELDS).for_each(|field| draft.draw(field, random));
        draft
    }

    /// The same cluster with some fields drawn again.
    fn changed(&self, random: &mut StdRng) -> Self {
        let mut draft = self.clone();
        for field in 0..FIELDS {
            if random.random_bool(0.3) {
                draft.draw(field, random);
            }
        }
        draft
    }

    fn draw(&mut self, field: usize, random: &mut StdRng) {
        match field {
            0 => {
                self.power = pick(random, &[None, Some(""), Some("Running"), Some("Hibernating"), Some("Hibernating")]);
            }
            // The schema has no limit.
            1 if random.random_bool(0.05) => self.after = Some("1h0s".repeat(1_500)),
            1 => self.after = random.random_bool(0.6).then(|| pick(random, DURATIONS).to_owned()),
            2 => self.installed = pick(random, &[None, Some(false), Some(true), Some(true)]),
            3 => {
                let identities = [
                    None,
                    Some(("demo-x7k2p", Some("kubeconfig"))),
                    Some(("demo-x7k2p", Some("kubeconfig"))),
                    Some(("", Some("kubeconfig"))),
                    Some(("demo-x7k2p", Some(""))),
                    Some(("demo-x7k2p", None)),
                ];
                self.identity = pick(random, &identities);
            }
            other => self.annotations[other - 4] = pick(random, ANNOTATIONS[other - 4].1),
        }
    }

    fn annotations(&self) -> BTreeMap<&str, &str> {
        ANNOTATIONS.iter().zip(self.annotations).filter_map(|((key, _), value)| Some((*key, value?))).collect()
    }

    fn spec(&self) -> Value {
        let mut spec =
            json!({"baseDomain": "example.com", "clusterName": "demo", "platform": {"aws": {"region": "us-east-1"}}});
        let mut set = |key: &str, value: Option<Value>| value.into_iter().for_each(|value| spec[key] = value);
        set("powerState", self.power.map(Into::into));
        set("hibernateAfter", self.after.clone().map(Into::into));
        set("installed", self.installed.map(Into::into));
        set(
            "clusterMetadata",
            self.identity.map(|(infra, secret)| {
                let secret = secret.map_or_else(|| json!({}), |name| json!({"name": name}));
                json!({"clusterID": "1", "infraID": infra, "adminKubeconfigSecretRef": secret})
            }),
        );
        spec
    }
}

fn pick<T: Clone>(random: &mut StdRng, values: &[T]) -> T {
    values[random.random_range(0..values.len())].clone()
}

/// One write.
struct Case {
    old: Option<DynamicObject>,
    new: DynamicObject,
    exempt: bool,
}

struct Corpus {
    clusters: Api<DynamicObject>,
    as_hive: Api<DynamicObject>,
    cases: Vec<Case>,
}

/// The writes that all runners of admission share, in our namespace.
async fn shared_cases(hub: &Client, clusters: &Api<DynamicObject>) -> Result<Vec<Case>> {
    let mut shared = sent(match_writes::HIVE).cases;
    for case in &mut shared {
        case.stored["metadata"]["namespace"] = NAMESPACE.into();
    }
    match_writes::store(hub, &shared).await?;
    let mut cases = Vec::new();
    for case in &shared {
        let exempt = case.user == HIVE;
        let name = case.stored["metadata"]["name"].as_str().context("a name")?;
        match case.verb {
            Verb::Update => {
                let old = clusters.get(name).await?;
                let new = serde_json::from_value(applied(&json!(old), &case.write))?;
                cases.push(Case { old: Some(old), new, exempt });
            }
            Verb::Create => {
                let new = applied(&case.written(), &json!({ "metadata": { "name": format!("new-{name}") } }));
                cases.push(Case { old: None, new: serde_json::from_value(new)?, exempt });
            }
            // The policy judges no subresource and no deletion.
            Verb::Status | Verb::Scale | Verb::Delete | Verb::DeleteCollection => {}
            Verb::Both => bail!("{} is two writes", case.name),
        }
    }
    ensure!(cases.len() > 25, "{}", cases.len());
    Ok(cases)
}

fn clusters(client: Client) -> Api<DynamicObject> {
    Api::namespaced_with(client, NAMESPACE, &ApiResource::erase::<ClusterDeployment>(&()))
}

fn object(name: &str, draft: &Draft) -> DynamicObject {
    let mut object = DynamicObject::new(name, &ApiResource::erase::<ClusterDeployment>(&())).within(NAMESPACE);
    object.metadata.annotations =
        Some(draft.annotations().into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect());
    object.data = json!({ "spec": draft.spec() });
    object
}

impl Corpus {
    /// Stores clusters, some of which are being deleted, and draws the writes. Nothing judges yet.
    async fn new(world: &World) -> Result<Self> {
        let client = world.hub().await?;
        apply::all(&client, &[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})])
            .await?;
        let (clusters, as_hive) = (clusters(client), clusters(world.hub_as("hive-controllers").await?));
        let mut random = StdRng::seed_from_u64(SEED);
        let mut cases = Vec::new();
        for number in 0..STORED {
            let draft = Draft::new(&mut random);
            let name = format!("stored-{number}");
            let mut stored = object(&name, &draft);
            stored.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
            clusters.create(&PostParams::default(), &stored).await?;
            if number % 4 == 0 {
                clusters.delete(&name, &DeleteParams::default()).await?;
            }
            let old = clusters.get(&name).await?;
            for _ in 0..CHANGES {
                let wanted = object(&name, &draft.changed(&mut random));
                let mut new = old.clone();
                (new.metadata.annotations, new.data) = (wanted.metadata.annotations, wanted.data);
                cases.push(Case { old: Some(old.clone()), new, exempt: random.random_bool(0.1) });
            }
        }
        for number in 0..CREATIONS {
            let new = object(&format!("new-{number}"), &Draft::new(&mut random));
            cases.push(Case { old: None, new, exempt: random.random_bool(0.1) });
        }
        cases.extend(shared_cases(&world.hub().await?, &clusters).await?);
        Ok(Self { clusters, as_hive, cases })
    }

    /// Sends every write as a dry run, and returns which rows refused it.
    async fn ask(&self, read: fn(&Status) -> Result<Rows>) -> Result<Vec<Rows>> {
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let send = |case: &'_ Case| {
            let api = if case.exempt { &self.as_hive } else { &self.clusters };
            let (name, new, dry_run, update) =
                (case.new.name_any(), case.new.clone(), dry_run.clone(), case.old.is_some());
            async move {
                let answer =
                    if update { api.replace(&name, &dry_run, &new).await } else { api.create(&dry_run, &new).await };
                match answer {
                    Ok(_) => Ok(Rows::new()),
                    Err(kube::Error::Api(status)) => read(&status).with_context(|| format!("{name}: {new:?}")),
                    Err(error) => Err(error.into()),
                }
            }
        };
        stream::iter(self.cases.iter().map(send)).buffered(AT_ONCE).try_collect().await
    }

    /// What the rules say: of the writes as they are, as the policy alone sees them, or as the mutating webhook stamps
    /// them.
    fn judged(&self, stamped: bool) -> Result<Vec<Rows>> {
        let settings = default_settings();
        let [admin, hive] = ["admin", HIVE].map(|name| User { username: name.to_owned() });
        let read = |old: Option<&DynamicObject>, new: &DynamicObject| {
            let review = json!({ "request": { "object": new, "oldObject": old } }).to_string();
            Objects::<Cluster>::read(&review)
        };
        self.cases
            .iter()
            .map(|case| {
                let Objects { object, old_object: old, unread, .. } = read(case.old.as_ref(), &case.new)?;
                let new = object.context("an object")?;
                let now = Timestamp::now();
                let user = if case.exempt { &hive } else { &admin };
                let mut change = Change { old, new, user, field_manager: "", now, settings: &settings, unread };
                if stamped {
                    let mut object = case.new.clone();
                    for Edit { key, value } in stamp(&change).annotations {
                        match value {
                            Some(value) => drop(object.annotations_mut().insert(key.to_owned(), value)),
                            None => drop(object.annotations_mut().remove(key)),
                        }
                    }
                    change.new = read(None, &object)?.object.context("an object")?;
                }
                let denials = judge(&change).denials;
                let held = |row: &str, field: &str| row == "V6" && field.contains(keys::HOLD_AWAKE_UNTIL);
                Ok(denials
                    .iter()
                    .filter(|denial| !case.exempt || Cluster::exempts(&denial.detail) == Exempts::Users)
                    .filter(|denial| !held(denial.row, &denial.detail.field))
                    .filter_map(|denial| row(denial.row))
                    .collect())
            })
            .collect()
    }
}

fn row(name: &str) -> Option<&'static str> {
    ROWS.into_iter().find(|row| *row == name)
}

/// The policy names its row at the end of the message. It says only the first thing that is wrong.
fn said_by_policy(status: &Status) -> Result<Rows> {
    ensure!(status.message.contains("ValidatingAdmissionPolicy 'clusterdeployments.hibernate.sh'"), "{status:?}");
    let named = ROWS.into_iter().find(|row| status.message.ends_with(&format!("({row})")));
    // Between the precision of a double and the range of Go's integers, duration() itself fails, which denies as well.
    let named = named.or_else(|| status.message.contains("duration").then_some("V8"));
    // The 29th of February fits the pattern in every year, and timestamp() fails.
    let named = named.or_else(|| status.message.contains("Timestamp").then_some("V9"));
    Ok(Rows::from([named.with_context(|| format!("no row in {status:?}"))?]))
}

/// The webhook's causes carry field and reason.
fn said_by_webhook(status: &Status) -> Result<Rows> {
    ensure!(status.message.contains("hibernate.sh\" denied the request"), "{status:?}");
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    ensure!(!causes.is_empty(), "no causes in {status:?}");
    Ok(causes
        .iter()
        .filter_map(|cause| {
            let (field, forbidden) = (cause.field.as_str(), cause.reason == "FieldValueForbidden");
            match field {
                _ if cause.message.contains("which cannot be read") => Some(UNREADABLE),
                "metadata.deletionTimestamp" => Some("V3"),
                "spec.hibernateAfter" => Some("V8"),
                field if field.starts_with("spec.clusterMetadata") => Some("V5"),
                field if field.contains(keys::PROTECTED) && forbidden => Some("V6"),
                _ if cause.message.starts_with("cannot be edited: ") => Some("V10"),
                field if field.starts_with("metadata.annotations") && !forbidden => Some("V9"),
                _ => None,
            }
        })
        .collect())
}

async fn in_force(corpus: &Corpus, what: &str, in_force: bool) -> Result<()> {
    let mut probe = object(
        "probe",
        &Draft { power: Some("Hibernating"), after: None, installed: None, identity: None, annotations: [None; NOTES] },
    );
    probe.annotations_mut().insert(keys::PROTECTED.to_owned(), "true".to_owned());
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    eventually(Duration::from_mins(1), what, async || {
        let refused = corpus.clusters.create(&dry_run, &probe).await.is_err();
        if refused == in_force { Ok(()) } else { bail!("a protected cluster may be put to sleep: {}", !refused) }
    })
    .await
}

/// What V6 of the policy advises is done.
async fn a_protection_ends_as_advised(clusters: &Api<DynamicObject>) -> Result<()> {
    let draft = Draft { power: None, after: None, installed: None, identity: None, annotations: [None; NOTES] };
    let mut protected = object("advised", &draft);
    protected.annotations_mut().insert(keys::PROTECTED.to_owned(), "true".to_owned());
    clusters.create(&PostParams::default(), &protected).await?;
    let patch = async |patch: Value| clusters.patch("advised", &PatchParams::default(), &Patch::Merge(patch)).await;
    let sleep = json!({ "spec": { "powerState": "Hibernating" } });
    match patch(sleep.clone()).await {
        Err(kube::Error::Api(status)) => {
            let advice = "remove the annotation in a separate write, then put it to sleep";
            ensure!(status.message.contains(advice), "{}", status.message);
        }
        other => bail!("{other:?} is no refusal"),
    }
    patch(json!({ "metadata": { "annotations": { keys::PROTECTED: null } } })).await?;
    patch(sleep).await.map(drop).context("what was advised is done")
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_webhook_and_rules_agree_on_thousands_of_writes() -> Result<()> {
    let _heavy = testbed::heavy().await?;
    let world = World::up(Options::bare_hub()).await?;
    let corpus = Corpus::new(&world).await?;
    ensure!(corpus.cases.len() >= 2_000);
    let (expected, stamped) = (corpus.judged(false)?, corpus.judged(true)?);

    let client = world.hub().await?;
    apply::all(&client, &manifests::policy()).await?;
    in_force(&corpus, "policy in force", true).await?;
    let policy = corpus.ask(said_by_policy).await.context("ask the policy")?;
    a_protection_ends_as_advised(&corpus.clusters).await?;
    let remove =
        world.kubectl(&["delete", "validatingadmissionpolicybinding", "clusterdeployments.hibernate.sh"]).await?;
    remove.ok()?;
    in_force(&corpus, "end of the policy", false).await?;

    world.start(&Start::new(Program::Webhook)).await?;
    in_force(&corpus, "webhook in force", true).await?;
    let webhook = corpus.ask(said_by_webhook).await.context("ask the webhook")?;

    let mut denials: BTreeMap<&str, usize> = BTreeMap::new();
    let mut differences = Vec::new();
    for (number, case) in corpus.cases.iter().enumerate() {
        let (rules, stamped) = (&expected[number], &stamped[number]);
        let (policy, webhook) = (&policy[number], &webhook[number]);
        for row in rules {
            *denials.entry(row).or_default() += 1;
        }
        if policy.is_empty() != rules.is_empty() || !policy.is_subset(rules) || webhook != stamped {
            differences.push(format!(
                "rules {rules:?}, policy {policy:?}, webhook {webhook:?}, exempt {}: {:?} -> {:?}",
                case.exempt, case.old, case.new
            ));
        }
    }
    println!("{} writes; denied by {denials:?}", corpus.cases.len());
    assert!(
        differences.is_empty(),
        "{} differences, such as\n{}",
        differences.len(),
        differences[..differences.len().min(5)].join("\n")
    );
    for row in ROWS {
        assert!(denials.get(row).copied().unwrap_or_default() >= 20, "{row} is hardly tested: {denials:?}");
    }
    Ok(())
}
