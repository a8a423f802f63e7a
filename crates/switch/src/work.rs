//! Switch: the work of an OpenFlow switch, with one data plane for each core.
//!
//! ```text
//!  agent ──apply(changes)──> mail of every core ──between batches──> its Datapath ──> in_force
//!        <──punts─────────── a bounded queue <──── frames for controllers
//!  a frame to several ports, or changed for some of them: copies are tied to it (see the chains of `flowyard_pool`)
//! ```
//!
//! The changes of one call are in force together. A core applies them even if no frames are received, so a
//! barrier does not wait for traffic. A core sends the stations that it learns (`NORMAL`) to the other cores
//! through bounded mailboxes, and repeats this from time to time, so that they do not age there. If a mailbox is full, a
//! later frame of the station causes another message.
//!
//! Invariants: the frames of a flow are sent to each port in the order in which they were received; only
//! frames to a controller allocate memory.
//! Thread-safety: owned by one core, except the hub, which any thread may use.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver as Inbox, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};

use crate::unfinished::is_any;
use crate::why::fields;
use crate::{Arrival, COPIES_MAX, Datapath, Effects, Key, Seen, Settings};
use crossbeam_channel::{Receiver, Sender, bounded};
use flowyard_frame::{Action, Batch, FlowKey, Frame, LANES, Lanes, Nanos};
use flowyard_openflow::change::{Change, Counts, Lookups, Punt};
use flowyard_openflow::flow::FlowCommand;
use flowyard_openflow::multipart::NOT_COUNTED;
use flowyard_openflow::ofctl;
use flowyard_openflow::oxm::Field;
use flowyard_openflow::port::{Port, PortStats, Text, reserved};
use flowyard_wire::LinkType;

use flowyard_pool::{Meta, Pool};
use flowyard_yard::DropReason;
use flowyard_yard::port::refuse;
use flowyard_yard::work::{ControlMessage, WorkAnswer, WorkTable};
use flowyard_yard::work::{Work, todo};
use flowyard_yard::{ControlPlane, Mail, Message};

mod leave;
mod offload;
mod segments;

/// Frames for controllers that a core keeps until it moves them to the queue to the agent.
const PUNTS: usize = 64;
/// Stations that a mailbox holds.
const STATIONS: usize = 1024;

/// Changes for the data planes, with their numbers.
pub type Changes = Arc<[(u64, Change)]>;

/// A message to a core's switch, which applies these changes together.
#[must_use]
pub fn change_message(changes: Changes) -> Message {
    Message::Control(Arc::new(changes))
}

/// Asks a core's switch how it processes a frame with these fields, and why. The answer is a `Why`.
#[derive(Clone, Debug)]
pub struct WhyAsked(pub Key);

/// Asks a core's switch for its counters. The answer is a `Totals`.
#[derive(Clone, Copy, Debug)]
pub struct TotalsAsked;

/// The settings of a switch.
#[derive(Clone, Debug, Default)]
pub struct SwitchSettings {
    /// Number of cores that process frames.
    pub cores: usize,
    /// The settings of its data planes.
    pub datapath: Settings,
    /// The OpenFlow number, MAC address and name of each port.
    pub ports: Vec<(u32, [u8; 6], String)>,
    /// The greatest number of frames that wait for the agent.
    pub punts: usize,
}

/// The connection between an agent and the data planes of all cores.
#[derive(Debug)]
pub struct SwitchHub {
    settings: SwitchSettings,
    mail: OnceLock<Mail>,
    in_force: Box<[AtomicU64]>,
    to_agent: Sender<Punt>,
    punts: Receiver<Punt>,
    lost: AtomicU64,
    /// The counters of received (`sent` = 0) and sent (1) frames of port `p` on core `c` of `n` are at
    /// `(2 * p + sent) * n + c`.
    counts: Box<[Counts]>,
}

impl SwitchHub {
    /// A switch that is not on any core yet.
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

