//! Where kubectl finds this program. A package manager's entry on PATH outlives the version that it leads to.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{env, fs, path};

use shared::annotation::keys::PLUGIN;

use crate::error::Problem;
use crate::output;

/// The entry by which this program was started, or the first one on PATH, or else the program's own path.
///
/// # Errors
/// When the system does not say where the program is.
pub(crate) fn find() -> Result<PathBuf, Problem> {
    let program = env::current_exe().map_err(Problem::io("find this program's own path"))?;
    Ok(find_in(env::args_os().next().as_deref(), env::var_os("PATH").as_deref(), program))
}

/// kubectl starts a plugin by its whole path. The program may have been started by its other name.
fn find_in(argument: Option<&OsStr>, paths: Option<&OsStr>, program: PathBuf) -> PathBuf {
    let named = argument.map(Path::new).and_then(Path::parent).filter(|folder| !folder.as_os_str().is_empty());
    let on_path = paths.map(|paths| env::split_paths(paths).collect::<Vec<_>>()).unwrap_or_default();
    let folders = named.and_then(|folder| path::absolute(folder).ok()).into_iter().chain(on_path);
    let mut entries = folders
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(PLUGIN).with_extension(program.extension().unwrap_or_default()));
    entries.find(|entry| same(entry, &program)).unwrap_or(program)
}

/// The folder of an entry.
pub(crate) fn folder_of(entry: &Path) -> &Path {
    entry.parent().unwrap_or(Path::new("."))
}

/// Whether two paths lead to the same file.
pub(crate) fn same(one: &Path, other: &Path) -> bool {
    matches!((fs::canonicalize(one), fs::canonicalize(other)), (Ok(one), Ok(other)) if one == other)
}

/// Warns about a folder that is not on PATH.
pub(crate) fn warn_off_path(folder: &Path) {
    let on_path = env::var_os("PATH").is_some_and(|paths| env::split_paths(&paths).any(|one| same(&one, folder)));
    if !on_path {
        output::warning(&format!("{} is not on PATH, where kubectl looks for plugins", folder.display()));
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// As krew has it: the program in a store, by version, and a link to it on PATH.
    #[test]
    fn the_entry_on_path_is_found_and_not_the_store_behind_it() {
        let root = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(root.path()).unwrap();
        let [store, bin, other] = ["store/v1", "bin", "other"].map(|folder| root.join(folder));
        for folder in [&store, &bin, &other] {
            fs::create_dir_all(folder).unwrap();
        }
        let [program, entry] = [store.join(PLUGIN), bin.join(PLUGIN)];
        fs::write(&program, "program").unwrap();
        fs::write(other.join(PLUGIN), "another program").unwrap();
        symlink(&program, &entry).unwrap();
        symlink(PLUGIN, bin.join("kubectl-fdb-recover")).unwrap();
        let paths = env::join_paths([&other, &bin]).unwrap();
        let found =
            |argument: &Path, paths: Option<&OsStr>| find_in(Some(argument.as_os_str()), paths, program.clone());
        for argument in [entry.clone(), bin.join("kubectl-fdb-recover"), PLUGIN.into(), other.join(PLUGIN)] {
            assert_eq!(found(&argument, Some(&paths)), entry, "{argument:?}");
        }
        assert_eq!(found(&entry, None), entry);
        assert_eq!(found(&program, Some(&paths)), program, "started by its own path");
        assert_eq!(found(Path::new(PLUGIN), None), program);
        assert_eq!(find_in(None, Some(OsStr::new("relative")), program.clone()), program);
    }
}
