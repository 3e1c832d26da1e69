//! A request as the scripted server receives it, and its name in the tests.

use std::io::{self, BufRead};
use std::time::Instant;

use reqwest::Url;
use serde_json::Value;

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    pub(crate) at: Instant,
}

impl Request {
    pub(crate) fn query(&self, name: &str) -> Option<String> {
        let url = Url::parse("http://server").unwrap().join(&self.target).unwrap();
        url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// Returns the request in words: `list pods`, `list pods at=7`, `list pods continue=t1`, `watch pods from 7`, `get
    /// pods/a`, `put configmonitors/m/status`, `delete pods/a`, `post events`.
    pub(crate) fn words(&self) -> String {
        let path = self.target.split('?').next().unwrap_or_default();
        let Some((_, in_namespace)) = path.split_once("/namespaces/") else {
            return format!("{} {}", self.method, self.target);
        };
        let what = in_namespace.split_once('/').map_or("", |(_, what)| what);
        let version = self.query("resourceVersion");
        if self.method != "GET" || what.contains('/') {
            format!("{} {what}", self.method.to_lowercase())
        } else if self.query("watch").is_some() {
            format!("watch {what} from {}", version.unwrap_or_default())
        } else if let Some(token) = self.query("continue") {
            format!("list {what} continue={token}")
        } else if let Some(version) = version {
            format!("list {what} at={version}")
        } else {
            format!("list {what}")
        }
    }
}

/// Reads one request. Returns none at the end of the connection.
pub(crate) fn read(reader: &mut impl BufRead) -> io::Result<Option<Request>> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let mut first = head.first().map(String::as_str).unwrap_or_default().split(' ').map(str::to_owned);
    let (method, target) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
    let headers = head.iter().skip(1).filter_map(|line| line.split_once(':'));
    let headers: Vec<_> = headers.map(|(name, value)| (name.to_lowercase(), value.trim().to_owned())).collect();
    let length =
        headers.iter().find(|(name, _)| name == "content-length").map_or(0, |(_, value)| value.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body = String::from_utf8(body).unwrap();
    Ok(Some(Request { method, target, headers, body, at: Instant::now() }))
}
