//! A scripted server: plain HTTP/1.1, one thread per connection. Answers each request exactly as the test says, down to
//! the chunk and the byte after which the connection breaks, and records the requests.

use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpSocket;

use crate::held::{Feed, Gate};
use crate::request::{Request, read};
use crate::time::{DEADLINE, in_time};

/// The time on the server, unless an answer has another one.
pub(crate) const DATE: &str = "Sat, 21 Nov 2026 10:00:00 GMT";

/// The answer to a request.
pub(crate) enum Answer {
    /// A body with a `content-length`.
    Whole { code: u16, headers: Vec<(String, String)>, body: Vec<u8>, cut: bool },
    /// A body in chunks.
    Watch(Vec<Chunk>),
    /// An answer that is sent once the gate is open.
    After(Gate, Box<Answer>),
    /// These bytes and then silence.
    Held(String),
    /// A closed connection.
    HangUp,
    /// Silence.
    Stall,
}

/// A part of the answer to a watch. After the last part the body ends.
pub(crate) enum Chunk {
    /// These bytes in one chunk.
    Text(Vec<u8>),
    /// The lines that the test adds.
    Feed(Feed),
    /// Silence.
    Hold,
    /// A closed connection in the middle of the body.
    Truncate,
}

/// The server. Dropping this value closes its connections.
pub(crate) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    reserved: Option<TcpSocket>,
}

#[derive(Default)]
struct Shared {
    rules: Mutex<Vec<Rule>>,
    requests: Mutex<Vec<Request>>,
    arrived: Condvar,
    connections: Mutex<Vec<TcpStream>>,
    closing: AtomicBool,
}

struct Rule {
    words: String,
    for_ever: bool,
    next: Box<Next>,
}

/// Returns the next answer to a request, until the rule has none left.
type Next = dyn FnMut(&Request) -> Option<Answer> + Send;

impl Answer {
    pub(crate) fn json(code: u16, body: &Value) -> Self {
        Self::text(code, &body.to_string()).header("content-type", "application/json")
    }

    pub(crate) fn text(code: u16, body: &str) -> Self {
        let headers = vec![("date".to_owned(), DATE.to_owned())];
        Self::Whole { code, headers, body: body.as_bytes().to_vec(), cut: false }.header("content-type", "text/plain")
    }

    /// Answers with these lines and then silence.
    pub(crate) fn watch(lines: &[String]) -> Self {
        Self::Watch(vec![Chunk::text(lines.concat()), Chunk::Hold])
    }

    /// Answers with the lines of this feed, past and future ones.
    pub(crate) fn feed(feed: &Feed) -> Self {
        Self::Watch(vec![Chunk::Feed(feed.clone())])
    }

    /// Answers with these lines and then the end of the body.
    pub(crate) fn short_watch(lines: &[String]) -> Self {
        Self::Watch(vec![Chunk::text(lines.concat())])
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self = self.without(name);
        if let Self::Whole { headers, .. } = &mut self {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        if let Self::Whole { headers, .. } = &mut self {
            headers.retain(|(header, _)| header != name);
        }
        self
    }

    /// Closes the connection in the middle of the body.
    pub(crate) fn cut_off(mut self) -> Self {
        if let Self::Whole { cut, .. } = &mut self {
            *cut = true;
        }
        self
    }

    pub(crate) fn after(self, gate: &Gate) -> Self {
        Self::After(gate.clone(), Box::new(self))
    }

    /// Sends the answer. Returns whether the connection stays open.
    fn send(self, stream: &mut TcpStream) -> io::Result<bool> {
        match self {
            Self::Whole { code, headers, body, cut } => {
                write!(stream, "HTTP/1.1 {code} Scripted\r\ncontent-length: {}\r\n", body.len())?;
                for (name, value) in headers {
                    write!(stream, "{name}: {value}\r\n")?;
                }
                stream.write_all(b"\r\n")?;
                let sent = if cut { body.len() / 2 } else { body.len() };
                stream.write_all(&body[..sent])?;
                Ok(!cut)
            }
            Self::Watch(chunks) => {
                write!(stream, "HTTP/1.1 200 OK\r\ndate: {DATE}\r\n")?;
                stream.write_all(b"content-type: application/json\r\n")?;
                stream.write_all(b"transfer-encoding: chunked\r\n\r\n")?;
                for chunk in chunks {
                    match chunk {
                        Chunk::Text(text) if text.is_empty() => {}
                        Chunk::Text(text) => write_chunk(stream, &text)?,
                        Chunk::Feed(feed) => {
                            for at in 0.. {
                                let Some(text) = feed.wait_for(at) else { break };
                                write_chunk(stream, text.as_bytes())?;
                            }
                        }
                        Chunk::Hold => return hold(stream),
                        Chunk::Truncate => return Ok(false),
                    }
                }
                stream.write_all(b"0\r\n\r\n")?;
                Ok(true)
            }
            Self::After(gate, answer) => {
                gate.wait();
                answer.send(stream)
            }
            Self::Held(text) => {
                stream.write_all(text.as_bytes())?;
                hold(stream)
            }
            Self::HangUp => Ok(false),
            Self::Stall => hold(stream),
        }
    }
}

impl Chunk {
    pub(crate) fn text(text: impl Into<Vec<u8>>) -> Self {
        Self::Text(text.into())
    }
}

impl Server {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self { address: listener.local_addr().unwrap(), shared: Arc::default(), reserved: None };
        server.accept(listener);
        server
    }

