//! Watches that end at once are not opened again at once.
//!
//! `kube` reopens a watch whose answer just ends without a pause, and tells nobody. Behind a load balancer that cuts every
//! connection this would be as many requests as the hub can answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Request;
use kube::Client;
use kube::client::Body;
use tokio::time::Instant;

/// Between two openings of the same watch. One that has lived longer is opened again at once.
const APART: Duration = Duration::from_secs(1);

/// When each watch, by its path, may be opened again.
type Openings = HashMap<String, Instant>;

/// The same client, with [`APART`] kept between watches.
#[must_use]
pub fn paced(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let openings: Arc<Mutex<Openings>> = Arc::default();
    let service = tower::service_fn(move |request: Request<Body>| {
        let turn = openings.lock().ok().and_then(|mut openings| turn(&mut openings, request.uri(), Instant::now()));
        let client = client.clone();
        async move {
            if let Some(turn) = turn {
                tokio::time::sleep_until(turn).await;
            }
            client.send(request).await
        }
    });
    Client::new(service, namespace)
}

/// When a request may be made; `None` is at once.
fn turn(openings: &mut Openings, uri: &http::Uri, now: Instant) -> Option<Instant> {
    uri.query().filter(|query| query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1"))?;
    let turn = openings.get(uri.path()).map_or(now, |next| now.max(*next));
    openings.insert(uri.path().to_owned(), turn + APART);
    Some(turn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_of_one_kind_are_a_second_apart_and_nothing_else_waits() {
        let (mut openings, now) = (Openings::new(), Instant::now());
        let mut wait = |uri: &'static str, after: Duration| {
            let now = now + after;
            turn(&mut openings, &http::Uri::from_static(uri), now).map(|turn| turn - now)
        };
        let (pods, nodes) = ("/api/v1/pods?limit=1&watch=true", "/api/v1/nodes?watch=1");
        assert_eq!(wait(pods, Duration::ZERO), Some(Duration::ZERO));
        assert_eq!(wait(nodes, Duration::ZERO), Some(Duration::ZERO));
        assert_eq!(wait(pods, Duration::from_millis(300)), Some(Duration::from_millis(700)));
        assert_eq!(wait(pods, Duration::from_millis(300)), Some(Duration::from_millis(1_700)));
        assert_eq!(wait(pods, Duration::from_mins(5)), Some(Duration::ZERO));
        assert_eq!(wait("/api/v1/pods?limit=1", Duration::from_mins(5)), None);
    }
}
