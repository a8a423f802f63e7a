//! Build: a blueprint becomes an engine, ready to run.
//!
//! ```text
//!  Blueprint ──┬──> places: queues, tx queues        shared by all cores
//!              ├──> pool                             a handle for each core
//!  Parts ──────┴──> cores: entry, server, exits, learners, mailbox
//! ```
//!
//! Thread-safety: runs on the calling thread, before any core does.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use flowyard_flow::table::{Exact, Marked, Rule, Rules, Spread, Wildcard};
use flowyard_flow::toeplitz::{HashTypes, Toeplitz};
use flowyard_flow::{Learn, Secret, Settle, Steer, Table};
use flowyard_frame::{Batch, FlowKey, LANES, Lanes, To};
use flowyard_pool::{Pool, PoolMemory};
use flowyard_queue::{Order, Queue, Queues, Scheduler, Service, Unfit};

use crate::Clock;
use crate::arrivals::{Arrivals, Numbered};
use crate::blueprint::{
    Blueprint, BlueprintError, HoldLimits, Idle, LearnPlan, PortPlan, QueuePlan,
};
use crate::control::{ControlPlane, find_control};
use crate::core::{
    Core, Entry, Exit, Handover, Hold, Observers, Rebalance, Server, Stage, Turns, order_behind,
};
use crate::counters::{Board, Counters};
use crate::elephants::Decisions;
use crate::front::{Drains, Front, Gate};
use crate::mail::{Mail, Mailbox};
use crate::places::{Fan, Place, Places};
use crate::port::{Descriptors, Discard, Halves, Rx, Tx};
use crate::stages::Stopwatch;
use crate::tally::Tally;
use crate::to_ports::ToPorts;
use crate::trace::Tracer;
use crate::work::Work;

mod learners;
mod take_over;

use learners::{learners, learnt_entries, watch_elephants};

/// What the engine is made of besides its blueprint: the bodies of ports, works and learners.
pub struct Parts {
    /// Makes the queues.
    pub queues: Box<dyn Scheduler + Send>,
    /// The real clock, to time the stages with; without one only the virtual clock is charged.
    pub clock: Option<Clock>,
    /// The pool, if ports were opened on one; made by [`Blueprint::pool`].
    pub pool: Option<Pool>,
    /// Receiving halves, by port, of ports with one core. A port without one receives nothing.
    pub rx: BTreeMap<u16, Box<dyn Rx>>,
    /// Transmitting halves, by port, of ports with one core. A port without one counts and drops
    /// what it transmits.
    pub tx: BTreeMap<u16, Box<dyn Tx>>,
    /// Both halves, by port and core; `rx` and `tx` come first.
    pub ports: BTreeMap<(u16, u16), Halves>,
    /// Descriptors of ports, by port and core, of a running process that is to be taken over.
    pub inherited: BTreeMap<(u16, u16), Descriptors>,
    /// The memory of the pool of that process, if its ports have lent buffers to the kernel.
    pub inherited_pool: Option<PoolMemory>,
    /// The work of each core.
    pub work: BTreeMap<u16, Box<dyn Work>>,
    /// Learners besides that of the blueprint: the core, what they learn from, what the core is
    /// called in their edits. They write the tables of all cores that receive.
    pub learn: Vec<(u16, Stage, u16, Box<dyn Learn + Send>)>,
    /// Messages that a mailbox holds.
    pub mailbox: usize,
    /// The control planes of the works.
    pub control: Vec<Arc<dyn ControlPlane>>,
    /// What answers in front of the ports.
    pub front: Option<(Arc<dyn Front>, Arc<Drains>)>,
    /// What marks frames of promoted flows.
    pub marking: Option<Arc<dyn Front>>,
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            queues: Box::new(flowyard_queue::new),
            clock: None,
            pool: None,
            rx: BTreeMap::new(),
            tx: BTreeMap::new(),
            ports: BTreeMap::new(),
            inherited: BTreeMap::new(),
            inherited_pool: None,
            work: BTreeMap::new(),
            learn: Vec::new(),
            mailbox: 1024,
            control: Vec::new(),
            front: None,
            marking: None,
        }
    }
}

/// An engine, built and ready.
pub struct Yard {
    /// By number.
    pub cores: Vec<Core>,
    /// Queues and tx queues.
    pub places: Arc<Places>,
    /// Every core's mailbox.
    pub mail: Mail,
    /// A handle that takes no frames: for the number of frames held.
    pub pool: Pool,
    /// Names of the counters that tables use, by number from 1.
    pub counters: Vec<String>,
    /// Decisions about elephant flows.
    pub elephants: Decisions,
    /// The control planes of the works.
    pub control: Vec<Arc<dyn ControlPlane>>,
    pub(crate) pin: Vec<usize>,
    pub(crate) idle: Idle,
}

