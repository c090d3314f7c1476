//! `ui`: serves the page, and prints and opens links to it.

use std::env;
use std::io::{self, IsTerminal as _, Write as _, stdin};
use std::process::Stdio;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hub::HubClient;
use page::{Notices, Page, PageOptions, Program};
use shared::kinds::Kinds;
use tempfile::NamedTempFile;
use tokio::process::Command;
use tokio::signal::ctrl_c;
use tokio::sync::mpsc;
use view::{Query, Row};

use crate::cli::{HubArgs, UiArgs};
use crate::connect::{flags, pinned};
use crate::error::{Exit, Problem, UsageError};
use crate::output;
use crate::select::{Flags, parse};

/// Time between two reads of a terminal that another job has.
const RETRY: Duration = Duration::from_secs(1);

/// Runs the command.
///
/// # Errors
/// When the kubeconfig or the flags cannot be used, or the port is taken.
pub(crate) async fn run(kinds: Kinds, args: &UiArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    let query = query(kinds, args, hub_args)?;
    let notices = Notices::default();
    // The current context may change while the page is served.
    let connection = pinned(hub_args)?;
    let (again, notify) = (connection.clone(), notices.notify());
    let hub = HubClient::connect(&connection, notices.notify())?;
    let executable = env::current_exe().map_err(Problem::io("find this program"))?;
    let options = PageOptions {
        port: args.port,
        selection: selection(args, hub_args, &hub.namespace),
        query,
        read_only: args.read_only,
        context: connection.context.clone(),
        program: Program::new(executable, flags(connection, hub_args.kinds.clone())),
        connect: Arc::new(move || HubClient::connect(&again, notify.clone())),
    };
    let page = Page::new(hub, notices, options).map_err(Problem::io(format!("listen on 127.0.0.1:{}", args.port)))?;
    let links = page.links();
    let link = || links().map_err(Problem::io("make a link"));
    output::line(&link()?);
    output::note(if stdin().is_terminal() {
        "Enter prints another URL; Ctrl-C ends the page"
    } else {
        "Ctrl-C ends the page"
    });
    let url = if args.no_open { None } else { Some(link()?) };
    let opens = async {
        // The file stays until the page ends: a browser reads it when it is ready.
        let _file = match &url {
            Some(url) => open(url).await,
            None => None,
        };
        std::future::pending::<()>().await;
    };
    let mut enters = enters();
    let again = async {
        while enters.recv().await.is_some() {
            match link() {
                Ok(url) => output::line(&url),
                Err(error) => output::error(&error.to_string()),
            }
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        served = page.serve() => served.map_err(Problem::io("serve the page"))?,
        () = opens => {}
        () = again => {}
        _ = ctrl_c() => {}
    }
    Ok(Exit::Done)
}

/// The targets, and what else the page shows live.
fn query(kinds: Kinds, args: &UiArgs, hub_args: &HubArgs) -> Result<Query, UsageError> {
    let flags = Flags { lists: true, ..Flags::new(hub_args, false) };
    let mut query = parse(kinds, args.kind.as_slice(), flags)?;
    if let Some(name) = query.names.first() {
        return Err(UsageError::NameInsteadOfType(name.name.clone()));
    }
    let shown = kinds.shown.iter().filter(|row| row.not_watched.is_none());
    query.kinds.extend(shown.map(|row| Row::Shown(row)));
    // The page names each kind that the user may not read.
    query.is_typed = true;
    Ok(query)
}

/// The words of a command line that select the same targets.
fn selection(args: &UiArgs, hub_args: &HubArgs, namespace: &str) -> Vec<String> {
    let place =
        if hub_args.all_namespaces { "--all-namespaces".to_owned() } else { format!("--namespace={namespace}") };
    let labels = hub_args.selector.as_ref().map(|selector| format!("--selector={selector}"));
    args.kind.iter().cloned().chain([place]).chain(labels).collect()
}

/// Opens a browser, if there is a display. The link goes through a file that only this user reads: all users see the
/// arguments of a process.
async fn open(url: &str) -> Option<NamedTempFile> {
    let has = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    if !cfg!(target_os = "macos") && !has("DISPLAY") && !has("WAYLAND_DISPLAY") {
        return None;
    }
    let fail = |why: String| output::note(&format!("{why}: open the URL"));
    let file = redirect(url).map_err(|error| fail(format!("cannot hand the URL to a browser: {error}"))).ok()?;
    let mut command = Command::new(opener);
    command.arg(file.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if !command.status().await.is_ok_and(|status| status.success()) {
        fail(format!("{opener} opened no browser"));
    }
    Some(file)
}

/// A file with mode 0600 that sends a browser to the page.
fn redirect(url: &str) -> io::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new().prefix("kubectl-hibernate-").suffix(".html").tempfile()?;
    write!(file, "<!doctype html><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"0;url={url}\">")?;
    file.flush()?;
    Ok(file)
}

/// The lines of stdin, by a thread that ends with the process.
fn enters() -> mpsc::Receiver<()> {
    let (sender, receiver) = mpsc::channel(1);
    thread::spawn(move || {
        block_ttin();
        let mut line = String::new();
        loop {
            match stdin().read_line(&mut line) {
                Ok(0) => break,
                Ok(_) if sender.blocking_send(()).is_err() => break,
                Ok(_) => line.clear(),
                Err(_) => thread::sleep(RETRY),
            }
        }
    });
    receiver
}

/// Makes a read of the terminal an error while the page is a job in the background: by default it stops the job.
#[cfg(unix)]
fn block_ttin() {
    use nix::sys::signal::{SigSet, Signal};

    let _ = SigSet::from(Signal::SIGTTIN).thread_block();
}

#[cfg(not(unix))]
fn block_ttin() {}

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    #[test]
    fn the_url_is_in_a_file_that_only_its_user_reads() {
        use std::os::unix::fs::PermissionsExt as _;

        let file = super::redirect("http://127.0.0.1:1/#code=x").unwrap();
        assert_eq!(file.as_file().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(std::fs::read_to_string(file.path()).unwrap().contains("url=http://127.0.0.1:1/#code=x\""));
    }
}
