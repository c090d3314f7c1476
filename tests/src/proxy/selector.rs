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
