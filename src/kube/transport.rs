//! The seam between the client and the network: sends one request and returns one response with a streamed body.
//!
//! [`KubectlProxy`] is for production, the simulation in `tests/simulation` for tests. A transport adds nothing to a
//! request, retries nothing and follows no redirect: deadlines, limits and the meaning of answers belong to
//! [`client`](super::client).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use http_body_util::BodyDataStream;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, Url};

use super::Action;

/// The scheme of a URL that names a unix socket.
pub(crate) const UNIX: &str = "unix";
/// Timeout of a connection to the proxy, which runs in the same pod.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A request for the API server.
#[derive(Clone, Debug)]
pub struct Request {
    /// Not sent.
    pub(crate) action: Action,
    /// The HTTP method.
    pub method: Method,
    /// The URL with its query.
    pub url: Url,
    /// The header `Accept`.
    pub accept: &'static str,
    /// The media type of the body.
    pub content_type: &'static str,
    /// The JSON body.
    pub body: Option<Bytes>,
}

/// A response.
pub struct Response {
    /// The HTTP status code.
    pub code: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body in the chunks in which it arrives. An error says why the body broke off; nothing follows it.
    pub body: Body,
}

/// The body of a response, in chunks.
pub type Body = BoxStream<'static, Result<Bytes, String>>;

/// Carries requests to the API server.
pub trait Transport: Send + Sync {
    /// Sends a request and waits for the head of the response. An error says why there is no response: the request may
    /// have had an effect.
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, String>>;
}

impl<T: Transport + ?Sized> Transport for Arc<T> {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, String>> {
        T::send(self, request)
    }
}

/// Plain HTTP/1.1 to kubectl proxy: no credentials, no TLS, no redirects, no proxy from the environment.
pub struct KubectlProxy {
    http: reqwest::Client,
}

impl KubectlProxy {
    /// Creates a transport for a kubectl proxy at `http://HOST:PORT` or `unix:///PATH`, and returns the URL of its
    /// requests.
    ///
    /// # Errors
    /// The HTTP client cannot be set up.
    pub fn at(url: Url) -> Result<(Self, Url), Box<dyn std::error::Error>> {
        // Otherwise kubectl proxy asks the API server to compress, and decompresses answers of more than 128 KiB, such
        // as a list of pods.
        let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))]);
        let options = reqwest::Client::builder()
            .default_headers(headers)
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .user_agent(concat!("configmonitor-operator/", env!("CARGO_PKG_VERSION")));
        let (options, url) = match url.scheme() {
            // The proxy accepts the same host as on its port.
            UNIX => (options.unix_socket(url.path()), "http://127.0.0.1".parse()?),
            _ => (options, url),
        };
        Ok((Self { http: options.build()? }, url))
    }
}

impl Transport for KubectlProxy {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, String>> {
        let Request { method, url, accept, content_type, body, .. } = request;
        let mut request = self.http.request(method, url).header(ACCEPT, accept);
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, content_type).body(body);
        }
        Box::pin(async move {
            let response = request.send().await.map_err(|error| innermost(&error))?;
            let (code, headers) = (response.status().as_u16(), response.headers().clone());
            let chunks = BodyDataStream::new(reqwest::Body::from(response));
            let body = chunks.map(|chunk| chunk.map_err(|error| innermost(&error))).boxed();
            Ok(Response { code, headers, body })
        })
    }
}

/// The message of the innermost error, which says what happened.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}
