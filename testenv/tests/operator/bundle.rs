//! The bundle for the Operator Lifecycle Manager: the checks of `operator-sdk bundle validate` and of its scorecard,
//! and the API server's answers to its objects.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::{Value, json};
use testenv::bundle::{files, manifests};
use testenv::fixture::{create_namespace, file};
use testenv::pages::Section;

use crate::reader::Reader;
use crate::test_namespace::control_plane;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const SERVICE_VERSION: &str = "bundle/manifests/configmonitor-operator.clusterserviceversion.yaml";
const CRD: &str = "bundle/manifests/configmonitors.magalix.com.crd.yaml";
/// The values that the tools accept for `capabilities` and `categories`, as far as they fit here.
const CAPABILITIES: [&str; 5] = ["Basic Install", "Seamless Upgrades", "Full Lifecycle", "Deep Insights", "Auto Pilot"];
const CATEGORIES: [&str; 3] = ["Application Runtime", "Developer Tools", "Integration & Delivery"];

/// The committed bundle as JSON: the ClusterServiceVersion, the CRD and the annotations.
struct Bundle {
    objects: Value,
    annotations: String,
}

impl Bundle {
    async fn committed() -> Self {
        let kubectl = control_plane().await.kubectl().program();
        let mut objects = json!({});
        for (name, path) in [("csv", SERVICE_VERSION), ("crd", CRD)] {
            let mut read = manifests(kubectl, ["-f", &file(path)]).await.unwrap();
            assert_eq!(read.len(), 1, "{path}");
            objects[name] = read.remove(0);
        }
        Self { objects, annotations: fs::read_to_string(file("bundle/metadata/annotations.yaml")).unwrap() }
    }

    fn at(&self, pointer: &str) -> &Value {
        self.objects.pointer(pointer).unwrap_or(&Value::Null)
    }

    fn text(&self, pointer: &str) -> &str {
        self.at(pointer).as_str().unwrap_or_default()
    }

    fn list(&self, pointer: &str) -> &[Value] {
        self.at(pointer).as_array().map_or(&[], Vec::as_slice)
    }

    fn annotation(&self, name: &str) -> &str {
        let name = format!("  operators.operatorframework.io.bundle.{name}: ");
        self.annotations.lines().find_map(|line| line.strip_prefix(&*name)).unwrap_or_default()
    }

    fn examples(&self) -> Vec<Value> {
        serde_json::from_str(self.text("/csv/metadata/annotations/alm-examples")).unwrap_or_default()
    }

    /// Returns the schema of a part of the owned kind.
    fn schema(&self, part: &str) -> &Value {
        self.at(&format!("/crd/spec/versions/0/schema/openAPIV3Schema/properties/{part}"))
    }

