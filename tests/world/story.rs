//! What happens: a story is a beginning and a list of moves, each of which can be read as a sentence.

use std::fmt;

use configmonitor_operator::monitor::spec::IntOrString;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::line::Fate;
use crate::world::{CONFIG_MAPS, Pace};

/// Which pods are selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pods {
    All,
    Front,
    Back,
    /// The same as `Front`, by an expression.
    NotBack,
}

/// How many pods may be unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Most {
    Pods(i64),
    Percent(&'static str),
}

impl Most {
    pub(crate) fn in_spec(self) -> IntOrString {
        match self {
            Self::Pods(pods) => IntOrString::Int(pods),
            Self::Percent(text) => IntOrString::String(text.to_owned()),
        }
    }
}

/// One of the two processes of the operator that there may be. There should be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Process {
    First,
    Second,
}

/// One thing that happens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Move {
    Edit(&'static str, char),
    EditSecondKey(&'static str, char),
    EditLabels(&'static str),
    DeleteConfigMap(&'static str),
    Scale(usize, usize),
    KillPod(usize),
    FinishPod(usize),
    NewPodsDoNotBecomeReady(bool),
    PodsDoNotEnd(bool),
    Suspend(bool),
    Select(Pods),
    Source(&'static str),
    OneKey(bool),
    QuietPeriod(i64),
    MaxUnavailable(Option<Most>),
    MinReady(i64),
    RestartUnmanaged(bool),
    Spoil(bool),
    TouchMonitor,
    WipeStatus,
    ForgetLists,
    StallConfigMaps(Process),
    StallMonitors(Process),
    ListAgain(Process),
    Start(Process),
    Stop(Process),
    Requests(Process, u8),
    Request(Process, Fate),
    Pass(u64),
    Calm(u64),
}

/// A story.
#[derive(Clone)]
pub(crate) struct Story {
    pub(crate) quiet: i64,
    pub(crate) most: Option<Most>,
    pub(crate) pace: Pace,
    pub(crate) moves: Vec<Move>,
}

impl fmt::Debug for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Edit(source, content) => write!(f, "the first key of {source:?} becomes {content:?}"),
            Self::EditSecondKey(source, content) => write!(f, "the second key of {source:?} becomes {content:?}"),
            Self::EditLabels(source) => write!(f, "labels of {source:?} are edited"),
            Self::DeleteConfigMap(source) => write!(f, "{source:?} is deleted"),
            Self::Scale(owner, replicas) => write!(f, "owner {owner} is scaled to {replicas}"),
            Self::KillPod(nth) => write!(f, "somebody else deletes a pod ({nth})"),
            Self::FinishPod(nth) => write!(f, "a pod runs to its end ({nth})"),
            Self::NewPodsDoNotBecomeReady(holds) => write!(f, "new pods do not become ready: {holds}"),
            Self::PodsDoNotEnd(holds) => write!(f, "pods that are told to end do not: {holds}"),
            Self::Suspend(holds) => write!(f, "spec.suspend becomes {holds}"),
            Self::Select(pods) => write!(f, "the pods selected become {pods:?}"),
            Self::Source(source) => write!(f, "spec.configMap becomes {source:?}"),
            Self::OneKey(holds) => write!(f, "spec.keys becomes the first key alone: {holds}"),
            Self::QuietPeriod(seconds) => write!(f, "spec.quietPeriodSeconds becomes {seconds}"),
            Self::MaxUnavailable(most) => write!(f, "spec.maxUnavailable becomes {most:?}"),
            Self::MinReady(seconds) => write!(f, "spec.minReadySeconds becomes {seconds}"),
            Self::RestartUnmanaged(holds) => write!(f, "spec.unmanagedPods becomes Delete: {holds}"),
            Self::Spoil(holds) => write!(f, "the spec becomes invalid: {holds}"),
            Self::TouchMonitor => write!(f, "labels of the ConfigMonitor are edited"),
            Self::WipeStatus => write!(f, "the status is wiped"),
            Self::ForgetLists => write!(f, "the API server forgets its lists"),
            Self::StallConfigMaps(process) => write!(f, "{process:?}: the watch on ConfigMaps stalls"),
            Self::StallMonitors(process) => write!(f, "{process:?}: the watch on ConfigMonitors stalls"),
            Self::ListAgain(process) => write!(f, "{process:?}: both watches list again"),
            Self::Start(process) => write!(f, "{process:?}: starts"),
            Self::Stop(process) => write!(f, "{process:?}: stops"),
            Self::Requests(process, most) => write!(f, "{process:?}: makes up to {most} requests"),
            Self::Request(process, fate) => write!(f, "{process:?}: makes a request: {fate:?}"),
            Self::Pass(ms) => write!(f, "{ms} ms pass"),
            Self::Calm(ms) => write!(f, "for {ms} ms all goes as it should"),
        }
    }
}

impl fmt::Debug for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { quiet, most, pace, moves } = self;
        writeln!(f, "with quietPeriodSeconds {quiet} and maxUnavailable {most:?}, and in milliseconds {pace:?}:")?;
        moves.iter().try_for_each(|one| writeln!(f, "  * {one:?}"))
    }
}

