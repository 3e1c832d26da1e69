//! The lines of a streamed answer, of limited length.

use bytes::BytesMut;
use futures_util::StreamExt;
use tokio::time::{Instant, timeout_at};
use tokio_util::codec::{Decoder, LinesCodec};

use super::client::{Client, LARGE, MAX_ANSWER, Permit, TIMEOUT};
use super::error::Cause;
use super::transport::Body;

/// The lines of the body of an answer. Cancel-safe: no data that has arrived is lost.
pub struct Lines {
    /// The client, to wait with a long line until few others are in memory. `None`: there are no long lines.
    client: Option<Client>,
    body: Body,
    /// The time at which reading stops, whatever the server does.
    deadline: Instant,
    codec: LinesCodec,
    /// What has arrived and is not a line yet: at most one line and one chunk.
    buffer: BytesMut,
    /// What a long line holds, and others wait for, until it is complete, and when it must be.
    large: Option<(Permit, Instant)>,
}

impl Lines {
    #[must_use]
    pub(super) fn new(client: Option<Client>, body: Body, deadline: Instant) -> Self {
        let codec = LinesCodec::new_with_max_length(if client.is_some() { MAX_ANSWER } else { LARGE });
        Self { client, body, deadline, codec, buffer: BytesMut::new(), large: None }
    }

    /// Waits for the next line. Returns none if the body ended between two lines.
    ///
    /// # Errors
    /// [`Cause::Undecodable`]: a line is too long or not UTF-8. [`Cause::Unreachable`]: the connection broke.
    pub async fn next(&mut self) -> Result<Option<String>, Cause> {
        let line = self.read().await;
        // The caller decodes the line before it waits for anything.
        self.large = None;
        line
    }

    async fn read(&mut self) -> Result<Option<String>, Cause> {
        let broken = |why: &str| Err(Cause::Unreachable(why.to_owned()));
        loop {
            match self.codec.decode(&mut self.buffer) {
                Ok(Some(line)) => return Ok(Some(line)),
                Ok(None) => {}
                Err(error) => return Err(Cause::Undecodable(format!("a watch line: {error}"))),
            }
            if self.buffer.is_empty() {
                // Thousands of watches are silent most of the time: none keeps the memory of its longest line.
                self.buffer = BytesMut::new();
            }
            if let Some(client) = self.client.as_ref().filter(|_| self.buffer.len() > LARGE && self.large.is_none()) {
                self.large = Some((client.large().await, Instant::now() + TIMEOUT));
            }
            let deadline = self.large.iter().map(|(_, until)| *until).fold(self.deadline, Instant::min);
            match timeout_at(deadline, self.body.next()).await {
                Ok(Some(Ok(chunk))) => self.buffer.extend_from_slice(&chunk),
                Ok(Some(Err(why))) => return broken(&why),
                Ok(None) if self.buffer.is_empty() => return Ok(None),
                Ok(None) => return broken("the stream ended within a line"),
                Err(_) if deadline < self.deadline => return broken("the stream stalled within a line"),
                Err(_) => return broken("the stream lasted longer than requested"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use futures_util::stream;

    use super::*;

    fn lines(chunks: impl IntoIterator<Item = &'static [u8], IntoIter: Send + 'static>) -> Lines {
        lines_with(Some(Client::unconnected()), chunks)
    }

    fn lines_with(
        client: Option<Client>,
        chunks: impl IntoIterator<Item = &'static [u8], IntoIter: Send + 'static>,
    ) -> Lines {
        let chunks = stream::iter(chunks).map(|chunk| Ok(Bytes::from_static(chunk)));
        Lines::new(client, chunks.boxed(), Instant::now() + Duration::from_secs(60))
    }

    /// Reads a line that is followed by nothing.
    async fn first(client: &Client, chunk: &'static [u8]) -> (Lines, Result<Option<usize>, Cause>) {
        let chunks = stream::iter([chunk, b"\n"].map(|chunk| Ok(Bytes::from_static(chunk))));
        let until = Instant::now() + Duration::from_secs(600);
        let mut lines = Lines::new(Some(client.clone()), chunks.chain(stream::pending()).boxed(), until);
        let length = lines.next().await.map(|line| line.map(|line| line.len()));
        (lines, length)
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_over_the_limit_is_an_error_and_is_not_collected() {
        let chunk: &[u8] = &[b'x'; 16 << 10];
        for (client, max) in [(Some(Client::unconnected()), MAX_ANSWER), (None, LARGE)] {
            let mut lines = lines_with(client, std::iter::repeat_n(chunk, 2 * max / chunk.len()));
            assert!(matches!(lines.next().await, Err(Cause::Undecodable(_))));
            assert!(lines.buffer.len() <= max + chunk.len());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_line_takes_no_memory_once_it_has_been_read() {
        let chunk: &[u8] = &[b'x'; 1 << 20];
        let (mut lines, length) = first(&Client::unconnected(), chunk).await;
        assert_eq!(length, Ok(Some(chunk.len())));
        assert!(tokio::time::timeout(Duration::from_secs(1), lines.next()).await.is_err());
        assert_eq!(lines.buffer.capacity(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_line_waits_for_another_at_most_until_that_has_stalled() {
        let (client, chunk): (_, &[u8]) = (Client::unconnected().divided().within(&"a".into()), &[b'x'; 1 << 20]);
        let stalled = stream::iter([Ok(Bytes::from_static(chunk))]).chain(stream::pending()).boxed();
        let mut stalled = Lines::new(Some(client.clone()), stalled, Instant::now() + Duration::from_secs(600));
        let began = Instant::now();
        let read = async {
            tokio::task::yield_now().await;
            (first(&client, chunk).await.1, Instant::now())
        };
        let (stalled, (length, at)) = tokio::join!(stalled.next(), read);
        assert_eq!(stalled, Err(Cause::Unreachable("the stream stalled within a line".to_owned())));
        assert_eq!((length, at - began), (Ok(Some(chunk.len())), TIMEOUT));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_ends_within_a_line_is_cut_off() {
        assert_eq!(lines([&b"one\n"[..]]).next().await, Ok(Some("one".to_owned())));
        assert_eq!(lines([]).next().await, Ok(None));
        assert!(matches!(lines([&b"on"[..]]).next().await, Err(Cause::Unreachable(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_read_until_the_deadline() {
        let mut lines = Lines::new(None, stream::pending().boxed(), Instant::now() + Duration::from_secs(60));
        assert!(matches!(lines.next().await, Err(Cause::Unreachable(_))));
    }
}
