//! From kubectl's flags and a kubeconfig to the settings of a client.

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::header::USER_AGENT;
use http::{HeaderValue, Uri};
use kube::Config;
use kube::config::{AuthInfo, Cluster, Context, ExecAuthCluster, Kubeconfig, KubeconfigError};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::connection::Connection;
use crate::error::ConfigError;
use crate::login::{self, apply_user_flags};
use crate::{pod, proxy, server};

/// Connecting takes milliseconds or fails; kube's default of 30 seconds is too long for a plugin.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// User agent in the hub's audit log.
const AGENT: &str = concat!("kubectl-hibernate/", env!("CARGO_PKG_VERSION"));

/// Reads the kubeconfig and applies the flags, as kubectl does.
///
/// # Errors
/// When there is no usable kubeconfig, or flags name something that it does not have.
pub fn load(args: &Connection) -> Result<Config, ConfigError> {
    let attributes = !args.impersonate_groups.is_empty() || !args.impersonate_extras.is_empty();
    if args.impersonate.is_none() && (args.impersonate_uid.is_some() || attributes) {
        return Err(ConfigError::ImpersonationWithoutUser);
    }
    let (kubeconfig, files) = kubeconfig(args)?;
    let mut config = match kubeconfig {
        Some(kubeconfig) => from_kubeconfig(&kubeconfig, &files, args)?,
        None if args.server.is_some() => from_kubeconfig(&Kubeconfig::default(), "(none)", args)?,
        None if pod::is_meant(args) => pod::config(args)?,
        None => return Err(ConfigError::Missing { searched: files }),
    };
    config.default_namespace = namespace(args.namespace.as_deref(), &config.default_namespace);
    let origin = if args.token.is_some() { "--token" } else { "the kubeconfig's user" };
    login::tidy(&mut config.auth_info, origin).map_err(|origin| ConfigError::Token { origin })?;
    impersonate(&mut config.auth_info, args);
    config.connect_timeout = Some(args.request_timeout.map_or(CONNECT_TIMEOUT, |limit| limit.min(CONNECT_TIMEOUT)));
    config.disable_compression |= args.disable_compression;
    config.headers.push((USER_AGENT, HeaderValue::from_static(AGENT)));
    config.default_retry = false; // kube's default goes on for minutes, and repeats writes
    Ok(config)
}

/// The context that is meant by the flags, or else the current one; none without a kubeconfig, or where `--server` or
/// `--cluster` replaces it.
///
/// # Errors
/// When the kubeconfig cannot be read.
pub fn context(args: &Connection) -> Result<Option<String>, ConfigError> {
    if args.context.is_some() || args.server.is_some() || args.cluster.is_some() {
        return Ok(args.context.clone());
    }
    Ok(kubeconfig(args)?.0.and_then(|kubeconfig| kubeconfig.current_context))
}

/// The namespace by flag, context or default. Scripts give an empty one for none.
fn namespace(flag: Option<&str>, context: &str) -> String {
    let named = flag.filter(|name| !name.is_empty()).unwrap_or(context);
    if named.is_empty() { "default".to_owned() } else { named.to_owned() }
}

/// The kubeconfig and the names of its files; without any, the names of those looked for.
fn kubeconfig(args: &Connection) -> Result<(Option<Kubeconfig>, String), ConfigError> {
    if let Some(path) = &args.kubeconfig {
        return Ok((Some(read(path)?), path.display().to_string()));
    }
    let list = env::var_os("KUBECONFIG").unwrap_or_default();
    let mut paths: Vec<PathBuf> = env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect();
    if paths.is_empty() {
        paths.extend(default_path());
    }
    merged(&paths)
}

/// As in kubectl, files of the list that do not exist are skipped, and the first that says something wins.
fn merged(paths: &[PathBuf]) -> Result<(Option<Kubeconfig>, String), ConfigError> {
    let existing: Vec<&PathBuf> = paths.iter().filter(|path| path.exists()).collect();
    if existing.is_empty() {
        let searched = if paths.is_empty() { "$HOME".to_owned() } else { names(paths.iter()) };
        return Ok((None, searched));
    }
    let files = names(existing.iter().copied());
    let mut merged = Kubeconfig::default();
    for path in existing {
        merged = merged.merge(read(path)?).map_err(|source| ConfigError::Merge { paths: files.clone(), source })?;
    }
    Ok((Some(merged), files))
}

