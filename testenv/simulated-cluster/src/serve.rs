//! The cluster over HTTP/1.1 on 127.0.0.1, in real time, as kubectl proxy serves a real one to the operator.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use configmonitor_operator::kube::transport;
use futures_util::TryStreamExt;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{ACCEPT, USER_AGENT};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use reqwest::Url;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use crate::api::Request;
use crate::cluster::Cluster;
use crate::network::Process;
use crate::transport::Connection;

/// How the operator's User-Agent begins. All other requests are a user's, and meet no faults.
const OPERATOR: &str = "configmonitor-operator/";

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// A server for one process of the operator, and for users. Dropping this value closes its connections.
pub struct Server {
    address: SocketAddr,
    _task: AbortOnDropHandle<()>,
}

impl Server {
    /// Starts a server on a free port.
    pub async fn start(cluster: &Arc<Cluster>, process: Process) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let life = cluster.state().network.begin_life(process);
        let connection = Arc::new(Connection { cluster: Arc::clone(cluster), life });
        Ok(Self { address, _task: AbortOnDropHandle::new(tokio::spawn(accept(listener, connection))) })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

async fn accept(listener: TcpListener, connection: Arc<Connection>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        while connections.try_join_next().is_some() {}
        let connection = Arc::clone(&connection);
        let service = service_fn(move |request| Arc::clone(&connection).answer(request));
        connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

impl Connection {
    /// An error closes the connection.
    async fn answer(self: Arc<Self>, request: hyper::Request<Incoming>) -> io::Result<hyper::Response<Body>> {
        let (head, body) = request.into_parts();
        let header = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let is_operator = header(USER_AGENT).starts_with(OPERATOR);
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let url = Url::parse(&format!("http://api{path}")).map_err(io::Error::other)?;
        let accept = header(ACCEPT).to_owned().into();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let request = Request { method: head.method.clone(), url, accept, body };
        let transport::Response { code, headers, body } = if is_operator {
            self.exchange(request).await.map_err(io::Error::other)?
        } else {
            let answer = self.cluster.state().serve_user(self.life, &request);
            answer.response(&self.cluster, self.cluster.now(), false)
        };
        let body = StreamBody::new(body.map_ok(Frame::data).map_err(io::Error::other));
        let mut response = hyper::Response::new(body.boxed_unsync());
        *response.status_mut() = code.try_into().map_err(io::Error::other)?;
        *response.headers_mut() = headers;
        Ok(response)
    }
}
