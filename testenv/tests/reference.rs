//! The documentation has each field of the spec, and the exceptions to the rules by their numbers. The chart has copies.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../src/docs.rs"]
mod docs;

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;
use testenv::{manifests, project};

#[derive(Debug, Default, PartialEq)]
struct Field {
    r#type: String,
    /// The default, or that the field is required.
    default: String,
    values: Vec<String>,
}

#[test]
fn the_reference_has_every_field_of_the_spec_and_only_fields_of_the_status_that_exist() {
    let crd = crd();
    let schema = &crd.pointer("/spec/versions/0/schema/openAPIV3Schema/properties").unwrap();
    for (heading, part) in [("## Spec", "spec"), ("## Status", "status")] {
        let mut fields = BTreeMap::new();
        add_fields(&schema[part], "", &mut fields);
        let rows = docs::table(docs::REFERENCE, heading);
        let mut documented = BTreeMap::new();
        for row in &rows {
            let [name, r#type, default @ .., meaning] = &row[..] else { panic!("{row:?}") };
            let name = name.trim_matches('`').to_owned();
            let known: &[String] = fields.get(&name).map_or(&[], |field: &Field| &field.values);
            let values = known.iter().filter(|value| meaning.contains(&format!("`{value}`"))).cloned().collect();
            let default = default.first().map_or("", |default| default.trim_matches('`')).to_owned();
            let field = Field { r#type: (*r#type).to_owned(), default, values };
            assert_eq!(documented.insert(name, field), None, "{row:?} is there twice");
        }
        if part == "status" {
            // The page has the fields that people read, without their defaults. `kubectl explain` describes all.
            fields.retain(|name, _| documented.contains_key(name));
            fields.values_mut().for_each(|field| field.default.clear());
        }
        let names = |fields: &BTreeMap<String, Field>| fields.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&documented), names(&fields));
        for (name, field) in &fields {
            assert_eq!(documented.get(name), Some(field), "{part}.{name}");
        }
    }
}

#[test]
fn the_reference_has_every_column_of_kubectl_get() {
    let crd = crd();
    let columns = crd.pointer("/spec/versions/0/additionalPrinterColumns").unwrap().as_array().unwrap();
    let text = |column: &Value, key: &str| docs::code(column[key].as_str().unwrap());
    let columns: Vec<_> = columns.iter().map(|column| ["name", "jsonPath"].map(|key| text(column, key))).collect();
    let documented = docs::table(docs::REFERENCE, "### Columns");
    assert_eq!(documented.iter().map(|row| [0, 1].map(|cell| row[cell])).collect::<Vec<_>>(), columns);
}

#[test]
fn every_field_of_the_schema_is_described() {
    let mut nameless = Vec::new();
    undescribed("", crd().pointer("/spec/versions/0/schema/openAPIV3Schema").unwrap(), &mut nameless);
    // The API server describes the standard metadata itself, and forbids a description here.
    assert_eq!(nameless, [".metadata"]);
}

fn undescribed(path: &str, schema: &Value, nameless: &mut Vec<String>) {
    // `kubectl explain` shows no other default.
    let default = schema.get("default").map(|default| format!("Default: {}.", default.to_string().trim_matches('"')));
    let is_told = |description: &str| default.is_none_or(|default| description.ends_with(&default));
    if !schema["description"].as_str().is_some_and(is_told) {
        nameless.push(path.to_owned());
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        undescribed(&format!("{path}.{name}"), property, nameless);
    }
    if schema["items"].is_object() {
        undescribed(&format!("{path}[]"), &schema["items"], nameless);
    }
}

#[test]
fn what_is_copied_into_the_chart_is_what_lies_elsewhere() {
    for (name, source) in [
        ("crd.yml", "crd.yml"),
        ("rules.yml", "deploy/monitoring/rules.yml"),
        ("policies/operator.yml", "deploy/policies/operator.yml"),
        ("policies/configmonitors.yml", "deploy/policies/configmonitors.yml"),
        ("surge/policy.yml", "deploy/surge/policy/policy.yml"),
        ("dashboard.json", "deploy/monitoring/dashboard.json"),
    ] {
        let copy = read(&format!("charts/configmonitor-operator/files/{name}"));
        assert!(copy == read(source), "{name} is old: please run make chart");
    }
}

/// The code names them by these numbers.
#[test]
fn the_exceptions_are_numbered_without_a_gap() {
    let guarantees = read("docs/guarantees.md");
    let headings = guarantees.lines().filter_map(|line| line.strip_prefix("#### ")?.split_once(". "));
    let numbers: Vec<usize> = headings.map(|(number, _)| number.parse().unwrap()).collect();
    assert_eq!(numbers, (1..=13).collect::<Vec<_>>());
}

fn crd() -> Value {
    manifests(&project("crd.yml")).unwrap().remove(0)
}

/// Adds the fields of a schema, by their paths below it.
fn add_fields(schema: &Value, path: &str, fields: &mut BTreeMap<String, Field>) {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}{name}");
        let default = match &field["default"] {
            Value::Null if required.contains(&&**name) => "required".to_owned(),
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let values = field["enum"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        let documented = Field { r#type: type_of(field), default, values: values.collect() };
        fields.insert(path.clone(), documented);
        add_fields(field, &format!("{path}."), fields);
        add_fields(&field["items"], &format!("{path}[]."), fields);
    }
}

fn type_of(schema: &Value) -> String {
    if schema["x-kubernetes-int-or-string"] == true {
        return "integer or string".to_owned();
    }
    match (schema["type"].as_str().unwrap(), &schema["format"], &schema["additionalProperties"]) {
        ("array", ..) => format!("[]{}", type_of(&schema["items"])),
        ("object", _, values @ Value::Object(_)) => format!("map[string]{}", type_of(values)),
        ("string", Value::String(format), _) if format == "date-time" => "time".to_owned(),
        (name, ..) => name.to_owned(),
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(project(path)).unwrap()
}
