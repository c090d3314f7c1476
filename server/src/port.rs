//! A port: connections within limits, TLS if wanted, HTTP, and an orderly end.

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
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
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tracing::debug;

use crate::connections::{Connections, Limits, OpenRequest, RequestBody, Slot};
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

/// The address of a request's client, among the request's extensions.
#[derive(Clone, Copy, Debug)]
pub struct Client(pub IpAddr);

impl Client {
    /// Who sent this request; the unspecified address for one that came through no port.
    pub fn of<B>(request: &Request<B>) -> IpAddr {
        request.extensions().get().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |Self(address)| *address)
    }
}

/// Among the request's extensions: while a handler keeps it, the request counts as one without an answer. What an answer
/// streams keeps it, so that the connection is not idle.
#[derive(Clone, Debug)]
pub struct Unanswered {
    _open: Arc<OpenRequest>,
}

/// The HTTP versions of a port and their settings.
pub type Http = Builder<TokioExecutor>;

/// How to serve a port.
#[derive(Clone, Debug)]
pub struct Port {
    /// Connection limits.
    pub limits: Limits,
    /// HTTP settings.
    pub http: Http,
    /// TLS, of which each new connection has the newest; `None` for plain HTTP.
    pub tls: Option<watch::Receiver<Arc<ServerConfig>>>,
    /// Counts of connections.
    pub metrics: ConnectionMetrics,
}

