//! What `kubectl hibernate status` shows, as a live stream of JSON over HTTP: first everything as it is, then a line for
//! each change. It needs the crates `hub` and `view` and nothing of the plugin: `status_stream KUBECONFIG NAMESPACE`.

use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use hub::HubClient;
use hub::connection::Connection;
use serde_json::json;
use shared::kinds::KINDS;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, spawn_local};
use view::{Event, Query, Row};

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n";

fn main() -> Result<()> {
    let _ = hub::provider().install_default();
    let mut words = std::env::args().skip(1);
    let kubeconfig = words.next().context("the kubeconfig is missing")?.into();
    let namespace = words.next().context("the namespace is missing")?;
    let connection = Connection { kubeconfig: Some(kubeconfig), namespace: Some(namespace), ..Connection::default() };
    let targets = KINDS.shown_by_default().into_iter().map(Row::Target);
    let shown = KINDS.shown.iter().copied().map(Row::Shown);
    let query = Query { kinds: targets.chain(shown).collect(), ..Query::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let hub = HubClient::connect(&connection, Arc::new(|notice| eprintln!("{notice:?}")))?;
        serve(Rc::new((hub, query))).await
    })
}

async fn serve(source: Rc<(HubClient, Query)>) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    loop {
        let (client, _) = listener.accept().await?;
        let source = source.clone();
        spawn_local(async move {
            if let Err(error) = send(client, &source.0, &source.1).await {
                eprintln!("{error:#}");
            }
        });
    }
}

async fn send(mut client: TcpStream, hub: &HubClient, query: &Query) -> Result<()> {
    // Whatever is asked for, the answer is the same.
    if client.read(&mut [0; 4096]).await? == 0 {
        return Ok(());
    }
    client.write_all(HEAD).await?;
    let listing = view::list(hub, query).await;
    let mut events = pin!(view::follow(hub, query, &listing.watched));
    while let Some(event) = events.next().await {
        let line = match event? {
            Event::Set(item) => json!({ "set": item }),
            Event::Gone((kind, namespace, name)) => {
                json!({ "gone": { "type": kind, "namespace": namespace, "name": name } })
            }
            Event::Unreadable(failure) => json!({ "unreadable": failure.to_string() }),
            Event::Tick => continue,
        };
        client.write_all(format!("{line}\n").as_bytes()).await?;
    }
    Ok(())
}
