//! Ports with several cores under seeds: each core has a transmit queue of its own, which accepts
//! frames at random. Tables change all the time, and every flow leaves in order.

use flowyard_config::Config;
use flowyard_frame::{Batch, FlowKey, Lanes, Nanos, To, proto};
use flowyard_pool::Pool;
use flowyard_ports::mem::Frames;
use flowyard_ports::port::Pace;
use flowyard_ports::port::{Collect, SourceRx};
use flowyard_testkit::{Build, Checker, Rng};
use flowyard_wire::LinkType;
use flowyard_yard::sim::{Faults, Sim};
use flowyard_yard::{Message, Parts, Reload, Tx};

flowyard_testkit::tests! {
    flows_leave_a_port_of_several_cores_in_order,
}

const CORES: u16 = 3;

/// Accepts a random number of frames, sometimes none.
struct Moody(Collect, Rng);

impl Tx for Moody {
    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, now: Nanos) -> Lanes {
        let most = if self.1.below(3) == 0 { self.1.below(33) as usize } else { 0 };
        let now_taken = Lanes(lanes.take(most).fold(0, |bits, lane| bits | 1 << lane));
        self.0.tx(from, now_taken, pool, now);
        lanes.without(now_taken)
    }
}

fn text(order: &str) -> String {
    let queue = |name: &str, consumers: &str| {
        format!(
            "[[queue]]\nname = \"{name}\"\norder = \"{order}\"\nconsumers = {consumers}\nwindow_frames = 64\n"
        )
    };
    let queues = match order {
        "direct" => queue("a", "[0]") + &queue("b", "[1]") + &queue("c", "[2]"),
        _ => queue("a", "[0, 1, 2]") + &queue("b", "[1, 2]"),
    };
    format!(
        "[yard]\ncores = {CORES}\n[[port]]\nname = \"p\"\nkind = \"tap\"\ninterface = \"given\"\n\
         cores = [0, 1, 2]\nwindow_frames = 64\n{queues}[work]\nkind = \"burn\"\ncost_ns = 700\n"
    )
}

/// Runs one seed; returns the number of flows that used more than one transmit queue.
fn run(order: &str, seed: u64) -> usize {
    let (mut checker, mut rng) = (Checker::new(), Rng::new(seed));
    let mut parts = Parts::default();
    let all = Collect::default();
    for core in 0..CORES {
        let (mut frames, mut bytes) = (Frames::new(), Vec::new());
        for time in 0..600 {
            // An adapter gives all frames of a flow to one core.
            let flow = rng.below(8) * u64::from(CORES) + u64::from(core);
            let [a, b] = [[10, 0, 0, flow as u8], [10, 0, 1, 1]].map(std::net::IpAddr::from);
            let key = FlowKey::five_tuple(proto::UDP, a, 7, b, 53);
            let payload = [flow.to_be_bytes(), checker.enter(flow).to_be_bytes()].concat();
            Build::new(&key).payload(&payload).write(&mut bytes);
            frames.push(time, LinkType::Ethernet, &bytes);
        }
        let rx = SourceRx::new(0, Box::new(frames), Pace::Rate(1.5e6));
        let tx = Moody(all.clone(), Rng::new(seed ^ u64::from(core) << 32));
        parts.ports.insert((0, core), (Box::new(rx), Box::new(tx)));
    }
    let yard = Config::parse("y", &crate::engine(&text(order))).unwrap().build(parts).unwrap();
    let faults = Faults { stall_every: 50, stall_ns: 20_000, ..Faults::default() };
    let mut sim = Sim::new(yard, seed, faults);
    let queues = if order == "direct" { 3 } else { 2 };
    for _ in 0..400 {
        for _ in 0..30 {
            sim.step();
        }
        let spread = (0..16).map(|_| To::Queue(rng.below(queues) as u16)).collect();
        let reload = Reload { spread, ..Reload::default() };
        sim.yard.mail.to_all(&Message::Reload(reload.into()));
    }
    let total = sim.run().unwrap();
    assert_eq!((total.tx_frames, total.drops.total()), (1800, 0), "seed {seed}");
    for (_, data) in all.take().iter() {
        let word = |at: usize| u64::from_be_bytes(data[at..at + 8].try_into().unwrap());
        checker.leave(word(42), word(50));
    }
    checker.finish(0).unwrap_or_else(|violation| panic!("{order}, seed {seed}: {violation}"));
    let used = sim.yard.cores.iter().filter(|core| core.counters().tx_frames > 0).count();
    let pool = sim.yard.pool.share();
    drop(sim);
    assert_eq!(pool.held(), 0);
    used
}

pub(crate) fn flows_leave_a_port_of_several_cores_in_order() {
    for order in ["direct", "atomic", "ordered"] {
        let used: usize = (0..40).map(|seed| run(order, seed)).sum();
        assert_eq!(used, 40 * usize::from(CORES), "every core transmits, with {order} queues");
    }
}