fn names<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> String {
    paths.map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// A file. An empty current context says nothing, so it must not win over that of the next file.
fn read(path: &Path) -> Result<Kubeconfig, ConfigError> {
    let read = Kubeconfig::read_from(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source });
    read.map(|mut kubeconfig| {
        kubeconfig.current_context = kubeconfig.current_context.filter(|name| !name.is_empty());
        kubeconfig
    })
}

fn default_path() -> Option<PathBuf> {
    env::home_dir().map(|home| home.join(".kube").join("config"))
}

/// What the selected context says, with the flags' changes.
fn from_kubeconfig(kubeconfig: &Kubeconfig, file: &str, args: &Connection) -> Result<Config, ConfigError> {
    let (context, mut cluster, mut user) = select(kubeconfig, file, args)?;
    apply_cluster_flags(&mut cluster, args);
    apply_user_flags(&mut user, args);
    if let Some(found) = cluster.server.take() {
        let origin = if args.server.is_some() { "--server".to_owned() } else { format!("kubeconfig {file}") };
        let url = server::url(&found, server::has_certificates(&cluster, &user));
        cluster.server = Some(url.ok_or(ConfigError::Server { found: server::shown(&found), origin })?);
    }
    let own = cluster.proxy_url.take().filter(|url| !url.is_empty()).map(|url| ("the kubeconfig's proxy-url", url));
    let proxy = own.or_else(|| cluster.server.as_deref().and_then(proxy::from_env));
    let mut config =
        client_config(context, &cluster, user).map_err(|source| ConfigError::Use { file: file.to_owned(), source })?;
    config.proxy_url = proxy.map(|(variable, url)| proxy_url(variable, &url)).transpose()?;
    Ok(config)
}

/// What kube makes of the same. kube's own reader also reads the environment's proxies, by other rules than
/// [`proxy`], and fails on what does not concern the hub.
fn client_config(context: Context, cluster: &Cluster, mut user: AuthInfo) -> Result<Config, KubeconfigError> {
    let server = cluster.server.as_deref().ok_or(KubeconfigError::MissingClusterUrl)?;
    let mut config = Config::new(server.parse().map_err(KubeconfigError::ParseClusterUrl)?);
    let known = ExecAuthCluster::try_from(cluster)?;
    // Of a bundle that cannot be read no certificate counts: the hub is not trusted.
    let read = |bundle: &Vec<u8>| CertificateDer::pem_slice_iter(bundle).flatten().map(|one| one.to_vec()).collect();
    config.root_cert = known.certificate_authority_data.as_ref().map(read);
    if let Some(plugin) = user.exec.as_mut().filter(|plugin| plugin.provide_cluster_info) {
        plugin.cluster = Some(known);
    }
    config.default_namespace = context.namespace.unwrap_or(config.default_namespace);
    config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or_default();
    config.disable_compression = cluster.disable_compression.unwrap_or_default();
    config.tls_server_name.clone_from(&cluster.tls_server_name);
    config.auth_info = user;
    Ok(config)
}

/// The proxy. kube would name its user and password where it does not know the scheme.
fn proxy_url(variable: &'static str, url: &str) -> Result<Uri, ConfigError> {
    let failed = |cause: String| ConfigError::Proxy { variable, url: server::shown(url), cause };
    let parsed: Uri = url.parse().map_err(|error: http::uri::InvalidUri| failed(error.to_string()))?;
    match parsed.scheme_str() {
        Some("http" | "https" | "socks5") => Ok(parsed),
        _ => Err(failed("write http://, https:// or socks5:// before HOST:PORT".to_owned())),
    }
}

