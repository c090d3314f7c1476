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

/// Whether the object's resourceVersion has moved since it was read, or whether one that was new is there now.
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

impl Moved {
    /// `read`: the version that was written over, none of a new object. `found`: the version that is there now.
    pub fn since(read: Option<&str>, found: kube::Result<Option<String>>) -> Self {
        match found {
            Ok(found) if found.as_deref() == read => Self::No,
            Ok(Some(_)) => Self::Yes,
            Ok(None) => Self::Gone,
            Err(_) => Self::Unknown,
        }
    }
}

/// Whether the answer to a write says only together with the object what it means.
///
/// A lost race answers 409, or 422 if the `test` of a JSON patch fails; an object that is gone answers 404. A schema and
/// most policies answer 422 to content that they refuse, and a webhook of others denies with any of these codes.
fn depends_on_version(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 404 | 409 | 422))
}

/// What a write that failed means. `moved` is only asked about when the answer does not say it.
pub async fn classify(error: kube::Error, moved: impl Future<Output = Moved>) -> WriteError {
    let moved = if depends_on_version(&error) { moved.await } else { Moved::Unknown };
    let error = Box::new(error);
    match moved {
        Moved::Gone => WriteError::Gone(error),
        Moved::Yes => WriteError::Conflict(error),
        Moved::No => WriteError::Refused(error),
        Moved::Unknown => WriteError::Failed(error),
    }
}

/// Asks the API server whether the object has moved: one read.
pub async fn moved<K: Object>(api: &Api<Guarded<K>>, read: &K) -> Moved {
    let found = api.get_opt(&read.name_any()).await;
    let version = |found: Guarded<K>| found.resource_version().unwrap_or_default();
    Moved::since(read.resource_version().as_deref(), found.map(|found| found.map(version)))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[tokio::test]
    async fn the_conflict_rule() {
        let all = [Moved::Yes, Moved::No, Moved::Gone, Moved::Unknown];
        let by_version = [Class::Conflict, Class::Refused, Class::Gone, Class::Failed];
        for (code, classes) in [
            (404, by_version),
            (409, by_version),
            (422, by_version),
            (400, [Class::Failed; 4]),
            (403, [Class::Failed; 4]),
            (429, [Class::Failed; 4]),
            (500, [Class::Failed; 4]),
        ] {
            for (moved, expected) in all.into_iter().zip(classes) {
                let error = kube::Error::Api(Status::failure("no", "Any").with_code(code).boxed());
                let found = classify(error, std::future::ready(moved)).await;
                assert_eq!(found.class(), expected, "{code}, {moved:?}");
            }
        }
        let lost = kube::Error::Service("connection reset".into());
        assert_eq!(classify(lost, std::future::ready(Moved::Yes)).await.class(), Class::Failed);
    }

    #[test]
    fn what_the_next_read_says_of_an_object() {
        let version = |text: &str| Some(text.to_owned());
        for (read, found, expected) in [
            (Some("1"), Ok(version("1")), Moved::No),
            (Some("1"), Ok(version("2")), Moved::Yes),
            (Some("1"), Ok(None), Moved::Gone),
            (None, Ok(version("1")), Moved::Yes),
            (None, Ok(None), Moved::No),
            (Some("1"), Err(kube::Error::LinesCodecMaxLineLengthExceeded), Moved::Unknown),
        ] {
            let what = format!("{read:?}, {found:?}");
            assert_eq!(Moved::since(read, found), expected, "{what}");
        }
    }
}
