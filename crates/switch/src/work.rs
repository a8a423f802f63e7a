//! Switch: an OpenFlow switch, one data plane for each core.
//!
//! ```text
//!  agent ──apply(changes)──> mail of every core ──between batches──> its Datapath ──> in_force
//!        <──punts─────────── a bounded queue <──── frames for controllers
//!  a frame that leaves by several ports, changed on the way: copies are tied to it (see the chains of `flowyard_pool`)
//! ```
//!
//! Changes of one call are in force together. A core applies them whether frames come or not, so a
//! barrier does not wait for traffic. What a core learns of stations (`NORMAL`) it tells the others, in
//! bounded mailboxes; a full one loses it, and frames to that station are flooded there.
//!
//! Invariants: frames of a flow leave each port in the order they came; nothing is allocated for a
//! frame, but for one to a controller.
//! Thread-safety: a core's own but for the hub, which any thread may use.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver as Inbox, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};

use crate::{Arrival, Bytes, Datapath, Effects, Key, Reason, Seen, Settings};
use crossbeam_channel::{Receiver, Sender, bounded};
use flowyard_frame::{Action, Batch, LANES, Lanes, Nanos, To};
use flowyard_openflow::change::{Change, Counts, Lookups, Punt};
use flowyard_openflow::flow::FlowCommand;
use flowyard_openflow::ofctl;
use flowyard_openflow::oxm::Field;
use flowyard_openflow::port::{Port, PortStats, Text};
use flowyard_wire::LinkType;

use flowyard_pool::Pool;
use flowyard_yard::DropReason;
use flowyard_yard::port::refuse;
use flowyard_yard::work::{ControlMessage, WorkAnswer, WorkTable};
use flowyard_yard::work::{Work, todo};
use flowyard_yard::{ControlPlane, Mail, Message};

/// Frames for controllers that a core keeps between two looks at the queue to the agent.
const PUNTS: usize = 64;
/// News of stations that a mailbox holds.
const NEWS: usize = 1024;

/// Changes for the data planes, with their numbers.
pub type Changes = Arc<[(u64, Change)]>;

/// The message that has a core's switch apply these changes, all at once.
#[must_use]
pub fn change_message(changes: Changes) -> Message {
    Message::Control(Arc::new(changes))
}

/// Asks a core's switch what it does with a frame that has these fields, and why; answered by a
/// `Why`.
#[derive(Clone, Debug)]
pub struct WhyAsked(pub Key);

/// Asks a core's switch for its counters; answered by `Totals`.
#[derive(Clone, Copy, Debug)]
pub struct TotalsAsked;

/// What a switch is, besides its flows.
#[derive(Clone, Debug, Default)]
pub struct SwitchSettings {
    /// Cores that work on frames.
    pub cores: usize,
    /// The data planes.
    pub datapath: Settings,
    /// By port: its OpenFlow number, MAC address and name.
    pub ports: Vec<(u32, [u8; 6], String)>,
    /// Frames that may wait for the agent.
    pub punts: usize,
}

/// Where an agent reaches the data planes of all cores.
#[derive(Debug)]
pub struct SwitchHub {
    settings: SwitchSettings,
    mail: OnceLock<Mail>,
    in_force: Box<[AtomicU64]>,
    to_agent: Sender<Punt>,
    punts: Receiver<Punt>,
    lost: AtomicU64,
    /// Received, then sent, of port `p` by core `c` of `n`: at `(2 * p + sent) * n + c`.
    counts: Box<[Counts]>,
}

impl SwitchHub {
    /// A switch that no core has yet.
    #[must_use]
    pub fn new(settings: SwitchSettings) -> Self {
        let (to_agent, punts) = bounded(settings.punts.max(1));
        let counts = settings.cores * settings.ports.len() * 2;
        Self {
            mail: OnceLock::new(),
            in_force: (0..settings.cores).map(|_| AtomicU64::new(0)).collect(),
            to_agent,
            punts,
            lost: AtomicU64::new(0),
            counts: (0..counts).map(|_| Counts::default()).collect(),
            settings,
        }
    }

