//! Requests about many objects: lists in pages, and watches as lines.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tracing::{error_span, warn};

use super::client::{Answer, Client, TIMEOUT, parse};
use super::error::{Cause, Error};
use super::lines::Lines;
use super::objects::{Undecodable, decode};
use super::transport::Request;
use super::{Action, PODS, Resource, ResourceVersion, ServerTime};

/// Objects in the first page of a list.
const FIRST_PAGE: u32 = 200;
/// Objects in the first page of a list of metadata, which takes 300 bytes or 256 KB for a ConfigMap.
const FIRST_PAGE_OF_METADATA: u32 = 100;
/// Intended bytes of each further page, estimated from the page before. 200 ConfigMaps with the annotation of
/// client-side apply are 2 MB, which set the peak of memory; 200 small ones are 80 KB.
const PAGE_BYTES: u64 = 1 << 20;
/// Maximum number of objects in a page.
const MAX_PAGE: u32 = 500;

/// Media types of the metadata of one object, and of the metadata of a list.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_OF_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// One page of a list.
pub struct Page<T> {
    /// Each is decoded by itself.
    pub(crate) items: Vec<Result<T, Undecodable>>,
    /// Equal on all pages.
    pub(crate) resource_version: ResourceVersion,
    /// None on the last page.
    pub(crate) next: Option<NextPage>,
}

/// The request for the next page of a list.
pub struct NextPage {
    token: String,
    size: u32,
}

/// A complete list.
pub struct List<T> {
    /// The objects that could be decoded.
    pub items: Vec<T>,
    /// The version of the list.
    pub resource_version: ResourceVersion,
    /// The `Date` of the first answer.
    pub at: ServerTime,
}

/// The objects of a list or watch.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The resource.
    pub resource: Resource,
    /// A label selector. None selects all objects.
    pub labels: Option<String>,
    /// A field selector. None selects all objects. A Role that names single objects allows a list with the field
    /// `metadata.name` only.
    pub fields: Option<Arc<str>>,
    /// Whether to request metadata instead of whole objects.
    pub metadata_only: bool,
}

#[derive(Deserialize)]
struct ListAnswer<T> {
    metadata: ListMetadata,
    // `default` would require `T: Default`.
    items: Option<Vec<T>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: ResourceVersion,
    #[serde(default)]
    r#continue: String,
}

impl Client {
    /// Reads one page of a list: the first one, or the one that `next` of another page names. Takes no permit, like the
    /// watch that follows: requests about single objects must not block lists.
    ///
    /// # Errors
    /// [`Cause`] says what the caller can do. [`Cause::Expired`]: start again with the first page.
    pub async fn page<T: DeserializeOwned>(&self, of: &Selection, next: Option<&NextPage>) -> Result<Page<T>, Error> {
        self.check_stop(&Action::new("list", of.resource))?;
        self.page_at(of, next, None).await.map(|answer| answer.value)
    }

    /// Reads a complete list, as it is now or as it was at the version `exactly`. Keeps the result of `keep` for each
    /// object, so that a long list takes the memory of one page and these results.
    ///
    /// # Errors
    /// [`Cause`] says what the caller can do. [`Cause::Expired`]: the version does not exist any more.
    pub async fn list<T: DeserializeOwned, K>(
        &self,
        of: &Selection,
        exactly: Option<&ResourceVersion>,
        mut keep: impl FnMut(T) -> K,
    ) -> Result<List<K>, Error> {
        let _permit = self.request_permit(&Action::new("list", of.resource)).await?;
        let Answer { value: mut page, at } = self.page_at(of, None, exactly).await?;
        let mut list = List { items: Vec::new(), resource_version: page.resource_version, at };
        loop {
            for item in page.items {
                match item {
                    Ok(item) => list.items.push(keep(item)),
                    Err(Undecodable { name, error, .. }) => {
                        // The list may serve others than its caller, so the line is outside the caller's span.
                        let (namespace, resource) = (self.namespace(), of.resource.plural);
                        let span = error_span!(parent: None, "list", namespace, resource);
                        warn!(parent: &span, name, error, "object cannot be decoded; left out");
                    }
                }
            }
            let Some(next) = page.next else { return Ok(list) };
            page = self.page_at(of, Some(&next), None).await?.value;
        }
    }

