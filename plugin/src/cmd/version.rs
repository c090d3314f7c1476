//! `version`.

use serde_json::json;

use crate::cli::{VersionArgs, VersionOutput};
use crate::output;

/// Prints the version of this program. Asks no server.
pub(crate) fn run(args: &VersionArgs) {
    let version = concat!("v", env!("CARGO_PKG_VERSION"));
    let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
    let all = json!({ "clientVersion": { "gitVersion": version, "platform": platform } });
    match args.output {
        None => output::line(&format!("kubectl-hibernate {version} ({platform})")),
        Some(VersionOutput::Json) => output::text(&output::json(&all)),
        Some(VersionOutput::Yaml) => output::text(&output::yaml(&all)),
    }
}
