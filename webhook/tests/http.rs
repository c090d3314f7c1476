//! What a client gets to see: codes, bodies, the uid, and the answers of each row of the table.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by them")]

mod common;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use common::*;
use serde_json::{Value, json};
use webhook::limiter::MAX_BODY_BYTES;

/// One of the service accounts of Hive's namespace.
fn hive() -> Value {
    json!({ "username": "system:serviceaccount:hive:hive-controllers", "groups": ["system:serviceaccounts:hive"] })
}

fn controller() -> Value {
    json!({ "username": "system:serviceaccount:hibernate-system:hibernate-controller" })
}

#[tokio::test]
async fn sleep_is_allowed_with_its_stamp_and_no_warning() {
    let response = ask("/validate", &to_sleep()).await;
    assert_eq!(response, json!({ "uid": response["uid"], "allowed": true }));
}

#[tokio::test]
async fn a_denial_carries_code_reason_and_fields() {
    let new = protected();
    let new = with(new, "/spec/clusterMetadata/infraID", json!(""));
    let response = ask("/validate", &update(CLUSTERS, &cluster(""), &new)).await;
    assert_eq!(response["allowed"], false);
    let message = "ClusterDeployment shop/demo: \
         spec.clusterMetadata.infraID: missing or empty on an installed cluster: without it the cluster's machines cannot be found; \
         metadata.annotations[hibernate.sh/protected]: the cluster is protected from sleep: remove the annotation first";
    let status = &response["status"];
    assert_has(status, &json!({ "code": 403, "reason": "Forbidden", "status": "Failure", "message": message }));
    let details = json!({ "kind": "ClusterDeployment", "name": "demo", "group": "hive.openshift.io" });
    assert_has(&status["details"], &details);
    let causes =
        status["details"]["causes"].as_array().unwrap().iter().map(|cause| (&cause["reason"], &cause["field"]));
    assert_eq!(
        causes.collect::<Vec<_>>(),
        [
            (&json!("FieldValueRequired"), &json!("spec.clusterMetadata.infraID")),
            (&json!("FieldValueForbidden"), &json!("metadata.annotations[hibernate.sh/protected]")),
        ]
    );
}

/// V1, V5 and the syntax of V8 never get past a real schema, so they are asked here.
#[tokio::test]
async fn what_the_schema_would_refuse_is_denied_as_invalid() {
    for (pointer, value, field) in [
        ("/spec/powerState", json!("Sleeping"), "spec.powerState"),
        ("/spec/clusterMetadata", Value::Null, "spec.clusterMetadata"),
        ("/spec/clusterMetadata/infraID", Value::Null, "spec.clusterMetadata.infraID"),
        (
            "/spec/clusterMetadata/adminKubeconfigSecretRef",
            Value::Null,
            "spec.clusterMetadata.adminKubeconfigSecretRef.name",
        ),
        ("/spec/hibernateAfter", json!("-8h"), "spec.hibernateAfter"),
        ("/spec/hibernateAfter", json!("8"), "spec.hibernateAfter"),
        ("/spec/hibernateAfter", json!("1h-3m"), "spec.hibernateAfter"),
    ] {
        let new = with(cluster("Hibernating"), pointer, value);
        let response = ask("/validate", &update(CLUSTERS, &cluster(""), &new)).await;
        assert_eq!(response["status"]["code"], 422, "{pointer}: {response}");
        assert_eq!(response["status"]["reason"], "Invalid");
        assert_eq!(response["status"]["details"]["causes"][0]["field"], field);
    }
}

#[tokio::test]
async fn exempt_identities_are_warned_and_written_down_instead() {
    let new = protected();
    for user in [hive(), controller()] {
        let mut request = update(CLUSTERS, &cluster(""), &new);
        request["userInfo"] = user;
        let response = ask("/validate", &request).await;
        assert_eq!(response["allowed"], true);
        let audit = response["auditAnnotations"]["would-have-been-denied"].as_str().unwrap();
        assert!(audit.starts_with("V6 metadata.annotations[hibernate.sh/protected]: "), "{audit}");
        assert!(audit.contains("; V12 metadata.annotations[hibernate.sh/requested-by]: found \"alice\""), "{audit}");
        assert_eq!(response["warnings"].as_array().unwrap().len(), 2);
    }
}

/// The service accounts of Hive's namespace write no claims of rollouts, whatever else they bypass.
#[tokio::test]
async fn of_claims_only_users_are_exempt() {
    let mut new = protected();
    new["metadata"]["annotations"]["hibernate.sh/rollout"] = json!("{}");
    for (user, allowed) in [(hive(), false), (controller(), true)] {
        let mut request = update(CLUSTERS, &cluster(""), &new);
        request["userInfo"] = user.clone();
        let response = ask("/validate", &request).await;
        assert_eq!(response["allowed"], allowed, "{user}: {response}");
        let audit = response["auditAnnotations"]["would-have-been-denied"].as_str().unwrap();
        assert!(audit.starts_with("V6 ") && !audit.contains("V10"), "{audit}");
        let causes = response["status"]["details"]["causes"].as_array().map_or(0, Vec::len);
        assert_eq!(causes, usize::from(!allowed), "{response}");
    }
}

