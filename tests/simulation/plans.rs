//! `kubectl cmon plan` says before a restart which pods the operator then deletes, and which of them first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use configmonitor_operator::kube::CONFIG_MAPS;
use configmonitor_operator::kube::client::Client;
use configmonitor_operator::kube::list::Selection;
use configmonitor_operator::kube::transport::Transport;
use configmonitor_operator::monitor::CONFIG_MONITORS;
use fastrand::Rng;
use kubectl_cmon::plan::look_ahead;
use kubectl_cmon::shadow::Premise;
use serde_json::Value;
use simulated_cluster::cluster::Cluster;
use simulated_cluster::content::data;
use simulated_cluster::network::{Fate, Process, RequestKind};
use simulated_cluster::processes::start;
use simulated_cluster::state::{OWN_POD, Owners, Pace, References};
use simulated_cluster::{Connection, NAMESPACE};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::examples::{OTHER, SETTINGS, spec};
use crate::player::{Player, in_paused_time};
use crate::runs::{STORIES, variable};
use crate::story::Move::{self, Edit as EditContent, RequestRestart, Scale, Stop, Wait};
use crate::story::{AT_ONCE, Edit, PodCount, Pods, Story, Windows};

const PACE: Pace = Pace { creation: 50, readiness: 300, termination: 200 };
/// Pods come and go within this time.
const CALM: Move = Wait(60_000);

/// An edit of a source that is planned before it is made.
type Foreseen = Option<(&'static str, char)>;

/// Draws a settled ConfigMonitor, what happens while the operator is away, and what is planned.
fn story(seed: u64) -> (Story, Foreseen) {
    let mut rng = Rng::with_seed(seed);
    let surges = rng.u8(..4) == 0;
    let mut one_of = |edits: &[Edit]| spec(edits[rng.usize(..edits.len())]);
    let one = PodCount::Pods(1);
    let surge = if surges { Edit::MaxSurge(Some(one)) } else { Edit::Touch };
    let before = [
        one_of(&[Edit::Discover(true), Edit::Touch, Edit::Both]),
        one_of(&[Edit::Canary(Some((one, 5))), Edit::Canary(None), Edit::MaxTotal(Some(PodCount::Pods(2)))]),
        one_of(&[Edit::Select(Pods::All), Edit::Select(Pods::Front), Edit::Select(Pods::NotBack)]),
        one_of(&[Edit::Evict(true), Edit::RestartUnmanaged(true), Edit::MinReady(2), Edit::Touch]),
        one_of(&[Edit::Windows(Windows::EveryMinute), Edit::Windows(Windows::EveryOtherMinute), Edit::MinInterval(90)]),
        spec(surge),
        CALM,
        Stop(Process::First),
    ];
    let mut moves = before.to_vec();
    for _ in 0..rng.usize(1..4) {
        moves.push(match rng.usize(..6) {
            0..3 => EditContent(if rng.bool() { SETTINGS } else { OTHER }, 'b'),
            3 => Move::KillPod(rng.usize(..6)),
            4 => Scale(rng.usize(..3), rng.usize(1..4)),
            _ => RequestRestart(0, 'x'),
        });
    }
    moves.push(CALM);
    let budgets = [AT_ONCE, Some(PodCount::Pods(1)), Some(PodCount::Percent("40%")), None];
    let monitors = vec![([0, 3][rng.usize(..2)], budgets[rng.usize(..4)])];
    let references = [References::Both, References::ByPod, References::ByOwner][rng.usize(..3)];
    let owners = if rng.bool() { Owners::Usual } else { Owners::Odd };
    let foreseen = [None, Some((SETTINGS, 'c')), Some((OTHER, 'c'))][rng.usize(..3)];
    (Story { seed, references, owners, surges, ..Story::plain(monitors, PACE, moves) }, foreseen)
}

/// Plays a story up to its last move.
async fn played(story: &Story) -> Player<'_> {
    let mut player = Player::begin(story);
    for one in &story.moves {
        player.make(*one).await;
    }
    player
}