    /// The work of each core. Ports are there from the start.
    #[must_use]
    pub fn group(self: &Arc<Self>) -> Vec<Switch> {
        let datapaths = Datapath::group(self.settings.cores, &self.settings.datapath);
        let (senders, inboxes): (Vec<_>, Vec<_>) =
            datapaths.iter().map(|_| sync_channel(NEWS)).unzip();
        let ports: Vec<_> =
            self.ports().into_iter().map(|port| Change::Port(port.into())).collect();
        let mut numbers: Vec<(u32, u16)> =
            (0..).zip(&self.settings.ports).map(|(at, (number, ..))| (*number, at)).collect();
        numbers.sort_unstable();
        let switch = |((core, mut datapath), inbox): ((usize, Datapath), _)| {
            let mut out = Effects::new(PUNTS);
            ports.iter().for_each(|port| datapath.apply(0, port, 0, &mut out));
            let others = (0..).zip(&senders).filter(|(other, _)| *other != core);
            Switch {
                hub: Arc::clone(self),
                core,
                datapath,
                out,
                pool: None,
                inbox,
                others: others.map(|(_, to)| to.clone()).collect(),
                numbers: numbers.clone(),
            }
        };
        datapaths.into_iter().enumerate().zip(inboxes).map(switch).collect()
    }

    /// Gives changes to every core, to be in force together. Waits for room in their mailboxes, not
    /// for the changes to be in force. Not to be called by a core.
    pub fn apply(&self, changes: &[(u64, Change)]) {
        if let Some(mail) = self.mail.get() {
            mail.to_all(&change_message(changes.into()));
        }
    }

    /// The last change that is in force on every core.
    #[must_use]
    pub fn in_force(&self) -> u64 {
        self.in_force.iter().map(|core| core.load(Ordering::Acquire)).min().unwrap_or(0)
    }

    /// Where frames for controllers come from.
    #[must_use]
    pub fn punts(&self) -> Receiver<Punt> {
        self.punts.clone()
    }

    /// Frames for controllers that found no room.
    #[must_use]
    pub fn punts_lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Lookups of each table, as the cores count them.
    #[must_use]
    pub fn lookups(&self) -> &[Lookups] {
        &self.settings.datapath.lookups
    }

    /// The fields of a frame, as `ovs-ofctl` writes a match, with names of ports. What is not there, a frame does not
    /// have; without `vlan_vid` it has no tag.
    ///
    /// # Errors
    /// What cannot be read, or is no field of one frame alone.
    pub fn key(&self, flow: &str) -> Result<Key, String> {
        let ports: Vec<(&str, u32)> =
            self.settings.ports.iter().map(|port| (port.2.as_str(), port.0)).collect();
        let read = ofctl::flow_with(flow, FlowCommand::Delete, &ports);
        let matching = read.map_err(|error| error.to_string())?.matching;
        let mut key = Key::ZERO;
        key.set(Field::VlanVid, 0);
        for oxm in &matching.0 {
            if !oxm.is_exact() {
                return Err(format!(
                    "'{flow}': a frame has one value in each field; leave out masks and prefixes"
                ));
            }
            key.set(oxm.field, oxm.value);
            if oxm.field == Field::InPort {
                key.set(Field::InPhyPort, oxm.value);
            }
        }
        Ok(key)
    }

    /// The ports, as they are at the start.
    #[must_use]
    pub fn ports(&self) -> Vec<Port> {
        let port = |(number, hw, name): &(u32, [u8; 6], String)| Port {
            number: *number,
            hw: *hw,
            name: Text::from(name.as_str()),
            ethernet: Some([0; 6]),
            ..Port::default()
        };
        self.settings.ports.iter().map(port).collect()
    }

    /// What came in and went out by each port.
    #[must_use]
    pub fn port_stats(&self) -> Vec<PortStats> {
        let cores = self.settings.cores;
        let sum = |at: usize| {
            let counts = self.counts[at * cores..(at + 1) * cores].iter().map(Counts::read);
            counts.fold((0, 0), |(packets, bytes), more| (packets + more.0, bytes + more.1))
        };
        let stats = |(at, (number, ..)): (usize, &(u32, [u8; 6], String))| {
            let ((rx, rx_bytes), (tx, tx_bytes)) = (sum(at * 2), sum(at * 2 + 1));
            let basic = [rx, tx, rx_bytes, tx_bytes, 0, 0, 0, 0];
            PortStats { number: *number, basic, ..PortStats::default() }
        };
        self.settings.ports.iter().enumerate().map(stats).collect()
    }

    fn count(&self, port: u16, sent: bool, core: usize, bytes: usize, now: Nanos) {
        self.count_all(port, sent, core, (1, bytes), now);
    }

    /// Counts frames, and bytes of all of them.
    #[inline]
    fn count_all(&self, port: u16, sent: bool, core: usize, of: (u64, usize), now: Nanos) {
        let at = (usize::from(port) * 2 + usize::from(sent)) * self.settings.cores + core;
        if let Some(counts) = self.counts.get(at) {
            counts.add(of.0, of.1 as u64, now);
        }
    }
}

