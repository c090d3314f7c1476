//! From a request to its answer: read the objects, ask the rules, say what they said.

use std::collections::BTreeMap;
use std::fmt::Display;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusCause, StatusDetails};
use serde_json::value::RawValue;
use shared::admission::{
    self, Change, Denial, Edits, Exempt, Fault, Finding, Judgement, UNREADABLE, UnreadFields, User, read, shortened,
};
use shared::fdb::admission as fdb;
use shared::kkp::admission as kkp;
use shared::text::{sanitize, sanitize_to};

use crate::fdb::Clusters;
use crate::patch;
use crate::review::{Operation, Patch, Request, Response};
use crate::settings::{Exempts, Judged, Settings};

/// Key of the audit annotation that records which denials an exempt identity bypassed. The API server puts the name of
/// the webhook and a slash in front.
pub const OVERLOOKED: &str = "would-have-been-denied";

/// Characters that are kept of what one rule says.
const MAX_SENTENCE_CHARS: usize = 2_048;

/// Everything besides the request that an answer may depend on.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// What the operator decided.
    pub settings: &'a Settings,
    /// When the request was received.
    pub now: Timestamp,
    /// What is known of the hub's `FoundationDBClusters`.
    pub fdb: &'a Clusters,
}

/// What is said to a request.
#[derive(Debug, Default)]
pub struct Answer {
    /// What the rules found.
    pub judgement: Judgement,
    /// JSON patch, if anything is to be changed.
    pub patch: Option<Vec<u8>>,
}

/// Why the objects of a request cannot be judged.
#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error("{0} is missing from the request")]
    Missing(&'static str),
    #[error("{0} cannot be read: {1}")]
    Malformed(&'static str, #[source] serde_json::Error),
}

impl Answer {
    /// Nothing to say against it, but something to the user.
    pub fn warn(row: &'static str, detail: impl Into<String>) -> Self {
        let mut answer = Self::default();
        answer.judgement.warnings.push(Finding { row, detail: detail.into() });
        answer
    }

    /// One word for metrics.
    pub fn verdict(&self) -> &'static str {
        match self {
            _ if !self.judgement.allows() => "deny",
            _ if !self.judgement.overlooked.is_empty() => "overlook",
            _ if self.patch.is_some() => "patch",
            _ if !self.judgement.warnings.is_empty() => "warn",
            _ => "allow",
        }
    }

    /// The answer as the API server reads it.
    pub fn respond<'a>(self, request: &'a Request<'_>) -> Response<'a> {
        let status = status(&self.judgement, request);
        let overlooked =
            self.judgement.overlooked.iter().map(|Finding { row, detail }| format!("{row} {}", bounded(detail)));
        let overlooked = overlooked.collect::<Vec<_>>().join("; ");
        Response {
            uid: &request.uid,
            allowed: status.is_none(),
            status,
            patch: self.patch.map(Patch::json),
            audit_annotations: BTreeMap::from_iter((!overlooked.is_empty()).then_some((OVERLOOKED, overlooked))),
            warnings: self.judgement.warnings.into_iter().map(|warning| shortened(bounded(&warning.detail))).collect(),
        }
    }
}

