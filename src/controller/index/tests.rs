use super::*;
use crate::kube::error::Cause;
use crate::kube::objects::Undecodable;
use serde_json::value::RawValue;

/// What a list or a watch says of a ConfigMonitor: its name, generation and the ConfigMap that it names.
fn monitor(name: &str, generation: i64, config_map: &str) -> ConfigMonitor {
    let text = format!(
        r#"{{"metadata":{{"name":"{name}","uid":"{name}","resourceVersion":"1","generation":{generation}}},
            "spec":{{"configMap":"{config_map}","podSelector":{{"app":"web"}}}}}}"#
    );
    serde_json::from_str(&text).unwrap()
}

fn config_map(name: &str, version: &str) -> MetadataOnly {
    let (namespace, resource_version) = (String::new(), version.into());
    MetadataOnly { metadata: Metadata { namespace, name: name.to_owned(), resource_version } }
}

fn undecodable<T>() -> Result<T, Undecodable> {
    Err(Undecodable { name: None, namespace: None, error: "of an unexpected shape".to_owned() })
}

/// An index that knows these ConfigMonitors, each with its ConfigMap.
fn index(monitors: &[(&str, &str)]) -> Index {
    let mut index = Index::default();
    for (name, config_map) in monitors {
        index.monitor(Event::Applied(Ok(monitor(name, 1, config_map))));
    }
    index
}

fn named(name: &str) -> SourceName {
    SourceName { kind: Kind::ConfigMap, name: name.into() }
}

fn bells(latest: &Latest) -> String {
    let bell = |bell: &Bell| match &bell.doorbell {
        Doorbell::Silent => "silent".to_owned(),
        Doorbell::At(version) => format!("at {version}"),
        Doorbell::Gone => "gone".to_owned(),
        Doorbell::Refused(_) => "refused".to_owned(),
    };
    let bells: Vec<String> = latest.sources.iter().map(bell).collect();
    if bells.is_empty() { "silent".to_owned() } else { bells.join(" and ") }
}

/// The changes in words.
fn told(changes: Vec<Change>) -> Vec<String> {
    let words = |change| match change {
        Change::Start(monitor, latest) => format!("start {}, {}", monitor.metadata.name, bells(&latest)),
        Change::Look(uid, latest) => format!("look {uid} of generation {}, {}", latest.generation, bells(&latest)),
        Change::Stop(uid) => format!("stop {uid}"),
    };
    let mut told: Vec<String> = changes.into_iter().map(words).collect();
    told.sort();
    told
}

impl Index {
    fn tell_monitor(&mut self, event: Event<ConfigMonitor>) -> Vec<String> {
        told(self.monitor(event))
    }

    fn tell_config_map(&mut self, event: Event<MetadataOnly>) -> Vec<String> {
        told(self.source(&Of::All(Kind::ConfigMap), event, Instant::now()))
    }

    /// A list of exactly these ConfigMaps.
    fn relist(&mut self, config_maps: &[(&str, &str)]) -> Vec<String> {
        let mut told = self.tell_config_map(Event::Reset);
        for (name, version) in config_maps {
            told.extend(self.tell_config_map(Event::Listed(Ok(config_map(name, version)))));
        }
        told.extend(self.tell_config_map(Event::Synced));
        told
    }
}

#[test]
fn a_monitor_is_started_looked_at_and_stopped() {
    let mut index = Index::default();
    assert_eq!(index.tell_monitor(Event::Applied(Ok(monitor("m", 1, "a")))), ["start m, silent"]);
    assert_eq!(index.tell_monitor(Event::Applied(Ok(monitor("m", 2, "a")))), ["look m of generation 2, silent"]);
    assert_eq!(index.tell_monitor(Event::Deleted(Ok(monitor("m", 2, "a")))), ["stop m"]);
    assert_eq!((index.len(), index.sources.len()), (0, 0));
    assert!(index.tell_monitor(Event::Deleted(Ok(monitor("m", 2, "a")))).is_empty());
}

