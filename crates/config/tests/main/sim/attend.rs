//! What a core calls in each of its turns, also while it receives nothing because a port takes no frames.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use flowyard_config::Config;
use flowyard_frame::{Batch, FlowKey, LANES, Lanes, Nanos, proto};
use flowyard_pool::{Meta, Pool};
use flowyard_testkit::Build;
use flowyard_wire::LinkType;
use flowyard_yard::port::{Received, Rx};
use flowyard_yard::sim::{Faults, Sim};
use flowyard_yard::{Parts, Tx};

flowyard_testkit::tests! {
    a_core_attends_to_its_ports_in_each_turn,
}

/// How often each function was called.
#[derive(Debug, Default)]
struct Calls {
    rx: AtomicU64,
    rx_attend: AtomicU64,
    tx_attend: AtomicU64,
}

/// Receives as many frames as fit, and counts what is called.
struct Full(Arc<Calls>, Vec<u8>);

impl Rx for Full {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, time: Nanos) -> Received {
        self.0.rx.fetch_add(1, Relaxed);
        while into.len() < LANES {
            let meta = Meta { time, link: LinkType::Ethernet, ..Meta::default() };
            let Ok(frame) = pool.copy(&self.1, meta) else { break };
            into.push(frame, FlowKey::ZERO).expect("there is a lane");
        }
        Received::default()
    }

    fn attend(&mut self) {
        self.0.rx_attend.fetch_add(1, Relaxed);
    }
}

/// Takes no frames.
struct Stuck(Arc<Calls>);

impl Tx for Stuck {
    fn tx(&mut self, _: &mut Batch, lanes: Lanes, _: &Pool, _: Nanos) -> Lanes {
        lanes
    }

    fn attend(&mut self) {
        self.0.tx_attend.fetch_add(1, Relaxed);
    }
}

pub(crate) fn a_core_attends_to_its_ports_in_each_turn() {
    let text = "[yard]\ncores = 1\n[[port]]\nname = \"p\"\nkind = \"tap\"\ninterface = \"given\"\ncores = [0]\nwindow_frames = 64\n\
        [[queue]]\nname = \"q\"\norder = \"direct\"\nconsumers = [0]\nwindow_frames = 64\n[work]\nkind = \"forward\"\nports = { p = \"p\" }\n";
    let calls = Arc::new(Calls::default());
    let [a, b] = [[10, 0, 0, 1], [10, 0, 1, 1]].map(std::net::IpAddr::from);
    let frame = Build::new(&FlowKey::five_tuple(proto::UDP, a, 7, b, 53)).bytes();
    let mut parts = Parts::default();
    let halves = (Box::new(Full(Arc::clone(&calls), frame)), Box::new(Stuck(Arc::clone(&calls))));
    parts.ports.insert((0, 0), (halves.0, halves.1));
    let yard = Config::parse("y", &crate::engine(text)).unwrap().build(parts).unwrap();
    let mut sim = Sim::new(yard, 1, Faults::default());
    let mut counts = || {
        for _ in 0..100 {
            sim.step();
        }
        [&calls.rx, &calls.rx_attend, &calls.tx_attend].map(|count| count.swap(0, Relaxed))
    };
    let [came, ..] = counts();
    assert!(came > 0, "the core receives until the queue of the port is full");
    let [rx, rx_attend, tx_attend] = counts();
    assert_eq!(rx, 0, "the core waits for the port that takes no frames");
    assert!(tx_attend > 0, "the core takes turns");
    assert_eq!(rx_attend, tx_attend);
}
