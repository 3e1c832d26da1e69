//! One operator for namespaces that do not trust each other.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};
use testenv::fixture::{APP, Fixture, NAME, install_crd, message_of, share_proxy, shipped_deployment};
use testenv::pages::Section;
use testenv::process::status_kib;
use testenv::{ControlPlane, DEADLINE, Process, eventually};
use tokio::time::sleep;

use crate::namespaces::start;
use crate::reader::Reader;
use crate::test_namespace::{TestNamespace, control_plane};

/// The ConfigMonitors of the hostile namespace, each with its own sources.
const MONITORS: usize = 16;
/// The sources of each: as many as the schema allows.
const SOURCES: usize = 16;
const FRIENDS: usize = 10;
/// Connections that send half a request.
const CONNECTIONS: usize = 300;
const MAX_MEMORY_MIB: u64 = 96;
/// The watches and requests of a namespace that the operator may leave unread for a while: 32 on the pods of restarts,
/// 64 on pods in which sources are discovered, and 16 requests.
const UNREAD: usize = 112;

fn sources(kind: &str, monitor: usize) -> Value {
    let source = |number| json!({ kind: { "name": format!("{kind}-{monitor}-{number}").to_lowercase() } });
    (0..SOURCES).map(source).collect()
}

/// Writes to all ConfigMaps of the hostile ConfigMonitors characters that JSON escapes with six bytes each: as many as a
/// control plane with JSON in etcd takes.
async fn write_all(hostile: &Fixture, character: char) {
    let large = character.to_string().repeat(300_000);
    for monitor in 0..MONITORS {
        for number in 0..SOURCES {
            hostile.edit(&format!("configmap-{monitor}-{number}"), &large).await;
        }
    }
}

async fn befriend(fixture: &Fixture) {
    fixture.config_map(NAME, "one").await;
    fixture.deployment(NAME, 2, json!({"app": NAME})).await;
    fixture.monitor(NAME, json!({})).await;
}

async fn is_served(fixture: &Fixture, content: &str) {
    let before = fixture.ready_pods(APP, 2).await;
    fixture.edit(NAME, content).await;
    fixture.replaced(APP, &before).await;
}

fn peak_mib(process: &Process) -> u64 {
    status_kib(process.id(), "VmHWM").unwrap() / 1024
}

#[tokio::test]
async fn a_hostile_namespace_takes_no_memory_places_or_probes_from_others() {
    let control_plane = ControlPlane::start().await.unwrap();
    install_crd(&control_plane).await;
    let mut fixtures = Vec::new();
    for _ in 0..=FRIENDS {
        fixtures.push(Fixture::new(&control_plane).await);
    }
    let proxy = share_proxy(&control_plane, &fixtures).await;
    let [hostile, friends @ ..] = &fixtures[..] else { panic!("no namespace") };
    for monitor in 0..MONITORS {
        for number in 0..SOURCES {
            let metadata = json!({"name": format!("configmap-{monitor}-{number}")});
            hostile.create("configmaps", json!({"metadata": metadata})).await;
        }
    }
    hostile.deployment(NAME, 2, json!({"app": NAME})).await;
    write_all(hostile, '\u{1}').await;
    for number in 0..MONITORS {
        let large = json!({"configMap": null, "sources": sources("configMap", number)});
        hostile.create_monitor(&format!("large-{number}"), large).await;
    }
    // Without any right on Secrets, and as many as are watched one by one in all namespaces.
    for number in 0..MONITORS {
        let secrets = json!({"configMap": null, "sources": sources("secret", number)});
        hostile.create_monitor(&format!("secrets-{number}"), secrets).await;
    }
    let keeper_of_secret = &friends[0];
    let namespaces: Vec<&str> = fixtures.iter().map(|fixture| &*fixture.namespace).collect();
    let operator = start(&proxy.url(), &namespaces.join(","), &[]);
    operator.wait_for_message("synced").await.unwrap();
    let url = operator.url().await.unwrap();
    let address = url.trim_start_matches("http://");
    let flood = || {
        let connect = |_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nhost:").unwrap();
            stream
        };
        (0..CONNECTIONS).map(connect).collect::<Vec<_>>()
    };
    let _connections = flood();
    for friend in friends {
        befriend(friend).await;
    }
    let _more = flood();
    tokio::join!(write_all(hostile, '\u{2}'), async {
        for friend in friends {
            is_served(friend, "two").await;
        }
        assert_eq!(reqwest::get(format!("{url}/metrics")).await.unwrap().status(), 200);
    });

    // Only the named Secret may be read.
    let rule = json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["key"], "verbs": ["get"]});
    keeper_of_secret.create("roles", json!({"metadata": {"name": "secret"}, "rules": [rule]})).await;
    keeper_of_secret.bind("secret", &hostile.namespace).await;
    keeper_of_secret.create("secrets", json!({"metadata": {"name": "key"}, "stringData": {"key": "one"}})).await;
    keeper_of_secret
        .patch("configmonitors", NAME, json!({"spec": {"configMap": null, "sources": [{"secret": {"name": "key"}}]}}))
        .await;
    keeper_of_secret.messages_have(&["the content of Secret/key was recorded"]).await;
    let before = keeper_of_secret.ready_pods(APP, 2).await;
    keeper_of_secret.patch("secrets", "key", json!({"stringData": {"key": "two"}})).await;
    keeper_of_secret.replaced(APP, &before).await;

    for number in 0..MONITORS {
        hostile.settled(&format!("large-{number}"), "UpToDate").await;
    }
    let refused = hostile.get("configmonitors", "secrets-0").await;
    assert!(message_of(&refused, "Stalled").contains("secrets"), "{refused}");
    let peak = peak_mib(operator.process());
    assert!(peak < MAX_MEMORY_MIB, "the operator took {peak} MiB");
}

