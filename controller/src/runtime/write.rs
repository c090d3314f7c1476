//! What a write that failed means: the one rule about conflicts.

use kube::{Api, ResourceExt};

use super::{Class, Guarded, Object};

/// Why an object was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The claim to lead does not hold, so that nothing was sent.
    #[error("this controller is no longer the leader")]
    NotLeader,
    /// The object is not there any more.
    #[error("the object does not exist any more")]
    Gone(#[source] Box<kube::Error>),
    /// Another client wrote first.
    #[error("another client wrote first")]
    Conflict(#[source] Box<kube::Error>),
    /// The API server refuses the content; the order of writes does not matter.
    #[error("the API server refuses the write")]
    Refused(#[source] Box<kube::Error>),
    /// Anything else. The write may have arrived.
    #[error("the write failed")]
    Failed(#[source] Box<kube::Error>),
}

impl WriteError {
    /// The API server's words, if it refuses the write.
    pub fn refusal(&self) -> Option<String> {
        let Self::Refused(source) = self else { return None };
        Some(match &**source {
            kube::Error::Api(status) => status.message.clone(),
            other => other.to_string(),
        })
    }

    /// The class of a failure whose write was to the target itself.
    pub fn class(&self) -> Class {
        match self {
            Self::NotLeader => Class::NotLeader,
            Self::Gone(_) => Class::Gone,
            Self::Conflict(_) => Class::Conflict,
            Self::Refused(_) => Class::Refused,
            Self::Failed(_) => Class::Failed,
        }
    }
}

/// Whether the object's resourceVersion has moved since it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// Another client wrote in between.
    Yes,
    /// It is as it was read.
    No,
    /// It is not there any more.
    Gone,
    /// Unknown.
    Unknown,
}

/// Whether the answer to a write means a conflict only if the object has moved.
///
/// The failed `test` of a JSON patch answers 422, and so do a schema and most policies that refuse what is written.
pub fn depends_on_version(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 422)
}

/// What a write that failed means. `moved` is only asked about when [`depends_on_version`] says so.
pub fn classify(error: kube::Error, moved: Moved) -> WriteError {
    let code = match &error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    };
    let error = Box::new(error);
    match (code, moved) {
        (404, _) | (422, Moved::Gone) => WriteError::Gone(error),
        (409, _) | (422, Moved::Yes) => WriteError::Conflict(error),
        (422, Moved::No) => WriteError::Refused(error),
        _ => WriteError::Failed(error), // a 422 about which nothing more is known included
    }
}

/// Asks the API server whether the object has moved. One read, and only after a 422.
pub async fn moved<K: Object>(api: &Api<Guarded<K>>, read: &K) -> Moved {
    match api.get_opt(&read.name_any()).await {
        Ok(Some(found)) if found.resource_version() == read.resource_version() => Moved::No,
        Ok(Some(_)) => Moved::Yes,
        Ok(None) => Moved::Gone,
        Err(_) => Moved::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn the_conflict_rule() {
        for (code, moved, expected) in [
            (409, Moved::No, Class::Conflict),
            (409, Moved::Unknown, Class::Conflict),
            (422, Moved::Yes, Class::Conflict),
            (422, Moved::No, Class::Refused),
            (422, Moved::Gone, Class::Gone),
            (422, Moved::Unknown, Class::Failed),
            (404, Moved::No, Class::Gone),
            (403, Moved::No, Class::Failed),
            (500, Moved::Yes, Class::Failed),
            (429, Moved::Yes, Class::Failed),
        ] {
            let error = kube::Error::Api(Status::failure("no", "Any").with_code(code).boxed());
            assert_eq!(depends_on_version(&error), code == 422);
            assert_eq!(classify(error, moved).class(), expected, "{code}, {moved:?}");
        }
        let lost = kube::Error::Service("connection reset".into());
        assert_eq!(classify(lost, Moved::Yes).class(), Class::Failed);
    }
}