    /// Returns what the tools would find wrong.
    fn faults(&self) -> Vec<&'static str> {
        let mut faults = Vec::new();
        let mut check = |fault: &'static str, is_fine: bool| {
            if !is_fine {
                faults.push(fault);
            }
        };
        let (package, version) = (self.annotation("package.v1"), self.text("/csv/spec/version"));
        check("name", self.text("/csv/metadata/name") == format!("{package}.v{version}"));
        check("version", version == VERSION);
        for (fault, pointer) in [
            ("displayName", "/csv/spec/displayName"),
            ("description", "/csv/spec/description"),
            ("provider", "/csv/spec/provider/name"),
            ("maintainer", "/csv/spec/maintainers/0/name"),
            ("keywords", "/csv/spec/keywords/0"),
        ] {
            check(fault, !self.text(pointer).trim().is_empty());
        }
        for maintainer in self.list("/csv/spec/maintainers") {
            let email = maintainer["email"].as_str().and_then(|email| email.split_once('@'));
            check("email", email.is_some_and(|(user, host)| !user.is_empty() && host.contains('.')));
        }
        let numbers: Vec<_> = self.text("/csv/spec/minKubeVersion").split('.').map(str::parse::<u32>).collect();
        check("minKubeVersion", numbers.len() == 3 && numbers.iter().all(Result::is_ok));
        check("capabilities", CAPABILITIES.contains(&self.text("/csv/metadata/annotations/capabilities")));
        let mut categories = self.text("/csv/metadata/annotations/categories").split(',');
        check("categories", categories.all(|category| CATEGORIES.contains(&category)));

        let modes = self.list("/csv/spec/installModes");
        let types: BTreeSet<&str> = modes.iter().filter_map(|mode| mode["type"].as_str()).collect();
        let is_all = |mode: &&Value| mode["type"] == "AllNamespaces";
        check("installModes", types.len() == modes.len() && modes.len() == 4);
        check("AllNamespaces", modes.iter().all(|mode| mode["supported"] == json!(is_all(&mode))));

        for (name, value) in
            [("mediatype.v1", "registry+v1"), ("manifests.v1", "manifests/"), ("metadata.v1", "metadata/")]
        {
            check("annotations", self.annotation(name) == value);
        }
        let (channels, default) = (self.annotation("channels.v1"), self.annotation("channel.default.v1"));
        check("channels", !default.is_empty() && channels.split(',').any(|channel| channel == default));
        check("channel names", channels.split(',').all(|name| ["candidate", "fast", "stable"].contains(&name)));

        let owned = self.list("/csv/spec/customresourcedefinitions/owned");
        let described: Vec<_> =
            owned.iter().map(|owned| [&owned["name"], &owned["version"], &owned["kind"]].map(Value::clone)).collect();
        let versions = self.list("/crd/spec/versions").iter();
        let defined = versions
            .map(|version| [self.at("/crd/metadata/name"), &version["name"], self.at("/crd/spec/names/kind")])
            .map(|names| names.map(Value::clone));
        check("owned CRD", described == defined.collect::<Vec<_>>() && !described.is_empty());
        check("schema", ["spec", "status"].iter().all(|part| self.schema(part)["properties"].is_object()));
        check("resources", owned.iter().all(|owned| owned["resources"][0].is_object()));
        for resource in owned.iter().filter_map(|owned| owned["resources"].as_array()).flatten() {
            check("resources", ["kind", "name", "version"].iter().all(|field| resource[field].is_string()));
        }
        for (part, descriptors) in [("spec", "specDescriptors"), ("status", "statusDescriptors")] {
            for descriptor in owned.iter().filter_map(|owned| owned[descriptors].as_array()).flatten() {
                let names = descriptor["path"].as_str().unwrap_or_default().split('.');
                let schema = names.fold(self.schema(part), |schema, name| &schema["properties"][name]);
                check("descriptor path", schema.is_object());
                check("descriptor text", descriptor["displayName"].is_string());
                check("descriptor text", !schema.is_object() || descriptor["description"] == schema["description"]);
            }
            check("descriptors", owned.iter().all(|owned| owned[descriptors][0].is_object()));
        }

        let examples = self.examples();
        check("examples", !examples.is_empty());
        for example in &examples {
            let spec = example["spec"].as_object().into_iter().flatten();
            let paths = owned[0]["specDescriptors"].as_array().into_iter().flatten();
            let paths: Vec<_> = paths.map(|descriptor| &descriptor["path"]).collect();
            let group =
                format!("{}/{}", self.text("/crd/spec/group"), owned[0]["version"].as_str().unwrap_or_default());
            check("example kind", example["apiVersion"] == group && example["kind"] == owned[0]["kind"]);
            check("example spec", spec.clone().next().is_some());
            for (field, _) in spec {
                check("example field", self.schema("spec")["properties"][field].is_object());
                check("example descriptor", paths.iter().any(|path| *path == field));
            }
        }

        check("strategy", self.text("/csv/spec/install/strategy") == "deployment");
        let deployments = self.list("/csv/spec/install/spec/deployments");
        let permissions = self.list("/csv/spec/install/spec/clusterPermissions");
        check("deployments", !deployments.is_empty());
        let pods = || deployments.iter().map(|deployment| &deployment["spec"]["template"]["spec"]);
        let accounts: Vec<_> = pods().map(|pod| &pod["serviceAccountName"]).collect();
        let granted: Vec<_> = permissions.iter().map(|permission| &permission["serviceAccountName"]).collect();
        check("service accounts", accounts == granted && accounts.iter().all(|account| account.is_string()));
        check("rules", permissions.iter().all(|permission| permission["rules"][0].is_object()));
        let containers =
            ["initContainers", "containers"].map(|list| pods().filter_map(move |pod| pod[list].as_array()));
        let containers: Vec<_> = containers.into_iter().flatten().flatten().collect();
        for container in &containers {
            let requests = &container["resources"]["requests"];
            check("requests", requests["cpu"].is_string() && requests["memory"].is_string());
        }
        let images: Vec<_> = containers.iter().map(|container| &container["image"]).collect();
        let related = self.list("/csv/spec/relatedImages").iter().map(|image| &image["image"]);
        check("images", related.collect::<Vec<_>>() == images);
        check("images", images.contains(&self.at("/csv/metadata/annotations/containerImage")));
        faults
    }
}

