//! Against sockets of this machine that answer what is bad for a client.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use cloud_common::Dialer;
use futures::FutureExt;
use futures::future::BoxFuture;
use reqwest::StatusCode;
use serde::Deserialize;
use shared::cloud::CloudError;

use super::*;

/// A server that reads a request and writes these bytes, so many times, and what it has read.
struct Server {
    url: Url,
    heard: tokio::sync::mpsc::UnboundedReceiver<String>,
}

async fn server(head: &'static str, body: Vec<u8>, times: usize) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v3/servers?marker=1", listener.local_addr().unwrap()).parse().unwrap();
    let (sender, heard) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut request = vec![0; 4096];
            let length = socket.read(&mut request).await.unwrap();
            let _ = sender.send(String::from_utf8_lossy(&request[..length]).into_owned());
            let _ = socket.write_all(head.as_bytes()).await;
            for _ in 0..times {
                if socket.write_all(&body).await.is_err() {
                    break;
                }
            }
        }
    });
    Server { url, heard }
}

/// When a failure of an endpoint that has not proven who it is is reported.
const UNPROVEN: Discretion = Discretion { after: Duration::from_millis(800), ..Discretion::CLOUD };

/// The client of a vendor's account, or of a tenant's, in this memory.
fn client(tenant: Option<&str>, process: Process) -> Http {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let tenant = tenant.map(Into::into);
    let options = Options { process, tenant, account: "account".into(), authorities: None, rate: (100, 100) };
    let [connect, read, all] = [100, 300, 600].map(Duration::from_millis);
    Http::with(options, Deadlines { connect, read, all, unproven: UNPROVEN }).unwrap()
}

fn process(permit: bool) -> Process {
    let dialer = Dialer::new(Vec::new(), true);
    Process { identity: "pod-1".to_owned(), permit: Arc::new(move || permit), dialer, memory: MemoryLimit::default() }
}

fn http(permit: bool) -> Http {
    client(None, process(permit))
}

#[derive(Debug, Deserialize, PartialEq)]
struct One {
    a: u32,
}

async fn get(http: &Http, url: &Url) -> Result<Answer, CallError> {
    http.call(Priority::Idle, Method::GET, url.clone(), &[], None).await
}

fn message(result: Result<Answer, CallError>) -> (CloudErrorKind, String) {
    let error = CloudError::from(result.unwrap_err());
    let message = error.message.split_once(' ').map(|(_, rest)| rest.split_once(": ").unwrap().1.to_owned());
    (error.kind, message.unwrap())
}

#[tokio::test]
async fn an_answer_is_read_whole_and_the_request_says_who_asks() {
    let mut server = server("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", b"{\"a\": 5}\n".into(), 1).await;
    let token = (HeaderName::from_static("x-auth-token"), HeaderValue::from_static("hush"));
    let body = Body::As("application/openstack-images-v2.1-json-patch", serde_json::json!([]));
    let answer = http(true).call(Priority::Idle, Method::PATCH, server.url, &[token], Some(&body)).await.unwrap();
    assert_eq!(*answer.json::<One>().await.unwrap(), One { a: 5 });
    let request = server.heard.recv().await.unwrap();
    assert!(request.starts_with("PATCH /v3/servers?marker=1 HTTP/1.1"), "{request}");
    for header in
        ["user-agent: hibernate-controller/0.1.0 pod-1", "x-auth-token: hush", "openstack-images-v2.1-json-patch"]
    {
        assert!(request.contains(header), "{header}: {request}");
    }
}