/// Returns the pods that a plan names, first and later.
async fn planned(cluster: &Arc<Cluster>, foreseen: Foreseen) -> (Vec<String>, Vec<String>) {
    let life = cluster.state().network.begin_life(Process::Second);
    let transport: Arc<dyn Transport> = Arc::new(Connection { cluster: Arc::clone(cluster), life });
    let base = "http://api".parse().unwrap();
    let client = Client::new(
        Box::new(Arc::clone(&transport)),
        Clone::clone(&base),
        1,
        1,
        Arc::new(()),
        CancellationToken::new(),
    );
    let all = Selection { resource: CONFIG_MONITORS, labels: None, fields: None, metadata_only: false };
    let client = client.within(&NAMESPACE.into());
    let mut listed = client.list(&all, None, |monitor: Value| monitor).await.unwrap();
    let (namespace, monitor, mut objects) = (NAMESPACE.into(), listed.items.remove(0), BTreeMap::new());
    if let Some((name, content)) = foreseen {
        let mut object: Value = client.get(CONFIG_MAPS, name).await.unwrap().value;
        let edited = data([Some(content), None]).into_iter();
        edited.for_each(|(key, value)| object["data"][key] = value.into());
        objects.insert(format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{name}"), Some(object));
    }
    let premise = Premise { namespace, monitor, objects, own_pod: Some(OWN_POD.into()), now: listed.at };
    let outlook = look_ahead((&transport, &base), "flakapp-config-monitor".to_owned(), premise, false).await.unwrap();
    (outlook.first, outlook.later)
}

#[test]
fn a_plan_names_the_pods_that_the_operator_then_deletes() {
    // A plan plays the operator up to three times, and the story once more.
    let (stories, first) = (variable("STORIES", STORIES) / 10, variable("SEED", 0));
    let (mut some, mut waves) = (0, 0);
    for seed in first..first + stories {
        let (story, foreseen) = story(seed);
        in_paused_time(&story, async {
            let mut player = played(&story).await;
            let cluster = &player.cluster;
            let (first, later) = planned(cluster, foreseen).await;
            if let Some((name, content)) = foreseen {
                player.make(EditContent(name, content)).await;
            }
            let cluster = &player.cluster;
            let names: BTreeMap<usize, String> =
                cluster.state().pods.iter().map(|pod| (pod.id, pod.name.to_string())).collect();
            start(cluster, Process::First);
            sleep(Duration::from_secs(600)).await;
            let state = cluster.state();
            let ledger = &state.ledger;
            // A pod that is handed over is deleted later.
            let mut gone: Vec<_> = ledger.deletions.iter().chain(&ledger.handed_over).collect();
            gone.sort_by_key(|its| its.at);
            let mut seen = BTreeSet::new();
            let gone = gone.into_iter().filter(|its| seen.insert(its.pod));
            let gone: Vec<&String> = gone.filter_map(|its| names.get(&its.pod)).collect();
            let all: BTreeSet<&String> = first.iter().chain(&later).collect();
            assert_eq!(gone.iter().copied().collect::<BTreeSet<_>>(), all, "{foreseen:?} {story:?}");
            assert_eq!(first.is_empty(), all.is_empty(), "{foreseen:?} {story:?}");
            let wave: BTreeSet<&String> = gone.iter().copied().take(first.len()).collect();
            assert_eq!(wave, first.iter().collect(), "{foreseen:?} {story:?}");
            some += u64::from(!all.is_empty());
            waves += u64::from(!later.is_empty());
        });
    }
    assert!(some * 2 > stories && waves * 4 > stories, "{some} plans of {stories} have pods, {waves} several waves");
}

/// After a list that took t, the operator pauses for nine times t, and then looks again.
#[test]
fn a_plan_ends_also_if_lists_take_long() {
    let slow = Move::Lasting(RequestKind::ListPods, Some(Fate::LateAnswer(2000)));
    let one_by_one = vec![(0, Some(PodCount::Pods(1)))];
    let moves = vec![CALM, Stop(Process::First), EditContent(SETTINGS, 'b'), slow];
    let story = Story::plain(one_by_one, PACE, moves);
    in_paused_time(&story, async {
        let player = played(&story).await;
        let (first, later) = timeout(Duration::from_secs(300), planned(&player.cluster, None)).await.unwrap();
        assert!(!first.is_empty() && !later.is_empty(), "{first:?} {later:?}");
    });
}

/// Another ConfigMonitor has handed a pod over, whose successor does not get ready.
#[test]
fn a_plan_leaves_the_pods_of_others_alone() {
    let surge = [Edit::MaxUnavailable(None), Edit::MaxSurge(Some(PodCount::Pods(1)))].map(|edit| Move::Spec(1, edit));
    let handed_over = [Move::NewPodsStayUnready(true), EditContent(SETTINGS, 'b'), Wait(5000), Stop(Process::First)];
    let moves = [&[spec(Edit::Source(OTHER))], &surge[..], &[CALM], &handed_over].concat();
    let monitors = vec![(0, AT_ONCE), (0, AT_ONCE)];
    let story = Story { surges: true, owners: Owners::One, ..Story::plain(monitors, PACE, moves) };
    in_paused_time(&story, async {
        let player = played(&story).await;
        assert_eq!(player.cluster.state().ledger.handed_over.len(), 1);
        assert_eq!(planned(&player.cluster, None).await, (Vec::new(), Vec::new()));
    });
}