impl ControlPlane for SwitchHub {
    fn connect(&self, mail: &Mail) {
        // A second engine with the same hub is not reached; none is built.
        let _first = self.mail.set(mail.clone());
    }
}

/// A batch is looked up together.
const _: () = assert!(LANES <= crate::AHEAD);

/// A switch, as one core has it.
#[derive(Debug)]
pub struct Switch {
    hub: Arc<SwitchHub>,
    core: usize,
    datapath: Datapath,
    out: Effects,
    /// A handle of its own: copies take buffers from it.
    pool: Option<Pool>,
    inbox: Inbox<Seen>,
    others: Vec<SyncSender<Seen>>,
    /// Ports by OpenFlow number.
    numbers: Vec<(u32, u16)>,
}

fn reason(reason: Option<Reason>) -> DropReason {
    match reason {
        Some(Reason::Miss) => DropReason::NoFlow,
        Some(Reason::Meter) => DropReason::Metered,
        Some(Reason::Ttl) => DropReason::TtlExpired,
        Some(Reason::Incomplete) => DropReason::Incomplete,
        Some(Reason::TooLong) => DropReason::TooLong,
        Some(Reason::Filtered | Reason::NotReceived) => DropReason::Filtered,
        Some(Reason::Controller) => DropReason::Punted,
        Some(Reason::NoOutput) | None => DropReason::Work,
    }
}

impl Switch {
    /// The data plane.
    #[must_use]
    pub const fn datapath(&self) -> &Datapath {
        &self.datapath
    }

    fn port(&self, number: u32) -> Option<u16> {
        let at = self.numbers.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(self.numbers[at].1)
    }

    /// News and frames for controllers go their ways.
    fn tell(&mut self) {
        for seen in self.out.seen.drain(..) {
            // A full mailbox loses it.
            for to in &self.others {
                let _lost = to.try_send(seen);
            }
        }
        let mut lost = std::mem::take(&mut self.out.punts_lost);
        for punt in self.out.punts.drain(..) {
            lost += u64::from(self.hub.to_agent.try_send(punt).is_err());
        }
        if lost != 0 {
            self.hub.lost.fetch_add(lost, Ordering::Relaxed);
        }
    }

    /// What became of the frame of `lane` becomes its action.
    fn leave(&mut self, batch: &mut Batch, lane: usize, pool: &Pool, now: Nanos) {
        let Some((&last, others)) = self.out.sent.split_last() else {
            return refuse(batch, lane, reason(self.out.reason));
        };
        // The frame itself leaves last: until then, its bytes are those that came.
        let Some(port) = self.port(last.port) else {
            return refuse(batch, lane, DropReason::NoRoute);
        };
        if others.is_empty() && last.bytes == Bytes::Same {
            self.hub.count(port, true, self.core, batch.frames[lane].len(), now);
            batch.actions[lane].to = To::Port(port);
            return;
        }
        let own = self.pool.get_or_insert_with(|| pool.share());
        let frame = &mut batch.frames[lane];
        let mut missing = 0_u16;
        for sent in others.iter().rev() {
            let at = self.numbers.binary_search_by_key(&sent.port, |(number, _)| *number);
            let Ok(at) = at else { continue };
            let meta = flowyard_pool::Meta { copied: 0, ..pool.meta(frame) };
            let bytes = self.out.bytes(sent, pool.bytes(frame));
            let len = bytes.len();
            match own.copy(bytes, flowyard_pool::Meta { wire_len: len as u32, ..meta }) {
                Ok(mut copy) => {
                    (copy.hash, copy.mark) = (frame.hash, frame.mark);
                    let to = self.numbers[at].1;
                    self.hub.count(to, true, self.core, len, now);
                    pool.tie(frame, copy, to);
                }
                Err(_) => missing = missing.saturating_add(1),
            }
        }
        let len = match last.bytes {
            Bytes::Same => frame.len(),
            Bytes::Changed { .. } => {
                let bytes = self.out.bytes(&last, &[]);
                if !pool.overwrite(frame, bytes) {
                    while let Some((copy, _)) = pool.untie(frame) {
                        own.put(copy);
                    }
                    return refuse(batch, lane, DropReason::TooLong);
                }
                bytes.len()
            }
        };
        self.hub.count(port, true, self.core, len, now);
        batch.actions[lane].to = if others.is_empty() {
            To::Port(port)
        } else {
            pool.set_last(frame, port, missing);
            To::Chain
        };
    }
}

