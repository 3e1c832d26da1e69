//! A story: how the cluster begins, and a list of moves. It prints as the code that plays it.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use configmonitor_operator::kube::labels::{LabelSelector, LabelSelectorOperator, LabelSelectorRequirement};
use configmonitor_operator::monitor::spec::IntOrString;
use configmonitor_operator::monitor::window::WindowSpec;
use fastrand::Rng;

use simulated_cluster::content::CONFIG_MAPS;
use simulated_cluster::network::{Fate, Process, RequestKind, Served, WatchFault, Watched};
use simulated_cluster::state::{LEADER, Owners, Pace, ROLE, References};

/// The selected pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pods {
    All,
    Front,
    Back,
    /// By an expression: the pods of `Front` and those without a tier.
    NotBack,
}

/// A number of pods: how many may be unavailable, or how many go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodCount {
    Pods(u32),
    Percent(&'static str),
}

/// All pods may be unavailable at once.
pub(crate) const AT_ONCE: Option<PodCount> = Some(PodCount::Percent("100%"));

impl PodCount {
    pub(crate) fn in_spec(self) -> IntOrString {
        match self {
            Self::Pods(pods) => IntOrString::Int(NonZeroU32::new(pods).unwrap()),
            Self::Percent(text) => IntOrString::String(text.to_owned()),
        }
    }
}

/// When restarts may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Windows {
    Always,
    /// In the first 20 s of each minute.
    EveryMinute,
    /// In the first 30 s of every other minute.
    EveryOtherMinute,
    /// In the windows of both: in the first 20 s of each minute, and in the first 30 s of every other one.
    Both,
    /// At the beginning of the year, after the end of every story.
    FarAway,
}

impl Windows {
    pub(crate) fn in_spec(self) -> Vec<WindowSpec> {
        let window = |schedule: &str, duration_seconds| WindowSpec {
            schedule: schedule.to_owned(),
            duration_seconds,
            time_zone: None,
        };
        let (every_minute, every_other_minute) = (window("* * * * *", 20), window("*/2 * * * *", 30));
        match self {
            Self::Always => Vec::new(),
            Self::EveryMinute => vec![every_minute],
            Self::EveryOtherMinute => vec![every_other_minute],
            Self::Both => vec![every_minute, every_other_minute],
            Self::FarAway => vec![window("0 0 1 1 *", 60)],
        }
    }
}

/// The pods that go last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    Nobody,
    /// The one that leads the others.
    Leader,
    /// Those of a tier. Their owners have given them this label.
    Back,
}

impl Last {
    pub(crate) fn in_spec(self) -> Option<LabelSelector> {
        let expression = |key: &str, operator, values: &[&str]| {
            let values = values.iter().map(|value| (*value).to_owned()).collect();
            LabelSelectorRequirement { key: key.to_owned(), operator, values }
        };
        let (match_labels, match_expressions) = match self {
            Self::Nobody => return None,
            Self::Leader => ([(ROLE.to_owned(), LEADER.to_owned())].into(), Vec::new()),
            Self::Back => (BTreeMap::new(), vec![expression("tier", LabelSelectorOperator::In, &["back"])]),
        };
        Some(LabelSelector { match_labels, match_expressions })
    }
}

