use super::*;

const PASSWORD: &str = "
clouds:
  shift:
    auth: {auth_url: 'https://keystone.example:5000/v3/', username: u, password: hush, project_name: p,
           user_domain_name: Default, project_domain_id: d}
    region_name: R1
  other: {auth: {auth_url: 'https://other.example', application_credential_id: c, application_credential_secret: hush}}
";

fn secret(text: &str) -> SecretData {
    SecretData::from([(KEY.to_owned(), text.as_bytes().to_vec())])
}

fn entry(text: &str) -> SecretData {
    let auth = "auth: {auth_url: 'https://k', user_id: u, password: hush, project_id: p}";
    secret(&format!("clouds: {{shift: {{{auth}, {text}}}}}"))
}

fn auth(text: &str) -> SecretData {
    secret(&format!("clouds: {{shift: {{auth: {{{text}}}}}}}"))
}

#[test]
fn logs_in_by_password_or_application_credential() {
    let cloud = parse(&secret(PASSWORD), "shift", None).unwrap();
    assert_eq!(cloud.keystone.as_str(), "https://keystone.example:5000/");
    let user = json!({"name": "u", "domain": {"name": "Default"}, "password": "hush"});
    let scope = json!({"project": {"name": "p", "domain": {"id": "d"}}});
    let identity = json!({"methods": ["password"], "password": {"user": user}});
    assert_eq!(cloud.auth, json!({"identity": identity, "scope": scope}));
    assert_eq!((cloud.region.as_deref(), cloud.interface.as_str()), (Some("R1"), "public"));
    assert!(cloud.authorities.is_none() && !cloud.account.contains("hush"));

    let other = parse(&secret(PASSWORD), "other", None).unwrap();
    let credential = json!({"id": "c", "secret": "hush"});
    let identity = json!({"methods": ["application_credential"], "application_credential": credential});
    assert_eq!(other.auth, json!({"identity": identity}));
    assert!(other.region.is_none() && !other.account.contains("hush") && other.word() != cloud.word());
}

fn names(number: usize) -> String {
    (0..number).map(|number| format!("c{number}: {{}}")).collect::<Vec<_>>().join(", ")
}

#[test]
fn fields_of_any_spelling_are_read() {
    for text in ["verify: true", "verify: True", "identity_api_version: 3", "identity_api_version: '3'", "cert: null"] {
        assert!(parse(&entry(text), "shift", None).is_ok(), "{text}");
    }
    let with_others = format!(
        "clouds: {{{}, shift: {{auth: {{auth_url: 'https://k', user_id: u, password: p, project_id: p}}}}}}",
        names(500)
    );
    assert!(parse(&secret(&with_others), "shift", None).is_ok());
}

