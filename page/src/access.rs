//! Who may talk to the page: the browser of the user who started it.
//!
//! | # | what | from where |
//! |---|---|---|
//! | A1 | a code, once, for a minute | the URL's fragment, which no request carries and no server logs |
//! | A2 | a token | a code; it is sent with each request as `Authorization`, and no cookie is: cookies ignore ports |
//! | A3 | `Host` | this port of 127.0.0.1 or localhost; otherwise a name of another site has been bound to 127.0.0.1 |
//! | A4 | `Origin` and `Sec-Fetch-Site` | this page; otherwise another page, another port or a link |

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderMap, header};
use rustls::crypto::CryptoProvider;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

/// How long a code can be exchanged.
const CODE: Duration = Duration::from_mins(1);
/// Codes that are valid at once. One more ends the oldest.
const MAX_CODES: usize = 8;
/// Tabs. One more ends the oldest.
const MAX_TOKENS: usize = 64;
/// Bytes of a code and of a token.
const BYTES: usize = 32;

/// The hash of a secret: comparing two takes a time that says nothing of the secret.
type Hash = [u8; 32];

/// The secrets of one page.
pub struct Access {
    hosts: [String; 2],
    secrets: Mutex<Secrets>,
}

#[derive(Default)]
struct Secrets {
    codes: Vec<(Hash, Instant)>,
    tokens: Vec<Hash>,
}

impl Access {
    /// Of a page at this port.
    pub fn new(port: u16) -> Self {
        let hosts = ["127.0.0.1", "localhost"].map(|name| format!("{name}:{port}"));
        Self { hosts, secrets: Mutex::default() }
    }

    /// A new code.
    ///
    /// # Errors
    /// When the operating system gives no random numbers.
    pub fn code(&self) -> io::Result<String> {
        let code = secret()?;
        let mut secrets = self.lock();
        if secrets.codes.len() == MAX_CODES {
            secrets.codes.remove(0);
        }
        secrets.codes.push((hash(&code), Instant::now()));
        Ok(code)
    }

    /// The token for a code, which is used up.
    pub fn redeem(&self, code: &str) -> Option<String> {
        let mut secrets = self.lock();
        secrets.codes.retain(|(_, made)| made.elapsed() < CODE);
        let at = secrets.codes.iter().position(|(known, _)| *known == hash(code))?;
        secrets.codes.remove(at);
        if secrets.tokens.len() == MAX_TOKENS {
            secrets.tokens.remove(0);
        }
        let token = secret().ok()?;
        secrets.tokens.push(hash(&token));
        Some(token)
    }

    /// Whether a request carries a token of this page.
    pub fn has_token(&self, headers: &HeaderMap) -> bool {
        let token = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        token.is_some_and(|token| self.lock().tokens.contains(&hash(token)))
    }

    /// Whether a request is for this page by one of its names.
    pub fn is_host(&self, headers: &HeaderMap) -> bool {
        single(headers, header::HOST).is_some_and(|host| self.hosts.iter().any(|own| own == host))
    }

    /// Whether a request is sent by this page.
    pub fn is_same_origin(&self, headers: &HeaderMap) -> bool {
        let origin = single(headers, header::ORIGIN).and_then(|origin| origin.strip_prefix("http://"));
        let site = single(headers, header::HeaderName::from_static("sec-fetch-site"));
        self.is_host(headers) && origin == single(headers, header::HOST) && site == Some("same-origin")
    }

    fn lock(&self) -> MutexGuard<'_, Secrets> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A header that is there once.
fn single(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok();
    value.filter(|_| values.next().is_none())
}

/// 256 random bits.
fn secret() -> io::Result<String> {
    let mut bytes = [0; BYTES];
    let filled = CryptoProvider::get_default().and_then(|provider| provider.secure_random.fill(&mut bytes).ok());
    filled.ok_or_else(|| io::Error::other("the operating system gives no random numbers"))?;
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or_default();
    Ok(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect())
}

fn hash(text: &str) -> Hash {
    Sha256::digest(text).into()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn access() -> Access {
        let _ = hub::provider().install_default();
        Access::new(4567)
    }

    fn headers(all: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in all {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    #[tokio::test(start_paused = true)]
    async fn a_code_is_single_use_and_expires_after_60_s() {
        let access = access();
        let code = access.code().unwrap();
        assert_eq!(access.redeem("x"), None);
        let token = access.redeem(&code).unwrap();
        assert_eq!(access.redeem(&code), None, "A1");
        let sent = |token: &str| {
            HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::try_from(format!("Bearer {token}")).unwrap())])
        };
        assert!(
            access.has_token(&sent(&token)) && !access.has_token(&sent(&code)) && !access.has_token(&sent("")),
            "A2"
        );
        assert!(!access.has_token(&headers(&[("cookie", "token=x")])));
        let late = access.code().unwrap();
        tokio::time::advance(CODE).await;
        assert_eq!(access.redeem(&late), None, "A1");
        let first = access.code().unwrap();
        let others: Vec<String> = (0..MAX_CODES).map(|_| access.code().unwrap()).collect();
        assert_eq!(access.redeem(&first), None);
        assert!(others.iter().all(|code| access.redeem(code).is_some()));
        assert!(token.len() == 2 * BYTES && access.has_token(&sent(&token)));
    }

    #[test]
    fn foreign_hosts_and_origins_are_refused() {
        let access = access();
        for (host, expected) in [
            ("127.0.0.1:4567", true),
            ("localhost:4567", true),
            ("127.0.0.1", false),
            ("127.0.0.1:4568", false),
            ("LOCALHOST:4567", false),
            ("evil.example:4567", false),
            ("127.0.0.1:4567.evil.example", false),
            ("[::1]:4567", false),
            ("", false),
        ] {
            assert_eq!(access.is_host(&headers(&[("host", host)])), expected, "A3 {host}");
        }
        assert!(!access.is_host(&headers(&[("host", "localhost:4567"), ("host", "localhost:4567")])), "A3");
        assert!(!access.is_host(&HeaderMap::new()), "A3");
        let host = ("host", "127.0.0.1:4567");
        for (origin, site, expected) in [
            ("http://127.0.0.1:4567", "same-origin", true),
            ("http://127.0.0.1:4567", "same-site", false),
            ("http://127.0.0.1:4567", "none", false),
            ("http://localhost:4567", "same-origin", false),
            ("http://127.0.0.1:4568", "same-origin", false),
            ("https://127.0.0.1:4567", "same-origin", false),
            ("null", "cross-site", false),
        ] {
            let sent = headers(&[host, ("origin", origin), ("sec-fetch-site", site)]);
            assert_eq!(access.is_same_origin(&sent), expected, "A4 {origin} {site}");
        }
        assert!(!access.is_same_origin(&headers(&[host, ("sec-fetch-site", "same-origin")])), "A4");
        assert!(!access.is_same_origin(&headers(&[host, ("origin", "http://127.0.0.1:4567")])), "A4");
    }
}