#[tokio::test]
async fn an_answer_without_end_a_redirect_and_silence_are_given_up() {
    let http = http(true);
    let ok = "HTTP/1.1 200 OK\r\n\r\n";
    for (head, body, times, expected) in [
        (ok, vec![b'x'; 1 << 20], 100, "the answers of this account are too large together"),
        (ok, Vec::new(), 0, ""),
        ("", Vec::new(), 0, "the connection broke"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", b"abc".into(), 1, "the connection broke"),
        (
            "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n",
            Vec::new(),
            0,
            "302: redirects are not followed: the URL must be the service's own",
        ),
        ("HTTP/1.1 504 Gateway Timeout\r\ncontent-length: 0\r\n\r\n", Vec::new(), 0, "504: a gateway has no answer"),
    ] {
        let result = get(&http, &server(head, body, times).await.url).await;
        if expected.is_empty() {
            assert!(result.is_ok(), "{result:?}");
        } else {
            assert_eq!(message(result).1, expected, "{head}");
        }
    }
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap()).parse().unwrap();
    let (kind, why) = message(get(&http, &url).await);
    assert_eq!((kind, why.as_str()), (CloudErrorKind::Unavailable, "no answer in time"));
}

#[tokio::test]
async fn a_rejection_keeps_its_status_and_its_message() {
    let head = "HTTP/1.1 403 Forbidden\r\nconnection: close\r\n\r\n";
    let server = server(head, br#"{"forbidden": {"message": "Quota exceeded"}}"#.into(), 1).await;
    let result = get(&http(true), &server.url).await;
    let Err(CallError::Rejected(rejection)) = &result else { panic!("{result:?}") };
    assert_eq!((rejection.status.as_u16(), rejection.message.as_str()), (403, "Quota exceeded"));
    assert_eq!(message(result), (CloudErrorKind::Denied, "403: Quota exceeded".to_owned()));
}

#[tokio::test]
async fn addresses_of_this_machine_and_of_metadata_services_are_not_dialed() {
    let mut server = server("HTTP/1.1 200 OK\r\n\r\n", Vec::new(), 0).await;
    let port = server.url.port().unwrap();
    let http = client(Some("tenant"), Process { dialer: Dialer::default(), ..process(true) });
    for host in ["127.0.0.1", "[::ffff:127.0.0.1]", "169.254.169.254", "localhost", "127.1"] {
        let url = format!("http://{host}:{port}/").parse().unwrap();
        // Of a name nothing is said: it may be another one by now.
        let expected = if host == "localhost" { UNPROVEN.words } else { "which the controller does not connect to" };
        assert!(message(get(&http, &url).await).1.ends_with(expected), "{host}");
    }
    assert!(server.heard.try_recv().is_err(), "nothing arrived");
}

/// Whatever a tenant's URL leads to: the same words after the same time, and none that a service there has said.
#[tokio::test]
async fn an_endpoint_that_has_accepted_no_login_reveals_nothing() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let open = |head: &'static str, body: &'static [u8]| server(head, body.into(), 1);
    let json = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
    let unauthorized = "HTTP/1.1 401 Unauthorized\r\nconnection: close\r\n\r\n";
    let mut servers = Vec::new();
    for (head, body) in [
        ("SSH-2.0-OpenSSH_9.6\r\n", &b""[..]),
        ("", b""),
        (unauthorized, br#"{"error": {"message": "internal words"}}"#),
        ("HTTP/1.1 404 Not Found\r\nconnection: close\r\n\r\n", b"internal words"),
        ("HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\nconnection: close\r\n\r\n", b""),
        ("HTTP/1.1 504 Gateway Timeout\r\nconnection: close\r\n\r\n", b""),
        (json, b"internal words"),
        (json, br#"{"a": "internal words"}"#),
        ("HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n", b"{"),
    ] {
        servers.push(open(head, body).await);
    }
    let mut urls: Vec<Url> = servers.iter().map(|server| server.url.clone()).collect();
    for (scheme, at) in [("http", closed), ("http", silent.local_addr().unwrap()), ("https", closed)] {
        urls.push(format!("{scheme}://{at}/").parse().unwrap());
    }
    urls.push(format!("https://{}/", servers[2].url.host_str().unwrap()).parse().unwrap());
    let https = format!("https://127.0.0.1:{}/", servers[2].url.port().unwrap());
    urls.extend([https.parse().unwrap(), "http://name.invalid/".parse().unwrap()]);
    let clients: Vec<_> = urls.iter().map(|url| (url, client(Some("tenant"), process(true)))).collect();
    let tried = clients.iter().map(|(url, http)| async move {
        let began = Instant::now();
        let error = match get(http, url).await {
            Ok(answer) => answer.json::<One>().await.map(drop).unwrap_err(),
            Err(error) => error,
        };
        let late = began.elapsed().checked_sub(UNPROVEN.after).unwrap_or_else(|| panic!("{url} is early: {error:?}"));
        assert!(late < Duration::from_millis(150), "{url}: {late:?}");
        assert!(matches!(error, CallError::Unknown(_)), "{url}: {error:?}");
        assert_eq!(message(Err(error)), (CloudErrorKind::Denied, UNPROVEN.words.to_owned()), "{url}");
    });
    futures::future::join_all(tried).await;
}

/// Nothing of what a stranger says makes the next call another one.
#[tokio::test]
async fn an_endpoint_that_has_accepted_no_login_pauses_nobody() {
    let throttled = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 60\r\nconnection: close\r\n\r\n";
    let url = server(throttled, Vec::new(), 0).await.url;
    let http = client(Some("tenant"), process(true));
    for _ in 0..2 {
        let began = Instant::now();
        assert_eq!(message(get(&http, &url).await), (CloudErrorKind::Denied, UNPROVEN.words.to_owned()));
        assert!(began.elapsed() < UNPROVEN.after + Duration::from_millis(150), "{:?}", began.elapsed());
    }
}

/// Who has given what was asked for is known from then on, at its address, to the account that asked.
#[tokio::test]
async fn an_endpoint_that_has_proven_who_it_is_speaks_for_itself() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url: Url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        for number in 0.. {
            let Ok((mut socket, _)) = listener.accept().await else { break };
            let mut request = [0; 4096];
            let _ = socket.read(&mut request).await;
            let no = "HTTP/1.1 403 Forbidden\r\nconnection: close\r\n\r\n{\"message\": \"its own words\"}";
            let yes = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"a\": 5}";
            let _ = socket.write_all(if number == 1 { yes } else { no }.as_bytes()).await;
        }
    });
    let process = process(true);
    let ours = client(Some("tenant"), process.clone());
    assert_eq!(message(get(&ours, &url).await).1, UNPROVEN.words);
    assert_eq!(get(&ours, &url).await.unwrap().json::<One>().await.unwrap().a, 5);
    assert_eq!(message(get(&ours, &url).await), (CloudErrorKind::Denied, "403: its own words".to_owned()));
    assert_eq!(message(get(&client(Some("other"), process), &url).await).1, UNPROVEN.words);
}

