//! Where things are: the default world, our own programs.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use sha2::{Digest as _, Sha256};

/// Folder of a world for which no other was named.
pub fn default_world() -> PathBuf {
    env::temp_dir().join("kubectl-hibernate-testbed")
}

/// The first 16 hexadecimal digits of a hash over all parts.
pub fn fingerprint(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let first: u64 = hash.finalize().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte));
    format!("{first:016x}")
}

/// Looks up a program of ours: in `$HIBERNATE_BIN`, beside the running executable, in the workspace's `bin`.
///
/// # Errors
/// When it is in none of them.
pub fn program(name: &str) -> Result<PathBuf> {
    let places = program_folders();
    match places.iter().map(|folder| folder.join(name)).find(|path| path.is_file()) {
        Some(path) => Ok(path),
        None => bail!(
            "program {name} not found in {}: run `make build`, or set HIBERNATE_BIN to the folder that holds it",
            places.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ")
        ),
    }
}

/// The folders that [`program`] searches, in order.
pub fn program_folders() -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = env::var_os("HIBERNATE_BIN").into_iter().map(PathBuf::from).collect();
    if let Ok(executable) = env::current_exe()
        && let Some(folder) = executable.parent()
    {
        // Test executables are in `deps`, one below the programs that cargo built with them.
        let folder = if folder.ends_with("deps") { folder.parent().unwrap_or(folder) } else { folder };
        places.push(folder.to_owned());
    }
    // Cargo sets this while it runs tests.
    if let Some(workspace) = env::var_os("CARGO_MANIFEST_DIR").as_ref().and_then(|dir| Path::new(dir).parent()) {
        places.push(workspace.join("bin"));
    }
    places
}
