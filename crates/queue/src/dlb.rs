//! A twin of the limits of Intel's Dynamic Load Balancer 2.0: what a pipeline meets on that device, and not on ours.
//!
//! ```text
//!          credit            sequence number, history entry        history entry back
//!  NEW ─────────> queue ───────────────────────────────> port ──────────────────────> FORWARD: a credit again
//!                   └─ atomic: buffer (64), by flow       consumer queue, events held   RELEASE: none
//!               credit back
//! ```
//!
//! An event takes a credit while it is stored in the device, from its enqueue until it is scheduled to a port. So a
//! FORWARD takes one, too, and a device whose credits are all taken by NEW events cannot go on when every port holds
//! as many events as its history list has entries (DPDK, dlb2.rst: "hardware credits"; `tests::credits_dead_lock`).
//! Sources of the limits: DPDK's dlb2.rst and drivers/event/dlb2, and Intel's guide 613545.
//!
//! The model has no time: [`Device::schedule`] moves events until a limit stops it, and counts which limit did.
//! Invariants: an event is in one place; credits + stored events are constant; a flow of an atomic queue is at one port.
//! Thread-safety: values only.

use std::collections::{BTreeMap, VecDeque};

use crate::contract::{Order, Queue};
use crate::model::{Model, Reach};

mod schedule;
#[cfg(test)]
mod tests;

/// A queue of a yard with the limits that DLB 2.0 sets to a single queue and its ports: at most 64 frames of an ordered
/// queue are out, an atomic queue looks for a free flow among 64 waiting frames only, and a core has at most 32 open.
/// Credits, which all queues of a device share, are not limited here. It is slow, and made for simulations.
#[must_use]
pub fn queue(order: Order, consumers: u16, capacity: usize) -> Box<dyn Queue> {
    let Limits { window, queue_atomic, credits, .. } = Limits::DLB2;
    let reach = Reach { window, buffer: queue_atomic };
    Box::new(Model::new(order, consumers, capacity.min(credits)).with_reach(reach))
}

/// The limits of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Load-balanced queues.
    pub queues: usize,
    /// Load-balanced ports.
    pub ports: usize,
    /// Pairs of a directed queue and its port.
    pub directed: usize,
    /// Queues that one port may be linked to.
    pub links: usize,
    /// Events stored in load-balanced queues.
    pub credits: usize,
    /// Events stored in directed queues.
    pub directed_credits: usize,
    /// Events in flight at all load-balanced ports.
    pub history: usize,
    /// Events in flight at one of them.
    pub port_history: usize,
    /// Events in the consumer queue of a port.
    pub depth: usize,
    /// Entries of all atomic buffers.
    pub atomic: usize,
    /// Entries of the buffer of one atomic queue.
    pub queue_atomic: usize,
    /// Sequence numbers of one ordered queue.
    pub window: usize,
    /// Of this many schedules, one is of the lowest priority that waits: the avoidance of starvation, about 1 %.
    pub starvation: u64,
}

impl Limits {
    /// DLB 2.0 with the defaults of DPDK's driver.
    pub const DLB2: Self = Self {
        queues: 32,
        ports: 64,
        directed: 64,
        links: 8,
        credits: 8192,
        directed_credits: 4096,
        history: 2048,
        port_history: 32,
        depth: 32,
        atomic: 2048,
        queue_atomic: 64,
        window: 64,
        starvation: 100,
    };
}

/// How the events of a queue are scheduled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Schedule {
    /// A flow is at one port at a time.
    Atomic,
    /// Events leave in the order in which they entered.
    Ordered,
    /// Any port, any order.
    Unordered,
    /// To one port only, which takes no history entry.
    Directed,
}

/// An event: what the user knows it by, and its flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// The user's number.
    pub number: u32,
    /// Its flow; only the low 16 bits are used.
    pub flow: u32,
}

