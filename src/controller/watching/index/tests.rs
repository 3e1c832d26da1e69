use super::*;
use crate::kube::error::Cause;
use crate::kube::objects::{Metadata, Undecodable};
use crate::kube::{Action, CONFIG_MAPS, PODS, Resource, SECRETS};
use crate::monitor::content::Kind;
use serde_json::value::RawValue;

/// A ConfigMonitor as a list or a watch shows it.
fn monitor(name: &str, generation: i64, config_map: &str) -> ConfigMonitor {
    of_sources(name, generation, &format!(r#""configMap":"{config_map}""#))
}

/// A ConfigMonitor of which these fields of the spec name the sources.
fn of_sources(name: &str, generation: i64, sources: &str) -> ConfigMonitor {
    let text = format!(
        r#"{{"metadata":{{"name":"{name}","uid":"{name}","resourceVersion":"1","generation":{generation}}},
            "spec":{{{sources},"podSelector":{{"app":"web"}}}}}}"#
    );
    serde_json::from_str(&text).unwrap()
}

fn config_map(name: &str, version: &str) -> MetadataOnly {
    let (namespace, resource_version) = (String::new(), version.into());
    MetadataOnly { metadata: Metadata { namespace, name: name.to_owned(), resource_version } }
}

fn no_right(resource: Resource) -> Error {
    Action::new("list", resource).failed(Cause::Forbidden("no".to_owned()))
}

fn undecodable<T>() -> Result<T, Undecodable> {
    Err(Undecodable { name: None, namespace: None, error: "of an unexpected shape".to_owned() })
}

/// An index with these ConfigMonitors, each with its ConfigMap.
fn index(monitors: &[(&str, &str)]) -> Index {
    let mut index = Index::default();
    for (name, config_map) in monitors {
        index.handle_monitor(Event::Applied(Ok(monitor(name, 1, config_map))));
    }
    index
}

fn named(name: &str) -> SourceName {
    SourceName { kind: Kind::ConfigMap, name: name.into() }
}

fn bells(latest: &Latest) -> String {
    let bell = |bell: &Arc<SourceBell>| match &bell.doorbell {
        Doorbell::Silent => "silent".to_owned(),
        Doorbell::At(version) => format!("at {}", version.as_str()),
        Doorbell::Gone => "gone".to_owned(),
    };
    if latest.no_config_maps.is_some() {
        return "refused".to_owned();
    }
    let bells: Vec<String> = latest.sources.iter().map(bell).collect();
    if bells.is_empty() { "silent".to_owned() } else { bells.join(" and ") }
}

/// The changes as text.
fn words(changes: Vec<Instruction>) -> Vec<String> {
    let word = |change| match change {
        Instruction::Start((name, _), _, latest) => format!("start {name}, {}", bells(&latest)),
        Instruction::Notify(uid, latest) => {
            format!("notify {} of generation {}, {}", uid.as_str(), latest.generation, bells(&latest))
        }
        Instruction::Stop(uid) => format!("stop {}", uid.as_str()),
        Instruction::LookAfter => "look after".to_owned(),
    };
    let mut changes: Vec<String> = changes.into_iter().map(word).collect();
    changes.sort();
    changes
}

impl Index {
    fn monitor_changes(&mut self, event: Event<ConfigMonitor>) -> Vec<String> {
        words(self.handle_monitor(event))
    }

    fn config_map_changes(&mut self, event: Event<MetadataOnly>) -> Vec<String> {
        words(self.handle_source(Kind::ConfigMap, event, Instant::now()))
    }

    /// Lists exactly these ConfigMaps, and returns the changes.
    fn relist(&mut self, config_maps: &[(&str, &str)]) -> Vec<String> {
        let mut changes = self.config_map_changes(Event::Reset);
        for (name, version) in config_maps {
            changes.extend(self.config_map_changes(Event::Listed(Ok(config_map(name, version)))));
        }
        changes.extend(self.config_map_changes(Event::Synced));
        changes
    }

    /// Lists no pod of this selector, and returns the changes.
    fn list_pods(&mut self, selector: &Arc<str>, at: Instant) -> Vec<String> {
        assert_eq!(self.handle_pods(selector, (Event::Reset, false), None, at).len(), 0);
        words(self.handle_pods(selector, (Event::Synced, false), None, at))
    }
}

