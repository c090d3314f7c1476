//! Kinds that the user adds: a file that is named, or the one in the user's configuration folder. Never one of the working
//! directory.

use std::env;
use std::io;
use std::path::{Path, PathBuf};

use shared::kinds::Kinds;
use shared::kinds::file::{MAX_FILE, extended};

use crate::error::Problem;
use crate::output;

/// The table with the kinds of this file, or of the user's own if there is one; and that file.
///
/// # Errors
/// When the file cannot be read, or one of its kinds is refused.
pub(crate) fn extend(kinds: Kinds, path: Option<&Path>) -> Result<(Kinds, Option<PathBuf>), Problem> {
    let Some(path) = path.map(Path::to_owned).or_else(|| default().filter(|path| path.exists())) else {
        return Ok((kinds, None));
    };
    let failed = |source| Problem::Io { action: format!("read kinds from {}", path.display()), source };
    let text = super::file(&path, MAX_FILE).map_err(failed)?;
    let kinds = extended(kinds, &text).map_err(|why| failed(io::Error::new(io::ErrorKind::InvalidData, why)))?;
    Ok((kinds, Some(path)))
}

/// The same, and names the file to the user.
///
/// # Errors
/// As [`extend`].
pub(crate) fn named(kinds: Kinds, path: Option<&Path>) -> Result<(Kinds, Option<PathBuf>), Problem> {
    let (kinds, file) = extend(kinds, path)?;
    if let Some(path) = &file {
        output::note(&format!("kinds from {}", path.display()));
    }
    Ok((kinds, file))
}

/// `~/.config/kubectl-hibernate/kinds.yaml`. A relative `XDG_CONFIG_HOME` counts as none, as its specification says.
fn default() -> Option<PathBuf> {
    let folder = env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = folder.or_else(|| Some(env::home_dir()?.join(".config")))?;
    Some(folder.join("kubectl-hibernate/kinds.yaml"))
}