/// Context, cluster and user by the flags, or by the current context.
fn select(kubeconfig: &Kubeconfig, file: &str, args: &Connection) -> Result<(Context, Cluster, AuthInfo), ConfigError> {
    let contexts = || kubeconfig.contexts.iter().map(|one| (&one.name, one.context.clone()));
    let current = kubeconfig.current_context.as_ref().filter(|name| !name.is_empty());
    let context = match args.context.as_ref().or(current) {
        Some(name) => find("context", name, contexts(), file)?,
        None if args.server.is_some() || args.cluster.is_some() => Context::default(),
        None => {
            let known = contexts().map(|(name, _)| name.as_str()).collect::<Vec<_>>();
            return Err(ConfigError::NoContext { file: file.to_owned(), known: list("context", &known) });
        }
    };
    let clusters = kubeconfig.clusters.iter().map(|one| (&one.name, one.cluster.clone()));
    let cluster = match find("cluster", args.cluster.as_ref().unwrap_or(&context.cluster), clusters, file) {
        Err(_) if args.server.is_some() && args.cluster.is_none() => Cluster::default(),
        found => found?,
    };
    let users = kubeconfig.auth_infos.iter().map(|one| (&one.name, Some(one.auth_info.clone().unwrap_or_default())));
    let user = match args.user.as_ref().or(context.user.as_ref()).filter(|name| !name.is_empty()) {
        None => AuthInfo::default(),
        Some(name) => find("user", name, users, file)?,
    };
    Ok((context, cluster, user))
}

/// What has this name.
fn find<'a, T>(
    what: &'static str,
    name: &str,
    all: impl Iterator<Item = (&'a String, Option<T>)>,
    file: &str,
) -> Result<T, ConfigError> {
    let mut known: Vec<&str> = Vec::new();
    for (other, found) in all {
        if let Some(found) = found.filter(|_| other == name) {
            return Ok(found);
        }
        known.push(other);
    }
    Err(ConfigError::Unknown { what, name: name.to_owned(), file: file.to_owned(), known: list(what, &known) })
}

fn list(what: &str, names: &[&str]) -> String {
    match names {
        [] => format!("it has no {what}s"),
        names => format!("{what}s: {}", names.join(", ")),
    }
}

fn apply_cluster_flags(cluster: &mut Cluster, args: &Connection) {
    cluster.server = args.server.clone().or(cluster.server.take());
    if let Some(path) = &args.certificate_authority {
        cluster.certificate_authority = Some(path.display().to_string());
        cluster.certificate_authority_data = None;
        cluster.insecure_skip_tls_verify = None;
    }
    if args.insecure_skip_tls_verify {
        cluster.certificate_authority = None;
        cluster.certificate_authority_data = None;
        cluster.insecure_skip_tls_verify = Some(true);
    }
    cluster.tls_server_name = args.tls_server_name.clone().or(cluster.tls_server_name.take());
}