/// A limit that stopped an event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Limit {
    /// There are no load-balanced credits.
    Credits,
    /// There are no directed credits.
    DirectedCredits,
    /// The producer's threshold for new events.
    Threshold,
    /// The history list of every linked port, or that of the device, is full.
    History,
    /// The consumer queue of every linked port is full.
    Depth,
    /// The ordered queue has no sequence number.
    Window,
    /// The atomic buffer is full of events that cannot be scheduled.
    Atomic,
    /// The flow is at a port that takes no more events.
    Pinned,
    /// Starvation was avoided: an event of a lower priority went first.
    Starvation,
}

/// Why a device cannot be set up in this way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The device has no more queues.
    Queues,
    /// The device has no more ports of this kind.
    Ports,
    /// The port is linked to as many queues as it can be.
    Links,
    /// A directed queue has one port, and this port no other queue.
    Directed,
    /// There is no such queue or port.
    Unknown,
}

/// An event that a port holds, and the place that it must give back.
#[derive(Clone, Copy, Debug)]
struct Held {
    event: Event,
    queue: usize,
    /// The sequence number, if the queue is ordered.
    sequence: Option<u64>,
}

#[derive(Debug)]
struct Line {
    schedule: Schedule,
    /// 0 is the most urgent.
    priority: u8,
    waiting: VecDeque<Event>,
    /// Atomic: events that were taken from the line, by which the scheduler looks for a flow that is free.
    buffer: VecDeque<Event>,
    /// Atomic: by flow, its port and the number of its events there.
    pins: BTreeMap<u32, (usize, usize)>,
    /// Ordered: the next sequence number, and the oldest that is not given back.
    next: u64,
    oldest: u64,
    /// Ordered: what became of the numbers from the oldest on; an event goes to the queue that is named.
    results: VecDeque<Option<Option<(usize, Event)>>>,
}

#[derive(Debug, Default)]
struct Port {
    links: Vec<usize>,
    /// The consumer queue.
    arrived: VecDeque<Held>,
    /// What the worker took and has not finished, in the order of the history list.
    held: VecDeque<Held>,
}

impl Port {
    fn in_flight(&self) -> usize {
        self.arrived.len() + self.held.len()
    }
}

/// A device: its queues, its ports, and how often each limit stopped an event.
#[derive(Debug)]
pub struct Device {
    limits: Limits,
    lines: Vec<Line>,
    ports: Vec<Port>,
    credits: usize,
    directed_credits: usize,
    schedules: u64,
    stopped: BTreeMap<Limit, u64>,
    /// Whether a worker's FORWARD names its event, as the driver's INDEPENDENT_ENQ does; otherwise it finishes the
    /// oldest entry of the history list, whichever event it carries.
    pub independent: bool,
    /// Whether a dequeue releases what the worker has not finished.
    pub implicit_release: bool,
}

