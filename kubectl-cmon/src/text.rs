//! Trees and times as text, and the way of all output: what is in it may come from anybody.

use std::fmt;
use std::io::{self, Write as _};

use configmonitor_operator::kube::ServerTime;
use serde_json::Value;

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
            writeln!(f, "{indent}{branch}{}", in_one_line(&part.line))?;
            part.write(f, &format!("{indent}{stem}"))?;
        }
        Ok(())
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", in_one_line(&self.line))?;
        self.write(f, "")
    }
}

/// Prints a text. Nobody may read it to its end.
pub(crate) fn print(text: impl fmt::Display) -> Result<(), Failure> {
    match write!(io::stdout(), "{}", printable(&text.to_string())).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::Unread),
        printed => Ok(printed?),
    }
}

/// Says something beside the output.
pub(crate) fn say(text: impl fmt::Display) {
    eprintln!("{}", printable(&text.to_string()));
}

/// Says what a reader of the output should know.
pub(crate) fn say_notes(notes: &[String]) {
    notes.iter().for_each(|note| say(format_args!("note: {}", in_one_line(note))));
}

/// Escapes what a terminal obeys instead of showing it, and what changes the order in which it shows text.
pub(crate) fn printable(text: &str) -> String {
    let is_obeyed = |c: char| {
        c != '\n' && c.is_control()
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let shown = |c: char| if is_obeyed(c) { c.escape_default().collect() } else { String::from(c) };
    text.chars().map(shown).collect()
}

/// A line break in a value must not look like a line of the output.
pub(crate) fn in_one_line(text: &str) -> String {
    text.replace('\n', "\\n")
}

/// Returns a value as JSON that is a value of YAML, too: YAML takes further characters for line breaks.
pub(crate) fn compact_json(value: &Value) -> String {
    escaped(&value.to_string())
}

/// Returns a value as JSON for a reader.
pub(crate) fn pretty_json(value: &Value) -> String {
    escaped(&format!("{value:#}\n"))
}

/// Escapes the characters of JSON that are not in ASCII. YAML knows no surrogates, and shows what would take two.
fn escaped(json: &str) -> String {
    let shown = |c: char| match u32::from(c) {
        code @ (0x7f..=0xffff) => format!("\\u{code:04x}"),
        _ => String::from(c),
    };
    json.chars().map(shown).collect()
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
    fn nothing_that_a_terminal_obeys_and_no_line_of_its_own_comes_from_an_object() {
        let message = "\u{1b}[2J\u{9b}31m\u{202e}\r\nReady: all is well";
        let tree = Node::with(message.to_owned(), [Node::leaf(message.to_owned())]).to_string();
        let shown = printable(&tree);
        assert!(shown.contains(r"\u{1b}[2J\u{9b}31m\u{202e}\r\nReady: all is well"), "{shown}");
        assert_eq!((shown.lines().count(), shown.contains(|c: char| c != '\n' && c.is_control())), (2, false));
        let value = serde_json::json!({"message": message});
        assert_eq!(printable(&compact_json(&value)), compact_json(&value), "JSON stays JSON");
        assert_eq!(serde_json::from_str::<Value>(&pretty_json(&value)).unwrap(), value);
    }

    #[test]
    fn a_time_is_told_in_its_largest_unit() {
        let since = |seconds| ago(ServerTime::from_second(0), Some(ServerTime::from_second(seconds)));
        let told = [119, 120, 7200, 172_800].map(since);
        assert_eq!(told, ["119s ago", "2m ago", "2h ago", "2d ago"]);
    }
}