/// kubectl proxy buffers what its client does not read.
#[tokio::test]
async fn what_the_operator_leaves_unread_of_a_namespace_fits_into_the_memory_limit_of_kubectl_proxy() {
    let ns = TestNamespace::new().await;
    ns.create("pods", json!({"metadata": {"name": NAME}, "spec": {"containers": [{"name": "app", "image": "app"}]}}))
        .await;
    let path = format!("{}?watch=true&resourceVersion=0", ns.collection("pods"));
    let watch = |_| {
        let mut stream = TcpStream::connect(("127.0.0.1", ns.proxy.port())).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").as_bytes()).unwrap();
        stream
    };
    let _unread: Vec<TcpStream> = (0..UNREAD).map(watch).collect();
    // More than each connection holds, with what the kernel buffers.
    for number in 0..60 {
        let annotations = json!({"large": "x".repeat(250_000), "number": number.to_string()});
        ns.patch("pods", NAME, json!({"metadata": {"annotations": annotations}})).await;
    }
    sleep(Duration::from_secs(2)).await;
    let deployment = shipped_deployment(control_plane().await).await;
    let limit = &deployment["spec"]["template"]["spec"]["initContainers"][0]["resources"]["limits"]["memory"];
    let limit: u64 = limit.as_str().unwrap().trim_end_matches("Mi").parse().unwrap();
    let peak = peak_mib(ns.proxy.process());
    println!("kubectl proxy took {peak} MiB");
    assert!(peak > 100 && peak < limit, "kubectl proxy took {peak} MiB, and may take {limit}");
}

#[tokio::test]
async fn the_quota_of_the_page_bounds_the_config_monitors_of_a_namespace() {
    let ns = TestNamespace::new().await;
    let section = Section::of("docs/install.md", "What namespaces share").unwrap();
    let mut reader = Reader::new(control_plane().await, &ns.namespace).await;
    fs::write(reader.file("quota.yaml"), section.yaml[0].replace("\"50\"", "\"1\"")).unwrap();
    reader.replace("NAMESPACE", &ns.namespace);
    // The controller of quotas looks for new CustomResourceDefinitions every 30 s, and computes a new quota once.
    eventually("the quota counts", DEADLINE, async || {
        reader.follow(section.steps()).await;
        sleep(Duration::from_secs(5)).await;
        let quota = ns.get("resourcequotas", "configmonitors").await;
        ns.delete("resourcequotas", "configmonitors").await;
        ensure!(quota["status"]["used"]["count/configmonitors.magalix.com"] == "0", "{}", quota["status"]);
        Ok(())
    })
    .await
    .unwrap();
    reader.follow(section.steps()).await;
    let spec = json!({"configMap": NAME, "podSelector": {"app": NAME}});
    let create = async |name: &str| {
        let object =
            json!({"apiVersion": "magalix.com/v1", "kind": "ConfigMonitor", "metadata": {"name": name}, "spec": spec});
        ns.client.create(&ns.collection("configmonitors"), &object).await.unwrap()
    };
    // Admission counts nothing before it has seen the quota itself.
    let mut number = 0;
    eventually("one is too many", DEADLINE, async || {
        number += 1;
        let answer = create(&format!("{NAME}-{number}")).await;
        let message = answer.body["message"].as_str().unwrap_or_default();
        ensure!(answer.status == 403 && message.contains("exceeded quota: configmonitors"), "{}", answer.body);
        Ok(())
    })
    .await
    .unwrap();
}
