//! Proxies from the environment, by the rules of Go's `net/http` that kubectl follows: `HTTPS_PROXY` for https,
//! `HTTP_PROXY` for http, lower case too, never for this machine itself, and never for what `NO_PROXY` names.
//!
//! hyper-util's `client::proxy::matcher` follows curl instead, and would send other requests through the proxy than
//! kubectl does: it has no exception for this machine, takes `.example.com` for `example.com` too, and knows neither
//! `*.example.com` nor exceptions with a port (`10.1.2.3:6443`). It also reads `ALL_PROXY`, which Go ignores. The tests
//! mark the rows that differ.

use std::env;
use std::net::IpAddr;

use ipnet::IpNet;

use http::Uri;

/// The variable and the proxy that lead to a server, if one does.
pub fn from_env(server: &str) -> Option<(&'static str, String)> {
    choose(server, |name| env::var(name).ok().filter(|value| !value.is_empty()))
}

fn choose(server: &str, variable: impl Fn(&str) -> Option<String>) -> Option<(&'static str, String)> {
    let server: Uri = server.parse().ok()?;
    let names = match server.scheme_str() {
        Some("http") => ["HTTP_PROXY", "http_proxy"],
        _ => ["HTTPS_PROXY", "https_proxy"],
    };
    let (name, proxy) = names.into_iter().find_map(|name| Some((name, variable(name)?)))?;
    let host = server.host()?.trim_matches(['[', ']']).to_ascii_lowercase();
    let port = server.port_u16().unwrap_or(if server.scheme_str() == Some("http") { 80 } else { 443 });
    let exceptions = variable("NO_PROXY").or_else(|| variable("no_proxy")).unwrap_or_default();
    let direct = is_local(&host) || exceptions.split(',').any(|exception| covers(exception.trim(), &host, port));
    let proxy = if proxy.contains("://") { proxy } else { format!("http://{proxy}") };
    (!direct).then_some((name, proxy))
}

fn is_local(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// `*`, `10.0.0.0/8`, `10.0.0.1`, `example.com` (with its subdomains), `.example.com` (subdomains only), each with
/// `:port`.
fn covers(exception: &str, host: &str, port: u16) -> bool {
    if exception == "*" {
        return true;
    }
    let exception = exception.to_ascii_lowercase();
    let address = host.parse::<IpAddr>().ok();
    if exception.contains('/') {
        let network = exception.parse::<IpNet>();
        return network.is_ok_and(|network| address.is_some_and(|address| network.contains(&address)));
    }
    let (name, only) = match exception.rsplit_once(':') {
        Some((name, digits)) if !name.contains(':') || name.ends_with(']') => (name.to_owned(), digits.parse().ok()),
        _ => (exception.clone(), None),
    };
    if name.is_empty() || only.is_some_and(|only: u16| only != port) {
        return false;
    }
    let name = name.trim_matches(['[', ']']).trim_start_matches('*');
    match (name.parse::<IpAddr>(), address) {
        (Ok(exception), Some(address)) => exception == address,
        (Ok(_), None) | (Err(_), Some(_)) => false,
        (Err(_), None) if name.starts_with('.') => host.ends_with(name),
        (Err(_), None) => host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxied(server: &str, exceptions: &str) -> bool {
        let variable = |name: &str| match name {
            "https_proxy" => Some("proxy.test:3128".to_owned()),
            "NO_PROXY" => Some(exceptions.to_owned()),
            _ => None,
        };
        choose(server, variable).is_some()
    }

    #[test]
    fn the_environments_proxy_is_used_for_https_only() {
        let variable = |name: &str| (name == "HTTPS_PROXY").then(|| "proxy.test:3128".to_owned());
        assert_eq!(
            choose("https://hub.test:6443", variable),
            Some(("HTTPS_PROXY", "http://proxy.test:3128".to_owned()))
        );
        assert_eq!(choose("http://hub.test", variable), None);
        assert_eq!(choose("https://hub.test", |_| None), None);
    }

    /// hyper-util differs in every row.
    #[test]
    fn this_machine_needs_no_proxy() {
        for server in ["https://127.0.0.1:6443", "https://localhost", "https://[::1]:6443", "https://127.8.8.8"] {
            assert!(!proxied(server, ""), "{server}");
        }
    }

    #[test]
    fn no_proxy_names_hosts_domains_addresses_and_networks() {
        for (server, exceptions, expected) in [
            ("https://hub.example.com", "*", false),
            ("https://hub.example.com", "other.com, example.com", false),
            ("https://hub.example.com", ".example.com", false),
            ("https://hub.example.com", "*.example.com", false), // hyper-util differs
            ("https://example.com", "example.com", false),
            ("https://example.com", ".example.com", true), // hyper-util differs
            ("https://badexample.com", "example.com", true),
            ("https://HUB.example.com", "EXAMPLE.com", false),
            ("https://10.1.2.3:6443", "10.0.0.0/8", false),
            ("https://11.1.2.3:6443", "10.0.0.0/8", true),
            ("https://11.1.2.3:6443", "0.0.0.0/0", false),
            ("https://10.1.2.3:6443", "10.1.2.3", false),
            ("https://10.1.2.3:6443", "10.1.2.3:6443", false), // hyper-util differs
            ("https://10.1.2.3:6443", "10.1.2.3:443", true),
            ("https://hub.example.com", "hub.example.com:443", false), // hyper-util differs
            ("https://[fd00::1]:6443", "fd00::/8", false),
            ("https://[fd00::1]:6443", "fd00::1", false),
            ("https://[fd00::1]:6443", "[fd00::1]:6443", false), // hyper-util differs
            ("https://hub.example.com", ",", true),
        ] {
            assert_eq!(proxied(server, exceptions), expected, "{server} with {exceptions}");
        }
    }
}
