//! What an answer of the API server means for the user. The one place that distinguishes a refusal by policy from
//! missing permissions, a missing object from a missing kind, and a dead hub from a wrong certificate.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use kube::core::Status;
use shared::admission::Denial;
use shared::kinds::Kind;

use crate::error::HubError;

/// A request to the API server.
#[derive(Clone, Debug)]
pub struct Call {
    /// RBAC verb.
    pub verb: &'static str,
    /// Kind of the object.
    pub kind: &'static Kind,
    /// Name of the object, empty for lists.
    pub name: String,
}

impl Call {
    fn object(&self) -> String {
        if self.name.is_empty() { self.kind.resource_name() } else { self.kind.full_name(&self.name) }
    }
}

/// A request that cannot even be written down.
pub fn unsendable(call: &Call, source: kube::core::request::Error) -> HubError {
    HubError::Unsendable { verb: call.verb, object: call.object(), source }
}

/// Finds the meaning of a failed request.
pub fn judge(url: &Arc<str>, call: &Call, error: kube::Error) -> HubError {
    let (verb, object, url) = (call.verb, call.object(), Arc::clone(url));
    match error {
        kube::Error::Api(status) => judge_status(&url, call, &status),
        kube::Error::Auth(error) => HubError::Login { url, cause: error.to_string() },
        kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_) => {
            trouble(&url, call, &error).unwrap_or_else(|| HubError::Unreachable { url, cause: innermost(&error) })
        }
        source => HubError::Other { verb, object, url, source },
    }
}

/// | # | answer | meaning |
/// |---|---|---|
/// | A1 | 401 | credentials |
/// | A2 | 404 that names the object | the object does not exist |
/// | A3 | any other 404 | the kind does not exist |
/// | A4 | `admission webhook "..." denied the request`, any code | refused by a webhook |
/// | A5 | `ValidatingAdmissionPolicy '...' with binding ... denied request`, any code | refused by a policy |
/// | A6 | 500 `failed calling webhook` | the webhook is down |
/// | A7 | 403 `User "..." cannot ...` | missing rights |
/// | A8 | any other 403 in the API server's own form | refused by admission, such as a quota |
/// | A9 | 422, or 400 with the reason Invalid | refused by the schema |
/// | A10 | 409, or 422 for a JSON patch whose `test` failed / 410 | another client wrote in between / too old |
/// | A11 | 400 for a list, in the words of the API server's parser of selectors | `-l` is no selector |
/// | A12 | the rest | as it is |
fn judge_status(url: &Arc<str>, call: &Call, status: &Status) -> HubError {
    let object = call.object();
    let message = status.message.clone();
    let details = status.details.as_ref();
    if let Some((by, message)) = denial(&message) {
        return HubError::Refused { object, by, message, denials: denials(status) }; // A4, A5
    }
    match status.code {
        401 => HubError::Unauthorized { url: Arc::clone(url) }, // A1
        404 if details.is_some_and(|details| !details.name.is_empty()) => HubError::NoObject { object }, // A2
        404 => HubError::NoKind(call.kind.resource_name()),     // A3
        500 if message.contains("failed calling webhook") => HubError::WebhookDown { object, message }, // A6
        403 if message.contains("\" cannot ") => {
            HubError::Forbidden { object, message: essence(&message).to_owned() } // A7
        }
        403 if status.reason == "Forbidden" => refused(object, "admission", &message), // A8
        422 if failed_test(status) => HubError::Conflict { object, message },          // A10
        422 => refused(object, "the schema", &message),                                // A9
        400 if status.reason == "Invalid" => refused(object, "the schema", &message),  // A9
        409 => HubError::Conflict { object, message },                                 // A10
        410 => HubError::Expired { object, message },                                  // A10
        400 if call.verb == "list" && is_of_a_selector(&message) => HubError::Selector { message }, // A11
        code => HubError::Status { object, code, message },                            // A12
    }
}

/// Whether these are words of the API server's parser of selectors. Of ours only the one of `-l` can be wrong.
fn is_of_a_selector(message: &str) -> bool {
    message.starts_with("unable to parse requirement")
        || (message.starts_with("found '") && message.contains("expected: "))
}

/// What the API server says of a JSON patch that it could not apply, which for ours means: another version than we
/// read.
fn failed_test(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes).map(|cause| cause.message.as_str());
    causes.chain([status.message.as_str()]).any(|text| {
        text.contains("testing path")
            || text.starts_with("the server rejected our request due to an error in our request")
    })
}

