//! The lines of a streamed answer, each bounded in length.

use bytes::{Bytes, BytesMut};
use tokio_util::codec::{AnyDelimiterCodec, AnyDelimiterCodecError, Decoder};

/// The longest line that is kept, in bytes.
///
/// Metadata holds at most 256 KiB of annotations, which JSON escapes to six times that at the worst, and managedFields.
const LONGEST: usize = 4 << 20;

/// What the stream says next.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A line, without its end.
    Whole(Bytes),
    /// A line over the limit. What follows it is read as before.
    TooLong,
    /// The answer ended where an answer may end.
    End,
    /// The answer broke off, with why.
    Broken(String),
}

/// Splits the body of an answer into lines. Safe to cancel: nothing that has arrived is lost.
#[derive(Debug)]
pub struct Lines {
    answer: reqwest::Response,
    codec: AnyDelimiterCodec,
    buffer: BytesMut,
    ended: bool,
}

impl Lines {
    /// The lines of this answer.
    #[must_use]
    pub fn new(answer: reqwest::Response) -> Self {
        Self { answer, codec: codec(), buffer: BytesMut::new(), ended: false }
    }

    /// Waits for the next line. An unfinished line before the end is not given out: it may be the beginning of anything.
    pub async fn next(&mut self) -> Line {
        loop {
            match self.codec.decode(&mut self.buffer) {
                Ok(Some(line)) => return Line::Whole(line),
                Err(AnyDelimiterCodecError::MaxChunkLengthExceeded) => return Line::TooLong,
                Err(AnyDelimiterCodecError::Io(error)) => return Line::Broken(error.to_string()),
                Ok(None) if self.ended => return Line::End,
                Ok(None) => {}
            }
            match self.answer.chunk().await {
                Ok(Some(chunk)) => self.buffer.extend_from_slice(&chunk),
                Ok(None) if self.buffer.is_empty() => self.ended = true,
                Ok(None) => return Line::Broken("it ended within a line".to_owned()),
                Err(error) => return Line::Broken(super::client::innermost(&error)),
            }
        }
    }
}

fn codec() -> AnyDelimiterCodec {
    AnyDelimiterCodec::new_with_max_length(b"\n".to_vec(), Vec::new(), LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(chunks: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
        let mut codec = codec();
        let mut buffer = BytesMut::new();
        let mut lines = Vec::new();
        for chunk in chunks {
            buffer.extend_from_slice(chunk);
            loop {
                match codec.decode(&mut buffer) {
                    Ok(Some(line)) => lines.push(Some(line.to_vec())),
                    Ok(None) => break,
                    Err(_) => lines.push(None),
                }
            }
        }
        lines
    }

    #[test]
    fn a_line_over_the_limit_costs_only_itself() {
        let long = vec![b'x'; LONGEST + 1];
        let lines = split(&[b"one\n", &long, b"rest\ntwo\n"]);
        assert_eq!(lines, [Some(b"one".to_vec()), None, Some(b"two".to_vec())]);
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_where_the_chunks_are_cut(
            lines in prop::collection::vec("[^\n]{0,20}", 0..8),
            cuts in prop::collection::vec(0usize..200, 0..8),
        ) {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]).collect();
            let expected: Vec<_> = lines.iter().map(|line| Some(line.clone().into_bytes())).collect();
            prop_assert_eq!(split(&chunks), expected);
        }
    }
}
