//! `doctor`: what keeps ConfigMonitors from doing their work, each with the next step, and what no ConfigMonitor watches.

mod monitors;
mod operator;
mod surroundings;

use configmonitor_operator::kube::error::{Cause, Error};
use serde_json::json;

use crate::ambassador::Ambassador;
use crate::options::{Format, Search};
use crate::outcome::Failure;
use crate::text::{compact_json, count, in_one_line, print};

/// What was found about an object.
#[derive(Clone)]
struct Finding {
    state: State,
    namespace: Option<String>,
    object: String,
    what: String,
}

#[derive(Clone)]
enum State {
    Fine,
    /// Its author holds a restart.
    Held,
    /// A restart is pending or under way.
    Waits,
    /// May be intended.
    Note,
    /// What to do.
    Wrong(String),
    /// A right is missing to look.
    Unknown,
}

impl Finding {
    fn new(object: impl Into<String>, state: State, what: impl Into<String>) -> Self {
        Self { state, namespace: None, object: object.into(), what: what.into() }
    }

    fn within(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..self }
    }
}

pub(crate) async fn run(ambassador: &Ambassador, search: &Search) -> Result<(), Failure> {
    let mut wrong = 0;
    // What was found counts even if the next step fails.
    wrong += show(&[operator::schema(ambassador).await?], search)?;
    wrong += show(&operator::look(ambassador).await?, search)?;
    wrong += show(&monitors::look(ambassador, search.all_namespaces).await?, search)?;
    if wrong > 0 { Err(Failure::Failed(format!("{} to act on", count(wrong, "finding")))) } else { Ok(()) }
}

/// Prints findings, and returns how many are wrong.
fn show(findings: &[Finding], search: &Search) -> Result<usize, Failure> {
    for Finding { state, namespace, object, what } in findings {
        let (word, next) = match state {
            State::Fine => ("ok", None),
            State::Held => ("held", None),
            State::Waits => ("waits", None),
            State::Note => ("note", None),
            State::Unknown => ("unknown", None),
            State::Wrong(next) => ("wrong", Some(next)),
        };
        print(match search.output {
            Some(Format::Json) => {
                compact_json(
                    &json!({"state": word, "namespace": namespace, "object": object, "what": what, "next": next}),
                ) + "\n"
            }
            None => {
                let what = in_one_line(what);
                let place = namespace.as_ref().map(|namespace| format!("{namespace}  ")).unwrap_or_default();
                let next = next.map(|next| format!("         {next}\n")).unwrap_or_default();
                format!("{word:<7}  {place}{object}  {what}\n{next}")
            }
        })?;
    }
    Ok(findings.iter().filter(|finding| matches!(finding.state, State::Wrong(_))).count())
}

/// Turns a missing right to look at an object into a finding.
fn or_unknown<T>(answer: Result<T, Error>, object: &str) -> Result<Result<T, Finding>, Failure> {
    match answer {
        Ok(value) => Ok(Ok(value)),
        Err(error @ Error { cause: Cause::Forbidden(_), .. }) => {
            Ok(Err(Finding::new(object, State::Unknown, error.to_string())))
        }
        Err(error) => Err(error.into()),
    }
}
