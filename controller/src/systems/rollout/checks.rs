//! Checks of spokes before a sleep. They run beside the reconciles: a spoke that is silent delays its own target.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use shared::spoke::SpokeError;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::runtime::Key;

/// Checks of one rollout at once.
const CONCURRENT: usize = 32;
/// How long a reconcile waits for the checks that it began. Most spokes answer sooner.
const PATIENCE: Duration = Duration::from_millis(500);
/// Oldest answer that a target is started on: an upgrade may have begun since.
const FRESH: Duration = Duration::from_secs(15);

/// What speaks against a sleep, if anything. An error says nothing about the cluster.
pub type Verdict = Result<Option<String>, SpokeError>;

/// A verdict, and when it was given.
type Answer = (Verdict, Instant);

/// The checks of one rollout. They end with it.
pub struct Checks {
    tasks: JoinSet<()>,
    turns: Arc<Semaphore>,
    sender: UnboundedSender<(Key, Answer)>,
    receiver: UnboundedReceiver<(Key, Answer)>,
    under_way: HashSet<Key>,
    answers: HashMap<Key, Answer>,
    patience: Option<Instant>,
}

impl Default for Checks {
    fn default() -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Self {
            tasks: JoinSet::new(),
            turns: Arc::new(Semaphore::new(CONCURRENT)),
            sender,
            receiver,
            under_way: HashSet::new(),
            answers: HashMap::new(),
            patience: None,
        }
    }
}

impl Checks {
    /// Begins a check of a target, unless one is under way or has a fresh answer. `answered` is called after it.
    pub fn begin(
        &mut self,
        key: &Key,
        check: impl Future<Output = Verdict> + Send + 'static,
        answered: impl FnOnce() + Send + 'static,
    ) {
        self.collect();
        if self.answers.contains_key(key) || !self.under_way.insert(key.clone()) {
            return;
        }
        let (turns, sender, key) = (self.turns.clone(), self.sender.clone(), key.clone());
        self.tasks.spawn(async move {
            let turn = turns.acquire().await;
            let verdict = check.await;
            drop(turn);
            // The receiver lives longer than its tasks.
            let _ = sender.send((key, (verdict, Instant::now())));
            answered();
        });
        self.patience.get_or_insert_with(|| Instant::now() + PATIENCE);
    }

    /// The targets whose checks are under way.
    pub fn under_way(&mut self) -> &HashSet<Key> {
        self.collect();
        &self.under_way
    }

    /// The next answer about one of these targets. `None` when this reconcile has waited long enough for those that it began.
    pub async fn next<T>(&mut self, wanted: &HashMap<Key, T>) -> Option<(Key, Verdict)> {
        self.collect();
        loop {
            if let Some((key, (verdict, _))) = self.answers.extract_if(|key, _| wanted.contains_key(key)).next() {
                return Some((key, verdict));
            }
            let is_awaited = self.under_way.iter().any(|key| wanted.contains_key(key));
            let until = self.patience.filter(|_| is_awaited).unwrap_or_else(Instant::now);
            let Ok(Some(answer)) = tokio::time::timeout_at(until, self.receiver.recv()).await else {
                self.patience = None;
                return None;
            };
            self.keep(answer);
        }
    }

    fn collect(&mut self) {
        while let Ok(answer) = self.receiver.try_recv() {
            self.keep(answer);
        }
        self.answers.retain(|_, (_, at)| at.elapsed() < FRESH);
        while self.tasks.try_join_next().is_some() {}
    }

    fn keep(&mut self, (key, answer): (Key, Answer)) {
        self.under_way.remove(&key);
        self.answers.insert(key, answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        ("n".to_owned(), name.to_owned())
    }

    fn begin(checks: &mut Checks, name: &str, seconds: u64) {
        let check = async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok(None)
        };
        checks.begin(&key(name), check, || {});
    }

    /// Who answers one reconcile that asks about these, and how long that takes.
    async fn answered(checks: &mut Checks, names: &[&str]) -> (Vec<String>, Duration) {
        let wanted = names.iter().map(|name| (key(name), ())).collect();
        let begin = Instant::now();
        let mut found = Vec::new();
        while let Some((key, _)) = checks.next(&wanted).await {
            found.push(key.1);
        }
        (found, begin.elapsed())
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_spoke_delays_a_reconcile_once_and_answers_a_later_one() {
        let mut checks = Checks::default();
        begin(&mut checks, "silent", 8);
        begin(&mut checks, "quick", 0);
        assert_eq!(answered(&mut checks, &["silent", "quick"]).await, (names(&["quick"]), PATIENCE));
        assert_eq!(checks.under_way(), &HashSet::from([key("silent")]));
        begin(&mut checks, "silent", 0);
        assert_eq!(answered(&mut checks, &["silent"]).await, (vec![], Duration::ZERO), "it is under way");
        tokio::time::sleep(Duration::from_secs(8)).await;
        assert_eq!(answered(&mut checks, &["other"]).await, (vec![], Duration::ZERO), "it is kept");
        begin(&mut checks, "silent", 8);
        assert_eq!(answered(&mut checks, &["silent"]).await, (names(&["silent"]), Duration::ZERO));
        assert_eq!(answered(&mut checks, &["silent"]).await, (vec![], Duration::ZERO), "nothing is under way");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_was_not_asked_for_soon_is_dropped() {
        let mut checks = Checks::default();
        begin(&mut checks, "a", 1);
        assert_eq!(answered(&mut checks, &["a"]).await, (vec![], PATIENCE));
        // The rollout is paused meanwhile.
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(answered(&mut checks, &["a"]).await, (vec![], Duration::ZERO));
        begin(&mut checks, "a", 0);
        assert_eq!(answered(&mut checks, &["a"]).await.0, names(&["a"]), "it is checked again");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_there_when_its_reconcile_is_asked_for() {
        let (mut checks, (asks, mut asked)) = (Checks::default(), mpsc::unbounded_channel());
        checks.begin(&key("a"), async { Ok(None) }, move || asks.send(()).expect("a receiver"));
        asked.recv().await.expect("a reconcile");
        assert!(checks.under_way().is_empty());
        assert_eq!(answered(&mut checks, &["a"]).await.0, names(&["a"]));
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_at_once() {
        let mut checks = Checks::default();
        for number in 0..=CONCURRENT {
            begin(&mut checks, &number.to_string(), 8);
        }
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert_eq!(checks.under_way().len(), 1);
    }
}
