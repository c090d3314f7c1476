//! A fault proxy for HTTP and HTTPS: forwards streams both ways and does to requests what its rules say.
//!
//! Clients may speak HTTP/1.1 or HTTP/2; TLS ends here, with a certificate of the world. The bearer token goes through,
//! client certificates do not. Upgraded connections (exec, port-forward) are not forwarded.
//!
//! A proxy can be closed: it then really stops listening and cuts every connection, as a machine does that is switched
//! off.

pub mod faults;
mod forward;
mod selector;
pub mod tls;

use std::future::pending;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use self::faults::Faults;
pub use self::forward::Upstream;
pub use self::selector::LabeledLists;
use crate::ports;

/// What a proxy does.
pub struct Settings {
    /// The server behind it.
    pub upstream: Upstream,
    /// TLS towards clients; plain HTTP if absent.
    pub tls: Option<Arc<ServerConfig>>,
    /// Lists that get a label selector.
    pub lists: Option<LabeledLists>,
    /// Whether it takes connections from the start.
    pub open: bool,
}

/// A running proxy. It ends when it is dropped.
pub struct Proxy {
    port: u16,
    scheme: &'static str,
    faults: Arc<Faults>,
    open: watch::Sender<bool>,
    task: JoinHandle<()>,
}

pub(crate) struct Shared {
    pub(crate) upstream: Upstream,
    pub(crate) lists: Option<LabeledLists>,
    pub(crate) faults: Arc<Faults>,
    tls: Option<TlsAcceptor>,
}

impl Proxy {
    /// Starts a proxy on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// When no port is free.
    pub fn start(settings: Settings) -> Result<Self> {
        let port = ports::free()?;
        let faults = Arc::new(Faults::default());
        let scheme = if settings.tls.is_some() { "https" } else { "http" };
        let shared = Arc::new(Shared {
            upstream: settings.upstream,
            lists: settings.lists,
            faults: faults.clone(),
            tls: settings.tls.map(TlsAcceptor::from),
        });
        let (open, opened) = watch::channel(settings.open);
        let task = tokio::spawn(serve(shared, port, opened));
        Ok(Self { port, scheme, faults, open, task })
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its base URL.
    pub fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }

    /// Its faults.
    pub fn faults(&self) -> &Arc<Faults> {
        &self.faults
    }

    /// Opens or closes it.
    pub fn set_open(&self, open: bool) {
        self.open.send_if_modified(|now| std::mem::replace(now, open) != open);
    }

    /// Follows whether it is open.
    pub fn opened(&self) -> watch::Receiver<bool> {
        self.open.subscribe()
    }

    /// Waits until something listens on its port, for callers that connect at once.
    ///
    /// # Errors
    /// When nothing does within five seconds.
    pub async fn listening(&self) -> Result<()> {
        for _ in 0..500 {
            if TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await.is_ok() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        anyhow::bail!("proxy {} does not listen", self.url())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(shared: Arc<Shared>, port: u16, mut open: watch::Receiver<bool>) {
    loop {
        if !becomes(&mut open, true).await {
            return;
        }
        match listen(port).await {
            Ok(listener) => accept(&shared, listener, &mut open).await,
            Err(error) => {
                tracing::warn!(%error, port, "proxy cannot listen; trying again");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Waits until a proxy is opened or closed. False: there is no such proxy any more.
pub async fn becomes(state: &mut watch::Receiver<bool>, open: bool) -> bool {
    state.wait_for(|now| *now == open).await.is_ok()
}

async fn listen(port: u16) -> Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.with_context(|| format!("listen on 127.0.0.1:{port}"))
}

/// Takes connections until the proxy is closed; all of them end with this function.
async fn accept(shared: &Arc<Shared>, listener: TcpListener, open: &mut watch::Receiver<bool>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => { connections.spawn(connection(shared.clone(), stream)); }
                Err(error) => {
                    tracing::warn!(%error, "proxy cannot accept");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
            Some(_) = connections.join_next() => {}
            _ = becomes(open, false) => return,
        }
    }
}

async fn connection(shared: Arc<Shared>, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    match shared.tls.clone() {
        None => http(shared, stream).await,
        Some(acceptor) => match tokio::time::timeout(Duration::from_secs(10), acceptor.accept(stream)).await {
            Ok(Ok(stream)) => http(shared, stream).await,
            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake with a client"),
            Err(_) => tracing::debug!("TLS handshake with a client took too long"),
        },
    }
}

/// One connection, until either side or a fault ends it.
async fn http(shared: Arc<Shared>, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let cut = Arc::new(Notify::new());
    let knife = cut.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (shared, cut) = (shared.clone(), knife.clone());
        async move {
            match forward::answer(&shared, request).await {
                forward::Answer::Response(response) => Ok::<_, std::convert::Infallible>(response),
                forward::Answer::Hang => pending().await,
                forward::Answer::Cut => {
                    cut.notify_one();
                    pending().await
                }
            }
        }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    tokio::select! {
        ended = builder.serve_connection(TokioIo::new(stream), service) => {
            if let Err(error) = ended {
                tracing::debug!(%error, "connection with a client");
            }
        }
        () = cut.notified() => {}
    }
}