impl Blueprint {
    /// The pool of this engine. Ports that lend buffers to the kernel are opened on it before the
    /// engine is built; see [`Parts::pool`].
    #[must_use]
    pub fn pool(&self) -> Pool {
        let new = if self.lends() { Pool::lendable } else { Pool::new };
        let pool = new(self.pool_frames(), self.buffer_bytes);
        match self.large_frames {
            0 => pool,
            count => pool.with_large(count).expect("memory for the buffers of the second size"),
        }
    }

    /// As [`Blueprint::pool`]; `None` if there is not so much memory.
    #[must_use]
    pub fn try_pool(&self) -> Option<Pool> {
        let new = if self.lends() { Pool::try_lendable } else { Pool::try_new };
        let pool = new(self.pool_frames(), self.buffer_bytes)?;
        if self.large_frames == 0 { Some(pool) } else { pool.with_large(self.large_frames) }
    }

    /// As [`Blueprint::pool`], with the memory of a running process. Its buffers are free from [`Yard::go_on`] on.
    ///
    /// # Errors
    /// The memory is not that of a pool, or has too few buffers or too short ones for this engine.
    pub fn adopt_pool(&self, memory: PoolMemory) -> io::Result<Pool> {
        let pool = Pool::adopt(memory)?;
        let (has, needs) = (pool.frames(), self.pool_frames());
        if has < needs || pool.longest() < self.buffer_bytes {
            let (bytes, most) = (self.buffer_bytes, pool.longest());
            return Err(io::Error::other(format!(
                "it has {has} buffers of {most} bytes, and the configuration needs {needs} of {bytes}"
            )));
        }
        match self.large_frames {
            0 => Ok(pool),
            count => pool.with_large(count).ok_or_else(|| io::ErrorKind::OutOfMemory.into()),
        }
    }

    /// Whether buffers are lent to the kernel.
    fn lends(&self) -> bool {
        self.ports.iter().any(|port| port.lent_frames > 0)
    }
}

impl Yard {
    /// Builds what `plan` describes out of `parts`. A core without a work sends each frame back to
    /// the port that it came in by.
    ///
    /// # Errors
    /// When a number of the blueprint names nothing, or a table does not take its entries.
    pub fn build(plan: &Blueprint, mut parts: Parts) -> Result<Self, BlueprintError> {
        plan.check()?;
        let arrivals = parts.control.iter().find_map(|control| Arc::clone(control).arrivals());
        let (places, service) = places(plan, &mut *parts.queues, arrivals.as_ref())?;
        let places = Arc::new(places);
        let rules = rules_table(&plan.steer.rules, plan.secret)
            .map_err(|bad| table("rules", &format!("rule {}: {}", bad.rule + 1, bad.reason)))?;
        let rules = Arc::new(rules);
        let pool = parts.pool.take().unwrap_or_else(|| plan.pool());
        let (mail, boxes) = Mail::new(plan.cores.into(), parts.mailbox);
        let (mut cores, elephants) = (Vec::new(), Decisions::default());
        for (id, mailbox) in (0..plan.cores).zip(boxes) {
            let mut pool = pool.share();
            pool.set_prefetch(plan.cores > 1);
            let shared = Shared {
                places: Arc::clone(&places),
                rules: Arc::clone(&rules),
                pool,
                mail: mail.clone(),
                service: service.clone(),
            };
            let mut core = core(plan, id, shared, mailbox, &mut parts)?;
            watch_elephants(plan, &mut core, &elephants, parts.marking.as_ref());
            cores.push(core);
        }
        parts.control.iter().for_each(|control| control.connect(&mail));
        Ok(Self {
            cores,
            places,
            mail,
            pool,
            counters: plan.steer.counters.clone(),
            elephants,
            control: parts.control,
            pin: plan.pin.clone(),
            idle: plan.idle,
        })
    }
}

impl Yard {
    /// The control plane of this type, if the engine has one.
    #[must_use]
    pub fn control_plane<T: ControlPlane>(&self) -> Option<Arc<T>> {
        find_control(&self.control)
    }
}

fn table(table: &'static str, reason: &dyn std::fmt::Display) -> BlueprintError {
    BlueprintError::Table { table, reason: reason.to_string() }
}

/// A rule that the table of rules refuses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadRule {
    /// Its index among the rules.
    pub rule: usize,
    /// Why.
    pub reason: String,
}

