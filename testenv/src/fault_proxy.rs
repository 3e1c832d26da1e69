//! A proxy in front of `kubectl proxy` that injects faults into requests: it delays them, answers in the server's
//! place, and breaks connections.
//!
//! It knows just enough HTTP/1.1: every request gets a connection of its own in both directions, so a broken connection
//! is one request, and a delayed request holds up no other.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The most bytes in the head of a request. No client here sends more.
const LONGEST_HEAD: usize = 64 << 10;

/// A running proxy. Its connections end when this value is dropped.
#[derive(Debug)]
pub struct FaultProxy {
    port: u16,
    shared: Arc<Shared>,
    _connections: JoinSet<()>,
}

/// A request, as far as a rule needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `PUT` and so on.
    pub method: String,
    /// The path and the query.
    pub target: String,
}

/// What the proxy does with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Passes on the request and its answer.
    None,
    /// Passes the request on late.
    Late(Duration),
    /// Answers this itself: the server never gets the request.
    Answered(String),
    /// Closes the connection before the server gets the request.
    CutBefore,
    /// Closes the connection when the server has answered, without the answer.
    CutAfter,
    /// Closes the connection after this many bytes of the answer.
    CutWithin(u64),
    /// Passes the request on so late that its sender is long gone.
    Orphaned(Duration),
}

type Rule = Box<dyn FnMut(&Request) -> Fault + Send>;

struct Shared {
    upstream: String,
    rule: Mutex<Rule>,
    late: Semaphore,
}

impl FaultProxy {
    /// Starts on a free port of loopback, in front of `upstream`, such as `http://127.0.0.1:8001`. Passes everything on
    /// until it gets a rule.
    pub async fn start(upstream: &str) -> Result<Self> {
        let upstream = upstream.strip_prefix("http://").context("the proxy behind it speaks plain HTTP")?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            upstream: upstream.to_owned(),
            rule: Mutex::new(Box::new(|_| Fault::None)),
            late: Semaphore::new(0),
        });
        let mut connections = JoinSet::new();
        connections.spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { port, shared, _connections: connections })
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Sets the rule that decides about each request from now on, in the order in which they arrive.
    pub fn rule(&self, rule: impl FnMut(&Request) -> Fault + Send + 'static) {
        *self.shared.rule() = Box::new(rule);
    }

    /// Waits until a request is passed on late for which no earlier call has returned.
    pub async fn late(&self) {
        if let Ok(one) = self.shared.late.acquire().await {
            one.forget();
        }
    }
}

impl Shared {
    fn rule(&self) -> MutexGuard<'_, Rule> {
        self.rule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves the one request of a connection.
    async fn serve(&self, mut client: TcpStream) -> Result<()> {
        let (request, bytes) = read(&mut client).await?;
        let fault = (self.rule())(&request);
        match fault {
            Fault::None => self.relay(client, &bytes, u64::MAX).await,
            Fault::Late(delay) => {
                self.late.add_permits(1);
                sleep(delay).await;
                self.relay(client, &bytes, u64::MAX).await
            }
            Fault::Answered(text) => Ok(client.write_all(text.as_bytes()).await?),
            Fault::CutBefore => Ok(()),
            Fault::CutAfter => self.answered(&bytes).await,
            Fault::CutWithin(most) => self.relay(client, &bytes, most).await,
            Fault::Orphaned(delay) => {
                drop(client);
                sleep(delay).await;
                self.answered(&bytes).await
            }
        }
    }

    /// Passes a request on, and up to `most` bytes of its answer. Either side may end the connection.
    async fn relay(&self, mut client: TcpStream, request: &[u8], most: u64) -> Result<()> {
        let mut answer = self.send(request).await?.take(most);
        let (mut from_client, mut to_client) = client.split();
        tokio::select! {
            copied = tokio::io::copy(&mut answer, &mut to_client) => drop(copied?),
            // The client sends nothing more before it has its answer, so it is gone.
            gone = from_client.read_u8() => drop(gone?),
        };
        Ok(())
    }

    /// Passes a request on and waits until the server answers.
    async fn answered(&self, request: &[u8]) -> Result<()> {
        self.send(request).await?.read_u8().await?;
        Ok(())
    }

    async fn send(&self, request: &[u8]) -> Result<TcpStream> {
        let mut server = TcpStream::connect(&self.upstream).await?;
        server.write_all(request).await?;
        Ok(server)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            // Any failure here is a connection that ends, which both sides see.
            let _ = shared.serve(client).await;
        });
    }
}

/// Reads a request, and changes it so that its connection ends with its answer.
async fn read(client: &mut TcpStream) -> Result<(Request, Vec<u8>)> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        ensure!(bytes.len() < LONGEST_HEAD, "the head of a request does not end");
        ensure!(client.read_buf(&mut bytes).await? > 0, "a request ends in its head");
    };
    let text = str::from_utf8(&bytes[..head])?.to_owned();
    let mut lines = text.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().context("a request without a target")?);
    let length =
        lines.filter_map(|line| line.split_once(':')).find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = length.map_or(Ok(0), |(_, length)| length.trim().parse::<usize>())?;
    while bytes.len() < head + 4 + length {
        ensure!(client.read_buf(&mut bytes).await? > 0, "a request ends in its body");
    }
    bytes.splice(head..head, *b"\r\nconnection: close");
    Ok((Request { method: method.to_owned(), target: target.to_owned() }, bytes))
}
