//! A flow that is split over cores is marked by the adapter: its frames are found by their mark, in order, until it is
//! moved back or the user's entries match it.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use flowyard_config::Config;
use flowyard_dpdk::rules::Limits;
use flowyard_frame::{Batch, FlowKey, Nanos, proto};
use flowyard_front::Adapters;
use flowyard_pool::Pool;
use flowyard_ports::port::Collect;
use flowyard_testkit::{Build, Rng};
use flowyard_yard::ask::{Answer, Ask, Question};
use flowyard_yard::port::{Received, Rx};
use flowyard_yard::sim::{Faults, Sim};
use flowyard_yard::{ControlPlane, Message, Parts};

use crate::nic::{Nic, NicRx};

flowyard_testkit::tests! {
    a_split_flow_is_found_by_its_mark_until_it_is_moved_back,
    an_entry_of_the_user_ends_the_marks_of_a_split_flow,
}

/// Frames of the flow while it overloads its core, and afterwards.
const FAST: u64 = 2000;
const SLOW: u64 = 150;

fn flow() -> FlowKey {
    let [a, b] = [1, 2].map(|n| std::net::IpAddr::from([10, 0, 0, n]));
    FlowKey::five_tuple(proto::TCP, a, 1000, b, 80)
}

/// The flow comes through an adapter, whose rules are carried out now and then.
struct Stream {
    nic: Nic,
    rx: NicRx,
    adapters: Arc<Adapters>,
    sent: u64,
}

impl Rx for Stream {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
        let at = |n: u64| if n < FAST { n * 800 } else { FAST * 850 + (n - FAST) * 20_000 };
        while self.sent < FAST + SLOW && at(self.sent) <= now {
            self.nic.feed(Build::new(&flow()).payload(&self.sent.to_be_bytes()).bytes());
            self.sent += 1;
        }
        self.adapters.tick(now);
        self.rx.rx(into, pool, now);
        let ended = self.sent == FAST + SLOW && self.nic.is_empty();
        Received { ended, ..Received::default() }
    }
}

