//! The lines of a streamed answer, of limited length.

use bytes::BytesMut;
use futures_util::StreamExt;
use tokio::time::{Instant, timeout_at};
use tokio_util::codec::{Decoder, LinesCodec};

use super::error::Cause;
use super::transport::Body;

/// The maximum length of a line, in bytes.
///
/// An object has at most 256 KiB of annotations, which JSON escapes to at most six times their length, and
/// managedFields.
const MAX_LINE: usize = 4 << 20;

/// The lines of the body of an answer. Cancel-safe: no data that has arrived is lost.
pub struct Lines {
    body: Body,
    /// The time at which reading stops, whatever the server does.
    deadline: Instant,
    codec: LinesCodec,
    /// What has arrived and is not a line yet: at most one line and one chunk.
    buffer: BytesMut,
}

impl Lines {
    #[must_use]
    pub(crate) fn new(body: Body, deadline: Instant) -> Self {
        Self { body, deadline, codec: LinesCodec::new_with_max_length(MAX_LINE), buffer: BytesMut::new() }
    }

    /// Waits for the next line. Returns none if the body ended between two lines.
    ///
    /// # Errors
    /// [`Cause::Undecodable`]: a line is too long or not UTF-8. [`Cause::Unreachable`]: the connection broke.
    pub async fn next(&mut self) -> Result<Option<String>, Cause> {
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
            match timeout_at(self.deadline, self.body.next()).await {
                Ok(Some(Ok(chunk))) => self.buffer.extend_from_slice(&chunk),
                Ok(Some(Err(why))) => return broken(&why),
                Ok(None) if self.buffer.is_empty() => return Ok(None),
                Ok(None) => return broken("the stream ended within a line"),
                Err(_) => return broken("the stream lasted longer than requested"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use futures_util::stream;
    use std::time::Duration;

    fn lines(chunks: impl IntoIterator<Item = &'static [u8], IntoIter: Send + 'static>) -> Lines {
        let chunks = chunks.into_iter().map(|chunk| Ok(Bytes::from_static(chunk)));
        Lines::new(stream::iter(chunks).boxed(), Instant::now() + Duration::from_secs(60))
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_over_the_limit_is_an_error_and_is_not_collected() {
        let chunk: &[u8] = &[b'x'; 16 << 10];
        let mut lines = lines(std::iter::repeat_n(chunk, 10 * MAX_LINE / chunk.len()));
        assert!(matches!(lines.next().await, Err(Cause::Undecodable(_))));
        assert!(lines.buffer.len() <= MAX_LINE + chunk.len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_line_takes_no_memory_once_it_has_been_read() {
        let chunk: &[u8] = &[b'x'; 1 << 20];
        let mut lines = Lines::new(
            stream::iter([chunk, b"\n"].map(|chunk| Ok(Bytes::from_static(chunk)))).chain(stream::pending()).boxed(),
            Instant::now() + Duration::from_secs(60),
        );
        assert_eq!(lines.next().await.map(|line| line.map_or(0, |line| line.len())), Ok(chunk.len()));
        assert!(tokio::time::timeout(Duration::from_secs(1), lines.next()).await.is_err());
        assert_eq!(lines.buffer.capacity(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_ends_within_a_line_is_cut_off() {
        assert_eq!(lines([&b"one\n"[..]]).next().await, Ok(Some("one".to_owned())));
        assert_eq!(lines([]).next().await, Ok(None));
        assert!(matches!(lines([&b"on"[..]]).next().await, Err(Cause::Unreachable(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_read_until_the_deadline() {
        let mut lines = Lines::new(stream::pending().boxed(), Instant::now() + Duration::from_secs(60));
        assert!(matches!(lines.next().await, Err(Cause::Unreachable(_))));
    }
}
