//! Bounds of one answer: a spoke belongs to a tenant, and what it says is held in the memory of all.

use axum::body::{Body, Bytes};
use futures::StreamExt;
use http::Request;
use kube::Client;
use kube::client::Body as KubeBody;
use tower::BoxError;

use crate::runtime::watch_backoff::is_watch;

/// Bytes of one answer. A page of Nodes has about 15 MB.
const ANSWER: usize = 64 << 20;

/// Bytes of one watch, first list included. One that was good until then is opened again where it ended.
const WATCH: usize = 256 << 20;

/// The same client, whose answers end with an error when they are longer than that.
pub fn bounded(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<KubeBody>| {
        let client = client.clone();
        let most = if is_watch(request.uri()) { WATCH } else { ANSWER };
        async move {
            let answer = client.send(request).await?;
            Ok::<_, kube::Error>(answer.map(|body| cut(Body::new(body), most)))
        }
    });
    Client::new(service, namespace)
}

fn cut(body: Body, most: usize) -> Body {
    let mut left = Some(most);
    Body::from_stream(body.into_data_stream().map(move |chunk| {
        let chunk: Bytes = chunk.map_err(BoxError::from)?;
        left = left.and_then(|left| left.checked_sub(chunk.len()));
        match left {
            Some(_) => Ok(chunk),
            None => Err(BoxError::from(format!("the answer has more than {} MiB", most >> 20))),
        }
    }))
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use futures::stream;

    use super::*;

    #[tokio::test]
    async fn an_answer_that_is_too_long_is_an_error() {
        for (chunks, most, read) in [(3, 12, Ok(12)), (4, 12, Err(())), (0, 0, Ok(0))] {
            let chunks = (0..chunks).map(|_| Ok::<_, BoxError>(Bytes::from_static(b"four")));
            let body = cut(Body::from_stream(stream::iter(chunks)), most);
            let found = to_bytes(body, usize::MAX).await;
            assert_eq!(found.map(|bytes| bytes.len()).map_err(drop), read, "{most}");
        }
    }

    #[tokio::test]
    async fn the_bound_holds_for_what_a_client_reads() {
        let endless = tower::service_fn(|_: Request<KubeBody>| {
            let chunks = stream::repeat_with(|| Ok::<_, BoxError>(Bytes::from_static(&[b' '; 1 << 13])));
            std::future::ready(Ok::<_, BoxError>(http::Response::new(Body::from_stream(chunks))))
        });
        let client = bounded(Client::new(endless, "default"));
        let error = client.apiserver_version().await.unwrap_err();
        let error = crate::spoke::failure(&error).to_string();
        assert!(error.ends_with("the answer has more than 64 MiB"), "{error}");
    }
}
