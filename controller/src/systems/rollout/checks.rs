//! Checks of spokes before a sleep. They run concurrently with reconciles: an unresponsive spoke delays its own target.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use shared::spoke::SpokeError;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::fleet::{Identity, Verdict};
use crate::runtime::slot;
use fair::FairLimit;

/// Checks of one rollout at once, and those of one namespace: its spokes may all be silent.
const CONCURRENT: (usize, usize) = (32, 16);
/// The same over all rollouts.
const OF_ALL: (usize, usize) = (256, 128);
/// How long a reconcile waits for the checks that it began. Most spokes answer sooner.
const WAIT: Duration = Duration::from_millis(500);
/// Oldest answer that a target is started on: an upgrade may have begun since.
const MAX_AGE: Duration = Duration::from_secs(15);
/// Longest check, from its turn: the kubeconfig from the hub, the connection, the answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A verdict, and when it was given.
type Answer = (Verdict, Instant);

/// Turns for the checks of all rollouts.
pub fn turns() -> Arc<FairLimit> {
    FairLimit::new(OF_ALL.0, OF_ALL.1)
}

/// The checks of one rollout. They end with it.
pub struct Checks {
    limit: Arc<FairLimit>,
    tasks: JoinSet<()>,
    sender: UnboundedSender<(Identity, Answer)>,
    receiver: UnboundedReceiver<(Identity, Answer)>,
    under_way: HashSet<Identity>,
    answers: HashMap<Identity, Answer>,
    /// Until when this reconcile waits.
    until: Option<Instant>,
}

impl Default for Checks {
    fn default() -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        let (under_way, answers) = (HashSet::new(), HashMap::new());
        let limit = FairLimit::new(CONCURRENT.0, CONCURRENT.1);
        Self { limit, tasks: JoinSet::new(), sender, receiver, under_way, answers, until: None }
    }
}

impl Checks {
    /// Begins a check of a target, unless it has a fresh answer, or too many of its namespace are under way. Whether an
    /// answer is there or will come. `answered` is called after an answer for which the reconcile does not wait.
    pub fn begin(
        &mut self,
        target: &Identity,
        turns: &Arc<FairLimit>,
        check: impl Future<Output = Verdict> + Send + 'static,
        answered: impl FnOnce() + Send + 'static,
    ) -> bool {
        self.collect();
        if self.answers.contains_key(target) || self.under_way.contains(target) {
            return true;
        }
        let ((namespace, _), _) = target;
        let Some(permit) = self.limit.try_acquire(namespace) else { return false };
        let (turns, namespace) = (turns.clone(), namespace.clone());
        self.under_way.insert(target.clone());
        let until = *self.until.get_or_insert_with(|| Instant::now() + WAIT);
        let (sender, target) = (self.sender.clone(), target.clone());
        self.tasks.spawn(async move {
            let late = || Err(SpokeError::Failed(format!("its check takes longer than {} s", TIMEOUT.as_secs())));
            let turn = turns.acquire(&namespace).await;
            let verdict = tokio::time::timeout(TIMEOUT, check).await.unwrap_or_else(|_| late());
            drop((turn, permit));
            // The receiver lives longer than its tasks.
            let _ = sender.send((target, (verdict, Instant::now())));
            if Instant::now() >= until {
                answered();
            }
        });
        true
    }

    /// The targets whose checks are under way.
    pub fn under_way(&mut self) -> &HashSet<Identity> {
        self.collect();
        &self.under_way
    }

    /// Takes what speaks against targets. That needs no free slot.
    pub fn objections(&mut self) -> Vec<(Identity, String)> {
        self.collect();
        let objects = |_: &Identity, (verdict, _): &mut Answer| matches!(verdict, Ok(Some(_)));
        let found = self.answers.extract_if(objects);
        found.filter_map(|(target, (verdict, _))| Some((target, verdict.ok()??))).collect()
    }

    /// The next answer about one of these targets. `None` when this reconcile has waited long enough for those that it
    /// began.
    pub async fn next<T>(&mut self, wanted: &HashMap<Identity, T>) -> Option<(Identity, Verdict)> {
        loop {
            self.collect();
            if let Some((target, (verdict, _))) = self.answers.extract_if(|one, _| wanted.contains_key(one)).next() {
                return Some((target, verdict));
            }
            let is_awaited = self.under_way.iter().any(|target| wanted.contains_key(target));
            let until = self.until.filter(|until| is_awaited && *until > Instant::now())?;
            if let Ok(Some(answer)) = slot::outside(tokio::time::timeout_at(until, self.receiver.recv())).await {
                self.keep(answer);
            }
        }
    }

