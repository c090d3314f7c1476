//! URLs that are put together, or found in answers.

use reqwest::Url;
use shared::cloud::{CloudError, CloudErrorKind};
use shared::text::sanitize_to;

/// Longest URL of a service, in bytes.
const MAX_URL: usize = 2 << 10;

/// Whether a path can be appended to a URL and still lead to the same service.
pub fn is_plain(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
        && url.as_str().len() <= MAX_URL
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none()
}

/// The value of a flag with a URL to use instead of a cloud's own.
pub fn endpoint(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok().filter(is_plain);
    url.ok_or_else(|| "it has to be http(s)://HOST[:PORT][/PATH]".to_owned())
}

/// Two hosts of a vendor, or the one to use instead of both.
pub fn hosts(own: [&str; 2], endpoint: Option<&Url>) -> Result<[Url; 2], String> {
    let [one, other] = own.map(|host| match endpoint {
        Some(endpoint) => Ok(endpoint.clone()),
        None => Url::parse(host).map_err(|error| error.to_string()),
    });
    Ok([one?, other?])
}

/// A URL with more segments, each of which is encoded.
pub fn below(base: &Url, segments: &[&str]) -> Url {
    let mut url = base.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(segments);
    }
    url
}

/// A link in an answer, such as to the next page, if it leads to the host that has answered.
pub fn link(base: &Url, link: &str) -> Result<Url, CloudError> {
    let found = base.join(link).ok();
    found.filter(|url| url.origin() == base.origin() && url.username().is_empty()).ok_or_else(|| {
        let (host, link) = (base.host_str().unwrap_or_default(), sanitize_to(link, 60));
        let message = format!("{host} answers with a link that is not its own, which is not followed: {link:?}");
        CloudError::new(CloudErrorKind::Unavailable, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_to_the_same_host_or_nowhere() {
        let base = Url::parse("https://management.azure.com/subscriptions/s").unwrap();
        for (text, is_followed) in [
            ("https://management.azure.com/subscriptions/s?page=2", true),
            ("/subscriptions/s?page=2", true),
            ("http://management.azure.com/x", false),
            ("https://management.azure.com.evil.example/x", false),
            ("https://management.azure.com:444/x", false),
            ("https://management.azure.com@evil.example/x", false),
            ("https://user@management.azure.com/x", false),
            ("//evil.example/x", false),
            ("file:///etc/passwd", false),
        ] {
            assert_eq!(link(&base, text).is_ok(), is_followed, "{text}");
        }
    }

    #[test]
    fn a_url_of_a_service_is_short() {
        let url = |path: usize| Url::parse(&format!("https://h/{}", "x".repeat(path))).unwrap();
        assert!(is_plain(&url(2_000)) && !is_plain(&url(2_100)));
    }

    #[test]
    fn a_segment_leads_nowhere_else() {
        let base = Url::parse("https://h/v1/").unwrap();
        assert_eq!(below(&base, &["instances", "a"]).as_str(), "https://h/v1/instances/a");
        assert_eq!(below(&base, &["i", "../x?y#z"]).as_str(), "https://h/v1/i/..%2Fx%3Fy%23z");
        assert_eq!(below(&base, &["i", "..", "b"]).as_str(), "https://h/v1/i/b");
    }
}
