//! Writes the SBOMs of a release, in CycloneDX, to stdout. The same input always gives the same bytes.
//!
//! `sbom binary BOM TREE BINARY NAME=VALUE...` makes the SBOM of a binary from the output of cargo-cyclonedx (BOM), and
//! fails unless that names exactly the packages of `cargo tree` (TREE). The properties say what else the binary is made
//! of.
//!
//! `sbom image DIGEST BOM...` makes the SBOM of the image that holds these binaries.
//!
//! `sbom chart CHART BOM IMAGE...` makes the SBOM of the chart's package, which names these images. BOM is the SBOM of
//! the operator's own image.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use testenv::hex;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let bom = match &*arguments {
        ["binary", bom, tree, binary, properties @ ..] => of_binary(bom, tree, Path::new(binary), properties),
        ["image", digest, boms @ ..] if !boms.is_empty() => of_image(digest, boms),
        ["chart", chart, bom, images @ ..] if !images.is_empty() => of_chart(Path::new(chart), bom, images),
        _ => Err(anyhow::anyhow!(
            "usage: sbom binary BOM TREE BINARY NAME=VALUE... | sbom image DIGEST BOM... | sbom chart CHART BOM IMAGE..."
        )),
    };
    match bom {
        Ok(bom) => {
            println!("{bom:#}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn of_binary(bom: &str, tree: &str, binary: &Path, properties: &[&str]) -> Result<Value> {
    let tree = fs::read_to_string(tree).with_context(|| format!("cannot read {tree}"))?;
    let (file, sha256) = name_and_hash(binary)?;
    let properties = properties.iter().map(|property| property.split_once('=').context("a property is NAME=VALUE"));
    binary_bom(read(bom)?, &tree, file, &sha256, &properties.collect::<Result<Vec<_>>>()?)
}

fn of_chart(chart: &Path, bom: &str, images: &[&str]) -> Result<Value> {
    let (file, sha256) = name_and_hash(chart)?;
    chart_bom(file, &sha256, &read(bom)?, images)
}

fn name_and_hash(file: &Path) -> Result<(&str, String)> {
    let content = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let name = file.file_name().and_then(|name| name.to_str()).context("the file has no name")?;
    Ok((name, hex(&Sha256::digest(content))))
}

fn of_image(digest: &str, boms: &[&str]) -> Result<Value> {
    image_bom(digest, &boms.iter().map(|bom| read(bom)).collect::<Result<Vec<_>>>()?)
}

fn read(path: &str) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    serde_json::from_str(&text).with_context(|| format!("{path} is no JSON"))
}

/// Puts the binary in the place of the package, whose reference is a path of the machine that built it.
fn binary_bom(mut bom: Value, tree: &str, file: &str, sha256: &str, properties: &[(&str, &str)]) -> Result<Value> {
    let package = string(&bom["metadata"]["component"], "bom-ref")?.to_owned();
    let (name, version) = name_and_version(&bom["metadata"]["component"])?;
    let locked = packages(tree)?;
    let mut named: BTreeSet<_> = array(&bom["components"])?.iter().map(name_and_version).collect::<Result<_>>()?;
    named.insert((name.clone(), version.clone()));
    let missing: Vec<_> = locked.difference(&named).collect();
    let unknown: Vec<_> = named.difference(&locked).collect();
    ensure!(
        missing.is_empty() && unknown.is_empty(),
        "the SBOM of {file} lacks {missing:?} of Cargo.lock, and has {unknown:?} besides"
    );

    let properties: Vec<_> = properties.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    bom["metadata"]["component"] = json!({
        "type": "application",
        "bom-ref": file,
        "name": name,
        "version": version,
        "licenses": bom["metadata"]["component"]["licenses"],
        "description": bom["metadata"]["component"]["description"],
        "hashes": [{"alg": "SHA-256", "content": sha256}],
        "properties": properties,
    });
    for dependency in bom["dependencies"].as_array_mut().into_iter().flatten() {
        if dependency["ref"] == *package {
            dependency["ref"] = json!(file);
        }
    }
    ensure!(!bom.to_string().contains("file://"), "the SBOM of {file} names a path of this machine");
    Ok(bom)
}

/// Merges the SBOMs of the binaries: what they have in common appears once.
fn image_bom(digest: &str, boms: &[Value]) -> Result<Value> {
    let mut components = BTreeMap::new();
    let mut dependencies = BTreeMap::<String, BTreeSet<String>>::new();
    let mut binaries = BTreeSet::new();
    for bom in boms {
        let binary = &bom["metadata"]["component"];
        binaries.insert(string(binary, "bom-ref")?.to_owned());
        for component in [binary].into_iter().chain(array(&bom["components"])?) {
            let reference = string(component, "bom-ref")?.to_owned();
            let other = components.insert(reference.clone(), component.clone());
            ensure!(other.is_none_or(|other| other == *component), "the SBOMs differ about {reference}");
        }
        for dependency in array(&bom["dependencies"])? {
            let entry = dependencies.entry(string(dependency, "ref")?.to_owned()).or_default();
            let on = dependency["dependsOn"].as_array().into_iter().flatten();
            entry.extend(on.filter_map(Value::as_str).map(str::to_owned));
        }
    }
    let Some(first) = boms.first() else { bail!("an image holds at least one binary") };
    let (name, version) = name_and_version(&first["metadata"]["component"])?;
    let image = format!("{name}@{digest}");
    dependencies.insert(image.clone(), binaries);
    let dependencies: Vec<_> =
        dependencies.into_iter().map(|(reference, on)| json!({"ref": reference, "dependsOn": on})).collect();
    let component = json!({
        "type": "container",
        "bom-ref": image,
        "name": name,
        "version": version,
        "purl": format!("pkg:oci/{name}@{}?tag={version}", digest.replace(':', "%3A")),
        "licenses": first["metadata"]["component"]["licenses"],
    });
    Ok(made_like(first, &component, &components.into_values().collect::<Vec<_>>(), &dependencies))
}

/// Refers to the operator's image by its SBOM, and names the others.
fn chart_bom(file: &str, sha256: &str, of_image: &Value, images: &[&str]) -> Result<Value> {
    let own = &of_image["metadata"]["component"];
    let (name, version) = name_and_version(own)?;
    let mut components = vec![own.clone()];
    for image in images.iter().filter(|image| **image != format!("{name}:{version}")) {
        let (repository, tag) = image.rsplit_once(':').with_context(|| format!("the image {image} has no tag"))?;
        components.push(json!({"type": "container", "bom-ref": image, "name": repository, "version": tag}));
    }
    ensure!(components.len() == images.len(), "of {images:?} exactly one must be {name}:{version}");
    let on = components.iter().map(|component| string(component, "bom-ref")).collect::<Result<Vec<_>>>()?;
    let component = json!({
        "type": "application",
        "bom-ref": file,
        "name": name,
        "version": version,
        "licenses": own["licenses"],
        "description": "Helm chart",
        "hashes": [{"alg": "SHA-256", "content": sha256}],
    });
    Ok(made_like(of_image, &component, &components, &[json!({"ref": file, "dependsOn": on})]))
}

/// Returns an SBOM of this component, in the format, of the time and by the tools of another one.
fn made_like(other: &Value, component: &Value, components: &[Value], dependencies: &[Value]) -> Value {
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": other["specVersion"],
        "version": 1,
        "metadata": {
            "timestamp": other["metadata"]["timestamp"],
            "tools": other["metadata"]["tools"],
            "component": component,
        },
        "components": components,
        "dependencies": dependencies,
    })
}

