//! Another way to an API server than its kubeconfig's: `spec.controlPlaneConfig` of its `ClusterDeployment`.

use std::net::{IpAddr, SocketAddr};

use http::Uri;
use kube::Config;

/// Where to connect in place of what a kubeconfig says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Route<'a> {
    /// The URL. The server has to prove that it is the one that the URL names.
    pub url: Option<&'a str>,
    /// The address. The server has to prove that it is the one that the URL names, not the address.
    pub ip: Option<&'a str>,
}

impl Route<'_> {
    /// Takes the way.
    ///
    /// # Errors
    /// Which field cannot be used, and why.
    pub fn apply(&self, config: &mut Config) -> Result<(), String> {
        if let Some(url) = self.url {
            let url: Uri = url.parse().map_err(|error| format!("apiURLOverride is malformed: {error}"))?;
            if url.scheme_str() != Some("https") {
                return Err("apiURLOverride is refused: it is not https".to_owned());
            }
            config.cluster_url = url;
            config.tls_server_name = None; // it names the server of the URL that is not taken
        }
        let Some(ip) = self.ip else { return Ok(()) };
        let ip: IpAddr = ip.parse().map_err(|_| format!("apiServerIPOverride is no IP address: {ip:?}"))?;
        let named = config.cluster_url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        config.tls_server_name.get_or_insert(named);
        let address = SocketAddr::new(ip, config.cluster_url.port_u16().unwrap_or(443));
        let path = config.cluster_url.path_and_query().map_or("/", |path| path.as_str());
        let url = Uri::builder().scheme("https").authority(address.to_string()).path_and_query(path).build();
        config.cluster_url = url.map_err(|error| format!("apiServerIPOverride cannot be used: {error}"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(url: Option<&str>, ip: Option<&str>) -> Result<(String, Option<String>), String> {
        let mut config = Config::new("https://api.demo:6443".parse().unwrap());
        config.tls_server_name = Some("given".to_owned()).filter(|_| ip.is_none());
        Route { url, ip }.apply(&mut config)?;
        Ok((config.cluster_url.to_string(), config.tls_server_name))
    }

    #[test]
    fn the_server_is_the_one_that_the_url_names() {
        let name = |name: &str| Some(name.to_owned());
        for (url, ip, connects, proves) in [
            (None, None, "https://api.demo:6443/", name("given")),
            (Some("https://vanity"), None, "https://vanity/", None),
            (None, Some("10.0.0.7"), "https://10.0.0.7:6443/", name("api.demo")),
            (Some("https://vanity/p"), Some("fd00::7"), "https://[fd00::7]:443/p", name("vanity")),
        ] {
            assert_eq!(taken(url, ip).unwrap(), (connects.to_owned(), proves), "{url:?} {ip:?}");
        }
    }

    #[test]
    fn says_what_cannot_be_used() {
        for (url, ip, why) in [
            (Some("http://vanity"), None, "apiURLOverride is refused: it is not https"),
            (Some("vanity:6443"), None, "apiURLOverride is refused: it is not https"),
            (Some("https://"), None, "apiURLOverride is malformed"),
            (None, Some("api.demo"), "apiServerIPOverride is no IP address: \"api.demo\""),
        ] {
            let error = taken(url, ip).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
    }
}