    /// The work of each core. All ports exist from the start.
    #[must_use]
    pub fn group(self: &Arc<Self>) -> Vec<Switch> {
        let datapaths = Datapath::group(self.settings.cores, &self.settings.datapath);
        let (senders, inboxes): (Vec<_>, Vec<_>) =
            datapaths.iter().map(|_| sync_channel(STATIONS)).unzip();
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
                segment: Vec::new(),
                leaving: Vec::new(),
            }
        };
        datapaths.into_iter().enumerate().zip(inboxes).map(switch).collect()
    }

    /// Sends changes to every core, which applies them together. Waits until they are in the mailboxes, not
    /// until they are in force. A core must not call it.
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

    /// The queue of frames for controllers.
    #[must_use]
    pub fn punts(&self) -> Receiver<Punt> {
        self.punts.clone()
    }

    /// Frames for controllers that were lost because the queue was full.
    #[must_use]
    pub fn punts_lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// The counters of lookups of each table.
    #[must_use]
    pub fn lookups(&self) -> &[Lookups] {
        &self.settings.datapath.lookups
    }

    /// The key of a frame with the fields of `flow`, which is written as a match of `ovs-ofctl`, with names of ports.
    /// The frame has no other fields; without `vlan_vid` it has no tag.
    ///
    /// # Errors
    /// When `flow` cannot be parsed, or has a mask.
    pub fn key(&self, flow: &str) -> Result<Key, String> {
        let ports: Vec<(&str, u32)> =
            self.settings.ports.iter().map(|port| (port.2.as_str(), port.0)).collect();
        let read = ofctl::flow_with(flow, FlowCommand::Delete, &ports);
        let matching = read.map_err(|error| error.to_string())?.matching;
        let mut key = Key::ZERO;
        key.set(Field::VlanVid, 0);
        let in_port = matching.exact(Field::InPort).map(|port| port as u32);
        let is_known = |port| port > reserved::MAX || ports.iter().any(|(_, one)| *one == port);
        if let Some(port) = in_port.filter(|port| !is_known(*port)) {
            let names: Vec<String> =
                ports.iter().map(|(name, port)| format!("{port} ({name})")).collect();
            return Err(format!(
                "in_port={port}: the switch has no such port; its ports are {}",
                names.join(", ")
            ));
        }
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

    /// The fields of a frame as a text that [`SwitchHub::key`] reads.
    #[must_use]
    pub fn fields(&self, key: &FlowKey) -> String {
        let port = self.settings.ports.get(usize::from(key.in_port));
        fields(key, port.map_or("PORT", |(.., name)| name))
    }

    /// The number and the name of each port.
    pub fn port_names(&self) -> impl Iterator<Item = (u32, &str)> {
        self.settings.ports.iter().map(|(number, _, name)| (*number, name.as_str()))
    }

    /// The ports in their initial state.
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

    /// The counters of each port.
    #[must_use]
    pub fn port_stats(&self) -> Vec<PortStats> {
        let cores = self.settings.cores;
        let sum = |at: usize| {
            let counts = self.counts[at * cores..(at + 1) * cores].iter().map(Counts::read);
            counts.fold((0, 0), |(packets, bytes), more| (packets + more.0, bytes + more.1))
        };
        let stats = |(at, (number, ..)): (usize, &(u32, [u8; 6], String))| {
            let ((rx, rx_bytes), (tx, tx_bytes)) = (sum(at * 2), sum(at * 2 + 1));
            // Drops and errors are counted by the yard and the interface.
            let none = NOT_COUNTED;
            let basic = [rx, tx, rx_bytes, tx_bytes, none, none, none, none];
            PortStats { number: *number, basic, ..PortStats::default() }
        };
        self.settings.ports.iter().enumerate().map(stats).collect()
    }
}

impl ControlPlane for SwitchHub {
    fn connect(&self, mail: &Mail) {
        // A hub belongs to one engine.
        let _first = self.mail.set(mail.clone());
    }
}

// The frames of a batch are looked up together.
const _: () = assert!(LANES <= crate::AHEAD);
// The frames that come of one frame are counted in 16 bits.
const _: () = assert!(COPIES_MAX < u16::MAX as usize);