#[test]
fn a_monitor_is_started_notified_and_stopped() {
    let mut index = Index::default();
    assert_eq!(index.monitor_changes(Event::Applied(Ok(monitor("m", 1, "a")))), ["start m, silent"]);
    assert_eq!(index.monitor_changes(Event::Applied(Ok(monitor("m", 2, "a")))), ["notify m of generation 2, silent"]);
    assert_eq!(index.monitor_changes(Event::Deleted(Ok(monitor("m", 2, "a")))), ["stop m"]);
    assert_eq!((index.len(), index.sources.len()), (0, 0));
    assert!(index.monitor_changes(Event::Deleted(Ok(monitor("m", 2, "a")))).is_empty());
}

#[test]
fn a_namesake_of_a_deleted_monitor_is_another_one() {
    let mut index = index(&[("m", "a")]);
    let mut namesake = monitor("m", 1, "a");
    namesake.metadata.uid = "m2".into();
    assert_eq!(index.monitor_changes(Event::Applied(Ok(namesake))), ["start m, silent"]);
    assert_eq!(index.monitor_changes(Event::Deleted(Ok(monitor("m", 1, "a")))), ["stop m"]);
    let changes = index.config_map_changes(Event::Applied(Ok(config_map("a", "5"))));
    assert_eq!(changes, ["notify m2 of generation 1, at 5"]);
}

#[test]
fn a_config_map_rings_those_that_refer_to_it_and_no_others() {
    let mut index = index(&[("m1", "a"), ("m2", "a"), ("m3", "b")]);
    let changes = index.config_map_changes(Event::Applied(Ok(config_map("a", "5"))));
    assert_eq!(changes, ["notify m1 of generation 1, at 5", "notify m2 of generation 1, at 5"]);
    let changes = index.config_map_changes(Event::Deleted(Ok(config_map("b", "6"))));
    assert_eq!(changes, ["notify m3 of generation 1, gone"]);
    let changes = index.config_map_changes(Event::Applied(Ok(config_map("b", "7"))));
    assert_eq!(changes, ["notify m3 of generation 1, at 7"]);
}

#[test]
fn two_monitors_share_a_config_map_until_the_last_of_them_is_gone() {
    let mut index = index(&[("m1", "a"), ("m2", "a")]);
    index.monitor_changes(Event::Deleted(Ok(monitor("m1", 1, "a"))));
    let changes = index.config_map_changes(Event::Applied(Ok(config_map("a", "5"))));
    assert_eq!(changes, ["notify m2 of generation 1, at 5"]);
    index.monitor_changes(Event::Deleted(Ok(monitor("m2", 1, "a"))));
    assert!(index.config_map_changes(Event::Applied(Ok(config_map("a", "6")))).is_empty());
    assert_eq!(index.sources.len(), 0);
}

#[test]
fn nothing_is_stored_about_config_maps_that_no_monitor_refers_to() {
    let mut index = index(&[("m", "a")]);
    index.config_map_changes(Event::Reset);
    for number in 0..100 {
        let name = format!("other-{number}");
        assert!(index.config_map_changes(Event::Listed(Ok(config_map(&name, "5")))).is_empty());
        assert!(index.config_map_changes(Event::Applied(Ok(config_map(&name, "6")))).is_empty());
        assert!(index.config_map_changes(Event::Deleted(Ok(config_map(&name, "7")))).is_empty());
    }
    assert_eq!(index.sources.len(), 1);
}

#[test]
fn the_same_version_rings_only_once() {
    let mut index = index(&[("m", "a")]);
    assert_eq!(index.config_map_changes(Event::Applied(Ok(config_map("a", "5")))).len(), 1);
    assert!(index.config_map_changes(Event::Applied(Ok(config_map("a", "5")))).is_empty());
    assert_eq!(index.config_map_changes(Event::Applied(Ok(config_map("a", "4")))).len(), 1, "versions have no order");
}

#[test]
fn an_unchanged_list_of_config_maps_rings_nobody() {
    let mut index = index(&[("m1", "a"), ("m2", "b")]);
    let changes = index.relist(&[("a", "5"), ("b", "6"), ("c", "7")]);
    assert_eq!(changes, ["notify m1 of generation 1, at 5", "notify m2 of generation 1, at 6"]);
    assert!(index.relist(&[("a", "5"), ("b", "6"), ("c", "8")]).is_empty());
}

