//! What goes to the terminal: results to stdout, everything else to stderr, color only on a terminal.

pub(crate) mod prompt;

use std::io::{self, IsTerminal, Write, stderr, stdout};
use std::sync::OnceLock;
use std::{env, iter};

use hub::middleware::with_warnings;
use serde::Serialize;
use serde_json::{Value, json};
use shared::text::is_unsafe;
use unicode_width::UnicodeWidthStr as _;

use crate::cli::{ActOutput, WriteFlags};
use crate::error::{Exit, Failure};

/// The first failure of a write to stdout.
static FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Prints a line to stdout, sanitized. A reader that has gone away (`| head`) is no error of ours; any other failure is
/// kept for [`failure`].
pub(crate) fn line(text: &str) {
    colored(&plain(text));
}

/// Prints a line to stdout whose untrusted parts are sanitized already, and whose colors stay.
pub(crate) fn colored(line: &str) {
    record(writeln!(stdout(), "{line}"));
}

/// Prints text that ends its own lines to stdout, as it is: JSON and YAML are exact and complete.
pub(crate) fn text(text: &str) {
    let mut out = stdout();
    record(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// Records the outcome of a write to stdout.
pub(crate) fn record(written: io::Result<()>) {
    if let Err(error) = written {
        let _ = FAILURE.set(error); // the first error counts
    }
}

fn is_broken_pipe(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

/// The error of the first failed write to stdout, unless its reader has gone away.
pub(crate) fn failure() -> Option<&'static io::Error> {
    FAILURE.get().filter(|error| !is_broken_pipe(error))
}

/// Whether a write to stdout has failed. A command that only prints may end then; one that changes something goes on.
pub(crate) fn is_unread() -> bool {
    FAILURE.get().is_some()
}

/// Prints a line to stderr.
pub(crate) fn note(text: &str) {
    let _ = writeln!(stderr(), "{}", plain(text));
}

/// The text without control and bidi characters, but with its line ends: untrusted text must not control the terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|char| if is_unsafe(char) && char != '\n' { ' ' } else { char }).collect()
}

/// The same on one line.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|char| if is_unsafe(char) { ' ' } else { char }).collect()
}

/// Prints a warning as kubectl does.
pub(crate) fn warning(text: &str) {
    let head = Color::Yellow.paint("Warning:", colors(&stderr()));
    let _ = writeln!(stderr(), "{head} {}", plain(text));
}

/// The hub's answer, after its warnings are printed.
pub(crate) async fn warned<T>(work: impl Future<Output = T>) -> T {
    let (answer, warnings) = with_warnings(work).await;
    for text in &warnings {
        warning(text);
    }
    answer
}

/// Prints an error.
pub(crate) fn error(text: &str) {
    let _ = writeln!(stderr(), "{}", error_line(text, colors(&stderr())));
}

/// The sanitized line of an error.
pub(crate) fn error_line(text: &str, colors: bool) -> String {
    format!("{} {}", Color::Red.paint("error:", colors), plain(text))
}

/// Prints a failure. Returns its exit code.
pub(crate) fn failed(failure: &Failure) -> Exit {
    error(&failure.to_string());
    failure.problem.exit()
}

/// Colors of the few words that have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Color {
    Red,
    Green,
    Yellow,
    Blue,
}

