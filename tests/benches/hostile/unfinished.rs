//! One address keeps 256 HTTP/2 connections to the webhook, with a POST a second on each whose body never comes.
//! Another one asks.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::stream;
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use hyper::client::conn::http2;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use testbed::bench::table::Table;
use testbed::{Options, World};
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_rustls::TlsConnector;

use crate::p99;
use crate::reviews::{Webhook, review};

const ATTACKERS: usize = 256;
const REQUESTS: usize = 1_000;
/// A new connection every so many requests.
const EVERY: usize = 20;
const PAUSE: Duration = Duration::from_millis(5);

pub async fn unfinished_bodies(table: &mut Table) -> Result<()> {
    let world = World::up(Options::default()).await?;
    let webhook = Webhook::of(&world).await?;
    let mut figures = Vec::new();
    for attackers in [0, ATTACKERS, 0, ATTACKERS] {
        let mut attack = JoinSet::new();
        for _ in 0..attackers {
            attack.spawn(keep_asking(webhook.address()?, webhook.tls()?));
        }
        sleep(Duration::from_secs(3)).await;
        figures.push(requests(&webhook).await?);
        attack.shutdown().await;
    }
    for pair in figures.chunks(2) {
        table.add("unfinished", "99 of 100 within ms, without attackers", None, None, pair[0].1);
        table.add("unfinished", "99 of 100 within ms, 256 unfinished POSTs/s", None, None, pair[1].1);
        table.add("unfinished", "ratio", None, Some(5.0), pair[1].1 / pair[0].1);
        table.add("unfinished", "lost, of 1,000", None, Some(0.0), pair[1].0);
    }
    Ok(())
}

/// How many requests of another address were lost, and what 99 of 100 of them took at most, in ms.
async fn requests(webhook: &Webhook) -> Result<(f64, f64)> {
    let (mut lost, mut took) = (0.0, Vec::new());
    let mut client = webhook.client()?;
    for number in 0..REQUESTS {
        if number % EVERY == 0 {
            client = webhook.client()?;
        }
        match client.post(review(1, 1)).await {
            Ok((StatusCode::OK, elapsed)) => took.push(elapsed.as_secs_f64() * 1_000.0),
            _ => lost += 1.0,
        }
        sleep(PAUSE).await;
    }
    Ok((lost, p99(took)))
}

/// Connects again whenever it is disconnected.
async fn keep_asking(webhook: SocketAddr, tls: Arc<ClientConfig>) {
    loop {
        let _ = ask(webhook, &tls).await;
        sleep(Duration::from_millis(100)).await;
    }
}

async fn ask(webhook: SocketAddr, tls: &Arc<ClientConfig>) -> Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(([127, 0, 0, 2], 0).into())?;
    let stream = TlsConnector::from(Arc::clone(tls))
        .connect(webhook.ip().into(), socket.connect(webhook).await?)
        .await
        .context("shake hands")?;
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { drop(connection.await) });
    loop {
        let body = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
        let head = Request::post(format!("https://{webhook}/validate")).header("content-type", "application/json");
        let answer = sender.send_request(head.header("content-length", 9_000).body(body)?);
        tasks.spawn(async move { drop(answer.await) });
        sleep(Duration::from_secs(1)).await;
        sender.ready().await?;
    }
}