    /// Opens a watch that starts after the version `from` and that the server ends after `duration`.
    ///
    /// # Errors
    /// [`Cause`] says what the caller can do. [`Cause::Expired`]: list again.
    pub async fn watch(&self, of: &Selection, from: &ResourceVersion, duration: Duration) -> Result<Lines, Error> {
        let seconds = duration.as_secs().to_string();
        let query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", from.as_str()),
            ("timeoutSeconds", &seconds),
        ];
        let request = self.selected("watch", of, METADATA, &query);
        let action = request.action.clone();
        self.check_stop(&action)?;
        // The head of a watch comes at once and its body lasts; a refusal comes at once as a whole.
        let deadline = Instant::now() + TIMEOUT;
        let opened = tokio::time::timeout_at(deadline, self.send(request, deadline)).await;
        let opened = opened.unwrap_or_else(|_| Err(Cause::Unreachable("timed out".to_owned())));
        let answer = opened.map_err(|cause| action.failed(cause))?;
        // A caller that is busy does not read its watch on pods, and others would wait for it.
        let client = (of.resource != PODS).then(|| self.clone());
        Ok(Lines::new(client, answer.body, Instant::now() + duration + TIMEOUT))
    }

    fn selected(&self, verb: &'static str, of: &Selection, metadata: &'static str, query: &[(&str, &str)]) -> Request {
        let mut request = self.request(Method::GET, Action::new(verb, of.resource));
        request.url.query_pairs_mut().extend_pairs(query);
        if let Some(labels) = &of.labels {
            request.url.query_pairs_mut().append_pair("labelSelector", labels);
        }
        if let Some(fields) = &of.fields {
            request.url.query_pairs_mut().append_pair("fieldSelector", fields);
        }
        if of.metadata_only {
            request.accept = metadata;
        }
        request
    }

    async fn page_at<T: DeserializeOwned>(
        &self,
        of: &Selection,
        next: Option<&NextPage>,
        exactly: Option<&ResourceVersion>,
    ) -> Result<Answer<Page<T>>, Error> {
        let first = if of.metadata_only { FIRST_PAGE_OF_METADATA } else { FIRST_PAGE };
        let mut size = next.map_or(first, |next| next.size);
        loop {
            let limit = size.to_string();
            let mut query = vec![("limit", &*limit)];
            // The token contains the version: the API server refuses requests with both.
            if let Some(next) = next {
                query.push(("continue", &next.token));
            } else if let Some(version) = exactly {
                query.extend([("resourceVersion", version.as_str()), ("resourceVersionMatch", "Exact")]);
            }
            let request = self.selected("list", of, METADATA_OF_LIST, &query);
            let action = request.action.clone();
            let (body, at) = match self.exchange(request).await {
                Err(Error { cause: Cause::TooLong, .. }) if size > 1 => {
                    size = (size / 10).max(1);
                    continue;
                }
                answer => answer?,
            };
            // Decodes the objects one by one only if one of them cannot be decoded: it takes twice the CPU.
            let (metadata, items) = match serde_json::from_slice::<ListAnswer<T>>(&body.text) {
                Ok(ListAnswer { metadata, items }) => {
                    (metadata, items.unwrap_or_default().into_iter().map(Ok).collect())
                }
                Err(_) => {
                    let ListAnswer::<&RawValue> { metadata, items } = parse(&body.text, &action)?;
                    (metadata, items.unwrap_or_default().into_iter().map(decode).collect())
                }
            };
            let next = Some(metadata.r#continue).filter(|token| !token.is_empty());
            let next = next.map(|token| NextPage { token, size: size_after(size, body.text.len()) });
            return Ok(Answer { value: Page { items, resource_version: metadata.resource_version, next }, at });
        }
    }
}

/// The size of the page after one with `size` objects and `bytes` bytes: at most twice as many objects, because the
/// next ones may be larger.
fn size_after(size: u32, bytes: usize) -> u32 {
    let fitting = u64::from(size) * PAGE_BYTES / (bytes as u64).max(1);
    let max = size.saturating_mul(2).min(MAX_PAGE);
    u32::try_from(fitting).map_or(max, |fitting| fitting.clamp(1, max))
}
