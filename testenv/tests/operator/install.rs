//! What the manifests install and remove, and who may do so.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use anyhow::ensure;
use serde_json::{Value, json};
use testenv::{ControlPlane, DEADLINE, Kubectl, RunDir, eventually};

use crate::reader::Reader;
use crate::test_namespace::{control_plane, pod_of};
use testenv::fixture::{APP, Fixture, create_namespace, file, install_crd, shipped_deployment};
use testenv::pages::{Section, blocks};

const MONITOR: &str = "configmonitor/flakapp-config-monitor";

/// kubectl as somebody who has this ClusterRole in this namespace and nothing else.
async fn kubectl_of(role: &str, namespace: &str) -> Kubectl {
    let control_plane = control_plane().await;
    let kubectl = control_plane.kubectl();
    kubectl.ok(&["create", "serviceaccount", role, "-n", namespace]).await.unwrap();
    let (role_arg, subject) = (format!("--clusterrole={role}"), format!("--serviceaccount={namespace}:{role}"));
    kubectl.ok(&["create", "rolebinding", role, &role_arg, &subject, "-n", namespace]).await.unwrap();
    let token = control_plane.service_account_token(namespace, role).await.unwrap();
    control_plane.kubectl_with(&token).unwrap()
}

/// Takes from editors and admins what servers of version 1.29 do not give them: the right to create Events of this group.
async fn forget_new_rights() {
    let client = control_plane().await.client();
    let path = |role| format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}");
    let mut source = client.get(&path("system:aggregate-to-edit")).await.unwrap().ok().unwrap();
    for rule in source["rules"].as_array_mut().unwrap() {
        rule["apiGroups"].as_array_mut().unwrap().retain(|group| group != "events.k8s.io");
    }
    client.replace(&path("system:aggregate-to-edit"), &source).await.unwrap().ok().unwrap();
    eventually("the ClusterRole edit has followed", DEADLINE, async || {
        let role = client.get(&path("edit")).await?.ok()?;
        let names = |list: &Value, name| list.as_array().into_iter().flatten().any(|entry| entry == name);
        let creates = |rule: &Value| names(&rule["apiGroups"], "events.k8s.io") && names(&rule["verbs"], "create");
        ensure!(!role["rules"].as_array().into_iter().flatten().any(creates), "{role}");
        Ok(())
    })
    .await
    .unwrap();
}

/// What a ClusterRole aggregates follows in a moment.
async fn is_allowed(kubectl: &Kubectl, namespace: &str, args: &[&str]) {
    let args = [args, &["-n", namespace]].concat();
    eventually("it is allowed", DEADLINE, async || kubectl.ok(&args).await).await.unwrap();
}

async fn is_forbidden(kubectl: &Kubectl, namespace: &str, args: &[&str]) {
    let error = kubectl.ok(&[args, &["-n", namespace]].concat()).await.unwrap_err().to_string();
    assert!(error.contains("is forbidden"), "{error}");
}

/// The identities of what is selected, all of which must be there.
async fn uids(kubectl: &Kubectl, namespace: &str, selected: &[&str]) -> String {
    let args = ["get", "-n", namespace, "--output=jsonpath={.items[*].metadata.uid}"];
    kubectl.ok(&[&args, selected].concat()).await.unwrap()
}

/// Starts the lab's application, which has a ConfigMonitor.
async fn start_application(kubectl: &Kubectl, namespace: &str) {
    kubectl.ok(&["apply", "-n", namespace, "-k", &file("demo-app")]).await.unwrap();
    kubectl.ok(&["rollout", "status", "-n", namespace, "deployment/frontend", "--timeout=10m"]).await.unwrap();
}

#[tokio::test]
async fn one_command_installs_everything_and_the_strictest_namespace_takes_it() {
    let control_plane = control_plane().await;
    let strict = json!({
        "pod-security.kubernetes.io/enforce": "restricted",
        "pod-security.kubernetes.io/warn": "restricted",
    });
    let namespace = create_namespace(control_plane, strict).await;
    let kubectl = control_plane.kubectl();
    let output = kubectl.run(&["apply", "-n", &namespace, "-k", &file("")]).await.unwrap();
    // A warning would be here, too.
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    kubectl
        .ok(&["rollout", "status", "-n", &namespace, "deployment/configmonitor-operator", "--timeout=10m"])
        .await
        .unwrap();
    let refusal = kubectl.ok(&["run", "plain", "--image=plain", "-n", &namespace]).await.unwrap_err().to_string();
    assert!(refusal.contains("violates PodSecurity"), "{refusal}");
}

