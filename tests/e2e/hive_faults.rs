//! What a cluster's sleep and wake need fails midway: the hub, the spoke, EC2. Each time the wanted state is reached,
//! nothing is moved the wrong way or twice, and what is asked of EC2 and written to the hub stays within bounds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use shared::hive::conditions::PROGRESS;
use testbed::ec2::check::{moved_once, without_repeats};
use testbed::ec2::{Call, Fault};
use testbed::proxy::faults::{Effect, Rule};
use testbed::world::handle::Cluster;
use testbed::{ClusterOptions, World};

const SOON: Duration = Duration::from_mins(1);
const SIZE: usize = 4;
/// User agent of the controller.
const CONTROLLER: &str = "hibernate-controller/";

/// Limits on calls and writes during one sleep or wake: so many, and one more for each `every` that it takes.
struct Most {
    calls: usize,
    writes: u32,
    every: Duration,
}

/// Without faults, a sleep takes 6 EC2 calls and 3 writes, a wake 8 and 6. A failed reconcile is retried after at least
/// two seconds, and each reconcile makes at most one call and one write.
const USUAL: Most = Most { calls: 12, writes: 10, every: Duration::from_secs(2) };

struct Subject {
    world: World,
    cluster: Cluster,
    /// The rule that counts what the controller writes on the cluster's object, refused or not.
    writes: String,
}

/// One sleep or wake.
struct Turn {
    asleep: bool,
    begun: Instant,
    calls: usize,
    writes: u32,
}

impl Subject {
    async fn new(world: World, name: &str) -> Result<Self> {
        let options = ClusterOptions { own_account: true, ..ClusterOptions::of_size(SIZE) };
        let cluster = world.cluster(name, options).await?;
        let path = format!("/apis/hive.openshift.io/v1/namespaces/{}/", cluster.namespace());
        let counter = Rule::default().method("PATCH").path(&path).user_agent(CONTROLLER);
        let writes = world.inject("hub", &counter).await?.id;
        cluster.wait_for_power_state("Running", SOON).await?;
        Ok(Self { world, cluster, writes })
    }

    async fn shared(name: &str) -> Result<Self> {
        Self::new(World::shared().await?, name).await
    }

    /// Every call to EC2 on behalf of this cluster.
    async fn calls(&self) -> Result<Vec<Call>> {
        let mut calls = self.world.ec2().calls().await?;
        calls.retain(|call| call.access_key == self.cluster.info().access_key_id);
        Ok(calls)
    }

    /// What the controller has written, or tried to write.
    async fn writes(&self) -> Result<u32> {
        self.world.hits("hub", &self.writes).await
    }

    async fn turn(&self, asleep: bool) -> Result<Turn> {
        let turn =
            Turn { asleep, begun: Instant::now(), calls: self.calls().await?.len(), writes: self.writes().await? };
        if asleep {
            self.cluster.sleep().await?
        } else {
            self.cluster.wake().await?
        };
        Ok(turn)
    }

    /// Waits until the controller has sent the stop or start.
    async fn noted(&self, turn: &Turn) -> Result<()> {
        let action = if turn.asleep { "StopInstances" } else { "StartInstances" };
        testbed::eventually(SOON, action, async || {
            testbed::ensure_that(self.calls().await?.split_off(turn.calls), |calls| {
                calls.iter().any(|call| call.action == action)
            })
        })
        .await
    }

