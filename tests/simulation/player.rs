//! Plays a story with the simulated cluster and up to two processes of the real operator. At the end everything heals.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use configmonitor_operator::kube::labels::{LabelSelectorOperator, LabelSelectorRequirement};
use configmonitor_operator::monitor::content::Kind;
use configmonitor_operator::monitor::source::{ObjectSpec, SourceSpec};
use configmonitor_operator::monitor::spec::{CanarySpec, DeletionPolicy, Spec, UnmanagedPods};
use configmonitor_operator::monitor::spec::{Discover, ExcludedObject};
use simulated_cluster::cluster::Cluster;
use simulated_cluster::content::{CONFIG_MAPS, KEYS, Source, Values, discovers, hash};
use simulated_cluster::ledger::{End, Ledger};
use simulated_cluster::network::{Lease, Network, Process, RequestKind, Sent, WatchFault, Watched};
use simulated_cluster::processes::{kill, start, stop};
use simulated_cluster::state::{ClusterState, Monitor, Setting, name_of};
use tokio::time::{sleep, timeout};

use crate::story::{Edit, Last, Move, PodCount, Pods, Story, Windows};

/// Nothing must move for this long, in milliseconds, before a story is over.
const SETTLED_FOR: u64 = 45_000;
/// The most time in which everything must settle at the end, in milliseconds.
const MAX_SETTLING: u64 = 3_000_000;
/// How long `Until` waits for requests of a process.
const REQUESTS_TIMEOUT: Duration = Duration::from_secs(5);
/// The outcome of a story.
pub(crate) struct Played {
    pub(crate) ledger: Ledger,
    pub(crate) trace: Vec<Sent>,
    /// The moves of the story, each with its time and the number of requests before it.
    pub(crate) moves: Vec<(u64, usize, Move)>,
}

pub(crate) struct Player<'a> {
    pub(crate) cluster: Arc<Cluster>,
    /// The selectors and contents that `heal` restores.
    selected: Vec<Pods>,
    last_content: BTreeMap<&'static str, Values>,
    /// What each ConfigMonitor names.
    named: Vec<Named>,
    story: &'a Story,
    moves: Vec<(u64, usize, Move)>,
}

/// Plays a story to its end.
pub(crate) fn play(story: &Story) -> Played {
    let (cluster, moves) = in_paused_time(story, async {
        let mut player = Player::begin(story);
        for one in &story.moves {
            let (ms, sent) = (player.cluster.now(), player.cluster.state().network.trace.len());
            player.moves.push((ms, sent, *one));
            player.make(*one).await;
        }
        player.heal().await;
        (player.cluster, player.moves)
    });
    let ClusterState { mut ledger, network, .. } = cluster.into_state();
    ledger.improper.extend(network.sent_by_standbys.iter().map(|sent| format!("a standby has sent {sent}")));
    ledger.improper.extend(miscounted(&network));
    Played { ledger, trace: network.trace, moves }
}