#[test]
fn a_namesake_of_a_deleted_monitor_is_another_one() {
    let mut index = index(&[("m", "a")]);
    let mut namesake = monitor("m", 1, "a");
    namesake.metadata.uid = "m2".into();
    assert_eq!(index.tell_monitor(Event::Applied(Ok(namesake))), ["start m, silent"]);
    assert_eq!(index.tell_monitor(Event::Deleted(Ok(monitor("m", 1, "a")))), ["stop m"]);
    let told = index.tell_config_map(Event::Applied(Ok(config_map("a", "5"))));
    assert_eq!(told, ["look m2 of generation 1, at 5"]);
}

#[test]
fn a_config_map_rings_those_that_refer_to_it_and_no_others() {
    let mut index = index(&[("m1", "a"), ("m2", "a"), ("m3", "b")]);
    let told = index.tell_config_map(Event::Applied(Ok(config_map("a", "5"))));
    assert_eq!(told, ["look m1 of generation 1, at 5", "look m2 of generation 1, at 5"]);
    let told = index.tell_config_map(Event::Deleted(Ok(config_map("b", "6"))));
    assert_eq!(told, ["look m3 of generation 1, gone"]);
    let told = index.tell_config_map(Event::Applied(Ok(config_map("b", "7"))));
    assert_eq!(told, ["look m3 of generation 1, at 7"]);
}

#[test]
fn two_monitors_share_a_config_map_until_the_last_of_them_is_gone() {
    let mut index = index(&[("m1", "a"), ("m2", "a")]);
    index.tell_monitor(Event::Deleted(Ok(monitor("m1", 1, "a"))));
    let told = index.tell_config_map(Event::Applied(Ok(config_map("a", "5"))));
    assert_eq!(told, ["look m2 of generation 1, at 5"]);
    index.tell_monitor(Event::Deleted(Ok(monitor("m2", 1, "a"))));
    assert!(index.tell_config_map(Event::Applied(Ok(config_map("a", "6")))).is_empty());
    assert_eq!(index.sources.len(), 0);
}

#[test]
fn nothing_is_kept_of_config_maps_that_nobody_refers_to() {
    let mut index = index(&[("m", "a")]);
    index.tell_config_map(Event::Reset);
    for number in 0..100 {
        let name = format!("other-{number}");
        assert!(index.tell_config_map(Event::Listed(Ok(config_map(&name, "5")))).is_empty());
        assert!(index.tell_config_map(Event::Applied(Ok(config_map(&name, "6")))).is_empty());
        assert!(index.tell_config_map(Event::Deleted(Ok(config_map(&name, "7")))).is_empty());
    }
    assert_eq!((index.sources.len(), index.listed_sources.values().map(BTreeSet::len).sum()), (1, 0));
}

#[test]
fn the_same_version_rings_only_once() {
    let mut index = index(&[("m", "a")]);
    assert_eq!(index.tell_config_map(Event::Applied(Ok(config_map("a", "5")))).len(), 1);
    assert!(index.tell_config_map(Event::Applied(Ok(config_map("a", "5")))).is_empty());
    assert_eq!(index.tell_config_map(Event::Applied(Ok(config_map("a", "4")))).len(), 1, "versions have no order");
}

#[test]
fn an_unchanged_list_of_config_maps_rings_nobody() {
    let mut index = index(&[("m1", "a"), ("m2", "b")]);
    let told = index.relist(&[("a", "5"), ("b", "6"), ("c", "7")]);
    assert_eq!(told, ["look m1 of generation 1, at 5", "look m2 of generation 1, at 6"]);
    assert!(index.relist(&[("a", "5"), ("b", "6"), ("c", "8")]).is_empty());
}