fn config(steer: &str) -> Config {
    let mut text = String::from("[yard]\ncores = 4\nhold_after_frames = 32\n");
    for (port, given) in [("west", "in = \"given\"\n"), ("east", "")] {
        text += &format!("[[port]]\nname = \"{port}\"\nkind = \"mem\"\n{given}");
    }
    for core in 1..4 {
        text +=
            &format!("[[queue]]\nname = \"q{core}\"\norder = \"direct\"\nconsumers = [{core}]\n");
    }
    text += "[[queue]]\nname = \"split\"\norder = \"ordered\"\nconsumers = [1, 2, 3]\n";
    text += "[steer]\nspread = [\"q1\", \"q2\", \"q3\"]\n";
    text += steer;
    text += "[elephants]\nqueue = \"split\"\nwindow_us = 100\nsample_every = 4\nsamples_min = 8\n\
             patience = 2\ndwell_us = 500\ngain = 1.1\n\
             [offload]\nrules = true\n\
             [work]\nkind = \"burn\"\ncost_ns = 2000\nports = { west = \"east\" }\n";
    Config::parse("elephants.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

struct Bed {
    sim: Sim,
    nic: Nic,
    adapters: Arc<Adapters>,
    out: Collect,
}

impl Bed {
    fn new(config: &Config, seed: u64) -> Self {
        let limits = Limits {
            rules: 8,
            queues: 1,
            vlans: true,
            ipv6: true,
            prefixes: true,
            marks: true,
            counts: true,
            switch: None,
        };
        let (adapters, out) = (Arc::new(Adapters::new(16)), Collect::default());
        let nic = Nic::new(0, limits, Rng::new(seed));
        adapters.add(0, "west", Box::new(nic.device.clone()), &[0]);
        let mut parts = Parts::default();
        let (rx, shared) = (nic.rx(0), Arc::clone(&adapters));
        parts.rx.insert(0, Box::new(Stream { nic: nic.clone(), rx, adapters: shared, sent: 0 }));
        parts.tx.insert(1, Box::new(out.clone()));
        parts.control.push(Arc::clone(&adapters) as Arc<dyn ControlPlane>);
        let yard = config.build(parts).unwrap();
        Self { sim: Sim::new(yard, seed, Faults::default()), nic, adapters, out }
    }

    fn run_until(&mut self, is_done: impl Fn(&Self) -> bool) {
        let mut steps = 0;
        while !is_done(self) {
            self.sim.step();
            steps += 1;
            assert!(steps < 400_000, "it does not come about: {:?}", self.sim.total());
        }
    }

    /// The hits of a table, and its entries.
    fn table(&mut self, name: &str) -> (u64, usize) {
        let (reply, answers) = sync_channel(1);
        let ask = Ask::new(Question::Tables { entries: 8 }, reply);
        assert!(self.sim.yard.mail.offer(0, Message::Ask(Box::new(ask))));
        loop {
            self.sim.step();
            if let Ok((_, Answer::Tables(tables))) = answers.try_recv() {
                let table = tables.front.iter().find(|table| table.name == name).unwrap();
                return (table.hits, table.listed.len());
            }
        }
    }

    /// Runs until marks have named the flow for this number of frames.
    fn run_until_found(&mut self, frames: u64) -> u64 {
        self.run_until(|bed| bed.marked() == 1);
        for _ in 0..100_000 {
            let (by_mark, entries) = self.table("marked");
            if by_mark > frames {
                assert_eq!((entries, self.marked()), (1, 1));
                return by_mark;
            }
        }
        panic!("no marks: {:?}", self.sim.total());
    }

    fn marked(&self) -> usize {
        self.adapters.states().ports[0].flows
    }

    /// Runs to the end: no frame is lost, and all are in order.
    fn end(&mut self) {
        let total = self.sim.run().unwrap();
        assert_eq!((total.drops.total(), total.tx_frames), (0, FAST + SLOW), "{:?}", total.drops);
        let sent = self.out.take();
        let number = |data: &[u8]| u64::from_be_bytes(*data.last_chunk().unwrap());
        assert!(sent.iter().map(|(_, data)| number(data)).eq(0..FAST + SLOW), "in order");
    }
}

fn a_split_flow_is_found_by_its_mark_until_it_is_moved_back() {
    for seed in 0..8 {
        let mut bed = Bed::new(&config(""), seed);
        let by_mark = bed.run_until_found(200);
        let (searched, _) = bed.table("promoted");
        // Now and then the adapter sets a wrong mark, and such frames are searched for.
        assert!(by_mark > 4 * searched, "{by_mark} {searched}");
        assert!(bed.nic.counts().0 >= by_mark);
        bed.run_until(|bed| bed.marked() == 0);
        assert_eq!(bed.table("marked").1, 0, "seed {seed}: moved back");
        bed.end();
        let counters = bed.sim.total();
        assert_eq!((counters.promoted, counters.demoted), (1, 1), "seed {seed}");
    }
}

fn an_entry_of_the_user_ends_the_marks_of_a_split_flow() {
    let (old, new) = (
        config(""),
        config(
            "[[steer.rule]]\nmatch = { dst = \"10.0.0.0/24\", proto = \"tcp\" }\nqueue = \"q2\"\n",
        ),
    );
    for seed in 0..8 {
        let mut bed = Bed::new(&old, seed);
        bed.run_until_found(100);
        let plan = old.reload(&new).unwrap();
        let prepared = bed.adapters.prepare(&plan.offered.unwrap(), &|queue| Some(queue + 1));
        let mut tables = plan.tables;
        tables.marks = Some(prepared.marks());
        bed.sim.yard.mail.to_all(&Message::Reload(Arc::new(tables)));
        bed.run_until(|bed| bed.marked() == 0);
        bed.adapters.commit(&prepared, false);
        assert_eq!(bed.table("marked").1, 1, "seed {seed}: the rule, and not the flow");
        let split = bed.table("promoted").0;
        bed.run_until(|bed| bed.sim.total().rx_frames > FAST);
        assert_eq!(bed.table("promoted").0, split, "seed {seed}: the rule answers from there on");
        bed.end();
    }
}
