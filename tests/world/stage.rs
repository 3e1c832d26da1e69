//! Plays a story: the world, up to two processes of the operator, and in the end everything heals.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

use configmonitor_operator::monitor::selector::{LabelSelectorOperator, LabelSelectorRequirement};
use configmonitor_operator::monitor::spec::{Spec, UnmanagedPods};

use crate::ledger::{Ledger, Life};
use crate::line::{Fate, Line};
use crate::operator::Operator;
use crate::story::{Most, Move, Pods, Process, Story};
use crate::world::{CONFIG_MAPS, Content, KEYS, World};

/// So many requests in a row, or steps in the end, and something goes round in circles.
const ENDLESS: usize = 3000;

/// The world and the processes.
struct Stage {
    world: Rc<RefCell<World>>,
    origin: Instant,
    lives: usize,
    processes: [Option<Operator>; 2],
    /// What to put back.
    selected: Pods,
    last_content: BTreeMap<&'static str, Content>,
}

/// Plays a story to its end, and gives back what has happened.
pub(crate) fn play(story: &Story) -> Ledger {
    let spec = Spec {
        config_map: Some(CONFIG_MAPS[0].to_owned()),
        pod_selector: labels(Pods::All),
        quiet_period_seconds: Some(story.quiet),
        max_unavailable: story.most.map(Most::in_spec),
        ..Spec::default()
    };
    let world = Rc::new(RefCell::new(World::new(spec, story.pace)));
    let mut stage = Stage {
        world,
        origin: Instant::now(),
        lives: 0,
        processes: [None, None],
        selected: Pods::All,
        last_content: CONFIG_MAPS.map(|config_map| (config_map, [Some('a'); 2])).into(),
    };
    stage.start(Process::First);
    for one in &story.moves {
        stage.make(*one);
        stage.world.borrow_mut().reconcile();
        stage.processes.iter().flatten().for_each(|operator| operator.line.listen());
    }
    stage.heal();
    drop(stage.processes);
    Rc::into_inner(stage.world).unwrap().into_inner().ledger
}

