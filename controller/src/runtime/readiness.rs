//! The admin port. `/readyz` reports whether the Lease can be read and written, and with `?verbose` for each system whether the
//! hub serves its kind and the watch works.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::RawQuery;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use kube::runtime::watcher;
use parking_lot::Mutex;
use server::{ConnectionMetrics, metrics as served};
use shared::text::sanitize;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::watch_backoff::api_error;
use crate::metrics::Metrics;

/// How the watch of one kind is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Watched {
    /// It has not been answered yet.
    #[default]
    Starting,
    /// It works.
    Yes,
    /// The hub does not have the kind.
    NotServed,
    /// It fails, for this reason.
    Failing(String),
}

/// The state of every system, for as long as the process lives.
pub struct Readiness {
    systems: Mutex<BTreeMap<&'static str, (String, Watched)>>,
    /// Why the Lease of the election cannot be read or written.
    election: Mutex<Option<String>>,
    metrics: Arc<Metrics>,
}

impl Readiness {
    /// Also counts which kinds are served.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        let election = Mutex::new(Some("the Lease has not been read yet".to_owned()));
        Self { systems: Mutex::default(), election, metrics }
    }

    /// The Lease of the election was read, even if another process holds it; or why it could not be read or written, sanitized.
    pub fn elects(&self, failure: Option<String>) {
        *self.election.lock() = failure;
    }

    /// The answer to `/readyz`. It fails without the Lease, because this replica can never lead then, and in no other
    /// case.
    pub fn answer(&self, verbose: bool, leads: bool) -> (StatusCode, String) {
        let failure = self.election.lock().clone();
        let code = if failure.is_some() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
        let text = match failure {
            failure if verbose => self.text(leads, failure.as_deref()),
            Some(why) => format!("leader election: {why}\n"),
            None => "ok".to_owned(),
        };
        (code, text)
    }

    /// A system begins to watch `kind`, such as `clusterdeployments.hive.openshift.io`.
    pub fn begins(&self, system: &'static str, kind: &str) {
        self.systems.lock().entry(system).or_insert_with(|| (kind.to_owned(), Watched::Starting));
    }

    /// The watch brings objects.
    pub fn works(&self, system: &'static str) {
        self.set(system, Watched::Yes);
    }

    /// The watch fails.
    pub fn fails(&self, system: &'static str, error: &watcher::Error) {
        let now = match api_error(error) {
            // By the code of the answer: of a group that it does not serve, an API server says so in plain text.
            Some(kube::Error::Api(status)) if status.code == 404 => Watched::NotServed,
            Some(kube::Error::Api(status)) => {
                Watched::Failing(sanitize(&format_args!("{}: {}", status.code, status.message)))
            }
            _ => Watched::Failing("the hub does not answer".to_owned()),
        };
        self.set(system, now);
    }

    /// Our account may not list the kind: it is not asked for.
    pub fn denied(&self, system: &'static str) {
        self.set(system, Watched::Failing("this account has no right to list it: see its ClusterRole".to_owned()));
    }

    /// Leadership was lost: nothing is watched.
    pub fn rest(&self) {
        for (_, watched) in self.systems.lock().values_mut() {
            *watched = Watched::Starting;
        }
    }

    fn set(&self, system: &'static str, now: Watched) {
        let mut systems = self.systems.lock();
        let Some((kind, before)) = systems.get_mut(system).filter(|(_, before)| *before != now) else { return };
        match &now {
            Watched::Yes if *before == Watched::NotServed => info!(system, kind, "the kind is served now"),
            Watched::NotServed => warn!(system, kind, "the kind is not served: this system waits until it is"),
            Watched::Failing(why) if matches!(before, Watched::Starting | Watched::Yes) => {
                warn!(system, kind, why, "the watch fails");
            }
            Watched::Yes if matches!(before, Watched::Failing(_)) => info!(system, kind, "the watch works again"),
            _ => {}
        }
        if matches!(now, Watched::Yes | Watched::NotServed) {
            self.metrics.kind_served(system, kind, now == Watched::Yes);
        }
        *before = now;
    }

    /// One line per system, as kube-apiserver writes them.
    fn text(&self, leads: bool, failure: Option<&str>) -> String {
        let mut text = match failure {
            Some(why) => format!("[-]leader {why}\n"),
            None => format!("[+]leader {}\n", if leads { "ok" } else { "standby: another controller leads" }),
        };
        for (system, (kind, watched)) in &*self.systems.lock() {
            let (mark, says) = match watched {
                _ if !leads => ('+', "standby".to_owned()),
                Watched::Starting => ('+', "starting".to_owned()),
                Watched::Yes => ('+', "ok".to_owned()),
                Watched::NotServed => ('-', format!("kind {kind} is not served")),
                Watched::Failing(why) => ('-', format!("kind {kind} cannot be watched: {why}")),
            };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "[{mark}]{system} {says}");
        }
        text.push_str(if failure.is_none() { "readyz check passed\n" } else { "readyz check failed\n" });
        text
    }
}

/// Serves `/healthz`, `/readyz` and `/metrics` in plain HTTP until the process ends. `/readyz` needs no leadership: a standby controller is ready to take over. It fails
/// while the Lease cannot be read. With `?verbose` it says how each system is, and is still `ok` where a kind is
/// missing.
///
/// # Errors
/// When the address cannot be bound.
pub async fn serve(listen: SocketAddr, metrics: Arc<Metrics>, readiness: Arc<Readiness>) -> std::io::Result<()> {
    let text = [(CONTENT_TYPE, served::CONTENT_TYPE)];
    let leader = metrics.leader.clone();
    let ready = move |RawQuery(query): RawQuery| async move {
        let verbose = query.is_some_and(|query| query.split('&').any(|pair| pair.split('=').next() == Some("verbose")));
        readiness.answer(verbose, leader.get() == 1)
    };
    let app = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(move || async move { (text, metrics.text()) }));
    server::plain(server::bind(listen)?, app, ConnectionMetrics::default(), CancellationToken::new()).await
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn answers(code: u16) -> watcher::Error {
        watcher::Error::InitialListFailed(kube::Error::Api(Status::failure("no", "Any").with_code(code).boxed()))
    }

    #[test]
    fn each_system_says_how_its_kind_is_watched() {
        let metrics = Arc::new(Metrics::default());
        let readiness = Readiness::new(metrics.clone());
        readiness.begins("hive", "clusterdeployments.hive.openshift.io");
        readiness.begins("fdb", "foundationdbclusters.apps.foundationdb.org");
        readiness.works("hive");
        readiness.fails("fdb", &answers(404));
        let missing = "[-]fdb kind foundationdbclusters.apps.foundationdb.org is not served\n";
        let text = readiness.text(true, None);
        assert_eq!(text, format!("[+]leader ok\n{missing}[+]hive ok\nreadyz check passed\n"));
        let served = |value: u8| {
            let labels = "system=\"fdb\",kind=\"foundationdbclusters.apps.foundationdb.org\"";
            metrics.text().contains(&format!("hibernate_kind_served{{{labels}}} {value}\n"))
        };
        assert!(served(0), "{}", metrics.text());
        readiness.works("fdb");
        assert!(served(1) && readiness.text(true, None).contains("[+]fdb ok\n"));
        readiness.fails("hive", &answers(403));
        assert!(
            readiness
                .text(true, None)
                .contains("[-]hive kind clusterdeployments.hive.openshift.io cannot be watched: 403: no\n")
        );
        let standby = readiness.text(false, None);
        assert!(standby.starts_with("[+]leader standby: another controller leads\n[+]fdb standby\n"), "{standby}");
    }
}
