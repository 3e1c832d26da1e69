//! The health check and the actions for Argo CD, by the tests beside them, in Argo CD's interpreter.
//!
//! The format of these tests is that of `util/lua` in Argo CD's repository at 37ee0097. It ignores what only the result
//! has; here, both must be equal.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use jiff::Timestamp;
use serde_json::{Value, json};
use testenv::binaries::tool;
use testenv::process::printed;
use testenv::{RunDir, manifests, project};

const FOLDER: &str = "deploy/argocd/resource_customizations/magalix.com/ConfigMonitor";
/// The annotation whose value is a time, by action.
const TIMES: [(&str, &str); 2] =
    [("restart", "magalix.com/restart-requested-at"), ("suspend", "magalix.com/suspended-at")];

fn yaml(path: &Path) -> Value {
    manifests(path).unwrap().remove(0)
}

/// Returns the table of Lua with the same content.
fn table(value: &Value) -> String {
    let braced = |parts: Vec<String>| format!("{{{}}}", parts.join(", "));
    match value {
        Value::Array(items) => braced(items.iter().map(table).collect()),
        Value::Object(fields) => {
            braced(fields.iter().map(|(key, value)| format!("[{}] = {}", json!(key), table(value))).collect())
        }
        other => other.to_string(),
    }
}

/// Returns what a script returns for an object.
async fn run(script: &str, object: &Value) -> Value {
    let dir = RunDir::create().unwrap();
    let file = dir.path().join("object.lua");
    fs::write(&file, table(object)).unwrap();
    let mut glua = Command::new(tool("glua").await.unwrap());
    glua.arg(project("testenv/lua/driver.lua")).arg(project(FOLDER).join(script)).arg(file);
    serde_json::from_str(&printed(&glua).await.unwrap()).unwrap()
}

fn tests(file: &str, field: &str) -> Vec<Value> {
    let tests = yaml(&project(FOLDER).join(file))[field].take();
    tests.as_array().unwrap().clone()
}

fn object(test: &Value, path: &str) -> Value {
    yaml(&project(FOLDER).join(path).join(test["inputPath"].as_str().unwrap()))
}

#[tokio::test]
async fn the_health_of_each_object_is_what_its_test_says() {
    let mut judged = BTreeSet::new();
    for test in tests("health_test.yaml", "tests") {
        let health = run("health.lua", &object(&test, "")).await;
        assert_eq!(health, test["healthStatus"], "{test}");
        judged.insert(health["status"].as_str().unwrap().to_owned());
    }
    assert_eq!(judged.iter().collect::<Vec<_>>(), ["Degraded", "Healthy", "Progressing", "Suspended"]);
}

#[tokio::test]
async fn each_action_is_offered_when_it_makes_sense() {
    for test in tests("actions/action_test.yaml", "discoveryTests") {
        let offered = run("actions/discovery.lua", &object(&test, "actions")).await;
        let expected = test["result"].as_array().unwrap().iter().map(|action| {
            let mut action = action.clone();
            let name = action.as_object_mut().unwrap().remove("name").unwrap();
            (name.as_str().unwrap().to_owned(), action)
        });
        assert_eq!(offered, expected.collect::<Value>(), "{test}");
    }
}

#[tokio::test]
async fn each_action_changes_what_its_test_says() {
    for test in tests("actions/action_test.yaml", "actionTests") {
        let action = test["action"].as_str().unwrap();
        let begun = Timestamp::now().as_second();
        let mut changed = run(&format!("actions/{action}/action.lua"), &object(&test, "actions")).await;
        if let Some((_, annotation)) = TIMES.iter().find(|(of, _)| *of == action) {
            let annotations = changed["metadata"]["annotations"].as_object_mut().unwrap();
            let time: Timestamp = annotations.remove(*annotation).unwrap().as_str().unwrap().parse().unwrap();
            assert!((begun..=Timestamp::now().as_second()).contains(&time.as_second()), "{time}");
            if annotations.is_empty() {
                changed["metadata"].as_object_mut().unwrap().remove("annotations");
            }
        }
        let expected = test["expectedOutputPath"].as_str().unwrap();
        assert_eq!(changed, yaml(&project(FOLDER).join("actions").join(expected)), "{test}");
    }
}
