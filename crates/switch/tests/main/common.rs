//! A switch with three ports that applies OpenFlow messages, as a minimal agent does.
#![allow(unreachable_pub, reason = "shared by the test modules")]

use std::sync::Arc;

use flowyard_openflow::change::{Change, Counts, Entry, Group, Lookups, Meter};
use flowyard_openflow::message::Message;
use flowyard_openflow::multipart::{GroupDesc, MeterConfig};
use flowyard_openflow::port::Port;
use flowyard_switch::{Arrival, Datapath, Effects, Settings};

/// The result of processing a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fate {
    pub sent: Vec<(u32, Vec<u8>)>,
    pub punts: Vec<Vec<u8>>,
}

/// See the module's head.
pub struct Switch {
    pub datapath: Datapath,
    pub lookups: Vec<Lookups>,
    pub entries: Vec<Arc<Entry>>,
    pub out: Effects,
    changes: u64,
}

/// Counters of one core.
pub fn counts(n: usize) -> Arc<[Counts]> {
    (0..n).map(|_| Counts::default()).collect()
}

impl Switch {
    pub fn new(settings: &Settings) -> Self {
        let lookups: Vec<Lookups> = (0..settings.tables).map(|_| counts(1)).collect();
        let settings = Settings { lookups: lookups.clone(), ..settings.clone() };
        let datapath = Datapath::group(1, &settings).remove(0);
        let out = Effects::new(64);
        let mut switch = Self { datapath, lookups, entries: Vec::new(), out, changes: 0 };
        for number in 1..=3 {
            switch.apply(&Change::Port(Arc::new(Port { number, ..Port::default() })));
        }
        switch
    }

    pub fn apply(&mut self, change: &Change) {
        self.changes += 1;
        self.datapath.apply(self.changes, change, 0, &mut self.out);
    }

    /// Applies messages that add flows, groups and meters; others are ignored.
    pub fn change(&mut self, message: &Message) {
        match message {
            Message::FlowMod(m) => {
                let entry = Arc::new(Entry {
                    id: self.changes,
                    table: m.table,
                    priority: m.priority,
                    cookie: m.cookie,
                    flags: m.flags,
                    matching: m.matching.normal(),
                    instructions: m.instructions.clone(),
                    counts: counts(1),
                });
                self.entries.push(Arc::clone(&entry));
                self.apply(&Change::Flow(entry));
            }
            Message::GroupMod(m) => {
                let buckets = counts(m.buckets.len());
                let desc = GroupDesc { kind: m.kind, group: m.group, buckets: m.buckets.clone() };
                self.apply(&Change::Group(Arc::new(Group { desc, counts: counts(1), buckets })));
            }
            Message::MeterMod(m) => {
                let bands = counts(m.bands.len());
                let config = MeterConfig { flags: m.flags, meter: m.meter, bands: m.bands.clone() };
                self.apply(&Change::Meter(Arc::new(Meter { config, counts: counts(1), bands })));
            }
            _ => {}
        }
    }

    pub fn frame(&mut self, port: u32, frame: &[u8], now: u64) -> Fate {
        self.datapath.process(frame, Arrival::by(port), now, &mut self.out);
        self.fate(frame)
    }

    pub fn fate(&mut self, frame: &[u8]) -> Fate {
        let sent = self.out.sent.iter();
        let sent = sent.map(|sent| (sent.port, self.out.bytes(sent, frame).to_vec())).collect();
        Fate { sent, punts: self.out.punts.drain(..).map(|punt| punt.frame).collect() }
    }

    /// The flow that was added first.
    pub fn first(&self) -> &Entry {
        &self.entries[0]
    }
}