/// The service accounts of Hive's namespace write no Clusters of KKP.
#[tokio::test]
async fn of_kkps_clusters_only_users_are_exempt() {
    let old = with(kkp_cluster("Running"), "/metadata/annotations/hibernate.sh~1protected", json!("true"));
    let new = with(kkp_cluster("Hibernating"), "/metadata/annotations/hibernate.sh~1protected", json!("true"));
    for (user, allowed) in
        [(json!({ "username": "alice", "groups": ["system:serviceaccounts:hive"] }), false), (controller(), true)]
    {
        for (operation, old, new) in [("UPDATE", &old, Some(&new)), ("DELETE", &new, None)] {
            let mut request = request(KKP_CLUSTERS, operation, Some(old), new);
            request["userInfo"] = user.clone();
            let response = ask("/validate", &request).await;
            assert_eq!(response["allowed"], allowed, "{operation} {user}: {response}");
            assert_eq!(response["auditAnnotations"].is_null(), !allowed, "{operation} {user}: {response}");
        }
    }
}

/// KKP: of a Cluster that cannot be written. The user stands in the review, and our controller is believed.
#[tokio::test]
async fn a_request_on_a_record_is_stamped_by_a_patch() {
    let record = |annotations: Value| json!({ "metadata": { "name": "hibernate-record", "namespace": "cluster-abc", "annotations": annotations } });
    let requested = record(json!({ "hibernate.sh/power-state": "Running", "hibernate.sh/requested-by": "mallory" }));
    for (user, by) in [
        ("alice", "alice"),
        ("mallory", "mallory"),
        ("system:serviceaccount:hibernate-system:hibernate-controller", "mallory"),
    ] {
        let mut new = requested.clone();
        let mut request =
            request(("", "configmaps", "ConfigMap"), "UPDATE", Some(&record(json!({}))), Some(&requested));
        request["userInfo"] = json!({ "username": user });
        let response = ask("/mutate", &request).await;
        assert_eq!(response["allowed"], true, "{response}");
        json_patch::patch(&mut new, &patch_of(&response)).unwrap();
        assert_eq!(new["metadata"]["annotations"]["hibernate.sh/requested-by"], by, "{user}");
    }
}

#[tokio::test]
async fn a_scale_request_is_warned_of_what_it_cannot_carry() {
    let scale = |replicas: Value| json!({ "metadata": { "name": "demo", "namespace": "shop" }, "spec": replicas });
    let (old, new) = (scale(json!({ "replicas": 3 })), scale(json!({})));
    let mut request = request(("apps", "deployments", "Scale"), "UPDATE", Some(&old), Some(&new));
    request["subResource"] = json!("scale");
    let response = ask("/mutate", &request).await;
    assert_eq!(response["allowed"], true);
    assert!(response["patch"].is_null());
    assert!(response["warnings"][1].as_str().unwrap().contains("hibernate.sh/replicas=3"));
}

#[tokio::test]
async fn what_is_not_ours_to_judge_passes() {
    let (asleep, awake) = (cluster("Hibernating"), cluster(""));
    let mut status = update(CLUSTERS, &awake, &asleep);
    status["subResource"] = json!("status");
    let silent = [
        status,
        request(CLUSTERS, "DELETE", Some(&asleep), None),
        request(DEPLOYMENTS, "CREATE", None, Some(&deployment(0))),
        request(CLUSTERS, "PONDER", Some(&awake), Some(&asleep)),
    ];
    for request in &silent {
        for path in ["/validate", "/mutate"] {
            let response = ask(path, request).await;
            assert_eq!(response, json!({ "uid": response["uid"], "allowed": true }));
        }
    }
    let foreign =
        request(("batch", "jobs", "Job"), "CREATE", None, Some(&json!({ "spec": { "powerState": "Hibernating" } })));
    for path in ["/validate", "/mutate"] {
        let response = ask(path, &foreign).await;
        assert_eq!(response["allowed"], true);
        assert!(response["warnings"][0].as_str().unwrap().contains("no rules for jobs.batch"));
    }
}

#[tokio::test]
async fn a_request_without_its_object_is_denied() {
    let missing = ask("/validate", &request(CLUSTERS, "UPDATE", Some(&cluster("")), None)).await;
    assert_eq!(
        missing["status"]["message"],
        "ClusterDeployment shop/demo: object: object is missing from the request; the webhook cannot evaluate the request"
    );
}

#[tokio::test]
async fn what_is_no_review_gets_a_clear_400_with_its_uid() {
    let ours = to_sleep();
    let mut old_version = review(&ours);
    old_version["apiVersion"] = json!("admission.k8s.io/v1beta1");
    let mut odd_user = review(&ours);
    odd_user["request"]["userInfo"] = json!(7);
    for (body, uid, says) in [
        (String::new(), "", "EOF while parsing"),
        ("junk".to_owned(), "", "read the request body as an AdmissionReview"),
        (old_version.to_string(), ours["uid"].as_str().unwrap(), "must be \"admission.k8s.io/v1\""),
        (odd_user.to_string(), ours["uid"].as_str().unwrap(), "invalid type: integer `7`"),
        (review(&Value::Null).to_string(), "", "has no request"),
    ] {
        let (code, answer) = post("/validate", body).await;
        assert_eq!(code, StatusCode::BAD_REQUEST);
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let response = &answer["response"];
        assert_has(response, &json!({ "uid": uid, "allowed": false, "status": { "code": 400 } }));
        assert!(response["status"]["message"].as_str().unwrap().contains(says), "{response}");
    }
}