pub(crate) fn in_paused_time<T>(story: &Story, plays: impl Future<Output = T>) -> T {
    // The operator draws from this generator, the network from its own.
    fastrand::seed(story.seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(plays)
}

/// Compares the metrics of all processes with the answers that they received.
fn miscounted(network: &Network) -> Vec<String> {
    let mut expected: BTreeMap<(usize, u16), u64> = BTreeMap::new();
    for Sent { life, code, .. } in &network.trace {
        let Some(code) = code else { continue };
        *expected.entry((life.0, *code)).or_default() += 1;
    }
    let mut counted: BTreeMap<(usize, u16), u64> = BTreeMap::new();
    for (life, metrics) in network.metrics.iter().enumerate() {
        for line in metrics.text(true).lines() {
            let Some(series) = line.strip_prefix("configmonitor_api_requests_total{") else { continue };
            let (_, code) = series.split_once("code=\"").unwrap();
            let (code, count) = code.split_once("\"} ").unwrap();
            // `none` is no answer.
            let Ok(code) = code.parse() else { continue };
            *counted.entry((life, code)).or_default() += count.parse::<u64>().unwrap();
        }
    }
    let differ = counted != expected;
    differ.then(|| format!("the metrics have {counted:?}, the answers {expected:?}")).into_iter().collect()
}

fn labels(pods: Pods) -> BTreeMap<String, String> {
    let pairs: &[(&str, &str)] = match pods {
        Pods::All | Pods::NotBack => &[("app", "frontend")],
        Pods::Front => &[("app", "frontend"), ("tier", "front")],
        Pods::Back => &[("tier", "back")],
    };
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// The ConfigMaps that a ConfigMonitor names.
#[derive(Clone, Copy)]
struct Named {
    config_maps: &'static [&'static str],
    one_key: bool,
    /// It discovers all, and names none unless it names some beside that.
    discovers: bool,
    names_some: bool,
    /// The second one is not discovered.
    excludes: bool,
}

impl Named {
    /// Writes these ConfigMaps into a spec: in the short form, if there is one for them.
    fn write(self, story: &Story, spec: &mut Spec) {
        let keys = self.one_key.then(|| vec![KEYS[0].to_owned()]);
        let is_secret = |name: &str| story.secret && name == CONFIG_MAPS[1];
        spec.discover = self.discovers.then(|| {
            let kinds = if story.secret { vec![Kind::ConfigMap, Kind::Secret] } else { vec![Kind::ConfigMap] };
            let second = ExcludedObject { kind: None, name: CONFIG_MAPS[1].into() };
            let exclude = self.excludes.then_some(second).into_iter().collect();
            Discover { kinds: kinds.into_iter().collect(), exclude }
        });
        if self.discovers && !self.names_some {
            (spec.config_map, spec.keys, spec.sources) = (None, None, None);
            return;
        }
        (spec.config_map, spec.keys, spec.sources) = match self.config_maps {
            [name] if !story.optional && !is_secret(name) => (Some((*name).to_owned()), keys, None),
            names => {
                let source = |name: &&str| {
                    let optional = story.optional.then_some(true);
                    let object = Some(ObjectSpec { name: (*name).to_owned(), keys: keys.clone(), optional });
                    match is_secret(name) {
                        true => SourceSpec { config_map: None, secret: object },
                        false => SourceSpec { config_map: object, secret: None },
                    }
                };
                (None, None, Some(names.iter().map(source).collect()))
            }
        };
    }
}

fn expressions(pods: Pods) -> Vec<LabelSelectorRequirement> {
    let (key, values) = ("tier".to_owned(), vec!["back".to_owned()]);
    let not_back = LabelSelectorRequirement { key, operator: LabelSelectorOperator::NotIn, values };
    if pods == Pods::NotBack { vec![not_back] } else { Vec::new() }
}

impl<'a> Player<'a> {
    /// Begins a story with one process.
    pub(crate) fn begin(story: &'a Story) -> Self {
        let named = |nth| if nth < story.both { &CONFIG_MAPS[..] } else { &CONFIG_MAPS[..1] };
        let named: Vec<Named> = (0..story.monitors.len())
            .map(|nth| Named {
                config_maps: named(nth),
                one_key: false,
                discovers: false,
                names_some: false,
                excludes: false,
            })
            .collect();
        let specs = story.monitors.iter().zip(&named).map(|((quiet, most), named)| {
            let mut spec = Spec {
                pod_selector: labels(Pods::All),
                quiet_period_seconds: Some(*quiet),
                max_unavailable: most.map(PodCount::in_spec),
                ..Spec::default()
            };
            named.write(story, &mut spec);
            spec
        });
        let mut network = Network::new(story.seed, story.page, story.deletions);
        network.lease = story.replicas.then(Lease::default);
        (network.namespaces, network.surges) = (story.namespaces, story.surges);
        network.only_gets_secrets = story.polled;
        let Story { owners, pace, skew, lag, nodes, min_ready, status_lag, references, .. } = *story;
        let Story { secret, optional, leads, ordered, .. } = *story;
        let of_story = Setting { ordered, ..Setting::of(owners, pace) };
        let setting =
            Setting { skew, lag, nodes, min_ready, status_lag, references, secret, optional, leads, ..of_story };
        let cluster = Cluster::new(ClusterState::new(specs.collect(), setting, network));
        tokio::spawn(Arc::clone(&cluster).live());
        let last_content = CONFIG_MAPS.map(|config_map| (config_map, [Some('a'); 2])).into();
        let (selected, moves) = (vec![Pods::All; story.monitors.len()], Vec::new());
        start(&cluster, Process::First);
        Self { cluster, story, named, selected, last_content, moves }
    }
}

impl Player<'_> {
    pub(crate) async fn make(&mut self, one: Move) {
        match one {
            Move::Start(process) => start(&self.cluster, process),
            Move::Crash(process) => kill(&self.cluster, process),
            Move::Stop(process) => stop(&self.cluster, process).await,
            Move::Request(process, what, nth, fate) => {
                self.cluster.state().network.set_fate(process, what, nth, fate);
            }
            Move::Lasting(what, fate) => self.cluster.state().network.set_lasting_fate(what, fate),
            Move::Watch(process, watched, fault) => self.fail_watch(process, watched, fault),
            Move::Until(process, what, nth) => self.until(process, what, nth).await,
            Move::Wait(ms) => sleep(Duration::from_millis(ms)).await,
            Move::Spec(monitor, edit) => self.edit_spec(monitor % self.selected.len(), edit),
            other => self.change_cluster(other),
        }
    }

    fn fail_watch(&self, process: Process, watched: Watched, fault: WatchFault) {
        let mut state = self.cluster.state();
        state.network.fail_watch(process, watched, fault);
        drop(state);
        self.cluster.changed.notify_waiters();
    }

    /// Waits until `more` requests of this kind have been served, or for `REQUESTS_TIMEOUT`.
    async fn until(&self, process: Process, what: RequestKind, more: usize) {
        let count = || self.cluster.state().network.served(process, what);
        let enough = count() + more;
        let all = async {
            loop {
                let served = self.cluster.served.notified();
                if count() >= enough {
                    return;
                }
                served.await;
            }
        };
        let _ = timeout(REQUESTS_TIMEOUT, all).await;
    }

    /// Carries out a move in the cluster.
    fn change_cluster(&mut self, one: Move) {
        let mut state = self.cluster.state();
        match one {
            Move::Edit(source, content) | Move::EditSecondKey(source, content) => {
                let key = usize::from(matches!(one, Move::EditSecondKey(..)));
                let last = self.last_content.entry(source).or_default();
                last[key] = Some(content);
                state.set_content(source, Some(*last));
            }
            Move::EditLabels(source) => {
                let content = state.config_maps.get(source).map(|stored| stored.content);
                content.into_iter().for_each(|content| state.set_content(source, Some(content)));
            }
            Move::Freeze(source) => state.freeze(source),
            Move::DeleteConfigMap(source) => state.set_content(source, None),
            Move::Scale(owner, replicas) => state.scale(owner, replicas),
            Move::RollOut => state.roll_out(),
            Move::LetSurge(may_surge) => state.let_surge(may_surge),
            Move::DeleteDeployment { orphans } => state.delete_deployment(orphans),
            Move::KillPod(nth) => state.kill(nth),
            Move::FinishPod(nth) => state.finish(nth),
            Move::EvictFromNode(nth) => state.evict_from_node(nth),
            Move::ShutDown(nth) => state.shut_down(nth),
            Move::CutOff(nth) => state.cut_off(nth),
            Move::Reconnect => state.reconnect(),
            Move::RestartContainer(nth) => state.restart_container(nth),
            Move::LoseReadiness(nth, ms) => state.lose_readiness(nth, ms),
            Move::RequestRestart(monitor, value) => {
                let monitor = state.monitor_by_name(&name_of(monitor));
                monitor.into_iter().for_each(|monitor| state.ask(monitor, value));
            }
            Move::Relabel(nth, tier) => state.relabel(nth, tier),
            Move::Lead(nth) => state.lead(nth),
            Move::LetElect(holds) => state.let_elect(holds),
            Move::NewPodsStayUnready(holds) => state.keep_new_pods_unready(holds),
            Move::RejectPods(pods) => state.rejected = pods,
            Move::PodsKeepTerminating(holds) => state.keep_pods_terminating(holds),
            Move::DisruptionBudgets(budgets) => {
                state.disruption_budgets = budgets.into_iter().flatten().collect();
            }
            Move::ForgetLists => state.compact(),
            Move::LabelNamespace(is_labelled) => state.label_namespace(is_labelled),
            Move::BackUp => state.back_up(),
            Move::Restore => state.restore(),
            Move::DeleteMonitor(monitor) => state.delete_monitor(monitor),
            Move::CreateMonitor(monitor) => state.create_monitor_again(monitor),
            other => panic!("{other:?} does not happen in the cluster"),
        }
    }

    /// Edits a spec as its author does.
    fn edit_spec(&mut self, nth: usize, edit: Edit) {
        let mut state = self.cluster.state();
        let Some(monitor) = state.monitor_by_name(&name_of(nth)) else { return };
        match edit {
            Edit::Select(pods) => self.selected[nth] = pods,
            Edit::Source(source) => {
                let its = CONFIG_MAPS.iter().position(|its| *its == source).unwrap();
                self.named[nth].config_maps = &CONFIG_MAPS[its..=its];
            }
            Edit::Both => self.named[nth].config_maps = &CONFIG_MAPS,
            Edit::OneKey(holds) => self.named[nth].one_key = holds,
            Edit::Discover(holds) => self.named[nth].discovers = holds,
            Edit::Exclude(holds) => self.named[nth].excludes = holds,
            Edit::Beside(holds) => self.named[nth].names_some = holds,
            _ => {}
        }
        let (selected, named, story) = (self.selected[nth], self.named[nth], self.story);
        if edit == Edit::WipeStatus {
            return state.wipe_status(monitor);
        }
        state.set_spec(monitor, |spec| match edit {
            Edit::Suspend(holds) => spec.suspend = Some(holds),
            Edit::Select(_) | Edit::Invalidate(false) => {
                (spec.pod_selector, spec.pod_selector_expressions) = (labels(selected), expressions(selected));
            }
            Edit::Invalidate(true) => spec.pod_selector = BTreeMap::new(),
            Edit::Source(_) | Edit::Both | Edit::OneKey(_) | Edit::Discover(_) | Edit::Exclude(_) | Edit::Beside(_) => {
                named.write(story, spec);
            }
            Edit::QuietPeriod(seconds) => spec.quiet_period_seconds = Some(seconds),
            Edit::MaxUnavailable(most) => spec.max_unavailable = most.map(PodCount::in_spec),
            Edit::MaxTotal(most) => spec.max_unavailable_total = most.map(PodCount::in_spec),
            // The schema refuses the two together.
            Edit::MaxSurge(Some(_)) if spec.canary.is_some() => {}
            Edit::Canary(Some(_)) if spec.max_surge.is_some() => {}
            Edit::MaxSurge(most) => spec.max_surge = most.map(PodCount::in_spec),
            Edit::RestartLast(last) => spec.restart_last = last.in_spec(),
            Edit::MinReady(seconds) => spec.min_ready_seconds = Some(seconds),
            Edit::Windows(windows) => spec.windows = windows.in_spec(),
            Edit::MinInterval(seconds) => spec.min_interval_seconds = Some(seconds),
            Edit::Canary(canary) => {
                let of = |(pods, bake_seconds): (PodCount, u32)| CanarySpec { pods: pods.in_spec(), bake_seconds };
                spec.canary = canary.map(of);
            }
            Edit::Deadline(seconds) => spec.progress_deadline_seconds = Some(seconds),
            Edit::RestartUnmanaged(holds) => spec.unmanaged_pods = holds.then_some(UnmanagedPods::Delete),
            Edit::Evict(holds) => spec.deletion_policy = holds.then_some(DeletionPolicy::Evict),
            Edit::Touch | Edit::WipeStatus => {}
        });
    }

    /// Ends all failures, and lets the operator work.
    async fn heal(&mut self) {
        for one in [
            Move::NewPodsStayUnready(false),
            Move::PodsKeepTerminating(false),
            Move::DisruptionBudgets([None; 2]),
            Move::LabelNamespace(true),
            Move::LetSurge(true),
            Move::LetElect(self.story.leads),
            Move::Reconnect,
        ] {
            self.make(one).await;
        }
        for monitor in 0..self.selected.len() {
            self.cluster.state().create_monitor_again(monitor);
            self.edit_spec(monitor, Edit::Invalidate(false));
            self.edit_spec(monitor, Edit::Suspend(false));
            // Of pods none of which may ever be the last, one would wait for good.
            if self.selected[monitor] != Pods::All || !self.has_leader_last(monitor) {
                self.edit_spec(monitor, Edit::RestartLast(Last::Nobody));
            }
            let named = |state: &ClusterState| {
                state.monitor_by_name(&name_of(monitor)).map(|it| state.monitors[it].spec.clone())
            };
            let is_frozen = |spec: Spec| spec.windows == Windows::FarAway.in_spec();
            let spec = named(&self.cluster.state());
            if spec.is_some_and(is_frozen) {
                self.edit_spec(monitor, Edit::Windows(Windows::Always));
            }
        }
        self.cluster.state().rejected = 0;
        self.cluster.state().hurry();
        self.cluster.state().recover();
        self.cluster.state().network.heal();
        start(&self.cluster, Process::First);
        let all = [
            Watched::ConfigMaps,
            Watched::Secrets,
            Watched::Monitors,
            Watched::Namespaces,
            Watched::Pods,
            Watched::References,
        ];
        for watched in all {
            self.fail_watch(Process::First, watched, WatchFault::Expire);
            self.fail_watch(Process::Second, watched, WatchFault::Expire);
        }
        for config_map in CONFIG_MAPS.into_iter().filter(|_| !self.story.optional) {
            let mut state = self.cluster.state();
            if !state.config_maps.contains_key(config_map) {
                let content = Some(self.last_content[config_map]);
                state.set_content(config_map, content);
            }
        }
        let is_settled = self.wait_until_settled().await;
        let mut state = self.cluster.state();
        for monitor in 0..state.monitors.len() {
            if !state.monitors[monitor].gone {
                record_end(&mut state, monitor, is_settled);
            }
        }
    }

    fn has_leader_last(&self, monitor: usize) -> bool {
        let state = self.cluster.state();
        let spec = state.monitor_by_name(&name_of(monitor)).map(|it| &state.monitors[it].spec);
        spec.is_some_and(|spec| spec.restart_last == Last::Leader.in_spec())
    }

    /// Waits until everything is settled and nothing is written or deleted any more. Returns false on a timeout.
    async fn wait_until_settled(&self) -> bool {
        let end = self.cluster.now() + MAX_SETTLING;
        // After a failed canary a user requests the restart again.
        let mut values = '0'..='9';
        while self.cluster.now() < end {
            sleep(Duration::from_secs(15)).await;
            let mut state = self.cluster.state();
            for monitor in 0..state.monitors.len() {
                let Monitor { gone, status, request, .. } = &state.monitors[monitor];
                let is_heeded = request.is_none_or(|value| status.has_taken_up(value));
                if !gone
                    && is_heeded
                    && status.has_failed_canaries()
                    && let Some(value) = values.next()
                {
                    state.ask(monitor, value);
                }
            }
            let books = state.ledger.books.iter();
            let last = books.filter_map(|book| book.writes.last()).map(|write| write.at.ms);
            let last = last.chain(state.ledger.deletions.last().map(|deletion| deletion.at.ms)).max().unwrap_or(0);
            let asked = state.network.trace.last().map_or(0, |sent| sent.ms);
            let settled = state.monitors.iter().filter(|monitor| !monitor.gone).all(|monitor| {
                let source = Source::by(&monitor.spec, &monitor.status);
                let content = source.and_then(|source| state.content_of(source));
                let (hash, status) = (content.map(hash), &monitor.status);
                let is_settled = status.is_ready() && status.restart.is_none() && status.config_hash() == hash;
                // Without a source, a request restarts nothing.
                let is_heeded = source.is_none() || monitor.request.is_none_or(|value| status.has_handled(value));
                is_settled && status.is_of(monitor.generation) && is_heeded
            });
            // With a fast clock, a node says for minutes that a pod is not available yet.
            let settled = settled && !state.pods.iter().any(|pod| pod.is_handed_over());
            if settled && last + SETTLED_FOR <= state.ms && asked + 1000 <= state.ms {
                return true;
            }
        }
        false
    }
}

/// Records the end of the story for a ConfigMonitor.
fn record_end(state: &mut ClusterState, monitor: usize, is_settled: bool) {
    let (spec, status) = (state.monitors[monitor].spec.clone(), state.monitors[monitor].status.clone());
    let alive = state.pods.iter().filter(|pod| !pod.finished && pod.gone_by.is_none()).map(|pod| pod.id).collect();
    let Some(source) = Source::by(&spec, &status) else {
        let pods: &Vec<usize> = &alive;
        let ours = pods.iter().map(|pod| &state.ledger.pods[*pod]);
        let mut ours = ours.filter(|pod| pod.is_selected(&spec) && pod.is_restartable(&spec));
        let is_found = CONFIG_MAPS.iter().any(|name| discovers(&spec, name) && ours.any(|pod| pod.refers_to(name)));
        let improper = is_found.then(|| format!("no source is found: {status:?}"));
        return state.ledger.improper.extend(improper);
    };
    let content = state.content_of(source).expect("the ConfigMaps are there or optional");
    let request = state.monitors[monitor].request;
    state.ledger.books[monitor].end = Some(End { spec, status, source, content, request, is_settled, alive });
}
