//! Verifies the checksums of received frames, counts what it finds, and drops wrong ones if the port is configured to.
//!
//! ```text
//!  port ──rx──> [good] [bad] [partial] [no checksum] ──> [good] [partial] [no checksum]     drop
//!                 1      1       1           1  counted          bad_checksum: 1
//! ```
//!
//! What the kernel says of a frame is taken from it: a partial checksum cannot be wrong yet, and a verified one is good. All others
//! are computed: IPv4, TCP, UDP, SCTP, ICMP, of the outermost and the innermost packet.
//!
//! Invariants: a frame has one verdict: bad if any of its checksums is, else partial if any is, else good if any was verified. The
//! frames that stay keep their order.
//! Thread-safety: used by one core.

use flowyard_frame::{Batch, LANES};
use flowyard_pool::{Meta, Pool};
use flowyard_wire::{Offload, Verdict, Verdicts};
use flowyard_yard::port::Received;

use super::behind;

/// Verifies the checksums of each batch.
pub struct Verify {
    drops_bad: bool,
}

impl Verify {
    /// Verifies checksums; with `drops_bad`, frames with wrong ones are dropped.
    #[must_use]
    pub const fn new(drops_bad: bool) -> Self {
        Self { drops_bad }
    }
}

/// The one verdict on a frame.
fn verdict(meta: &Meta, bytes: &[u8]) -> Verdict {
    if meta.offload.has(Offload::PARTIAL) {
        return Verdict::Partial;
    }
    if meta.offload.has(Offload::VALID) {
        return Verdict::Good;
    }
    let all = Verdicts::of(meta.link, bytes);
    let has = |one: Verdict| [all.ip, all.l4, all.inner_ip, all.inner_l4].contains(&one);
    match () {
        () if all.any_bad() => Verdict::Bad,
        () if has(Verdict::Partial) => Verdict::Partial,
        () if has(Verdict::Good) => Verdict::Good,
        () => Verdict::NotChecked,
    }
}

impl behind::Step for Verify {
    fn step(&mut self, batch: &mut Batch, pool: &mut Pool, got: &mut Received) {
        let mut kept = 0;
        for lane in 0..batch.len().min(LANES) {
            let frame = &batch.frames[lane];
            let verdict = verdict(&pool.meta(frame), pool.bytes(frame));
            got.verdicts[verdict as usize] += 1;
            if self.drops_bad && verdict == Verdict::Bad {
                got.bad_checksum += 1;
                pool.put(std::mem::take(&mut batch.frames[lane]));
            } else {
                batch.frames.swap(kept, lane);
                kept += 1;
            }
        }
        batch.set_len(kept);
    }
}

#[cfg(test)]
mod tests {
    use flowyard_frame::{FlowKey, Nanos, Rng, proto};
    use flowyard_testkit::Build;

    use flowyard_yard::port::Rx;

    use super::super::Behind;
    use super::*;

    /// Receives frames with random damage, and notes what was damaged.
    struct Damaged {
        rng: Rng,
        number: u16,
        sent: std::sync::Arc<std::sync::Mutex<Vec<(u16, Verdict)>>>,
    }

    impl Rx for Damaged {
        fn rx(&mut self, into: &mut Batch, pool: &mut Pool, _now: Nanos) -> Received {
            for _ in 0..self.rng.below(33) {
                let udp = self.rng.below(2) == 0;
                let proto = if udp { proto::UDP } else { proto::TCP };
                let ip = |n| std::net::IpAddr::from([10, 0, 0, n]);
                let key = FlowKey::five_tuple(proto, ip(1), self.number, ip(2), 9);
                let mut bytes = Build::new(&key).payload(&[3; 50]).bytes();
                let mut meta = Meta::default();
                let verdict = match self.rng.below(6) {
                    0 => {
                        bytes[60] ^= 1; // the payload
                        Verdict::Bad
                    }
                    1 => {
                        bytes[24] ^= 1; // the IPv4 header
                        Verdict::Bad
                    }
                    2 => {
                        bytes[60] ^= 1;
                        meta.offload.flags = Offload::PARTIAL;
                        Verdict::Partial
                    }
                    3 => {
                        meta.offload.flags = Offload::VALID;
                        Verdict::Good
                    }
                    4 => {
                        bytes = vec![2; 60]; // no IP
                        Verdict::NotChecked
                    }
                    _ => Verdict::Good,
                };
                meta.in_port = self.number;
                into.push(pool.copy(&bytes, meta).unwrap(), FlowKey::ZERO).unwrap();
                self.sent.lock().unwrap().push((self.number, verdict));
                self.number += 1;
            }
            Received::default()
        }
    }

    #[test]
    fn frames_with_wrong_checksums_are_counted_and_dropped_if_told() {
        for drops_bad in [false, true] {
            let (mut pool, sent) = (Pool::new(100, 256), std::sync::Arc::default());
            let inner = Damaged { rng: Rng::new(3), number: 1, sent: std::sync::Arc::clone(&sent) };
            let mut port = Behind::new(Box::new(inner), Verify::new(drops_bad));
            for _ in 0..200 {
                let mut batch = Batch::default();
                let got = port.rx(&mut batch, &mut pool, 0);
                let sent = std::mem::take(&mut *sent.lock().unwrap());
                for verdict in Verdict::ALL {
                    let wanted = sent.iter().filter(|(_, one)| *one == verdict).count();
                    assert_eq!(got.verdicts[verdict as usize] as usize, wanted, "{verdict:?}");
                }
                let stays = |one: Verdict| !drops_bad || one != Verdict::Bad;
                let kept: Vec<u16> =
                    sent.iter().filter(|(_, one)| stays(*one)).map(|(number, _)| *number).collect();
                let seen = (0..batch.len()).map(|lane| pool.meta(&batch.frames[lane]).in_port);
                assert_eq!(seen.collect::<Vec<_>>(), kept);
                assert_eq!(got.bad_checksum as usize, sent.len() - kept.len());
                pool.put_batch(&mut batch);
                assert_eq!(pool.held(), 0);
            }
        }
    }
}
