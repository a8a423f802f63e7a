//! What is learned at egress, against the yard's learner: equal after every segment.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flowyard_flow::learn::atr::{Atr, Settings};
use flowyard_frame::{Edit, FlowKey, Nanos, Rng, To, proto};
use flowyard_steer::{Follow, Policy, Program, Reason};
use flowyard_testkit::harness::Need;
use flowyard_testkit::{Build, note};

use crate::equal::{bpf, stay};

flowyard_testkit::tests! {
    segments_teach_as_in_the_yard needs [Need::Check(bpf)],
    a_flow_is_forgotten_some_time_after_its_fin needs [Need::Check(bpf)],
}

/// The clock of the programs.
fn now() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The learner of the yard and its table, and the program, both on one CPU.
struct Both {
    yard: Atr,
    table: HashMap<FlowKey, u32>,
    program: Program,
    edits: Vec<Edit>,
}

impl Both {
    fn new(sample: u32) -> Self {
        stay();
        let cpu = rustix::thread::sched_getcpu() as u32;
        let follow = Some(Follow::Senders { sample });
        let program = Program::load(&Policy { follow, ..Policy::over(&[cpu]) }, 64).unwrap();
        let settings = Settings { sample_every: sample, entries: 65_536, ..Settings::default() };
        let yard = Atr::new(1, settings, 7);
        Self { yard, table: HashMap::new(), program, edits: Vec::new() }
    }

    /// This host sends a segment with these flags, of the flow whose frames it receives as `received`.
    fn sends(&mut self, received: &FlowKey, flags: u8) {
        let sent = FlowKey { tcp_flags: flags, ..received.reversed() };
        self.yard.transmitted(0, &sent, now(), &mut self.edits);
        self.program.sends(&Build::new(&sent).bytes()).unwrap();
        for edit in self.edits.drain(..) {
            match edit {
                Edit::Put(key, action) => {
                    let To::Queue(queue) = action.to else { panic!("{action:?}") };
                    self.table.insert(key, queue.into());
                }
                Edit::Del(key) => drop(self.table.remove(&key)),
            }
        }
    }

    fn learned(&mut self, received: &FlowKey) -> Option<u32> {
        let followed = self.program.followed(received).unwrap();
        followed.and_then(|flow| flow.wanted).map(u32::from)
    }
}

fn flow(number: u16) -> FlowKey {
    let [a, b]: [IpAddr; 2] = if number.is_multiple_of(3) {
        [1, 2].map(|n| Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, number, n).into())
    } else {
        [1, 2].map(|n| Ipv4Addr::new(10, number as u8, 0, n).into())
    };
    let proto = if number.is_multiple_of(10) { proto::UDP } else { proto::TCP };
    FlowKey::five_tuple(proto, a, 40_000 + number, b, 80)
}

fn segments_teach_as_in_the_yard() {
    const FIN: u8 = FlowKey::FIN;
    const SYN: u8 = FlowKey::SYN;
    const RST: u8 = FlowKey::RST;
    const ACK: u8 = 16;
    for (seed, sample) in [(1, 1), (2, 3), (3, 20)] {
        let (mut both, mut random) = (Both::new(sample), Rng::new(seed));
        let (mut known, mut forgotten) = (0, 0);
        for step in 0..3000 {
            let key = flow(random.below(30) as u16);
            let flags = match random.below(24) {
                0 => SYN,
                1 => SYN | ACK,
                2 => FIN | ACK,
                3 => RST,
                4 => RST | ACK,
                5 => FIN | RST | SYN,
                _ => ACK,
            };
            let before = both.table.contains_key(&key);
            both.sends(&key, flags);
            let after = both.table.get(&key).copied();
            assert_eq!(both.learned(&key), after, "seed {seed}, step {step}: {key}, {flags:02x}");
            known += u32::from(after.is_some());
            forgotten += u32::from(before && after.is_none());
        }
        note!("one of {sample}: known after {known} of 3000 segments, forgotten {forgotten} times");
        assert!(known > 500 && forgotten > 50, "{known}, {forgotten}");
    }
}

fn a_flow_is_forgotten_some_time_after_its_fin() {
    let mut both = Both::new(20);
    let [stays, ends, again] = [1, 2, 4].map(flow);
    for key in [&stays, &ends, &again] {
        both.sends(key, FlowKey::SYN);
    }
    for key in [&ends, &again] {
        both.sends(key, FlowKey::FIN);
        assert_eq!(both.learned(key), Some(0), "the other side may still send");
    }
    // A new flow with the same addresses and ports.
    both.sends(&again, FlowKey::SYN);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert_eq!([&stays, &ends, &again].map(|key| both.learned(key)), [Some(0), None, Some(0)]);
    let mut edits = Vec::new();
    both.yard.expire(1 << 17, now(), &mut edits);
    assert!(matches!(edits[..], [Edit::Del(key)] if key == ends), "{edits:?}");
    // A frame of it goes where RSS says, and with it the entry.
    let decision = both.program.decide(&Build::new(&ends).bytes()).unwrap();
    assert_eq!(decision.map(|decision| decision.reason), Some(Reason::Rss));
    let decision = both.program.decide(&Build::new(&stays).bytes()).unwrap();
    assert_eq!(decision.map(|decision| decision.reason), Some(Reason::Filter));
}
