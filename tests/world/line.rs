//! What a process has of the world: a line to the API server, on which every request is a move of the story, and two watches.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use configmonitor_operator::kube::ResourceVersion;

use crate::api::{Failure, text};
use crate::ledger::Life;
use crate::world::World;

/// What becomes of the next request of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Answered,
    NeverArrives,
    AnswerIsLost,
    Forbidden,
    CrashBefore,
    CrashAfter,
}

/// What a watch has said of the ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Doorbell {
    #[default]
    Silent,
    At(ResourceVersion),
    Gone,
}

/// What the watches have said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Goal {
    pub(crate) generation: i64,
    pub(crate) baselined: bool,
    pub(crate) doorbell: Doorbell,
    /// The version of the ConfigMonitor in the last list.
    pub(crate) listed: u64,
    /// How often any of it has changed: what changes and changes back is news all the same.
    news: u64,
}

/// The line of one process.
pub(crate) struct Line {
    pub(crate) world: Rc<RefCell<World>>,
    life: Life,
    origin: Instant,
    fate: Cell<Option<Fate>>,
    /// Until when the process sleeps, if it sleeps, unless something happens.
    pub(crate) until: Cell<Option<u64>>,
    config_map: Cell<Option<&'static str>>,
    goal: RefCell<Goal>,
    /// Nothing comes from a watch, and nobody can tell. A new list brings what was missed.
    pub(crate) stalled: Stalled,
}

/// Which of the watches is silent.
#[derive(Default)]
pub(crate) struct Stalled {
    pub(crate) config_maps: Cell<bool>,
    pub(crate) monitors: Cell<bool>,
}

impl Line {
    pub(crate) fn new(world: Rc<RefCell<World>>, life: Life, origin: Instant) -> Self {
        let line = Self {
            world,
            life,
            origin,
            fate: Cell::default(),
            until: Cell::default(),
            config_map: Cell::default(),
            goal: RefCell::default(),
            stalled: Stalled::default(),
        };
        line.list_again();
        line
    }

    /// Both watches list.
    pub(crate) fn list_again(&self) {
        self.stalled.config_maps.set(false);
        self.stalled.monitors.set(false);
        self.listen();
        let (version, mut goal) = (self.world.borrow().monitor.version, self.goal.borrow_mut());
        goal.news += u64::from(goal.listed != version);
        goal.listed = version;
    }

    /// Takes in what the watches say.
    pub(crate) fn listen(&self) {
        let (world, mut goal) = (self.world.borrow(), self.goal.borrow_mut());
        let before = goal.clone();
        if !self.stalled.monitors.get() {
            goal.generation = world.monitor.generation;
            goal.baselined = world.monitor.status.is_baselined();
            let config_map = world.source().map(|source| source.config_map);
            if self.config_map.replace(config_map) != config_map {
                goal.doorbell = Doorbell::Silent;
            }
        }
        if let Some(config_map) = self.config_map.get().filter(|_| !self.stalled.config_maps.get()) {
            let stored = world.config_maps.get(config_map);
            goal.doorbell = stored.map_or(Doorbell::Gone, |stored| Doorbell::At(text(stored.version)));
        }
        goal.news += u64::from(*goal != before);
    }

    pub(crate) fn goal(&self) -> Goal {
        self.goal.borrow().clone()
    }

    /// The clock of the process. It is not the server's, but runs as fast.
    pub(crate) fn now(&self) -> Instant {
        self.origin + Duration::from_millis(self.world.borrow().ms)
    }

    /// The moment of an instant, rounded up.
    pub(crate) fn ms(&self, instant: Instant) -> u64 {
        instant.duration_since(self.origin).as_millis().try_into().unwrap()
    }

    pub(crate) fn rested(&self) {
        let mut world = self.world.borrow_mut();
        let at = world.moment();
        world.ledger.rested(at, self.life);
    }

    /// Says what becomes of the next request. Gives back whether the one before has been made.
    pub(crate) fn destine(&self, fate: Option<Fate>) -> bool {
        self.fate.replace(fate).is_none()
    }

    /// Makes a request, when the story comes to it.
    pub(crate) async fn ask<T>(&self, request: impl FnOnce(&mut World) -> Result<T, Failure>) -> Result<T, Failure> {
        let fate = poll_fn(|_| self.fate.take().map_or(Poll::Pending, Poll::Ready)).await;
        let mut world = self.world.borrow_mut();
        world.caller = (self.life, fate == Fate::Answered);
        match fate {
            Fate::Answered => request(&mut world),
            Fate::AnswerIsLost | Fate::CrashAfter => {
                // Whatever it was, a refusal too.
                let _ = request(&mut world);
                Err(Failure::Unknown)
            }
            Fate::NeverArrives | Fate::CrashBefore => Err(Failure::Unknown),
            Fate::Forbidden => Err(Failure::Forbidden),
        }
    }

    /// Sleeps until this time, or until the watches say something new, or a pod changes that was listed at `pods`.
    pub(crate) async fn sleep(&self, handled: &Goal, until: Option<u64>, pods: Option<u64>) {
        self.until.set(until);
        poll_fn(|_| {
            let world = self.world.borrow();
            let pods_changed = pods.is_some_and(|version| version != world.pods_revision);
            let wakes = *self.goal.borrow() != *handled || until.is_some_and(|until| until <= world.ms) || pods_changed;
            if wakes { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        self.until.set(None);
    }
}