#[tokio::test]
async fn the_committed_bundle_matches_the_manifests() {
    let kubectl = control_plane().await.kubectl().program();
    let made = files(kubectl, None).await.unwrap();
    for (name, text) in &made {
        let committed = fs::read_to_string(file(&format!("bundle/{name}"))).unwrap_or_default();
        assert!(committed == *text, "bundle/{name} is out of date: please run `make bundle`");
    }
    let folders = ["", "manifests", "metadata"].map(|folder| fs::read_dir(file(&format!("bundle/{folder}"))).unwrap());
    let committed = folders.into_iter().flatten().filter(|entry| entry.as_ref().unwrap().path().is_file());
    assert_eq!(committed.count(), made.len());
    assert_eq!(made["manifests/configmonitors.magalix.com.crd.yaml"], fs::read_to_string(file("crd.yml")).unwrap());
    let labels = made["Dockerfile"].lines().filter_map(|line| line.strip_prefix("LABEL "));
    let annotations = made["metadata/annotations.yaml"].lines().skip(1);
    assert!(labels.eq(annotations.map(|line| line.trim().replace(": ", "="))));
}

#[tokio::test]
async fn a_bundle_for_another_image_differs_only_in_the_image() {
    let kubectl = control_plane().await.kubectl().program();
    let (image, shipped) = ("registry.example.com/shop/operator:7", format!("configmonitor-operator:{VERSION}"));
    let (made, with_image) = (files(kubectl, None).await.unwrap(), files(kubectl, Some(image)).await.unwrap());
    let count = |files: &BTreeMap<_, String>, text: &str| -> usize {
        files.values().map(|file| file.matches(&format!(": {text}\n")).count()).sum()
    };
    assert_eq!([count(&made, &shipped), count(&with_image, &shipped)], [3, 0]);
    for (name, text) in made {
        assert_eq!(with_image[name], text.replace(&format!(": {shipped}\n"), &format!(": {image}\n")));
    }
}

#[tokio::test]
async fn the_documents_of_the_bundle_pass_every_check_and_each_check_can_fail() {
    let mut bundle = Bundle::committed().await;
    assert_eq!(bundle.faults(), [""; 0]);
    let owned = "/csv/spec/customresourcedefinitions/owned/0";
    let in_owned = |rest: &str| format!("{owned}/{rest}");
    let example = |change: fn(&mut Value)| {
        let mut examples = Value::from(bundle.examples());
        change(&mut examples[0]);
        json!(examples.to_string())
    };
    let [foreign, bare, odd] = [
        example(|example| example["kind"] = json!("Other")),
        example(|example| example["spec"] = json!({})),
        example(|example| example["spec"]["odd"] = json!(1)),
    ];
    let examples = "/csv/metadata/annotations/alm-examples".to_owned();
    let csv = |rest: &str| format!("/csv/{rest}");
    for (pointer, value, expected) in [
        (csv("metadata/name"), json!("other.v0.1.0"), &["name"][..]),
        (csv("spec/version"), json!("9.9.9"), &["name", "version"]),
        (csv("spec/displayName"), json!(""), &["displayName"]),
        (csv("spec/description"), json!(" "), &["description"]),
        (csv("spec/provider/name"), json!(null), &["provider"]),
        (csv("spec/maintainers/0/name"), json!(""), &["maintainer"]),
        (csv("spec/maintainers/0/email"), json!("nobody"), &["email"]),
        (csv("spec/keywords"), json!([]), &["keywords"]),
        (csv("spec/minKubeVersion"), json!("v1.30"), &["minKubeVersion"]),
        (csv("metadata/annotations/capabilities"), json!("All"), &["capabilities"]),
        (csv("metadata/annotations/categories"), json!("Other"), &["categories"]),
        (csv("spec/installModes/0/type"), json!("MultiNamespace"), &["installModes"]),
        (csv("spec/installModes/0/supported"), json!(true), &["AllNamespaces"]),
        (in_owned("kind"), json!("Other"), &["owned CRD", "example kind"]),
        ("/crd/metadata/name".to_owned(), json!("others.magalix.com"), &["owned CRD"]),
        (in_owned("resources"), json!([]), &["resources"]),
        (in_owned("resources/0/name"), json!(null), &["resources"]),
        (in_owned("specDescriptors/0/path"), json!("odd"), &["descriptor path"]),
        (in_owned("specDescriptors/0/displayName"), json!(null), &["descriptor text"]),
        (in_owned("statusDescriptors/0/path"), json!("restart.odd"), &["descriptor path"]),
        (in_owned("statusDescriptors/0/description"), json!(""), &["descriptor text"]),
        (in_owned("statusDescriptors"), json!([]), &["descriptors"]),
        (examples.clone(), json!("[{"), &["examples"]),
        (examples.clone(), foreign, &["example kind"]),
        (examples.clone(), bare, &["example spec"]),
        (examples, odd, &["example field", "example descriptor"]),
        (csv("spec/install/strategy"), json!("other"), &["strategy"]),
        (csv("spec/install/spec/clusterPermissions/0/serviceAccountName"), json!("default"), &["service accounts"]),
        (csv("spec/install/spec/clusterPermissions/0/rules"), json!([]), &["rules"]),
        (csv("spec/install/spec/deployments/0/spec/template/spec/containers/0/resources"), json!({}), &["requests"]),
        (csv("spec/install/spec/deployments/0/spec/template/spec/containers/0/image"), json!("x"), &["images"; 2]),
    ] {
        let before = std::mem::replace(bundle.objects.pointer_mut(&pointer).expect(&pointer), value);
        assert_eq!(bundle.faults(), expected, "{pointer}");
        *bundle.objects.pointer_mut(&pointer).unwrap() = before;
    }
    let status = "/crd/spec/versions/0/schema/openAPIV3Schema/properties/status";
    *bundle.objects.pointer_mut(status).unwrap() = json!({});
    assert!(bundle.faults().contains(&"schema"));
    bundle = Bundle::committed().await;
    for (text, other, expected) in [
        ("package.v1: configmonitor-operator", "package.v1: other", "name"),
        ("registry+v1", "helm+v3", "annotations"),
        ("default.v1: stable", "default.v1: fast", "channels"),
        ("channels.v1: stable", "channels.v1: stable,alpha", "channel names"),
    ] {
        let annotations = bundle.annotations.replace(text, other);
        assert_eq!(Bundle { objects: bundle.objects.clone(), annotations }.faults(), [expected]);
    }
}

