//! The questions of `recover`: which group goes, and whether to begin.

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write as _, stderr, stdin};

use crate::error::{FdbError, Problem};
use crate::output::{self, prompt};
use crate::recover::replace::Choice;

/// When a question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asking {
    /// Never.
    Never,
    /// A person at a terminal, if there is one.
    Terminal,
    /// Whoever is at the other end of stdin, as kubectl-fdb does.
    Always,
}

impl Asking {
    fn is_on(self) -> bool {
        match self {
            Self::Never => false,
            Self::Terminal => stdin().is_terminal(),
            Self::Always => true,
        }
    }
}

/// Whether to begin.
///
/// # Errors
/// When the answer is not yes.
pub(crate) fn begin(asking: Asking) -> Result<(), Problem> {
    match asking {
        _ if !asking.is_on() => Ok(()),
        Asking::Always => as_kubectl_fdb(),
        _ => prompt::yes("Continue? [y/N] "),
    }
}

/// Asks until the answer is yes or no.
fn as_kubectl_fdb() -> Result<(), Problem> {
    loop {
        let answer = read("Recover these process groups? [y/n]: ")?;
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => return Ok(()),
            "n" | "no" => return Err(FdbError::Aborted.into()),
            _ if answer.is_empty() => return Err(FdbError::Aborted.into()),
            _ => {}
        }
    }
}

/// Which groups the user chose to remove, by a flag or at the prompt.
///
/// # Errors
/// When the answer cannot be read, or there is none.
pub(crate) fn replacements(choice: &Choice, asking: Asking) -> Result<Vec<String>, Problem> {
    let newest: Vec<String> = choice.newest().map(ToOwned::to_owned).collect();
    if choice.named {
        return Ok(newest);
    }
    if !choice.is_open() || !asking.is_on() {
        return Ok(Vec::new());
    }
    let known = |id: &str| choice.candidates.iter().any(|candidate| candidate.group == id);
    loop {
        let question = format!(
            "Which {} of class {} should be removed in exchange? [{}]: ",
            choice.need,
            choice.class,
            newest.join(" ")
        );
        let answer = read(&question)?;
        let words: Vec<String> =
            answer.split([' ', ',']).map(str::trim).filter(|word| !word.is_empty()).map(Into::into).collect();
        if answer.is_empty() {
            return Err(FdbError::Aborted.into());
        }
        if words.is_empty() {
            return Ok(Vec::new());
        }
        let different: BTreeSet<&String> = words.iter().collect();
        if words.len() == choice.need && different.len() == words.len() && words.iter().all(|word| known(word)) {
            return Ok(words);
        }
        output::note(&format!("enter {} of the listed IDs, or press Enter for the default", choice.need));
    }
}

/// On a terminal the prompt appears there; otherwise on stderr.
fn read(question: &str) -> Result<String, Problem> {
    if stdin().is_terminal() {
        return prompt::answer(question);
    }
    let _ = write!(stderr(), "{}", output::plain(question));
    prompt::read()
}