#[test]
fn a_list_of_config_maps_shows_what_the_watch_has_missed() {
    let mut index = index(&[("m1", "a"), ("m2", "b")]);
    index.relist(&[("a", "5"), ("b", "6")]);
    assert_eq!(index.relist(&[("a", "9")]), ["notify m1 of generation 1, at 9", "notify m2 of generation 1, gone"]);
    assert_eq!(index.relist(&[("a", "9")]), ["notify m2 of generation 1, gone"], "it may have been read meanwhile");
    assert_eq!(index.relist(&[("a", "9"), ("b", "10")]), ["notify m2 of generation 1, at 10"]);
}

#[test]
fn an_unchanged_list_of_monitors_leaves_the_latest_value_of_their_keepers_unchanged() {
    let mut index = index(&[("m", "a")]);
    index.config_map_changes(Event::Applied(Ok(config_map("a", "5"))));
    let mut relist = || {
        index.handle_monitor(Event::Reset);
        let changes = index.handle_monitor(Event::Listed(Ok(monitor("m", 1, "a"))));
        assert!(matches!(changes[..], [Instruction::Notify(..)]) && index.handle_monitor(Event::Synced).is_empty());
        index.latest(&"m".into())
    };
    assert_eq!(relist(), relist());
}

#[test]
fn the_latest_value_has_the_version_of_the_last_list_whatever_the_watch_shows() {
    let mut index = index(&[("m", "a")]);
    let listed = |index: &Index| index.latest(&"m".into()).unwrap().listed;
    assert_eq!(listed(&index), None);
    index.handle_monitor(Event::Reset);
    index.handle_monitor(Event::Listed(Ok(monitor("m", 1, "a"))));
    index.handle_monitor(Event::Synced);
    let mut newer = monitor("m", 2, "a");
    newer.metadata.resource_version = "2".into();
    index.handle_monitor(Event::Applied(Ok(newer)));
    assert_eq!(listed(&index), Some("1".into()));
}

#[test]
fn a_list_of_monitors_shows_which_are_deleted() {
    let mut index = index(&[("m1", "a"), ("m2", "a"), ("m3", "b")]);
    index.monitor_changes(Event::Reset);
    index.monitor_changes(Event::Listed(Ok(monitor("m1", 1, "a"))));
    // A ConfigMonitor with the name of a deleted one must not start before the keeper of the deleted one is stopped.
    assert!(index.monitor_changes(Event::Listed(Ok(monitor("m4", 1, "b")))).is_empty());
    let changes = index.handle_monitor(Event::Synced);
    assert!(matches!(changes[..], [Instruction::Stop(_), Instruction::Stop(_), Instruction::Start(..)]), "{changes:?}");
    let changes = index.config_map_changes(Event::Applied(Ok(config_map("b", "5"))));
    assert_eq!(changes, ["notify m4 of generation 1, at 5"]);
    assert!(index.monitor_changes(Event::Synced).is_empty());
}

#[test]
fn a_list_that_begins_again_forgets_what_it_has_shown() {
    let mut index = index(&[("m1", "a"), ("m2", "a")]);
    index.monitor_changes(Event::Reset);
    index.monitor_changes(Event::Listed(Ok(monitor("m1", 1, "a"))));
    index.monitor_changes(Event::Reset);
    index.monitor_changes(Event::Listed(Ok(monitor("m2", 1, "a"))));
    assert_eq!(index.monitor_changes(Event::Synced), ["stop m1"]);
}

#[test]
fn a_list_with_an_undecodable_object_removes_nothing_and_the_next_list_does() {
    let mut index = index(&[("m1", "a"), ("m2", "b")]);
    index.relist(&[("a", "5"), ("b", "6")]);
    index.monitor_changes(Event::Reset);
    index.monitor_changes(Event::Listed(undecodable()));
    index.monitor_changes(Event::Listed(Ok(monitor("m1", 1, "a"))));
    assert!(index.monitor_changes(Event::Synced).is_empty());
    index.config_map_changes(Event::Reset);
    index.config_map_changes(Event::Listed(Ok(config_map("a", "5"))));
    index.config_map_changes(Event::Listed(undecodable()));
    assert!(index.config_map_changes(Event::Synced).is_empty());
    assert_eq!(index.relist(&[("a", "5")]), ["notify m2 of generation 1, gone"]);
    index.monitor_changes(Event::Reset);
    assert_eq!(index.monitor_changes(Event::Synced), ["stop m1", "stop m2"]);
}

