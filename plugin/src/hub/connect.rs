//! The client's own stack of layers, for one reason: speed.
//!
//! kube's stack leaves Nagle's algorithm on. The last message of the TLS handshake and the request behind it are two small
//! packets, and the second is held back until the server's delayed acknowledgement of the first: 40 ms on Linux, on every
//! new connection. That is most of the time that this program takes.

use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Client, Config,
    client::{ClientBuilder, ConfigExt as _},
};
use tower::{BoxError, ServiceBuilder};
use tower_http::decompression::DecompressionLayer;

use super::wire::Wire;

/// Builds a client. Proxies are left to kube's own stack, which knows them all; there the round trip counts for more anyway.
///
/// # Errors
/// When certificates or credentials of the configuration cannot be used.
pub(super) fn client(config: Config, wire: &Wire) -> Result<Client, kube::Error> {
    if config.proxy_url.is_some() {
        return Ok(ClientBuilder::try_from(config)?.with_layer(wire).build());
    }
    let mut connector = HttpConnector::new();
    connector.enforce_http(false); // https is the next layer's business
    connector.set_nodelay(true);
    connector.set_connect_timeout(config.connect_timeout);
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let service = ServiceBuilder::new()
        .layer(wire)
        .layer(config.base_uri_layer())
        .layer(DecompressionLayer::new().gzip(!config.disable_compression))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(HttpClient::builder(TokioExecutor::new()).build(connector));
    Ok(Client::new(service, config.default_namespace))
}
