//! `completion`: the script that makes kubectl ask this program, printed or put in its place.

use std::io::{self, Write};
use std::path::Path;
use std::{env, fs, process};

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::{Cli, Completer, CompletionArgs};
use crate::cmd::install_alias::same;
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
        Completer::Kubectl if args.install => return write_script(),
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

fn write_script() -> Result<(), Problem> {
    let program = env::current_exe().map_err(Problem::io("find this program's own path"))?;
    let path = program.parent().unwrap_or(Path::new(".")).join(SCRIPT_NAME);
    let written = put(&path, &program).map_err(Problem::io(format!("write {}", path.display())))?;
    let detail = if written { "written" } else { "is a link to this program: completion is already installed" };
    output::line(&format!("{} {detail}", path.display()));
    Ok(())
}

/// Puts the script in its place, and returns whether there was something to do: a link to this program does the same.
/// What any other link leads to stays as it is.
fn put(path: &Path, program: &Path) -> io::Result<bool> {
    if same(path, program) {
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
    fn nothing_is_written_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let [program, other, path] = ["kubectl-hibernate", "other", SCRIPT_NAME].map(|name| folder.path().join(name));
        fs::write(&program, "program").unwrap();
        fs::write(&other, "other").unwrap();
        let read = |path: &Path| fs::read_to_string(path).unwrap();

        symlink("kubectl-hibernate", &path).unwrap();
        assert!(!put(&path, &program).unwrap(), "it does what the script does");
        assert!(path.is_symlink());

        fs::remove_file(&path).unwrap();
        symlink("other", &path).unwrap();
        for _ in 0..2 {
            assert!(put(&path, &program).unwrap());
            assert!(!path.is_symlink());
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
            assert_eq!((read(&path), read(&other), read(&program)), (SCRIPT.into(), "other".into(), "program".into()));
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "nothing is left beside it");

        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(put(&path, &program).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "nothing is left beside it");
    }
}