#[test]
fn an_undecodable_object_in_a_watch_changes_nothing() {
    let mut index = index(&[("m", "a")]);
    index.relist(&[("a", "5")]);
    assert!(index.monitor_changes(Event::Applied(undecodable())).is_empty());
    assert!(index.monitor_changes(Event::Deleted(undecodable())).is_empty());
    assert!(index.config_map_changes(Event::Applied(undecodable())).is_empty());
    assert!(index.config_map_changes(Event::Deleted(undecodable())).is_empty());
    assert_eq!(index.latest(&"m".into()).map(|latest| bells(&latest)), Some("at 5".to_owned()));
}

#[test]
fn an_edit_of_the_source_moves_the_reference() {
    let mut index = index(&[("m1", "a"), ("m2", "b")]);
    index.relist(&[("a", "5"), ("b", "6")]);
    let changes = index.monitor_changes(Event::Applied(Ok(monitor("m1", 2, "b"))));
    assert_eq!(changes, ["notify m1 of generation 2, at 6"]);
    assert!(index.config_map_changes(Event::Applied(Ok(config_map("a", "7")))).is_empty());
    assert!(!index.sources.contains_key(&named("a")));
    let changes = index.config_map_changes(Event::Applied(Ok(config_map("b", "8"))));
    assert_eq!(changes, ["notify m1 of generation 2, at 8", "notify m2 of generation 1, at 8"]);
}