impl Device {
    /// A device without queues and ports.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            lines: Vec::new(),
            ports: Vec::new(),
            credits: limits.credits,
            directed_credits: limits.directed_credits,
            schedules: 0,
            stopped: BTreeMap::new(),
            independent: false,
            implicit_release: true,
        }
    }

    /// Adds a queue, of which 0 is the most urgent priority; returns its number.
    ///
    /// # Errors
    /// When the device has no more.
    pub fn queue(&mut self, schedule: Schedule, priority: u8) -> Result<usize, Refused> {
        let is_directed = |schedule| schedule == Schedule::Directed;
        let same = |line: &&Line| is_directed(line.schedule) == is_directed(schedule);
        let most = if is_directed(schedule) { self.limits.directed } else { self.limits.queues };
        if self.lines.iter().filter(same).count() >= most {
            return Err(Refused::Queues);
        }
        self.lines.push(Line {
            schedule,
            priority,
            waiting: VecDeque::new(),
            buffer: VecDeque::new(),
            pins: BTreeMap::new(),
            next: 0,
            oldest: 0,
            results: VecDeque::new(),
        });
        Ok(self.lines.len() - 1)
    }

    /// Adds a port; returns its number. The first queue that it is linked to makes it a directed or a load-balanced one.
    ///
    /// # Errors
    /// When the device has no more.
    pub fn port(&mut self) -> Result<usize, Refused> {
        if self.ports.len() >= self.limits.ports + self.limits.directed {
            return Err(Refused::Ports);
        }
        self.ports.push(Port::default());
        Ok(self.ports.len() - 1)
    }

    /// Links a port to a queue.
    ///
    /// # Errors
    /// When the port has as many links as it can have, the device has no more ports of its kind, or a directed queue or
    /// its port has a link.
    pub fn link(&mut self, port: usize, queue: usize) -> Result<(), Refused> {
        let directed =
            self.lines.get(queue).ok_or(Refused::Unknown)?.schedule == Schedule::Directed;
        let links = &self.ports.get(port).ok_or(Refused::Unknown)?.links;
        let has_port = self.ports.iter().any(|port| port.links.contains(&queue));
        if self.is_directed(port) || (directed && (has_port || !links.is_empty())) {
            return Err(Refused::Directed);
        }
        if links.len() >= self.limits.links {
            return Err(Refused::Links);
        }
        let balanced =
            |port: &usize| !self.ports[*port].links.is_empty() && !self.is_directed(*port);
        // There are as many directed ports as directed queues.
        if !directed
            && links.is_empty()
            && (0..self.ports.len()).filter(balanced).count() >= self.limits.ports
        {
            return Err(Refused::Ports);
        }
        self.ports[port].links.push(queue);
        Ok(())
    }

    /// Whether a port has a directed queue.
    fn is_directed(&self, port: usize) -> bool {
        let is_directed = |queue: &usize| self.lines[*queue].schedule == Schedule::Directed;
        self.ports[port].links.iter().any(is_directed)
    }

    /// Enters a new event; `threshold` is the number of stored events from which on this producer is refused.
    ///
    /// # Errors
    /// The limit that stopped it.
    pub fn enter(&mut self, queue: usize, event: Event, threshold: usize) -> Result<(), Limit> {
        if self.in_flight() >= threshold {
            return Err(self.stop(Limit::Threshold));
        }
        self.pay(queue)?;
        self.lines[queue].waiting.push_back(event);
        Ok(())
    }

    /// The events of the device: stored in queues of both kinds, at ports, and in the order of an ordered queue.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        let stored = self.limits.credits - self.credits;
        let directed = self.limits.directed_credits - self.directed_credits;
        stored + directed + self.ports.iter().map(Port::in_flight).sum::<usize>()
    }

    /// Takes up to `most` events from the consumer queue of a port. What the worker holds is released first, if the
    /// device is set up so.
    pub fn dequeue(&mut self, port: usize, most: usize) -> Vec<Event> {
        self.take(port, most).into_iter().map(|(_, event)| event).collect()
    }

    /// The same, each event with the queue that it was in.
    pub fn take(&mut self, port: usize, most: usize) -> Vec<(usize, Event)> {
        if self.implicit_release {
            while self.ports[port].held.front().is_some() {
                let _ = self.finish(port, None, None);
            }
        }
        let from = &mut self.ports[port];
        let taken = from.arrived.len().min(most);
        let events: Vec<_> = from.arrived.drain(..taken).collect();
        let numbers = events.iter().map(|held| (held.queue, held.event)).collect();
        let directed = |held: &Held| self.lines[held.queue].schedule == Schedule::Directed;
        from.held.extend(events.into_iter().filter(|held| !directed(held)));
        numbers
    }

    /// The worker of a port sends an event on to `queue`. Without [`Device::independent`] it takes the place of the
    /// oldest event that the port holds.
    ///
    /// # Errors
    /// The limit that stopped it: the worker keeps the event, and may try again or release it.
    pub fn forward(&mut self, port: usize, event: Event, queue: usize) -> Result<(), Limit> {
        self.finish(port, Some(event), Some(queue))
    }

    /// The worker of a port drops an event.
    pub fn release(&mut self, port: usize, event: Event) {
        let _ = self.finish(port, Some(event), None);
    }

    /// How often `limit` stopped an event.
    #[must_use]
    pub fn stopped(&self, limit: Limit) -> u64 {
        self.stopped.get(&limit).copied().unwrap_or(0)
    }

    /// Whether nothing can move although events are stored: no worker can forward, and nothing can be scheduled.
    /// Only a RELEASE ends this.
    #[must_use]
    pub fn is_dead_locked(&self) -> bool {
        let full =
            |port: &Port| port.arrived.is_empty() && port.held.len() >= self.limits.port_history;
        let balanced =
            |(port, of): &(usize, &Port)| !of.links.is_empty() && !self.is_directed(*port);
        let ports = self.ports.iter().enumerate().filter(balanced);
        let mut ports = ports.map(|(_, port)| port).peekable();
        self.credits == 0 && ports.peek().is_some() && ports.all(full)
    }

    fn stop(&mut self, limit: Limit) -> Limit {
        *self.stopped.entry(limit).or_default() += 1;
        limit
    }

    /// Takes a credit for an event that is to be stored in `queue`.
    fn pay(&mut self, queue: usize) -> Result<(), Limit> {
        let directed = self.lines[queue].schedule == Schedule::Directed;
        let (left, limit) = match directed {
            true => (&mut self.directed_credits, Limit::DirectedCredits),
            false => (&mut self.credits, Limit::Credits),
        };
        match left.checked_sub(1) {
            Some(rest) => {
                *left = rest;
                Ok(())
            }
            None => Err(self.stop(limit)),
        }
    }

    fn give_back(&mut self, queue: usize) {
        match self.lines[queue].schedule {
            Schedule::Directed => self.directed_credits += 1,
            _ => self.credits += 1,
        }
    }

    /// Finishes an entry of a port's history list: that of `event`, or the oldest. The event goes to `to`, if it names
    /// a queue.
    fn finish(
        &mut self,
        port: usize,
        event: Option<Event>,
        to: Option<usize>,
    ) -> Result<(), Limit> {
        let held = &self.ports[port].held;
        let at = match event {
            Some(event) if self.independent => {
                held.iter().position(|held| held.event.number == event.number)
            }
            _ => (!held.is_empty()).then_some(0),
        };
        let Some(at) = at else {
            // A port does not hold the events of a directed queue: what its worker sends on is a new event.
            if let (Some(to), Some(event)) = (to, event)
                && self.is_directed(port)
            {
                self.pay(to)?;
                self.lines[to].waiting.push_back(event);
            }
            return Ok(());
        };
        if let Some(to) = to {
            self.pay(to)?;
        }
        let Some(entry) = self.ports[port].held.remove(at) else { return Ok(()) };
        let line = &mut self.lines[entry.queue];
        let flow = entry.event.flow & 0xffff;
        if let Some(pin) = line.pins.get_mut(&flow) {
            pin.1 -= 1;
            if pin.1 == 0 {
                line.pins.remove(&flow);
            }
        }
        let result = to.map(|to| (to, event.unwrap_or(entry.event)));
        match entry.sequence {
            Some(sequence) => self.reorder(entry.queue, sequence, result),
            None => {
                if let Some((to, event)) = result {
                    self.lines[to].waiting.push_back(event);
                }
            }
        }
        Ok(())
    }

    /// Notes the result of a sequence number, and lets the events leave that nothing older waits for.
    fn reorder(&mut self, queue: usize, sequence: u64, result: Option<(usize, Event)>) {
        let line = &mut self.lines[queue];
        if let Some(place) = line.results.get_mut((sequence - line.oldest) as usize) {
            *place = Some(result);
        }
        while let Some(Some(result)) = self.lines[queue].results.front().copied() {
            self.lines[queue].results.pop_front();
            self.lines[queue].oldest += 1;
            if let Some((to, event)) = result {
                self.lines[to].waiting.push_back(event);
            }
        }
    }
}