/// Validates: asks what the rules say.
pub fn validate<K: Judged>(
    request: &Request<'_>,
    context: &Context<'_>,
    judge: fn(&Change<'_, K>) -> Judgement,
) -> Answer {
    let (user, manager) = (request.user(), request.field_manager());
    let judgement = match change(request, context, &user, &manager) {
        Ok(change) => judge(&change),
        Err(unreadable) => unread(&unreadable),
    };
    Answer { judgement: overlooked::<K>(request, context, judgement), patch: None }
}

/// Validates the deletion of a volume or a Service of a `FoundationDBCluster`. Nobody is exempt.
pub fn judge_deletion(request: &Request<'_>, context: &Context<'_>, kind: fdb::Kind) -> Answer {
    let judgement = match deleted(request, fdb::Deleted::read) {
        Ok(object) => context.fdb.ask(context.now, |cache| fdb::judge_deletion(kind, &object, cache)),
        Err(why) => fdb::unreadable(&why.to_string()),
    };
    Answer { judgement, patch: None }
}

/// Validates the deletion of a KKP Cluster. Exempt are users, and members of the groups that may delete what KKP cannot
/// finish.
pub fn judge_cluster_deletion(request: &Request<'_>, context: &Context<'_>) -> Answer {
    let judgement = match deleted(request, kkp::Deletion::read) {
        Ok(deletion) => kkp::judge_deletion(&deletion, context.now),
        Err(why) => kkp::unreadable(&why.to_string()),
    };
    let Settings { exempt, kkp, .. } = context.settings;
    let exempt = Exempt { users: exempt.users.clone(), groups: kkp.deleters.clone() };
    let may = exempt.covers(&request.user(), request.user_info.groups);
    Answer { judgement: judgement.overlooked(|_| may), patch: None }
}

/// What is to be deleted.
fn deleted<T>(request: &Request<'_>, read: fn(&str) -> serde_json::Result<T>) -> Result<T, Unreadable> {
    let object = request.old_object.ok_or(Unreadable::Missing("oldObject"))?;
    read(object.get()).map_err(|error| Unreadable::Malformed("oldObject", error))
}

/// The judgement without the denials from which the user of the request is exempt.
fn overlooked<K: Judged>(request: &Request<'_>, context: &Context<'_>, judgement: Judgement) -> Judgement {
    let covers = |groups| context.settings.exempt.covers(&request.user(), groups);
    judgement.overlooked(|denial| match K::exempts(denial) {
        Exempts::None => false,
        Exempts::Users => covers(None),
        Exempts::UsersAndGroups => covers(request.user_info.groups),
    })
}

/// Mutates: asks which annotations the rule wants changed. Denies what the rule refuses, for every user, and what has
/// no annotations that can be read and is no wake.
pub fn mutate<K: Judged>(request: &Request<'_>, context: &Context<'_>, rule: fn(&Change<'_, K>) -> Edits) -> Answer {
    let (user, manager) = (request.user(), request.field_manager());
    let change = match change(request, context, &user, &manager) {
        Ok(change) => change,
        Err(unreadable) => return Answer { judgement: unread(&unreadable), patch: None },
    };
    if change.unread.new.iter().any(|field| field.covers(&["metadata", "annotations"])) {
        return Answer { judgement: admission::judge(&change, &[]), patch: None };
    }
    let Edits { annotations, warnings, denial } = rule(&change);
    let patch = patch::annotations(&change.new.meta().annotations, &annotations);
    let warnings = warnings.into_iter().map(|detail| Finding { row: "mutate", detail });
    let denials = denial.into_iter().map(|detail| Finding { row: "mutate", detail });
    let judgement = Judgement { warnings: warnings.collect(), denials: denials.collect(), ..Judgement::default() };
    Answer { judgement, patch: if patch.is_empty() { None } else { serde_json::to_vec(&patch).ok() } }
}

fn change<'a, K: Judged>(
    request: &'a Request<'_>,
    context: &Context<'a>,
    user: &'a User,
    field_manager: &'a str,
) -> Result<Change<'a, K>, Unreadable> {
    let object = request.object.ok_or(Unreadable::Missing("object"))?.get();
    let (new, unread) = read(object).map_err(|error| Unreadable::Malformed("object", error))?;
    let before = request.old_object.map(RawValue::get);
    let old = before.map(read).transpose().map_err(|error| Unreadable::Malformed("oldObject", error))?;
    let (old, unread_before) = old.unzip();
    Ok(Change {
        old,
        new,
        user,
        field_manager,
        now: context.now,
        settings: K::settings(context.settings),
        unread: UnreadFields::new(before.zip(unread_before), (object, unread)),
    })
}

/// The denial of what no API server sends: objects that are none.
fn unread(why: &Unreadable) -> Judgement {
    let detail = Denial {
        fault: Fault::Invalid,
        field: match why {
            Unreadable::Missing(field) | Unreadable::Malformed(field, _) => (*field).to_owned(),
        },
        message: format!("{why}; the webhook cannot evaluate the request"),
    };
    Judgement { denials: vec![Finding { row: UNREADABLE, detail }], ..Judgement::default() }
}

/// What a rule says, sanitized: it may quote names, annotations and labels.
fn bounded(detail: &impl Display) -> String {
    sanitize_to(detail, MAX_SENTENCE_CHARS)
}

/// The refusal, if it is one: code and reason of the gravest fault, and every fault with its field.
///
/// kubectl prints either the message (403) or the causes (422), so each of them says everything.
fn status(judgement: &Judgement, request: &Request<'_>) -> Option<Status> {
    let gravest = judgement.gravest()?;
    let name = match (request.namespace.as_ref(), request.name.as_ref()) {
        ("", "") if request.operation == Operation::Delete => "of a collection".to_owned(),
        ("", name) => name.to_owned(),
        (namespace, "") if request.operation == Operation::Delete => format!("of a collection in {namespace}"),
        (namespace, "") => format!("to be named in {namespace}"),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    let detail = judgement.denials.iter().map(|denial| bounded(&denial.detail)).collect::<Vec<_>>().join("; ");
    let cause = |Finding { detail, .. }: &Finding<Denial>| StatusCause {
        field: Some(detail.field.clone()),
        message: Some(bounded(&detail.message)),
        reason: Some(detail.fault.cause().to_owned()),
    };
    Some(Status {
        status: Some("Failure".to_owned()),
        code: Some(gravest.code().into()),
        reason: Some(gravest.reason().to_owned()),
        message: Some(format!("{} {}: {detail}", request.kind.kind, sanitize(&name))),
        details: Some(StatusDetails {
            name: Some(request.name.as_ref().to_owned()),
            group: Some(request.kind.group.as_ref().to_owned()),
            kind: Some(request.kind.kind.as_ref().to_owned()),
            causes: Some(judgement.denials.iter().map(cause).collect()),
            ..StatusDetails::default()
        }),
        ..Status::default()
    })
}
