//! A queue of an event device.
//!
//! Thread-safety: any thread may call any method; a port is used under its lock.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, MutexGuard};

use flowyard_frame::{Batch, Frame, LANES, Lanes};

use super::device::{Device, Event, Op};
use super::port::{Port, Step};
use super::shared::{Seat, Shared, State};
use super::slots::{Body, Some32, Ticket};
use super::tickets::Tickets;
use crate::contract::{Open, Order, Queue, Sink, drop_all};
use crate::scheduler::Service;

/// A queue of an event device.
pub(super) struct EventQueue<D> {
    shared: Arc<Shared<D>>,
    number: u8,
}

/// Tickets that are done, of which consecutive ones are marked at once.
struct Run<'a> {
    tickets: Option<&'a Tickets>,
    first: u64,
    len: usize,
}

impl<'a> Run<'a> {
    const NONE: Self = Self { tickets: None, first: 0, len: 0 };

    fn add(&mut self, tickets: &'a Tickets, number: u64) {
        let same = self.tickets.is_some_and(|mine| std::ptr::eq(mine, tickets));
        if same && number == self.first + self.len as u64 {
            self.len += 1;
        } else {
            self.end();
            *self = Self { tickets: Some(tickets), first: number, len: 1 };
        }
    }

    fn end(&mut self) {
        if let Some(tickets) = self.tickets.take() {
            tickets.done(self.first, self.len);
        }
    }
}

/// The flow of a frame in 20 bits: frames with equal hashes are of one flow.
const fn flow(hash: u32) -> u32 {
    (hash ^ hash >> 12) & 0xf_ffff
}

impl<D: Device> EventQueue<D> {
    pub(super) const fn new(shared: Arc<Shared<D>>, number: u8) -> Self {
        Self { shared, number }
    }

    fn state(&self) -> &State {
        &self.shared.queues[usize::from(self.number)]
    }

    /// Whether `core` takes from a port: its own, or that of a core that died. A queue of one consumer is served by any
    /// core.
    fn serves(&self, core: u16, seat: &Seat) -> bool {
        self.state().seats.len() == 1 || seat.owner.load(Acquire) == core
    }

    /// The ports that `core` takes from.
    fn seats(&self, core: u16) -> impl Iterator<Item = &Seat> {
        self.state().seats.iter().filter(move |seat| self.serves(core, seat))
    }

    /// Whether `port` has the open batch of `core`.
    fn is_open(&self, port: &Port, core: u16) -> bool {
        port.by.is_some_and(|by| by == core || self.state().order == Order::Direct)
    }