/// Binds a port. `[::]` is every address, those of IPv4 among them. Where the kernel has no IPv6, `0.0.0.0` is bound in
/// its place.
///
/// # Errors
/// When the system refuses.
pub fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = bind_with(address, std::net::TcpListener::bind::<SocketAddr>)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn bind_with<T>(address: SocketAddr, bind: impl Fn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    let is_taken = |error: &io::Error| matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::PermissionDenied);
    match bind(address) {
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && !is_taken(&error) => {
            bind(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port()))
        }
        bound => bound,
    }
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
        let connection = Arc::new(Connection { http: self.http, tls: self.tls, router, connections, stop });
        let stop = &connection.stop;
        let mut tasks = JoinSet::new();
        // It only accepts: a connection that waits for admission or for a handshake delays no other one.
        let accept = async {
            loop {
                while tasks.try_join_next().is_some() {}
                match listener.accept().await {
                    Ok((stream, client)) => {
                        tasks.spawn(Arc::clone(&connection).run(stream, client.ip().to_canonical()));
                    }
                    Err(error) => {
                        debug!(%error, "cannot accept a connection");
                        sleep(ACCEPT_PAUSE).await;
                    }
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

/// Waits until a connection has had no whole request for so long, counted from now at the earliest if it was idle
/// before.
async fn idle(slot: &Slot) {
    let (began, timeout) = (Instant::now(), slot.idle_timeout());
    loop {
        match slot.permit.idle_since() {
            Some(since) if since.max(began).elapsed() >= timeout => return,
            Some(since) => sleep_until(since.max(began) + timeout).await,
            None => sleep(timeout).await,
        }
    }
}

/// Waits until the requests of a connection that closes have their answers.
async fn drain(slot: &Slot) {
    sleep(CLOSE_TIMEOUT).await;
    while slot.has_requests() {
        sleep(CLOSE_TIMEOUT).await;
    }
}

/// What all connections of a port have in common.
struct Connection {
    http: Http,
    tls: Option<watch::Receiver<Arc<ServerConfig>>>,
    router: Router,
    connections: Arc<Connections>,
    stop: CancellationToken,
}

impl Connection {
    /// Serves one connection to its end, if there is a place for it.
    async fn run(self: Arc<Self>, stream: TcpStream, client: IpAddr) {
        let admitted = tokio::select! {
            slot = self.connections.admit(client) => slot,
            () = self.stop.cancelled() => None,
        };
        let Some(slot) = admitted.map(Arc::new) else { return };
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else { return self.http(stream, slot).await };
        let tls = TlsAcceptor::from(Arc::clone(&tls.borrow()));
        let handshake = timeout(HANDSHAKE_TIMEOUT, tls.accept(stream));
        tokio::select! {
            shaken = handshake => if let Ok(Ok(stream)) = shaken {
                self.http(stream, slot).await;
            },
            () = slot.permit.evicted() => {}
            () = self.stop.cancelled() => {}
        }
    }

    async fn http(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, slot: Arc<Slot>) {
        let service = service_fn(|request: Request<Incoming>| {
            let (router, open) = (self.router.clone(), Arc::new(slot.begin()));
            let mut request = request.map(|body| RequestBody::new(body, Arc::clone(&open)));
            request.extensions_mut().insert(Client(slot.client));
            request.extensions_mut().insert(Unanswered { _open: Arc::clone(&open) });
            async move {
                let response: Result<Response<Body>, Infallible> = router.oneshot(request).await;
                drop(open);
                response
            }
        });
        let mut connection = pin!(self.http.serve_connection(TokioIo::new(stream), service));
        let stops = tokio::select! {
            _ = connection.as_mut() => return,
            () = slot.permit.evicted() => false,
            () = self.stop.cancelled() => true,
            () = idle(&slot) => false,
        };
        // At the end of the port all close at once, and no new ones come.
        let closing = (!stops).then(|| slot.close());
        // Without one its branch does not match, and the others are waited for.
        let aborted = async {
            closing.as_ref()?.aborted().await;
            Some(())
        };
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            _ = connection.as_mut() => {}
            Some(()) = aborted => {}
            () = drain(&slot) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpSocket;

    use super::*;

    const REQUEST: &str = "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

    #[test]
    fn every_address_is_that_of_ipv4_where_the_kernel_has_no_ipv6() {
        let (all, all_v4) = ("[::]:9443".parse().unwrap(), "0.0.0.0:9443".parse().unwrap());
        let refuse = |code: i32| {
            move |address: SocketAddr| {
                if address.is_ipv6() { Err(io::Error::from_raw_os_error(code)) } else { Ok(address) }
            }
        };
        let (no_family, no_address, taken, denied) = (97, 99, 98, 13);
        assert_eq!(bind_with(all, Ok).ok(), Some(all));
        for code in [no_family, no_address] {
            assert_eq!(bind_with(all, refuse(code)).ok(), Some(all_v4), "{code}");
            assert!(bind_with("[::1]:9443".parse().unwrap(), refuse(code)).is_err(), "{code}: one address");
        }
        for code in [taken, denied] {
            assert!(bind_with(all, refuse(code)).is_err(), "{code}");
        }
        let bound = bind("[::]:0".parse().unwrap()).unwrap();
        let port = bound.local_addr().unwrap().port();
        std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    }

    async fn connect(to: std::net::SocketAddr, from: [u8; 4]) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        socket.connect(to).await.unwrap()
    }

    async fn ask(mut stream: TcpStream, request: &str) -> String {
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        answer
    }

    /// A port whose handler takes half a second.
    fn start(limits: Limits) -> std::net::SocketAddr {
        start_until(limits).0
    }

    fn start_until(limits: Limits) -> (std::net::SocketAddr, CancellationToken) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let slow = async |request: Request<Body>| {
            let client = Client::of(&request);
            sleep(Duration::from_millis(500)).await;
            client.to_string()
        };
        let router = Router::new().route("/", get(slow).post(slow));
        let mut http = Builder::new(TokioExecutor::new()).http1_only();
        http.http1().timer(TokioTimer::new());
        let port = Port { limits, http, tls: None, metrics: ConnectionMetrics::default() };
        let stop = CancellationToken::new();
        tokio::spawn(port.serve(listener, router, stop.clone()));
        (address, stop)
    }

    #[tokio::test]
    async fn who_waits_for_admission_keeps_nobody_else_waiting() {
        let port = start(Limits { per_client: Some(1), ..PLAIN });
        let busy = tokio::spawn(ask(connect(port, [127, 0, 0, 2]).await, REQUEST));
        sleep(Duration::from_millis(100)).await;
        let waits = tokio::spawn(ask(connect(port, [127, 0, 0, 2]).await, REQUEST));
        sleep(Duration::from_millis(50)).await;
        let other = ask(connect(port, [127, 0, 0, 3]).await, REQUEST).await;
        assert!(other.ends_with("127.0.0.3"), "{other}");
        assert!(!waits.is_finished(), "the other one did not wait for it");
        assert!(busy.await.unwrap().ends_with("127.0.0.2") && waits.await.unwrap().ends_with("127.0.0.2"));
    }

    /// 300 addresses with one to three connections each.
    #[tokio::test]
    async fn many_addresses_that_ask_nothing_keep_no_other_client_out() {
        let port = start(PLAIN);
        let mut silent = Vec::new();
        for number in 0..600_u16 {
            let [high, low] = (number % 300 + 2).to_be_bytes();
            silent.push(connect(port, [127, 1, high, low]).await);
        }
        for _ in 0..3 {
            let reviews: Vec<_> = (0..20_u8)
                .map(|_| tokio::spawn(async move { ask(connect(port, [127, 0, 0, 1]).await, REQUEST).await }))
                .collect();
            for number in 0..60_u8 {
                silent.push(connect(port, [127, 2, 0, number]).await);
                sleep(Duration::from_millis(2)).await;
            }
            for review in reviews {
                let answer = review.await.unwrap();
                assert!(answer.ends_with("127.0.0.1"), "{answer}");
            }
        }
    }

    /// A port that stops closes all its connections at once: none of them is dropped before its answer.
    #[tokio::test]
    async fn a_port_that_stops_answers_what_has_requests() {
        let (port, stop) = start_until(PLAIN);
        let asked: Vec<_> = (0..100)
            .map(|_| tokio::spawn(async move { ask(connect(port, [127, 0, 0, 1]).await, REQUEST).await }))
            .collect();
        sleep(Duration::from_millis(250)).await;
        stop.cancel();
        for answer in asked {
            let answer = answer.await.unwrap();
            assert!(answer.ends_with("127.0.0.1"), "{answer}");
        }
    }

    #[tokio::test]
    async fn a_body_that_never_comes_keeps_a_plain_port_from_nobody() {
        let port = start(Limits { connections: 2, ..PLAIN });
        let head = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n";
        let held: Vec<_> = [connect(port, [127, 0, 0, 2]).await, connect(port, [127, 0, 0, 2]).await]
            .map(|stream| tokio::spawn(ask(stream, head)))
            .into();
        sleep(Duration::from_millis(100)).await;
        let began = Instant::now();
        let answer = ask(connect(port, [127, 0, 0, 1]).await, REQUEST).await;
        assert!(answer.ends_with("127.0.0.1") && began.elapsed() < Duration::from_millis(900), "{answer}");
        drop(held);
    }
}