#[test]
fn a_list_of_config_maps_tells_what_the_watch_has_missed() {
    let mut index = index(&[("m1", "a"), ("m2", "b")]);
    index.relist(&[("a", "5"), ("b", "6")]);
    assert_eq!(index.relist(&[("a", "9")]), ["look m1 of generation 1, at 9", "look m2 of generation 1, gone"]);
    assert!(index.relist(&[("a", "9")]).is_empty());
    assert_eq!(index.relist(&[("a", "9"), ("b", "10")]), ["look m2 of generation 1, at 10"]);
}

#[test]
fn an_unchanged_list_of_monitors_gives_their_keepers_the_goal_that_they_have() {
    let mut index = index(&[("m", "a")]);
    index.tell_config_map(Event::Applied(Ok(config_map("a", "5"))));
    let mut relist = || {
        index.monitor(Event::Reset);
        let changes = index.monitor(Event::Listed(Ok(monitor("m", 1, "a"))));
        assert!(matches!(changes[..], [Change::Look(..)]) && index.monitor(Event::Synced).is_empty());
        index.latest(&"m".into())
    };
    assert_eq!(relist(), relist());
}

#[test]
fn the_version_in_the_last_list_stays_the_goal_while_a_watch_tells_of_others() {
    let mut index = index(&[("m", "a")]);
    let listed = |index: &Index| index.latest(&"m".into()).unwrap().listed;
    assert_eq!(listed(&index), None);
    index.monitor(Event::Reset);
    index.monitor(Event::Listed(Ok(monitor("m", 1, "a"))));
    index.monitor(Event::Synced);
    let mut newer = monitor("m", 2, "a");
    newer.metadata.resource_version = "2".into();
    index.monitor(Event::Applied(Ok(newer)));
    assert_eq!(listed(&index), Some("1".into()));
}

#[test]
fn a_list_of_monitors_tells_which_are_gone() {
    let mut index = index(&[("m1", "a"), ("m2", "a"), ("m3", "b")]);
    index.tell_monitor(Event::Reset);
    index.tell_monitor(Event::Listed(Ok(monitor("m1", 1, "a"))));
    // A namesake of one that is gone must not start before that one has been told to end.
    assert!(index.tell_monitor(Event::Listed(Ok(monitor("m4", 1, "b")))).is_empty());
    let changes = index.monitor(Event::Synced);
    assert!(matches!(changes[..], [Change::Stop(_), Change::Stop(_), Change::Start(..)]), "{changes:?}");
    let told = index.tell_config_map(Event::Applied(Ok(config_map("b", "5"))));
    assert_eq!(told, ["look m4 of generation 1, at 5"]);
    assert!(index.tell_monitor(Event::Synced).is_empty());
}

#[test]
fn a_list_that_begins_anew_counts_from_its_last_beginning() {
    let mut index = index(&[("m1", "a"), ("m2", "a")]);
    index.tell_monitor(Event::Reset);
    index.tell_monitor(Event::Listed(Ok(monitor("m1", 1, "a"))));
    index.tell_monitor(Event::Reset);
    index.tell_monitor(Event::Listed(Ok(monitor("m2", 1, "a"))));
    assert_eq!(index.tell_monitor(Event::Synced), ["stop m1"]);
}

#[test]
fn a_list_with_an_undecodable_object_removes_nobody_and_the_next_one_does() {
    let mut index = index(&[("m1", "a"), ("m2", "b")]);
    index.relist(&[("a", "5"), ("b", "6")]);
    index.tell_monitor(Event::Reset);
    index.tell_monitor(Event::Listed(undecodable()));
    index.tell_monitor(Event::Listed(Ok(monitor("m1", 1, "a"))));
    assert!(index.tell_monitor(Event::Synced).is_empty());
    index.tell_config_map(Event::Reset);
    index.tell_config_map(Event::Listed(Ok(config_map("a", "5"))));
    index.tell_config_map(Event::Listed(undecodable()));
    assert!(index.tell_config_map(Event::Synced).is_empty());
    assert_eq!(index.relist(&[("a", "5")]), ["look m2 of generation 1, gone"]);
    index.tell_monitor(Event::Reset);
    assert_eq!(index.tell_monitor(Event::Synced), ["stop m1", "stop m2"]);
}

