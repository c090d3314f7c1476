//! Credentials where kube would panic over them, say too little about them, or say too much.

use std::process::ExitStatus;
use std::{fs, io, mem};

use kube::client::AuthError;
use kube::config::AuthInfo;
use tower::BoxError;

use crate::connection::Connection;

/// Credentials given on the command line replace those of the kubeconfig's user: with a client certificate beside a
/// token, the certificate's user would win on the server. Only the other half of a pair is kept, such as the key of a
/// certificate.
pub fn apply_user_flags(user: &mut AuthInfo, args: &Connection) {
    // As in kubectl, an empty one is none.
    let given = |flag: Option<&String>| flag.filter(|text| !text.trim().is_empty()).cloned();
    let (token, username, password) =
        (given(args.token.as_ref()), given(args.username.as_ref()), given(args.password.as_ref()));
    let is_basic = username.is_some() || password.is_some();
    if token.is_some() || is_basic || args.client_certificate.is_some() {
        let old = mem::take(user);
        *user = AuthInfo {
            token: token.map(Into::into),
            impersonate: old.impersonate,
            impersonate_uid: old.impersonate_uid,
            impersonate_groups: old.impersonate_groups,
            impersonate_user_extra: old.impersonate_user_extra,
            ..AuthInfo::default()
        };
        if is_basic {
            user.username = username.or(old.username);
            // kube sends no user name without a password.
            user.password = password.map(Into::into).or(old.password).or_else(|| Some(String::new().into()));
        }
        if let Some(path) = &args.client_certificate {
            user.client_certificate = Some(path.display().to_string());
            (user.client_key, user.client_key_data) = (old.client_key, old.client_key_data);
        }
    }
    if let Some(path) = &args.client_key {
        user.client_key = Some(path.display().to_string());
        user.client_key_data = None;
    }
}

/// Makes the token fit into a header: files and pipes like to end it with a line end, over which kube panics.
///
/// # Errors
/// With the origin of the token if it has control characters anywhere else.
pub fn tidy(user: &mut AuthInfo, origin: &str) -> Result<(), String> {
    if let Some(token) = token(user) {
        let token = one_line(&token).ok_or_else(|| origin.to_owned())?;
        user.token = Some(token.to_owned()).filter(|token| !token.is_empty()).map(Into::into);
    }
    let Some(path) = user.token_file.clone().filter(|_| user.token.is_none()) else { return Ok(()) };
    // If it cannot be read, kube says so.
    let Ok(text) = fs::read_to_string(&path) else { return Ok(()) };
    let token = one_line(&text).ok_or(path)?;
    // Otherwise the file is kube's, which reads it again when it may have changed.
    if token != text {
        user.token = Some(token.to_owned().into());
        user.token_file = None;
    }
    Ok(())
}

fn one_line(token: &str) -> Option<&str> {
    let token = token.trim();
    (!token.chars().any(char::is_control)).then_some(token)
}

/// The token. kube keeps it in a type of another crate, which only its serialization opens.
fn token(user: &AuthInfo) -> Option<String> {
    let alone = AuthInfo { token: user.token.clone(), ..AuthInfo::default() };
    let open = serde_json::to_value(&alone).ok()?;
    Some(open.get("token")?.as_str()?.to_owned())
}

/// The program that a kubeconfig has print credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plugin {
    command: String,
    hint: Option<String>,
}

impl Plugin {
    /// That of a user, if there is one.
    pub fn of(user: &AuthInfo) -> Option<Self> {
        if let Some(exec) = &user.exec {
            let hint = exec.install_hint.clone().filter(|hint| !hint.trim().is_empty());
            return Some(Self { command: exec.command.clone().unwrap_or_default(), hint });
        }
        let command = user.auth_provider.as_ref()?.config.get("cmd-path")?.clone();
        Some(Self { command, hint: None })
    }

    pub(crate) fn failed(&self, status: ExitStatus) -> String {
        format!("the credential plugin {:?} of the kubeconfig failed: {status}", self.command)
    }

    pub(crate) fn invalid(&self) -> String {
        format!("the credential plugin {:?} of the kubeconfig did not print a valid ExecCredential", self.command)
    }

    /// What is wrong with its entry in the kubeconfig.
    pub(crate) fn wrong(&self, what: &str) -> String {
        format!("the credential plugin {:?} of the kubeconfig {what}", self.command)
    }

    pub(crate) fn not_started(&self, source: &io::Error) -> String {
        let Self { command, hint } = self;
        let absent = source.kind() == io::ErrorKind::NotFound;
        let advice = match hint {
            Some(hint) => format!(". {}", hint.trim()),
            None if absent => "; is it installed, and on PATH?".to_owned(),
            None => String::new(),
        };
        format!("the credential plugin {command:?} of the kubeconfig cannot be run: {source}{advice}")
    }
}

