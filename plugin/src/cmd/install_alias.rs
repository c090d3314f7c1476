//! `install-alias`: the second name, under which kubectl finds this program for `kubectl fdb recover ...`.
//!
//! Of several plugins kubectl runs the one with the longest matching name, so `kubectl-fdb-recover` stands beside
//! FoundationDB's own `kubectl-fdb` and takes only this command from it.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::cli::recover::AliasArgs;
use crate::cmd::path_entry::{self, same};
use crate::error::{FdbError, Problem};
use crate::output;

/// The other name.
const ALIAS: &str = "kubectl-fdb-recover";

/// Whether the program was started by that name.
pub(crate) fn is_alias(program: Option<&std::ffi::OsString>) -> bool {
    program.and_then(|program| Path::new(program).file_stem()).is_some_and(|name| name == ALIAS)
}

/// Makes the link, or removes it.
///
/// # Errors
/// When something foreign is in its place, or it cannot be written.
pub(crate) fn install(args: &AliasArgs) -> Result<(), Problem> {
    let entry = path_entry::find()?;
    let folder = args.folder.clone().unwrap_or_else(|| path_entry::folder_of(&entry).to_owned());
    let path = folder.join(ALIAS).with_extension(entry.extension().unwrap_or_default());
    let text = path.display().to_string();
    let found = match fs::symlink_metadata(&path) {
        Ok(found) if found.is_symlink() && same(&path, &entry) => true,
        Ok(_) => return Err(FdbError::Foreign { path: text }.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(Problem::io(format!("look at {text}"))(error)),
    };
    let remove = || fs::remove_file(&path).map_err(Problem::io(format!("remove {text}")));
    let change = match (args.remove, found) {
        (true, true) => remove().map(|()| "removed")?,
        (true, false) => "absent",
        (false, true) if leads_to(&path, &entry) => "unchanged",
        (false, _) => {
            // One to the program itself dies with this version.
            if found {
                remove()?;
            }
            link(&entry, &path).map(|()| "written")?
        }
    };
    output::line(&format!("{text} {change}"));
    if !args.remove {
        path_entry::warn_off_path(&folder);
    }
    Ok(())
}

#[cfg(unix)]
fn leads_to(path: &Path, entry: &Path) -> bool {
    fs::read_link(path).is_ok_and(|found| found == target(entry, path))
}

#[cfg(unix)]
fn link(program: &Path, path: &Path) -> Result<(), Problem> {
    std::os::unix::fs::symlink(target(program, path), path).map_err(Problem::io(format!("write {}", path.display())))
}

/// In the same folder the bare name, so that the folder can be moved.
#[cfg(unix)]
fn target(program: &Path, path: &Path) -> PathBuf {
    match (program.parent(), path.parent(), program.file_name()) {
        (Some(one), Some(other), Some(name)) if same(one, other) => name.into(),
        _ => program.to_owned(),
    }
}

#[cfg(not(unix))]
fn leads_to(_: &Path, _: &Path) -> bool {
    true
}

#[cfg(not(unix))]
fn link(_: &Path, path: &Path) -> Result<(), Problem> {
    Err(FdbError::NoLinks { path: path.display().to_string() }.into())
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    #[test]
    fn only_the_file_name_counts() {
        for (program, expected) in [
            ("kubectl-fdb-recover", true),
            ("/usr/local/bin/kubectl-fdb-recover", true),
            ("kubectl-fdb-recover.exe", true),
            ("kubectl-hibernate", false),
            ("/kubectl-fdb-recover/kubectl-hibernate", false),
        ] {
            assert_eq!(is_alias(Some(&program.into())), expected, "{program}");
        }
        assert!(!is_alias(None));
    }

    #[test]
    fn nothing_foreign_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let args = AliasArgs { folder: Some(folder.path().to_owned()), remove: false };
        let gone = AliasArgs { remove: true, ..args.clone() };
        let link = folder.path().join(ALIAS);
        install(&gone).unwrap();
        install(&args).unwrap();
        install(&gone).unwrap();
        assert!(fs::symlink_metadata(&link).is_err(), "removed");
        install(&args).unwrap();
        install(&args).unwrap();
        assert!(same(&link, &env::current_exe().unwrap()));
        for make in [
            (|path: &Path| fs::write(path, "mine")) as fn(&Path) -> io::Result<()>,
            |path| std::os::unix::fs::symlink("/bin/sh", path),
            |path| std::os::unix::fs::symlink("/nowhere", path),
        ] {
            fs::remove_file(&link).unwrap();
            make(&link).unwrap();
            for args in [&args, &gone] {
                let answer = install(args).unwrap_err();
                assert!(answer.to_string().contains("is not a link to this program"), "{answer}");
            }
        }
        let nowhere = AliasArgs { folder: Some(folder.path().join("none")), remove: false };
        assert!(install(&nowhere).unwrap_err().to_string().contains("cannot write"));
    }
}