    /// It reaches the desired state; no needless stop or start was sent, and calls and writes stay within `most`.
    async fn arrive(&self, turn: &Turn, most: &Most) -> Result<()> {
        let (end, state) = if turn.asleep { ("Hibernating", "stopped") } else { ("Running", "running") };
        self.cluster.wait_for_power_state(end, SOON).await?;
        tokio::time::sleep(Duration::from_secs(2)).await; // a hot loop in the steady state would show
        let states = self.cluster.states().await?;
        ensure!(states == BTreeMap::from([(state.to_owned(), SIZE)]), "{states:?}");
        let calls = self.calls().await?.split_off(turn.calls);
        moved_once(&without_repeats(calls.clone()), turn.asleep, SIZE)?;
        let more = u32::try_from(turn.begun.elapsed().as_millis() / most.every.as_millis())?;
        let writes = self.writes().await? - turn.writes;
        eprintln!(
            "{} {end}: {} calls, {writes} writes in {:?}",
            self.cluster.name(),
            calls.len(),
            turn.begun.elapsed()
        );
        ensure!(calls.len() <= most.calls + more as usize, "{} calls: {calls:#?}", calls.len());
        ensure!(writes <= most.writes + more, "{writes} writes");
        Ok(())
    }

    async fn break_hub(&self, rule: Rule) -> Result<String> {
        Ok(self.world.inject("hub", &rule.user_agent(CONTROLLER)).await?.id)
    }

    async fn break_cloud(&self, fault: Fault) -> Result<String> {
        let fault = Fault { access_key: Some(self.cluster.info().access_key_id.clone()), ..fault };
        Ok(self.world.ec2().inject(&fault).await?.id)
    }

    async fn remove(self) -> Result<()> {
        self.world.heal("hub", Some(&self.writes)).await?;
        self.cluster.remove().await
    }
}

#[tokio::test]
async fn every_third_write_is_denied_with_the_code_of_a_conflict() -> Result<()> {
    let subject = Subject::shared("contended").await?;
    let path = format!("/apis/hive.openshift.io/v1/namespaces/{}/", subject.cluster.namespace());
    let mut rules = Vec::new();
    // A rule does not see what an earlier one has met: the n-th lets 2 n requests pass and meets the 3 n-th of all.
    for n in 1..=12 {
        // As by a webhook of others: nobody has written in between.
        let denial = Effect::Status { code: 409, retry_after: None, message: None };
        let rule = Rule::new(denial).method("PATCH").path(&path).skip(2 * n).count(1);
        rules.push(subject.break_hub(rule).await?);
    }
    for asleep in [true, false] {
        let turn = subject.turn(asleep).await?;
        // A denied write is repeated after 2 s, and two thirds of the writes go through.
        subject.arrive(&turn, &USUAL).await?;
    }
    let mut met = 0;
    for rule in rules {
        met += subject.world.hits("hub", &rule).await?;
        subject.world.heal("hub", Some(&rule)).await?;
    }
    ensure!(met >= 2, "{met} denials");
    subject.remove().await
}

/// The write succeeds but its answer is lost: the controller must not take it for a conflict.
#[tokio::test]
async fn answers_to_writes_get_lost() -> Result<()> {
    let subject = Subject::shared("unanswered").await?;
    let path = format!("/apis/hive.openshift.io/v1/namespaces/{}/", subject.cluster.namespace());
    let lost = Rule::new(Effect::Cut { after_upstream: true }).method("PATCH").path(&path).count(4);
    let lost = subject.break_hub(lost).await?;
    for asleep in [true, false] {
        let turn = subject.turn(asleep).await?;
        subject.arrive(&turn, &USUAL).await?;
    }
    ensure!(subject.world.hits("hub", &lost).await? == 4, "all four were lost");
    subject.world.heal("hub", Some(&lost)).await?;
    subject.remove().await
}

