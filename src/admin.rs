//! The HTTP server of the pod. `/livez`: the process runs. `/readyz`: it knows its namespaces and may watch them.
//! `/metrics`: what it has done.
//!
//! Any pod may reach it, so what a connection takes is bounded.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use crate::controller::Readiness;
use crate::metrics::{self, Metrics};

/// The maximum number of connections. One more closes the oldest: whoever leaves connections open keeps no probe out.
const MAX_CONNECTIONS: usize = 64;
/// How long a connection may take for its one request and the answer.
const MAX_TIME: Duration = Duration::from_secs(5);
/// The maximum length of the head of a request, in bytes. The least that hyper takes.
const MAX_HEAD: usize = 8 << 10;

type HttpAnswer = Response<Full<Bytes>>;

struct Admin {
    readiness: Readiness,
    metrics: Arc<Metrics>,
}

/// Binds the address, which on Linux includes IPv4 if it is `[::]`. Binds `0.0.0.0` instead of `[::]` if the kernel has
/// no IPv6.
pub(crate) async fn listen<T>(address: SocketAddr, bind: impl AsyncFn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    let is_any_ipv6 = address.is_ipv6() && address.ip().is_unspecified();
    match bind(address).await {
        // A port in use is no lack of IPv6: listening on IPv4 alone would hide the mistake.
        Err(error) if is_any_ipv6 && error.kind() != io::ErrorKind::AddrInUse => {
            bind((Ipv4Addr::UNSPECIFIED, address.port()).into()).await
        }
        bound => bound,
    }
}

/// Serves requests until `shutdown` is cancelled.
pub(crate) async fn serve(
    listener: TcpListener,
    readiness: Readiness,
    metrics: Arc<Metrics>,
    shutdown: CancellationToken,
) {
    let admin = Arc::new(Admin { readiness, metrics });
    let mut open = VecDeque::new();
    // A probe that keeps its connection open must not delay the shutdown.
    while let Some(accepted) = shutdown.run_until_cancelled(listener.accept()).await {
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(%error, "cannot accept a connection for probes and metrics");
                shutdown.run_until_cancelled(sleep(Duration::from_secs(1))).await;
                continue;
            }
        };
        let admin = Arc::clone(&admin);
        let answer = service_fn(move |request| ready(Ok::<_, Infallible>(admin.answer(&request))));
        let mut server = http1::Builder::new();
        let connection = server.keep_alive(false).max_buf_size(MAX_HEAD).serve_connection(TokioIo::new(stream), answer);
        if open.len() >= MAX_CONNECTIONS {
            // Those whose request has come are answered first.
            yield_now().await;
            open.retain(|connection: &AbortOnDropHandle<()>| !connection.is_finished());
        }
        if open.len() >= MAX_CONNECTIONS {
            open.pop_front();
        }
        // Nobody is told why an exchange failed.
        let exchange = async { drop(timeout(MAX_TIME, connection).await) };
        open.push_back(AbortOnDropHandle::new(tokio::spawn(exchange)));
    }
}

impl Admin {
    fn answer<B>(&self, request: &Request<B>) -> HttpAnswer {
        match (request.method(), request.uri().path()) {
            (&Method::GET | &Method::HEAD, "/livez") => answer(StatusCode::OK, "ok\n"),
            (&Method::GET | &Method::HEAD, "/readyz") => match self.readiness.why_not_ready() {
                Some(why_not) => answer(StatusCode::SERVICE_UNAVAILABLE, format!("{why_not}\n")),
                None => answer(StatusCode::OK, "ok\n"),
            },
            (&Method::GET | &Method::HEAD, "/metrics") => {
                let text = self.metrics.text(self.readiness.why_not_ready().is_none());
                let mut answer = answer(StatusCode::OK, text);
                answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE));
                answer
            }
            (_, "/livez" | "/readyz" | "/metrics") => answer(StatusCode::METHOD_NOT_ALLOWED, ""),
            _ => answer(StatusCode::NOT_FOUND, ""),
        }
    }
}

fn answer(code: StatusCode, text: impl Into<Bytes>) -> HttpAnswer {
    let mut answer = Response::new(Full::new(text.into()));
    *answer.status_mut() = code;
    answer
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::net::Ipv6Addr;

    use super::*;
    use crate::options::Options;

    #[tokio::test]
    async fn by_default_ipv4_and_ipv6_are_answered() {
        let mut address = Options::read(["configmonitor-operator".into()]).expect("defaults").listen;
        address.set_port(0);
        let listener = listen(address, TcpListener::bind).await.expect("a listener");
        let port = listener.local_addr().expect("an address").port();
        let metrics = Arc::new(Metrics::default());
        let _server = AbortOnDropHandle::new(tokio::spawn(serve(
            listener,
            Readiness::default(),
            metrics,
            CancellationToken::new(),
        )));
        let has_ipv6 = std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        for host in ["127.0.0.1", "[::1]"].into_iter().take(if has_ipv6 { 2 } else { 1 }) {
            let answer = client.get(format!("http://{host}:{port}/livez")).timeout(MAX_TIME).send().await;
            assert_eq!(answer.expect(host).status(), 200, "{host}");
        }
    }

    #[tokio::test]
    async fn without_ipv6_only_ipv4_takes_the_place_of_all_addresses() {
        // EAFNOSUPPORT, of a kernel with ipv6.disable=1, and EADDRINUSE.
        let (no_ipv6, in_use) = (97, 98);
        for (address, error, expected) in [
            ("[::]:8080", no_ipv6, &["[::]:8080", "0.0.0.0:8080"][..]),
            ("[::]:8080", in_use, &["[::]:8080"]),
            ("[::1]:8080", no_ipv6, &["[::1]:8080"]),
            ("0.0.0.0:8080", no_ipv6, &["0.0.0.0:8080"]),
        ] {
            let tried = RefCell::new(Vec::new());
            let bind = async |address: SocketAddr| {
                tried.borrow_mut().push(address.to_string());
                if tried.borrow().len() > 1 {
                    Ok(address.to_string())
                } else {
                    Err(io::Error::from_raw_os_error(error))
                }
            };
            let bound = listen(address.parse().expect("an address"), bind).await;
            assert_eq!(tried.take(), expected, "{address}");
            assert_eq!(bound.ok().as_deref(), expected.get(1).copied(), "{address}");
        }
    }
}
