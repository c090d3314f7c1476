//! One change of an object of ours, made again from the start if another client wrote the object in between.

use hub::error::HubError;
use hub::{HubClient, Resource, Write, patched};
use serde_json::Value;
use shared::kinds::ShownKind;
use shared::object::text;
use view::Row;

use crate::cli::{DryRun, WriteFlags};
use crate::error::Problem;
use crate::output::warned;

/// How often an object is read again because another client wrote it in between.
pub(super) const ATTEMPTS: u32 = 5;

/// A patch, and the message once it is written; none if nothing changes.
pub(super) type Step = Option<(Value, String)>;

/// Writes what `step` finds for the object. Returns the object as it is then, and the message.
///
/// # Errors
/// When the change cannot work, or the hub refuses.
pub(super) async fn rewrite(
    hub: &HubClient,
    row: &'static ShownKind,
    mut object: Value,
    flags: &WriteFlags,
    step: impl AsyncFn(&Value) -> Result<Step, Problem>,
) -> Result<(Value, String), Problem> {
    let (resource, write) = (Resource::preferred(&row.kind), Write::from(flags));
    let [namespace, name] = ["/metadata/namespace", "/metadata/name"].map(|path| text(&object, path).to_owned());
    for _ in 0..ATTEMPTS {
        let Some((patch, done)) = step(&object).await? else { return Ok((object, "unchanged".to_owned())) };
        if flags.dry_run == DryRun::Client {
            return Ok((patched(&object, &patch), done));
        }
        match warned(hub.patch(resource, &namespace, &name, &patch, &write)).await {
            Ok(written) => return Ok((written, done)),
            Err(HubError::Conflict { .. }) => object = view::object(hub, Row::Shown(row), &name).await?,
            Err(error) => return Err(error.into()),
        }
    }
    Err(Problem::Contended(ATTEMPTS))
}