fn refused(object: String, by: &str, message: &str) -> HubError {
    HubError::Refused { object, by: by.to_owned(), message: essence(message).to_owned(), denials: Vec::new() }
}

/// The rules that denied the request, as our webhook names them in the causes. None of a policy or of another webhook.
fn denials(status: &Status) -> Vec<Denial> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.filter_map(|cause| Denial::from_cause(&cause.reason, &cause.field, &cause.message)).collect()
}

/// `Kind "name" is invalid: ...` and `kind "name" is forbidden: ...` repeat what our messages begin with.
fn essence(message: &str) -> &str {
    [" is invalid: ", " is forbidden: "]
        .iter()
        .find_map(|middle| message.split_once(middle))
        .map_or(message, |(_, essence)| essence)
}

/// Who denied a request and in which words, if the message is a denial by a webhook or a policy.
fn denial(message: &str) -> Option<(String, String)> {
    if let Some(rest) = message.strip_prefix("admission webhook ") {
        let (name, rest) = rest.split_once(" denied the request")?;
        let words = rest.strip_prefix(": ").unwrap_or("it gave no reason");
        return Some((format!("admission webhook {name}"), words.to_owned()));
    }
    let (_, rest) = message.split_once("ValidatingAdmissionPolicy ")?;
    let (name, rest) = rest.split_once(" with binding ")?;
    let (_, words) = rest.split_once(" denied request: ")?;
    Some((format!("policy {name}"), words.to_owned()))
}

/// What kind of trouble a connection had, if one of the causes shows it.
fn trouble(url: &Arc<str>, call: &Call, error: &(dyn StdError + 'static)) -> Option<HubError> {
    chain(error).find_map(|cause| {
        let url = Arc::clone(url);
        if let Some(error) = cause.downcast_ref::<kube::client::AuthError>() {
            return Some(HubError::Login { url, cause: error.to_string() });
        }
        if let Some(error) = cause.downcast_ref::<rustls::Error>() {
            return Some(match error {
                rustls::Error::InvalidCertificate(problem) => HubError::Untrusted { url, cause: certificate(problem) },
                rustls::Error::AlertReceived(alert) => HubError::Login { url, cause: format!("TLS alert {alert:?}") },
                other => HubError::Unreachable { url, cause: other.to_string() },
            });
        }
        let error = cause.downcast_ref::<io::Error>()?;
        match error.kind() {
            io::ErrorKind::TimedOut => Some(HubError::Silent { url, verb: call.verb, object: call.object() }),
            _ if error.get_ref().is_some() => None, // the cause inside says more
            _ => Some(HubError::Unreachable { url, cause: error.to_string() }),
        }
    })
}

/// What is wrong with a certificate, in words.
pub fn certificate(problem: &rustls::CertificateError) -> String {
    use rustls::CertificateError::{
        Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet, NotValidYetContext,
        UnknownIssuer,
    };
    let words = match problem {
        UnknownIssuer => "its certificate is signed by an unknown authority",
        Expired | ExpiredContext { .. } => "its certificate has expired",
        NotValidYet | NotValidYetContext { .. } => "its certificate is not valid yet",
        NotValidForName | NotValidForNameContext { .. } => "its certificate is for another name",
        other if other.to_string().contains("CaUsedAsEndEntity") => {
            "its serving certificate is a CA certificate (basicConstraints CA)"
        }
        other => return format!("its certificate is not valid: {other}"),
    };
    words.to_owned()
}

/// The error, its sources, and what is inside of I/O errors, which do not count their content as a source.
fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error: &&'a (dyn StdError + 'static)| {
        let inside = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        match inside {
            Some(inside) => Some(inside as &(dyn StdError + 'static)),
            None => error.source(),
        }
    })
}