#[tokio::test]
async fn a_spoke_accepts_and_never_answers_until_it_does() -> Result<()> {
    let subject = Subject::shared("mute").await?;
    let proxy = subject.cluster.info().infra_id.clone();
    let turn = subject.turn(true).await?;
    subject.arrive(&turn, &USUAL).await?;
    let asked = subject.cluster.inject(&Rule::default().user_agent(CONTROLLER)).await?.id;
    let hang = subject.cluster.inject(&Rule::new(Effect::Hang).user_agent(CONTROLLER)).await?.id;
    let turn = subject.turn(false).await?;
    let silent = |found: &shared::hive::api::ClusterDeployment| {
        let progress = found.condition(PROGRESS).and_then(|c| c.message.as_deref()).unwrap_or_default();
        progress.contains("did not answer within")
    };
    subject.cluster.wait_for("word of the silence", SOON, silent).await?;
    tokio::time::sleep(Duration::from_secs(10)).await; // another try has been cut off by then
    let (tries, most) = (subject.world.hits(&proxy, &asked).await?, turn.begun.elapsed().as_secs() / 8 + 2);
    ensure!(u64::from(tries) <= most, "{tries} tries of 8 s each in {:?}", turn.begun.elapsed());
    subject.world.heal(&proxy, Some(&hang)).await?;
    subject.arrive(&turn, &USUAL).await?;
    subject.remove().await
}

#[tokio::test]
async fn a_spokes_watches_are_cut_every_second() -> Result<()> {
    let subject = Subject::shared("choppy").await?;
    let proxy = subject.cluster.info().infra_id.clone();
    let turn = subject.turn(true).await?;
    subject.arrive(&turn, &USUAL).await?;
    let cut = Rule::new(Effect::DropWatch { after_millis: 1_000 }).user_agent(CONTROLLER);
    let cut = subject.cluster.inject(&cut).await?.id;
    let turn = subject.turn(false).await?;
    subject.arrive(&turn, &USUAL).await?;
    // Four watches, each of which lives for a second; ten more for lists and the first tries.
    let (asked, most) = (subject.world.hits(&proxy, &cut).await?, 4 * turn.begun.elapsed().as_secs() + 10);
    ensure!(asked > 4 && u64::from(asked) <= most, "{asked} requests in {:?}", turn.begun.elapsed());
    subject.remove().await
}

/// Twenty seconds are enough: the pause between tries has reached its greatest length of 20 s by then, and stays there.
#[tokio::test]
async fn ec2_is_unavailable_for_a_while() -> Result<()> {
    let subject = Subject::shared("cloudy").await?;
    for asleep in [true, false] {
        // The first list passes, so that the fault hits the start and the stop.
        let outage = Fault { code: Some("Unavailable".into()), status: Some(503), skip: 1, ..Fault::default() };
        let outage = subject.break_cloud(outage).await?;
        let turn = subject.turn(asleep).await?;
        tokio::time::sleep(Duration::from_secs(20)).await;
        let met = subject.calls().await?.split_off(turn.calls).len();
        // After 0, 5 and 15 s, each try with three attempts; the first list passed.
        ensure!((4..=13).contains(&met), "{met} calls during the outage");
        subject.world.ec2().heal(Some(&outage)).await?;
        let most = Most { calls: 12 + met, ..USUAL };
        subject.arrive(&turn, &most).await?;
    }
    subject.remove().await
}

/// Faults that meet every cluster of the world.
mod alone {
    use std::time::{Duration, Instant};

    use anyhow::{Context as _, Result, ensure};
    use testbed::proxy::faults::{Effect, Rule};
    use testbed::supervisor::programs::Start;
    use testbed::{ClusterOptions, Options, Program, World};

    use super::{SOON, Subject, USUAL};

    /// After this long without a renewal of its Lease the controller may not act.
    const RENEW_DEADLINE: Duration = Duration::from_secs(4);
    const WATCH: &str = "/apis/hive.openshift.io/v1/clusterdeployments";

    /// A world for faults that hit every cluster.
    async fn world() -> Result<World> {
        let without = vec![Program::Controller, Program::Webhook];
        let world = World::up(Options { clusters: 0, without, ..Options::shared() }).await?;
        world.start(&Start::new(Program::Controller).leased(["6s", "4s", "1s"])).await?;
        Ok(world)
    }