    /// Creates a server that refuses connections until `open` is called. Needs a Tokio runtime.
    pub(crate) fn closed() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Self { address: socket.local_addr().unwrap(), shared: Arc::default(), reserved: Some(socket) }
    }

    pub(crate) fn open(&mut self) {
        let listener = self.reserved.take().unwrap().listen(64).unwrap().into_std().unwrap();
        listener.set_nonblocking(false).unwrap();
        self.accept(listener);
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Answers requests that equal `words` or begin with them, with one answer each, before the rules for all such
    /// requests. A request without a rule gets 500, a watch gets silence.
    pub(crate) fn on(&self, words: &str, answers: impl IntoIterator<Item = Answer, IntoIter: Send + 'static>) -> &Self {
        let mut answers = answers.into_iter();
        self.rule(words, false, move |_| answers.next())
    }

    /// Answers all such requests by this rule.
    pub(crate) fn always(&self, words: &str, mut answer: impl FnMut(&Request) -> Answer + Send + 'static) -> &Self {
        self.rule(words, true, move |request| Some(answer(request)))
    }

    /// Answers all such requests by this rule alone.
    pub(crate) fn only(&self, words: &str, answer: fn() -> Answer) -> &Self {
        self.shared.rules.lock().unwrap().retain(|rule| !rule.words.starts_with(words));
        self.always(words, move |_| answer())
    }

    /// Removes the rules for exactly these words.
    pub(crate) fn forget(&self, words: &str) -> &Self {
        self.shared.rules.lock().unwrap().retain(|rule| rule.words != words);
        self
    }

    /// Answers all such requests by this rule, in place of the rules for exactly these words.
    pub(crate) fn instead(&self, words: &str, answer: impl FnMut(&Request) -> Answer + Send + 'static) -> &Self {
        self.forget(words).always(words, answer)
    }

    fn rule(
        &self,
        words: &str,
        for_ever: bool,
        next: impl FnMut(&Request) -> Option<Answer> + Send + 'static,
    ) -> &Self {
        let mut rules = self.shared.rules.lock().unwrap();
        rules.push(Rule { words: words.to_owned(), for_ever, next: Box::new(next) });
        rules.sort_by_key(|rule| rule.for_ever);
        self
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Returns the requests in words.
    pub(crate) fn words(&self) -> Vec<String> {
        self.requests().iter().map(Request::words).collect()
    }

    /// Returns the only request with these words.
    pub(crate) fn request(&self, words: &str) -> Request {
        let mut found = self.requests().into_iter().filter(|request| request.words() == words);
        let request = found.next().unwrap_or_else(|| panic!("no {words:?} among {:?}", self.words()));
        assert!(found.next().is_none(), "{words:?} came more than once");
        request
    }

    /// Returns the requests whose words begin with `words`.
    pub(crate) fn requests_for(&self, words: &str) -> Vec<Request> {
        let mut requests = self.requests();
        requests.retain(|request| request.words().starts_with(words));
        requests
    }

    /// Waits for `count` requests whose words begin with `words`.
    pub(crate) fn wait_for(&self, words: &str, count: usize) {
        let arrived =
            |requests: &[Request]| requests.iter().filter(|request| request.words().starts_with(words)).count();
        let requests = self.shared.requests.lock().unwrap();
        let (requests, waited): (MutexGuard<'_, Vec<Request>>, _) =
            self.shared.arrived.wait_timeout_while(requests, DEADLINE, |requests| arrived(requests) < count).unwrap();
        let words_of_all: Vec<String> = requests.iter().map(Request::words).collect();
        drop(requests);
        assert!(!waited.timed_out(), "waited for {count} of {words:?} and got {words_of_all:?}");
    }

    /// Waits like `wait_for`, for an operator in this process.
    pub(crate) async fn arrived(&self, words: &str, count: usize) {
        let waiting = async {
            while self.words().iter().filter(|request| request.starts_with(words)).count() < count {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        in_time(&format!("{count} of {words:?}"), waiting).await;
    }

    fn accept(&self, listener: TcpListener) {
        let shared = Arc::clone(&self.shared);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if shared.closing.load(Ordering::SeqCst) {
                    return;
                }
                stream.set_nodelay(true).unwrap();
                shared.connections.lock().unwrap().push(stream.try_clone().unwrap());
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.serve(stream));
            }
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        self.shared.cut();
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn cut(&self) {
        for connection in self.connections.lock().unwrap().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Serves one connection until either side closes it.
    fn serve(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while let Ok(Some(request)) = read(&mut reader) {
            let answer = self.answer(&request);
            self.requests.lock().unwrap().push(request);
            self.arrived.notify_all();
            if !answer.send(&mut stream).unwrap_or(false) {
                break;
            }
        }
        let _ = stream.shutdown(Shutdown::Both);
    }

    fn answer(&self, request: &Request) -> Answer {
        let words = request.words();
        let begins = |rule: &Rule| words.strip_prefix(&rule.words).is_some_and(|rest| rest.starts_with([' ', '/']));
        let mut rules = self.rules.lock().unwrap();
        let exact = rules.iter_mut().filter(|rule| rule.words == words).find_map(|rule| (rule.next)(request));
        exact
            .or_else(|| rules.iter_mut().filter(|rule| begins(rule)).find_map(|rule| (rule.next)(request)))
            .unwrap_or_else(|| match words.split(' ').next() {
                Some("watch") => Answer::watch(&[]),
                _ => Answer::text(500, &format!("not in the script: {words}")),
            })
    }
}

fn write_chunk(stream: &mut TcpStream, text: &[u8]) -> io::Result<()> {
    write!(stream, "{:x}\r\n", text.len())?;
    stream.write_all(text)?;
    stream.write_all(b"\r\n")
}

/// Stays silent until the client or the test closes the connection.
fn hold(stream: &mut TcpStream) -> io::Result<bool> {
    while stream.read(&mut [0; 64])? > 0 {}
    Ok(false)
}
