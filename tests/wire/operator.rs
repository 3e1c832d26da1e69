//! The operator's binary as a child process.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::script::Server;
use crate::time::DEADLINE;

/// A running operator. Dropping this value kills the process.
pub(crate) struct Operator {
    child: Child,
    log: Arc<Log>,
    reader: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Log {
    text: Mutex<String>,
    grown: Condvar,
}

/// Returns the command with an empty environment, so that the environment of the test run does not matter.
fn command(arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_configmonitor-operator"));
    command.env_clear().args(arguments).envs(variables.iter().copied()).stdin(Stdio::null());
    command
}

/// Runs the binary until it exits. For commands with little output.
pub(crate) fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut child = command(arguments, variables).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    if end_of(&mut child).is_none() {
        child.kill().unwrap();
    }
    child.wait_with_output().unwrap()
}

/// Waits until a process exits. Returns none after the deadline.
fn end_of(child: &mut Child) -> Option<ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < DEADLINE {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(10));
    }
    None
}

/// Sends a request, of which `line` is the method and the path. Returns the code and the body of the answer.
pub(crate) fn send(address: &str, line: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let head = format!("{line} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all((head + body).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let code = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (code, answer.split_once("\r\n\r\n").unwrap().1.trim_end().to_owned())
}

impl Operator {
    pub(crate) fn start(server: &Server) -> Self {
        Self::start_with(server, &[])
    }

    pub(crate) fn start_with(server: &Server, variables: &[(&str, &str)]) -> Self {
        Self::start_on(&["--proxy-url", &server.url()], variables)
    }

    /// Starts the operator. It listens on a free port and logs as JSON.
    pub(crate) fn start_on(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = command(arguments, variables);
        command.args(["--listen", "127.0.0.1:0", "--log-format", "json"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let log = Arc::new(Log::default());
        let writer = Arc::clone(&log);
        let reader = thread::spawn(move || {
            let mut line = String::new();
            while lines.read_line(&mut line).unwrap() > 0 {
                writer.text.lock().unwrap().push_str(&line);
                writer.grown.notify_all();
                line.clear();
            }
        });
        Self { child, log, reader: Some(reader) }
    }

    /// Returns the log so far.
    pub(crate) fn log(&self) -> String {
        self.log.text.lock().unwrap().clone()
    }

    /// Returns the log lines with this message.
    pub(crate) fn lines(&self, message: &str) -> Vec<Value> {
        with_message(&self.log(), message)
    }

    /// Waits for `count` log lines with this message. Returns the first one.
    pub(crate) fn wait_for(&self, message: &str, count: usize) -> Value {
        self.wait_until(&format!("{count} of {message:?}"), |log| with_message(log, message).len() >= count);
        self.lines(message).swap_remove(0)
    }

    /// Waits for this text anywhere in the log.
    pub(crate) fn wait_for_text(&self, text: &str) {
        self.wait_until(text, |log| log.contains(text));
    }

    fn wait_until(&self, what: &str, is_there: impl Fn(&str) -> bool) {
        let log = self.log.text.lock().unwrap();
        let (log, waited) = self.log.grown.wait_timeout_while(log, DEADLINE, |log| !is_there(log)).unwrap();
        // A failed assertion drops this value, which prints the log and so needs the lock.
        drop(log);
        assert!(!waited.timed_out(), "waited for {what}");
    }

    /// Returns the address of the probes.
    pub(crate) fn address(&self) -> String {
        self.wait_for("starting", 1)["listen"].as_str().unwrap().to_owned()
    }

    /// Sends a probe. Returns the code and the body of the answer.
    pub(crate) fn probe(&self, path: &str) -> (u16, String) {
        send(&self.address(), &format!("GET {path}"), "")
    }

    pub(crate) fn open_files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits until the process exits and the log is complete.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let status = end_of(&mut self.child).expect("it ends");
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        status
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("the operator's log:\n{}", self.log());
        }
    }
}

fn with_message(log: &str, message: &str) -> Vec<Value> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["message"] == message).collect()
}
