//! The URL of the API server, as people write it: kube panics without a scheme, kubectl adds one.

use http::Uri;
use kube::config::{AuthInfo, Cluster};

/// The URL that is meant; none if it can be none. As in client-go, only `HOST:PORT` goes without a scheme, and is https
/// where anything was said about certificates.
pub fn url(written: &str, certificates: bool) -> Option<String> {
    let written = written.trim();
    let complete = written.contains("://");
    let scheme = if certificates { "https" } else { "http" };
    let url = if complete { written.to_owned() } else { format!("{scheme}://{written}") };
    let parsed: Uri = url.parse().ok()?;
    let known = matches!(parsed.scheme_str(), Some("http" | "https"));
    let place = parsed.host().is_some_and(|host| !host.is_empty()) && (complete || parsed.path() == "/");
    (known && place).then_some(url)
}

/// A URL as errors show it: without user information. A password may hold any character where the URL is wrong.
pub fn shown(url: &str) -> String {
    let (scheme, rest) = url.find("://").map_or(("", url), |at| url.split_at(at + 3));
    format!("{scheme}{}", rest.rsplit('@').next().unwrap_or_default())
}

/// Whether something is said about certificates, which makes no sense without TLS.
pub fn has_certificates(cluster: &Cluster, user: &AuthInfo) -> bool {
    let texts = [
        &cluster.certificate_authority,
        &cluster.certificate_authority_data,
        &user.client_certificate,
        &user.client_certificate_data,
    ];
    cluster.insecure_skip_tls_verify == Some(true) || texts.into_iter().flatten().any(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_is_added_as_kubectl_does() {
        for (written, certificates, expected) in [
            ("https://hub.test:6443", false, Some("https://hub.test:6443")),
            ("http://hub.test/k8s/c1", true, Some("http://hub.test/k8s/c1")),
            ("hub.test:6443", true, Some("https://hub.test:6443")),
            ("hub.test:6443", false, Some("http://hub.test:6443")),
            ("hub.test", false, Some("http://hub.test")),
            ("[::1]:6443", true, Some("https://[::1]:6443")),
            (" hub.test:6443\n", true, Some("https://hub.test:6443")),
            ("hub.test:6443/k8s", true, None),
            ("", true, None),
            ("/k8s", true, None),
            ("https://", true, None),
            ("ftp://hub.test", true, None),
            ("hub test", true, None),
        ] {
            assert_eq!(url(written, certificates).as_deref(), expected, "{written:?}");
        }
    }

    #[test]
    fn a_url_is_shown_without_user_information() {
        for (url, expected) in [
            ("https://hub.test:6443", "https://hub.test:6443"),
            ("https://bob:pw@hub.test:6443/k8s?a=1", "https://hub.test:6443/k8s?a=1"),
            ("bob:pw@hub.test:6443", "hub.test:6443"),
            ("http://bob:p/w#1@x y@proxy.test:3128", "http://proxy.test:3128"),
            ("bob:p w@proxy.test", "proxy.test"),
            ("", ""),
        ] {
            assert_eq!(shown(url), expected);
        }
    }

    #[test]
    fn whatever_tells_of_certificates_means_tls() {
        let text = || Some("x".to_owned());
        let (cluster, user) = (Cluster::default(), AuthInfo::default());
        assert!(!has_certificates(&cluster, &user));
        let empty = Cluster { certificate_authority: Some(String::new()), ..Cluster::default() };
        assert!(!has_certificates(&empty, &AuthInfo { username: text(), ..AuthInfo::default() }));
        for cluster in [
            Cluster { certificate_authority: text(), ..Cluster::default() },
            Cluster { certificate_authority_data: text(), ..Cluster::default() },
            Cluster { insecure_skip_tls_verify: Some(true), ..Cluster::default() },
        ] {
            assert!(has_certificates(&cluster, &user), "{cluster:?}");
        }
        for user in [
            AuthInfo { client_certificate: text(), ..AuthInfo::default() },
            AuthInfo { client_certificate_data: text(), ..AuthInfo::default() },
        ] {
            assert!(has_certificates(&cluster, &user), "{user:?}");
        }
    }
}