/// One event of a story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    Edit(&'static str, char),
    EditSecondKey(&'static str, char),
    EditLabels(&'static str),
    /// Makes a ConfigMap immutable: from now on, other content replaces it.
    Freeze(&'static str),
    DeleteConfigMap(&'static str),
    Scale(usize, usize),
    /// Begins a rollout of the Deployment, or goes back.
    RollOut,
    /// Edits the strategy of the Deployment: whether two pods may exist where one is desired.
    LetSurge(bool),
    /// Deletes the Deployment. What it controls goes with it, or is orphaned.
    DeleteDeployment {
        orphans: bool,
    },
    KillPod(usize),
    FinishPod(usize),
    EvictFromNode(usize),
    /// Shuts down the node of a pod. 0 is the youngest pod.
    ShutDown(usize),
    /// Cuts off the node of a pod, or connects all nodes again. 0 is the youngest pod.
    CutOff(usize),
    Reconnect,
    /// Restarts a container of a pod. 0 is the youngest pod.
    RestartContainer(usize),
    /// Makes a pod unready, for a number of milliseconds or until the end of the story. 0 is the youngest pod.
    LoseReadiness(usize, Option<u64>),
    /// Sets or removes the label `tier` of a pod.
    Relabel(usize, Option<&'static str>),
    /// Lets a pod lead the others. 0 is the youngest pod.
    Lead(usize),
    /// Whether the pods agree on a leader when there is none. If not, none leads.
    LetElect(bool),
    NewPodsStayUnready(bool),
    PodsKeepTerminating(bool),
    /// The kubelets reject this many of the next pods.
    RejectPods(usize),
    DisruptionBudgets([Option<usize>; 2]),
    ForgetLists,
    /// Gives the namespace the label by which it may be selected, or takes it away.
    LabelNamespace(bool),
    BackUp,
    Restore,
    DeleteMonitor(usize),
    CreateMonitor(usize),
    /// Edits a ConfigMonitor.
    Spec(usize, Edit),
    /// Requests a restart of a ConfigMonitor, with this value of the annotation.
    RequestRestart(usize, char),
    Watch(Process, Watched, WatchFault),
    Start(Process),
    Stop(Process),
    Crash(Process),
    Request(Process, RequestKind, u32, Fate),
    Lasting(RequestKind, Option<Fate>),
    Until(Process, RequestKind, usize),
    Wait(u64),
}

/// An edit by the author of a ConfigMonitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    Suspend(bool),
    Select(Pods),
    Source(&'static str),
    Both,
    OneKey(bool),
    /// Whether the sources are read from the pods.
    Discover(bool),
    /// Whether the second ConfigMap is excluded from those.
    Exclude(bool),
    /// Whether some are named beside that.
    Beside(bool),
    QuietPeriod(u32),
    MaxUnavailable(Option<PodCount>),
    MaxTotal(Option<PodCount>),
    MaxSurge(Option<PodCount>),
    RestartLast(Last),
    MinReady(u32),
    Deadline(u32),
    Windows(Windows),
    MinInterval(u32),
    /// How many pods go first, and for how many seconds they must stay available.
    Canary(Option<(PodCount, u32)>),
    RestartUnmanaged(bool),
    Evict(bool),
    Invalidate(bool),
    Touch,
    WipeStatus,
}

/// A story.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    /// The seed of all random choices.
    pub(crate) seed: u64,
    /// The ConfigMonitors, by `quietPeriodSeconds` and `maxUnavailable`.
    pub(crate) monitors: Vec<(u32, Option<PodCount>)>,
    /// How many of the first ConfigMonitors begin with both ConfigMaps.
    pub(crate) both: usize,
    /// Whether both processes take part in leader election. Otherwise each one acts.
    pub(crate) replicas: bool,
    pub(crate) pace: Pace,
    pub(crate) owners: Owners,
    /// Seconds by which the clocks of the two API servers differ.
    pub(crate) skew: u64,
    /// Milliseconds by which watch events of one API server are late.
    pub(crate) lag: u64,
    /// Seconds by which the clocks of the nodes are ahead; behind if negative.
    pub(crate) nodes: i64,
    /// The `minReadySeconds` of each owner.
    pub(crate) min_ready: u32,
    /// Milliseconds by which the status of the Deployment is late.
    pub(crate) status_lag: u64,
    /// Whether StatefulSets create a member only once those before it are ready.
    pub(crate) ordered: bool,
    /// The namespaces that the processes serve.
    pub(crate) namespaces: Served,
    /// Whether the processes hand pods over.
    pub(crate) surges: bool,
    /// Whether one of the pods leads the others.
    pub(crate) leads: bool,
    pub(crate) references: References,
    /// Whether the second ConfigMap is a Secret.
    pub(crate) secret: bool,
    /// Whether the processes may get it, but neither list nor watch Secrets.
    pub(crate) polled: bool,
    /// Whether the ConfigMaps may be missing.
    pub(crate) optional: bool,
    /// The most objects in a page of a list.
    pub(crate) page: usize,
    /// The most deletions that a process sends at a time.
    pub(crate) deletions: usize,
    pub(crate) moves: Vec<Move>,
}

impl Story {
    /// Creates a story without clock skew, lag, replicas or unusual owners.
    pub(crate) fn plain(monitors: Vec<(u32, Option<PodCount>)>, pace: Pace, moves: Vec<Move>) -> Self {
        Self {
            seed: 1,
            monitors,
            both: 0,
            replicas: false,
            pace,
            owners: Owners::Usual,
            skew: 0,
            lag: 0,
            nodes: 0,
            min_ready: 0,
            status_lag: 0,
            ordered: false,
            namespaces: Served::One,
            surges: false,
            leads: false,
            references: References::Both,
            secret: false,
            polled: false,
            optional: false,
            page: 500,
            deletions: 4,
            moves,
        }
    }
}

/// Writes a random story.
struct Author {
    rng: Rng,
    /// What is drawn so far.
    story: Story,
    /// How many of seven edits are of the second ConfigMap.
    of_second: u8,
    /// The watches on ConfigMaps and Secrets.
    of_sources: &'static [Watched],
    /// The sources that an edit of the spec may name.
    sources: &'static [Edit],
    /// One in this many moves is about windows, intervals, canaries or requests; 0 for none.
    of_times: u8,
}

impl Author {
    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.rng.usize(..values.len())]
    }

    /// Returns which of the ConfigMonitors is concerned.
    fn monitor(&mut self) -> usize {
        self.rng.usize(..self.story.monitors.len())
    }

    /// Returns the ConfigMonitors, if the story has this feature.
    fn each_if(&self, has_it: bool) -> std::ops::Range<usize> {
        if has_it { 0..self.story.monitors.len() } else { 0..0 }
    }

    fn process(&mut self) -> Process {
        let most = if self.story.replicas { 2 } else { 6 };
        if self.rng.u8(..most) == 0 { Process::Second } else { Process::First }
    }

    fn source(&mut self) -> &'static str {
        CONFIG_MAPS[usize::from(self.rng.u8(..7) < self.of_second)]
    }

    /// Returns a move about contents and pods.
    fn in_the_cluster(&mut self) -> Move {
        match self.rng.u32(..46) {
            0..6 if self.story.optional => Move::DeleteConfigMap(self.source()),
            0..18 => Move::Edit(self.source(), self.one_of(&['a', 'a', 'b', 'b', 'c'])),
            18..21 => Move::EditSecondKey(self.source(), self.one_of(&['a', 'a', 'b'])),
            21..23 => Move::EditLabels(self.source()),
            23..25 => Move::DeleteConfigMap(self.source()),
            // Not an owner of an odd kind: `an_owner_that_cannot_be_read_may_be_scaled_down` plays that.
            25..27 => Move::Scale(self.rng.usize(..3), self.rng.usize(..4)),
            27..32 => Move::KillPod(self.rng.usize(..6)),
            32 if self.rng.bool() => match self.rng.u8(..5) {
                0 => Move::ShutDown(self.rng.usize(..4)),
                1..4 => Move::CutOff(self.rng.usize(..6)),
                _ => Move::Reconnect,
            },
            33 => match self.rng.bool() {
                true => Move::NewPodsStayUnready(self.rng.bool()),
                false => Move::RejectPods(self.rng.usize(1..4)),
            },
            32 => Move::FinishPod(self.rng.usize(..9)),
            34 => Move::PodsKeepTerminating(self.rng.bool()),
            35 => {
                Move::DisruptionBudgets(self.one_of(&[[None; 2], [Some(3), None], [Some(4), None], [Some(1), Some(2)]]))
            }
            36..38 => Move::Relabel(self.rng.usize(..9), self.one_of(&[None, Some("front"), Some("back")])),
            38 => Move::Freeze(self.source()),
            39..41 => Move::BackUp,
            41..43 => Move::Restore,
            43..45 => Move::RollOut,
            _ => Move::ForgetLists,
        }
    }

    /// Returns a move of a ConfigMonitor's author.
    fn at_the_monitor(&mut self) -> Move {
        let monitor = self.monitor();
        let edit = match self.rng.u32(..31) {
            0..6 => Edit::Suspend(self.rng.bool()),
            6..9 => Edit::Select(self.one_of(&[Pods::All, Pods::All, Pods::Front, Pods::Back, Pods::NotBack])),
            9..11 => self.one_of(self.sources),
            11..13 => Edit::OneKey(self.rng.bool()),
            13..15 => Edit::QuietPeriod(self.one_of(&[0, 1, 3])),
            15..18 => {
                let some = [Some(PodCount::Pods(1)), Some(PodCount::Pods(2)), Some(PodCount::Percent("40%"))];
                Edit::MaxUnavailable(self.one_of(&[AT_ONCE, None, some[0], some[1], some[2]]))
            }
            18..20 => {
                let most = [None, Some(PodCount::Pods(1)), Some(PodCount::Pods(2)), Some(PodCount::Percent("40%"))];
                Edit::MaxTotal(self.one_of(&most))
            }
            20 => Edit::MinReady(self.one_of(&[0, 2])),
            21 => Edit::RestartUnmanaged(self.rng.bool()),
            22 => Edit::Invalidate(self.rng.bool()),
            23 => Edit::Touch,
            24 => Edit::WipeStatus,
            25 => Edit::Deadline(self.one_of(&[5, 60])),
            26 => return Move::DeleteMonitor(monitor),
            27..29 => return Move::CreateMonitor(monitor),
            _ => Edit::Evict(self.rng.bool()),
        };
        Move::Spec(monitor, edit)
    }

    fn request_kind(&mut self) -> RequestKind {
        let some = [
            RequestKind::GetConfigMap,
            RequestKind::GetMonitor,
            RequestKind::GetOwner,
            RequestKind::ListPods,
            RequestKind::PutStatus,
        ];
        let others = [
            RequestKind::Any,
            RequestKind::Any,
            RequestKind::Delete,
            RequestKind::Delete,
            RequestKind::ListAll,
            RequestKind::Watch,
            RequestKind::Event,
        ];
        if self.rng.bool() { self.one_of(&some) } else { self.one_of(&others) }
    }

    fn fate(&mut self) -> Fate {
        match self.rng.u32(..29) {
            0..3 => Fate::NotSent,
            3..8 => Fate::AnswerLost,
            8 => Fate::NeverAnswered,
            9 => Fate::Late(self.one_of(&[20, 500, 3000, 40_000])),
            10..12 => Fate::LateAnswer(self.one_of(&[20, 500, 3000, 20_000])),
            12 => Fate::Conflict,
            13 => Fate::Busy(self.one_of(&[None, Some(1), Some(10)])),
            14..17 => Fate::Forbidden,
            17 => Fate::ProxyError,
            18 => Fate::Refused,
            19 => Fate::Timeout,
            20 => Fate::Truncated,
            21..23 => Fate::CrashBefore,
            23..26 => Fate::CrashAfter,
            26 => Fate::Denied(self.one_of(&[403, 404, 409])),
            _ => Fate::Panic,
        }
    }

    /// Returns a move about the operator's processes, requests and watches.
    fn at_the_operator(&mut self) -> Move {
        let process = self.process();
        match self.rng.u32(..30) {
            0..8 => Move::Until(process, self.request_kind(), self.rng.usize(1..4)),
            8..18 => Move::Request(process, self.request_kind(), self.rng.u32(1..5), self.fate()),
            18..20 => Move::Watch(process, self.one_of(self.of_sources), WatchFault::Stall),
            20 => Move::Watch(
                process,
                self.one_of(&[Watched::Monitors, Watched::Pods, Watched::References]),
                WatchFault::Stall,
            ),
            21..25 => {
                let of_source = self.one_of(self.of_sources);
                let watched =
                    self.one_of(&[of_source, of_source, Watched::Monitors, Watched::Pods, Watched::References]);
                let faults =
                    [WatchFault::End, WatchFault::Break, WatchFault::Expire, WatchFault::Expire, WatchFault::Miss];
                Move::Watch(process, watched, self.one_of(&faults))
            }
            25..27 => Move::Start(process),
            27 => Move::Stop(process),
            28 => Move::Crash(process),
            _ => {
                let some = [Fate::Forbidden, Fate::Refused, Fate::NotSent, Fate::Busy(None), Fate::Denied(409)];
                let fate = self.one_of(&some);
                Move::Lasting(self.request_kind(), Some(fate).filter(|_| self.rng.bool()))
            }
        }
    }

    /// Returns a move about windows, intervals, canaries or requests.
    fn about_times(&mut self) -> Move {
        let monitor = self.monitor();
        match self.rng.u32(..23) {
            20 => Move::ShutDown(self.rng.usize(..4)),
            21 => Move::CutOff(self.rng.usize(..4)),
            22 => Move::Reconnect,
            0..3 => Move::Spec(monitor, self.windows()),
            3..5 => Move::Spec(monitor, Edit::MinInterval(self.one_of(&[0, 10, 60]))),
            5..8 => Move::Spec(monitor, self.canary()),
            8..12 => Move::RequestRestart(monitor, self.one_of(&['x', 'y', 'z'])),
            12..15 => Move::RestartContainer(self.rng.usize(..4)),
            15 => Move::EvictFromNode(self.rng.usize(..4)),
            16..18 => {
                Move::LoseReadiness(self.rng.usize(..4), self.one_of(&[Some(300), Some(4000), Some(20_000), None]))
            }
            _ => Move::Wait(self.one_of(&[10_000, 20_000, 30_000, 60_000, 700_000])),
        }
    }

    fn windows(&mut self) -> Edit {
        let some = [Windows::EveryMinute, Windows::EveryOtherMinute, Windows::Both, Windows::FarAway, Windows::Always];
        Edit::Windows(self.one_of(&some))
    }

    fn canary(&mut self) -> Edit {
        let pods =
            self.one_of(&[None, Some(PodCount::Pods(1)), Some(PodCount::Pods(1)), Some(PodCount::Percent("40%"))]);
        Edit::Canary(pods.map(|pods| (pods, self.one_of(&[0, 2, 10]))))
    }

    fn time(&mut self) -> Move {
        let short = [1, 2, 3, 5, 10, 50];
        let long = [100, 200, 400, 1000, 1500, 2500, 4000, 8000, 60_000, 100_000];
        Move::Wait(if self.rng.u8(..3) == 0 { self.one_of(&short) } else { self.one_of(&long) })
    }

    fn moves(&mut self, has_times: bool) -> Vec<Move> {
        // The standby runs from the beginning.
        let mut moves: Vec<Move> = self.story.replicas.then_some(Move::Start(Process::Second)).into_iter().collect();
        // Most stories begin after the operator's first look.
        moves.push(if self.rng.u8(..6) == 0 { Move::Wait(1) } else { Move::Wait(200) });
        for monitor in self.each_if(has_times) {
            let edits = [self.windows(), Edit::MinInterval(self.one_of(&[0, 0, 10, 60])), self.canary()];
            moves.extend(edits.into_iter().filter(|_| self.rng.bool()).map(|edit| Move::Spec(monitor, edit)));
        }
        for monitor in self.each_if(self.story.surges) {
            moves.push(Move::Spec(monitor, Edit::Canary(None)));
            moves.push(Move::Spec(monitor, self.max_surge()));
            moves.push(Move::Spec(monitor, Edit::MaxUnavailable(self.one_of(&[None, None, Some(PodCount::Pods(1))]))));
        }
        moves.extend(self.each_if(self.story.leads).map(|monitor| Move::Spec(monitor, self.last())));
        for monitor in self.each_if(self.story.references != References::Both) {
            moves.push(Move::Spec(monitor, Edit::Discover(self.one_of(&[true, true, false]))));
            moves.push(Move::Spec(monitor, Edit::Beside(self.one_of(&[false, false, true]))));
        }
        let count = self.rng.usize(1..50);
        moves.extend((0..count).map(|_| self.any()));
        moves
    }

    /// Returns a move about the label of the namespace.
    fn about_the_namespace(&mut self) -> Move {
        let (process, faults) =
            (self.process(), [WatchFault::Stall, WatchFault::End, WatchFault::Expire, WatchFault::Miss]);
        match self.rng.u8(..4) {
            0 => Move::Watch(process, Watched::Namespaces, self.one_of(&faults)),
            _ => Move::LabelNamespace(self.rng.bool()),
        }
    }

    /// Returns a move about surge.
    fn about_surge(&mut self) -> Move {
        let monitor = self.monitor();
        match self.rng.u8(..25) {
            0..6 => Move::Spec(monitor, self.max_surge()),
            6..8 => Move::LetSurge(self.rng.bool()),
            8..12 => Move::RollOut,
            12..16 => Move::Scale(0, self.rng.usize(..4)),
            16..18 => Move::NewPodsStayUnready(self.rng.bool()),
            18..20 => Move::Spec(monitor, Edit::MaxUnavailable(self.one_of(&[None, None, Some(PodCount::Pods(1))]))),
            20 => Move::DeleteDeployment { orphans: self.rng.bool() },
            _ => Move::Request(self.process(), RequestKind::Patch, self.rng.u32(1..4), self.fate()),
        }
    }

    /// Returns a move about the pods that go last.
    fn about_the_last(&mut self) -> Move {
        match self.rng.u8(..8) {
            0..4 => Move::Lead(self.rng.usize(..6)),
            4 => Move::LetElect(false),
            5 => Move::LetElect(true),
            6 => Move::Relabel(self.rng.usize(..9), self.one_of(&[None, Some("front"), Some("back")])),
            _ => Move::Spec(self.monitor(), self.last()),
        }
    }

    fn last(&mut self) -> Edit {
        Edit::RestartLast(self.one_of(&[Last::Nobody, Last::Leader, Last::Leader, Last::Leader, Last::Back]))
    }

    fn max_surge(&mut self) -> Edit {
        let some = [None, Some(PodCount::Pods(1)), Some(PodCount::Pods(2)), Some(PodCount::Percent("40%"))];
        Edit::MaxSurge(self.one_of(&some))
    }

    fn any(&mut self) -> Move {
        if self.story.surges && self.rng.u8(..6) == 0 {
            return self.about_surge();
        }
        if self.story.leads && self.rng.u8(..5) == 0 {
            return self.about_the_last();
        }
        if self.story.references != References::Both && self.rng.u8(..20) == 0 {
            let edit = match self.rng.u8(..3) {
                0 => Edit::Discover(self.rng.bool()),
                1 => Edit::Beside(self.rng.bool()),
                _ => Edit::Exclude(self.rng.bool()),
            };
            return Move::Spec(self.monitor(), edit);
        }
        if self.story.namespaces == Served::Labelled && self.rng.u8(..8) == 0 {
            return self.about_the_namespace();
        }
        if self.of_times > 0 && self.rng.u8(..self.of_times) == 0 {
            return self.about_times();
        }
        match self.rng.u32(..15) {
            0..4 => self.in_the_cluster(),
            4..6 => self.at_the_monitor(),
            6..10 => self.at_the_operator(),
            _ => self.time(),
        }
    }
}

