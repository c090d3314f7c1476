//! Names of Kubernetes objects.

/// Whether this is a DNS subdomain, as names of objects and namespaces are.
pub(crate) fn is_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let outer = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    name.len() <= 253
        && name.bytes().all(inner)
        && outer(name.as_bytes().first())
        && outer(name.as_bytes().last())
        && !name.contains("..")
}

/// Whether this is a DNS label, as names of namespaces are.
pub(crate) fn is_namespace(name: &str) -> bool {
    is_name(name) && name.len() <= 63 && !name.contains('.')
}
