//! The lines of a streamed answer, of limited length.

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use memchr::memchr;
use tokio::time::{Instant, timeout_at};

use super::transport::Body;

/// The maximum length of a line, in bytes.
///
/// An object has at most 256 KiB of annotations, which JSON escapes to at most six times their length, and
/// managedFields.
const MAX_LINE: usize = 4 << 20;

/// The next part of the stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A line without its newline.
    Whole(Bytes),
    /// A line over the limit. The following lines can be read.
    TooLong,
    /// The answer ended between two lines.
    End,
    /// The connection broke, for this reason.
    Broken(String),
}

/// The lines of the body of an answer. Cancel-safe: no data that has arrived is lost.
pub struct Lines {
    body: Body,
    /// The time at which reading stops, whatever the server does.
    deadline: Instant,
    splitter: Splitter,
}

/// Splits chunks into lines. Holds at most one line and one chunk.
#[derive(Debug)]
pub(super) struct Splitter {
    longest: usize,
    buffer: BytesMut,
    /// The length of the part of the buffer that contains no newline.
    searched: usize,
    /// Whether the next bytes belong to a line over the limit.
    skipping: bool,
}

impl Lines {
    /// Reads the lines of a body until the body ends or the deadline passes.
    #[must_use]
    pub fn new(body: Body, deadline: Instant) -> Self {
        Self { body, deadline, splitter: Splitter::new(MAX_LINE) }
    }

    /// Waits for the next line. Drops an incomplete line at the end of the body.
    pub async fn next(&mut self) -> Line {
        loop {
            if let Some(line) = self.splitter.line() {
                return line;
            }
            match timeout_at(self.deadline, self.body.next()).await {
                Ok(Some(Ok(chunk))) => self.splitter.add(&chunk),
                Ok(Some(Err(why))) => return Line::Broken(why),
                Ok(None) if self.splitter.is_between_lines() => return Line::End,
                Ok(None) => return Line::Broken("the stream ended within a line".to_owned()),
                Err(_) => return Line::Broken("the stream lasted longer than requested".to_owned()),
            }
        }
    }
}

impl Splitter {
    /// Splits lines of at most `longest` bytes.
    pub(super) fn new(longest: usize) -> Self {
        Self { longest, buffer: BytesMut::new(), searched: 0, skipping: false }
    }

    pub(super) fn add(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// Returns the next line in the buffer that is complete or over the limit.
    pub(super) fn line(&mut self) -> Option<Line> {
        while let Some(end) = memchr(b'\n', self.buffer.get(self.searched..).unwrap_or_default()) {
            let length = std::mem::take(&mut self.searched) + end;
            let mut line = self.buffer.split_to(length + 1);
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            line.truncate(length);
            return Some(if length > self.longest { Line::TooLong } else { Line::Whole(line.freeze()) });
        }
        let is_too_long = self.buffer.len() > self.longest;
        let is_news = is_too_long && !self.skipping;
        self.skipping |= is_too_long;
        if self.skipping {
            self.buffer.clear();
        }
        self.searched = self.buffer.len();
        is_news.then_some(Line::TooLong)
    }

    fn is_between_lines(&self) -> bool {
        self.buffer.is_empty() && !self.skipping
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Splits chunks into lines, with none for each line over the limit. Asserts that the buffer stays small.
    fn split<'a>(longest: usize, chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<Option<Bytes>> {
        let mut splitter = Splitter::new(longest);
        let mut lines = Vec::new();
        for chunk in chunks {
            splitter.add(chunk);
            assert!(splitter.buffer.len() <= longest + chunk.len());
            while let Some(line) = splitter.line() {
                lines.push(match line {
                    Line::Whole(line) => Some(line),
                    Line::TooLong => None,
                    line => panic!("{line:?}"),
                });
            }
            assert!(splitter.buffer.len() <= longest && splitter.buffer.capacity() <= 4 * (longest + chunk.len()));
        }
        lines
    }

    fn whole(line: &[u8]) -> Option<Bytes> {
        Some(Bytes::copy_from_slice(line))
    }

    #[test]
    fn a_line_over_the_limit_costs_only_itself() {
        let long = vec![b'x'; MAX_LINE + 1];
        let lines = split(MAX_LINE, [b"one\n".as_slice(), &long, b"rest\ntwo\n"]);
        assert_eq!(lines, [whole(b"one"), None, whole(b"two")]);
    }

    #[test]
    fn a_line_without_an_end_is_not_kept() {
        let chunk = vec![b'x'; 16 << 10];
        let without_end = std::iter::repeat_n(chunk.as_slice(), 10 * MAX_LINE / chunk.len());
        assert_eq!(split(MAX_LINE, without_end.chain([b"\ntwo\n".as_slice()])), [None, whole(b"two")]);
    }

    #[test]
    fn a_body_that_ends_within_a_line_is_cut_off_also_within_one_that_is_too_long() {
        let is_between_lines = |bytes: &[u8]| {
            let mut splitter = Splitter::new(3);
            splitter.add(bytes);
            while splitter.line().is_some() {}
            splitter.is_between_lines()
        };
        assert_eq!([&b""[..], b"one\n", b"on", b"one\nlonger"].map(is_between_lines), [true, true, false, false]);
    }

    /// Generates bytes, and where they are cut into chunks.
    fn chunks() -> impl Strategy<Value = (Vec<u8>, Vec<prop::sample::Index>)> {
        let byte = prop_oneof![4 => any::<u8>(), 1 => Just(b'\n')];
        (prop::collection::vec(byte, 0..200), prop::collection::vec(any::<prop::sample::Index>(), 0..8))
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_where_the_chunks_are_cut((bytes, cuts) in chunks()) {
            let longest = 20;
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let lines = split(longest, cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]));
            // A rest without a newline is an incomplete line, which appears only if it is over the limit.
            let mut whole_lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
            whole_lines.pop_if(|rest| rest.len() <= longest);
            let expected: Vec<_> = whole_lines.iter().map(|line| whole(line).filter(|line| line.len() <= longest)).collect();
            prop_assert_eq!(lines, expected);
        }
    }
}
