//! After any failure of a list, of a later page, or of opening a watch, the next change arrives.

use futures_util::future::join_all;

use crate::api::{line, list, metadata, modified, not_served, page, proxy_error, refusal, status, too_large};
use crate::script::{Answer, Chunk, Server};
use crate::watching::Events;

/// What a watch does after it could not be opened.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    /// Resumes at its version.
    Resumes,
    /// Lists from the first page: the version may not exist any more.
    Lists,
}
use Then::{Lists, Resumes};

/// Returns all wrong answers, and what each means for a watch that is being opened.
fn wrong_answers() -> Vec<(&'static str, Answer, Then)> {
    let (busy, page_of_another) = (|| Answer::text(429, "Too many requests"), || list("9", &[metadata("x", "9")]));
    let mut later = status(429, "TooManyRequests");
    later["details"]["retryAfterSeconds"] = 1.into();
    vec![
        ("the proxy cannot reach the server", proxy_error(), Lists),
        ("502 with HTML", Answer::text(502, "<html>bad gateway</html>"), Lists),
        ("503 of a server that ends", refusal(503, "ServiceUnavailable"), Lists),
        ("504 without a cause", refusal(504, "Timeout"), Lists),
        ("504 for a version from the future", Answer::json(504, &too_large()), Lists),
        ("a redirect", Answer::text(307, "").header("location", "http://127.0.0.1:1/"), Lists),
        ("the connection closes", Answer::HangUp, Lists),
        ("410 Expired", refusal(410, "Expired"), Lists),
        ("410 as text", Answer::text(410, "Gone"), Lists),
        ("400", refusal(400, "BadRequest"), Lists),
        ("413", Answer::text(413, "too large"), Lists),
        ("422", refusal(422, "Invalid"), Lists),
        ("404 of a definition that is not installed", not_served(), Lists),
        ("404 NotFound", refusal(404, "NotFound"), Lists),
        ("401", refusal(401, "Unauthorized"), Lists),
        ("401 as text", Answer::text(401, "Unauthorized"), Lists),
        ("403", refusal(403, "Forbidden"), Lists),
        ("403 of the proxy", Answer::text(403, "<h3>Unauthorized</h3>"), Lists),
        ("429 as text", busy(), Lists),
        ("429 as text that says when", busy().header("retry-after", "1"), Lists),
        ("429 as a Status", refusal(429, "TooManyRequests"), Lists),
        ("429 as a Status that says when", Answer::json(429, &later), Lists),
        ("500 of the server", refusal(500, "InternalError"), Lists),
        ("an answer that is empty", Answer::text(200, ""), Resumes),
        ("an answer that is cut off", page_of_another().cut_off(), Resumes),
        ("a Status instead", Answer::json(200, &status(200, "")), Resumes),
        ("HTML instead", Answer::text(200, "<html>welcome</html>"), Resumes),
        ("lines of HTML instead", Answer::text(200, "<html>\nwelcome\n</html>\n"), Lists),
    ]
}

/// Asserts that the next change arrives after two pages and a watch, if the first request with these words gets this
/// answer.
async fn assert_next_change_arrives(words: &'static str, name: &str, answer: Answer) -> Server {
    let server = Server::start();
    server.on(words, [answer]);
    server.always("list configmaps", |_| page("10", &[metadata("a", "1")], "t1"));
    server.always("list configmaps continue=t1", |_| list("10", &[metadata("b", "2")]));
    server.always("watch configmaps from 10", |_| Answer::watch(&[modified("a", "11")]));
    let mut events = Events::of(&server).until("applied a@11").await;
    events.retain(|event| event != "refused");
    assert_eq!(events, ["reset", "listed a@1", "listed b@2", "synced", "applied a@11"], "{name}");
    server
}

#[tokio::test]
async fn after_any_failure_of_a_list_or_a_later_page_the_next_change_arrives() {
    for words in ["list configmaps", "list configmaps continue=t1"] {
        let answers = wrong_answers().into_iter();
        join_all(answers.map(|(name, answer, _)| assert_next_change_arrives(words, name, answer))).await;
    }
}

