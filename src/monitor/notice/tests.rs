use super::*;
use crate::docs::{REFERENCE, code, table};
use crate::monitor::content::Kind;
use crate::monitor::exempt::Exempt;
use crate::monitor::reason::Reason;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::LazyLock;
use strum::VariantArray;

static SOURCES: LazyLock<[SourceName; 1]> =
    LazyLock::new(|| [SourceName { kind: Kind::ConfigMap, name: "settings".into() }]);

fn server(second: i64) -> ServerTime {
    ServerTime::from_second(second)
}

fn begun() -> Begun {
    Begun { deleted: 3, ..Begun::new(1, server(100), "app=web".to_owned(), 3) }
}

fn notice(note: &str, sources: Vec<SourceName>) -> Notice {
    Notice { warning: true, line: "line", reason: "Reason", note: note.to_owned(), sources }
}

fn events(notice: &Notice, sources: &[(&SourceName, &Uid)]) -> Vec<Value> {
    notice.events("m", &"m-uid".into(), sources, "default", server(0))
}

fn settings() -> Uid {
    "settings-uid".into()
}

#[test]
fn the_reference_has_each_event_with_its_type_and_where_it_is_emitted() {
    let skipped = [Skipped { pod: "a".into(), why: Exempt::Completes }];
    let [source] = &*SOURCES;
    let mut notices = vec![started(1, "s", Why::Changed, 1)];
    notices.extend(super::skipped("s", &skipped));
    notices.push(completed("s", Why::Changed, vec![source.clone()], &begun(), 0, server(200)));
    notices.push(refused("no"));
    let row = |Notice { reason, warning, sources, .. }: &Notice| {
        let r#type = if *warning { "Warning" } else { "Normal" };
        [code(reason), r#type.to_owned(), if sources.is_empty() { "" } else { "yes" }.to_owned()]
    };
    let warnings = Reason::VARIANTS.iter().filter(|reason| reason.is_warning());
    let warnings = warnings.map(|reason| [code(reason.word()), "Warning".to_owned(), String::new()]);
    let rows = table(REFERENCE, "## Events");
    let documented: BTreeSet<_> = rows.iter().map(|row| [0, 1, 2].map(|cell| row[cell].to_owned())).collect();
    assert_eq!(documented, notices.iter().map(row).chain(warnings).collect());
    assert_eq!(documented.len(), rows.len(), "an Event is documented twice");
}

#[test]
fn a_restart_is_announced_and_so_is_every_pod_that_it_skips() {
    let whys = [Exempt::Own, Exempt::Mirror, Exempt::Bare, Exempt::Completes];
    let pods = whys.map(|why| Skipped { pod: format!("{why:?}").into(), why });
    let began = started(7, "ConfigMap/settings", Why::Changed, 2);
    let note = "restart 7: new content of ConfigMap/settings: restarting 2 pods";
    assert_eq!((began.warning, &*began.note), (false, note));
    let note = "restart 7: reverted content of c: restarting 2 pods that may have read other content";
    assert_eq!(started(7, "c", Why::Reverted, 2).note, note);
    let which = "Own (the operator's own), Mirror (static), Bare (no controller), Completes (runs to completion)";
    let left = skipped("ConfigMap/settings", &pods).expect("a notice");
    assert_eq!((left.warning, left.note), (true, format!("not restarted for ConfigMap/settings: {which}")));
    assert_eq!(skipped("ConfigMap/settings", &[]), None);
}

#[test]
fn the_end_of_a_restart_is_reported_at_the_config_map_too() {
    let ends = |begun: Begun, terminating| {
        completed("ConfigMap/settings", Why::Changed, SOURCES.to_vec(), &begun, terminating, server(142))
    };
    let over = ends(begun(), 0);
    assert!(over.sources == *SOURCES && !over.warning);
    assert!(over.note.contains("3 pods") && over.note.contains("43 s"), "{}", over.note);
    let shared = ends(Begun { deleted: 1, ..begun() }, 0);
    let expected = "restarted 1 of 3 pods (somebody else deleted the other 2, or they terminated) for ConfigMap/settings within 43 s";
    assert!(shared.note.ends_with(expected), "{}", shared.note);
    let over = ends(begun(), 2);
    assert!(over.note.ends_with("; still terminating, and not waited for: 2 pods"), "{}", over.note);
}

#[test]
fn an_event_is_as_the_api_takes_it() {
    let event = &events(&notice("what happened", Vec::new()), &[])[0];
    assert_eq!((&event["apiVersion"], &event["kind"]), (&json!("events.k8s.io/v1"), &json!("Event")));
    assert_eq!(event["eventTime"], "1970-01-01T00:00:00.000000Z");
    assert_eq!(event["metadata"], json!({ "generateName": "m-", "namespace": "default" }));
    let regarding = json!({
        "apiVersion": "magalix.com/v1", "kind": "ConfigMonitor", "namespace": "default", "name": "m", "uid": "m-uid",
    });
    assert_eq!(
        (&event["regarding"], &event["type"], &event["note"]),
        (&regarding, &json!("Warning"), &json!("what happened"))
    );
    for field in ["action", "reason", "reportingController", "reportingInstance"] {
        assert!(event[field].as_str().is_some_and(|text| !text.is_empty() && text.len() <= 128), "{field}");
    }
    assert_eq!(events(&Notice { warning: false, ..notice("", Vec::new()) }, &[])[0]["type"], "Normal");
}

#[test]
fn few_controllers_of_pods_get_an_event_and_it_names_the_config_monitor() {
    let owner = |number| {
        let name = format!("web-{number}");
        Arc::new(Owner { api_version: "apps/v1".into(), kind: "Deployment".into(), uid: (&*name).into(), name })
    };
    let restarting = notice("restarting 3 pods", Vec::new());
    let at = |owners| restarting.events_at(&(0..owners).map(owner).collect(), "shop", "default", server(0));
    let events = at(1);
    let regarding = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": "web-0", "uid": "web-0",
    });
    assert_eq!(events[0]["regarding"], regarding);
    assert_eq!(events[0]["note"], "ConfigMonitor shop: restarting 3 pods");
    let events = at(MOST_CONTROLLERS + 2);
    assert_eq!(events.len(), MOST_CONTROLLERS);
    let note = "ConfigMonitor shop: restarting 3 pods; 2 more controllers of its pods get no Event";
    assert!(events.iter().all(|event| event["note"] == note), "{events:?}");
}