/// The table of these rules.
///
/// # Errors
/// The first rule that the table refuses, or that an earlier rule makes unreachable.
pub fn rules_table(rules: &[Rule], secret: Secret) -> Result<Wildcard, BadRule> {
    let mut table = Wildcard::new(rules.len(), rules.len(), secret.key("rules"));
    for (at, rule) in rules.iter().enumerate() {
        let before = table.len();
        let reason = match table.put(rule) {
            Ok(()) if table.len() > before => continue,
            Ok(()) => "an earlier rule has the same match and priority".to_owned(),
            Err(reason) => reason.to_string(),
        };
        return Err(BadRule { rule: at, reason });
    }
    Ok(table)
}

/// Every queue, and a tx queue for every core of every port; and what cores run for them.
fn places(
    plan: &Blueprint,
    scheduler: &mut dyn Scheduler,
    arrivals: Option<&Arc<dyn Arrivals>>,
) -> Result<(Places, Option<Arc<dyn Service>>), BlueprintError> {
    let Queues { queues, service } = scheduler
        .make(plan.cores, &plan.wanted())
        .map_err(|Unfit { what, fix }| BlueprintError::Queues { what, fix })?;
    let mut made = queues.into_iter();
    let place = |queue: &QueuePlan| {
        Some(Place {
            name: queue.name.clone(),
            queue: made.next()?,
            full: queue.full,
            consumers: queue.consumers.clone(),
            fan: None,
            numbered: arrivals
                .filter(|_| queue.order == Order::Ordered && queue.consumers.len() > 1)
                .map(|arrivals| Numbered::new(Arc::clone(arrivals))),
        })
    };
    let queues: Option<_> = plan.queues.iter().map(place).collect();
    let tx_place = |port: &PortPlan| {
        let fan = (port.cores.len() > 1).then(|| {
            let fan = Fan::new(&port.cores, made.by_ref().take(port.cores.len()).collect());
            if port.fan_by_flow { fan.by_flow() } else { fan }
        });
        let queue = fan.clone().map(|fan| Box::new(fan) as Box<dyn Queue>);
        Some(Place {
            name: port.name.clone(),
            queue: queue.or_else(|| made.next())?,
            full: port.full,
            consumers: port.cores.clone(),
            fan,
            numbered: None,
        })
    };
    let ports: Option<_> = plan.ports.iter().map(tx_place).collect();
    let (Some(queues), Some(ports)) = (queues, ports) else { return Err(BlueprintError::NoQueue) };
    let places = Places {
        queues,
        ports,
        lists: plan.port_lists.clone(),
        copies: scheduler.copies(),
        overloaded: (0..plan.cores).map(|_| AtomicBool::new(false)).collect(),
        over: AtomicBool::new(false),
    };
    Ok((places, service))
}

/// What a core shares with others.
struct Shared {
    places: Arc<Places>,
    rules: Arc<Wildcard>,
    pool: Pool,
    mail: Mail,
    service: Option<Arc<dyn Service>>,
}

fn core(
    plan: &Blueprint,
    id: u16,
    shared: Shared,
    mailbox: Mailbox,
    parts: &mut Parts,
) -> Result<Core, BlueprintError> {
    let Shared { places, rules, pool, mail, service } = shared;
    let (mut ports, mut exits) = (Vec::new(), Vec::new());
    for (number, port) in (0..).zip(&plan.ports) {
        if port.cores.contains(&id) {
            let (both_rx, both_tx) = parts.ports.remove(&(number, id)).unzip();
            ports.extend(parts.rx.remove(&number).or(both_rx).map(|rx| (number, rx)));
            let tx = parts.tx.remove(&number).or(both_tx).unwrap_or_else(|| Box::new(Discard));
            exits.push(Exit { port: number, tx, batch: Batch::default(), left: Lanes::NONE });
        }
    }
    let work = parts.work.remove(&id).unwrap_or_else(|| Box::new(SendBack));
    let board = Arc::<Board>::default();
    let gate = parts.front.as_ref().map(|(front, drains)| {
        let numbers = ports.iter().map(|(number, _)| *number);
        Box::new(Gate::new(Arc::clone(front), Arc::clone(drains), id, numbers))
    });
    let entry = entry(plan, id, &rules, ports)?;
    let tracer = Tracer::new(id, pool.share());
    Ok(Core {
        id,
        to_ports: ToPorts::new(Arc::clone(&places), id, pool.share(), Arc::clone(&board)),
        places,
        pool,
        server: Server {
            queues: urgency(plan, id),
            turns: Turns::new(plan.less_urgent_every),
            work,
            batch: Box::default(),
            open: None,
            service,
        },
        learners: learners(plan, id, !exits.is_empty(), entry.cache, &mut parts.learn),
        entry,
        refused: Vec::with_capacity(4),
        exits,
        mailbox,
        mail,
        counters: Counters::default(),
        observers: Observers {
            stopwatch: Stopwatch::new(parts.clock.clone()),
            tracer,
            sampling: None,
            gate,
        },
        decider: None,
        board,
        last: (0, false),
    })
}