/// After an outage the server may have been restored from backup. Then the version is in its future, and a watch from
/// there would stay silent for ever.
#[tokio::test]
async fn after_any_failure_to_open_a_watch_the_next_change_arrives() {
    let watch = "watch configmaps from 10";
    let checks = wrong_answers().into_iter().map(|(name, answer, then)| async move {
        let server = assert_next_change_arrives(watch, name, answer).await;
        let lists = ["list configmaps", "list configmaps continue=t1"];
        let expected = match then {
            Resumes => [&lists[..], &[watch, watch]].concat(),
            Lists => [&lists[..], &[watch], &lists[..], &[watch]].concat(),
        };
        assert_eq!(server.words(), expected, "{name}");
    });
    join_all(checks).await;
}

/// Returns all ends of an open watch, after an event with version 11.
fn ends() -> Vec<(&'static str, Vec<Chunk>, Then)> {
    let half_a_character = |text: &str| text.as_bytes()[..=text.find('ü').unwrap()].to_vec();
    let error = |code, reason| Chunk::text(line("ERROR", &status(code, reason)));
    let long = "x".repeat((16 << 20) + 1);
    vec![
        ("a clean end", vec![], Resumes),
        ("a body that is cut off", vec![Chunk::Truncate], Resumes),
        ("a line that is cut off", vec![Chunk::text(&modified("a", "12")[..40]), Chunk::Truncate], Resumes),
        ("a clean end within a line", vec![Chunk::text(&modified("a", "12")[..40])], Resumes),
        (
            "a character that is cut off",
            vec![Chunk::text(half_a_character(&modified("grün", "12"))), Chunk::Truncate],
            Resumes,
        ),
        ("410", vec![error(410, "Expired")], Lists),
        ("500", vec![error(500, "InternalError"), Chunk::Hold], Lists),
        ("429", vec![error(429, "TooManyRequests"), Chunk::Hold], Lists),
        ("a version from the future", vec![Chunk::text(line("ERROR", &too_large()))], Lists),
        ("an error without a code", vec![Chunk::text(line("ERROR", &metadata("a", "12"))), Chunk::Hold], Lists),
        ("an unknown type", vec![Chunk::text(line("RENAMED", &metadata("a", "12"))), Chunk::Hold], Lists),
        ("no version", vec![Chunk::text(line("MODIFIED", &status(200, ""))), Chunk::Hold], Lists),
        ("HTML", vec![Chunk::text("<html>busy</html>\n"), Chunk::text(modified("a", "12")), Chunk::Hold], Lists),
        ("an empty line", vec![Chunk::text("\n"), Chunk::Hold], Lists),
        ("a line over the limit", vec![Chunk::text(line("MODIFIED", &metadata(&long, "12"))), Chunk::Hold], Lists),
        ("a line over the limit without an end", vec![Chunk::text(long), Chunk::Hold], Lists),
    ]
}

#[tokio::test]
async fn after_any_end_of_a_watch_the_next_change_arrives() {
    let checks = ends().into_iter().map(|(name, end, then)| async move {
        let server = Server::start();
        let chunks = std::iter::once(Chunk::text(modified("a", "11"))).chain(end).collect();
        server.on("list configmaps", [list("10", &[metadata("a", "1")]), list("20", &[metadata("a", "15")])]);
        server.on("watch configmaps from 10", [Answer::Watch(chunks)]);
        for version in ["11", "20"] {
            server.on(&format!("watch configmaps from {version}"), [Answer::watch(&[modified("a", "21")])]);
        }
        let events = Events::of(&server).until("applied a@21").await;
        let (first, expected): (_, &[&str]) = match then {
            Resumes => ("watch configmaps from 11", &["reset", "listed a@1", "synced", "applied a@11", "applied a@21"]),
            Lists => ("list configmaps", &["reset", "listed a@15", "synced", "applied a@21"]),
        };
        assert_eq!(events, expected, "{name}");
        assert_eq!(server.words()[2], first, "{name}");
    });
    join_all(checks).await;
}

#[tokio::test]
async fn a_watch_resumes_at_its_last_version_even_if_that_went_backwards() {
    let server = Server::start();
    server.on("list configmaps", [list("1000", &[])]);
    server.on("watch configmaps from 1000", [Answer::short_watch(&[modified("a", "7")])]);
    server.on("watch configmaps from 7", [Answer::watch(&[modified("a", "8")])]);
    Events::of(&server).expect(&["reset", "synced", "applied a@7", "applied a@8"]).await;
}
