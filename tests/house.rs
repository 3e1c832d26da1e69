//! The house has one direction: no file imports one that imports it, over however many others, nor does a folder. Imports
//! are read as text.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io};

/// The path of a module within its crate.
type Module = Vec<String>;
type Arrows<T> = BTreeMap<T, BTreeSet<T>>;

/// The text of each module of a crate that has a file, without its tests.
fn modules(folder: &Path) -> io::Result<BTreeMap<Module, String>> {
    let mut modules = BTreeMap::new();
    let mut folders = vec![(folder.to_owned(), Module::new())];
    while let Some((folder, within)) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            if name == "tests" {
                continue;
            }
            let module = [&within[..], std::slice::from_ref(&name)].concat();
            if path.is_dir() {
                folders.push((path, module));
            } else {
                let text = fs::read_to_string(&path)?;
                let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
                let is_of_folder = ["mod", "lib", "main"].contains(&&*name);
                modules.insert(if is_of_folder { within.clone() } else { module }, text.to_owned());
            }
        }
    }
    Ok(modules)
}

/// The paths that a tree of imports names: `a::{b, c::d}` names `a::b` and `a::c::d`.
fn paths(tree: &str) -> Vec<String> {
    let Some((before, rest)) = tree.split_once('{') else { return vec![tree.trim().to_owned()] };
    let (mut depth, mut branches) = (0, vec![String::new()]);
    for letter in rest[..rest.rfind('}').unwrap()].chars() {
        match letter {
            ',' if depth == 0 => branches.push(String::new()),
            _ => branches.last_mut().unwrap().push(letter),
        }
        depth += i32::from(letter == '{') - i32::from(letter == '}');
    }
    branches.iter().flat_map(|branch| paths(branch)).map(|path| format!("{}{path}", before.trim())).collect()
}

/// Returns the module whose file has what a path names, seen from a module.
fn target(path: &str, from: &Module, modules: &BTreeMap<Module, String>) -> Option<Module> {
    let words: Vec<&str> = path.split(" as ").next()?.split("::").map(str::trim).collect();
    let up = words.iter().take_while(|word| **word == "super").count();
    let mut named: Module = match *words.first()? {
        "crate" => Vec::new(),
        "self" => from.clone(),
        "super" => from[..from.len() - up].to_vec(),
        _ => return None,
    };
    named.extend(words[up.max(1)..].iter().map(|word| (*word).to_owned()));
    (0..=named.len()).rev().map(|length| named[..length].to_vec()).find(|module| modules.contains_key(module))
}

fn arrows(modules: &BTreeMap<Module, String>) -> Arrows<Module> {
    let mut arrows: Arrows<Module> = BTreeMap::new();
    for (module, text) in modules {
        let code: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap()).collect();
        let code = code.join("\n");
        let is_import = |line: &str| {
            let line = line.trim_start();
            line.starts_with("use ") || line.starts_with("pub") && line.contains(" use ")
        };
        let statements =
            code.split(';').filter_map(|it| it.lines().find(|line| is_import(line)).map(|line| (it, line)));
        let trees = statements.map(|(it, line)| it[it.find(line).unwrap()..].split_once("use ").unwrap().1);
        let inline = code.split(|letter: char| !letter.is_alphanumeric() && !"_:".contains(letter));
        let inline = inline.filter(|word| word.starts_with("crate::") || word.starts_with("super::"));
        let all = trees.flat_map(paths).chain(inline.map(str::to_owned));
        let targets = all.filter_map(|path| target(&path, module, modules)).filter(|target| target != module);
        arrows.entry(module.clone()).or_default().extend(targets);
    }
    arrows
}

/// Returns what is on a circle, or between two of them.
fn circles<T: Ord + Clone>(mut arrows: Arrows<T>) -> Vec<T> {
    loop {
        let before = arrows.len();
        // What imports nothing that is left, or is imported by nothing that is left, is on no circle.
        let imported: BTreeSet<T> = arrows.values().flatten().cloned().collect();
        let left: BTreeSet<T> = arrows.keys().filter(|it| imported.contains(it)).cloned().collect();
        arrows.retain(|it, imports| {
            imports.retain(|it| left.contains(it));
            left.contains(it) && !imports.is_empty()
        });
        if arrows.len() == before {
            return arrows.into_keys().collect();
        }
    }
}

/// Returns the arrows between what is directly in a folder: files, and folders. Its own file is nameless.
fn rooms(arrows: &Arrows<Module>, folder: &[String]) -> Arrows<String> {
    let room = |module: &Module| {
        let inside = module.strip_prefix(folder)?;
        Some(inside.first().cloned().unwrap_or_default())
    };
    let mut rooms: Arrows<String> = BTreeMap::new();
    for (from, targets) in arrows {
        for (from, to) in targets.iter().filter_map(|to| room(from).zip(room(to))).filter(|(from, to)| from != to) {
            rooms.entry(from).or_default().insert(to);
        }
    }
    rooms
}

#[test]
fn no_file_and_no_folder_imports_what_imports_it() {
    for sources in ["src", "kubectl-cmon/src"] {
        let modules = modules(&Path::new(env!("CARGO_MANIFEST_DIR")).join(sources)).unwrap();
        assert!(modules.len() > 20, "{sources}: {} files", modules.len());
        let arrows = arrows(&modules);
        assert_eq!(circles(arrows.clone()), [[""; 0]; 0], "{sources}");
        let folders: BTreeSet<&[String]> =
            modules.keys().flat_map(|module| (0..module.len()).map(|length| &module[..length])).collect();
        for folder in folders {
            assert_eq!(circles(rooms(&arrows, folder)), [""; 0], "{sources}/{}", folder.join("/"));
        }
    }
}

#[test]
fn a_circle_is_seen_whatever_an_import_looks_like() {
    let of = |texts: &[(&str, &str)]| {
        let module = |name: &str| name.split('/').filter(|word| !word.is_empty()).map(str::to_owned).collect();
        let modules = texts.iter().map(|(name, text)| (module(name), (*text).to_owned())).collect();
        circles(arrows(&modules)).len()
    };
    let back = ("b/c", "fn f() -> crate::a::A;");
    let to_b = |import: &'static str| of(&[("", ""), ("a", import), ("b", ""), back]);
    assert_eq!(to_b("use crate::b::{c::{C, D}, e};"), 2);
    assert_eq!(to_b("pub(crate) use super::b::c;"), 2);
    assert_eq!(to_b("use crate::b::d;"), 0);
    assert_eq!(to_b("// use crate::b::c;"), 0);
}

/// Each layer with words that it may not contain.
#[test]
fn kube_knows_no_config_monitor_and_no_metrics_and_monitor_neither_io_nor_a_clock() {
    let modules = modules(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap();
    let unknown: [(&str, &[&str]); 3] = [
        ("kube", &["magalix", "ConfigMonitor", "restartLast", "metrics"]),
        ("monitor", &["tokio", "async ", "std::fs", "std::net", "thread", "SystemTime", "::now(", "metrics"]),
        ("metrics", &["monitor::"]),
    ];
    let is_wrong = |module: &Module, line: &&str| {
        unknown.iter().any(|(layer, words)| module[0] == *layer && words.iter().any(|word| line.contains(word)))
    };
    let wrong = modules.iter().filter(|(module, _)| !module.is_empty()).flat_map(|(module, text)| {
        text.lines().filter(|line| is_wrong(module, line)).map(|line| format!("{}: {line}", module.join("/")))
    });
    assert_eq!(wrong.collect::<Vec<_>>(), [""; 0]);
}