/// Returns the packages of `cargo tree --prefix none`: a line is `NAME vVERSION`, possibly with more after it.
fn packages(tree: &str) -> Result<BTreeSet<(String, String)>> {
    let lines = tree.lines().filter(|line| !line.is_empty());
    let package = |line: &str| {
        let mut words = line.split(' ');
        let package = words.next().zip(words.next().and_then(|version| version.strip_prefix('v')));
        let (name, version) = package.with_context(|| format!("cargo tree says {line:?}"))?;
        Ok((name.to_owned(), version.to_owned()))
    };
    lines.map(package).collect()
}

fn name_and_version(component: &Value) -> Result<(String, String)> {
    Ok((string(component, "name")?.to_owned(), string(component, "version")?.to_owned()))
}

fn string<'a>(value: &'a Value, field: &str) -> Result<&'a str> {
    value[field].as_str().with_context(|| format!("the SBOM has no {field} where it must"))
}

fn array(value: &Value) -> Result<&Vec<Value>> {
    value.as_array().context("the SBOM has no list where it must")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str =
        "operator v0.1.0 (/src/operator)\nserde v1.0.2\nserde_derive v1.0.2 (proc-macro)\nserde v1.0.2 (*)\n";

    fn component(name: &str, version: &str) -> Value {
        json!({"type": "library", "bom-ref": format!("registry#{name}@{version}"), "name": name, "version": version})
    }

    fn cargo_bom() -> Value {
        let package = "path+file:///src/operator#0.1.0";
        json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "metadata": {
                "component": {"bom-ref": package, "name": "operator", "version": "0.1.0", "purl": "pkg:cargo/operator?file://."},
            },
            "components": [component("serde", "1.0.2"), component("serde_derive", "1.0.2")],
            "dependencies": [
                {"ref": package, "dependsOn": ["registry#serde@1.0.2"]},
                {"ref": "registry#serde@1.0.2", "dependsOn": ["registry#serde_derive@1.0.2"]},
            ],
        })
    }

    fn bom(file: &str, sha256: &str) -> Value {
        binary_bom(cargo_bom(), TREE, file, sha256, &[("libc", "glibc 2.36")]).unwrap()
    }

    #[test]
    fn the_sbom_of_a_binary_has_the_packages_of_the_lock_file_and_no_path_of_the_machine() {
        let bom = bom("operator-linux-amd64", "abcd");
        let binary = &bom["metadata"]["component"];
        assert_eq!(binary["hashes"][0]["content"], "abcd");
        assert_eq!(binary["properties"][0], json!({"name": "libc", "value": "glibc 2.36"}));
        assert_eq!(bom["components"], json!([component("serde", "1.0.2"), component("serde_derive", "1.0.2")]));
        let on = json!({"ref": "operator-linux-amd64", "dependsOn": ["registry#serde@1.0.2"]});
        assert_eq!(bom["dependencies"][0], on);
        assert!(!bom.to_string().contains("/src"), "{bom}");
    }

    #[test]
    fn an_sbom_that_lacks_a_package_of_the_lock_file_or_has_another_is_refused() {
        for (tree, what) in [
            (format!("{TREE}tokio v1.2.3\n"), "lacks [(\"tokio\", \"1.2.3\")]"),
            (TREE.replace("serde v1.0.2", "serde v1.0.3"), "has [(\"serde\", \"1.0.2\")] besides"),
        ] {
            let error = binary_bom(cargo_bom(), &tree, "operator", "", &[]).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn the_sbom_of_an_image_has_each_binary_and_what_they_share_once() {
        let boms = [bom("operator-linux-amd64", "ab"), bom("operator-linux-arm64", "cd")];
        let bom = image_bom("sha256:ef", &boms).unwrap();
        let references: Vec<_> = bom["components"].as_array().unwrap().iter().map(|one| &one["bom-ref"]).collect();
        let expected =
            ["operator-linux-amd64", "operator-linux-arm64", "registry#serde@1.0.2", "registry#serde_derive@1.0.2"];
        assert_eq!(references, expected);
        let image = json!({"ref": "operator@sha256:ef", "dependsOn": ["operator-linux-amd64", "operator-linux-arm64"]});
        assert!(bom["dependencies"].as_array().unwrap().contains(&image), "{bom}");
        assert_eq!(bom["metadata"]["component"]["purl"], "pkg:oci/operator@sha256%3Aef?tag=0.1.0");
    }
    #[test]
    fn the_sbom_of_a_chart_has_the_images_that_it_names() {
        let image = image_bom("sha256:ef", &[bom("operator-linux-amd64", "ab")]).unwrap();
        let chart = chart_bom("operator-0.1.0.tgz", "12", &image, &["example.com/proxy:v1", "operator:0.1.0"]).unwrap();
        let on = json!(["operator@sha256:ef", "example.com/proxy:v1"]);
        assert_eq!(chart["dependencies"], json!([{"ref": "operator-0.1.0.tgz", "dependsOn": on}]));
        assert_eq!(chart["components"][0], image["metadata"]["component"]);
        assert_eq!(chart["components"][1]["version"], "v1");
        let error = chart_bom("operator-0.1.0.tgz", "12", &image, &["operator:0.2.0"]).unwrap_err().to_string();
        assert!(error.contains("must be operator:0.1.0"), "{error}");
    }
}