/// An answer is charged while it is read, and what is made of it until it is dropped.
#[tokio::test]
async fn what_is_read_and_kept_is_charged_to_the_account() {
    #[derive(Debug, Deserialize)]
    struct Parts {
        #[expect(dead_code, reason = "it is kept, not read")]
        parts: Vec<Option<String>>,
    }
    let ok = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
    let many = |part: &str, times: usize| format!(r#"{{"parts":[{}]}}"#, vec![part; times].join(",")).into_bytes();
    let process = process(true);
    for tenant in [None, Some("tenant")] {
        let http = client(tenant, process.clone());
        let answer = get(&http, &server(ok, many("null", 100_000), 1).await.url).await.unwrap();
        assert!((500_000..505_000).contains(&answer.charge.used()), "{:?}", answer.charge);
        let error = CloudError::from(answer.json::<Parts>().await.unwrap_err());
        assert!(tenant.is_some() || error.message.contains("more than four times its size"), "{error}");
        assert!(process.memory.is_free());
        let long = format!("\"{}\"", "x".repeat(1_000));
        let answer = get(&http, &server(ok, many(&long, 1_000), 1).await.url).await.unwrap();
        let (parts, charge) = answer.open::<Parts>().await.unwrap();
        assert!((1_000_000..1_100_000).contains(&charge.used()), "{charge:?}");
        assert!(!process.memory.is_free());
        drop((parts, charge));
        assert!(process.memory.is_free());
        let large = server(ok, many(&long, 7_000), 1).await.url;
        let (first, second) = futures::join!(get(&http, &large), get(&http, &large));
        let refused = [first, second].into_iter().find(Result::is_err).map(|result| message(result).1);
        let own = tenant.is_none().then_some("the answers of this account are too large together");
        assert_eq!(refused.as_deref(), Some(own.unwrap_or(UNPROVEN.words)));
        assert!(process.memory.is_free());
    }
}

#[tokio::test]
async fn nothing_is_sent_without_the_permit() {
    let mut server = server("HTTP/1.1 200 OK\r\n\r\n", Vec::new(), 0).await;
    let result = get(&http(false), &server.url).await;
    assert_eq!(message(result).0, CloudErrorKind::NotLeader);
    assert!(server.heard.try_recv().is_err());
}

#[test]
fn authorities_must_be_certificates() {
    let options = |pem: &[u8]| Options {
        process: process(true),
        tenant: Some("tenant".into()),
        account: "account".into(),
        authorities: Some(pem.into()),
        rate: (1, 1),
    };
    for pem in [&b""[..], b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let error = Http::new(options(pem)).map(drop).unwrap_err();
        assert!(error.contains("certificates"), "{error}");
    }
}

/// Front ends answer 411 to a POST without a length.
#[tokio::test]
async fn a_post_without_a_body_has_a_length() {
    let mut server = server("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", b"{}".into(), 1).await;
    http(true).call(Priority::Waking, Method::POST, server.url, &[], None).await.unwrap();
    let request = server.heard.recv().await.unwrap().to_lowercase();
    assert_eq!(request.matches("content-length: 0\r\n").count(), 1, "{request}");
    assert!(!request.contains("transfer-encoding"), "{request}");
}

#[tokio::test]
async fn a_form_is_encoded() {
    let mut server = server("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", b"{}".into(), 1).await;
    let form = Body::Form(vec![("client_secret", "a&b=c~".to_owned()), ("scope", "https://x/.default".to_owned())]);
    http(true).call(Priority::Waking, Method::POST, server.url, &[], Some(&form)).await.unwrap();
    let request = server.heard.recv().await.unwrap();
    assert!(request.contains("content-type: application/x-www-form-urlencoded"), "{request}");
    assert!(request.ends_with("client_secret=a%26b%3Dc%7E&scope=https%3A%2F%2Fx%2F.default"), "{request}");
}

/// A cloud that answers these, one after the other.
struct Answers(parking_lot::Mutex<Vec<Reply>>);

impl Transport for Answers {
    fn send<'a>(
        &'a self,
        _what: &'a str,
        _request: Request,
        _charge: &'a mut Charge,
    ) -> BoxFuture<'a, Result<Reply, CallError>> {
        let reply = self.0.lock().remove(0);
        async { Ok(reply) }.boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_throttled_account_waits_as_long_as_the_cloud_asks() {
    let reply = |status, after: Option<&'static str>| {
        let headers = after.map(|after| (reqwest::header::RETRY_AFTER, HeaderValue::from_static(after)));
        Reply { status, headers: headers.into_iter().collect(), body: b"{}".to_vec(), by: None }
    };
    for (after, seconds) in [(Some("7"), 7), (Some("100000"), 60), (Some("Wed, 21 Oct 2026 07:28:00 GMT"), 0)] {
        let answers = vec![reply(StatusCode::TOO_MANY_REQUESTS, after), reply(StatusCode::OK, None)];
        let http = Http::over(Arc::new(Answers(parking_lot::Mutex::new(answers))), Arc::new(|| true), (1000, 1000));
        let call = || http.call(Priority::Waking, Method::GET, Url::parse("https://x/").unwrap(), &[], None);
        assert_eq!(CloudError::from(call().await.unwrap_err()).kind, CloudErrorKind::Throttled);
        let began = Instant::now();
        let second = loop {
            match call().await {
                // Who waits longer than the queue takes is sent away, and comes again.
                Err(CallError::NotSent(error)) if error.kind == CloudErrorKind::Throttled => {}
                other => break other,
            }
        };
        assert!(second.is_ok());
        let waited = began.elapsed().as_secs_f64();
        assert!((waited - f64::from(seconds)).abs() < 0.5, "{after:?}: {waited}");
    }
}