/// Returns the story of this seed. It has any of the features, each drawn by itself.
pub(crate) fn story(seed: u64) -> Story {
    let mut rng = Rng::with_seed(seed);
    let mut one_in = |most: u8| rng.u8(..most) == 0;
    let (has_both, has_times, replicas, has_skew) = (one_in(3), one_in(2), one_in(4), one_in(4));
    let (secret, optional) = (one_in(3), one_in(6));
    let pace = Pace { creation: 0, readiness: 0, termination: 0 };
    let plain = Story::plain(Vec::new(), pace, Vec::new());
    let mut author = Author {
        story: Story { seed, replicas, secret, optional, skew: if has_skew { 3 } else { 0 }, ..plain },
        of_second: if has_both || secret { 3 } else { 1 },
        sources: if has_both { ANY_SOURCES } else { ONE_SOURCE },
        of_sources: if secret { &[Watched::ConfigMaps, Watched::Secrets] } else { &[Watched::ConfigMaps] },
        of_times: if has_times { 3 } else { 0 },
        rng,
    };
    let monitors = author.one_of(&[1, 1, 1, 1, 1, 2, 2, 3]);
    author.story.pace = Pace {
        creation: author.one_of(&[0, 50, 700, 2000]),
        readiness: author.one_of(&[0, 300, 5000]),
        termination: author.one_of(&[0, 200, 3000, 20_000, AN_HOUR]),
    };
    let most = [AT_ONCE, AT_ONCE, None, Some(PodCount::Pods(1)), Some(PodCount::Percent("40%"))];
    author.story.monitors = (0..monitors).map(|_| (author.one_of(&[0, 0, 1, 3]), author.one_of(&most))).collect();
    author.story.both = if has_both { author.one_of(&[1, monitors]) } else { 0 };
    author.story.owners = author.one_of(&[Owners::Odd, Owners::Zones, Owners::Usual, Owners::Usual]);
    author.story.page = author.one_of(&[500, 500, 500, 2]);
    author.story.lag = author.one_of(&[0, 0, 0, 0, 300, 4000]);
    author.story.nodes = author.one_of(&[0, 0, 0, 0, -600, 600]);
    author.story.namespaces = match author.one_of(&[Served::One, Served::One, Served::Two, Served::All]) {
        Served::All => author.one_of(&[Served::All, Served::Labelled]),
        others => others,
    };
    author.story.surges = author.rng.u8(..4) == 0;
    author.story.leads = author.rng.u8(..4) == 0;
    if author.rng.u8(..4) == 0 {
        author.story.references = author.one_of(&[References::ByOwner, References::ByPod]);
    }
    author.story.moves = author.moves(has_times);
    author.story.min_ready = author.one_of(&[0, 0, 0, 2]);
    if author.story.surges {
        author.story.status_lag = author.one_of(&[0, 0, 500, 4000]);
    }
    author.story.ordered = author.rng.bool();
    // A Secret that is discovered is not polled.
    let discovers = |it: &Move| matches!(it, Move::Spec(_, Edit::Discover(true)));
    author.story.polled = secret && author.rng.bool() && !author.story.moves.iter().any(discovers);
    author.story
}

/// Longer than everything may take to settle, in milliseconds.
const AN_HOUR: u64 = 3_600_000;

const ONE_SOURCE: &[Edit] = &[Edit::Source(CONFIG_MAPS[0]), Edit::Source(CONFIG_MAPS[1])];
const ANY_SOURCES: &[Edit] = &[Edit::Source(CONFIG_MAPS[0]), Edit::Source(CONFIG_MAPS[1]), Edit::Both, Edit::Both];
