//! The page of `kubectl hibernate ui`: HTML that is rendered here, served on 127.0.0.1 for the user who started it.
//!
//! It reads the kinds that it lists through [`view`], with one list and one watch for each, and writes by running the
//! plugin's own commands. What only one view needs is read for it: Events, calendars, prices, held volumes.

mod access;
mod action;
mod activity;
mod cache;
mod calendar;
mod fleet;
mod live;
mod program;
mod savings;
mod serve;
mod tabs;
mod target;

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hub::HubClient;
use hub::connection::{Notice, Notify};
use tokio::sync::mpsc;
use view::{Namespaces, Query};

use self::access::Access;
use self::activity::Volumes;
use self::cache::Cache;
pub use self::cache::Connect;
pub use self::program::Program;
use self::tabs::Tabs;

/// Idle time after the last tab until the page ends.
const IDLE: Duration = Duration::from_mins(30);

/// What is served.
pub struct PageOptions {
    /// Port of 127.0.0.1; 0 is any.
    pub port: u16,
    /// The targets, and what else is shown live.
    pub query: Query,
    /// The words of a command line that select the same targets.
    pub selection: Vec<String>,
    pub program: Program,
    /// Whether nothing can be changed.
    pub read_only: bool,
    /// The context of the kubeconfig, for people.
    pub context: Option<String>,
    /// Makes a client again after an error.
    pub connect: Arc<Connect>,
}

/// A page that is served.
pub struct Page {
    listener: TcpListener,
    site: Arc<Site>,
    connect: Arc<Connect>,
    volumes: mpsc::Receiver<activity::Reply>,
}

/// What all requests have in common.
struct Site {
    port: u16,
    access: Access,
    cache: Arc<Cache>,
    tabs: Tabs,
    volumes: Volumes,
    hub: Mutex<HubClient>,
    query: Query,
    selection: Vec<String>,
    program: Program,
    read_only: bool,
    context: Option<String>,
}

/// Takes what the client reports while it retries, for the page.
#[derive(Clone, Default)]
pub struct Notices(Arc<Cache>);

impl Notices {
    /// For [`HubClient::connect`].
    pub fn notify(&self) -> Notify {
        let cache = Arc::clone(&self.0);
        Arc::new(move |notice| match notice {
            Notice::Retry { kind, text, .. } => cache.fail(kind, text),
            Notice::Recovered { kind } => cache.recover(kind),
            Notice::Progress(_) | Notice::Warning { .. } => {}
        })
    }
}

impl Page {
    /// Listens.
    ///
    /// # Errors
    /// When the port is taken.
    pub fn new(hub: HubClient, notices: Notices, options: PageOptions) -> io::Result<Self> {
        let PageOptions { port, query, selection, program, read_only, context, connect } = options;
        let listener = server::bind((Ipv4Addr::LOCALHOST, port).into())?;
        let port = listener.local_addr()?.port();
        let ((volumes, receiver), access) = (Volumes::new(), Access::new(port));
        let (tabs, cache, hub) = (Tabs::default(), notices.0, Mutex::new(hub));
        let site = Site { port, access, cache, tabs, volumes, hub, query, selection, program, read_only, context };
        Ok(Self { listener, site: Arc::new(site), connect, volumes: receiver })
    }

    /// Makes links for as long as the page is served: each opens one tab within a minute.
    pub fn links(&self) -> impl Fn() -> io::Result<String> + use<> {
        let site = Arc::clone(&self.site);
        move || Ok(format!("http://127.0.0.1:{}/#code={}", site.port, site.access.code()?))
    }

    /// Serves until the last tab has been closed for half an hour.
    ///
    /// # Errors
    /// When the port cannot be used.
    pub async fn serve(self) -> io::Result<()> {
        let Self { listener, site, connect, volumes } = self;
        tokio::select! {
            served = serve::serve(listener, Arc::clone(&site)) => served,
            () = site.cache.follow(&site.query, &site.hub, &connect) => Ok(()),
            () = activity::answer(&site, volumes) => Ok(()),
            () = site.tabs.idle(IDLE) => Ok(()),
        }
    }
}

impl Site {
    /// The client, with the credentials of now.
    fn hub(&self) -> HubClient {
        self.hub.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether names carry their namespace.
    fn everywhere(&self) -> bool {
        self.query.namespace == Namespaces::All
    }
}