    /// The port with the open batch of `core`.
    fn opened(&self, core: u16) -> Option<MutexGuard<'_, Port>> {
        let open = |seat: &Seat| {
            let port = self.shared.port(seat.port);
            self.is_open(&port, core).then_some(port)
        };
        // Others only if a core that had died took its port back while `core` had a batch of it.
        self.seats(core).find_map(open).or_else(|| self.state().seats.iter().find_map(open))
    }

    const fn release_one(&self) -> Event {
        Event { payload: 0, flow: 0, queue: self.number, op: Op::Release }
    }

    /// Sends what is pending at `port`; returns how many events were forwarded.
    fn send(&self, port: &mut Port) -> usize {
        let forwarded = port.send(&self.shared.device);
        if !port.pending.is_empty() {
            self.state().has_pending.store(true, Release);
        }
        forwarded
    }

    /// Takes a batch from a port, if no batch of it is open and nothing that the port enqueued waits for the device.
    fn dequeue_from(&self, seat: &Seat, core: u16, into: &mut Batch) {
        let mut port = self.shared.port(seat.port);
        if port.by.is_some() || !port.pending.is_empty() {
            return;
        }
        let mut events = [Event::default(); LANES];
        let count = port.dequeue(&self.shared.device, &mut events);
        if count > 0 {
            port.by = Some(core);
            self.open_events(&mut port, &events[..count], into);
        }
    }

    /// Takes the frames of events that arrived.
    fn open_events(&self, port: &mut Port, events: &[Event], into: &mut Batch) {
        let Shared { slots, queues, strays, .. } = &*self.shared;
        let is_tx = self.state().is_tx;
        let (mut freed, mut run, mut lane) = (Some32::default(), Run::NONE, 0);
        for event in events {
            let Some((held, body)) = slots.empty(event.payload) else {
                strays.fetch_add(1, Relaxed);
                if !is_tx {
                    port.steps.push(Step::Stray);
                }
                continue;
            };
            (into.frames[lane], into.actions[lane]) = (body.frame, body.action);
            lane += 1;
            if is_tx {
                let Ticket { queue, number } = body.ticket;
                if queue != self.number {
                    run.add(&queues[usize::from(queue)].tickets, number);
                }
                freed.push(held);
            } else {
                port.steps.push(Step::Frame(held, body.ticket.number));
            }
        }
        run.end();
        slots.give(freed);
        into.set_len(lane);
        into.keys_in_pool = lane > 0;
        port.frames = lane;
        if lane == 0 {
            self.give_up(port); // strays alone
        }
    }

    /// Releases every event of the open batch.
    fn give_up(&self, port: &mut Port) -> usize {
        let (mut freed, mut run) = (Some32::default(), Run::NONE);
        let Port { steps, pending, by, frames, .. } = port;
        for step in steps.drain(..) {
            pending.push_back(self.release_one());
            if let Step::Frame(held, ticket) = step {
                run.add(&self.state().tickets, ticket);
                freed.push(held);
            }
        }
        run.end();
        self.shared.slots.give(freed);
        if self.state().is_tx {
            self.state().tickets.left(*frames);
        }
        *by = None;
        let lost = std::mem::take(frames);
        self.send(port);
        lost
    }

    /// The tx queue to which the frame of a lane is forwarded; `None` if it is dropped, or is not there.
    fn forward_to(
        &self,
        next: &dyn Queue,
        (core, from): (u16, &Batch),
        lane: usize,
    ) -> Option<(u8, &State)> {
        let is_there = lane < from.len() && !from.frames[lane].is_absent();
        if !is_there || from.actions[lane].to.is_end() {
            return None;
        }
        let queue = next.device_queue(core, from, lane)?;
        Some((queue, self.shared.queues.get(usize::from(queue))?))
    }

    /// Finishes the events of the open batch in their order: frames go on to `next`, or are dropped.
    fn finish(
        &self,
        port: &mut Port,
        (core, from): (u16, &mut Batch),
        next: &dyn Queue,
        dropped: &mut dyn Sink,
    ) {
        let slots = &self.shared.slots;
        let (mut freed, mut run, mut lane) = (Some32::default(), Run::NONE, 0);
        let Port { steps, pending, .. } = port;
        for step in steps.drain(..) {
            let Step::Frame(held, number) = step else {
                pending.push_back(self.release_one());
                continue;
            };
            let to = self.forward_to(next, (core, &*from), lane);
            let is_there = lane < from.len();
            let frame =
                if is_there { std::mem::take(&mut from.frames[lane]) } else { Frame::default() };
            match to {
                Some((queue, state)) => {
                    state.tickets.moved_in();
                    let flow = flow(frame.hash);
                    let ticket = Ticket { queue: self.number, number };
                    let body = Body { frame, action: from.actions[lane], ticket };
                    let payload = slots.fill(held, body);
                    pending.push_back(Event { payload, flow, queue, op: Op::Forward });
                }
                None => {
                    if !frame.is_absent() {
                        dropped.drop(frame, from.actions[lane].to);
                    }
                    pending.push_back(self.release_one());
                    run.add(&self.state().tickets, number);
                    freed.push(held);
                }
            }
            lane += 1;
        }
        run.end();
        slots.give(freed);
    }
}

impl<D: Device> Queue for EventQueue<D> {
    fn enqueue(&self, from: &mut Batch, lanes: Lanes) -> Lanes {
        self.enqueue_from(0, from, lanes)
    }

