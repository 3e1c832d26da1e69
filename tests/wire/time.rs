//! The two clocks of a test: the real one, by which it loses patience, and the operator's, which it may put forward.

use std::pin::pin;
use std::time::{Duration, Instant};

/// What must happen at all happens within this time, even on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Waits for what must happen. The time goes by the real clock, also while the operator's jumps.
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

/// All that an operator in this process waits for by its clock comes so much earlier.
pub(crate) async fn jump(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    tokio::time::resume();
}
