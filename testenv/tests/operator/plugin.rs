//! `kubectl cmon`, as kubectl finds and calls it.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testenv::fixture::{APP, NAME};
use testenv::pages::{Section, Step};
use testenv::process::{Process, output};
use testenv::{DEADLINE, RunDir, eventually};

use crate::recipes::Kitchen;
use crate::test_namespace::{TestNamespace, control_plane};

/// What a call has printed, and its exit code.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Returns the folders in which kubectl looks for plugins: another one, and those of the plugin and of kubectl.
async fn path_with(other: Option<&Path>) -> OsString {
    let (operator, kubectl) = (testenv::operator::binary().unwrap(), control_plane().await.kubectl());
    let folders = [&operator, kubectl.program()].map(|program: &Path| program.parent().unwrap());
    let path = env::var_os("PATH").unwrap();
    let folders = other.into_iter().chain(folders).map(Path::to_owned).chain(env::split_paths(&path));
    env::join_paths(folders).unwrap()
}

/// Returns the call of `kubectl cmon` with these words in a namespace.
async fn command(ns: &TestNamespace, words: &str) -> Command {
    let words: Vec<&str> = ["cmon"].into_iter().chain(words.split(' ')).chain(["--namespace", &ns.namespace]).collect();
    let mut command = control_plane().await.kubectl().command(&words);
    command.env("PATH", path_with(None).await);
    command
}

pub(crate) async fn cmon(ns: &TestNamespace, words: &str) -> Call {
    called(&command(ns, words).await).await
}

async fn called(command: &Command) -> Call {
    let ended = output(command).await.unwrap();
    let [out, err] = [ended.stdout, ended.stderr].map(|text| String::from_utf8(text).unwrap());
    Call { code: ended.status.code(), out, err }
}

/// Returns a text without what differs from call to call: times, and the ends of generated names.
fn without_times(text: &str) -> String {
    let word = |word: &str| {
        let is_age = word.strip_suffix(['s', 'm']).is_some_and(|number| number.parse::<u64>().is_ok());
        match word.split_once("frontend-") {
            Some((before, _)) => format!("{before}frontend-*"),
            None if is_age || word.parse::<jiff::Timestamp>().is_ok() => "TIME".to_owned(),
            None => word.to_owned(),
        }
    };
    text.lines().map(|line| line.split(' ').map(word).collect::<Vec<_>>().join(" ") + "\n").collect()
}

