//! The documents of manifests, each by itself: what cannot be read of one is said, and the others count.

use std::error::Error;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde_json::Value;
use tokio::sync::oneshot;

use crate::outcome::Failure;

/// The ends of the names of files that are read of a folder, as kubectl does.
const ENDS: [&str; 3] = ["json", "yaml", "yml"];

/// An object, or why there is none.
#[derive(Debug, PartialEq)]
pub(crate) struct Document {
    /// Its file and its number.
    pub(crate) place: String,
    pub(crate) object: Result<Value, String>,
}

/// Reads a file, a folder with all that is in it, or standard input.
pub(crate) async fn read(path: &str) -> Result<Vec<Document>, Failure> {
    let path = path.to_owned();
    let (sender, documents) = oneshot::channel();
    // A thread of its own, which nobody joins: standard input may never end.
    std::thread::spawn(move || sender.send(read_all(&path)));
    documents.await.map_err(Failure::failed)?
}

fn read_all(path: &str) -> Result<Vec<Document>, Failure> {
    if path == "-" {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text)?;
        return Ok(documents("standard input", &text));
    }
    let files = files(Path::new(path)).map_err(|error| Failure::Failed(format!("{path}: {error}")))?;
    let of = |file: &PathBuf| {
        let place = file.display().to_string();
        match fs::read_to_string(file) {
            Ok(text) => documents(&place, &text),
            Err(error) => vec![Document { place, object: Err(error.to_string()) }],
        }
    };
    Ok(files.iter().flat_map(of).collect())
}

fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path()));
    let mut entries: Vec<PathBuf> = entries.collect::<io::Result<_>>()?;
    entries.sort();
    let mut all = Vec::new();
    for entry in entries {
        if entry.is_dir() || entry.extension().is_some_and(|end| ENDS.iter().any(|its| end == *its)) {
            all.extend(files(&entry)?);
        }
    }
    Ok(all)
}

/// Returns the documents of a text, with the elements of lists in place of these.
fn documents(place: &str, text: &str) -> Vec<Document> {
    let mut texts = vec![String::new()];
    for line in text.trim_start_matches('\u{feff}').lines() {
        // No text in YAML has this at the beginning of a line.
        let marked = line.strip_prefix("---").filter(|rest| rest.is_empty() || rest.starts_with(' '));
        if marked.is_some() {
            texts.push(String::new());
        }
        if let Some(text) = texts.last_mut() {
            text.extend([marked.unwrap_or(line), "\n"]);
        }
    }
    let mut all = Vec::new();
    for (number, text) in texts.iter().enumerate() {
        let place = format!("{place}, document {}", number + 1);
        match parse(text) {
            Ok(Value::Null) => {}
            Ok(mut list) if list["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) => {
                let items = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
                all.extend(items.into_iter().map(|item| Document { place: place.clone(), object: Ok(item) }));
            }
            object => all.push(Document { place, object }),
        }
    }
    all
}

fn parse(text: &str) -> Result<Value, String> {
    // JSON with tabs is no YAML.
    if let Ok(value) = serde_json::from_str(text) {
        return Ok(value);
    }
    let read = || -> Result<Value, Box<dyn Error>> {
        let mut yaml: serde_norway::Value = serde_norway::from_str(text)?;
        yaml.apply_merge()?;
        Ok(serde_json::to_value(yaml)?)
    };
    let advice = if text.contains("{{") { ": render the template first (helm template)" } else { "" };
    read().map_err(|error| format!("{error}{advice}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_that_cannot_be_read_costs_no_other_one() {
        let text = "\u{feff}# shop\nkind: A\n---\nkind: {{ .Values.kind }}\n--- # the last\nkind: List\nitems: [{kind: B}, {kind: C}]\n---\nkind: PodList\nitems: null\n---\n";
        let read = documents("f", text);
        let objects: Vec<_> = read.iter().map(|document| document.object.as_ref().ok()).collect();
        let [a, b, c] = ["A", "B", "C"].map(|kind| json!({"kind": kind}));
        assert_eq!(objects, [Some(&a), None, Some(&b), Some(&c)]);
        assert_eq!(read[1].place, "f, document 2");
        assert!(read[1].object.as_ref().unwrap_err().ends_with("(helm template)"));
    }

    #[test]
    fn merged_fields_are_fields_and_json_may_have_tabs() {
        let object = |text: &str| documents("f", text).pop().map(|document| document.object);
        assert_eq!(object("a: &x {b: 1}\nc: {<<: *x}\n"), Some(Ok(json!({"a": {"b": 1}, "c": {"b": 1}}))));
        assert_eq!(object("{\n\t\"a\": 1\n}"), Some(Ok(json!({"a": 1}))));
        assert_eq!(object("data: {9000: a}"), Some(Ok(json!({"data": {"9000": "a"}}))));
    }

    #[test]
    fn of_a_folder_all_manifests_are_read() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a")).unwrap();
        for (name, text) in [("b.yml", "kind: B"), ("a/a.yaml", "kind: A"), ("c.txt", "kind: C"), ("d.json", "\u{1}")] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let read = read_all(folder.path().to_str().unwrap()).unwrap();
        let kinds: Vec<_> =
            read.iter().map(|document| document.object.as_ref().map(|object| &object["kind"])).collect();
        assert!(matches!(kinds[..], [Ok(a), Ok(b), Err(_)] if a == "A" && b == "B"), "{kinds:?}");
        assert!(read_all("/nowhere").is_err());
    }
}