#[test]
fn an_event_at_a_source_names_its_uid_and_without_one_there_is_none() {
    let (settings, other) = (settings(), SourceName { kind: Kind::ConfigMap, name: "other".into() });
    let known = [(&SOURCES[0], &settings), (&other, &settings)];
    let names = |notice: &Notice, known: &[(&SourceName, &Uid)]| -> Vec<Value> {
        events(notice, known).into_iter().map(|event| event["regarding"]["name"].clone()).collect()
    };
    let both = notice("", SOURCES.to_vec());
    let regarding = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "settings", "uid": "settings-uid",
    });
    assert_eq!(events(&both, &known)[1]["regarding"], regarding);
    assert_eq!((names(&both, &known).len(), names(&both, &[])), (2, vec![json!("m")]));
    let secret = SourceName { kind: Kind::Secret, name: "settings".into() };
    assert_eq!(
        names(&notice("", vec![secret.clone()]), &[(&secret, &settings)]),
        ["m"],
        "it would reveal the key of its hash"
    );
    assert_eq!(names(&notice("", Vec::new()), &known), ["m"]);
}

proptest! {
    #[test]
    fn a_note_is_cut_to_what_the_api_takes_and_no_shorter(text in "[aé€𝄞]{0,1200}") {
        let note = events(&notice(&text, Vec::new()), &[])[0]["note"].as_str().unwrap().to_owned();
        prop_assert!(text.starts_with(&note) && note.len() <= 1024);
        prop_assert!(note.len() == text.len() || note.len() > 1024 - 4);
    }
}
