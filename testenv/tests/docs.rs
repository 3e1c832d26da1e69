//! The documentation can be followed: its links lead somewhere, and the README is short.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use testenv::pages::{EXCEPTIONS, heading, prose, sections};
use testenv::project;

/// The languages of blocks: what a reader types is in the first two.
const LANGUAGES: [&str; 4] = ["console", "sh", "text", "yaml"];

#[test]
fn every_relative_link_leads_to_a_file_and_a_heading_that_exist() {
    let (mut broken, mut followed) = (Vec::new(), 0);
    for page in pages() {
        for link in links(&read(&page)) {
            followed += 1;
            if !leads_somewhere(&page, &link) {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
    assert!(followed >= 150, "{followed} links");
}

#[test]
fn the_readme_has_at_most_1000_words() {
    let words = read(&project("README.md")).split_whitespace().count();
    assert!(words <= 1000, "{words}");
}

/// What the pages say as long as nothing is published.
const UNPUBLISHED: [(&str, &str); 5] = [
    ("README.md", "**Nothing is published yet**"),
    ("docs/install.md", "**Nothing is published yet.**"),
    ("docs/security.md", "nobody has seen yet"),
    ("SECURITY.md", "No version has been released yet"),
    ("charts/configmonitor-operator/README.md", "Until there is one"),
];

#[test]
fn the_pages_name_this_version_in_the_repository_of_cargo_toml_and_say_if_nothing_is_published() {
    let owner = env!("CARGO_PKG_REPOSITORY").strip_prefix("https://github.com/").unwrap();
    let (owner, name) = owner.split_once('/').unwrap();
    assert_eq!(name, "configmonitor-operator");
    let others = ["charts/configmonitor-operator/Chart.yaml", "deploy/Dockerfile", "demo-app/Dockerfile"].map(project);
    let (mut owners, mut versions) = (0, 0);
    for page in pages().chain(others) {
        let text = read(&page);
        for host in ["ghcr.io/", "github.com/", "--repo "] {
            for path in words_after(&text, host) {
                let (its, path) = path.split_once('/').unwrap_or_default();
                if path.trim_start_matches("charts/").starts_with(name) {
                    owners += 1;
                    assert_eq!(its, owner, "{}: please run make coordinates", page.display());
                }
            }
        }
        let places = ["--version ", "/releases/download/v", "refs/tags/v", "configmonitor-operator:", "demo-app:"];
        for place in places {
            for version in words_after(&text, place).filter(|version| version.starts_with(|c: char| c.is_ascii_digit()))
            {
                versions += 1;
                let version = version.split('/').next().unwrap();
                assert_eq!(version, env!("CARGO_PKG_VERSION"), "{}: {place}", page.display());
            }
        }
    }
    assert!(owners >= 12 && versions >= 20, "{owners}, {versions}");
    for (page, text) in UNPUBLISHED {
        assert_eq!(read(&project(page)).contains(text), owner == "OWNER", "{page}: {text}");
    }
}

#[test]
fn every_file_of_the_project_that_a_page_for_users_names_exists() {
    let is_for_users = |page: &PathBuf| page.starts_with(project("docs")) || page.ends_with("README.md");
    let mut named = 0;
    for page in pages().filter(is_for_users) {
        let text = read(&page);
        let in_deploy = words_after(&text, "`deploy/").map(|file| format!("deploy/{file}"));
        let in_clone = words_after(&text, "configmonitor-operator/").filter(|file| !file.starts_with("releases/"));
        for file in in_clone.chain(in_deploy) {
            named += 1;
            assert!(project(&file).exists(), "{}: {file}", page.display());
        }
    }
    assert!(named >= 40, "{named} files");
}

/// A name in a table of ARCHITECTURE.md begins at the top, or in the folder that the row has named last.
#[test]
fn every_file_in_the_tables_of_the_architecture_exists() {
    let (architecture, mut named) = (read(&project("ARCHITECTURE.md")), 0);
    let endings = ["/", ".rs", ".md", ".yml", ".tpl"];
    for row in architecture.lines().filter(|line| line.starts_with("| ")) {
        let mut folder = PathBuf::new();
        let names = row.split('`').skip(1).step_by(2);
        for name in names.filter(|name| endings.iter().any(|ending| name.ends_with(ending))) {
            named += 1;
            let path = project(name);
            if path.is_dir() {
                folder = path;
            } else if path.exists() {
                folder = path.parent().unwrap().to_owned();
            } else {
                assert!(folder.join(name).exists(), "{name}: {row}");
            }
        }
    }
    assert!(named >= 80, "{named} files");
}

#[test]
fn each_line_of_a_table_with_tests_has_the_test_that_it_names() {
    let code = ["src", "tests", "testenv/tests"].map(|folder| files(&project(folder))).concat();
    let code: String = code.iter().map(read).collect();
    for (page, heading, lines) in [
        ("docs/security.md", "### What one namespace can take", 10),
        ("docs/rolling-restarts.md", "### Owners of other kinds", 7),
    ] {
        let page = read(&project(page));
        let (_, section) = page.split_once(heading).unwrap();
        let rows = section.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| "));
        let last = rows.filter_map(|row| row.trim_end_matches(" |").rsplit("| ").next());
        let tests: Vec<&str> = last.filter_map(|cell| cell.strip_prefix('`')?.strip_suffix('`')).collect();
        assert!(tests.len() >= lines, "{heading}: {tests:?}");
        for test in tests {
            assert!(code.contains(&format!("fn {test}(")), "{test}");
        }
    }
}

#[test]
fn every_make_target_that_a_page_names_exists() {
    let makefile = read(&project("Makefile"));
    let targets = makefile.lines().find_map(|line| line.strip_prefix(".PHONY: ")).unwrap();
    let mut named = 0;
    for page in pages() {
        let text = read(&page);
        for target in words_after(&text, "`make ").chain(words_after(&text, "$ make ")) {
            named += 1;
            assert!(targets.split(' ').any(|other| other == target), "{}: make {target}", page.display());
        }
    }
    assert!(named >= 20, "{named} targets");
}

#[test]
fn the_recorded_demo_has_the_last_steps_of_the_demo_in_order() {
    let (demo, picture) = (read(&project("testenv/demo/src/play.rs")), read(&project("docs/images/demo.svg")));
    let recorded: Vec<&str> = picture.split(">== ").skip(1).map(|rest| rest.split('<').next().unwrap()).collect();
    let steps: Vec<&str> = demo.split("show::step(\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(recorded.len() > 1 && steps.ends_with(&recorded), "make demo RECORD=1");
}

/// A test that takes a section from a page fails if it does not run every command of it.
#[test]
fn each_section_with_a_command_is_run_by_a_test_of_the_operator() {
    let tests: Vec<String> = files(&project("testenv/tests/operator")).iter().map(read).collect();
    let (mut left, mut excepted, mut run) = (Vec::new(), Vec::new(), 0);
    for page in testenv::pages::pages().unwrap() {
        let whole = tests.iter().any(|test| test.contains(&format!("all_of(\"{page}\")")));
        let mut headings = BTreeSet::new();
        for section in sections(&page).unwrap() {
            excepted.extend(section.exceptions.iter().copied());
            let of = format!("Section::of(\"{page}\", \"{}\")", section.heading);
            let is_run = whole || tests.iter().any(|test| test.contains(&of));
            let is_first = whole || headings.insert(section.heading.clone());
            match section.steps().next() {
                Some(_) if is_run && is_first => run += 1,
                Some(step) => left.push(format!("{page}, {}: {}", section.heading, step.command)),
                None => {}
            }
        }
    }
    assert!(left.is_empty(), "no test runs:\n{}", left.join("\n"));
    assert!(run >= 40, "{run} sections");
    for (command, reason) in EXCEPTIONS {
        assert!(excepted.contains(&command) && !reason.is_empty(), "no page has the exception {command}");
    }
}

#[test]
fn what_a_reader_types_is_in_a_block_of_its_own_kind() {
    for page in pages() {
        let text = read(&page);
        for opening in text.lines().filter_map(|line| line.trim_start().strip_prefix("```")).step_by(2) {
            assert!(LANGUAGES.contains(&opening), "{}: ```{opening}", page.display());
        }
    }
}

/// Returns the files in a folder, also in those below it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn pages() -> impl Iterator<Item = PathBuf> {
    testenv::pages::pages().unwrap().into_iter().map(|page| project(&page))
}

/// What follows each occurrence of this text: the rest of a path, or a word.
fn words_after<'a>(page: &'a str, text: &'a str) -> impl Iterator<Item = String> + 'a {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '/');
    let word = move |rest: &str| rest.split(|c| !is_part(c)).next().unwrap().trim_end_matches(['.', '/']).to_owned();
    page.split(text).skip(1).map(word).filter(|word| !word.is_empty())
}

fn leads_somewhere(page: &Path, link: &str) -> bool {
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let target = if path.is_empty() { page.to_owned() } else { page.parent().unwrap().join(path) };
    let Some(anchor) = anchor else { return target.exists() };
    is_page(&target) && target.exists() && anchors(&read(&target)).iter().any(|heading| heading == anchor)
}

fn links(page: &str) -> Vec<String> {
    let lines: Vec<&str> = prose(page).collect();
    let prose: String = lines.join("\n").split("\n\n").map(without_code).collect();
    let targets = |opening: &str, closing: char| -> Vec<String> {
        prose.split(opening).skip(1).map(|rest| rest.split(closing).next().unwrap().to_owned()).collect()
    };
    let links = [targets("](", ')'), targets("src=\"", '"'), targets("srcset=\"", '"')].concat();
    links.into_iter().filter(|link| !link.contains("://")).collect()
}

/// The anchors that GitHub gives the headings of a page.
fn anchors(page: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for heading in prose(page).filter_map(heading) {
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let anchor = without_targets(heading).chars().filter(kept).collect::<String>();
        let anchor = anchor.trim().to_lowercase().replace(' ', "-");
        let earlier = anchors.iter().filter(|other| **other == anchor).count();
        anchors.push(if earlier == 0 { anchor } else { format!("{anchor}-{earlier}") });
    }
    anchors
}

fn without_code(paragraph: &str) -> String {
    paragraph.split('`').step_by(2).collect()
}

/// A heading without the targets of its links.
fn without_targets(heading: &str) -> String {
    let mut parts = heading.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once(')').map_or(part, |(_, rest)| rest))
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

fn read(page: &PathBuf) -> String {
    fs::read_to_string(page).unwrap()
}
