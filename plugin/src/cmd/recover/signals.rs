//! The signals that ask the program to end. While it changes a cluster it says first how it leaves it.

#[cfg(unix)]
use tokio::signal::unix::{SignalKind, signal};

/// Waits until the program is asked to end: by Ctrl-C, by who stops it, or because its terminal is gone.
#[cfg(unix)]
pub(crate) async fn received() {
    let hangup = SignalKind::hangup();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let is_heard = !is_ignored(&status, hangup.as_raw_value());
    tokio::select! {
        () = arrived(SignalKind::interrupt()) => {}
        () = arrived(SignalKind::terminate()) => {}
        () = arrived(hangup), if is_heard => {}
    }
}

/// Waits for Ctrl-C.
#[cfg(not(unix))]
pub(crate) async fn received() {
    let _ = tokio::signal::ctrl_c().await;
}

#[cfg(unix)]
async fn arrived(kind: SignalKind) {
    match signal(kind) {
        Ok(mut signals) => {
            signals.recv().await;
        }
        // Then it ends the program at once, as it does any other.
        Err(_) => std::future::pending::<()>().await,
    }
}

/// Whether the parent process has it ignore a signal, as `nohup` does with that of a terminal which is gone. `status`
/// is what Linux says of a process; elsewhere it is empty, and every signal is heard.
#[cfg(unix)]
fn is_ignored(status: &str, number: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    let rest = u32::try_from(number - 1).ok().and_then(|bit| mask.checked_shr(bit));
    rest.is_some_and(|rest| rest & 1 == 1)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn what_nohup_ignores_is_ignored() {
        let status =
            |mask: &str| format!("Name:\tx\nSigBlk:\t0000000000000001\nSigIgn:\t{mask}\nSigCgt:\t0000000000000001\n");
        for (mask, number, expected) in [
            ("0000000000000001", 1, true),
            ("0000000000001000", 1, false),
            ("0000000000004000", 15, true),
            ("0000000000000000", 15, false),
            ("?", 1, false),
        ] {
            assert_eq!(is_ignored(&status(mask), number), expected, "{mask} {number}");
        }
        assert!(!is_ignored("", 1));
    }
}