    #[tokio::test]
    async fn the_hubs_api_server_is_restarted() -> Result<()> {
        let world = world().await?;
        let subject = Subject::new(world.clone(), "hubless").await?;
        for asleep in [true, false] {
            let turn = subject.turn(asleep).await?;
            subject.noted(&turn).await?;
            world.signal("hub-apiserver", "kill").await?;
            tokio::time::sleep(Duration::from_secs(3)).await;
            world.signal("hub-apiserver", "restart").await?;
            let hub = world.hub().await?;
            testbed::eventually(SOON, "a hub that answers", async || {
                hub.apiserver_version().await?;
                subject.cluster.get().await.map(drop)
            })
            .await?;
            subject.arrive(&turn, &USUAL).await?;
        }
        // Whoever watches has not gone to sleep over the failures.
        let after = world.cluster("after", ClusterOptions::of_size(1)).await?;
        after.wait_for_power_state("Running", SOON).await?;
        after.remove().await?;
        subject.remove().await
    }

    /// A fault does not meet a watch that is open already, so the controller opens it anew.
    async fn break_watch(subject: &Subject, effect: Effect) -> Result<String> {
        let rule = subject.break_hub(Rule::new(effect).path(WATCH).query("watch=true")).await?;
        subject.world.signal("controller", "restart").await?;
        testbed::eventually(SOON, "a watch that meets the fault", async || {
            testbed::ensure_that(subject.world.hits("hub", &rule).await?, |hits| *hits > 0)
        })
        .await?;
        Ok(rule)
    }

    async fn watch_breaks(world: &World, name: &str, effect: Effect) -> Result<()> {
        let subject = Subject::new(world.clone(), name).await?;
        let begun = Instant::now();
        let rule = break_watch(&subject, effect).await?;
        for asleep in [true, false] {
            let turn = subject.turn(asleep).await?;
            subject.arrive(&turn, &USUAL).await?;
        }
        // Opened a second apart; two more, because the controller was started in between.
        let (watches, most) = (subject.world.hits("hub", &rule).await?, begun.elapsed().as_secs() + 2);
        eprintln!("{name}: {watches} watches in {:?}", begun.elapsed());
        ensure!(watches > 2 && u64::from(watches) <= most, "{watches} watches in {:?}", begun.elapsed());
        subject.world.heal("hub", Some(&rule)).await?;
        subject.remove().await
    }

    #[tokio::test]
    async fn the_watch_is_dropped_or_expires_again_and_again() -> Result<()> {
        let world = world().await?;
        watch_breaks(&world, "dropped", Effect::DropWatch { after_millis: 50 }).await.context("dropped")?;
        watch_breaks(&world, "expired", Effect::WatchExpired { after_millis: 300 }).await.context("expired")
    }

    /// Reads, watches, writes and the Lease, for longer than `--renew-deadline`: in the meantime the controller may not
    /// act.
    #[tokio::test]
    async fn the_hub_throttles_everything_for_a_while() -> Result<()> {
        let world = world().await?;
        let subject = Subject::new(world.clone(), "stormy").await?;
        for asleep in [true, false] {
            // So that the watch has to be opened in the storm, too.
            let drop = break_watch(&subject, Effect::DropWatch { after_millis: 3_000 }).await?;
            let turn = subject.turn(asleep).await?;
            subject.noted(&turn).await?;
            let storm = Effect::Status { code: 429, retry_after: Some(1), message: None };
            subject.world.heal("hub", Some(&drop)).await?;
            let storm = subject.break_hub(Rule::new(storm)).await?;
            let begun = Instant::now();
            tokio::time::sleep(RENEW_DEADLINE + Duration::from_secs(2)).await;
            // The Lease is read every second or two, reconciliations and watches are repeated more slowly.
            let (met, lasted) = (subject.world.hits("hub", &storm).await?, begun.elapsed());
            eprintln!("{met} requests in {lasted:?} of storm");
            ensure!(met >= 3 && u64::from(met) <= 4 * lasted.as_secs() + 1, "{met} requests in {lasted:?}");
            subject.world.heal("hub", Some(&storm)).await?;
            subject.arrive(&turn, &USUAL).await?;
        }
        subject.remove().await
    }
}
