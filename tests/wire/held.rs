//! Answers, and parts of answers, that the test holds back.

use std::sync::{Arc, Condvar, Mutex};

use crate::time::DEADLINE;

/// A gate that holds back an answer until the test opens it.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

/// The lines of a watch. The test adds lines while the watch is open.
#[derive(Clone, Default)]
pub(crate) struct Feed {
    lines: Arc<(Mutex<Vec<String>>, Condvar)>,
    /// How many lines this watch skips.
    from: usize,
}

impl Gate {
    pub(crate) fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    pub(crate) fn wait(&self) {
        let closed = self.0.0.lock().unwrap();
        drop(self.0.1.wait_timeout_while(closed, DEADLINE, |open| !*open).unwrap());
    }
}

impl Feed {
    pub(crate) fn push(&self, text: String) {
        self.lines.0.lock().unwrap().push(text);
        self.lines.1.notify_all();
    }

    /// Returns a feed without the first `count` lines.
    pub(crate) fn after(&self, count: usize) -> Self {
        Self { lines: Arc::clone(&self.lines), from: count }
    }

    pub(crate) fn wait_for(&self, at: usize) -> Option<String> {
        let (texts, grown) = &*self.lines;
        let at = self.from + at;
        let (texts, _) = grown.wait_timeout_while(texts.lock().unwrap(), DEADLINE, |texts| texts.len() <= at).unwrap();
        texts.get(at).cloned()
    }
}