/// What went wrong with the command of an auth provider. kube's own words leave out its name, or hold its environment and
/// its output, in which there are credentials; where they do neither, there is nothing to say here.
pub fn cause(error: &AuthError, plugin: &Plugin) -> Option<String> {
    match error {
        AuthError::AuthExecStart(source) => Some(plugin.not_started(source)),
        AuthError::AuthExecRun { out, .. } => Some(plugin.failed(out.status)),
        _ => None,
    }
}

/// The same for one that is run again, between two requests.
pub fn discreet(error: BoxError, plugin: &Plugin) -> BoxError {
    match error.downcast::<AuthError>() {
        Ok(error) => match cause(&error, plugin) {
            Some(cause) => AuthError::AuthExec(cause).into(),
            None => error,
        },
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use kube::config::{AuthProviderConfig, ExecConfig};

    use super::*;

    fn with_token(token: &str) -> AuthInfo {
        AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() }
    }

    #[test]
    fn a_token_is_one_line() {
        for (written, expected) in [
            ("abc", Ok(Some("abc"))),
            ("abc\n", Ok(Some("abc"))),
            (" abc\r\n ", Ok(Some("abc"))),
            ("", Ok(None)),
            ("\n", Ok(None)),
            ("a\nb", Err("--token".to_owned())),
            ("a\u{0}b", Err("--token".to_owned())),
            ("a\u{7f}", Err("--token".to_owned())),
        ] {
            let mut user = with_token(written);
            let answer = tidy(&mut user, "--token").map(|()| token(&user));
            assert_eq!(answer, expected.map(|token| token.map(str::to_owned)), "{written:?}");
        }
    }

    #[test]
    fn a_file_with_a_line_end_is_read_here_and_any_other_by_kube() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("token").display().to_string();
        let user = || AuthInfo { token_file: Some(path.clone()), ..AuthInfo::default() };
        for (text, expected) in [("abc\n", Some("abc")), ("abc", None)] {
            fs::write(&path, text).unwrap();
            let mut user = user();
            tidy(&mut user, "").unwrap();
            assert_eq!((token(&user).as_deref(), user.token_file.is_none()), (expected, expected.is_some()));
        }
        fs::write(&path, "a\nb").unwrap();
        assert_eq!(tidy(&mut user(), ""), Err(path.clone()));
        fs::remove_file(&path).unwrap();
        assert_eq!(tidy(&mut user(), ""), Ok(()));
    }

    #[test]
    fn a_plugin_is_called_by_its_command() {
        let hint = Some("get it".to_owned());
        let exec = ExecConfig { command: Some("aws".into()), install_hint: hint.clone(), ..ExecConfig::default() };
        let user = AuthInfo { exec: Some(exec), ..AuthInfo::default() };
        assert_eq!(Plugin::of(&user), Some(Plugin { command: "aws".to_owned(), hint }));
        let config = [("cmd-path".to_owned(), "gcloud".to_owned())].into();
        let provider = AuthProviderConfig { name: "gcp".into(), config, ..AuthProviderConfig::default() };
        let user = AuthInfo { auth_provider: Some(provider), ..AuthInfo::default() };
        assert_eq!(Plugin::of(&user), Some(Plugin { command: "gcloud".to_owned(), hint: None }));
        assert_eq!(Plugin::of(&with_token("t")), None);
    }

    #[test]
    fn a_missing_plugin_is_named_with_the_way_to_get_it() {
        let absent = || AuthError::AuthExecStart(io::ErrorKind::NotFound.into());
        let plugin = |hint: Option<&str>| Plugin { command: "aws".to_owned(), hint: hint.map(str::to_owned) };
        let detail = cause(&absent(), &plugin(Some("brew install awscli\n"))).unwrap();
        assert!(detail.starts_with("the credential plugin \"aws\" of the kubeconfig cannot be run: "), "{detail}");
        assert!(detail.ends_with(". brew install awscli"), "{detail}");
        let detail = cause(&absent(), &plugin(None)).unwrap();
        assert!(detail.ends_with("; is it installed, and on PATH?"), "{detail}");
        assert_eq!(cause(&AuthError::MissingCommand, &plugin(None)), None);
    }

    #[cfg(unix)]
    #[test]
    fn a_plugin_that_fails_tells_no_secrets() {
        use std::os::unix::process::ExitStatusExt;
        let plugin = Plugin { command: "aws".to_owned(), hint: None };
        let out = std::process::Output {
            status: std::process::ExitStatus::from_raw(256),
            stdout: b"secret".to_vec(),
            stderr: b"secret".to_vec(),
        };
        let error = AuthError::AuthExecRun { cmd: "PASSWORD=secret aws".to_owned(), out: Box::new(out) };
        let expected = "the credential plugin \"aws\" of the kubeconfig failed: exit status: 1";
        assert_eq!(cause(&error, &plugin).as_deref(), Some(expected));
        let again = discreet(error.into(), &plugin);
        assert_eq!(again.to_string(), format!("failed exec auth: {expected}"));
        assert!(again.is::<AuthError>(), "the cause is still found to be a login");
        let other = discreet(io::Error::other("x").into(), &plugin);
        assert_eq!(other.to_string(), "x");
    }
}
