//! The ConfigMaps and Secrets that a pod refers to, by its own spec. The API server lets nobody change these fields of a
//! pod.

use serde::Deserialize;

use super::{CONFIG_MAPS, Resource, SECRETS};

/// The part of a pod's spec that refers to ConfigMaps and Secrets. Ephemeral containers do not count, as no successor
/// has them, and neither does what the kubelet or a driver reads for a pod, such as credentials of a registry.
///
/// A pod may have a hundred thousand elements that refer to nothing. What an element refers to is boxed, so that these
/// take no more memory than their JSON.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct References {
    volumes: Vec<Volume>,
    containers: Vec<Container>,
    init_containers: Vec<Container>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Volume {
    config_map: Option<Box<NamedObject>>,
    secret: Option<Box<NamedObject>>,
    projected: Option<Box<Projected>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Projected {
    // The API server writes an empty list as null.
    sources: Option<Vec<Reference>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    env_from: Vec<Reference>,
    env: Vec<Variable>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Variable {
    value_from: Option<Box<Reference>>,
}

/// A source of a projected volume, an element of `envFrom`, or a `valueFrom`: each has keys of its own.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Reference {
    #[serde(alias = "configMapRef", alias = "configMapKeyRef")]
    config_map: Option<Box<NamedObject>>,
    #[serde(alias = "secretRef", alias = "secretKeyRef")]
    secret: Option<Box<NamedObject>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedObject {
    // A volume has another key.
    #[serde(alias = "secretName")]
    name: String,
    optional: Option<bool>,
    /// The key of a `valueFrom`.
    key: Option<String>,
    /// The keys in a volume. Empty: all.
    items: Vec<Item>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Item {
    key: String,
}

/// An object to which a pod refers.
pub struct Referred<'a> {
    /// The kind of the object.
    pub resource: Resource,
    /// Its name.
    pub name: &'a str,
    /// Whether the kubelet starts the pod without the object.
    pub is_optional: bool,
    /// The keys that the pod reads. `None`: all.
    pub keys: Option<Vec<&'a str>>,
}

impl Reference {
    fn named(&self) -> impl Iterator<Item = Referred<'_>> {
        named(self.config_map.as_deref(), self.secret.as_deref())
    }
}

fn named<'a>(
    config_map: Option<&'a NamedObject>,
    secret: Option<&'a NamedObject>,
) -> impl Iterator<Item = Referred<'a>> + use<'a> {
    let both = [(CONFIG_MAPS, config_map), (SECRETS, secret)].into_iter();
    both.filter_map(|(resource, named)| {
        let NamedObject { name, optional, key, items } = named?;
        let keys: Vec<&str> = items.iter().map(|item| &*item.key).chain(key.as_deref()).collect();
        let keys = (!keys.is_empty()).then_some(keys);
        Some(Referred { resource, name, is_optional: optional.unwrap_or(false), keys })
    })
}

impl References {
    /// Returns each object that is referred to. An object may be returned more than once.
    pub fn iter(&self) -> impl Iterator<Item = Referred<'_>> {
        let mounted =
            self.volumes.iter().flat_map(|volume| named(volume.config_map.as_deref(), volume.secret.as_deref()));
        let projected = self.volumes.iter().filter_map(|volume| volume.projected.as_ref()?.sources.as_ref()).flatten();
        let containers = self.init_containers.iter().chain(&self.containers);
        let of_containers = containers.flat_map(|Container { env_from, env }| {
            env_from.iter().chain(env.iter().filter_map(|variable| variable.value_from.as_deref()))
        });
        mounted.chain(projected.chain(of_containers).flat_map(Reference::named))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::*;

    fn references(spec: Value) -> BTreeSet<String> {
        let references: References = serde_json::from_value(spec).expect("a pod's spec");
        let with_keys = |Referred { resource, name, keys, .. }: Referred<'_>| {
            format!("{}/{name}{}", resource.plural, keys.map_or(String::new(), |keys| format!(":{}", keys.join("+"))))
        };
        references.iter().map(with_keys).collect()
    }

    #[test]
    fn volumes_and_the_environment_of_containers_refer() {
        let both = json!([
            {"configMap": {"name": "a", "optional": true}, "secret": {"name": "b"}}, {"downwardAPI": {}},
            {"serviceAccountToken": {"path": "token"}}, {"clusterTrustBundle": {"name": "no"}},
            {"podCertificate": {"signerName": "no"}}
        ]);
        for (spec, expected) in [
            (
                json!({"volumes": [{"name": "v", "configMap": {"name": "a", "items": [{"key": "k"}, {"key": "l"}]}}]}),
                "configmaps/a:k+l",
            ),
            (json!({"volumes": [{"name": "v", "configMap": {"name": "a", "items": []}}]}), "configmaps/a"),
            (json!({"volumes": [{"name": "v", "secret": {"secretName": "a", "optional": true}}]}), "secrets/a"),
            (json!({"volumes": [{"name": "v", "projected": {"sources": both}}]}), "configmaps/a secrets/b"),
            (
                json!({"volumes": [{"name": "v", "projected": {"sources": null}}, {"name": "w", "configMap": {"name": "a"}}]}),
                "configmaps/a",
            ),
            (
                json!({"containers": [{"envFrom": [{"configMapRef": {"name": "a"}}, {"secretRef": {"name": "b"}}]}]}),
                "configmaps/a secrets/b",
            ),
            (
                json!({"initContainers": [{"env": [
                    {"name": "A", "value": "no"}, {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "k"}}},
                    {"name": "C", "valueFrom": {"secretKeyRef": {"name": "b", "key": "k"}}}
                ]}]}),
                "configmaps/a:k secrets/b:k",
            ),
        ] {
            let expected: BTreeSet<String> = expected.split(' ').map(str::to_owned).collect();
            assert_eq!(references(spec.clone()), expected, "{spec}");
        }
    }

    #[test]
    fn what_refers_to_nothing_takes_no_more_memory_than_its_json() {
        assert!(size_of::<Variable>() <= r#"{"name":"A"}"#.len());
        assert!(size_of::<Reference>() <= r#"{"downwardAPI":{}}"#.len());
        assert!(size_of::<Volume>() <= r#"{"name":"a","emptyDir":{}}"#.len());
    }

    #[test]
    fn what_is_no_part_of_the_containers_of_a_successor_does_not_refer() {
        let by_driver = json!([
            {"csi": {"driver": "d", "nodePublishSecretRef": {"name": "no"}}}, {"azureFile": {"secretName": "no"}},
            {"cephfs": {"secretRef": {"name": "no"}}}, {"rbd": {"secretRef": {"name": "no"}}},
            {"iscsi": {"secretRef": {"name": "no"}}}, {"flexVolume": {"secretRef": {"name": "no"}}},
            {"downwardAPI": {"items": []}}, {"emptyDir": {}}
        ]);
        for spec in [
            json!({"volumes": by_driver}),
            json!({"imagePullSecrets": [{"name": "no"}]}),
            json!({"ephemeralContainers": [{"envFrom": [{"configMapRef": {"name": "no"}}]}]}),
            json!({"containers": [{"env": [{"name": "A", "valueFrom": {"fileKeyRef": {"key": "no", "path": "p", "volumeName": "v"}}}]}]}),
            json!({"containers": [{"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}]}),
            json!({}),
        ] {
            assert_eq!(references(spec.clone()), BTreeSet::new(), "{spec}");
        }
    }
}