/// Waits until the operator has read a change.
async fn change_is_read(ns: &TestNamespace, monitor: &str) {
    eventually("a change is read", DEADLINE, async || {
        let status = ns.get("configmonitors", monitor).await["status"].take();
        ensure!(status["restart"].is_object(), "{status}");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn the_status_joins_sources_pods_and_history() {
    let ns = TestNamespace::with_pods(2).await;
    ns.create_monitor(NAME, json!({})).await;
    let unread = cmon(&ns, "status").await;
    assert_eq!(unread.out, "ConfigMonitor/frontend  no status: the operator has not read it\n", "{unread:?}");
    let _operator = ns.operator().await;
    ns.settled(NAME, "UpToDate").await;
    let before = ns.ready_pods(APP, 2).await;
    ns.edit(NAME, "two").await;
    ns.replaced(APP, &before).await;
    ns.settled(NAME, "UpToDate").await;
    let section = Section::of("docs/kubectl-cmon.md", "kubectl cmon").unwrap();
    let [step] = &section.sessions[0][..] else { panic!("one command") };
    step.record_run();
    let words = step.command.strip_prefix("kubectl cmon ").unwrap().replace("shop", NAME);
    let shown = cmon(&ns, &words).await;
    assert_eq!(without_times(&shown.out), without_times(&step.prints.replace("shop", NAME)), "{shown:?}");
    let all = cmon(&ns, "status -o json").await;
    let all: Value = serde_json::from_str(&all.out).unwrap();
    assert_eq!((&all[0]["status"]["pods"], all[0]["pods"].as_array().unwrap().len()), (&json!(2), 2), "{all}");
    assert_eq!(all[0]["pods"][0]["bornBeforeContent"], json!(null), "no restart is pending");
}

#[tokio::test]
async fn waiting_ends_with_the_content_as_of_now_or_says_why_it_does_not() {
    let ns = TestNamespace::with_pods(2).await;
    ns.create_monitor(NAME, json!({})).await;
    let unread = cmon(&ns, "wait frontend --timeout=1s").await;
    assert_eq!((unread.code, unread.err.contains("no status yet")), (Some(4), true), "{unread:?}");
    let operator = ns.operator().await;
    assert_eq!(cmon(&ns, "wait frontend").await.code, Some(0));
    // The operator reads the edit only later.
    drop(operator);
    let before = ns.ready_pods(APP, 2).await;
    ns.edit(NAME, "two").await;
    let unread = cmon(&ns, "wait --timeout=1s").await;
    assert_eq!(
        (unread.code, unread.err.contains("has not read ConfigMap/frontend yet")),
        (Some(4), true),
        "{unread:?}"
    );
    let _operator = ns.operator().await;
    let waited = cmon(&ns, "wait --for-source cm/frontend").await;
    assert_eq!((waited.code, &*waited.out), (Some(0), "configmonitor/frontend has its content\n"), "{waited:?}");
    assert!(ns.pods(APP).await.values().all(|uid| !before.values().any(|before| before == uid)));
    let other = cmon(&ns, "wait frontend --for-source cm/other").await;
    assert_eq!(other.code, Some(1), "{other:?}");
    let other = cmon(&ns, "wait --for-source secret/frontend").await;
    assert_eq!((other.code, other.err.contains("no ConfigMonitor with the source Secret/frontend")), (Some(1), true));
    let change = async |spec: Value| ns.patch("configmonitors", NAME, json!({"spec": spec})).await;
    change(json!({"podSelector": {"app": "nobody"}})).await;
    let nobody = cmon(&ns, "wait frontend").await;
    assert_eq!((nobody.code, nobody.err.contains("no pod matched app=nobody")), (Some(1), true), "{nobody:?}");
}

#[tokio::test]
async fn what_is_suspended_is_held_until_it_is_resumed() {
    let ns = TestNamespace::with_pods(2).await;
    let _operator = ns.operator().await;
    ns.monitor(NAME, json!({})).await;
    let before = ns.ready_pods(APP, 2).await;
    let suspended = cmon(&ns, "suspend frontend").await;
    assert_eq!((suspended.code, &*suspended.out), (Some(0), "configmonitor/frontend suspended\n"), "{suspended:?}");
    assert_eq!(cmon(&ns, "wait frontend").await.code, Some(0), "nothing waits");
    ns.edit(NAME, "two").await;
    assert_eq!(cmon(&ns, "wait frontend").await.code, Some(5));
    assert_eq!(ns.pods(APP).await, before);
    let resumed = cmon(&ns, "resume frontend --wait").await;
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    let before = ns.replaced(APP, &before).await;
    // As if another tool had restarted the pods meanwhile.
    cmon(&ns, "suspend frontend").await;
    ns.edit(NAME, "three").await;
    assert_eq!(cmon(&ns, "wait frontend").await.code, Some(5));
    let sent = ns.sent_deletions().len();
    let resumed = cmon(&ns, "resume --all --as-baseline --wait").await;
    assert_eq!((resumed.code, ns.sent_deletions().len()), (Some(0), sent), "{resumed:?}");
    assert_eq!(
        cmon(&ns, "resume --all").await.out,
        format!("nothing in namespace {:?} was suspended by the command suspend; name what to resume\n", ns.namespace)
    );
    let restarted = cmon(&ns, "restart frontend --wait").await;
    assert_eq!(restarted.code, Some(0), "{restarted:?}");
    ns.replaced(APP, &before).await;
}

#[tokio::test]
async fn what_is_created_for_a_workload_is_what_the_operator_takes() {
    let ns = TestNamespace::new().await;
    ns.config_map(NAME, "one").await;
    let env = json!([{"name": "A", "valueFrom": {"configMapKeyRef": {"name": NAME, "key": "key"}}}]);
    let secret = json!([{"secretRef": {"name": "token"}}]);
    let mut pod = json!({"containers": [{"name": "app", "image": "app", "env": env, "envFrom": secret}]});
    // The API server takes it.
    let stolen = "x\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: stolen}\n#";
    pod["volumes"] = json!([{"name": "v", "secret": {"secretName": stolen}}]);
    let labels = json!({"app": NAME});
    let template = json!({"metadata": {"labels": labels}, "spec": pod});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": labels}, "template": template});
    ns.create("deployments", json!({"metadata": {"name": NAME}, "spec": spec})).await;
    let created = cmon(&ns, "create deploy/frontend").await;
    let expected = "\
apiVersion: magalix.com/v1
kind: ConfigMonitor
metadata:
  name: \"frontend\"
  namespace: NS
spec:
  sources:
    - {\"configMap\":{\"keys\":[\"key\"],\"name\":\"frontend\"}}
  podSelector: {\"app\":\"frontend\"}
  maxUnavailable: \"25%\"
";
    assert_eq!(created.out, expected.replace("NS", &format!("{:?}", ns.namespace)), "{created:?}");
    let surging = cmon(&ns, "create deploy/frontend --surge").await;
    assert_eq!(surging.out, format!("{}  maxSurge: \"25%\"\n", created.out));
    let notes = format!(
        "note: its maxSurge is left out, as no operator is seen that hands pods over: --surge adds it\n\
         note: it also refers to Secrets, which --secrets adds: token, {}\n",
        stolen.replace('\n', "\\n")
    );
    assert_eq!(created.err, notes);
    let dir = RunDir::create().unwrap();
    let file = dir.path().join("created.yml");
    fs::write(&file, created.out).unwrap();
    let kubectl = control_plane().await.kubectl();
    kubectl.ok(&["apply", "--dry-run=server", "-n", &ns.namespace, "-f", file.to_str().unwrap()]).await.unwrap();
    let released = cmon(&ns, "create --release app.kubernetes.io/part-of=shop --secrets").await;
    fs::write(&file, released.out).unwrap();
    kubectl.ok(&["apply", "--dry-run=server", "-n", &ns.namespace, "-f", file.to_str().unwrap()]).await.unwrap();
    let other = cmon(&ns, "create daemonset/frontend").await;
    assert_eq!((other.code, other.err.contains("cannot get daemonsets \"frontend\"")), (Some(1), true), "{other:?}");
    ns.create_monitor(NAME, json!({})).await;
    let again = cmon(&ns, "create deploy/frontend").await;
    assert!(again.err.contains("note: ConfigMonitor/frontend exists: what is printed would replace it"), "{again:?}");
}

#[tokio::test]
async fn what_nobody_watches_and_what_is_wrong_is_found() {
    let ns = TestNamespace::new().await;
    ns.config_map(NAME, "one").await;
    let refers = |name: &str| json!({"containers": [{"name": "app", "image": "app", "envFrom": [{"configMapRef": {"name": name}}]}]});
    for (name, part) in [(NAME, "a"), ("other", "b")] {
        let labels = json!({"part": part});
        let template =
            json!({"metadata": {"labels": labels, "annotations": {"checksum/config": "1"}}, "spec": refers(name)});
        let spec = json!({"replicas": 0, "selector": {"matchLabels": labels}, "template": template});
        ns.create("deployments", json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    ns.create_monitor(NAME, json!({"podSelector": {"part": "a"}})).await;
    ns.create_monitor("twice", json!({"podSelector": {"part": "a"}, "configMap": "unused"})).await;
    let unread = cmon(&ns, "doctor").await;
    let says = "\
note     NS  Deployment/frontend  also restarted by whoever writes the annotation checksum/config of the pod template
note     NS  Deployment/other  ConfigMap/other is not watched
note     NS  ConfigMonitor/twice  no selected workload refers to ConfigMap/unused
wrong    NS  ConfigMonitor/frontend  no operator has read its spec
";
    let schema = "CustomResourceDefinition/configmonitors.magalix.com  is that of version";
    let says = [schema, &says.replace("NS", &ns.namespace)];
    assert_eq!((unread.code, says.map(|says| unread.out.contains(says))), (Some(1), [true; 2]), "{unread:?}");
    let everywhere = cmon(&ns, "doctor -A -o json").await;
    let finding = json!({"state": "note", "namespace": ns.namespace, "object": "Deployment/other", "what": "ConfigMap/other is not watched", "next": null});
    let mut findings = everywhere.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert!(findings.any(|its| its == finding), "{everywhere:?}");
}

#[tokio::test]
async fn moving_over_from_another_controller_restarts_nothing() {
    let mut kitchen = Kitchen::with(&[]).await;
    let refers = json!([{"configMapRef": {"name": "shop-config"}}]);
    let labels = json!({"app": "shop"});
    let pod = json!({"containers": [{"name": "app", "image": "app", "envFrom": refers}]});
    let template = json!({"metadata": {"labels": labels}, "spec": pod});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": labels}, "template": template});
    let annotations = json!({"configmap.reloader.stakater.com/auto": "true"});
    kitchen
        .ns
        .create("deployments", json!({"metadata": {"name": "shop", "annotations": annotations}, "spec": spec}))
        .await;
    let before = kitchen.ns.ready_pods("app=shop", 2).await;
    kitchen.reader.follow(Section::of("docs/migrate.md", "Convert").unwrap().steps()).await;
    let ns = &kitchen.ns;
    ns.patch("configmonitors", "shop", json!({"spec": {"maxSurge": null}})).await;
    eventually("the baseline is recorded", DEADLINE, async || {
        let status = ns.get("configmonitors", "shop").await["status"].take();
        ensure!(status["sources"][0]["hash"].is_string(), "{status}");
        Ok(())
    })
    .await
    .unwrap();
    // The other controller restarts the pods, and the operator is away meanwhile.
    kitchen.operator.kill();
    ns.patch("configmaps", "shop-config", json!({"data": {"app.cfg": "two"}})).await;
    let stamp = json!({"metadata": {"annotations": {"reloader.stakater.com/last-reloaded-from": "shop-config"}}});
    ns.patch("deployments", "shop", json!({"spec": {"template": stamp}})).await;
    let rolled = ns.replaced("app=shop", &before).await;
    let operator = ns.operator().await;
    change_is_read(ns, "shop").await;
    let compare = Section::of("docs/migrate.md", "Compare").unwrap();
    let plan = cmon(ns, "plan --resume").await;
    assert_eq!(plan.code, Some(6), "the operator has listed the pods only now: {plan:?}");
    compare.steps().for_each(Step::record_run);
    kitchen.reader.follow(Section::of("docs/migrate.md", "Switch").unwrap().steps()).await;
    assert_eq!(cmon(ns, "wait").await.code, Some(0));
    assert_eq!((ns.deletions().unwrap(), ns.pods("app=shop").await), (0, rolled.clone()));
    ns.patch("configmaps", "shop-config", json!({"data": {"app.cfg": "three"}})).await;
    ns.replaced("app=shop", &rolled).await;
    kitchen.reader.follow(Section::of("docs/migrate.md", "The way back").unwrap().steps()).await;
    drop(operator);
}

#[tokio::test]
async fn a_missing_right_and_a_wrong_name_get_a_sentence() {
    let ns = TestNamespace::with_pods(0).await;
    let missing = cmon(&ns, "status shop").await;
    assert_eq!(
        (missing.code, missing.err.contains("cannot get configmonitors \"shop\"")),
        (Some(1), true),
        "{missing:?}"
    );
    let nobody = cmon(&ns, "status --as=nobody").await;
    assert_eq!((nobody.code, nobody.err.contains("User \"nobody\" cannot list")), (Some(1), true), "{nobody:?}");
    assert_eq!(cmon(&ns, "restart").await.code, Some(2));
    let help = cmon(&ns, "wait --help").await;
    assert!(help.out.contains("Usage: kubectl cmon wait"), "{help:?}");
}

#[tokio::test]
async fn a_plan_says_what_a_restart_waits_for_and_what_a_file_does_not_restart() {
    let ns = TestNamespace::with_pods(2).await;
    ns.create_monitor("unread", json!({})).await;
    let unread = cmon(&ns, "plan unread --restart").await;
    let says = "no operator has read it yet";
    assert_eq!((unread.code, unread.out.contains(says)), (Some(0), true), "{unread:?}");
    ns.delete("configmonitors", "unread").await;
    let missing = cmon(&ns, "plan --delete cm/nothing").await;
    assert_eq!(
        (missing.code, missing.err.contains("no ConfigMonitor with the source ConfigMap/nothing")),
        (Some(1), true)
    );
    let _operator = ns.operator().await;
    let window = json!([{"schedule": "0 0 1 1 *", "durationSeconds": 60}]);
    ns.monitor(NAME, json!({"windows": window, "maxUnavailable": null})).await;
    ns.edit(NAME, "two").await;
    ns.settled(NAME, "OutsideWindow").await;
    let held = cmon(&ns, "plan frontend").await;
    let says = ["restarts 2 pods for ConfigMap/frontend", "waiting for the next window", "to restart: 2 pods"];
    assert_eq!((held.code, says.map(|says| held.out.contains(says))), (Some(6), [true; 3]), "{held:?}");
    // What the caller may not read is not what the operator may not read.
    let kubectl = control_plane().await.kubectl();
    let reads = "--resource=configmonitors.magalix.com,pods";
    kubectl.ok(&["create", "role", "planner", "--verb=get,list", reads, "-n", &ns.namespace]).await.unwrap();
    let binding = ["create", "rolebinding", "planner", "--role=planner", "--user=planner", "-n", &ns.namespace];
    kubectl.ok(&binding).await.unwrap();
    let blind = cmon(&ns, "plan frontend --as=planner").await;
    assert_eq!(
        (blind.code, blind.err.contains("/configmaps/frontend is answered with 403")),
        (Some(1), true),
        "{blind:?}"
    );
    let open = cmon(&ns, "plan frontend --at=2027-01-01T00:00:30Z").await;
    assert_eq!((open.code, open.out.contains("window")), (Some(6), false), "{open:?}");
    let requested = cmon(&ns, "plan frontend --restart").await;
    assert_eq!((requested.code, requested.out.contains("window")), (Some(6), false), "{requested:?}");
    let dir = RunDir::create().unwrap();
    let file = dir.path().join("new.json");
    let mut deployment = ns.get("deployments", NAME).await;
    let template = &mut deployment["spec"]["template"]["spec"]["containers"][0];
    template["env"] = json!([{"name": "A", "value": "b"}]);
    let monitor = json!({
        "apiVersion": "magalix.com/v1",
        "kind": "ConfigMonitor",
        "metadata": {"name": "new"},
        "spec": {"configMap": NAME, "podSelector": {"app": NAME}},
    });
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [monitor, deployment]});
    fs::write(&file, list.to_string()).unwrap();
    let new = cmon(&ns, &format!("plan -f {}", file.display())).await;
    let says = [
        "ConfigMonitor/new  new: its first content is the baseline",
        "Deployment/frontend  its own rollout replaces its pods",
    ];
    assert_eq!(says.map(|says| new.out.contains(says)), [true; 2], "{new:?}");
}

/// Returns the names of the pods in a field of a plan.
fn names(plan: &Value, field: &str) -> Vec<String> {
    plan["configMonitors"][0][field].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_plan_names_the_pods_that_the_operator_then_restarts() {
    let ns = TestNamespace::with_pods(4).await;
    let _operator = ns.operator().await;
    ns.monitor(NAME, json!({"maxUnavailable": 1})).await;
    let before = ns.ready_pods(APP, 4).await;
    let nothing = cmon(&ns, "plan").await;
    assert_eq!((nothing.code, nothing.out.contains("no pod is restarted")), (Some(0), true), "{nothing:?}");
    let dir = RunDir::create().unwrap();
    let file = dir.path().join("edit.json");
    let edit = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": {"key": "planned"}});
    fs::write(&file, edit.to_string()).unwrap();
    let file = file.to_str().unwrap();
    let planned = cmon(&ns, &format!("plan -o json -f {file}")).await;
    assert_eq!(planned.code, Some(6), "{planned:?}");
    let plan: Value = serde_json::from_str(&planned.out).unwrap();
    let (first, later) = (names(&plan, "first"), names(&plan, "later"));
    assert_eq!((first.len(), later.len()), (1, 3), "{plan}");
    assert_eq!(ns.pods(APP).await, before, "a plan restarts nothing");
    control_plane().await.kubectl().ok(&["apply", "-n", &ns.namespace, "-f", file]).await.unwrap();
    ns.replaced(APP, &before).await;
    let sent = ns.sent_deletions();
    assert_eq!(sent[..1], first, "{sent:?}");
    assert_eq!(sent.iter().collect::<BTreeSet<_>>(), before.keys().collect());
    assert_eq!(first.iter().chain(&later).collect::<BTreeSet<_>>(), before.keys().collect());
}

#[tokio::test]
async fn a_server_with_a_path_keeps_the_path() {
    let ns = TestNamespace::with_pods(0).await;
    let control_plane = control_plane().await;
    let token = control_plane.service_account_token(&ns.namespace, "default").await.unwrap();
    let proxy = control_plane.proxy_with(&token, &["--api-prefix=/clusters/one/".to_owned()]).await.unwrap();
    let refused = cmon(&ns, &format!("status --server={}/clusters/one", proxy.url())).await;
    // Only the API server answers like this.
    let says = format!("User \"system:serviceaccount:{}:default\" cannot list", ns.namespace);
    assert!(refused.err.contains(&says), "{refused:?}");
}

/// Writes a program.
fn program(file: &Path, script: &str) {
    fs::write(file, script).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The program of the kubeconfig that gives the credentials asks the user for a word.
#[tokio::test]
async fn on_a_terminal_credentials_may_be_asked_for() {
    let ns = TestNamespace::with_pods(1).await;
    let _operator = ns.operator().await;
    ns.monitor(NAME, json!({})).await;
    let dir = RunDir::create().unwrap();
    let kubectl = control_plane().await.kubectl();
    let kubeconfig = kubectl.ok(&["config", "view", "--flatten", "--raw", "--output=json"]).await.unwrap();
    let mut kubeconfig: Value = serde_json::from_str(&kubeconfig).unwrap();
    let user = &mut kubeconfig["users"][0]["user"];
    let (version, asks) = ("client.authentication.k8s.io/v1", dir.path().join("asks"));
    let credential = json!({"apiVersion": version, "kind": "ExecCredential", "status": {"token": user["token"]}});
    program(
        &asks,
        &format!("#!/bin/sh\nprintf 'Word: ' >&2\nread -r word\n[ \"$word\" = sesame ] && echo '{credential}'"),
    );
    *user = json!({"exec": {"apiVersion": version, "command": asks, "interactiveMode": "Always"}});
    let file = dir.path().join("kubeconfig");
    fs::write(&file, kubeconfig.to_string()).unwrap();
    let called = command(&ns, "status frontend").await;
    let words = [called.get_program()].into_iter().chain(called.get_args());
    let words: Vec<&str> = words.map(|word| word.to_str().unwrap()).collect();
    for (word, is_let_in) in [("sesame", true), ("tahini", false)] {
        let mut on_terminal = Command::new("sh");
        on_terminal.args([
            "-c",
            "echo $0 | timeout 600 script --quiet --return --command \"$1\" /dev/null",
            word,
            &words.join(" "),
        ]);
        on_terminal.envs(called.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let ended = output(on_terminal.env("KUBECONFIG", &file)).await.unwrap();
        let text = String::from_utf8_lossy(&ended.stdout);
        let is_shown = text.contains("Ready: UpToDate");
        assert_eq!((text.contains("Word: "), is_shown, ended.status.success()), (true, is_let_in, is_let_in), "{text}");
    }
}

#[tokio::test]
async fn each_global_flag_of_kubectl_is_passed_on() {
    let ns = TestNamespace::with_pods(0).await;
    let options = control_plane().await.kubectl().ok(&["options"]).await.unwrap();
    let flags = options.lines().filter_map(|line| line.split_once("--")?.1.split_once('='));
    let flags: Vec<&str> = flags.map(|(flag, _)| flag).filter(|flag| *flag != "namespace").collect();
    assert!(flags.len() > 20, "{options}");
    for flag in flags {
        let call = cmon(&ns, &format!("status --{flag}=1")).await;
        assert_ne!(call.code, Some(2), "{call:?}");
    }
}

/// Each of the mistakes of a first hour, and what `doctor` says about it in one run.
#[tokio::test]
async fn the_cause_of_each_mistake_is_found_by_one_command() {
    let (ns, other) = (TestNamespace::with_pods(2).await, TestNamespace::new().await);
    ns.create("secrets", json!({"metadata": {"name": "tls"}, "data": {}})).await;
    ns.config_map("own", "one").await;
    let budget = json!({"maxUnavailable": 0, "selector": {"matchLabels": {"app": NAME}}});
    ns.create("poddisruptionbudgets", json!({"metadata": {"name": "strict"}, "spec": budget})).await;
    let operators = json!({"app.kubernetes.io/name": "configmonitor-operator"});
    let template =
        json!({"metadata": {"labels": operators}, "spec": {"containers": [{"name": "operator", "image": "operator"}]}});
    let spec = json!({"replicas": 0, "selector": {"matchLabels": operators}, "template": template});
    other.create("deployments", json!({"metadata": {"name": "off", "labels": operators}, "spec": spec})).await;
    let operator = ns.operator().await;
    let keys = json!([{"configMap": {"name": NAME, "keys": ["kye"]}}]);
    let secret = json!([{"secret": {"name": "tls"}}]);
    let window = json!([{"schedule": "0 2 * * sunday", "durationSeconds": 3600}]);
    let last = json!({"matchLabels": {"role": "primary"}});
    for (name, reason, spec) in [
        ("source", "SourceNotFound", json!({"configMap": "frontent"})),
        ("key", "KeyNotFound", json!({"configMap": null, "sources": keys})),
        ("selector", "NoPodsSelected", json!({"podSelector": {"app": "front-end"}})),
        ("right", "Forbidden", json!({"configMap": null, "sources": secret})),
        ("window", "InvalidSpec", json!({"windows": window})),
        ("surging", "Forbidden", json!({"maxSurge": 1, "maxUnavailable": null})),
        ("evicting", "UpToDate", json!({"configMap": "own", "deletionPolicy": "Evict"})),
        ("last", "UpToDate", json!({"restartLast": last})),
        ("forgotten", "Suspended", json!({"suspend": true})),
        ("busy", "Suspended", json!({"configMap": "own", "suspend": true})),
    ] {
        ns.create_monitor(name, spec).await;
        ns.settled(name, reason).await;
    }
    other.create_monitor("elsewhere", json!({})).await;
    ns.edit("own", "two").await;
    change_is_read(&ns, "evicting").await;
    change_is_read(&ns, "busy").await;
    ns.patch(
        "configmonitors",
        "evicting",
        json!({"metadata": {"annotations": {"magalix.com/restart-requested-at": "now"}}}),
    )
    .await;
    eventually("the request is read", DEADLINE, async || {
        let reconciling = &ns.get("configmonitors", "evicting").await["status"]["conditions"][1]["message"];
        ensure!(reconciling.as_str().unwrap().contains("another restart is requested"), "{reconciling}");
        Ok(())
    })
    .await
    .unwrap();
    let now = ns.get("configmonitors", "busy").await["metadata"]["creationTimestamp"].clone();
    let restart = json!({"number": 1, "startedAt": now, "completedAt": now, "pods": 1, "result": "Completed"});
    ns.patch("configmonitors", "busy/status", json!({"status": {"history": vec![restart; 10]}})).await;
    // As after the loss of its rights.
    drop(operator);
    ns.edit(NAME, "two").await;
    let found = async |ns: &TestNamespace| {
        let found = cmon(ns, "doctor -o json").await;
        assert_eq!(found.code, Some(1));
        found.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>()
    };
    let findings = [found(&ns).await, found(&other).await].concat();
    for (object, state, what, next) in [
        ("ConfigMonitor/source", "wrong", "SourceNotFound: ", "create it, or correct its name in the spec"),
        ("ConfigMonitor/key", "wrong", "KeyNotFound: ", "correct the keys in the spec, or the source"),
        ("ConfigMonitor/selector", "wrong", "selects the pods of no workload", "compare spec.podSelector with"),
        ("ConfigMonitor/right", "wrong", "Forbidden: ", "grant the operator what the message names"),
        ("ConfigMonitor/window", "wrong", "InvalidSpec: ", "correct what the message names"),
        ("ConfigMonitor/surging", "wrong", "Forbidden: spec.maxSurge needs the Component deploy/surge", "grant"),
        ("ConfigMonitor/last", "wrong", "shares pods with ", "name all sources in one ConfigMonitor"),
        ("ConfigMonitor/last", "wrong", "restartLast matches none of its pods", "compare spec.restartLast"),
        ("ConfigMonitor/evicting", "wrong", "PodDisruptionBudget/strict never lets one", "let it allow a disruption"),
        ("ConfigMonitor/evicting", "waits", "EvictionBlocked: ", ""),
        ("ConfigMonitor/last", "wrong", "the operator has not read ConfigMap/frontend", "see whether the operator has"),
        ("ConfigMonitor/busy", "held", "Suspended: the content of ConfigMap/own has changed", ""),
        ("ConfigMonitor/busy", "wrong", "ten restarts within 45 minutes", "find out who writes the source"),
        ("ConfigMonitor/elsewhere", "wrong", "no operator has read its spec", "see that an operator runs"),
        // A note, if another test has an operator.
        ("Deployment/off", "", "is scaled to 0", ""),
    ] {
        let is_it = |finding: &&Value| {
            let says = |field: &str, text: &str| finding[field].as_str().unwrap_or_default().starts_with(text);
            finding["object"] == object && says("state", state) && says("what", what) && says("next", next)
        };
        assert!(findings.iter().any(|finding| is_it(&finding)), "{object}: {what}: {findings:#?}");
    }
    let of_busy = findings.iter().filter(|finding| finding["object"] == "ConfigMonitor/busy");
    let busy: Vec<_> = of_busy.map(|finding| finding["state"].as_str().unwrap()).collect();
    assert_eq!(busy, ["note", "held", "wrong", "wrong"], "{findings:#?}");
    let waits = findings.iter().any(|finding| finding["what"].to_string().contains("another restart is requested"));
    assert!(waits, "{findings:#?}");
}

#[tokio::test]
async fn a_plan_for_a_file_is_about_all_its_namespaces_and_checks_what_is_new() {
    let (ns, other) = (TestNamespace::with_pods(1).await, TestNamespace::with_pods(1).await);
    let _operators = (ns.operator().await, other.operator().await);
    other.monitor(NAME, json!({})).await;
    let edit = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": other.namespace},
        "data": {"key": "planned"},
    });
    let new = |spec: Value| json!({"apiVersion": "magalix.com/v1", "kind": "ConfigMonitor", "metadata": {"name": "new", "namespace": ns.namespace}, "spec": spec});
    let dir = RunDir::create().unwrap();
    let file = dir.path().join("edit.json");
    let plan = async |items: &[Value]| {
        fs::write(&file, json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()).unwrap();
        let words = ["cmon", "plan", "-f", file.to_str().unwrap()];
        let mut command = control_plane().await.kubectl().command(&words);
        command.env("PATH", path_with(None).await);
        called(&command).await
    };
    let elsewhere = plan(std::slice::from_ref(&edit)).await;
    assert_eq!((elsewhere.code, elsewhere.out.contains("restarts 1 pod")), (Some(6), true), "{elsewhere:?}");
    let right = new(json!({"configMap": NAME, "podSelector": {"app": NAME}}));
    let both = plan(&[edit, right]).await;
    let names =
        [&*ns.namespace, &other.namespace].map(|namespace| both.out.contains(&format!("Namespace/{namespace}\n")));
    assert_eq!((both.code, names), (Some(6), [true; 2]), "{both:?}");
    let keys = json!([{"configMap": {"name": NAME, "keys": ["kye"]}}]);
    for (spec, wrong) in [
        (json!({"sources": keys, "podSelector": {"app": NAME}}), "KeyNotFound"),
        (json!({"configMap": "frontent", "podSelector": {"app": NAME}}), "SourceNotFound"),
    ] {
        let planned = plan(&[new(spec)]).await;
        assert_eq!((planned.code, planned.out.contains(wrong)), (Some(3), true), "{planned:?}");
    }
}

#[tokio::test]
async fn the_proxy_is_the_callers_alone_and_ends_with_the_plugin_however_that_ends() {
    let ns = TestNamespace::with_pods(0).await;
    ns.create_monitor("waits", json!({})).await;
    for is_killed in [false, true] {
        let dir = RunDir::create().unwrap();
        let mut command = command(&ns, "wait waits").await;
        command.env("TMPDIR", dir.path());
        let mut plugin = Process::start(&command, &dir.path().join("log")).unwrap();
        let socket = eventually("a proxy listens", DEADLINE, async || {
            let folders = fs::read_dir(dir.path())?.filter_map(|entry| Some(entry.ok()?.path()));
            let sockets = folders.map(|folder| folder.join("proxy")).find(|socket| socket.exists());
            sockets.context("no socket")
        })
        .await
        .unwrap();
        let folder = fs::metadata(socket.parent().unwrap()).unwrap();
        let mut connection = UnixStream::connect(&socket).unwrap();
        assert!(fs::metadata(&socket).unwrap().file_type().is_socket());
        assert_eq!(folder.permissions().mode() & 0o777, 0o700);
        match is_killed {
            // Only itself, and not its group.
            true => {
                let id = Pid::from_raw(plugin.id().cast_signed()).unwrap();
                kill_process(id, Signal::KILL).unwrap();
                plugin.wait(DEADLINE).await.unwrap();
            }
            false => _ = plugin.terminate(DEADLINE).await.unwrap(),
        }
        // The proxy has ended, or it would wait for a request.
        connection.set_read_timeout(Some(DEADLINE)).unwrap();
        assert!(!matches!(connection.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock));
        eventually("no folder is left but of a plugin that was killed", DEADLINE, async || {
            ensure!(is_killed || !socket.parent().unwrap().exists(), "the folder is left");
            Ok(())
        })
        .await
        .unwrap();
    }
}