#[test]
fn what_is_refused_is_named_by_its_field() {
    let full = "auth_url: 'https://k', username: u, password: hush, project_name: p";
    for (secret, says) in [
        (SecretData::new(), "it has no key clouds.yaml"),
        (secret("clouds: ["), "clouds.yaml is malformed"),
        (
            secret("clouds: {a: {}, b: {}}"),
            "has no cloud shift, which spec.platform.openstack.cloud names: it has a, b",
        ),
        (secret(&"#".repeat((64 << 10) + 1)), "is not text of at most 64 KiB"),
        (secret("clouds: {shift: &a {}, b: *a}"), "clouds.yaml is refused: it has YAML anchors or aliases"),
        (secret("a: &a [x]\nb: [*a, *a]\nclouds: {}"), "clouds.yaml is refused: it has YAML anchors or aliases"),
        (secret(&format!("clouds: {{{}}}", names(1_000))), "it has c0, c1, c10, c100, c101 and 995 more"),
        (
            secret(&format!("x: [{}]", vec!["y"; 6_000].join(","))),
            "clouds.yaml is refused: it has more keys and values",
        ),
        (secret("x: {clouds: {shift: {}}}"), "has no cloud shift"),
        (entry("verify: false"), "clouds.shift.verify must be true"),
        (entry("profile: vexxhost"), "clouds.shift.profile is not supported"),
        (entry("cert: /x"), "clouds.shift.cert is not supported"),
        (entry("key: /x"), "clouds.shift.key is not supported"),
        (entry("auth_type: v3oidcpassword"), "clouds.shift.auth_type must be password"),
        (entry("auth_type: v3applicationcredential"), "clouds.shift.auth.application_credential_secret is missing"),
        (entry("interface: secret"), "clouds.shift.interface must be public"),
        (entry("identity_api_version: 2.0"), "clouds.shift.identity_api_version must be 3"),
        (entry("cacert: /srv/ca.pem"), "clouds.shift.cacert names a file that the controller does not read"),
        (entry("cacert: /etc/openstack-ca/ca.pem"), "name a Secret with that KEY in certificatesSecretRef"),
        (auth("user_id: u"), "clouds.shift.auth.password is missing"),
        (auth("password: hush"), "clouds.shift.auth.username is missing"),
        (auth("user_id: u, password: hush"), "clouds.shift.auth.project_name is missing"),
        (auth("user_id: u, password: hush, project_id: p"), "clouds.shift.auth.auth_url is missing"),
        (auth(full), "clouds.shift.auth.user_domain_name is missing"),
        (auth(&format!("{full}, user_domain_id: d")), "clouds.shift.auth.project_domain_name is missing"),
        (auth("user_id: u, password: hush, project_id: p, auth_url: 'https://k/v2.0'"), "auth_url names Keystone v2.0"),
        (
            auth("user_id: u, password: hush, project_id: p, auth_url: 'https://u:hush@k/v3'"),
            "auth_url must be https://",
        ),
        (auth("user_id: u, password: hush, project_id: p, auth_url: 'file:///etc'"), "auth_url must be https://"),
    ] {
        let error = parse(&secret, "shift", None).map(drop).unwrap_err();
        assert!(error.contains(says) && !error.contains("hush"), "{says}: {error}");
    }
}

#[test]
fn certificates_of_the_secret_are_trusted_whatever_cacert_names() {
    let certificates = SecretData::from([("a.pem".to_owned(), b"A".to_vec()), ("b.pem".to_owned(), b"B".to_vec())]);
    for cacert in ["", "''", "/etc/openstack-ca/b.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"]
        .map(|to| format!("cacert: {to}"))
    {
        let cloud = parse(&entry(&cacert), "shift", Some(&certificates)).unwrap();
        assert_eq!(cloud.authorities.as_deref(), Some(&b"A\nB"[..]), "{cacert}");
        assert_eq!(parse(&entry("cacert: ''"), "shift", Some(&SecretData::new())).unwrap().authorities, None);
    }
    let system = parse(&entry("cacert: /etc/pki/tls/certs/ca-bundle.crt"), "shift", None).unwrap();
    assert!(system.authorities.is_none());
    let large = SecretData::from(
        [("a.pem", 300_000), ("b.pem", 300_000)].map(|(key, size)| (key.to_owned(), vec![b'A'; size])),
    );
    let cacert = entry("cacert: /etc/pki/tls/certs/ca-bundle.crt");
    let error = parse(&cacert, "shift", Some(&large)).map(drop).unwrap_err();
    assert!(error.ends_with("certificatesSecretRef: the certificates have more than 512 KiB"), "{error}");
    let error = parse(&entry("cacert: /etc/openstack-ca/c.pem"), "shift", Some(&certificates)).map(drop).unwrap_err();
    assert!(error.contains("cacert names a file"), "{error}");
}

#[test]
fn fuzz_memory_of_clouds_yaml() {
    let seeds = [PASSWORD.as_bytes(), b"clouds: {shift: {auth: {auth_url: 'https://k', user_id: u}, verify: true}}"];
    ::fuzz::run("clouds.yaml", &seeds, |bytes| {
        let file = SecretData::from([(KEY.to_owned(), bytes.to_vec())]);
        let (read, peak) = ::fuzz::peak(|| parse(&file, "shift", None).is_ok());
        assert!(peak.is_none_or(|peak| peak <= 64 * bytes.len() + (64 << 10)), "{peak:?} for {}", bytes.len());
        read
    });
}
