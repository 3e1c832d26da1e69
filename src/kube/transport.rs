//! The seam between the client and the wire: one request goes out, and one response with a streamed body comes back.
//!
//! [`KubectlProxy`] is the real one. The simulation in `tests/simulation` is the other. A transport adds nothing to a request, retries nothing
//! and follows nothing: deadlines, limits and the meaning of an answer belong to [`client`](super::client).

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, Url};

/// A proxy in the same pod that does not accept a connection within this time is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A request for the API server.
#[derive(Clone, Debug)]
pub struct Request {
    /// What the API server calls it, as in its audit log, such as `list` and `create`. Not sent.
    pub verb: &'static str,
    /// And what it calls that which it is about, such as `pods/eviction`. Not sent.
    pub resource: String,
    /// The HTTP method.
    pub method: Method,
    /// The address, with its query.
    pub url: Url,
    /// The value of the header `Accept`.
    pub accept: &'static str,
    /// The body, which is JSON.
    pub body: Option<Bytes>,
}

/// What a request got.
pub struct Response {
    /// The HTTP status code.
    pub code: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body in the chunks in which it arrives. After an error, which says why the body broke off, nothing follows.
    pub body: Body,
}

/// The body of a response, in chunks.
pub type Body = BoxStream<'static, Result<Bytes, String>>;

/// Carries requests to the API server.
pub trait Transport: Send + Sync {
    /// Sends a request and waits for the head of the response. The error says why there is none: whether the request had an effect is then
    /// not known.
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, String>>;
}

/// Plain HTTP/1.1 to kubectl proxy: no credentials, no TLS, no redirects, no proxy of the environment.
pub struct KubectlProxy {
    http: reqwest::Client,
}

impl KubectlProxy {
    /// A transport without open connections.
    ///
    /// # Errors
    /// When the HTTP client cannot be set up.
    pub fn new() -> Result<Self, reqwest::Error> {
        // Without it kubectl proxy asks the API server to compress, and unpacks again what is longer than 128 KiB: a list of pods.
        let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))]);
        let http = reqwest::Client::builder()
            .default_headers(headers)
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .user_agent(concat!("configmonitor-operator/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Self { http })
    }
}

impl Transport for KubectlProxy {
    fn send(&self, Request { method, url, accept, body, .. }: Request) -> BoxFuture<'_, Result<Response, String>> {
        let mut request = self.http.request(method, url).header(ACCEPT, accept);
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        Box::pin(async move {
            let response = request.send().await.map_err(|error| innermost(&error))?;
            let (code, headers) = (response.status().as_u16(), response.headers().clone());
            let body = stream::unfold(Some(response), |response| async {
                let mut response = response?;
                match response.chunk().await {
                    Ok(chunk) => Some((Ok(chunk?), Some(response))),
                    Err(error) => Some((Err(innermost(&error)), None)),
                }
            });
            Ok(Response { code, headers, body: body.boxed() })
        })
    }
}

/// The message of the error at the bottom, which is the one that says what happened.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}
