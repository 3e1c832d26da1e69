//! Whether the API server stores every field of a status. It silently drops fields that its CustomResourceDefinition
//! does not know.

use serde_json::Value;

/// Returns the path of the first field that was written but not stored. Null and empty values may be missing.
pub(crate) fn dropped_field(written: &Value, stored: &Value) -> Option<String> {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    match (written, stored) {
        (Value::Object(written), Value::Object(stored)) => {
            written.iter().find_map(|(name, value)| match stored.get(name).filter(|stored| !stored.is_null()) {
                None => (!is_empty(value)).then(|| format!(".{name}")),
                Some(stored) => dropped_field(value, stored).map(|path| format!(".{name}{path}")),
            })
        }
        (Value::Array(written), Value::Array(stored)) => {
            let pairs = written.iter().zip(stored);
            pairs.into_iter().find_map(|(value, stored)| dropped_field(value, stored)).map(|path| format!("[]{path}"))
        }
        // The schema does not change values.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_that_is_not_stored_is_named_by_its_path() {
        let written = json!({
            "pods": 3,
            "restart": { "progress": "0/3", "canary": { "pods": 2 } },
            "history": [{ "result": "Completed" }, { "replaced": 0, "result": "Completed" }],
        });
        assert_eq!(dropped_field(&written, &written), None);
        for (pointer, name, path) in [
            ("", "pods", ".pods"),
            ("", "restart", ".restart"),
            ("/restart/canary", "pods", ".restart.canary.pods"),
            ("/history/1", "replaced", ".history[].replaced"),
        ] {
            let mut stored = written.clone();
            stored.pointer_mut(pointer).unwrap().as_object_mut().unwrap().remove(name);
            assert_eq!(dropped_field(&written, &stored).as_deref(), Some(path));
            stored.pointer_mut(pointer).unwrap()[name] = Value::Null;
            assert_eq!(dropped_field(&written, &stored).as_deref(), Some(path));
        }
        let object = json!({ "status": written });
        assert_eq!(dropped_field(&object, &json!({})).as_deref(), Some(".status"));
    }

    #[test]
    fn empty_values_may_be_missing_and_added_or_changed_values_are_not_reported() {
        let written = json!({ "pods": 3, "keys": [], "owner": null, "labels": {}, "at": "2026-11-21T10:00:00Z", "history": [{}, { "a": 1 }] });
        let stored = json!({ "pods": "3", "more": 1, "at": "2026-11-21T10:00:00.000Z", "history": [{ "b": 1 }] });
        assert_eq!(dropped_field(&written, &stored), None);
    }
}
