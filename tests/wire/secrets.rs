//! The watch on Secrets exists only while a ConfigMonitor names a Secret.

use serde_json::{Value, json};

use crate::api::{line, list, metadata, modified};
use crate::held::Feed;
use crate::scenario::{Scenario, config_map_of, old};
use crate::script::Answer;

/// Makes `m` a ConfigMonitor of the ConfigMap `c` and, with `with_secret`, of the Secret `s`.
fn name(scenario: &Scenario, with_secret: bool) {
    let mut sources = vec![json!({ "configMap": { "name": "c" } })];
    sources.extend(with_secret.then(|| json!({ "secret": { "name": "s" } })));
    let mut objects = scenario.objects.lock().unwrap();
    objects.edit("configMap", Value::Null);
    let edited = objects.edit("sources", json!(sources));
    drop(objects);
    scenario.send(line("MODIFIED", &edited));
}

#[test]
fn secrets_are_watched_only_while_one_is_named() {
    let scenario = Scenario::with(&[old("p1")]);
    let secrets = Feed::default();
    scenario.server.always("list secrets", |_| list("10", &[metadata("s", "7")]));
    scenario.server.always("watch secrets from 10", move |_| Answer::feed(&secrets));
    scenario.server.always("get secrets/s", |_| Answer::json(200, &config_map_of("s", 0, "7")));
    let _operator = scenario.operator(&[]);
    scenario.edit_without_event("c", 0, "7");
    for times in 1..=2 {
        name(&scenario, true);
        scenario.server.wait_for("watch secrets", times);
        scenario.wait_until("both are recorded", |objects| objects.monitor["status"]["sources"][1]["hash"].is_string());
        name(&scenario, false);
        scenario.wait_until("one is left", |objects| objects.monitor["status"]["sources"][1].is_null());
    }
    let lists: Vec<_> =
        scenario.server.requests().into_iter().filter(|request| request.words() == "list secrets").collect();
    let [request, _] = &lists[..] else { panic!("it was closed and opened again: {lists:?}") };
    assert!(request.header("accept").is_some_and(|form| form.contains("PartialObjectMetadataList")), "{request:?}");
    assert_eq!(request.query("fieldSelector"), None);
}

/// Kubelets do not watch an immutable Secret either.
#[test]
fn a_replaced_immutable_secret_has_its_event_at_the_config_monitor_and_not_at_the_secret() {
    let scenario = Scenario::with(&[old("p1")]);
    let secrets = Feed::default();
    scenario.server.always("list secrets", |_| list("10", &[metadata("s", "7")]));
    let feed = secrets.clone();
    scenario.server.always("watch secrets from 10", move |_| Answer::feed(&feed));
    let mut secret = config_map_of("s", 0, "7");
    secret["immutable"] = json!(true);
    scenario.server.always("get secrets/s", move |_| Answer::json(200, &secret));
    let operator = scenario.operator(&[]);
    scenario.edit_without_event("c", 0, "7");
    name(&scenario, true);
    scenario.server.wait_for("watch secrets", 1);
    scenario.wait_until("both are recorded", |objects| objects.monitor["status"]["sources"][1]["hash"].is_string());

    let mut recreated = config_map_of("s", 1, "8");
    recreated["metadata"]["uid"] = json!("another");
    scenario.server.instead("get secrets/s", move |_| Answer::json(200, &recreated));
    secrets.push(modified("s", "8"));
    operator.wait_for("restart over", 1);
    let events = scenario.server.requests().into_iter().filter(|request| request.words() == "post events");
    let events: Vec<Value> = events.map(|request| request.json()).collect();
    let found: Vec<&Value> = events.iter().filter(|event| event["reason"] == "ImmutableSourceReplaced").collect();
    assert!(found.len() == 1 && found[0]["regarding"]["kind"] == "ConfigMonitor", "{events:?}");
}
