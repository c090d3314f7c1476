//! Lists that come page by page.

use serde::Deserialize;

use crate::wire::{Flavor, FloatingIp, Group, Image, Network, Port, Server};

/// A page of a list.
pub(crate) trait Page: for<'de> Deserialize<'de> {
    type Item;

    /// Its items, and whether there are more.
    fn open(self) -> (Vec<Self::Item>, bool);
}

/// Something that a marker can name.
pub(crate) trait HasMarker {
    fn marker(&self) -> &str;
}

macro_rules! pages {
    ($($page:ident { $key:literal: $item:ty, $more:literal: $links:ty })*) => {
        $(
            #[derive(Deserialize)]
            pub(crate) struct $page {
                #[serde(rename = $key)]
                items: Vec<$item>,
                #[serde(default, rename = $more)]
                more: $links,
            }

            impl Page for $page {
                type Item = $item;

                fn open(self) -> (Vec<$item>, bool) {
                    let more = self.more.has_next();
                    (self.items, more)
                }
            }

            impl HasMarker for $item {
                fn marker(&self) -> &str {
                    AsRef::<str>::as_ref(&self.id)
                }
            }
        )*
    };
}

pages! {
    Servers { "servers": Server, "servers_links": Vec<Link> }
    Flavors { "flavors": Flavor, "flavors_links": Vec<Link> }
    Ports { "ports": Port, "ports_links": Vec<Link> }
    FloatingIps { "floatingips": FloatingIp, "floatingips_links": Vec<Link> }
    Networks { "networks": Network, "networks_links": Vec<Link> }
    Images { "images": Image, "next": Option<String> }
}

/// A link of a page.
#[derive(Deserialize)]
pub(crate) struct Link {
    rel: String,
}

/// What a page says of those after it.
trait Links {
    fn has_next(&self) -> bool;
}

impl Links for Vec<Link> {
    fn has_next(&self) -> bool {
        self.iter().any(|link| link.rel == "next")
    }
}

impl Links for Option<String> {
    fn has_next(&self) -> bool {
        self.is_some()
    }
}

impl HasMarker for Group {
    fn marker(&self) -> &str {
        self.id.as_str()
    }
}
