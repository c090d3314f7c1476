//! Label selectors that a gate adds to lists, so that clusters which share an API server each see their own.

/// Each list that gets the selector, by API and resource, in one namespace or all. Single objects, and everything else,
/// pass as they are.
const LISTS: &[(&str, &str)] = &[
    ("/api/v1", "nodes"),
    ("/apis/coordination.k8s.io/v1", "leases"),
    ("/apis/certificates.k8s.io/v1", "certificatesigningrequests"),
    ("/apis/config.openshift.io/v1", "clusteroperators"),
    ("/apis/machine.openshift.io/v1beta1", "machines"),
];

fn is_list(path: &str) -> bool {
    LISTS.iter().any(|(api, resource)| {
        let rest = path.strip_prefix(api).and_then(|rest| rest.strip_prefix('/')).unwrap_or_default();
        let namespaced = rest.strip_prefix("namespaces/").and_then(|rest| rest.split_once('/'));
        rest == *resource || namespaced.is_some_and(|(_, rest)| rest == *resource)
    })
}

/// A label that everything of one cluster carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabeledLists {
    /// Label key.
    pub key: String,
    /// Label value.
    pub value: String,
}

impl LabeledLists {
    /// Path and query as the real server is to see them.
    pub fn rewrite(&self, path: &str, query: Option<&str>) -> String {
        if !is_list(path) {
            return query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
        }
        let ours = format!("{}%3D{}", self.key.replace('/', "%2F"), self.value);
        let mut found = false;
        let mut pairs: Vec<String> = query
            .into_iter()
            .flat_map(|query| query.split('&'))
            .map(|pair| match pair.strip_prefix("labelSelector=") {
                Some(theirs) if !theirs.is_empty() => {
                    found = true;
                    format!("labelSelector={theirs}%2C{ours}")
                }
                _ => pair.to_owned(),
            })
            .filter(|pair| pair != "labelSelector=")
            .collect();
        if !found {
            pairs.push(format!("labelSelector={ours}"));
        }
        format!("{path}?{}", pairs.join("&"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_the_clients_selector_and_ours() {
        let lists = LabeledLists { key: "testbed.hibernate.sh/cluster".to_owned(), value: "demo-x7k2p".to_owned() };
        let ours = "testbed.hibernate.sh%2Fcluster%3Ddemo-x7k2p";
        for (path, query, rewritten) in [
            ("/api/v1/nodes", None, format!("/api/v1/nodes?labelSelector={ours}")),
            ("/api/v1/nodes", Some("watch=true"), format!("/api/v1/nodes?watch=true&labelSelector={ours}")),
            (
                "/api/v1/nodes",
                Some("labelSelector=a%3Db&limit=5"),
                format!("/api/v1/nodes?labelSelector=a%3Db%2C{ours}&limit=5"),
            ),
            ("/api/v1/nodes", Some("labelSelector="), format!("/api/v1/nodes?labelSelector={ours}")),
            ("/api/v1/nodes/ip-10-0-0-10", None, "/api/v1/nodes/ip-10-0-0-10".to_owned()),
            ("/api/v1/pods", Some("limit=1"), "/api/v1/pods?limit=1".to_owned()),
            (
                "/apis/coordination.k8s.io/v1/namespaces/openshift-dns-operator/leases",
                None,
                format!("/apis/coordination.k8s.io/v1/namespaces/openshift-dns-operator/leases?labelSelector={ours}"),
            ),
            (
                "/apis/coordination.k8s.io/v1/namespaces/leases/leases/a",
                None,
                "/apis/coordination.k8s.io/v1/namespaces/leases/leases/a".to_owned(),
            ),
        ] {
            assert_eq!(lists.rewrite(path, query), rewritten);
        }
    }
}
