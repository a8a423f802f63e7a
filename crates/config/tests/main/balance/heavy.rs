//! One heavy flow is split over cores and moved back, a thousand times in a row: its backend stays
//! the same, and no frame is lost or reordered.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flowyard_config::Config;
use flowyard_frame::{Action, Batch, Edit, FlowKey, LANES, Nanos, proto};
use flowyard_pool::{Meta, Pool};
use flowyard_ports::port::Collect;
use flowyard_testkit::Build;
use flowyard_yard::port::{Received, Rx};
use flowyard_yard::sim::{Faults, Sim};
use flowyard_yard::{Message, Parts};

flowyard_testkit::tests! {
    a_heavy_flow_is_split_and_moved_back_a_thousand_times,
    a_heavy_flow_is_split_and_moved_back_with_other_seeds,
}

/// The interval between frames.
const EVERY: Nanos = 700;
/// One of N frames belongs to another flow.
const MICE: u64 = 8;
const SPLIT: u16 = 3;

fn heavy() -> FlowKey {
    let [client, vip] = [[10, 0, 0, 1], [192, 0, 2, 1]].map(IpAddr::from);
    FlowKey::five_tuple(proto::TCP, client, 1000, vip, 80)
}

/// The heavy flow and some mice, until it is stopped.
struct Stream {
    sent: u64,
    end: Arc<AtomicBool>,
    frame: Vec<u8>,
}

impl Rx for Stream {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
        while into.len() < LANES && self.sent * EVERY <= now {
            let number = self.sent;
            let mut key = heavy();
            if number % MICE == 1 {
                key.sport = 2000 + (number / MICE % 50) as u16;
            }
            let flags =
                if number < MICE * 50 && number % MICE < 2 { FlowKey::SYN } else { FlowKey::ACK };
            let payload = number.to_be_bytes();
            Build::new(&key).flags(flags).payload(&payload).write(&mut self.frame);
            let meta = Meta { time: now, wire_len: self.frame.len() as u32, ..Meta::default() };
            let Ok(frame) = pool.copy(&self.frame, meta) else { break };
            into.push(frame, FlowKey::ZERO).unwrap();
            self.sent += 1;
        }
        Received { ended: self.end.load(Ordering::Relaxed), ..Received::default() }
    }
}

fn config(mode: &str) -> Config {
    let mut text = format!(
        r#"
        [yard]
        cores = 4
        hold_after_frames = 32
        [[port]]
        name = "west"
        kind = "mem"
        in = "given"
        [[port]]
        name = "east"
        kind = "mem"
        [[queue]]
        name = "one"
        order = "direct"
        consumers = [1]
        [[queue]]
        name = "two"
        order = "direct"
        consumers = [2]
        [[queue]]
        name = "three"
        order = "direct"
        consumers = [3]
        [[queue]]
        name = "split"
        order = "ordered"
        consumers = [1, 2, 3]
        [steer]
        spread = ["one", "two", "three"]
        [elephants]
        queue = "split"
        window_us = 100000000 # the test decides
        [work]
        kind = "balance"
        cost_ns = 300
        [balance]
        entries = 251
        local = ["10.9.0.1", "10.9.0.2", "10.9.0.3", "10.9.0.4"]
        clients = {{ port = "west", next_hop = "02:00:00:00:09:09" }}
        [[service]]
        name = "web"
        vip = "192.0.2.1"
        proto = "tcp"
        port = 80
        mode = "{mode}"
        choice = "roundrobin"
        "#
    );
    for n in 1..=5 {
        text += &format!(
            "[[service.backend]]\nname = \"b{n}\"\naddr = \"10.0.1.{n}\"\nexit = {{ port = \"east\", next_hop = \"02:00:00:00:01:0{n}\" }}\n"
        );
    }
    Config::parse("heavy.toml", &text).unwrap()
}

/// Splits the flow and moves it back, `times` times. Returns the number of its frames that left.
fn promote_and_demote(mode: &str, times: u32, seed: u64) -> usize {
    let end = Arc::new(AtomicBool::new(false));
    let out = Collect::default();
    let mut parts = Parts::default();
    parts.rx.insert(0, Box::new(Stream { sent: 0, end: Arc::clone(&end), frame: Vec::new() }));
    parts.tx.insert(1, Box::new(out.clone()));
    let yard = config(mode).build(parts).unwrap();
    let faults = Faults { stall_every: 500, stall_ns: 5_000, ..Faults::default() };
    let mut sim = Sim::new(yard, seed, faults);
    while sim.total().tx_frames < 500 {
        sim.step(); // so that every flow has its home
    }
    let (mut split_by, key) = ([0u64; 4], heavy().flow());
    for turn in 0..2 * times {
        let moved = sim.yard.cores[0].counters().settle_moved;
        let edit = match turn % 2 {
            0 => Edit::Put(key, Action::queue(SPLIT)),
            _ => Edit::Del(key),
        };
        while !sim.yard.mail.offer(0, Message::Promote(edit)) {
            sim.step();
        }
        let worked = [1, 2, 3].map(|core| sim.yard.cores[core].counters().work_frames);
        let mut steps = 0;
        while sim.yard.cores[0].counters().settle_moved == moved {
            (0..16).for_each(|_| _ = sim.step());
            steps += 16;
            assert!(steps < 200_000, "seed {seed}: turn {turn} does not come about");
        }
        // Some frames in the new home, so that reordering would be possible.
        (0..64).for_each(|_| _ = sim.step());
        if turn % 2 == 0 {
            for (core, before) in (1..4).zip(worked) {
                split_by[core] += u64::from(sim.yard.cores[core].counters().work_frames > before);
            }
        }
    }
    end.store(true, Ordering::Relaxed);
    let total = sim.run().unwrap();
    let moved = sim.yard.cores[0].counters().settle_moved;
    assert_eq!(moved, u64::from(2 * times), "seed {seed}: each of them, and no mouse");
    assert_eq!((total.drops.total(), total.tx_frames), (0, total.rx_frames), "{:?}", total.drops);
    assert!(split_by[1..].iter().all(|&times_worked| times_worked > 0), "{split_by:?}");
    let pool = sim.yard.pool.share();
    drop(sim);
    assert_eq!(pool.held(), 0);

    let sent = out.take();
    let number = |data: &[u8]| u64::from_be_bytes(*data.last_chunk().unwrap());
    let mine = sent.iter().map(|(_, data)| data).filter(|data| number(data) % MICE != 1);
    let (mut count, mut last, mut backend) = (0, None, None);
    for data in mine {
        assert!(last < Some(number(data)), "seed {seed}: overtaken by {last:?}");
        last = Some(number(data));
        let to = (data[..6].to_vec(), data[26..38].to_vec());
        assert_eq!(backend.get_or_insert_with(|| to.clone()), &to, "seed {seed}: another backend");
        count += 1;
    }
    let all = total.rx_frames;
    let mice = (all + MICE - 2) / MICE;
    assert_eq!(count as u64, all - mice, "none is lost");
    count
}

fn a_heavy_flow_is_split_and_moved_back_a_thousand_times() {
    for (mode, seed) in [("dsr", 1), ("fullnat", 2)] {
        let frames = promote_and_demote(mode, 1000, seed);
        flowyard_testkit::note!(
            "{mode}: {frames} frames of one flow, 1000 promotions, 1000 demotions"
        );
        assert!(frames > 20_000);
    }
}

fn a_heavy_flow_is_split_and_moved_back_with_other_seeds() {
    for seed in 10..30 {
        promote_and_demote(["dnat", "ipip"][seed as usize % 2], 20, seed);
    }
}