impl Work for Switch {
    fn work(&mut self, batch: &mut Batch, pool: &Pool, now: Nanos) -> Nanos {
        for seen in self.inbox.try_iter().take(NEWS) {
            self.datapath.hear(&seen);
        }
        let (mut lanes, mut count) = ([0; LANES], 0);
        for lane in todo(batch) {
            let frame = &batch.frames[lane];
            if pool.meta(frame).link == LinkType::Ethernet {
                self.hub.count(batch.keys[lane].in_port, false, self.core, frame.len(), now);
                (lanes[count], count) = (lane, count + 1);
            } else {
                refuse(batch, lane, DropReason::LinkType);
            }
        }
        let lanes = &lanes[..count];
        let ports = &self.hub.settings.ports;
        let frame = |&lane: &usize| {
            let port = ports.get(usize::from(batch.keys[lane].in_port));
            let from = Arrival::by(port.map_or(0, |(number, ..)| *number));
            (pool.bytes(&batch.frames[lane]), from)
        };
        self.datapath.look(lanes.iter().map(frame));
        for (place, &lane) in lanes.iter().enumerate() {
            self.datapath.act(place, pool.bytes(&batch.frames[lane]), now, &mut self.out);
            self.leave(batch, lane, pool, now);
        }
        if !self.out.seen.is_empty() || !self.out.punts.is_empty() || self.out.punts_lost != 0 {
            self.tell();
        }
        now
    }

    fn front(&mut self, batch: &mut Batch, lanes: Lanes, now: Nanos) -> Lanes {
        let Some(came_by) = { lanes }.next().map(|lane| batch.keys[lane].in_port) else {
            return lanes;
        };
        let port = self.hub.settings.ports.get(usize::from(came_by));
        let from = Arrival::by(port.map_or(0, |(number, ..)| *number));
        let numbers = &self.numbers;
        let place = |number: u32| {
            let at = numbers.binary_search_by_key(&number, |(number, _)| *number).ok()?;
            Some(numbers[at].1)
        };
        let known = self.datapath.front(batch, lanes, from, &place, now);
        let (mut left, mut all) = (known, 0);
        while let Some(lane) = left.into_iter().next() {
            let to = batch.actions[lane].to;
            let (mut frames, mut bytes) = (0, 0);
            for lane in left.take_while(|&lane| batch.actions[lane].to == to) {
                (frames, bytes) = (frames + 1, bytes + batch.frames[lane].len());
                left = left.without(Lanes(1 << lane));
            }
            if let To::Port(port) = to {
                self.hub.count_all(port, true, self.core, (frames, bytes), now);
            }
            all += bytes;
        }
        if !known.is_empty() {
            self.hub.count_all(came_by, false, self.core, (known.count().into(), all), now);
        }
        known
    }

    fn ask(&self, question: &(dyn Any + Send + Sync)) -> Option<WorkAnswer> {
        if let Some(WhyAsked(key)) = question.downcast_ref() {
            return Some(Arc::new(self.datapath.why(key)));
        }
        question.is::<TotalsAsked>().then(|| Arc::new(self.datapath.totals) as WorkAnswer)
    }

    fn table(&self, most: usize) -> Option<WorkTable> {
        let capacity = self.datapath.mapped_max();
        if capacity == 0 {
            return None;
        }
        let mut table = WorkTable {
            name: "mapping",
            capacity,
            hits: self.datapath.totals.front,
            ..WorkTable::default()
        };
        self.datapath.each_mapped(&mut |key, to| {
            table.entries += 1;
            if table.listed.len() < most {
                table.listed.push((*key, Action { to, counter: 0, mark: 0 }));
            }
        });
        Some(table)
    }

    fn control(&mut self, message: &ControlMessage, now: Nanos, send: &mut dyn FnMut(u16, &[u8])) {
        let Some(changes) = message.downcast_ref::<Changes>() else { return };
        for (number, change) in changes.iter() {
            self.out.clear();
            self.datapath.apply(*number, change, now, &mut self.out);
            for at in 0..self.out.sent.len() {
                let sent = self.out.sent[at];
                if let Some(port) = self.port(sent.port) {
                    let bytes = self.out.bytes(&sent, &[]);
                    self.hub.count(port, true, self.core, bytes.len(), now);
                    send(port, bytes);
                }
            }
        }
        self.datapath.ready();
        self.tell();
        if let Some((last, in_force)) = changes.last().zip(self.hub.in_force.get(self.core)) {
            in_force.store(last.0, Ordering::Release);
        }
    }
}
