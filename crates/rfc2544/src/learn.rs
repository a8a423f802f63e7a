//! Address learning probes of a switch (RFC 2889 sections 5.7 and 5.8), under virtual time.
//!
//! ```text
//!  port 0  learning frames from addresses 1..n ──>  ┌────────┐
//!  port 1  after 2 s, a frame to each           ──> │ switch │ ──> port 0: known
//!  ports 2, 3                                       └────────┘ ──> also there: flooded
//! ```
//!
//! The switch also learns the source address of the test frames, so a table of n entries holds
//! n - 1 of the probed addresses. Each probe uses a new device with an empty table.
//!
//! Thread-safety: used by one thread.

use std::collections::HashMap;

use flowyard_frame::{FlowKey, Nanos, proto};
use flowyard_testkit::Build;

use crate::dut::Dut;
use crate::search::learning::{Probe, Probed};
use crate::trial::SECOND;

/// The number of ports that a probe needs.
pub const PORTS: u8 = 4;

/// The source address of the test frames.
const TESTER: [u8; 6] = [2, 0, 0, 1, 0, 0];

/// The `n`-th address: locally administered, spread over all bits so that no hash function has an
/// advantage.
fn address(n: u32) -> [u8; 6] {
    // Multiplication by an odd constant is a bijection: all addresses differ.
    let [a, b, c, d] = n.wrapping_mul(0x9e37_79b1).to_be_bytes();
    [2, 0x28, a, b, c, d]
}

fn frame(from: [u8; 6], to: [u8; 6]) -> Vec<u8> {
    let key = FlowKey {
        eth_src: from,
        eth_dst: to,
        ..FlowKey::five_tuple(proto::UDP, [198, 18, 1, 2].into(), 7, [198, 19, 65, 2].into(), 7)
    };
    Build::new(&key).pad(60).bytes()
}

/// Runs `probe` on `dut`, a new device with [`PORTS`] ports.
pub fn probe(dut: &mut dyn Dut, probe: &Probe) -> Probed {
    let interval = SECOND / probe.learning_pps.clamp(1, SECOND);
    let mut now: Nanos = SECOND;
    // The switch learns the test frames' source first, so that learning frames have a known
    // destination.
    dut.offer(now, 1, &frame(TESTER, [0xff; 6]));
    for n in 0..probe.addresses {
        now += interval;
        dut.collect(now, &mut |_, _, _| {});
        dut.offer(now, 0, &frame(address(n), TESTER));
    }
    now += 2 * SECOND;
    dut.collect(now, &mut |_, _, _| {});
    // For each destination: a bit mask of the ports at which the frame was received.
    let mut came: HashMap<[u8; 6], u8> = HashMap::new();
    let mut see = |_: Nanos, port: u8, frame: &[u8]| {
        if let Some(to) = frame.first_chunk::<6>() {
            *came.entry(*to).or_default() |= 1 << port.min(7);
        }
    };
    for n in 0..probe.addresses {
        now += interval;
        dut.collect(now, &mut see);
        dut.offer(now, 1, &frame(TESTER, address(n)));
    }
    dut.collect(now + 2 * SECOND, &mut see);
    let mut probed = Probed::default();
    for n in 0..probe.addresses {
        match came.get(&address(n)) {
            Some(1) => probed.forwarded += 1,
            Some(_) => probed.flooded += 1,
            None => probed.lost += 1,
        }
    }
    probed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dut::{Job, YardDut, YardSpec};
    use crate::line::Line;
    use crate::search::{Caching, LearningRate};

    fn switch(stations: u32) -> YardDut {
        let spec =
            YardSpec { ports: PORTS, job: Job::Bridge(stations), ..YardSpec::new(Line::GBIT_1) };
        YardDut::new(spec).unwrap()
    }

    #[test]
    fn a_bridge_knows_as_many_as_it_says_and_one_more_is_noticed() {
        let few = probe(&mut switch(1024), &Probe { addresses: 100, learning_pps: 10_000 });
        assert_eq!(few, Probed { forwarded: 100, flooded: 0, lost: 0 });
        let many = probe(&mut switch(64), &Probe { addresses: 500, learning_pps: 10_000 });
        assert!(!many.is_clean() && many.forwarded + many.flooded + many.lost == 500, "{many:?}");
        let mut search = Caching::new(512, 10_000);
        while let Some(next) = search.next_probe() {
            let probed = probe(&mut switch(64), &next);
            search.record(next, probed);
        }
        let found = search.answer();
        assert!((32..=512).contains(&found), "{found} of a table of 64");
        let [at, above] = [found, found + 1].map(|addresses| {
            probe(&mut switch(64), &Probe { addresses, learning_pps: 10_000 }).is_clean()
        });
        assert!(at && !above, "{found}");
    }

    #[test]
    fn the_learning_rate_is_what_the_core_can_do() {
        // A frame takes 100 us, so the core forwards 10,000 per second. Of the 2048 frames, the
        // ring of 512 and the queue of 256 (with a batch or two in progress) hold the excess. The
        // highest rate without loss is the rate r at which 2048 (1 - 10,000 / r) equals that
        // capacity: from 13,333 with the ring alone to 17,000 with all.
        let slow = YardSpec { frame_ns: 100_000, batch_ns: 0, byte_ps: 0, ..*switch(4096).spec() };
        let mut search = LearningRate::new(2048, 100_000);
        while let Some(next) = search.next_probe() {
            let probed = probe(&mut YardDut::new(slow).unwrap(), &next);
            search.record(next, probed);
        }
        assert!((13_333..17_000).contains(&search.answer()), "{}", search.answer());
    }
}
