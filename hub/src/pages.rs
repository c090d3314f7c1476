//! Lists, in the pages in which the API server sends them.

use kube::api::ListParams;
use kube::core::Request;
use serde_json::Value;

use crate::error::HubError;
use crate::{HubClient, Resource, selector, typed};

/// Objects are listed in pages of this size, as kubectl does.
const PAGE: u32 = 500;

/// A list of objects and where a watch may go on from.
pub struct ObjectList {
    /// The objects, each with apiVersion and kind.
    pub items: Vec<Value>,
    /// resourceVersion of the list.
    pub version: String,
}

/// A list that is read a page at a time.
pub struct Pages<'a> {
    hub: &'a HubClient,
    resource: Resource,
    path: String,
    params: ListParams,
    /// resourceVersion of the list; empty until its last page was read.
    pub(crate) version: String,
}

impl HubClient {
    /// Objects of a namespace or of all, with `fields` or `labels` as selectors where not empty.
    pub async fn list(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        fields: &str,
        labels: &str,
    ) -> Result<ObjectList, HubError> {
        let (mut pages, mut items) = (self.pages(resource, namespace, fields, labels), Vec::new());
        while let Some(page) = pages.next().await? {
            items.extend(page);
        }
        Ok(ObjectList { items, version: pages.version })
    }

    /// The same list in pages: a whole list as JSON takes much memory.
    pub fn pages(&self, resource: Resource, namespace: Option<&str>, fields: &str, labels: &str) -> Pages<'_> {
        let mut params = ListParams::default().limit(PAGE);
        params.field_selector = selector(fields);
        params.label_selector = selector(labels);
        Pages { hub: self, resource, path: resource.path(namespace), params, version: String::new() }
    }
}

impl Pages<'_> {
    /// The objects of the next page, each with apiVersion and kind; none after the last page.
    ///
    /// # Errors
    /// When the hub does not give the page.
    pub async fn next(&mut self) -> Result<Option<Vec<Value>>, HubError> {
        if !self.version.is_empty() {
            return Ok(None);
        }
        let request = Request::new(&self.path).list(&self.params);
        let mut page: Value = self.hub.send(self.resource.call("list", ""), request).await?;
        let metadata = |key: &str| page.get("metadata")?.get(key)?.as_str().filter(|text| !text.is_empty());
        self.params.continue_token = metadata("continue").map(str::to_owned);
        if self.params.continue_token.is_none() {
            metadata("resourceVersion").unwrap_or("0").clone_into(&mut self.version);
        }
        let Some(Value::Array(objects)) = page.get_mut("items").map(Value::take) else { return Ok(Some(Vec::new())) };
        Ok(Some(objects.into_iter().map(|object| typed(object, self.resource)).collect()))
    }
}
