use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use futures_util::future::{BoxFuture, join_all};
use futures_util::{FutureExt, stream};
use reqwest::header::HeaderValue;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::kube::transport::KubectlProxy;
use crate::kube::{CONFIG_MAPS, lock};

const CHUNK: usize = 64 << 10;

/// A server that answers a GET of the name `large` with a text of 1 MiB, of `small` with a short one, and nothing else.
#[derive(Clone, Default)]
struct Script {
    requests: Arc<AtomicUsize>,
    /// The large answers of which more than [`LARGE`] and a chunk have been read.
    begun: Arc<AtomicUsize>,
    /// Large answers do not end before this is cancelled.
    ends: CancellationToken,
}

impl Transport for Script {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, String>> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let (begun, ends) = (Arc::clone(&self.begun), self.ends.clone());
        let text = |length| Ok(Bytes::from("x".repeat(length)));
        let body = match request.url.path().rsplit('/').next() {
            Some("small") => stream::iter([Ok(Bytes::from_static(b"\"x\""))]).boxed(),
            Some("large") => {
                let chunks = stream::iter(0..(1 << 20) / CHUNK).map(move |number| {
                    begun.fetch_add(usize::from(number == LARGE / CHUNK + 1), Ordering::Relaxed);
                    text(CHUNK)
                });
                let end = stream::once(async move {
                    ends.cancelled().await;
                    Ok(Bytes::from_static(b"\""))
                });
                stream::iter([Ok(Bytes::from_static(b"\""))]).chain(chunks).chain(end).boxed()
            }
            _ => return std::future::pending().boxed(),
        };
        let headers = HeaderMap::from_iter([(DATE, HeaderValue::from_static("Thu, 26 Nov 2026 04:00:00 GMT"))]);
        std::future::ready(Ok(Response { code: 200, headers, body })).boxed()
    }
}

impl Client {
    /// A client whose requests reach no server.
    pub(crate) fn unconnected() -> Self {
        let (proxy, _) = KubectlProxy::at("http://127.0.0.1:1".parse().expect("a URL")).expect("a client");
        Self::of_limits(proxy, 2, 2)
    }

    fn of_limits(transport: impl Transport + 'static, requests: usize, deletions: usize) -> Self {
        let base = "http://127.0.0.1:1".parse().expect("a URL");
        Self::new(Box::new(transport), base, requests, deletions, Arc::new(()), CancellationToken::new())
    }
}

fn client(script: &Script) -> Client {
    Client::of_limits(script.clone(), 8, 4).divided()
}

async fn length(client: &Client, name: &str) -> usize {
    client.get(CONFIG_MAPS, name).await.map_or(0, |answer: Answer<String>| answer.value.len())
}

#[tokio::test]
async fn large_answers_are_in_memory_one_of_a_namespace_and_two_of_the_process_at_a_time() {
    let script = Script::default();
    let client = client(&script);
    drop(client.within(&"gone".into()));
    let shares = ["a", "b", "c"].map(|namespace| client.within(&namespace.into()));
    assert_eq!(lock(&client.shared.shares).len(), 3, "a namespace that is gone takes no memory");
    // A namespace has one share, whoever asks for it.
    let again = client.within(&"a".into());
    let one = pin!(join_all((0..3).map(|number| length([&shares[0], &again][number % 2], "large"))));
    let others = pin!(join_all((0..4).map(|number| length(&shares[1 + number % 2], "large"))));
    let settle = || async {
        for _ in 0..10 {
            yield_now().await;
        }
    };
    let (mut one, mut others) = (one.fuse(), others.fuse());
    tokio::select! { _ = &mut one => unreachable!(), () = settle() => {} }
    assert_eq!((script.requests.load(Ordering::Relaxed), script.begun.load(Ordering::Relaxed)), (3, 1));
    tokio::select! { _ = &mut others => unreachable!(), () = settle() => {} }
    assert_eq!(script.begun.load(Ordering::Relaxed), 2);
    assert_eq!(length(&shares[0], "small").await, 1, "a small one waits for no large one");
    script.ends.cancel();
    let (one, others) = tokio::join!(one, others);
    assert_eq!((one, others), (vec![1 << 20; 3], vec![1 << 20; 4]));
}

#[tokio::test]
async fn a_client_that_is_not_divided_reads_two_large_answers_of_a_namespace_at_a_time() {
    let script = Script::default();
    let client = Client::of_limits(script.clone(), 8, 4).within(&"a".into());
    let mut reads = join_all((0..3).map(|_| length(&client, "large").boxed()));
    for _ in 0..10 {
        assert!((&mut reads).now_or_never().is_none());
    }
    assert_eq!((script.requests.load(Ordering::Relaxed), script.begun.load(Ordering::Relaxed)), (3, 2));
    script.ends.cancel();
    assert_eq!(reads.await, [1 << 20; 3]);
}

#[tokio::test]
async fn a_large_answer_is_decoded_in_a_poll_of_its_own() {
    let script = Script::default();
    script.ends.cancel();
    let (share, decoded) = (client(&script).within(&"a".into()), AtomicUsize::new(0));
    let reads = (0..8).map(|_| length(&share, "large").inspect(|_| _ = decoded.fetch_add(1, Ordering::Relaxed)));
    let mut reads = pin!(join_all(reads));
    loop {
        let before = decoded.load(Ordering::Relaxed);
        let poll = reads.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(decoded.load(Ordering::Relaxed) <= before + 1, "one more than {before}");
        if let Poll::Ready(lengths) = poll {
            assert_eq!(lengths, [1 << 20; 8]);
            break;
        }
        yield_now().await;
    }
}

#[tokio::test]
async fn requests_and_deletions_that_hang_in_a_namespace_leave_half_of_the_permits_to_others() {
    let script = Script::default();
    let client = client(&script);
    let [one, other] = ["a", "b"].map(|namespace| client.within(&namespace.into()));
    // What hangs keeps its permits.
    let [mut in_one, mut in_other] =
        [&one, &other].map(|share| join_all((0..6).map(|_| length(share, "hangs").boxed())));
    for (hanging, sent) in [(&mut in_one, 4), (&mut in_other, 8)] {
        assert!(hanging.now_or_never().is_none());
        assert_eq!(script.requests.load(Ordering::Relaxed), sent);
    }
    assert_eq!([one.max_deletions(), client.max_deletions()], [2, 4]);
    let permits = |of: &Client| -> Vec<_> { (0..3).map_while(|_| of.deletion_permit().now_or_never()?.ok()).collect() };
    let (of_one, of_other) = (permits(&one), permits(&other));
    assert_eq!([of_one.len(), of_other.len()], [2, 2]);
}
