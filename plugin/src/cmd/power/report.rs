//! Reports what was done to each target, or why it failed, in the order in which they were given.

use hub::error::HubError;
use view::target::{Target, place};

use crate::cli::{ActOutput, WriteFlags};
use crate::error::{Failure, Problem};
use crate::output;

/// What was done about a target.
pub(crate) struct Done {
    pub(crate) target: Target,
    pub(crate) message: String,
    pub(crate) changed: bool,
    /// Whether the target is, or will be, in the state asked for.
    pub(crate) will_reach: bool,
    /// The request that the controller has to answer first.
    pub(crate) requested: Option<jiff::Timestamp>,
    /// What the change goes against.
    pub(crate) warnings: Vec<String>,
}

impl Done {
    /// A change that was written.
    pub(crate) fn written(target: Target, message: String) -> Self {
        Self { target, message, changed: true, will_reach: true, requested: None, warnings: Vec::new() }
    }
}

/// The outcome of one target.
pub(crate) struct Outcome {
    /// Its name and its namespace, if it was found.
    pub(crate) of: Option<(String, String)>,
    /// What the hub warned of while it was written.
    pub(crate) warnings: Vec<String>,
    /// What was done, or why it was not.
    pub(crate) result: Result<Done, Failure>,
}

/// Prints the outcomes of the targets.
pub(crate) struct Reporter<'a> {
    flags: &'a WriteFlags,
    /// Whether the targets are in several namespaces.
    everywhere: bool,
    /// Whether there is more than one target.
    many: bool,
    /// Whether an object was printed already.
    begun: bool,
    /// Failures that concern all targets and were printed already.
    printed: Vec<String>,
}

impl<'a> Reporter<'a> {
    /// For so many targets, `everywhere` being all namespaces.
    pub(crate) fn new(flags: &'a WriteFlags, everywhere: bool, targets: usize) -> Self {
        Self { flags, everywhere, many: targets > 1, begun: false, printed: Vec::new() }
    }

    /// Prints it: warnings and failures to stderr, what was done to stdout.
    pub(crate) fn report(&mut self, outcome: &Outcome) {
        let place = match &outcome.of {
            Some((_, namespace)) if self.everywhere => place(namespace),
            _ => String::new(),
        };
        for text in &outcome.warnings {
            match &outcome.of {
                Some((name, _)) if self.many => output::warning(&format!("{name}{place}: {text}")),
                _ => output::warning(text),
            }
        }
        match &outcome.result {
            Ok(done) => self.done(done, &place),
            Err(failure) => {
                if let Some(text) = self.failure(failure, &place) {
                    output::error(&text);
                }
            }
        }
    }

    fn done(&mut self, done: &Done, place: &str) {
        let Done { target, message, warnings, .. } = done;
        let what = target.full_name();
        for text in warnings {
            output::warning(&format!("{what}{place}: {text}"));
        }
        if self.begun && self.flags.output == Some(ActOutput::Yaml) {
            output::text("---\n");
        }
        output::changed(self.flags, &what, &format!("{message}{place}"), &target.object);
        self.begun = true;
    }

    /// The line for a failure. A hub that is down is down for every target: printed once.
    fn failure(&mut self, failure: &Failure, place: &str) -> Option<String> {
        if !concerns_all(&failure.problem) {
            return Some(format!("{failure}{place}"));
        }
        let text = failure.to_string();
        if self.printed.contains(&text) {
            return None;
        }
        self.printed.push(text.clone());
        Some(text)
    }
}

/// Whether it is the connection that failed, and not something about one target.
fn concerns_all(problem: &Problem) -> bool {
    matches!(
        problem,
        Problem::Hub(
            HubError::Config(_)
                | HubError::Client { .. }
                | HubError::Unreachable { .. }
                | HubError::Untrusted { .. }
                | HubError::Login { .. }
                | HubError::Unauthorized { .. }
                | HubError::Selector { .. }
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{self, Cli};

    #[test]
    fn only_what_concerns_all_targets_is_printed_once() {
        let cli = cli::read::<Cli>(["kubectl-hibernate", "--all", "-A"].map(Into::into)).unwrap();
        let mut reporter = Reporter::new(&cli.sleep.act.write, true, 2);
        let refused = |by: &str| {
            let error = HubError::Refused {
                object: "x/demo".to_owned(),
                by: by.to_owned(),
                message: "no".to_owned(),
                denials: vec![],
            };
            Failure::new("x/demo".to_owned(), error.into())
        };
        let stranger =
            || Failure::new("x/demo".to_owned(), HubError::Unauthorized { url: "https://hub".into() }.into());
        for place in [" (namespace a)", " (namespace b)", " (namespace b)"] {
            let expected = format!("x/demo: refused by policy: no{place}");
            assert_eq!(reporter.failure(&refused("policy"), place), Some(expected));
        }
        assert!(reporter.failure(&stranger(), " (namespace a)").is_some_and(|text| text.ends_with("log in again")));
        assert_eq!(reporter.failure(&stranger(), " (namespace b)"), None);
    }
}
