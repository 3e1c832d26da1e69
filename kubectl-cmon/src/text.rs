//! Trees, times and progress bars as text.

use std::io::{self, IsTerminal, Write as _};
use std::{env, fmt};

use configmonitor_operator::kube::ServerTime;

use crate::outcome::Failure;

/// A line with the lines that belong to it.
pub(crate) struct Node {
    line: String,
    parts: Vec<Self>,
}

impl Node {
    pub(crate) fn leaf(line: String) -> Self {
        Self { line, parts: Vec::new() }
    }

    pub(crate) fn with(line: String, parts: impl IntoIterator<Item = Self>) -> Self {
        Self { line, parts: parts.into_iter().collect() }
    }

    pub(crate) fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, indent: &str) -> fmt::Result {
        for (number, part) in self.parts.iter().enumerate() {
            let (branch, stem) = if number + 1 == self.parts.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            writeln!(f, "{indent}{branch}{}", part.line)?;
            part.write(f, &format!("{indent}{stem}"))?;
        }
        Ok(())
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.line)?;
        self.write(f, "")
    }
}

/// Prints a text. Nobody may read it to its end.
pub(crate) fn print(text: impl fmt::Display) -> Result<(), Failure> {
    match write!(io::stdout(), "{text}").and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::Unread),
        printed => Ok(printed?),
    }
}

/// Returns a number of things, as text.
pub(crate) fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// Says how long ago a time was, in its largest unit, as kubectl does; or when it was, if nobody knows what time it is.
pub(crate) fn ago(time: ServerTime, now: Option<ServerTime>) -> String {
    let Some(now) = now else { return format!("at {time}") };
    let seconds = now.since(time).as_secs();
    match seconds {
        0..120 => format!("{seconds}s ago"),
        120..7200 => format!("{}m ago", seconds / 60),
        7200..172_800 => format!("{}h ago", seconds / 3600),
        _ => format!("{}d ago", seconds / 86400),
    }
}

/// What a word stands for.
#[derive(Clone, Copy)]
pub(crate) enum Colour {
    Green,
    Yellow,
    Red,
}

/// Colours a word, on a terminal that wants it.
pub(crate) fn coloured(word: &str, colour: Colour) -> String {
    if !io::stdout().is_terminal() || env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
        return word.to_owned();
    }
    let code = match colour {
        Colour::Green => 32,
        Colour::Yellow => 33,
        Colour::Red => 31,
    };
    format!("\x1b[{code}m{word}\x1b[0m")
}

/// Draws how much of something is done.
pub(crate) fn bar(done: usize, of: usize) -> String {
    const WIDTH: usize = 20;
    let filled = (done * WIDTH).checked_div(of).unwrap_or(WIDTH).min(WIDTH);
    format!("[{}{}]", "#".repeat(filled), ".".repeat(WIDTH - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_a_branch_for_each_part() {
        let inner = Node::with("b".to_owned(), [Node::leaf("c".to_owned())]);
        let tree = Node::with("a".to_owned(), [inner, Node::leaf("d".to_owned())]);
        assert_eq!(tree.to_string(), "a\n├─ b\n│  └─ c\n└─ d\n");
    }

    #[test]
    fn a_bar_is_full_at_the_end_and_if_there_is_nothing_to_do() {
        assert_eq!([bar(1, 4), bar(4, 4), bar(0, 0)].map(|bar| bar.matches('#').count()), [5, 20, 20]);
    }

    #[test]
    fn a_time_is_told_in_its_largest_unit() {
        let since = |seconds| ago(ServerTime::from_second(0), Some(ServerTime::from_second(seconds)));
        let told = [119, 120, 7200, 172_800].map(since);
        assert_eq!(told, ["119s ago", "2m ago", "2h ago", "2d ago"]);
    }
}