fn process() -> impl Strategy<Value = Process> {
    prop_oneof![5 => Just(Process::First), 1 => Just(Process::Second)]
}

fn source() -> impl Strategy<Value = &'static str> {
    prop_oneof![6 => Just(CONFIG_MAPS[0]), 1 => Just(CONFIG_MAPS[1])]
}

fn one_of<T: Clone + fmt::Debug + 'static>(values: &[T]) -> impl Strategy<Value = T> + use<T> {
    prop::sample::select(values.to_vec())
}

/// What happens to the content, and to pods.
fn in_the_cluster() -> impl Strategy<Value = Move> {
    prop_oneof![
        18 => (source(), one_of(&['a', 'a', 'b', 'b', 'c'])).prop_map(|(source, content)| Move::Edit(source, content)),
        3 => (source(), one_of(&['a', 'a', 'b'])).prop_map(|(source, content)| Move::EditSecondKey(source, content)),
        2 => source().prop_map(Move::EditLabels),
        2 => source().prop_map(Move::DeleteConfigMap),
        2 => (0..3_usize, 0..4_usize).prop_map(|(owner, replicas)| Move::Scale(owner, replicas)),
        5 => (0..6_usize).prop_map(Move::KillPod),
        1 => (0..9_usize).prop_map(Move::FinishPod),
        1 => any::<bool>().prop_map(Move::NewPodsDoNotBecomeReady),
        1 => any::<bool>().prop_map(Move::PodsDoNotEnd),
        1 => Just(Move::ForgetLists),
    ]
}

/// What the author of the ConfigMonitor does.
fn at_the_monitor() -> impl Strategy<Value = Move> {
    prop_oneof![
        6 => any::<bool>().prop_map(Move::Suspend),
        3 => one_of(&[Pods::All, Pods::All, Pods::Front, Pods::Back, Pods::NotBack]).prop_map(Move::Select),
        2 => one_of(&CONFIG_MAPS).prop_map(Move::Source),
        2 => any::<bool>().prop_map(Move::OneKey),
        2 => one_of(&[0, 1, 3]).prop_map(Move::QuietPeriod),
        5 => one_of(&[None, Some(Most::Pods(1)), Some(Most::Pods(2)), Some(Most::Percent("40%"))]).prop_map(Move::MaxUnavailable),
        1 => one_of(&[0, 2]).prop_map(Move::MinReady),
        1 => any::<bool>().prop_map(Move::RestartUnmanaged),
        1 => any::<bool>().prop_map(Move::Spoil),
        1 => Just(Move::TouchMonitor),
        1 => Just(Move::WipeStatus),
    ]
}

/// What the operator does, and what befalls it.
fn at_the_operator() -> impl Strategy<Value = Move> {
    let fate = one_of(&[
        Fate::NeverArrives,
        Fate::AnswerIsLost,
        Fate::AnswerIsLost,
        Fate::Forbidden,
        Fate::CrashBefore,
        Fate::CrashAfter,
        Fate::CrashAfter,
    ]);
    prop_oneof![
        12 => (process(), 1..6_u8).prop_map(|(process, most)| Move::Requests(process, most)),
        6 => (process(), fate).prop_map(|(process, fate)| Move::Request(process, fate)),
        2 => process().prop_map(Move::StallConfigMaps),
        1 => process().prop_map(Move::StallMonitors),
        3 => process().prop_map(Move::ListAgain),
        2 => process().prop_map(Move::Start),
        1 => process().prop_map(Move::Stop),
    ]
}

fn time() -> impl Strategy<Value = Move> {
    prop_oneof![
        4 => one_of(&[100, 400, 1000, 2500, 4000, 100_000]).prop_map(Move::Pass),
        3 => one_of(&[200, 1500, 4000, 8000, 60_000]).prop_map(Move::Calm),
    ]
}

/// Any story.
pub(crate) fn stories() -> impl Strategy<Value = Story> {
    let pace = (one_of(&[0, 50, 700, 2000]), one_of(&[0, 300, 5000]), one_of(&[0, 200, 3000, 20_000]));
    let pace = pace.prop_map(|(creation, readiness, termination)| Pace { creation, readiness, termination });
    let one = prop_oneof![4 => in_the_cluster(), 2 => at_the_monitor(), 5 => at_the_operator(), 4 => time()];
    // Most stories begin when the operator has looked.
    let first = prop_oneof![5 => Just(Move::Calm(200)), 1 => Just(Move::Pass(100))];
    let most = one_of(&[None, None, Some(Most::Pods(1)), Some(Most::Percent("40%"))]);
    (one_of(&[0, 0, 1, 3]), most, pace, first, vec(one, 1..50)).prop_map(|(quiet, most, pace, first, moves)| {
        let moves = [first].into_iter().chain(moves).collect();
        Story { quiet, most, pace, moves }
    })
}
