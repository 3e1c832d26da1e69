//! The two clocks of a test: the real one for deadlines, and the operator's, which a test may move forward.

use std::pin::pin;
use std::time::{Duration, Instant};

/// Time limit for everything that a test waits for, on a busy machine, too.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Waits for `future`. The deadline is on the real clock, also while the operator's clock jumps.
pub(crate) async fn in_time<F: Future>(what: &str, future: F) -> F::Output {
    let start = Instant::now();
    let mut future = pin!(future);
    loop {
        if let Ok(output) = tokio::time::timeout(Duration::from_millis(100), &mut future).await {
            return output;
        }
        assert!(start.elapsed() < DEADLINE, "waited for {what}");
    }
}

/// Moves the clock of an operator in this process forward.
pub(crate) async fn jump(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    tokio::time::resume();
}