#[tokio::test]
async fn the_admin_of_a_namespace_installs_and_removes_its_operator_without_help() {
    let namespace = create_namespace(control_plane().await, json!({})).await;
    forget_new_rights().await;
    let admin = kubectl_of("admin", &namespace).await;
    let deploy = file("deploy");
    is_allowed(&admin, &namespace, &["apply", "-k", &deploy]).await;
    admin
        .ok(&["rollout", "status", "-n", &namespace, "deployment/configmonitor-operator", "--timeout=10m"])
        .await
        .unwrap();
    let leader = file("deploy/high-availability/rbac.yml");
    is_allowed(&admin, &namespace, &["apply", "-f", &leader]).await;
    start_application(&admin, &namespace).await;
    let (application, pods) = (["-k", &file("demo-app")], ["pods", "--selector=app=frontend"]);
    let before = (uids(&admin, &namespace, &application).await, uids(&admin, &namespace, &pods).await);

    admin.ok(&["delete", "-n", &namespace, "-k", &deploy]).await.unwrap();
    let left = ["get", "-n", &namespace, "-k", &deploy, "--ignore-not-found", "--output=name"];
    assert_eq!(admin.ok(&left).await.unwrap(), "");
    assert_eq!((uids(&admin, &namespace, &application).await, uids(&admin, &namespace, &pods).await), before);
}

