//! Log lines on standard error. No text from outside can forge a line or reach a terminal as a command.

use std::io::{self, Write};

use shared::text::is_unsafe;
use tracing_subscriber::EnvFilter;

/// Longest line of text in bytes. JSON is not cut.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// Format of the log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For machines.
    Json,
}

/// Logs to standard error from now on. `RUST_LOG` chooses which lines, `default` if it is not set. `flat`: of JSON, the
/// fields of an event are members of the object itself.
pub fn init(format: Format, flat: bool, default: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
    let of_at_most = |max_bytes| move || Line { to: io::stderr(), max_bytes };
    match format {
        Format::Text => lines.with_writer(of_at_most(MAX_LINE_BYTES)).init(),
        Format::Json => lines.with_writer(of_at_most(usize::MAX)).json().flatten_event(flat).init(),
    }
}

/// Writes each buffer as one sanitized line.
struct Line<W> {
    to: W,
    max_bytes: usize,
}

impl<W: Write> Write for Line<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let mut sanitized = String::with_capacity(text.len());
        for c in text.trim_end_matches('\n').chars() {
            if sanitized.len() >= self.max_bytes {
                sanitized.push('…');
                break;
            }
            sanitized.push(if is_unsafe(c) { ' ' } else { c });
        }
        sanitized.push('\n');
        self.to.write_all(sanitized.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(line: &str, max_bytes: usize) -> String {
        let mut to = Vec::new();
        Line { to: &mut to, max_bytes }.write_all(line.as_bytes()).unwrap();
        String::from_utf8(to).unwrap()
    }

    #[test]
    fn a_line_stays_one_line_without_commands_for_a_terminal() {
        let hostile = "INFO says=\x1b[2J\u{202e}evil\n2026 INFO forged\r\n";
        assert_eq!(written(hostile, 100), "INFO says= [2J evil 2026 INFO forged \n");
        assert_eq!(written("plain\n", 100), "plain\n");
        assert_eq!(written("ü".repeat(10).as_str(), 6), "üüü…\n");
        assert_eq!(written("{\"a\":\"b\"}\n", usize::MAX), "{\"a\":\"b\"}\n");
    }
}
