//! Tests of RFS.

use super::*;
use proptest::prelude::*;

/// Backlogs that are drained by the test.
#[derive(Default)]
struct Backlogs {
    head: [u32; 4],
    tail: [u32; 4],
    offline: [bool; 4],
}

impl CpuQueues for Backlogs {
    fn head(&self, cpu: u16) -> u32 {
        self.head[usize::from(cpu)]
    }
    fn tail(&self, cpu: u16) -> u32 {
        self.tail[usize::from(cpu)]
    }
    fn online(&self, cpu: u16) -> bool {
        self.offline.get(usize::from(cpu)) == Some(&false)
    }
}

impl Backlogs {
    fn starting_at(count: u32) -> Self {
        Self { head: [count; 4], tail: [count; 4], ..Self::default() }
    }
    fn take(&mut self, rfs: &mut Rfs, hash: u32) -> Option<u16> {
        let cpu = rfs.receive(hash, 0, self);
        if let Some(cpu) = cpu {
            let tail = &mut self.tail[usize::from(cpu)];
            *tail = tail.wrapping_add(1);
        }
        cpu
    }
    fn drain(&mut self) {
        self.head = self.tail;
    }
}

fn rfs(flow_cnt: u32) -> Rfs {
    Rfs::new(RfsConfig { flow_cnt, cpus: 4, rps: Rps { cpus: vec![0, 1] }, ..RfsConfig::default() })
}

#[test]
fn a_flow_moves_only_once_its_old_cpu_has_drained() {
    for start in [0, u32::MAX] {
        let (mut rfs, mut backlog) = (rfs(64), Backlogs::starting_at(start));
        rfs.consume(0x1234_5600, 2);
        assert_eq!(backlog.take(&mut rfs, 0x1234_5600), Some(2));
        rfs.consume(0x1234_5600, 3);
        assert_eq!(backlog.take(&mut rfs, 0x1234_5600), Some(2), "not drained, so the flow stays");
        backlog.head[2] = backlog.head[2].wrapping_add(1);
        assert_eq!(backlog.take(&mut rfs, 0x1234_5600), Some(2), "one of two packets is done");
        backlog.drain();
        assert_eq!(backlog.take(&mut rfs, 0x1234_5600), Some(3), "drained, so the flow moves");
    }
}

#[test]
fn an_offline_cpu_is_left_at_once_and_never_entered() {
    let (mut rfs, mut backlog) = (rfs(64), Backlogs::default());
    rfs.consume(0x1234_5600, 2);
    assert_eq!(backlog.take(&mut rfs, 0x1234_5600), Some(2));
    rfs.consume(0x1234_5600, 3);
    backlog.offline[2] = true;
    assert_eq!(backlog.take(&mut rfs, 0x1234_5600), Some(3));
    backlog.offline[3] = true;
    assert_eq!(
        backlog.take(&mut rfs, 0x1234_5600),
        Some(0),
        "RPS: hash 0x12.. maps to the first of two CPUs"
    );
}

#[test]
fn another_flows_global_entry_means_plain_rps() {
    let (mut rfs, mut backlog) = (rfs(64), Backlogs::default());
    assert_eq!(backlog.take(&mut rfs, 0xf000_0001), Some(1), "never consumed");
    rfs.consume(0xf000_0001, 3);
    assert_eq!(backlog.take(&mut rfs, 0xf000_0001), Some(3));
    rfs.consume(0x1000_0001, 2); // same global entry: low 15 bits
    assert_eq!(backlog.take(&mut rfs, 0xf000_0001), Some(1));
    backlog.offline[1] = true;
    assert_eq!(backlog.take(&mut rfs, 0xf000_0001), None);
}

#[test]
fn a_flow_is_wanted_on_a_cpu_that_exists() {
    for cpus in 1..=9_u16 {
        let mut rfs = Rfs::new(RfsConfig { flow_cnt: 64, cpus, ..RfsConfig::default() });
        assert_eq!(rfs.wanted(0x1234_5600), None, "never consumed");
        for cpu in 0..16 {
            rfs.consume(0x1234_5600, cpu);
            // The entry has as many bits for the CPU as the highest of them needs.
            let kept = cpu % cpus.next_power_of_two();
            assert_eq!(rfs.wanted(0x1234_5600), (kept < cpus).then_some(kept), "{cpu} of {cpus}");
            assert_eq!(rfs.wanted(0x1334_5600), None, "another flow of the same entry");
        }
    }
}

#[test]
fn flow_count_zero_is_plain_rps_and_slots_stay_in_their_table() {
    let (mut off, mut backlog) = (rfs(0), Backlogs::default());
    off.consume(0xf000_0001, 3);
    assert_eq!(backlog.take(&mut off, 0xf000_0001), Some(1));
    for slot in [SlotIndex::Mask, SlotIndex::Hash32] {
        for flow_cnt in [1, 2, 3, 256] {
            let rfs = Rfs::new(RfsConfig { flow_cnt, slot, queues: 3, ..RfsConfig::default() });
            for hash in [0, 1, 0x8000_0000, u32::MAX] {
                let place = rfs.slot(hash, 2).unwrap();
                assert!(place >= rfs.flows.len() / 3 * 2 && place < rfs.flows.len());
            }
            assert_eq!(rfs.slot(5, 3), None, "no such queue");
        }
    }
    assert_eq!(rfs(256).flow_id(1), 0x61, "hash_32(1, 8)");
}

proptest! {
    /// Packets of a flow that shares its slot with no other flow stay in order.
    #[test]
    fn no_flow_overtakes_itself(steps in prop::collection::vec((0u8..4, 0u16..4), 1..300), start: u32) {
        let (mut rfs, mut backlog) = (rfs(64), Backlogs::starting_at(start));
        let hash = 0xdead_0000;
        let mut open: Vec<(u16, u32)> = Vec::new(); // CPU and tail of packets enqueued
        for (what, cpu) in steps {
            match what {
                0 => rfs.consume(hash, cpu),
                1 => {
                    let at = usize::from(cpu);
                    if backlog.head[at] != backlog.tail[at] {
                        backlog.head[at] = backlog.head[at].wrapping_add(1);
                    }
                }
                _ => if let Some(cpu) = backlog.take(&mut rfs, hash) {
                    open.retain(|&(c, tail)| {
                        backlog.head[usize::from(c)].wrapping_sub(tail).cast_signed() < 0
                    });
                    // Before the first consume RPS decides, and order is not guaranteed.
                    if rfs.wanted[0] != u32::from(NO_CPU) {
                        prop_assert!(open.iter().all(|&(c, _)| c == cpu), "{open:?} then {cpu}");
                        open.push((cpu, backlog.tail[usize::from(cpu)]));
                    }
                }
            }
        }
    }
}