    /// Ends the wait of this reconcile.
    pub fn end(&mut self) {
        self.until = None;
    }

    fn collect(&mut self) {
        while let Ok(answer) = self.receiver.try_recv() {
            self.keep(answer);
        }
        self.answers.retain(|_, (_, at)| at.elapsed() < MAX_AGE);
        while self.tasks.try_join_next().is_some() {}
    }

    fn keep(&mut self, (target, answer): (Identity, Answer)) {
        self.under_way.remove(&target);
        self.answers.insert(target, answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(name: &str) -> Identity {
        let (namespace, name) = name.split_once('/').unwrap_or(("n", name));
        ((namespace.to_owned(), name.to_owned()), format!("uid of {name}"))
    }

    /// A check that takes so long. Reconciles that its answer asks for come here.
    fn begin(checks: &mut Checks, name: &str, seconds: u64, asks: &UnboundedSender<()>) -> bool {
        let check = async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok(if seconds == 8 { Some("silent".to_owned()) } else { None })
        };
        let asks = asks.clone();
        checks.begin(&target(name), &turns(), check, move || asks.send(()).expect("a receiver"))
    }

    /// Who answers one reconcile that asks about these, and how long that takes.
    async fn answered(checks: &mut Checks, names: &[&str]) -> (Vec<String>, Duration) {
        let wanted = names.iter().map(|name| (target(name), 0_u8)).collect();
        let begin = Instant::now();
        let mut found = Vec::new();
        while let Some((((_, name), _), _)) = checks.next(&wanted).await {
            found.push(name);
        }
        checks.end();
        (found, begin.elapsed())
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_spoke_delays_a_reconcile_once_and_asks_for_a_later_one() {
        let (mut checks, (asks, mut asked)) = (Checks::default(), mpsc::unbounded_channel());
        assert!(begin(&mut checks, "silent", 8, &asks) && begin(&mut checks, "quick", 0, &asks));
        assert_eq!(answered(&mut checks, &["silent", "quick"]).await, (names(&["quick"]), WAIT));
        assert!(asked.try_recv().is_err(), "the reconcile has waited for the answer");
        assert_eq!(checks.under_way(), &HashSet::from([target("silent")]));
        assert!(begin(&mut checks, "silent", 0, &asks));
        assert_eq!(answered(&mut checks, &["silent"]).await, (vec![], Duration::ZERO), "it is under way");
        asked.recv().await.expect("a reconcile");
        assert!(checks.under_way().is_empty(), "the answer is there when its reconcile begins");
        assert_eq!(answered(&mut checks, &["other"]).await, (vec![], Duration::ZERO), "it is kept");
        assert_eq!(checks.objections(), [(target("silent"), "silent".to_owned())], "also without a slot");
        assert_eq!(answered(&mut checks, &["silent"]).await, (vec![], Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_was_not_asked_for_soon_is_dropped() {
        let (mut checks, (asks, _asked)) = (Checks::default(), mpsc::unbounded_channel());
        begin(&mut checks, "a", 1, &asks);
        assert_eq!(answered(&mut checks, &["a"]).await, (vec![], WAIT));
        // The rollout is paused meanwhile.
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(answered(&mut checks, &["a"]).await, (vec![], Duration::ZERO));
        begin(&mut checks, "a", 0, &asks);
        assert_eq!(answered(&mut checks, &["a"]).await.0, names(&["a"]), "it is checked again");
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_at_once_each_within_its_time() {
        let (mut checks, (asks, _asked)) = (Checks::default(), mpsc::unbounded_channel());
        let mut begun = |namespace| {
            let names = (0..100).map(|number| format!("{namespace}/{number}"));
            names.filter(|name| begin(&mut checks, name, 1_000, &asks)).count()
        };
        // However many silent spokes one namespace has, others are checked.
        assert_eq!((begun("n"), begun("other"), begun("third")), (16, 8, 4));
        tokio::time::sleep(TIMEOUT + Duration::from_secs(1)).await;
        let wanted = HashMap::from([(target("0"), 0_u8)]);
        let (_, verdict) = checks.next(&wanted).await.expect("an answer");
        assert!(matches!(verdict, Err(SpokeError::Failed(_))), "{verdict:?}");
    }
}
