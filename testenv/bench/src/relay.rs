//! Counts the bytes that a client receives.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A TCP relay to a proxy. It stops when this value is dropped.
#[derive(Debug)]
pub(crate) struct Relay {
    pub(crate) url: String,
    received: Arc<AtomicU64>,
    listener: JoinHandle<()>,
}

impl Relay {
    /// Starts a relay to the proxy at this URL.
    pub(crate) async fn start(proxy: &str) -> Result<Self> {
        let upstream = proxy.strip_prefix("http://").context("plain HTTP")?.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let received = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&received);
        let listener = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (upstream, counter) = (upstream.clone(), Arc::clone(&counter));
                tokio::spawn(async move {
                    // Only a closed connection fails here, and both sides see that.
                    let _ = pass(client, &upstream, &counter).await;
                });
            }
        });
        Ok(Self { url, received, listener })
    }

    /// Returns the bytes that the clients have received so far, including the headers of the answers.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

async fn pass(mut client: TcpStream, upstream: &str, counter: &AtomicU64) -> Result<()> {
    let mut server = TcpStream::connect(upstream).await?;
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) = (client.split(), server.split());
    let answers = async {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let read = from_server.read(&mut buffer).await?;
            if read == 0 {
                return to_client.shutdown().await;
            }
            counter.fetch_add(read as u64, Ordering::Relaxed);
            to_client.write_all(&buffer[..read]).await?;
        }
    };
    tokio::select! {
        result = answers => result?,
        result = copy(&mut from_client, &mut to_server) => drop(result?),
    }
    Ok(())
}
