//! What a rejected call says of the request that it was part of.

use cloud_http::{CallError, Rejection, StatusCode};
use cloud_recreate::{Failure, Obstacle};
use shared::cloud::{CloudError, CloudErrorKind};

use crate::names::REQUEST_ID_HEADER;

/// Whether a service refuses this one thing: a flavor that is gone, an address that is taken, a quota. It is certain
/// that nothing was made.
pub(crate) fn is_own_word(rejection: &Rejection) -> bool {
    let is_forbidden = rejection.status == StatusCode::FORBIDDEN && rejection.headers.contains_key(REQUEST_ID_HEADER);
    matches!(rejection.status.as_u16(), 400 | 404 | 409) || is_forbidden || is_quota(rejection)
}

/// Whether a service reports a used-up quota. Nova answers with its own 500 where the quota is Glance's.
fn is_quota(rejection: &Rejection) -> bool {
    let message = rejection.message.to_lowercase();
    match rejection.status.as_u16() {
        413 => true,
        403 | 409 => ["quota", "limit"].iter().any(|word| message.contains(word)),
        500 => message.contains("overlimit") && rejection.is_by_service(REQUEST_ID_HEADER),
        _ => false,
    }
}

fn refused(code: &str, rejection: &Rejection) -> Failure {
    let message = if rejection.message.is_empty() { &rejection.what } else { &rejection.message };
    if !is_quota(rejection) {
        return Failure::Refused(Obstacle::new(code, message));
    }
    let glance = "Glance refuses the image, because a quota of the project is used up: ";
    let of = if rejection.status == StatusCode::INTERNAL_SERVER_ERROR { glance } else { "" };
    Failure::NoCapacity(Obstacle::new("QuotaExceeded", &format!("{of}{message}")))
}

/// The failure of a call in which such a rejection is about one thing alone.
pub(crate) fn refused_if(code: &str, is_it: impl Fn(&Rejection) -> bool, error: CallError) -> Failure {
    match error {
        CallError::Rejected(rejection) if is_it(&rejection) => refused(code, &rejection),
        error => failure(error),
    }
}

pub(crate) fn has_status(status: StatusCode) -> impl Fn(&Rejection) -> bool {
    move |rejection| rejection.status == status
}

/// The failure of a call. A 500 by a service itself may hide a request that it has passed on.
pub(crate) fn failure(error: CallError) -> Failure {
    let rejection = match error {
        CallError::NotSent(error) => return Failure::NotDone(error),
        CallError::Unknown(error) => return Failure::Unknown(error),
        CallError::Rejected(rejection) => rejection,
    };
    match rejection.status.as_u16() {
        404 => Failure::Gone,
        409 if rejection.message.contains("locked") => refused("Locked", &rejection),
        _ if is_quota(&rejection) => refused("QuotaExceeded", &rejection),
        409 => Failure::Conflict,
        400 => refused("BadRequest", &rejection),
        status if status != 500 && rejection.is_by_service(REQUEST_ID_HEADER) => {
            Failure::NotDone(CallError::Rejected(rejection).into())
        }
        _ => Failure::Unknown(CallError::Rejected(rejection).into()),
    }
}

/// The failure of a step before the one that must not be sent twice: whatever became of it, that one was not sent.
pub(crate) fn not_done(failure: Failure) -> Failure {
    match failure {
        Failure::Unknown(error) => Failure::NotDone(error),
        Failure::Gone | Failure::Conflict => {
            Failure::NotDone(CloudError::new(CloudErrorKind::Unavailable, "it changed meanwhile"))
        }
        failure => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_service_says_of_a_quota_is_a_lack() {
        let rejection =
            |status: u16, message: &str, is_own: bool| {
                let mut headers = cloud_http::HeaderMap::new();
                headers.extend(is_own.then(|| {
                    (http::HeaderName::from_static(REQUEST_ID_HEADER), http::HeaderValue::from_static("req-1"))
                }));
                let (what, code, message) = ("POST nova/servers".to_owned(), String::new(), message.to_owned());
                let status = StatusCode::from_u16(status).unwrap();
                Rejection { what, status, kind: CloudErrorKind::Denied, headers: Box::new(headers), code, message }
            };
        let no_room = |failure: &Failure| matches!(failure, Failure::NoCapacity(why) if why.code == "QuotaExceeded");
        for (status, message) in [
            (403, "Quota exceeded for instances"),
            (403, "Resource image_count_total is over limit of 4"),
            (409, "Quota exceeded for resources: ['port']"),
            (413, "Image storage limit"),
            (500, "Unexpected API Error. <class 'glanceclient.exc.HTTPOverLimit'>"),
        ] {
            let found = failure(CallError::Rejected(rejection(status, message, true)));
            assert!(no_room(&found), "{status} {message}: {found:?}");
        }
        let gateway = failure(CallError::Rejected(rejection(500, "OverLimit", false)));
        assert!(matches!(gateway, Failure::Unknown(_)), "a gateway may have passed it on: {gateway:?}");
        let metadata = rejection(403, "Maximum number of metadata items exceeds 128", true);
        assert!(is_own_word(&metadata) && matches!(refused("ServerRefused", &metadata), Failure::Refused(_)));
        assert!(!is_own_word(&rejection(403, "forbidden", false)));
    }
}
