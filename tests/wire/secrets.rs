//! The watch on Secrets: it is there only as long as somebody needs it.

use serde_json::{Value, json};

use crate::api::{line, list, metadata, modified};
use crate::held::Feed;
use crate::script::Answer;
use crate::stage::{Stage, config_map_of, old};

/// A ConfigMonitor of the ConfigMap `c`, and of the Secret `s` if it is to be.
fn name(stage: &Stage, with_secret: bool) {
    let mut sources = vec![json!({ "configMap": { "name": "c" } })];
    sources.extend(with_secret.then(|| json!({ "secret": { "name": "s" } })));
    let mut world = stage.world.lock().unwrap();
    world.edit("configMap", Value::Null);
    let edited = world.edit("sources", json!(sources));
    drop(world);
    stage.tell(line("MODIFIED", &edited));
}

#[test]
fn secrets_are_watched_only_while_one_is_named() {
    let stage = Stage::with(&[old("p1")]);
    let secrets = Feed::default();
    stage.server.always("list secrets", |_| list("10", &[metadata("s", "7")]));
    stage.server.always("watch secrets from 10", move |_| Answer::feed(&secrets));
    stage.server.always("get secrets/s", |_| Answer::json(200, &config_map_of("s", 0, "7")));
    let _operator = stage.operator(&[]);
    stage.edit_unheard("c", 0, "7");
    for times in 1..=2 {
        name(&stage, true);
        stage.server.wait_for("watch secrets", times);
        stage.wait_until("both are recorded", |world| world.monitor["status"]["sources"][1]["hash"].is_string());
        name(&stage, false);
        stage.wait_until("one is left", |world| world.monitor["status"]["sources"][1].is_null());
    }
    let lists: Vec<_> =
        stage.server.requests().into_iter().filter(|request| request.words() == "list secrets").collect();
    let [request, _] = &lists[..] else { panic!("it was closed and opened again: {lists:?}") };
    assert!(request.header("accept").is_some_and(|form| form.contains("PartialObjectMetadataList")), "{request:?}");
    assert_eq!(request.query("fieldSelector"), None);
}

/// Kubelets do not watch an immutable Secret either.
#[test]
fn an_immutable_secret_that_is_replaced_is_told_of_at_the_config_monitor_and_not_at_the_secret() {
    let stage = Stage::with(&[old("p1")]);
    let secrets = Feed::default();
    stage.server.always("list secrets", |_| list("10", &[metadata("s", "7")]));
    let feed = secrets.clone();
    stage.server.always("watch secrets from 10", move |_| Answer::feed(&feed));
    let mut secret = config_map_of("s", 0, "7");
    secret["immutable"] = json!(true);
    stage.server.always("get secrets/s", move |_| Answer::json(200, &secret));
    let operator = stage.operator(&[]);
    stage.edit_unheard("c", 0, "7");
    name(&stage, true);
    stage.server.wait_for("watch secrets", 1);
    stage.wait_until("both are recorded", |world| world.monitor["status"]["sources"][1]["hash"].is_string());

    let mut anew = config_map_of("s", 1, "8");
    anew["metadata"]["uid"] = json!("another");
    stage.server.instead("get secrets/s", move |_| Answer::json(200, &anew));
    secrets.tell(modified("s", "8"));
    operator.wait_for("restart over", 1);
    let events = stage.server.requests().into_iter().filter(|request| request.words() == "post events");
    let events: Vec<Value> = events.map(|request| request.json()).collect();
    let told: Vec<&Value> = events.iter().filter(|event| event["reason"] == "ImmutableSourceReplaced").collect();
    assert!(told.len() == 1 && told[0]["regarding"]["kind"] == "ConfigMonitor", "{events:?}");
}