/// The work of a core that none was given for.
struct SendBack;

impl Work for SendBack {
    fn work(&mut self, batch: &mut Batch, _pool: &Pool, now: u64) -> u64 {
        for lane in crate::work::todo(batch) {
            batch.actions[lane].to = To::Port(batch.keys[lane].in_port);
        }
        now
    }
}

/// The queues that core `id` works on, the most urgent first.
fn urgency(plan: &Blueprint, id: u16) -> Vec<u16> {
    let mut mine: Vec<(u8, u16)> = (0..)
        .zip(&plan.queues)
        .filter(|(_, queue)| queue.consumers.contains(&id))
        .map(|(number, queue)| (queue.priority, number))
        .collect();
    mine.sort_unstable();
    mine.into_iter().map(|(_, number)| number).collect()
}

fn entry(
    plan: &Blueprint,
    id: u16,
    rules: &Arc<Wildcard>,
    ports: Vec<(u16, Box<dyn Rx>)>,
) -> Result<Entry, BlueprintError> {
    let (steer, secret) = (&plan.steer, plan.secret);
    let mut user = Exact::new(steer.exact_entries, &FlowKey::FLOW, secret.key("exact"));
    for (key, action) in &steer.exact {
        user.put(key, *action).map_err(|reason| table("exact entries", &reason))?;
    }
    let cache = match plan.learn {
        // What the rules look at. A reload may add rules that look at more; what they answer is
        // then not sure, and not copied.
        Some(LearnPlan::Cache(_)) => {
            Some(steer.rules.iter().fold(FlowKey::FLOW, |all, rule| all.union(&rule.mask)))
        }
        _ => None,
    };
    let mask = cache.unwrap_or(FlowKey::FLOW);
    let learnt = Exact::new(learnt_entries(plan), &mask, secret.key("learnt") ^ 1);
    let view = Rules::new(Arc::clone(rules), &mask);
    let most = plan.elephants.as_ref().map_or(1, |elephants| elephants.settings.promoted_max);
    let promoted = Exact::new(most, &FlowKey::FLOW, secret.key("promoted") ^ 2);
    let marked = Marked::new(steer.marks.clone().unwrap_or_default());
    let tables: Vec<Box<dyn Table + Send>> = vec![
        Box::new(user),
        Box::new(learnt),
        Box::new(view),
        Box::new(promoted),
        Box::new(marked),
    ];
    let wrong = |reason: &dyn std::fmt::Display| table("indirection table", reason);
    let mut last =
        Spread::new(steer.spread_entries, plan.queues.len()).map_err(|error| wrong(&error))?;
    let all: Vec<To> = (0..plan.queues.len() as u16).map(To::Queue).collect();
    let own = plan.own_queues(id);
    let spread = match &steer.spread {
        _ if steer.keep_local && !own.is_empty() => &own,
        named if named.is_empty() => &all,
        named => named,
    };
    for (index, to) in (0..steer.spread_entries).zip(spread.iter().cycle()) {
        last.set(index, *to).map_err(|error| wrong(&error))?;
    }
    let rebalance = (!own.is_empty()).then(|| {
        let others = (0..).zip(&plan.queues).filter(|(_, queue)| !queue.consumers.contains(&id));
        let others = others.filter_map(|(number, queue)| Some((*queue.consumers.first()?, number)));
        let sizes = (steer.spread_entries, plan.cores.into());
        Rebalance::new(own, others.collect(), sizes, steer.keep_local)
    });
    let mut walk = Steer::new(tables, last);
    let has = (cache.is_some(), !rules.is_empty(), plan.elephants.is_some());
    walk.set_order(&order_behind(steer.marks.is_some(), has));
    let hold = if ports.is_empty() { HoldLimits { frames: 0, ..plan.hold } } else { plan.hold };
    Ok(Entry {
        hold: Hold::new(hold),
        ports,
        ended: Vec::with_capacity(plan.ports.len()),
        hash: Toeplitz::new(&steer.hash_key).map_err(|error| table("hash key", &error))?,
        types: HashTypes::default(),
        steer: walk,
        cache,
        splits: plan.elephants.is_some(),
        marks: steer.marks.clone(),
        named: Vec::new(),
        tally: Tally::new(steer.counters.len()),
        lists: Arc::new(steer.lists.clone()),
        settle: plan.settle_slots.map(|slots| Settle::new(slots, secret.key("settle"))),
        batch: Box::default(),
        plain: Lanes::NONE,
        homes: [To::DROP; LANES],
        common: None,
        waiting: Lanes::NONE,
        pressed: false,
        rebalance,
        handover: Handover::Runs,
    })
}
