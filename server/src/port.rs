//! A port: connections within limits, TLS if wanted, HTTP, and an orderly end.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tracing::debug;

use crate::connections::{Connections, Limits, Slot};
use crate::metrics::ConnectionMetrics;

/// How long a TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection without a request may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// How long running requests may take after the port is asked to stop.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after the system refused to accept: it lacks file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Limits of plain ports: probes, scrapes, and a person with curl.
const PLAIN: Limits = Limits { connections: 256, per_client: None, idle: Duration::from_secs(10) };
/// Largest request head on a plain port.
const PLAIN_HEAD_BYTES: usize = 8 * 1024;

/// The HTTP versions of a port and their settings.
pub type Http = Builder<TokioExecutor>;

/// How to serve a port.
#[derive(Clone, Debug)]
pub struct Port {
    /// Connection limits.
    pub limits: Limits,
    /// HTTP settings.
    pub http: Http,
    /// TLS; `None` for plain HTTP.
    pub tls: Option<Arc<ServerConfig>>,
    /// Counts of connections.
    pub metrics: ConnectionMetrics,
}

/// Serves a plain port for probes and scrapes until it is asked to stop.
///
/// # Errors
/// When the listener cannot be used.
pub async fn plain(
    listener: std::net::TcpListener,
    router: Router,
    metrics: ConnectionMetrics,
    stop: CancellationToken,
) -> io::Result<()> {
    let mut http = Builder::new(TokioExecutor::new()).http1_only();
    http.http1().timer(TokioTimer::new()).header_read_timeout(PLAIN.idle).max_buf_size(PLAIN_HEAD_BYTES);
    Port { limits: PLAIN, http, tls: None, metrics }.serve(listener, router, stop).await
}

impl Port {
    /// Serves until it is asked to stop: then it accepts no new connections and gives running requests a few seconds.
    ///
    /// The listener must be non-blocking.
    ///
    /// # Errors
    /// When the listener cannot be used.
    pub async fn serve(
        self,
        listener: std::net::TcpListener,
        router: Router,
        stop: CancellationToken,
    ) -> io::Result<()> {
        let listener = TcpListener::from_std(listener)?;
        let connections = Connections::new(self.limits, self.metrics.clone());
        let connection = Arc::new(Connection { http: self.http, tls: self.tls.map(TlsAcceptor::from), router, stop });
        let stop = &connection.stop;
        let mut tasks = JoinSet::new();
        let accept = async {
            loop {
                while tasks.try_join_next().is_some() {}
                let (stream, client) = match listener.accept().await {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        debug!(%error, "cannot accept a connection");
                        sleep(ACCEPT_PAUSE).await;
                        continue;
                    }
                };
                if let Some(slot) = connections.admit(client.ip().to_canonical()).await {
                    tasks.spawn(Arc::clone(&connection).run(stream, Arc::new(slot)));
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = accept => {}
        }
        drop(listener);
        let _ = timeout(DRAIN_TIMEOUT, async { while tasks.join_next().await.is_some() {} }).await;
        Ok(())
    }
}

/// Waits until a connection has had no request for this long, counted from now at the earliest if it was idle before.
async fn idle(slot: &Slot, patience: Duration) {
    let began = Instant::now();
    loop {
        match slot.idle_since() {
            Some(since) if since.max(began).elapsed() >= patience => return,
            Some(since) => sleep_until(since.max(began) + patience).await,
            None => sleep(patience).await,
        }
    }
}

/// What all connections of a port have in common.
struct Connection {
    http: Http,
    tls: Option<TlsAcceptor>,
    router: Router,
    stop: CancellationToken,
}

impl Connection {
    /// Serves one connection to its end.
    async fn run(self: Arc<Self>, stream: TcpStream, slot: Arc<Slot>) {
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else { return self.http(stream, slot).await };
        let handshake = timeout(HANDSHAKE_TIMEOUT, tls.accept(stream));
        tokio::select! {
            shaken = handshake => if let Ok(Ok(stream)) = shaken {
                self.http(stream, slot).await;
            },
            () = slot.signals.close.notified() => {}
            () = self.stop.cancelled() => {}
        }
    }

    async fn http(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, slot: Arc<Slot>) {
        let service = service_fn(|request: Request<Incoming>| {
            let (router, active) = (self.router.clone(), slot.begin());
            async move {
                let response: Result<Response<Body>, Infallible> = router.oneshot(request).await;
                drop(active);
                response
            }
        });
        let mut connection = pin!(self.http.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            _ = connection.as_mut() => return,
            () = slot.signals.abort.notified() => return,
            () = slot.signals.close.notified() => {}
            () = self.stop.cancelled() => {}
            () = idle(&slot, slot.patience()) => {}
        }
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            _ = connection.as_mut() => {}
            () = slot.signals.abort.notified() => {}
            () = idle(&slot, CLOSE_TIMEOUT) => {}
        }
    }
}