fn labels(pods: Pods) -> BTreeMap<String, String> {
    let pairs: &[(&str, &str)] = match pods {
        Pods::All => &[("app", "web")],
        Pods::NotBack => &[("app", "web")],
        Pods::Front => &[("app", "web"), ("tier", "front")],
        Pods::Back => &[("tier", "back")],
    };
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn expressions(pods: Pods) -> Vec<LabelSelectorRequirement> {
    let (key, values) = ("tier".to_owned(), vec!["back".to_owned()]);
    let not_back = LabelSelectorRequirement { key, operator: LabelSelectorOperator::NotIn, values };
    if pods == Pods::NotBack { vec![not_back] } else { Vec::new() }
}

impl Stage {
    fn make(&mut self, one: Move) {
        match one {
            Move::Requests(process, most) => drop(self.requests(process, most.into())),
            Move::Request(process, fate) => self.request(process, fate),
            Move::Start(process) => self.start(process),
            Move::Stop(process) => self.processes[process as usize] = None,
            Move::StallConfigMaps(process) => self.line(process, |line| line.stalled.config_maps.set(true)),
            Move::StallMonitors(process) => self.line(process, |line| line.stalled.monitors.set(true)),
            Move::ListAgain(process) => self.line(process, Line::list_again),
            Move::Calm(ms) => drop(self.calm(ms)),
            Move::WipeStatus => self.world.borrow_mut().wipe_status(),
            Move::Suspend(_)
            | Move::Select(_)
            | Move::Source(_)
            | Move::OneKey(_)
            | Move::QuietPeriod(_)
            | Move::MaxUnavailable(_)
            | Move::MinReady(_)
            | Move::RestartUnmanaged(_)
            | Move::Spoil(_)
            | Move::TouchMonitor => self.edit_spec(one),
            _ => self.happen(one),
        }
    }

    /// What happens in the cluster.
    fn happen(&mut self, one: Move) {
        let mut world = self.world.borrow_mut();
        match one {
            Move::Edit(source, content) | Move::EditSecondKey(source, content) => {
                let key = usize::from(matches!(one, Move::EditSecondKey(..)));
                let last = self.last_content.entry(source).or_default();
                last[key] = Some(content);
                world.set_content(source, Some(*last));
            }
            Move::EditLabels(source) => {
                let content = world.config_maps.get(source).map(|stored| stored.content);
                content.into_iter().for_each(|content| world.set_content(source, Some(content)));
            }
            Move::DeleteConfigMap(source) => world.set_content(source, None),
            Move::Scale(owner, replicas) => world.scale(owner, replicas),
            Move::KillPod(nth) => world.kill(nth),
            Move::FinishPod(nth) => world.finish(nth),
            Move::NewPodsDoNotBecomeReady(holds) => world.sick = holds,
            Move::PodsDoNotEnd(holds) => world.hang(holds),
            Move::ForgetLists => world.lists.clear(),
            Move::Pass(ms) => world.pass(ms),
            other => panic!("{other:?} does not happen in the cluster"),
        }
    }

    /// What the author of the ConfigMonitor does.
    fn edit_spec(&mut self, one: Move) {
        if let Move::Select(pods) = one {
            self.selected = pods;
        }
        let (selector, expressions) = (labels(self.selected), expressions(self.selected));
        self.world.borrow_mut().set_spec(|spec| match one {
            Move::Suspend(holds) => spec.suspend = Some(holds),
            Move::Select(_) | Move::Spoil(false) => {
                (spec.pod_selector, spec.pod_selector_expressions) = (selector, expressions);
            }
            Move::Spoil(true) => spec.pod_selector = BTreeMap::new(),
            Move::Source(source) => spec.config_map = Some(source.to_owned()),
            Move::OneKey(holds) => spec.keys = holds.then(|| vec![KEYS[0].to_owned()]),
            Move::QuietPeriod(seconds) => spec.quiet_period_seconds = Some(seconds),
            Move::MaxUnavailable(most) => spec.max_unavailable = most.map(Most::in_spec),
            Move::MinReady(seconds) => spec.min_ready_seconds = Some(seconds),
            Move::RestartUnmanaged(holds) => spec.unmanaged_pods = holds.then_some(UnmanagedPods::Delete),
            _ => {}
        });
    }

    fn start(&mut self, process: Process) {
        if self.processes[process as usize].is_none() {
            self.lives += 1;
            let line = Line::new(Rc::clone(&self.world), Life(self.lives), self.origin);
            self.processes[process as usize] = Some(Operator::start(line));
        }
    }

    fn line(&self, process: Process, then: impl Fn(&Line)) {
        if let Some(operator) = &self.processes[process as usize] {
            then(&operator.line);
        }
    }

    /// A crash ends the process; another one takes its place at once.
    fn request(&mut self, process: Process, fate: Fate) {
        let Some(operator) = &mut self.processes[process as usize] else { return };
        if fate != Fate::CrashBefore {
            operator.step(fate);
        }
        if matches!(fate, Fate::CrashBefore | Fate::CrashAfter) {
            self.processes[process as usize] = None;
            self.start(process);
        }
    }

    fn requests(&mut self, process: Process, most: usize) -> usize {
        let Some(operator) = &mut self.processes[process as usize] else { return 0 };
        (0..most)
            .take_while(|_| {
                self.world.borrow_mut().reconcile();
                operator.step(Fate::Answered)
            })
            .count()
    }

    /// Lets time pass, while every request is answered at once. Whether everything came to rest.
    fn calm(&mut self, ms: u64) -> bool {
        let end = self.world.borrow().ms + ms;
        for _ in 0..ENDLESS {
            let made = self.requests(Process::First, ENDLESS) + self.requests(Process::Second, ENDLESS);
            let mut world = self.world.borrow_mut();
            let timers = self.processes.iter().flatten().filter_map(|operator| operator.line.until.get());
            let next = timers.chain(world.next_due()).min();
            let now = world.ms;
            match next {
                _ if made >= ENDLESS => return false,
                Some(next) if next <= end => world.pass(next.max(now + 1) - now),
                _ if made > 0 => {}
                _ => {
                    world.pass(end.saturating_sub(now));
                    return next.is_none();
                }
            }
        }
        false
    }

    /// Nothing fails any more, and the author lets the operator work.
    fn heal(&mut self) {
        for one in
            [Move::NewPodsDoNotBecomeReady(false), Move::PodsDoNotEnd(false), Move::Spoil(false), Move::Suspend(false)]
        {
            self.make(one);
        }
        self.start(Process::First);
        self.make(Move::ListAgain(Process::First));
        self.make(Move::ListAgain(Process::Second));
        let config_map = self.world.borrow().source().unwrap().config_map;
        if !self.world.borrow().config_maps.contains_key(config_map) {
            let content = Some(self.last_content[config_map]);
            self.world.borrow_mut().set_content(config_map, content);
        }
        let at_rest = self.calm(1_000_000);
        self.world.borrow_mut().end(at_rest);
    }
}