fn innermost(error: &(dyn StdError + 'static)) -> String {
    chain(error).last().map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use kube::core::response::StatusDetails;

    use super::*;
    use shared::kinds::CLUSTER_DEPLOYMENT;

    fn status(code: u16, reason: &str, message: &str, name: &str) -> HubError {
        let status = Status {
            details: Some(StatusDetails {
                name: name.to_owned(),
                group: String::new(),
                kind: String::new(),
                uid: String::new(),
                causes: Vec::new(),
                retry_after_seconds: 0,
            }),
            ..Status::failure(message, reason).with_code(code)
        };
        let call = Call { verb: "patch", kind: &CLUSTER_DEPLOYMENT.kind, name: "demo".to_owned() };
        judge_status(&"https://hub".into(), &call, &status)
    }

    /// Messages as real API servers of 1.36 wrote them.
    #[test]
    fn answers_mean_what_the_table_says() {
        let rbac = r#"clusterdeployments.hive.openshift.io "demo" is forbidden: User "alice" cannot patch resource "clusterdeployments" in API group "hive.openshift.io" in the namespace "default""#;
        let webhook = r#"admission webhook "into-sleep.hibernate.sh" denied the request: the cluster is protected"#;
        let policy = r#"clusterdeployments.hive.openshift.io "demo" is forbidden: ValidatingAdmissionPolicy 'hibernate' with binding 'hibernate' denied request: protected"#;
        let quota = r#"deployments.apps "web" is forbidden: exceeded quota: q"#;
        let schema =
            r#"ClusterDeployment.hive.openshift.io "demo" is invalid: spec.powerState: Unsupported value: "Off""#;
        let down = r#"Internal error occurred: failed calling webhook "into-sleep.hibernate.sh": connection refused"#;
        let lines: Vec<String> = [
            (401, "Unauthorized", "Unauthorized", ""),
            (404, "NotFound", r#"clusterdeployments.hive.openshift.io "demo" not found"#, "demo"),
            (404, "NotFound", "the server could not find the requested resource", ""),
            (404, "Failed to parse error data", "404 page not found", ""),
            (403, "Forbidden", webhook, ""),
            (400, "", webhook, ""),
            (422, "Invalid", webhook, "demo"),
            (422, "Invalid", policy, "demo"),
            (403, "Forbidden", rbac, "demo"),
            (403, "Forbidden", quota, "web"),
            (422, "Invalid", schema, "demo"),
            (422, "Invalid", "the server rejected our request due to an error in our request", ""),
            (500, "InternalError", down, ""),
            (409, "Conflict", "the object has been modified", "demo"),
            (403, "Failed to parse error data", "<html>blocked by a proxy</html>", ""),
            (503, "ServiceUnavailable", "try later", ""),
        ]
        .into_iter()
        .map(|(code, reason, message, name)| status(code, reason, message, name).to_string())
        .collect();
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn a_selector_that_cannot_be_read_is_the_users() {
        let requirement = "unable to parse requirement: found '!', expected: identifier";
        let end = "found 'b', expected: ',' or 'end of string'";
        for (verb, message, selector) in [
            ("list", requirement, true),
            ("list", end, true),
            ("patch", requirement, false),
            ("list", "found no such thing", false),
        ] {
            let status = Status::failure(message, "BadRequest").with_code(400);
            let call = Call { verb, kind: &CLUSTER_DEPLOYMENT.kind, name: String::new() };
            let error = judge_status(&"https://hub".into(), &call, &status);
            assert_eq!(matches!(error, HubError::Selector { .. }), selector, "{verb} {message}");
        }
    }

    #[test]
    fn a_webhook_that_quotes_rbac_is_still_a_webhook() {
        let message = r#"admission webhook "x" denied the request: User "bob" cannot patch resource "y""#;
        assert!(matches!(status(403, "Forbidden", message, ""), HubError::Refused { .. }));
    }

    #[test]
    fn broken_connections_are_told_apart() {
        let certificate = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let call = Call { verb: "patch", kind: &CLUSTER_DEPLOYMENT.kind, name: "demo".to_owned() };
        let url = || Arc::<str>::from("https://hub");
        let unknown = "its certificate is signed by an unknown authority".to_owned();
        let refused = io::Error::from_raw_os_error(111);
        for (error, expected) in [
            (
                io::Error::from(io::ErrorKind::TimedOut),
                HubError::Silent { url: url(), verb: "patch", object: call.object() },
            ),
            (io::Error::other(certificate), HubError::Untrusted { url: url(), cause: unknown }),
            (io::Error::from_raw_os_error(111), HubError::Unreachable { url: url(), cause: refused.to_string() }),
        ] {
            let error = judge(&url(), &call, kube::Error::Service(Box::new(error)));
            assert_eq!(error.to_string(), expected.to_string());
        }
    }
}