fn impersonate(user: &mut AuthInfo, args: &Connection) {
    if let Some(name) = &args.impersonate {
        user.impersonate = Some(name.clone());
        user.impersonate_uid.clone_from(&args.impersonate_uid);
        user.impersonate_groups = Some(args.impersonate_groups.clone()).filter(|groups| !groups.is_empty());
    }
    for (key, value) in &args.impersonate_extras {
        let extras = user.impersonate_user_extra.get_or_insert_default();
        extras.entry(key.clone()).or_default().push(value.clone());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KUBECONFIG: &str = r"
apiVersion: v1
kind: Config
current-context: one
contexts:
- {name: one, context: {cluster: c1, user: u1, namespace: shop}}
- {name: two, context: {cluster: c2, user: u2}}
clusters:
- {name: c1, cluster: {server: 'https://one.test:6443', insecure-skip-tls-verify: true}}
- {name: c2, cluster: {server: 'https://two.test:6443'}}
users:
- {name: u1, user: {username: a, password: b}}
- {name: u2, user: {token: two}}
- {name: u3, user: {client-certificate-data: Y2VydA==, client-key-data: a2V5}}
";

    fn select_with(args: &Connection) -> Result<(Context, Cluster, AuthInfo), String> {
        let kubeconfig = Kubeconfig::from_yaml(KUBECONFIG).unwrap();
        select(&kubeconfig, "kc", args).map_err(|error| error.to_string())
    }

    fn server(args: &Connection) -> String {
        let (_, mut cluster, _) = select_with(args).unwrap();
        apply_cluster_flags(&mut cluster, args);
        cluster.server.unwrap()
    }

    #[test]
    fn flags_go_before_the_context() {
        let args = |context: Option<&str>, cluster: Option<&str>, server: Option<&str>| Connection {
            context: context.map(Into::into),
            cluster: cluster.map(Into::into),
            server: server.map(Into::into),
            ..Connection::default()
        };
        for (context, cluster, flag, expected) in [
            (None, None, None, "https://one.test:6443"),
            (Some("two"), None, None, "https://two.test:6443"),
            (Some("one"), Some("c2"), None, "https://two.test:6443"),
            (None, None, Some("https://three.test"), "https://three.test"),
        ] {
            assert_eq!(server(&args(context, cluster, flag)), expected);
        }
    }

    #[test]
    fn an_empty_namespace_is_none() {
        for (flag, context, expected) in [
            (Some("x"), "shop", "x"),
            (Some(""), "shop", "shop"),
            (None, "shop", "shop"),
            (Some(""), "", "default"),
            (None, "", "default"),
        ] {
            assert_eq!(namespace(flag, context), expected, "{flag:?} {context:?}");
        }
    }

    #[test]
    fn the_first_file_with_a_current_context_has_it() {
        let folder = tempfile::TempDir::new().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let (empty, none) = (file("empty", "current-context: ''\n"), file("none", "kind: Config\n"));
        let (one, two) = (file("one", "current-context: one\n"), file("two", "current-context: two\n"));
        let missing = folder.path().join("missing");
        for (paths, expected) in [
            (vec![&empty, &one, &two], Some("one")),
            (vec![&missing, &none, &two, &one], Some("two")),
            (vec![&empty, &none], None),
        ] {
            let paths: Vec<PathBuf> = paths.into_iter().cloned().collect();
            let (kubeconfig, _) = merged(&paths).unwrap();
            assert_eq!(kubeconfig.unwrap().current_context.as_deref(), expected, "{paths:?}");
        }
        let (kubeconfig, searched) = merged(std::slice::from_ref(&missing)).unwrap();
        assert_eq!((kubeconfig.is_none(), searched), (true, missing.display().to_string()));
    }

    #[test]
    fn what_does_not_exist_is_named_with_what_does() {
        let named = |what: &str| {
            let mut args = Connection::default();
            let field = match what {
                "context" => &mut args.context,
                "cluster" => &mut args.cluster,
                _ => &mut args.user,
            };
            *field = Some("nope".to_owned());
            select_with(&args).unwrap_err()
        };
        assert_eq!(named("context"), r#"context "nope" does not exist in kubeconfig kc (contexts: one, two)"#);
        assert_eq!(named("cluster"), r#"cluster "nope" does not exist in kubeconfig kc (clusters: c1, c2)"#);
        assert_eq!(named("user"), r#"user "nope" does not exist in kubeconfig kc (users: u1, u2, u3)"#);
    }

    #[test]
    fn a_token_flag_replaces_every_other_credential_but_not_the_impersonation() {
        let mut user = AuthInfo {
            username: Some("a".into()),
            client_certificate_data: Some("cert".into()),
            impersonate: Some("boss".into()),
            ..AuthInfo::default()
        };
        let args = Connection { token: Some("t".into()), ..Connection::default() };
        apply_user_flags(&mut user, &args);
        assert_eq!((user.username, user.client_certificate_data), (None, None));
        assert!(user.token.is_some());
        assert_eq!(user.impersonate.as_deref(), Some("boss"));
    }

    /// `--user u3 --client-key k.pem` as a connection; an empty value stands between two spaces.
    fn with_flags(flags: &str) -> Connection {
        let mut args = Connection::default();
        let words: Vec<&str> = flags.split(' ').collect();
        for pair in words.chunks(2).filter(|pair| pair.len() == 2) {
            let value = || Some(pair[1].to_owned());
            match pair[0] {
                "--context" => args.context = value(),
                "--user" => args.user = value(),
                "--token" => args.token = value(),
                "--username" => args.username = value(),
                "--password" => args.password = value(),
                "--client-certificate" => args.client_certificate = value().map(Into::into),
                "--client-key" => args.client_key = value().map(Into::into),
                "--as" => args.impersonate = value(),
                "--as-user-extra" => {
                    let (key, value) = pair[1].split_once('=').unwrap();
                    args.impersonate_extras.push((key.to_owned(), value.to_owned()));
                }
                other => panic!("{other}"),
            }
        }
        args
    }

    #[test]
    fn flags_of_the_user_end_up_in_the_settings_of_the_client() {
        for (flags, expected) in [
            ("", json!({"username": "a", "password": "b"})),
            ("--token t", json!({"token": "t"})),
            ("--token ", json!({"username": "a", "password": "b"})),
            ("--username  --password ", json!({"username": "a", "password": "b"})),
            (
                "--client-certificate c.pem --client-key k.pem",
                json!({"client-certificate": "c.pem", "client-key": "k.pem"}),
            ),
            (
                "--token t --client-certificate c.pem --client-key k.pem",
                json!({"token": "t", "client-certificate": "c.pem", "client-key": "k.pem"}),
            ),
            ("--client-key k.pem", json!({"username": "a", "password": "b", "client-key": "k.pem"})),
            ("--user u3 --client-certificate c.pem", json!({"client-certificate": "c.pem", "client-key-data": "a2V5"})),
            ("--user u3 --client-key k.pem", json!({"client-certificate-data": "Y2VydA==", "client-key": "k.pem"})),
            ("--username c --password d", json!({"username": "c", "password": "d"})),
            ("--password d", json!({"username": "a", "password": "d"})),
            ("--username c --context two", json!({"username": "c", "password": ""})),
            (
                "--as x --as-user-extra team=a --as-user-extra team=b=c",
                json!({"username": "a", "password": "b", "as": "x", "as-user-extra": {"team": ["a", "b=c"]}}),
            ),
        ] {
            let args = with_flags(flags);
            let kubeconfig = Kubeconfig::from_yaml(KUBECONFIG).unwrap();
            let mut config = from_kubeconfig(&kubeconfig, "kc", &args).unwrap();
            impersonate(&mut config.auth_info, &args);
            assert_eq!(serde_json::to_value(&config.auth_info).unwrap(), expected, "{flags}");
        }
    }

    #[test]
    fn a_password_of_a_url_is_in_no_error() {
        let proxied = |url: &str| {
            let kubeconfig =
                KUBECONFIG.replacen("cluster: {server", &format!("cluster: {{proxy-url: '{url}', server"), 1);
            from_kubeconfig(&Kubeconfig::from_yaml(&kubeconfig).unwrap(), "kc", &Connection::default())
        };
        let config = proxied("http://bob:s3cret@proxy.test:3128").unwrap();
        assert_eq!(config.proxy_url.unwrap(), "http://bob:s3cret@proxy.test:3128");
        for url in ["http://bob:s3 cr/et@proxy.test:3128", "ftp://bob:s3cret@proxy.test", "bob:s3cret@proxy.test:3128"]
        {
            let error = proxied(url).unwrap_err().to_string();
            assert!(error.contains("proxy.test") && !error.contains("bob") && !error.contains("cr"), "{error}");
        }
        let args = Connection { server: Some("ftp://bob:s3cret@hub.test".to_owned()), ..Connection::default() };
        let error = from_kubeconfig(&Kubeconfig::from_yaml(KUBECONFIG).unwrap(), "kc", &args).unwrap_err().to_string();
        assert!(error.contains("\"ftp://hub.test\"") && !error.contains("bob"), "{error}");
    }

    /// As kube's own reader reads it.
    #[tokio::test]
    async fn the_client_is_that_of_kube() {
        let authority = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCmVIZz0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";
        let text = KUBECONFIG
            .replacen("insecure-skip-tls-verify: true", "tls-server-name: x, disable-compression: true", 1)
            .replacen("cluster: {", &format!("cluster: {{certificate-authority-data: {authority}, "), 1);
        let kubeconfig = || Kubeconfig::from_yaml(&text).unwrap();
        let ours = from_kubeconfig(&kubeconfig(), "kc", &Connection::default()).unwrap();
        let options = kube::config::KubeConfigOptions::default();
        let theirs = Config::from_custom_kubeconfig(kubeconfig(), &options).await.unwrap();
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
        assert_eq!(ours.root_cert, Some(vec![b"xx".to_vec()]));
    }

    #[test]
    fn insecure_drops_the_authority_and_an_authority_makes_secure() {
        let (_, mut cluster, _) = select_with(&Connection::default()).unwrap();
        let args = Connection { certificate_authority: Some("ca.crt".into()), ..Connection::default() };
        apply_cluster_flags(&mut cluster, &args);
        assert_eq!(cluster.insecure_skip_tls_verify, None);
        let args = Connection { insecure_skip_tls_verify: true, ..Connection::default() };
        apply_cluster_flags(&mut cluster, &args);
        assert_eq!((cluster.certificate_authority, cluster.insecure_skip_tls_verify), (None, Some(true)));
    }
}