    fn enqueue_from(&self, core: u16, from: &mut Batch, lanes: Lanes) -> Lanes {
        let Shared { slots, device, .. } = &*self.shared;
        let mut left = Lanes(lanes.0 & from.lanes().0);
        let mut free = slots.take(left.count() as usize);
        let (first, room) = self.state().tickets.reserve(free.len());
        let (mut events, mut from_lanes, mut count) = ([Event::default(); LANES], [0; LANES], 0);
        for lane in left.take(room) {
            let Some(held) = free.pop() else { break };
            let frame = std::mem::take(&mut from.frames[lane]);
            let flow = flow(frame.hash);
            let ticket = Ticket { queue: self.number, number: first + count as u64 };
            let payload = slots.fill(held, Body { frame, action: from.actions[lane], ticket });
            events[count] = Event { payload, flow, queue: self.number, op: Op::New };
            from_lanes[count] = lane;
            left = left.without(Lanes(1 << lane));
            count += 1;
        }
        slots.give(free);
        if count == 0 {
            return left;
        }
        let entered = self.shared.producer(core).enqueue(device, &events[..count]);
        if entered < count {
            // The device is full: the frames go back into their lanes.
            let mut freed = Some32::default();
            for (event, lane) in events[entered..count].iter().zip(&from_lanes[entered..count]) {
                let Some((held, body)) = slots.empty(event.payload) else { continue };
                from.frames[*lane] = body.frame;
                left = left.with(*lane);
                freed.push(held);
            }
            slots.give(freed);
            self.state().tickets.refused(first + entered as u64, count - entered);
        }
        left
    }

    fn device_queue(&self, _core: u16, _from: &Batch, _lane: usize) -> Option<u8> {
        Some(self.number)
    }

    fn dequeue(&self, core: u16, into: &mut Batch) {
        if !into.is_empty() {
            return;
        }
        if self.shared.is_gone(core) {
            self.shared.revive(core);
        }
        let has_several = self.seats(core).nth(1).is_some();
        if has_several
            && self.seats(core).any(|seat| self.is_open(&self.shared.port(seat.port), core))
        {
            return; // a batch is open
        }
        // Its ports in turn: that of a core that died is served also while its own one always has events.
        let seats = &self.state().seats;
        let own = seats.iter().find(|seat| seat.core == core);
        let last = own.map_or(0, |own| own.last.load(Relaxed));
        let turns = (1..=seats.len()).map(|turn| (usize::from(last) + turn) % seats.len());
        for at in turns.filter(|&at| self.serves(core, &seats[at])) {
            self.dequeue_from(&seats[at], core, into);
            if !into.is_empty() {
                if let Some(own) = own.filter(|_| has_several) {
                    own.last.store(at as u8, Relaxed);
                }
                return;
            }
        }
    }

    fn complete(&self, core: u16, from: &mut Batch, next: &dyn Queue, dropped: &mut dyn Sink) {
        let Some(mut port) = self.opened(core) else {
            drop_all(from, dropped);
            return;
        };
        if self.state().is_tx {
            self.state().tickets.left(port.frames);
        } else {
            self.finish(&mut port, (core, from), next, dropped);
        }
        (port.by, port.frames) = (None, 0);
        drop_all(from, dropped); // of a tx queue all; otherwise none is left
        self.send(&mut port);
    }

    fn flush(&self, _next: &dyn Queue) -> usize {
        let state = self.state();
        if !state.has_pending.load(Relaxed) || !state.has_pending.swap(false, Acquire) {
            return 0;
        }
        state.seats.iter().map(|seat| self.send(&mut self.shared.port(seat.port))).sum()
    }

    fn open(&self, core: u16) -> Option<Open> {
        let port = self.opened(core)?;
        let ticket = |step: &Step| match step {
            Step::Frame(_, ticket) => Some(*ticket),
            Step::Stray => None,
        };
        let oldest = port.steps.iter().filter_map(ticket).min();
        Some(Open { frames: port.frames, since_ticket: oldest.unwrap_or_else(|| self.head()) })
    }

    fn is_oldest(&self, core: u16) -> bool {
        let Some(port) = self.opened(core) else { return false };
        let head = self.head();
        let next = |(at, step): (usize, &Step)| matches!(step, Step::Frame(_, ticket) if *ticket == head + at as u64);
        !port.steps.is_empty() && port.steps.iter().enumerate().all(next)
    }

    fn release(&self, core: u16) -> usize {
        self.shared.lose(core);
        let lost = self.opened(core).map_or(0, |mut port| self.give_up(&mut port));
        for seat in self.seats(core) {
            let alive = |other: &&Seat| other.core != core && !self.shared.is_gone(other.core);
            if let Some(other) = self.state().seats.iter().find(alive) {
                seat.owner.store(other.core, Release);
            }
        }
        lost
    }

    fn tail(&self) -> u64 {
        self.state().tickets.tail()
    }

    fn head(&self) -> u64 {
        self.state().tickets.head()
    }

    fn order(&self) -> Order {
        self.state().order
    }

    fn consumers(&self) -> u16 {
        self.state().consumers
    }
}
