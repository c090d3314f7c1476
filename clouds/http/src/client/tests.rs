//! Against sockets of this machine that answer what is bad for a client.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

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

fn http(allow_loopback: bool, permit: bool) -> Http {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let options = Options {
        process: Process {
            identity: "pod-1".to_owned(),
            permit: Arc::new(move || permit),
            dialer: Dialer::new(Vec::new(), allow_loopback),
        },
        tenant: Some("tenant".into()),
        authorities: None,
        rate: (100, 100),
    };
    let [connect, read, all] = [100, 300, 600].map(Duration::from_millis);
    Http::with(options, Deadlines { connect, read, all }).unwrap()
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
    let answer = http(true, true).call(Priority::Idle, Method::PATCH, server.url, &[token], Some(&body)).await.unwrap();
    assert_eq!(answer.json::<Value>().unwrap()["a"], 5);
    assert!(matches!(answer.json::<Vec<u32>>(), Err(CallError::Unknown(error)) if error.message.contains("malformed")));
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
    let http = http(true, true);
    let ok = "HTTP/1.1 200 OK\r\n\r\n";
    for (head, body, times, expected) in [
        (ok, vec![b'x'; 1 << 20], 100, "the answer has more than 8 MiB"),
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
    let result = get(&http(true, true), &server.url).await;
    let Err(CallError::Rejected(rejection)) = &result else { panic!("{result:?}") };
    assert_eq!((rejection.status.as_u16(), rejection.message.as_str()), (403, "Quota exceeded"));
    assert_eq!(message(result), (CloudErrorKind::Denied, "403: Quota exceeded".to_owned()));
}

#[tokio::test]
async fn addresses_of_this_machine_and_of_metadata_services_are_not_dialed() {
    let mut server = server("HTTP/1.1 200 OK\r\n\r\n", Vec::new(), 0).await;
    let port = server.url.port().unwrap();
    let http = http(false, true);
    for host in ["127.0.0.1", "[::ffff:127.0.0.1]", "169.254.169.254", "localhost", "127.1"] {
        let url = format!("http://{host}:{port}/").parse().unwrap();
        assert!(matches!(get(&http, &url).await, Err(CallError::NotSent(_))), "{host}");
    }
    assert!(server.heard.try_recv().is_err(), "nothing arrived");
}

#[tokio::test]
async fn a_closed_port_and_a_silent_one_look_alike() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let http = http(true, true);
    let began = Instant::now();
    let result = get(&http, &format!("http://{closed}/").parse().unwrap()).await;
    assert!(began.elapsed() >= Duration::from_millis(190), "{:?}", began.elapsed());
    assert_eq!(message(result).1, "no connection, or its certificate is not trusted");
}

#[tokio::test]
async fn nothing_is_sent_without_the_permit() {
    let mut server = server("HTTP/1.1 200 OK\r\n\r\n", Vec::new(), 0).await;
    let result = get(&http(true, false), &server.url).await;
    assert_eq!(message(result).0, CloudErrorKind::NotLeader);
    assert!(server.heard.try_recv().is_err());
}

#[test]
fn authorities_must_be_certificates() {
    let options = |pem: &[u8]| Options {
        process: Process { identity: "test".to_owned(), permit: Arc::new(|| true), dialer: Dialer::default() },
        tenant: Some("tenant".into()),
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
    http(true, true).call(Priority::Waking, Method::POST, server.url, &[], None).await.unwrap();
    let request = server.heard.recv().await.unwrap().to_lowercase();
    assert_eq!(request.matches("content-length: 0\r\n").count(), 1, "{request}");
    assert!(!request.contains("transfer-encoding"), "{request}");
}

#[tokio::test]
async fn a_form_is_encoded() {
    let mut server = server("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", b"{}".into(), 1).await;
    let form = Body::Form(vec![("client_secret", "a&b=c~".to_owned()), ("scope", "https://x/.default".to_owned())]);
    http(true, true).call(Priority::Waking, Method::POST, server.url, &[], Some(&form)).await.unwrap();
    let request = server.heard.recv().await.unwrap();
    assert!(request.contains("content-type: application/x-www-form-urlencoded"), "{request}");
    assert!(request.ends_with("client_secret=a%26b%3Dc%7E&scope=https%3A%2F%2Fx%2F.default"), "{request}");
}

/// A cloud that answers these, one after the other.
struct Answers(parking_lot::Mutex<Vec<Reply>>);

impl Transport for Answers {
    fn send<'a>(&'a self, _what: &'a str, _request: Request) -> BoxFuture<'a, Result<Reply, CallError>> {
        let reply = self.0.lock().remove(0);
        async { Ok(reply) }.boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_throttled_account_waits_as_long_as_the_cloud_asks() {
    let reply = |status, after: Option<&'static str>| {
        let headers = after.map(|after| (reqwest::header::RETRY_AFTER, HeaderValue::from_static(after)));
        Reply { status, headers: headers.into_iter().collect(), body: b"{}".to_vec() }
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