/// The switch on one core.
#[derive(Debug)]
pub struct Switch {
    hub: Arc<SwitchHub>,
    core: usize,
    datapath: Datapath,
    out: Effects,
    /// Its own handle of the pool, for copies.
    pool: Option<Pool>,
    inbox: Inbox<Seen>,
    others: Vec<SyncSender<Seen>>,
    /// The ports of the yard, sorted by OpenFlow number.
    numbers: Vec<(u32, u16)>,
    /// A segment, and the frames that leave in place of one that is cut, each with its port.
    segment: Vec<u8>,
    leaving: Vec<(Frame, u16)>,
}

/// How frames are received that come by this port of the yard.
fn arrival(ports: &[(u32, [u8; 6], String)], came_by: u16) -> Arrival {
    Arrival::by(ports.get(usize::from(came_by)).map_or(0, |(number, ..)| *number))
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

    /// Learns the stations that other cores have seen.
    fn hear(&mut self) {
        for seen in self.inbox.try_iter().take(STATIONS) {
            self.datapath.hear(&seen);
        }
    }

    /// Sends stations to other cores, and frames to controllers.
    fn report(&mut self) {
        for seen in self.out.seen.drain(..) {
            let full =
                |to: &SyncSender<Seen>| matches!(to.try_send(seen), Err(TrySendError::Full(_)));
            // Not `any`: the message is sent to all.
            if self.others.iter().filter(|to| full(to)).count() > 0 {
                self.datapath.not_heard(&seen);
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
}

impl Work for Switch {
    fn work(&mut self, batch: &mut Batch, pool: &Pool, now: Nanos) -> Nanos {
        self.hear();
        let (mut lanes, mut count, mut unfinished) = ([0; LANES], 0, Lanes::NONE);
        for lane in todo(batch) {
            let frame = &batch.frames[lane];
            let Meta { link, offload, .. } = pool.meta(frame);
            if link == LinkType::Ethernet {
                self.hub.count(batch.keys[lane].in_port, false, self.core, frame.len(), now);
                (lanes[count], count) = (lane, count + 1);
                if is_any(offload) {
                    unfinished = unfinished.with(lane);
                }
            } else {
                refuse(batch, lane, DropReason::LinkType);
            }
        }
        let mut rest = &lanes[..count];
        while !rest.is_empty() {
            let ports = &self.hub.settings.ports;
            let frame = |&lane: &usize| {
                let from = arrival(ports, batch.keys[lane].in_port);
                (pool.bytes(&batch.frames[lane]), from)
            };
            self.datapath.look(rest.iter().map(frame));
            rest = self.act(batch, (rest, unfinished), pool, now);
        }
        if !self.out.seen.is_empty() || !self.out.punts.is_empty() || self.out.punts_lost != 0 {
            self.report();
        }
        now
    }

    fn front(&mut self, batch: &mut Batch, lanes: Lanes, now: Nanos) -> Lanes {
        let Some(came_by) = { lanes }.next().map(|lane| batch.keys[lane].in_port) else {
            return lanes;
        };
        let from = arrival(&self.hub.settings.ports, came_by);
        let numbers = &self.numbers;
        let place = |number: u32| {
            let at = numbers.binary_search_by_key(&number, |(number, _)| *number).ok()?;
            Some(numbers[at].1)
        };
        let known = self.datapath.front(batch, lanes, from, &place, now);
        let Some(to) = { known }.next().map(|lane| batch.actions[lane].to) else { return known };
        let (mut all, mut same) = (0, Lanes::NONE);
        known.each(|lane| {
            all += batch.frames[lane].len();
            same.0 |= u32::from(batch.actions[lane].to == to) << lane;
        });
        if same == known {
            self.count_sent(to, known, all, now); // in most batches
        } else {
            self.count_each(batch, known, now);
        }
        self.hub.count_all(came_by, false, self.core, (known.count().into(), all), now);
        known
    }

    fn speak(&mut self, now: Nanos, _send: &mut dyn FnMut(u16, &[u8]) -> bool) -> u32 {
        self.hear(); // on a core that receives no frames, too, so that its mailbox does not stay full
        self.look_ahead(now)
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
        self.report();
        if let Some((last, in_force)) = changes.last().zip(self.hub.in_force.get(self.core)) {
            in_force.store(last.0, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests;