#[tokio::test]
async fn bodies_are_bounded_and_typed() {
    let (code, body) = post("/validate", vec![b' '; MAX_BODY_BYTES + 1]).await;
    let too_large = (StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 7340032 bytes\n");
    assert_eq!((code, String::from_utf8_lossy(&body).as_ref()), too_large);
    let (code, _) = post("/validate", vec![b' '; MAX_BODY_BYTES]).await;
    assert_eq!(code, StatusCode::BAD_REQUEST, "of the right size, but no review");

    let large = with(cluster("Hibernating"), "/metadata/annotations/example.com~1large", json!("x".repeat(3_000_000)));
    let response = ask("/validate", &update(CLUSTERS, &large, &large)).await;
    assert_eq!(response["allowed"], true);

    for kind in [None, Some("text/plain"), Some("application/yaml"), Some("application/jsonx")] {
        let request = Request::post("/validate");
        let request = kind.iter().fold(request, |request, kind| request.header("content-type", *kind));
        let (code, _) = send(request.body(Body::from("{}")).unwrap()).await;
        assert_eq!(code, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{kind:?}");
    }
    let with_charset = Request::post("/validate").header("content-type", "application/json; charset=utf-8");
    assert_eq!(send(with_charset.body(Body::from("{}")).unwrap()).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(send(Request::get("/validate").body(Body::empty()).unwrap()).await.0, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(send(Request::post("/").body(Body::empty()).unwrap()).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_is_not_waited_for() {
    let never = Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let (code, body) = post("/validate", never).await;
    assert_eq!((code, body.as_slice()), (StatusCode::REQUEST_TIMEOUT, b"the body did not arrive in time\n".as_slice()));
}

/// K13: whoever asks before, and however often, changes nothing: the only ways past are the annotation and KKP's own
/// accounts.
#[test]
fn a_delete_is_judged_by_itself() {
    let webhook = default_webhook();
    let kkp = json!({ "username": "system:serviceaccount:kubermatic:kubermatic-seed", "groups": ["system:serviceaccounts:kubermatic"] });
    let by_name = json!({ "username": "system:serviceaccounts:kubermatic" });
    let alice = json!({ "username": "alice", "groups": ["system:authenticated"] });
    for (what, user, allow, dry_run, allowed) in [
        ("a dry run", &alice, None, true, false),
        ("the first", &alice, None, false, false),
        ("the second", &alice, None, false, false),
        ("a user of the group's name", &by_name, None, false, false),
        ("KKP", &kkp, None, false, true),
        ("the controller", &controller(), None, false, true),
        ("after KKP", &alice, None, false, false),
        ("allowed", &alice, Some("true"), false, true),
        ("not allowed", &alice, Some("no"), false, false),
    ] {
        let cluster =
            with(kkp_cluster("Hibernating"), "/metadata/annotations/hibernate.sh~1allow-delete", json!(allow));
        let mut request = request(KKP_CLUSTERS, "DELETE", Some(&cluster), None);
        (request["dryRun"], request["userInfo"]) = (dry_run.into(), user.clone());
        let body = review(&request).to_string();
        let now = "2026-11-22T12:00:00Z".parse().unwrap();
        let (code, body) = webhook.answer(webhook::table::Endpoint::Validate, body.as_bytes(), now);
        assert_eq!(code, StatusCode::OK);
        let response = serde_json::from_slice::<Value>(&body).unwrap()["response"].take();
        assert_eq!(response["allowed"], allowed, "{what}: {response}");
        let detail = if allowed { response["warnings"].to_string() } else { response["status"]["message"].to_string() };
        assert!(detail.contains("expired at 2026-01-01T00:00:00Z"), "{what}: {response}");
        assert_eq!(allowed, response["status"].is_null(), "{what}");
        let audited = response["auditAnnotations"].to_string().contains("K13");
        assert_eq!(audited, allowed && allow.is_none(), "{what}: {response}");
    }
}

#[tokio::test]
async fn a_deletion_that_cannot_be_judged_is_denied_but_for_kkps_own() {
    let wrong = json!({ "metadata": { "annotations": [] } });
    for (cluster, says) in [(Some(&wrong), "oldObject cannot be read"), (None, "oldObject is missing")] {
        let mut request = request(KKP_CLUSTERS, "DELETE", cluster, None);
        let response = ask("/validate", &request).await;
        assert!(response["allowed"] == false && response["status"]["message"].to_string().contains(says), "{response}");
        request["userInfo"]["groups"] = json!(["system:serviceaccounts:kubermatic"]);
        let response = ask("/validate", &request).await;
        assert!(response["allowed"] == true && response["warnings"].to_string().contains(says), "{response}");
    }
}