#[tokio::test]
async fn the_api_server_accepts_the_objects_of_the_bundle() {
    let control_plane = control_plane().await;
    let (bundle, client) = (Bundle::committed().await, control_plane.client());
    let namespace = create_namespace(control_plane, json!({})).await;
    let strict = "?dryRun=All&fieldValidation=Strict";
    for example in bundle.examples() {
        let path = format!("/apis/magalix.com/v1/namespaces/{namespace}/configmonitors{strict}");
        client.create(&path, &example).await.unwrap().ok().unwrap();
    }
    for permission in bundle.list("/csv/spec/install/spec/clusterPermissions") {
        let role = json!({"metadata": {"name": "of-the-bundle"}, "rules": permission["rules"]});
        let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles{strict}");
        client.create(&path, &role).await.unwrap().ok().unwrap();
    }
    for deployment in bundle.list("/csv/spec/install/spec/deployments") {
        let metadata = json!({"name": deployment["name"], "labels": deployment["label"]});
        let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments{strict}");
        let object = json!({"metadata": metadata, "spec": deployment["spec"]});
        client.create(&path, &object).await.unwrap().ok().unwrap();
    }
}

/// The commands of the page that need no program of the Operator Lifecycle Manager.
#[tokio::test]
async fn whoever_follows_the_page_gives_the_rights_that_the_bundle_does_not_grant_and_has_a_channel_with_this_version()
{
    let control_plane = control_plane().await;
    let mut reader = Reader::new(control_plane, "default").await;
    reader.follow(Section::of("docs/olm.md", "Build the bundle and a catalog").unwrap().steps()).await;
    let catalog = fs::read_to_string(reader.file("catalog/index.yaml")).unwrap();
    let name = Bundle::committed().await.text("/csv/metadata/name").to_owned();
    assert!(catalog.ends_with(&format!("\nentries:\n  - name: {name}\n")), "{catalog}");

    reader.follow(Section::of("docs/olm.md", "Rights that the bundle does not grant").unwrap().steps()).await;
    let operator = "system:serviceaccount:configmonitor-system:configmonitor-operator";
    reader.run(&format!("kubectl auth can-i watch secrets --all-namespaces --as {operator}")).await.unwrap();
}