#[test]
fn any_of_its_sources_rings_for_a_monitor() {
    let both = |generation| {
        of_sources("m", generation, r#""sources":[{"configMap":{"name":"b"}},{"configMap":{"name":"a"}}]"#)
    };
    let mut index = Index::default();
    assert_eq!(index.monitor_changes(Event::Applied(Ok(both(1)))), ["start m, silent and silent"]);
    assert_eq!(
        index.relist(&[("a", "5")]),
        ["notify m of generation 1, silent and at 5", "notify m of generation 1, gone and at 5"]
    );
    let changes = index.config_map_changes(Event::Applied(Ok(config_map("b", "6"))));
    assert_eq!(changes, ["notify m of generation 1, at 6 and at 5"]);
    let changes = index.monitor_changes(Event::Applied(Ok(monitor("m", 2, "b"))));
    assert_eq!((changes, index.sources.len()), (vec!["notify m of generation 2, at 6".to_owned()], 1));
    assert_eq!(index.monitor_changes(Event::Applied(Ok(both(3)))), ["notify m of generation 3, at 6 and silent"]);
    index.monitor_changes(Event::Deleted(Ok(both(3))));
    assert!(index.sources.is_empty());
}

#[test]
fn a_secret_is_not_the_config_map_of_its_name() {
    let both = of_sources("m", 1, r#""sources":[{"configMap":{"name":"a"}},{"secret":{"name":"a"}}]"#);
    let mut index = index(&[("other", "a")]);
    index.handle_monitor(Event::Applied(Ok(both)));
    let secret = SourceName { kind: Kind::Secret, name: "a".into() };
    assert_eq!(index.named_secrets().collect::<Vec<_>>(), [&secret]);
    assert_eq!(
        index.relist(&[("a", "5")]),
        ["notify m of generation 1, at 5 and silent", "notify other of generation 1, at 5"]
    );
    let mut of_secrets = |event| words(index.handle_source(Kind::Secret, event, Instant::now()));
    of_secrets(Event::Reset);
    assert_eq!(of_secrets(Event::Listed(Ok(config_map("a", "7")))), ["notify m of generation 1, at 5 and at 7"]);
    assert!(of_secrets(Event::Synced).is_empty());
    of_secrets(Event::Reset);
    let gone = ["notify m of generation 1, at 5 and gone"];
    assert_eq!(of_secrets(Event::Synced), gone, "the ConfigMap of the same name exists");
}

#[test]
fn a_refusal_and_its_end_are_told_once() {
    let mut index = index(&[("m", "a")]);
    let mut changes = |event| index.config_map_changes(event);
    assert_eq!(changes(Event::Refused(no_right(CONFIG_MAPS))), ["notify m of generation 1, refused"]);
    assert!(changes(Event::Refused(no_right(CONFIG_MAPS))).is_empty());
    changes(Event::Reset);
    let shown = changes(Event::Listed(Ok(config_map("a", "7"))));
    assert_eq!(shown, ["notify m of generation 1, refused"], "the right to list is not the right to watch");
    assert_eq!(changes(Event::Recovered), ["notify m of generation 1, at 7"]);
    assert!(changes(Event::Recovered).is_empty());
}

#[test]
fn each_poll_rings() {
    let mut index = Index::default();
    index.handle_monitor(Event::Applied(Ok(of_sources("m", 1, r#""sources":[{"secret":{"name":"a"}}]"#))));
    let secret = SourceName { kind: Kind::Secret, name: "a".into() };
    let start = Instant::now();
    let rung = |index: &Index| index.latest(&"m".into()).and_then(|latest| latest.sources[0].rung);
    for at in [start, start + Duration::from_secs(60)] {
        assert_eq!(words(index.poll(&secret, at)), ["notify m of generation 1, silent"]);
        assert_eq!(rung(&index), Some(at));
    }
}

#[test]
fn an_invalid_monitor_has_a_keeper_that_no_config_map_rings() {
    let mut index = Index::default();
    let mut invalid = monitor("m", 1, "a");
    invalid.spec = Some(RawValue::from_string(r#"{"configMap":"a","podSelector":{}}"#.to_owned()).unwrap());
    assert_eq!(index.monitor_changes(Event::Applied(Ok(invalid))), ["start m, silent"]);
    assert!(index.config_map_changes(Event::Applied(Ok(config_map("a", "5")))).is_empty());
    assert_eq!(index.monitor_changes(Event::Applied(Ok(monitor("m", 2, "a")))), ["notify m of generation 2, silent"]);
    assert_eq!(index.config_map_changes(Event::Applied(Ok(config_map("a", "6")))).len(), 1);
}

#[test]
fn the_latest_value_says_whether_the_status_has_a_baseline() {
    let mut index = index(&[("m", "a")]);
    let mut baselined = monitor("m", 1, "a");
    baselined.status = Some(
        RawValue::from_string(r#"{"sources":[{"kind":"ConfigMap","name":"a","hash":"sha256:1"}]}"#.to_owned()).unwrap(),
    );
    for (event, expected) in [(baselined, true), (monitor("m", 1, "a"), false)] {
        index.handle_monitor(Event::Applied(Ok(event)));
        assert_eq!(index.latest(&"m".into()).map(|latest| latest.baselined), Some(expected));
    }
}

#[test]
fn a_monitor_created_during_a_list_does_not_take_its_config_map_for_deleted() {
    for moves in [false, true] {
        let mut index = if moves { index(&[("m", "b")]) } else { Index::default() };
        index.config_map_changes(Event::Reset);
        index.config_map_changes(Event::Listed(Ok(config_map("a", "5"))));
        index.config_map_changes(Event::Listed(Ok(config_map("b", "6"))));
        index.monitor_changes(Event::Applied(Ok(monitor("m", 2, "a"))));
        assert!(index.config_map_changes(Event::Synced).is_empty());
        assert_eq!(
            index.config_map_changes(Event::Deleted(Ok(config_map("a", "7")))),
            ["notify m of generation 2, gone"]
        );
    }
}

#[test]
fn a_monitor_created_during_a_list_does_not_hide_that_a_config_map_is_deleted() {
    let mut index = index(&[("m1", "a")]);
    index.relist(&[("a", "5")]);
    index.config_map_changes(Event::Reset);
    index.monitor_changes(Event::Applied(Ok(monitor("m2", 1, "a"))));
    let changes = index.config_map_changes(Event::Synced);
    assert_eq!(changes, ["notify m1 of generation 1, gone", "notify m2 of generation 1, gone"]);
}

/// A pod of a ReplicaSet that refers to these ConfigMaps.
fn referring(config_maps: &[&str]) -> Event<WholePod> {
    let from: Vec<String> =
        config_maps.iter().map(|name| format!(r#"{{"configMapRef":{{"name":"{name}"}}}}"#)).collect();
    let owner = r#"{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"o","controller":true}"#;
    let text = format!(
        r#"{{"metadata":{{"name":"p","uid":"p","resourceVersion":"1","creationTimestamp":"2026-11-21T10:00:00Z",
            "ownerReferences":[{owner}]}},"spec":{{"containers":[{{"envFrom":[{}]}}]}}}}"#,
        from.join(",")
    );
    Event::Applied(Ok(serde_json::from_str(&text).unwrap()))
}

/// A ConfigMonitor that names a ConfigMap, and discovers others.
fn discovering(name: &str, generation: i64) -> ConfigMonitor {
    of_sources(name, generation, r#""configMap":"a","discover":{}"#)
}

#[test]
fn what_pods_refer_to_rings_the_monitors_that_select_them_once_the_pods_are_listed() {
    let mut index = Index::default();
    let selector: Arc<str> = "app=web".into();
    for name in ["m", "n"] {
        index.handle_monitor(Event::Applied(Ok(discovering(name, 1))));
    }
    assert_eq!((index.take_watches_changed(), index.selectors().collect::<Vec<_>>()), (true, vec![&selector]));
    let mut pods = |event| {
        let changes = words(index.handle_pods(&selector, (event, false), None, Instant::now()));
        (changes.len(), changes.first().cloned())
    };
    let listed = |event| match event {
        Event::Applied(pod) => Event::Listed(pod),
        other => other,
    };
    assert_eq!(pods(referring(&["b"])).0, 0, "there is no list yet");
    assert_eq!((pods(Event::Reset).0, pods(listed(referring(&["b"]))).0), (0, 0));
    assert_eq!(pods(Event::Synced), (2, Some("notify m of generation 1, silent and silent".to_owned())));
    assert_eq!(pods(referring(&["b"])).0, 0, "nothing is new");
    assert_eq!(pods(referring(&["c"])).1, Some("notify m of generation 1, silent and silent and silent".to_owned()));
    assert_eq!(index.config_map_changes(Event::Applied(Ok(config_map("c", "5")))).len(), 2);
    let mut known = discovering("m", 1);
    let status = r#"{"sources":[{"kind":"ConfigMap","name":"c","discovered":true}]}"#;
    known.status = Some(RawValue::from_string(status.to_owned()).unwrap());
    index.handle_monitor(Event::Applied(Ok(known)));
    let changes = index.list_pods(&selector, Instant::now());
    let remembered = "notify m of generation 1, silent and at 5";
    assert_eq!(changes, [remembered, "notify n of generation 1, silent"], "no pod refers to anything any more");
    index.handle_monitor(Event::Deleted(Ok(discovering("m", 1))));
    index.handle_monitor(Event::Applied(Ok(monitor("n", 2, "a"))));
    index.handle_monitor(Event::Applied(Ok(discovering("n", 3))));
    let is_listed = |latest: Latest| latest.found.is_some();
    assert_eq!(index.latest(&"n".into()).map(is_listed), Some(true), "the watch has not been closed");
    index.handle_monitor(Event::Applied(Ok(monitor("n", 4, "a"))));
    assert_eq!((index.take_watches_changed(), index.selectors().count(), index.sources.len()), (true, 0, 1));
}

/// As after a rollout with another name of the ConfigMap: what refers to it has been replaced.
#[test]
fn pods_are_listed_anew_some_time_after_a_discovered_source_is_gone() {
    let (mut index, start) = (Index::default(), Instant::now());
    let (selector, seconds): (Arc<str>, _) = ("app=web".into(), |seconds| start + Duration::from_secs(seconds));
    index.handle_monitor(Event::Applied(Ok(discovering("m", 1))));
    index.list_pods(&selector, start);
    index.handle_pods(&selector, (referring(&["b"]), false), None, start);
    let gone = |name: &str| Event::Deleted(Ok(config_map(name, "5")));
    index.handle_source(Kind::ConfigMap, gone("a"), seconds(1));
    assert_eq!(index.relist_due(), None, "it is named");
    for (at, due) in [(2, 10), (30, 31)] {
        index.handle_source(Kind::ConfigMap, gone("b"), seconds(at));
        assert_eq!(index.relist_due(), Some(seconds(due)));
        let awaits = |index: &Index| index.latest(&"m".into()).is_some_and(|latest| latest.awaits_pods);
        assert_eq!((awaits(&index), index.begin_relists(seconds(due - 1)).len()), (true, 0));
        assert_eq!(index.begin_relists(seconds(due)), [Arc::clone(&selector)]);
        assert_eq!((index.list_pods(&selector, seconds(due)).len(), awaits(&index)), (1, false));
        index.handle_pods(&selector, (referring(&["b"]), false), None, seconds(due));
    }
}

/// What the pod has referred to may be in the way of others.
#[test]
fn pods_are_listed_anew_once_a_pod_is_gone_if_its_sources_take_all_places() {
    let (start, selector): (_, Arc<str>) = (Instant::now(), "app=web".into());
    for (count, due) in [(127, None), (128, Some(start + RELIST_PAUSE))] {
        let mut index = Index::default();
        index.handle_monitor(Event::Applied(Ok(discovering("m", 1))));
        index.list_pods(&selector, start);
        let names: Vec<String> = (0..count).map(|number| format!("n{number}")).collect();
        let pod = referring(&names.iter().map(|name| &**name).collect::<Vec<_>>());
        let Event::Applied(Ok(gone)) = pod.clone() else { panic!("another event") };
        index.handle_pods(&selector, (pod, false), None, start);
        index.handle_pods(&selector, (Event::Deleted(Ok(gone)), false), None, start);
        assert_eq!(index.relist_due(), due, "{count} sources");
    }
}

#[test]
fn a_right_on_pods_or_secrets_that_is_missing_is_told_to_those_that_discover() {
    let mut index = index(&[("other", "a")]);
    index.handle_monitor(Event::Applied(Ok(discovering("m", 1))));
    let selector: Arc<str> = "app=web".into();
    let of_pods = |index: &mut Index, event| words(index.handle_pods(&selector, (event, false), None, Instant::now()));
    let of_secrets = |index: &mut Index, event| words(index.handle_source(Kind::Secret, event, Instant::now()));
    let told = |index: &Index, name: &str| {
        let latest = index.latest(&name.into()).unwrap();
        (latest.found.is_some_and(|found| found.is_err()), latest.no_secrets.is_some())
    };
    for (expected, times) in [((true, false), 1), ((true, false), 0)] {
        assert_eq!(of_pods(&mut index, Event::Refused(no_right(PODS))).len(), times);
        assert_eq!((told(&index, "m"), told(&index, "other")), (expected, (false, false)));
    }
    assert_eq!(of_pods(&mut index, Event::Recovered).len(), 1);
    // The keepers of others drop what is equal.
    for times in [2, 0] {
        assert_eq!(of_secrets(&mut index, Event::Refused(no_right(SECRETS))).len(), times);
        assert_eq!((told(&index, "m"), told(&index, "other")), ((false, true), (false, false)));
    }
    assert_eq!(of_secrets(&mut index, Event::Recovered).len(), 2);
}

#[test]
fn a_poll_ends_a_refusal_and_a_list_of_a_watch_does_not() {
    let mut index = Index::default();
    let selector: Arc<str> = "app=web".into();
    index.handle_monitor(Event::Applied(Ok(discovering("m", 1))));
    let told = |index: &Index| {
        let found = index.latest(&"m".into()).and_then(|latest| latest.found);
        found.map(|found| found.map(drop).map_err(|_| ()))
    };
    let mut take = |event, is_polled| {
        let changes = index.handle_pods(&selector, (event, is_polled), None, Instant::now());
        (changes.len(), told(&index))
    };
    for (is_polled, listed) in [(true, (1, Some(Ok(())))), (false, (0, Some(Err(()))))] {
        take(Event::Reset, is_polled);
        assert_eq!(take(Event::Refused(no_right(PODS)), is_polled), (1, Some(Err(()))));
        take(Event::Reset, is_polled);
        assert_eq!(take(Event::Synced, is_polled), listed);
    }
    assert_eq!(take(Event::Recovered, false), (1, Some(Ok(()))), "the watch was refused, and not its list");
    take(Event::Reset, true);
    assert_eq!(take(Event::Synced, true), (0, Some(Ok(()))));
}
