//! Lists that come page by page.

use serde::Deserialize;

use crate::wire::{Flavor, FloatingIp, Group, Image, KeyPair, Network, Port, Server};

/// A page of any list: the services differ in the names of its parts only.
#[derive(Deserialize)]
pub(crate) struct Page<T> {
    #[serde(
        alias = "servers",
        alias = "flavors",
        alias = "keypairs",
        alias = "server_groups",
        alias = "ports",
        alias = "floatingips",
        alias = "networks",
        alias = "images"
    )]
    pub(crate) items: Vec<T>,
    #[serde(
        default,
        alias = "servers_links",
        alias = "flavors_links",
        alias = "keypairs_links",
        alias = "ports_links",
        alias = "floatingips_links",
        alias = "networks_links"
    )]
    links: Vec<Link>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Link {
    rel: String,
}

impl<T> Page<T> {
    pub(crate) fn has_next(&self) -> bool {
        self.next.is_some() || self.links.iter().any(|link| link.rel == "next")
    }
}

/// Something that a marker can name.
pub(crate) trait HasMarker {
    fn marker(&self) -> &str;
}

macro_rules! have_markers {
    ($($item:ty: $($field:ident).+;)*) => {
        $(impl HasMarker for $item {
            fn marker(&self) -> &str {
                self.$($field).+.as_str()
            }
        })*
    };
}

have_markers! {
    Server: id;
    Flavor: id;
    KeyPair: keypair.name;
    Group: id;
    Port: id;
    FloatingIp: id;
    Network: id;
    Image: id;
}
