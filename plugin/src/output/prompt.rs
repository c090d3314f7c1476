//! Questions to a person at a terminal.

#[cfg(unix)]
use std::fs::OpenOptions;
use std::io::{IsTerminal, Write, stderr, stdin};

use crate::cli::WriteFlags;
use crate::error::Problem;
use crate::output;

/// Something that a question is written to.
type Screen = Box<dyn Write>;

/// Whether a person is to be asked before a change, and can be.
pub(crate) fn is_due(flags: &WriteFlags, yes: bool) -> bool {
    flags.changes() && !yes && stdin().is_terminal()
}

/// Asks a person about a change, or only prints the lines about it.
///
/// # Errors
/// As [`yes`].
pub(crate) fn confirm(flags: &WriteFlags, yes: bool, question: &str, lines: &[String]) -> Result<(), Problem> {
    if is_due(flags, yes) {
        return self::yes(question);
    }
    for line in lines {
        output::note(line);
    }
    Ok(())
}

/// Asks a person.
///
/// # Errors
/// When the answer is not yes, or the question cannot be shown.
pub(crate) fn yes(question: &str) -> Result<(), Problem> {
    let answer = answer(question)?;
    if is_yes(&answer) {
        return Ok(());
    }
    if answer.is_empty() {
        output::note("");
    }
    Err(Problem::Declined)
}

/// Asks a person, and returns the line that they type.
///
/// # Errors
/// When the question cannot be shown, or the answer cannot be read.
pub(crate) fn answer(question: &str) -> Result<String, Problem> {
    let mut out = screen(stderr().is_terminal(), terminal).ok_or(Problem::Unasked)?;
    let _ = write!(out, "{}", output::plain(question));
    let _ = out.flush();
    read()
}

/// The next line of stdin.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn read() -> Result<String, Problem> {
    let mut answer = String::new();
    stdin().read_line(&mut answer).map_err(Problem::io("read the answer"))?;
    Ok(answer)
}

/// Where a person sees the question: on stderr, or on the terminal itself when stderr goes into a file.
fn screen(stderr_is_terminal: bool, terminal: impl FnOnce() -> Option<Screen>) -> Option<Screen> {
    if stderr_is_terminal { Some(Box::new(stderr())) } else { terminal() }
}

#[cfg(unix)]
fn terminal() -> Option<Screen> {
    let terminal = OpenOptions::new().write(true).open("/dev/tty").ok()?;
    Some(Box::new(terminal))
}

#[cfg(not(unix))]
fn terminal() -> Option<Screen> {
    None
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Exit;

    #[test]
    fn a_question_is_shown_where_a_person_sees_it() {
        let other = || -> Option<Screen> { Some(Box::new(std::io::sink())) };
        for (stderr, terminal, shown) in
            [(true, true, true), (true, false, true), (false, true, true), (false, false, false)]
        {
            let found = screen(stderr, || terminal.then(other).flatten());
            assert_eq!(found.is_some(), shown, "{stderr} {terminal}");
        }
        assert_eq!(Problem::Unasked.exit(), Exit::Error);
    }

    #[test]
    fn only_yes_is_yes() {
        for (answer, yes) in [("y\n", true), ("YES\n", true), ("\n", false), ("", false), ("no", false), ("yep", false)]
        {
            assert_eq!(is_yes(answer), yes, "{answer:?}");
        }
    }
}
