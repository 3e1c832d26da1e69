//! Tables of the requests of a restart by kind.

use std::collections::BTreeMap;

use crate::audit::Request;
use crate::table;

/// Prints a table with a row for each case, given its title and the requests of its restarts.
pub(crate) fn table(title: &str, cases: &[(&str, Vec<Vec<Request>>)]) {
    table::title(title);
    table::head(&[
        "",
        "DELETE, eviction",
        "more",
        "owners",
        "Events",
        "GETs of a ConfigMap per edit, at most",
        "which",
    ]);
    for (case, restarts) in cases {
        row(case, restarts);
    }
}

/// Prints a row about several restarts of one case: the requests of the last restart, and the most GETs of a ConfigMap per edit of all restarts.
fn row(title: &str, restarts: &[Vec<Request>]) {
    let requests = restarts.last().map(Vec::as_slice).unwrap_or_default();
    let deletions = requests.iter().filter(|request| request.is_deletion()).count();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for request in requests.iter().filter(|request| request.is_of_contestant() && !request.is_deletion()) {
        *counts.entry(kind(request)).or_default() += 1;
    }
    let all: usize = counts.values().sum();
    let mut apart = |kinds: &[&str]| -> usize { kinds.iter().filter_map(|kind| counts.remove(*kind)).sum() };
    let owners = apart(&["get replicasets", "get statefulsets", "get daemonsets"]);
    let events = apart(&["create events"]);
    let rest: Vec<String> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let gets = restarts.iter().map(|requests| gets_per_edit(requests)).fold(0.0, f64::max);
    table::row(&[
        title.to_owned(),
        deletions.to_string(),
        (all - owners - events).to_string(),
        owners.to_string(),
        events.to_string(),
        gets.to_string(),
        rest.join(", "),
    ]);
}

/// Returns the kind of a request, with the HTTP status if the request was refused.
fn kind(request: &Request) -> String {
    let refusal = if request.status < 400 { String::new() } else { format!(" ({})", request.status) };
    format!("{} {}{refusal}", request.verb, request.resource)
}

fn gets_per_edit(requests: &[Request]) -> f64 {
    let is_get = |request: &&Request| request.verb == "get" && request.resource == "configmaps";
    let gets = requests.iter().filter(|request| request.is_of_contestant()).filter(is_get).count();
    gets as f64 / requests.iter().filter(|request| request.is_edit()).count() as f64
}