#[tokio::test]
async fn editors_change_config_monitors_and_request_restarts_but_do_not_write_their_status_and_viewers_read_them() {
    let namespace = create_namespace(control_plane().await, json!({})).await;
    let (editor, viewer) = (kubectl_of("edit", &namespace).await, kubectl_of("view", &namespace).await);
    let create = ["create", "-f", &file("demo-app/configmonitor.yml")];
    let change = ["patch", MONITOR, "--type=merge", r#"--patch={"spec": {"suspend": true}}"#];
    let request = ["annotate", MONITOR, "magalix.com/restart-requested-at=now"];
    let write_status =
        ["patch", MONITOR, "--subresource=status", "--type=merge", r#"--patch={"status": {"source": "none"}}"#];
    let delete = ["delete", MONITOR];
    is_allowed(&editor, &namespace, &create).await;
    is_allowed(&editor, &namespace, &change).await;
    is_allowed(&editor, &namespace, &request).await;
    is_forbidden(&editor, &namespace, &write_status).await;

    is_allowed(&viewer, &namespace, &["get", MONITOR]).await;
    for args in [&create[..], &change, &request, &write_status, &delete] {
        is_forbidden(&viewer, &namespace, args).await;
    }
    is_allowed(&editor, &namespace, &delete).await;
}

/// Everything that install.md has for kustomize, from top to bottom.
#[tokio::test]
async fn whoever_follows_the_pages_installs_tries_upgrades_and_removes_the_operator() {
    let control_plane = ControlPlane::start().await.unwrap();
    let kubectl = control_plane.kubectl();
    let namespace = "my-namespace";
    kubectl.ok(&["create", "namespace", namespace]).await.unwrap();
    let mut reader = Reader::new(&control_plane, namespace).await;
    reader.replace("NAMESPACE", namespace);

    reader.follow(Section::of("docs/install.md", "Build the image").unwrap().steps()).await;
    let install = Section::of("docs/install.md", "Install with kustomize").unwrap();
    fs::write(reader.file("kustomization.yaml"), &install.yaml[0]).unwrap();
    reader.follow(install.steps()).await;
    let demo = Section::of("docs/install.md", "The demo in a cluster").unwrap();
    let (edit, tried): (Vec<_>, Vec<_>) = demo.steps().partition(|step| step.command.starts_with("kubectl edit"));
    reader.follow(tried).await;
    let ns = Fixture { namespace: namespace.to_owned(), client: control_plane.client() };
    let deployment = ns.get("deployments", "configmonitor-operator").await;
    let operator = pod_of(&control_plane, &deployment, namespace, "one").await;
    ns.settled("flakapp-config-monitor", "UpToDate").await;
    let before = ns.ready_pods(APP, 3).await;
    reader.set("KUBE_EDITOR", "sed --in-place s/Welcome/Good-bye/");
    reader.follow(edit).await;
    ns.replaced(APP, &before).await;
    drop(operator);

    for section in [Section::of("docs/install.md", "NetworkPolicy"), Section::of("docs/install.md", "Upgrade")] {
        reader.follow(section.unwrap().steps()).await;
    }
    // What the Components have.
    for file in [
        "secrets/role/role.yml",
        "high-availability/rbac.yml",
        "high-availability/poddisruptionbudget.yml",
        "network-policy/networkpolicy.yml",
        "surge/binding/binding.yml",
        "surge/policy/policy.yml",
        "policies/operator.yml",
        "policies/configmonitors.yml",
        "cluster-wide/surge/rbac.yml",
    ] {
        reader.run(&format!("kubectl apply -f configmonitor-operator/deploy/{file}")).await.unwrap();
    }
    ns.create("leases", json!({"metadata": {"name": "configmonitor-operator"}})).await;
    reader.follow(Section::of("docs/install.md", "All namespaces").unwrap().steps()).await;
    reader.run("kubectl apply -f configmonitor-operator/deploy/cluster-wide/secrets/rbac.yml").await.unwrap();

    let admin_knows_config_monitors = async |known| {
        eventually("the rights of an admin have followed", DEADLINE, async || {
            let role = kubectl.ok(&["get", "clusterrole", "admin", "--output=yaml"]).await?;
            ensure!(role.contains("magalix.com") == known, "{role}");
            Ok(())
        })
        .await
        .unwrap();
    };
    admin_knows_config_monitors(true).await;
    let before = ns.ready_pods(APP, 3).await;
    let page = fs::read_to_string(file("docs/install.md")).unwrap();
    let served = blocks(&page, "yaml").into_iter().find(|block| block.contains("nameSuffix")).unwrap();
    reader.run("kubectl create namespace shop").await.unwrap();
    fs::create_dir(reader.file("shop")).unwrap();
    fs::write(reader.file("shop/kustomization.yaml"), served.replace("OPERATOR_NS", namespace)).unwrap();
    reader.run("kubectl apply -k shop").await.unwrap();
    let uninstall = Section::of("docs/install.md", "Uninstall").unwrap();
    let [operator, crd] = &uninstall.sessions[..] else { panic!("two blocks of commands") };
    reader.follow(operator.iter().chain(&uninstall.others)).await;
    ns.get("configmonitors", "flakapp-config-monitor").await;
    reader.follow(crd).await;
    let kinds = "all,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,poddisruptionbudgets,\
                 networkpolicies,validatingadmissionpolicies,validatingadmissionpolicybindings";
    let left = "--selector app.kubernetes.io/name=configmonitor-operator --output name --all-namespaces";
    assert_eq!(reader.run(&format!("kubectl get {kinds} {left}")).await.unwrap(), "");
    admin_knows_config_monitors(false).await;
    assert_eq!(ns.pods(APP).await, before);
    // None comes back with the CRD.
    install_crd(&control_plane).await;
    assert_eq!(uids(kubectl, namespace, &["configmonitors"]).await, "");
}

#[tokio::test]
async fn the_images_are_of_this_version_and_only_the_proxy_holds_a_token() {
    let deployment = shipped_deployment(control_plane().await).await;
    let pod = &deployment["spec"]["template"]["spec"];
    let (operator, proxy) = (&pod["containers"][0], &pod["initContainers"][0]);
    assert_eq!(operator["image"], concat!("configmonitor-operator:", env!("CARGO_PKG_VERSION")));
    let demo = fs::read_to_string(file("demo-app/deployment.yml")).unwrap();
    assert!(demo.contains(concat!("image: configmonitor-demo-app:", env!("CARGO_PKG_VERSION"), "\n")));
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(operator["volumeMounts"], json!(null));
    assert_eq!(proxy["volumeMounts"][0]["name"], "token");
    // With 3607, as Kubernetes itself has it, the token would be valid for a year (--service-account-extend-token-expiration).
    let token = &pod["volumes"][0]["projected"]["sources"][0]["serviceAccountToken"];
    assert_eq!(token["expirationSeconds"], 3600);
    // Nobody outside of the pod can use it by way of the proxy; this is where the operator looks for it.
    assert_eq!((&proxy["args"][1], &proxy["args"][2]), (&json!("--address=127.0.0.1"), &json!("--port=8001")));
}

/// With the clone beside the file, as the pages say.
#[tokio::test]
async fn every_kustomization_of_the_docs_builds_the_operator_with_the_image_of_the_registry() {
    let (dir, kubectl) = (RunDir::create().unwrap(), control_plane().await.kubectl());
    symlink(fs::canonicalize(file("")).unwrap(), dir.path().join("configmonitor-operator")).unwrap();
    let pages = ["README.md", "docs/install.md", "docs/operations.md"];
    let pages = pages.map(|page| fs::read_to_string(file(page)).unwrap());
    let of_one_namespace = blocks(&pages[1], "yaml").remove(0);
    let mut built = 0;
    for block in blocks(&pages.concat(), "yaml") {
        let kustomization = if block.starts_with("components:") {
            let resource = if block.contains("cluster-wide") { "/deploy/cluster-wide\n" } else { "\n" };
            format!(
                "{}\n{block}",
                of_one_namespace.replacen(
                    "- configmonitor-operator\n",
                    &format!("- configmonitor-operator{resource}"),
                    1
                )
            )
        } else if block.contains("kind: Kustomization") && !block.contains("nameSuffix") {
            block
        } else {
            continue;
        };
        fs::write(dir.path().join("kustomization.yaml"), &kustomization).unwrap();
        let objects = kubectl.ok(&["kustomize", dir.path().to_str().unwrap()]).await.expect(&kustomization);
        let image = format!("image: registry.example.com/configmonitor-operator:{}\n", env!("CARGO_PKG_VERSION"));
        assert!(objects.contains(&image), "{kustomization}");
        built += 1;
    }
    assert_eq!(built, 9);

    // What pages only name. kustomize takes no file from outside the folder that lists it.
    let (mut folders, mut found) = (vec![PathBuf::from(file("deploy"))], 0);
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        folders.extend(entries.filter(|entry| entry.is_dir()));
        let Ok(kustomization) = fs::read_to_string(folder.join("kustomization.yaml")) else { continue };
        let name = folder.strip_prefix(file("deploy")).unwrap().display().to_string();
        let path = format!("configmonitor-operator/deploy/{name}");
        let base = if name.starts_with("cluster-wide") { "deploy/cluster-wide" } else { "deploy" };
        let with_it = match kustomization.contains("kind: Component") {
            true => json!({"resources": [format!("configmonitor-operator/{base}")], "components": [path]}),
            false => json!({"resources": [path]}),
        };
        fs::write(dir.path().join("kustomization.yaml"), with_it.to_string()).unwrap();
        kubectl.ok(&["kustomize", dir.path().to_str().unwrap()]).await.expect(&name);
        found += 1;
    }
    assert!(found > 15, "{found}");
}

/// With the Component that pages name.
#[tokio::test]
async fn kustomize_writes_the_names_that_it_makes_into_config_monitors() {
    let (dir, kubectl) = (RunDir::create().unwrap(), control_plane().await.kubectl());
    symlink(fs::canonicalize(file("")).unwrap(), dir.path().join("configmonitor-operator")).unwrap();
    let monitor = json!({
        "apiVersion": "magalix.com/v1",
        "kind": "ConfigMonitor",
        "metadata": {"name": "shop"},
        "spec": {
            "sources": [{"configMap": {"name": "shop"}}, {"secret": {"name": "db"}}],
            "discover": {"exclude": [{"kind": "ConfigMap", "name": "shop"}]},
            "podSelector": {"app": "shop"},
        },
    });
    let short = json!({"apiVersion": "magalix.com/v1", "kind": "ConfigMonitor", "metadata": {"name": "short"}, "spec": {"configMap": "shop", "podSelector": {"app": "shop"}}});
    let literals = json!(["a=b"]);
    let kustomization = json!({
        "namePrefix": "prod-",
        "resources": ["one.yaml", "two.yaml"],
        "components": ["configmonitor-operator/deploy/kustomize"],
        "configMapGenerator": [{"name": "shop", "literals": literals}],
        "secretGenerator": [{"name": "db", "literals": literals}],
    });
    for (name, object) in [("one.yaml", monitor), ("two.yaml", short), ("kustomization.yaml", kustomization)] {
        fs::write(dir.path().join(name), object.to_string()).unwrap();
    }
    let built = kubectl.ok(&["kustomize", dir.path().to_str().unwrap()]).await.unwrap();
    let times = |name: &str| built.matches(name).count();
    // In the object itself, and where ConfigMonitors name it.
    assert_eq!((times("prod-shop-"), times("prod-db-"), times(": shop\n")), (4, 2, 2), "{built}");
}

/// All but building the images and loading them.
#[tokio::test]
async fn whoever_has_a_cluster_tries_the_demo_in_it() {
    let control_plane = ControlPlane::start().await.unwrap();
    let mut reader = Reader::new(&control_plane, "default").await;
    // The page is for somebody in the clone.
    reader.replace("-k . ", "-k configmonitor-operator ");
    reader.replace("-k demo-app", "-k configmonitor-operator/demo-app");
    reader.set("KUBE_EDITOR", "sed --in-place s/Welcome/Good-bye/");
    let section = Section::of("README.md", "Try it").unwrap();
    reader.follow(&section.sessions[0]).await;
    let ns = Fixture { namespace: "default".to_owned(), client: control_plane.client() };
    let deployment = ns.get("deployments", "configmonitor-operator").await;
    let _operator = pod_of(&control_plane, &deployment, "default", "one").await;
    ns.settled("flakapp-config-monitor", "UpToDate").await;
    let before = ns.ready_pods("app=frontend", 3).await;
    reader.follow(&section.others).await;
    ns.replaced("app=frontend", &before).await;
}
