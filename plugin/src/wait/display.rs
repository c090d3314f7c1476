//! The progress display of `--wait`: the last known state of every target, shown as moving lines on a terminal and as
//! one line per change elsewhere.

use std::io::{IsTerminal, stderr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use view::age::elapsed;

use crate::error::Problem;
use crate::output;

/// More targets than this share one moving line.
const LINES: usize = 10;
/// How often a moving line is redrawn.
const TICK: Duration = Duration::from_millis(120);

/// The outcome of a target.
pub(crate) enum Outcome {
    /// On its way, with its last known state.
    Open(String),
    /// In the state asked for, with the message to print.
    Arrived(String),
    /// It will not reach that state.
    Failed(Problem),
}

/// The state of all.
pub(crate) struct ProgressDisplay {
    names: Vec<String>,
    begin: Instant,
    outcomes: Mutex<Vec<Outcome>>,
    show: Show,
}

/// How progress is shown.
pub(crate) enum Show {
    Each(Vec<ProgressBar>),
    Together(ProgressBar),
    Changes,
    Nothing,
}

impl ProgressDisplay {
    /// A display of targets whose state is not known yet. `elsewhere`: what it does where there is no terminal.
    pub(crate) fn new<'a>(names: impl Iterator<Item = &'a str>, elsewhere: Show) -> Self {
        let names: Vec<String> = names.map(output::one_line).collect();
        let outcomes = names.iter().map(|_| Outcome::Open("no status yet".to_owned())).collect();
        Self { begin: Instant::now(), outcomes: Mutex::new(outcomes), show: Show::new(&names, elsewhere), names }
    }

    /// A target's state while it is on its way.
    pub(crate) fn state(&self, at: usize, text: &str) {
        let text = &output::one_line(text);
        let changed = self.with(|outcomes| match outcomes.get_mut(at) {
            Some(Outcome::Open(before)) if before != text => {
                before.clone_from(text);
                true
            }
            _ => false,
        });
        if changed {
            self.show(at, text);
        }
    }

    /// Whether the outcome of a target is known.
    pub(crate) fn is_settled(&self, at: usize) -> bool {
        self.with(|outcomes| !matches!(outcomes.get(at), Some(Outcome::Open(_))))
    }

    /// Removes the moving lines and returns the outcome of every target.
    pub(crate) fn close(self) -> Vec<Outcome> {
        match &self.show {
            Show::Each(bars) => bars.iter().for_each(ProgressBar::finish_and_clear),
            Show::Together(bar) => bar.finish_and_clear(),
            Show::Changes | Show::Nothing => {}
        }
        self.outcomes.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it is with a target now. One that is no longer on its way stays as it is.
    pub(crate) fn update(&self, at: usize, outcome: Outcome) {
        if let Outcome::Open(state) = &outcome {
            return self.state(at, state);
        }
        let was_open = self.with(|outcomes| match outcomes.get_mut(at) {
            Some(open @ Outcome::Open(_)) => {
                *open = outcome;
                true
            }
            _ => false,
        });
        match &self.show {
            _ if !was_open => {}
            Show::Each(bars) => bars.get(at).iter().for_each(|bar| bar.finish_and_clear()),
            Show::Together(bar) => bar.inc(1),
            Show::Changes | Show::Nothing => {}
        }
    }

    fn show(&self, at: usize, text: &str) {
        let Some(name) = self.names.get(at) else { return };
        match &self.show {
            Show::Each(bars) => bars.get(at).iter().for_each(|bar| bar.set_message(text.to_owned())),
            Show::Together(bar) => bar.set_message(format!("{name}: {text}")),
            Show::Nothing => {}
            Show::Changes => output::note(&format!("{name}: {text} ({})", elapsed(self.begin.elapsed()))),
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Vec<Outcome>) -> T) -> T {
        work(&mut self.outcomes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Show {
    fn new(names: &[String], elsewhere: Self) -> Self {
        if !stderr().is_terminal() {
            return elsewhere;
        }
        // Templates are constants; were one wrong, the default would show.
        let style = |template: &str| {
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
        };
        if names.len() > LINES {
            let bar = ProgressBar::new(names.len() as u64);
            bar.set_style(style("{spinner} {pos} of {len} done, {elapsed}  {wide_msg}"));
            bar.enable_steady_tick(TICK);
            return Self::Together(bar);
        }
        let all = MultiProgress::new();
        let bars = names.iter().map(|name| {
            let bar = all.add(ProgressBar::new_spinner());
            bar.set_style(style("{spinner} {prefix}  {elapsed}  {msg}"));
            bar.set_prefix(name.clone());
            bar.enable_steady_tick(TICK);
            bar
        });
        Self::Each(bars.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_counted_once() {
        let bar = ProgressBar::hidden();
        let display = ProgressDisplay {
            show: Show::Together(bar.clone()),
            ..ProgressDisplay::new(["a", "b"].into_iter(), Show::Changes)
        };
        for _ in 0..3 {
            display.update(0, Outcome::Arrived("running".to_owned()));
        }
        assert_eq!(bar.position(), 1);
    }

    #[test]
    fn what_is_settled_stays_settled() {
        let display = ProgressDisplay::new(["a", "b", "c"].into_iter(), Show::Changes);
        display.state(0, "on its way\x1b[2J\n");
        display.update(1, Outcome::Arrived("running".to_owned()));
        display.state(1, "late news");
        display.update(1, Outcome::Failed(Problem::Declined));
        assert!(!display.is_settled(0) && display.is_settled(1) && !display.is_settled(2));
        let outcomes = display.close();
        assert!(matches!(&outcomes[0], Outcome::Open(text) if text == "on its way [2J "));
        assert!(matches!(&outcomes[1], Outcome::Arrived(text) if text == "running"));
        assert!(matches!(&outcomes[2], Outcome::Open(_)));
    }
}