impl Color {
    /// The text in this color, or as it is.
    pub(crate) fn paint(self, text: &str, on: bool) -> String {
        let code = match self {
            Self::Red => 31,
            Self::Green => 32,
            Self::Yellow => 33,
            Self::Blue => 34,
        };
        if on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Whether to use colors on a stream: only on a terminal, and not if `NO_COLOR` is set or the terminal is dumb.
pub(crate) fn colors(stream: &impl IsTerminal) -> bool {
    stream.is_terminal()
        && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// JSON indented by four, with a line end, as kubectl prints it.
pub(crate) fn json(value: &impl Serialize) -> String {
    let mut bytes = Vec::new();
    let indented = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, indented);
    // Only a map whose keys are no strings can fail, and none of ours is one.
    match value.serialize(&mut serializer) {
        Ok(()) => String::from_utf8_lossy(&bytes).into_owned() + "\n",
        Err(error) => format!("{error}\n"),
    }
}

/// YAML with a line end.
pub(crate) fn yaml(value: &impl Serialize) -> String {
    serde_saphyr::to_string(value).unwrap_or_else(|error| format!("{error}\n"))
}

/// A list of what `-o json` documents.
pub(crate) fn list(kind: &str, items: &impl Serialize) -> Value {
    json!({ "apiVersion": "hibernate.sh/v1alpha1", "kind": kind, "items": items })
}

/// Prints a value as one of the documented formats.
pub(crate) fn structured(value: &impl Serialize, is_json: bool) {
    text(&if is_json { json(value) } else { yaml(value) });
}

/// Spaces between columns, as in kubectl.
const GAP: usize = 3;

/// Columns that keep their width, so that lines can be added to them.
pub(crate) struct Columns(Vec<usize>);

impl Columns {
    /// As wide as these rows need, in cells of a terminal: some characters take two.
    pub(crate) fn new(rows: &[Vec<String>]) -> Self {
        let count = rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| one_line(cell).width()).max();
        Self((0..count).map(|at| width(at).unwrap_or_default()).collect())
    }

    /// A sanitized line; the cell of one column may have a color, which takes no width.
    pub(crate) fn line(&self, row: &[String], painted: Option<(usize, Color)>) -> String {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(&self.0).enumerate() {
            let cell = one_line(cell);
            let spaces = width.saturating_sub(cell.width()) + GAP;
            line += &match painted.filter(|(column, _)| *column == at) {
                Some((_, color)) => color.paint(&cell, true),
                None => cell,
            };
            line.extend(iter::repeat_n(' ', spaces));
        }
        line.trim_end().to_owned()
    }
}

/// Cells in columns.
pub(crate) fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let columns = Columns::new(rows);
    rows.iter().map(|row| columns.line(row, None)).collect()
}

/// A table with headers, if there are any. An empty cell would shift the columns for scripts that split at spaces.
pub(crate) fn table(headers: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Vec<String> {
    let head: Vec<String> = headers.iter().map(|&header| header.to_owned()).collect();
    let cell = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let rows = rows.into_iter().map(|row| row.into_iter().map(cell).collect());
    aligned(&iter::once(head).filter(|head| !head.is_empty()).chain(rows).collect::<Vec<_>>())
}

/// What kubectl says of an empty result; `namespace` is none for all namespaces and for kinds that have none.
pub(crate) fn nothing_found(namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("No resources found in {namespace} namespace."),
        None => "No resources found".to_owned(),
    }
}

/// Reports a change of an object as the flags ask for it.
pub(crate) fn changed(flags: &WriteFlags, what: &str, done: &str, changed: &Value) {
    match flags.output {
        None => line(&format!("{what} {done}{}", flags.dry_run.suffix())),
        Some(format) => object(format, what, changed),
    }
}

/// Prints an object.
pub(crate) fn object(format: ActOutput, what: &str, object: &Value) {
    match format {
        ActOutput::Name => line(what),
        format => structured(&without_managed_fields(object), format == ActOutput::Json),
    }
}

/// The object without `managedFields`, which kubectl hides too.
fn without_managed_fields(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untrusted_text_cannot_control_the_terminal() {
        let hostile = "a\x1b[2J\u{9b}1m\u{202e}b\r\nc\t";
        assert_eq!(plain(hostile), "a [2J 1m b \nc ");
        assert_eq!(one_line(hostile), "a [2J 1m b  c ");
        assert_eq!(aligned(&[vec![hostile.to_owned(), "x".to_owned()]]), ["a [2J 1m b  c    x"]);
        let wide = [["夜", "x"], ["abcd", "y"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(aligned(&wide), ["夜     x", "abcd   y"], "two cells for one character");
    }

    #[test]
    fn only_a_broken_pipe_is_a_reader_that_has_gone_away() {
        for (kind, gone) in [(io::ErrorKind::BrokenPipe, true), (io::ErrorKind::StorageFull, false)] {
            assert_eq!(is_broken_pipe(&kind.into()), gone, "{kind:?}");
        }
    }
}