#[test]
fn an_undecodable_object_in_a_watch_changes_nothing() {
    let mut index = index(&[("m", "a")]);
    index.relist(&[("a", "5")]);
    assert!(index.tell_monitor(Event::Applied(undecodable())).is_empty());
    assert!(index.tell_monitor(Event::Deleted(undecodable())).is_empty());
    assert!(index.tell_config_map(Event::Applied(undecodable())).is_empty());
    assert!(index.tell_config_map(Event::Deleted(undecodable())).is_empty());
    assert_eq!(index.latest(&"m".into()).map(|latest| bells(&latest)), Some("at 5".to_owned()));
}

#[test]
fn an_edit_of_the_source_moves_the_reference() {
    let mut index = index(&[("m1", "a"), ("m2", "b")]);
    index.relist(&[("a", "5"), ("b", "6")]);
    let told = index.tell_monitor(Event::Applied(Ok(monitor("m1", 2, "b"))));
    assert_eq!(told, ["look m1 of generation 2, at 6"]);
    assert!(index.tell_config_map(Event::Applied(Ok(config_map("a", "7")))).is_empty());
    assert!(!index.sources.contains_key(&named("a")));
    let told = index.tell_config_map(Event::Applied(Ok(config_map("b", "8"))));
    assert_eq!(told, ["look m1 of generation 2, at 8", "look m2 of generation 1, at 8"]);
}

#[test]
fn any_of_its_sources_rings_for_a_monitor() {
    let both = |generation| {
        let mut both = monitor("m", generation, "a");
        let spec = r#"{"sources":[{"configMap":{"name":"b"}},{"configMap":{"name":"a"}}],"podSelector":{"app":"web"}}"#;
        both.spec = Some(RawValue::from_string(spec.to_owned()).unwrap());
        both
    };
    let mut index = Index::default();
    assert_eq!(index.tell_monitor(Event::Applied(Ok(both(1)))), ["start m, silent and silent"]);
    assert_eq!(
        index.relist(&[("a", "5")]),
        ["look m of generation 1, silent and at 5", "look m of generation 1, gone and at 5"]
    );
    let told = index.tell_config_map(Event::Applied(Ok(config_map("b", "6"))));
    assert_eq!(told, ["look m of generation 1, at 6 and at 5"]);
    let told = index.tell_monitor(Event::Applied(Ok(monitor("m", 2, "b"))));
    assert_eq!((told, index.sources.len()), (vec!["look m of generation 2, at 6".to_owned()], 1));
    assert_eq!(index.tell_monitor(Event::Applied(Ok(both(3)))), ["look m of generation 3, at 6 and silent"]);
    index.tell_monitor(Event::Deleted(Ok(both(3))));
    assert!(index.sources.is_empty());
}

