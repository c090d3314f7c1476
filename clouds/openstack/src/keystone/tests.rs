use cloud_common::{Dialer, MemoryLimit, Process};
use cloud_http::Options;

use super::*;

fn keystone(auth_url: &str, region: Option<&str>) -> Keystone {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let process = Process {
        identity: "test".to_owned(),
        permit: Arc::new(|| true),
        dialer: Dialer::default(),
        memory: MemoryLimit::default(),
    };
    let tenant = Some("tenant".into());
    let options = Options { process, tenant, account: "account".into(), authorities: None, rate: (1, 1) };
    let http = Http::new(options).unwrap();
    let cloud = Cloud {
        keystone: Url::parse(auth_url).unwrap(),
        auth: json!({}),
        region: region.map(str::to_owned),
        interface: "public".to_owned(),
        authorities: None,
        account: String::new(),
    };
    Keystone { http: Arc::new(http), cloud }
}

fn catalog(endpoints: &[(&str, &str, &str)]) -> Vec<CatalogEntry> {
    let endpoint = |(interface, region, url): &(&str, &str, &str)| json!({"interface": interface, "region_id": region, "url": url});
    let endpoints: Vec<_> = endpoints.iter().map(endpoint).collect();
    serde_json::from_value(json!([{"type": "network", "endpoints": endpoints}])).unwrap()
}

#[test]
fn the_endpoint_is_that_of_region_and_interface() {
    let two =
        [("public", "R1", "https://one"), ("internal", "R1", "https://own"), ("public", "R2", "https://two/v2.0/")];
    for (region, endpoints, expected) in [
        (Some("R1"), &two[..], Ok("https://one/v2.0")),
        (Some("R2"), &two[..], Ok("https://two/v2.0")),
        (None, &two[..1], Ok("https://one/v2.0")),
        (None, &two[..], Err("set region_name in clouds.yaml")),
        (Some("R3"), &two[..], Err("no public endpoint for network of region R3: check region_name and interface")),
        (None, &[("public", "R1", "http://one")], Err("is http: Keystone is asked by https")),
        (None, &[("public", "R1", "file:///etc/passwd")], Err("is no URL")),
        (None, &[("public", "R1", "/v2.0")], Err("is no URL")),
        (None, &[("public", "R1", "https://one/index?x=")], Err("is no URL")),
        (None, &[("public", "R1", "https://one/any/path#")], Err("is no URL")),
        (None, &[("public", "R1", "https://me:hush@one")], Err("is no URL")),
    ] {
        let found = keystone("https://keystone", region).endpoint(&catalog(endpoints), "network", "/v2.0");
        match (found, expected) {
            (Ok(url), Ok(expected)) => assert_eq!(url.as_str(), expected),
            (Err(error), Err(says)) => {
                let error = CloudError::from(error);
                assert!(error.kind == CloudErrorKind::Invalid && error.message.contains(says), "{says}: {error}");
            }
            (found, expected) => panic!("{endpoints:?}: {found:?}, not {expected:?}"),
        }
    }
    let plain =
        keystone("http://keystone", None).endpoint(&catalog(&[("public", "R1", "http://one")]), "network", "/v2.0");
    assert_eq!(plain.unwrap().as_str(), "http://one/v2.0");
}
