//! Answers, and parts of them, that the test holds back until their time has come.

use std::sync::{Arc, Condvar, Mutex};

use crate::time::DEADLINE;

/// Holds back an answer until the test opens it.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

/// The lines of a watch that the test adds to while it is open.
#[derive(Clone, Default)]
pub(crate) struct Feed {
    told: Arc<(Mutex<Vec<String>>, Condvar)>,
    /// How many of them this watch leaves out.
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
    pub(crate) fn tell(&self, text: String) {
        self.told.0.lock().unwrap().push(text);
        self.told.1.notify_all();
    }

    /// The same lines without the first ones.
    pub(crate) fn after(&self, count: usize) -> Self {
        Self { told: Arc::clone(&self.told), from: count }
    }

    pub(crate) fn wait_for(&self, at: usize) -> Option<String> {
        let (texts, grown) = &*self.told;
        let at = self.from + at;
        let (texts, _) = grown.wait_timeout_while(texts.lock().unwrap(), DEADLINE, |texts| texts.len() <= at).unwrap();
        texts.get(at).cloned()
    }
}
