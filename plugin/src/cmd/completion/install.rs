//! `completion`: the script that makes kubectl ask this program, printed or put in its place.

use std::io::{self, Write};
use std::path::Path;
use std::{fs, process};

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::{Cli, Completer, CompletionArgs};
use crate::cmd::path_entry::{self, same};
use crate::error::Problem;
use crate::output;

/// The name of the script that kubectl runs.
pub(crate) const SCRIPT_NAME: &str = "kubectl_complete-hibernate";

const SCRIPT: &str = "#!/bin/sh\nexec kubectl-hibernate __complete \"$@\"\n";

/// Prints or installs what makes completion work.
///
/// # Errors
/// When the script cannot be written.
pub(crate) fn install(args: &CompletionArgs) -> Result<(), Problem> {
    let shell = match args.completer {
        Completer::Kubectl if args.install || args.remove => return change(args.remove),
        Completer::Kubectl => {
            output::text(SCRIPT);
            return Ok(());
        }
        Completer::Bash => Shell::Bash,
        Completer::Zsh => Shell::Zsh,
        Completer::Fish => Shell::Fish,
        Completer::Powershell => Shell::PowerShell,
    };
    // Completion of the program itself, whose name has no space.
    let mut command = Cli::command().bin_name(shared::annotation::keys::PLUGIN);
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, shared::annotation::keys::PLUGIN, &mut script);
    output::text(&String::from_utf8_lossy(&script));
    Ok(())
}

/// Writes the script, or removes it.
fn change(remove: bool) -> Result<(), Problem> {
    let entry = path_entry::find()?;
    let folder = path_entry::folder_of(&entry);
    let path = folder.join(SCRIPT_NAME);
    let text = path.display();
    let detail = if remove {
        let removed = take(&path, &entry).map_err(Problem::io(format!("remove {text}")))?;
        if removed { "removed" } else { "absent" }
    } else {
        let written = put(&path, &entry).map_err(Problem::io(format!("write {text}")))?;
        if written { "written" } else { "unchanged" }
    };
    output::line(&format!("{text} {detail}"));
    if !remove {
        path_entry::warn_off_path(folder);
    }
    Ok(())
}

/// Whether there is something in the script's place.
///
/// # Errors
/// When it is neither the script nor a link to this program, which does the same.
fn is_there(path: &Path, program: &Path) -> io::Result<bool> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let is_script = || found.is_file() && fs::read(path).is_ok_and(|text| text == SCRIPT.as_bytes());
    if same(path, program) || is_script() {
        return Ok(true);
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is not the script of this program; move it away"))
}

/// Removes the script, and returns whether there was one.
fn take(path: &Path, program: &Path) -> io::Result<bool> {
    Ok(is_there(path, program)? && fs::remove_file(path).map(|()| true)?)
}

/// Puts the script in its place, and returns whether there was something to do.
fn put(path: &Path, program: &Path) -> io::Result<bool> {
    if is_there(path, program)? {
        return Ok(false);
    }
    let beside = path.with_extension(format!("{}.tmp", process::id()));
    let put = write(&beside).and_then(|()| fs::rename(&beside, path));
    if put.is_err() {
        let _ = fs::remove_file(&beside);
    }
    put.map(|()| true)
}

fn write(path: &Path) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(SCRIPT.as_bytes())?;
    make_executable(path)
}

#[cfg(unix)]
fn make_executable(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn nothing_foreign_is_overwritten_or_removed() {
        let folder = tempfile::tempdir().unwrap();
        let [program, other, path] = ["kubectl-hibernate", "other", SCRIPT_NAME].map(|name| folder.path().join(name));
        fs::write(&program, "program").unwrap();
        fs::write(&other, "other").unwrap();
        let read = |path: &Path| fs::read_to_string(path).unwrap();

        symlink("kubectl-hibernate", &path).unwrap();
        assert!(!put(&path, &program).unwrap(), "it does what the script does");
        assert!(take(&path, &program).unwrap() && !take(&path, &program).unwrap());
        assert!(put(&path, &program).unwrap() && !put(&path, &program).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!((read(&path), read(&program)), (SCRIPT.into(), "program".into()));
        assert!(take(&path, &program).unwrap());

        for make in [
            (|path: &Path| symlink("other", path)) as fn(&Path) -> io::Result<()>,
            |path| fs::write(path, "other"),
            |path| symlink("nowhere", path),
        ] {
            make(&path).unwrap();
            let before = fs::symlink_metadata(&path).unwrap().modified().unwrap();
            for refused in [put(&path, &program), take(&path, &program)] {
                assert!(refused.unwrap_err().to_string().contains("it is not the script of this program"));
            }
            assert_eq!(fs::symlink_metadata(&path).unwrap().modified().unwrap(), before);
            fs::remove_file(&path).unwrap();
        }
        fs::create_dir(&path).unwrap();
        assert!(put(&path, &program).is_err() && take(&path, &program).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "nothing is left beside it");
        assert_eq!(read(&other), "other");
    }
}
