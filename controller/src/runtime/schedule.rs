//! Which target is reconciled next: each at its time, and tenants in turn.

use std::collections::{BTreeSet, HashMap, VecDeque};

use tokio::time::Instant;

use super::Key;

/// The targets of one system.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    targets: HashMap<Key, Stage>,
    /// Those whose time has not come.
    due: BTreeSet<(Instant, Key)>,
    /// Those whose time has come, by tenant.
    ready: HashMap<String, VecDeque<Key>>,
    /// Their tenants in turn.
    turns: VecDeque<String>,
}

/// Where a target stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Due(Instant),
    Ready,
    /// And when it was asked for meanwhile.
    Working(Option<Instant>),
}

impl Schedule {
    /// A target is to be reconciled at this moment, if it is not sooner.
    pub(super) fn add(&mut self, key: Key, at: Instant) {
        match self.targets.get_mut(&key) {
            Some(Stage::Ready) => return,
            Some(Stage::Working(again)) => {
                *again = Some(again.map_or(at, |again| again.min(at)));
                return;
            }
            Some(Stage::Due(due)) if *due <= at => return,
            Some(Stage::Due(due)) => {
                self.due.remove(&(*due, key.clone()));
            }
            None => {}
        }
        self.targets.insert(key.clone(), Stage::Due(at));
        self.due.insert((at, key));
    }

    /// When the next target is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Moves what is due to the queues of its tenants.
    pub(super) fn mature(&mut self, now: Instant, tenant: impl Fn(&Key) -> String) {
        while self.next().is_some_and(|at| at <= now) {
            let Some((_, key)) = self.due.pop_first() else { return };
            let tenant = tenant(&key);
            self.targets.insert(key.clone(), Stage::Ready);
            if !self.ready.contains_key(&tenant) {
                self.turns.push_back(tenant.clone());
            }
            self.ready.entry(tenant).or_default().push_back(key);
        }
    }

    /// The next target of a tenant that may begin one, and what admits it.
    pub(super) fn begin<A>(&mut self, may: impl Fn(&str) -> Option<A>) -> Option<(Key, A)> {
        for _ in 0..self.turns.len() {
            let tenant = self.turns.pop_front()?;
            let keys = self.ready.entry(tenant.clone()).or_default();
            let begun = may(&tenant).and_then(|admitted| Some((keys.pop_front()?, admitted)));
            if keys.is_empty() {
                self.ready.remove(&tenant);
            } else {
                self.turns.push_back(tenant);
            }
            if let Some((key, admitted)) = begun {
                self.targets.insert(key.clone(), Stage::Working(None));
                return Some((key, admitted));
            }
        }
        None
    }

    /// A reconcile has ended, and asks for the next one at this moment.
    pub(super) fn ended(&mut self, key: Key, next: Option<Instant>) {
        let requested = match self.targets.remove(&key) {
            Some(Stage::Working(again)) => again,
            _ => None,
        };
        if let Some(at) = [requested, next].into_iter().flatten().min() {
            self.add(key, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn key(namespace: &str, name: &str) -> Key {
        (namespace.to_owned(), name.to_owned())
    }

    fn begin(schedule: &mut Schedule, now: Instant) -> Option<String> {
        schedule.mature(now, |(namespace, _)| namespace.clone());
        schedule.begin(|_| Some(())).map(|((_, name), ())| name)
    }

    #[test]
    fn each_at_its_time_and_never_twice_at_once() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.add(key("n", "a"), now + 9 * SECOND);
        schedule.add(key("n", "a"), now + SECOND);
        schedule.add(key("n", "a"), now + 5 * SECOND);
        assert_eq!((begin(&mut schedule, now), schedule.next()), (None, Some(now + SECOND)));
        assert_eq!(begin(&mut schedule, now + SECOND), Some("a".to_owned()));
        assert_eq!(schedule.next(), None, "the other moments went with it");
        schedule.add(key("n", "a"), now);
        assert_eq!(begin(&mut schedule, now + 9 * SECOND), None, "it is at work");
        schedule.ended(key("n", "a"), Some(now + 60 * SECOND));
        assert_eq!(begin(&mut schedule, now + 9 * SECOND), Some("a".to_owned()), "asked for meanwhile");
        schedule.ended(key("n", "a"), None);
        assert!(schedule.targets.is_empty() && schedule.due.is_empty() && schedule.turns.is_empty());
    }

    #[test]
    fn tenants_in_turn_and_one_at_its_limit_holds_up_nobody() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        for number in 0..1_000 {
            schedule.add(key("crowd", &number.to_string()), now);
        }
        schedule.add(key("other", "a"), now + Duration::from_millis(1));
        schedule.add(key("other", "b"), now + Duration::from_millis(1));
        schedule.mature(now + SECOND, |(namespace, _)| namespace.clone());
        let left = Cell::new(3);
        let may = |tenant: &str| (tenant != "crowd" || left.replace(left.get() - 1) > 0).then_some(());
        let order: Vec<_> =
            std::iter::from_fn(|| schedule.begin(may)).take(5).map(|((tenant, _), ())| tenant).collect();
        assert_eq!(order, ["crowd", "other", "crowd", "other", "crowd"]);
        assert_eq!(schedule.begin(|tenant| (tenant != "crowd").then_some(())), None);
    }
}
