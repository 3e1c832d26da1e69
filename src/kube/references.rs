//! The ConfigMaps and Secrets that a pod refers to, by its own spec. The API server lets nobody change these fields of a
//! pod.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{CONFIG_MAPS, Resource, SECRETS};

/// The part of a pod's spec that refers to ConfigMaps and Secrets. Ephemeral containers do not count, as no successor
/// has them, and neither does what the kubelet or a driver reads for a pod, such as credentials of a registry.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct References {
    #[serde(deserialize_with = "referring")]
    volumes: Vec<Volume>,
    #[serde(deserialize_with = "referring")]
    containers: Vec<Container>,
    #[serde(deserialize_with = "referring")]
    init_containers: Vec<Container>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Volume {
    config_map: Option<NamedObject>,
    secret: Option<NamedObject>,
    projected: Option<Projected>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Projected {
    #[serde(deserialize_with = "referring")]
    sources: Vec<Reference>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    #[serde(deserialize_with = "referring")]
    env_from: Vec<Reference>,
    #[serde(deserialize_with = "referring")]
    env: Vec<Variable>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Variable {
    value_from: Option<Reference>,
}

/// A source of a projected volume, an element of `envFrom`, or a `valueFrom`: each has keys of its own.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Reference {
    #[serde(alias = "configMapRef", alias = "configMapKeyRef")]
    config_map: Option<NamedObject>,
    #[serde(alias = "secretRef", alias = "secretKeyRef")]
    secret: Option<NamedObject>,
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

/// A part of a spec, which may refer to something.
trait Part {
    fn named(&self) -> impl Iterator<Item = Referred<'_>>;
}

impl Part for Reference {
    fn named(&self) -> impl Iterator<Item = Referred<'_>> {
        named(self.config_map.as_ref(), self.secret.as_ref())
    }
}

impl Part for Volume {
    fn named(&self) -> impl Iterator<Item = Referred<'_>> {
        let projected = self.projected.iter().flat_map(|projected| &projected.sources).flat_map(Part::named);
        named(self.config_map.as_ref(), self.secret.as_ref()).chain(projected)
    }
}

impl Part for Variable {
    fn named(&self) -> impl Iterator<Item = Referred<'_>> {
        self.value_from.iter().flat_map(Part::named)
    }
}

impl Part for Container {
    fn named(&self) -> impl Iterator<Item = Referred<'_>> {
        self.env_from.iter().flat_map(Part::named).chain(self.env.iter().flat_map(Part::named))
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
        let containers = self.init_containers.iter().chain(&self.containers);
        self.volumes.iter().flat_map(Part::named).chain(containers.flat_map(Part::named))
    }
}

/// Decodes the elements of a list that refer to something. A pod may have a million others. The API server writes an
/// empty list of a projected volume as null.
fn referring<'de, D: Deserializer<'de>, T: Part + DeserializeOwned>(deserializer: D) -> Result<Vec<T>, D::Error> {
    struct Elements<T>(PhantomData<T>);

    impl<'de, T: Part + DeserializeOwned> Visitor<'de> for Elements<T> {
        type Value = Vec<T>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a list or null")
        }

        fn visit_unit<E>(self) -> Result<Vec<T>, E> {
            Ok(Vec::new())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
            let mut referring = Vec::new();
            while let Some(element) = elements.next_element::<T>()? {
                if element.named().next().is_some() {
                    referring.push(element);
                }
            }
            Ok(referring)
        }
    }

    deserializer.deserialize_any(Elements(PhantomData))
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