#[test]
fn a_secret_is_not_the_config_map_of_its_name() {
    let mut monitor = monitor("m", 1, "a");
    let spec = r#"{"sources":[{"configMap":{"name":"a"}},{"secret":{"name":"a"}}],"podSelector":{"app":"web"}}"#;
    monitor.spec = Some(RawValue::from_string(spec.to_owned()).unwrap());
    let mut index = index(&[("other", "a")]);
    index.monitor(Event::Applied(Ok(monitor)));
    let secret = SourceName { kind: Kind::Secret, name: "a".into() };
    assert_eq!(index.secrets().collect::<Vec<_>>(), [&secret]);
    assert_eq!(
        index.relist(&[("a", "5")]),
        ["look m of generation 1, at 5 and silent", "look other of generation 1, at 5"]
    );
    let (of, now) = (Of::One(secret), Instant::now());
    let error = Error { request: "list secrets".to_owned(), cause: Cause::Forbidden("no".to_owned()) };
    assert_eq!(told(index.refused(&of, Some(&error))), ["look m of generation 1, at 5 and refused"]);
    assert!(index.refused(&of, Some(&error)).is_empty(), "that is known");
    let list = |index: &mut Index, secrets: &[(&str, &str)]| {
        let mut told = told(index.source(&of, Event::Reset, now));
        for (name, version) in secrets {
            told.extend(self::told(index.source(&of, Event::Listed(Ok(config_map(name, version))), now)));
        }
        told.extend(self::told(index.source(&of, Event::Synced, now)));
        told
    };
    let refused = "look m of generation 1, at 5 and refused";
    assert_eq!(list(&mut index, &[("a", "7")]), [refused], "it may be listed, and not watched");
    assert_eq!(told(index.refused(&of, None)), ["look m of generation 1, at 5 and at 7"]);
    assert_eq!(list(&mut index, &[]), ["look m of generation 1, at 5 and gone"], "and the ConfigMap is there");
}

#[test]
fn an_invalid_monitor_has_a_keeper_that_no_config_map_rings() {
    let mut index = Index::default();
    let mut invalid = monitor("m", 1, "a");
    invalid.spec = Some(RawValue::from_string(r#"{"configMap":"a","podSelector":{}}"#.to_owned()).unwrap());
    assert_eq!(index.tell_monitor(Event::Applied(Ok(invalid))), ["start m, silent"]);
    assert!(index.tell_config_map(Event::Applied(Ok(config_map("a", "5")))).is_empty());
    assert_eq!(index.tell_monitor(Event::Applied(Ok(monitor("m", 2, "a")))), ["look m of generation 2, silent"]);
    assert_eq!(index.tell_config_map(Event::Applied(Ok(config_map("a", "6")))).len(), 1);
}

#[test]
fn a_keeper_learns_whether_the_status_remembers_anything() {
    let mut index = index(&[("m", "a")]);
    let mut baselined = monitor("m", 1, "a");
    baselined.status = Some(
        RawValue::from_string(r#"{"sources":[{"kind":"ConfigMap","name":"a","hash":"sha256:1"}]}"#.to_owned()).unwrap(),
    );
    for (event, expected) in [(baselined, true), (monitor("m", 1, "a"), false)] {
        index.monitor(Event::Applied(Ok(event)));
        assert_eq!(index.latest(&"m".into()).map(|latest| latest.baselined), Some(expected));
    }
}

#[test]
fn a_monitor_that_comes_in_the_middle_of_a_list_does_not_take_its_config_map_for_gone() {
    for moves in [false, true] {
        let mut index = if moves { index(&[("m", "b")]) } else { Index::default() };
        index.tell_config_map(Event::Reset);
        index.tell_config_map(Event::Listed(Ok(config_map("a", "5"))));
        index.tell_config_map(Event::Listed(Ok(config_map("b", "6"))));
        index.tell_monitor(Event::Applied(Ok(monitor("m", 2, "a"))));
        assert!(index.tell_config_map(Event::Synced).is_empty());
        assert_eq!(index.tell_config_map(Event::Deleted(Ok(config_map("a", "7")))), ["look m of generation 2, gone"]);
    }
}

#[test]

fn a_monitor_that_comes_in_the_middle_of_a_list_hides_from_nobody_that_a_config_map_is_gone() {
    let mut index = index(&[("m1", "a")]);
    index.relist(&[("a", "5")]);
    index.tell_config_map(Event::Reset);
    index.tell_monitor(Event::Applied(Ok(monitor("m2", 1, "a"))));
    let told = index.tell_config_map(Event::Synced);
    assert_eq!(told, ["look m1 of generation 1, gone", "look m2 of generation 1, gone"]);
}
