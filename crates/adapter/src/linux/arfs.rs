//! Accelerated RFS: RFS that asks the adapter to deliver a flow to its CPU's own queue.
//!
//! Two flows whose slots coincide in one queue's device table share one record of "the filter".
//! Before July 2025 the later one overwrote it, so the driver thought the other's filter stale and
//! removed it; the removed flow then came back by its RSS queue, asked again, and overwrote in its
//! turn: both were reprogrammed for as long as they lived. Since then an active filter keeps its
//! slot; the second flow goes without ([netdev, "Prevent RPS table overwrite of active flows"]).
//!
//! Neither rule looks at packets already in the old queue's ring: a filter takes effect at once, so
//! aRFS can still reorder where RFS alone could not.

use flowyard_frame::{FlowKey, Nanos};

use super::backlog::CpuQueues;
use super::ice::{FlowMatch, Ice, ServiceTask};
use super::rfs::{Rfs, RfsConfig};
use super::steer::{ArfsFix, Steer};
use crate::stats::FilterStats;

/// What aRFS needs to know of kernel, driver and adapter.
#[derive(Clone, Debug)]
pub struct ArfsConfig {
    /// Table sizes.
    pub rfs: RfsConfig,
    /// The kernel's rule for slots.
    pub fix: ArfsFix,
    /// Filters the adapter holds: 16384 on E810.
    pub capacity: u32,
    /// How the driver recognises a flow.
    pub matching: FlowMatch,
    /// The driver's service task.
    pub task: ServiceTask,
    /// The receive queue nearest to each CPU (`rx_cpu_rmap`); a CPU beyond the end has none.
    pub queue_of_cpu: Vec<u16>,
}

impl ArfsConfig {
    /// E810 with one queue per CPU.
    #[must_use]
    pub fn e810(rfs: RfsConfig, fix: ArfsFix) -> Self {
        let queue_of_cpu = (0..rfs.cpus.min(rfs.queues)).collect();
        Self {
            rfs,
            fix,
            capacity: 16384,
            matching: FlowMatch::default(),
            task: ServiceTask::default(),
            queue_of_cpu,
        }
    }
}

/// Counters of aRFS.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct ArfsStats {
    /// The adapter's table. `adds`, `updates` and `evictions` are writes that took effect.
    pub filters: FilterStats,
    /// Filters the driver decided to add.
    pub built: u64,
    /// Times the core asked for a filter.
    pub steer_calls: u64,
    /// List entries that the driver walked over in those calls.
    pub list_walk: u64,
}

/// Accelerated RFS of one device.
#[derive(Clone, Debug)]
pub struct Arfs {
    rfs: Rfs,
    ice: Ice,
    fix: ArfsFix,
    queue_of_cpu: Vec<u16>,
}

impl Arfs {
    /// aRFS with empty tables.
    #[must_use]
    pub fn new(config: ArfsConfig) -> Self {
        Self {
            rfs: Rfs::new(config.rfs),
            ice: Ice::new(config.capacity, config.matching, config.task),
            fix: config.fix,
            queue_of_cpu: config.queue_of_cpu,
        }
    }

    /// The adapter: the queue of the filter that matches, if any; else RSS decides.
    pub fn queue(&mut self, key: &FlowKey) -> Option<u16> {
        self.ice.lookup(key)
    }

    /// See [`Rfs::wanted`].
    #[must_use]
    pub fn wanted(&self, hash: u32) -> Option<u16> {
        self.rfs.wanted(hash)
    }

    /// A thread on `cpu` consumed or fed the flow; see [`Rfs::consume`].
    pub fn consume(&mut self, hash: u32, cpu: u16) {
        self.rfs.consume(hash, cpu);
    }

    /// Where a packet of `key` that came in by `rxq` is processed; as [`Rfs::receive`].
    pub fn receive(
        &mut self,
        key: &FlowKey,
        hash: u32,
        rxq: u16,
        now: Nanos,
        backlog: &mut impl CpuQueues,
    ) -> Option<u16> {
        let Self { rfs, ice, fix, queue_of_cpu } = self;
        let mut nic = Nic { ice, fix: *fix, queue_of_cpu, key, hash, now };
        rfs.decide(hash, rxq, backlog, &mut nic)
    }

    /// The driver's time: filters written by `now` take effect, the service task runs when due.
    pub fn tick(&mut self, now: Nanos, backlog: &impl CpuQueues) {
        let Self { rfs, ice, .. } = self;
        ice.tick(now, |queue, flow_id, id| rfs.may_expire(queue, flow_id, id, backlog));
    }

    /// The counters so far.
    #[must_use]
    pub fn stats(&self) -> ArfsStats {
        ArfsStats {
            filters: self.ice.filters,
            built: self.ice.built,
            steer_calls: self.ice.calls,
            list_walk: self.ice.walked,
        }
    }
}

/// One packet's question to the driver.
struct Nic<'a> {
    ice: &'a mut Ice,
    fix: ArfsFix,
    queue_of_cpu: &'a [u16],
    key: &'a FlowKey,
    hash: u32,
    now: Nanos,
}

impl Steer for Nic<'_> {
    fn fix(&self) -> ArfsFix {
        self.fix
    }
    fn queue_of(&self, cpu: u16) -> Option<u16> {
        self.queue_of_cpu.get(usize::from(cpu)).copied()
    }
    fn steer(&mut self, queue: u16, flow_id: u32) -> Option<u16> {
        self.ice.steer(self.key, self.hash, queue, flow_id, self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowyard_frame::proto;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    const MS: Nanos = 1_000_000;

    /// Backlogs that are always drained.
    struct Idle([u32; 4]);

    impl CpuQueues for Idle {
        fn head(&self, cpu: u16) -> u32 {
            self.0[usize::from(cpu)]
        }
        fn tail(&self, cpu: u16) -> u32 {
            self.0[usize::from(cpu)]
        }
        fn online(&self, cpu: u16) -> bool {
            cpu < 4
        }
    }

    struct Rig {
        arfs: Arfs,
        idle: Idle,
    }

    impl Rig {
        fn new(fix: ArfsFix, capacity: u32, matching: FlowMatch) -> Self {
            let rfs = RfsConfig { flow_cnt: 64, queues: 4, cpus: 4, ..RfsConfig::default() };
            let config = ArfsConfig { capacity, matching, ..ArfsConfig::e810(rfs, fix) };
            Self { arfs: Arfs::new(config), idle: Idle([0; 4]) }
        }
        /// A packet in from the wire, RSS queue 0; the queue it came by.
        fn packet(&mut self, key: &FlowKey, hash: u32, now: Nanos) -> u16 {
            self.arfs.tick(now, &self.idle);
            let queue = self.arfs.queue(key).unwrap_or(0);
            if let Some(cpu) = self.arfs.receive(key, hash, queue, now, &mut self.idle) {
                self.idle.0[usize::from(cpu)] += 1;
            }
            queue
        }
    }

    fn key(protocol: u8, sport: u16) -> FlowKey {
        let ip = |x| Ipv4Addr::new(10, 0, 0, x).into();
        FlowKey::five_tuple(protocol, ip(1), sport, ip(2), 80)
    }

    #[test]
    fn a_filter_takes_effect_after_the_task_and_follows_the_thread() {
        let mut rig = Rig::new(ArfsFix::After, 16384, FlowMatch::Tuple);
        let tcp = key(proto::TCP, 1);
        rig.arfs.consume(0x1111_1100, 2);
        assert_eq!(rig.packet(&tcp, 0x1111_1100, 0), 0);
        assert_eq!(rig.packet(&tcp, 0x1111_1100, MS - 1), 0, "task not run yet");
        assert_eq!(rig.packet(&tcp, 0x1111_1100, MS), 2);
        rig.arfs.consume(0x1111_1100, 3);
        assert_eq!(rig.packet(&tcp, 0x1111_1100, 2 * MS), 2);
        assert_eq!(rig.packet(&tcp, 0x1111_1100, 3 * MS), 3);
        let stats = rig.arfs.stats();
        // The filter's slot moved to queue 3's table; the flow asked once for each.
        assert_eq!((stats.built, stats.filters.adds, stats.filters.updates), (1, 1, 1));
        assert_eq!(stats.steer_calls, 2);
    }

    #[test]
    fn two_flows_of_one_slot_thrash_before_the_fix_and_not_after() {
        for (fix, matching, expect) in [
            // The flows alternate, so each packet finds the other one installed.
            (ArfsFix::Before, FlowMatch::Tuple, 200..=200),
            (ArfsFix::After, FlowMatch::Tuple, 1..=1),
            // Taken for one flow: one filter, never corrected; the other flow stays on RSS.
            (ArfsFix::Before, FlowMatch::FlowId, 1..=1),
        ] {
            let mut rig = Rig::new(fix, 16384, matching);
            let (one, two) = (key(proto::TCP, 1), key(proto::TCP, 2));
            // Same list (low 10 bits), same slot, different global entries and upper bits.
            let slot = |hash: u32| hash.wrapping_mul(0x61c8_8647) >> 26;
            let first = 0x0400u32;
            let second =
                (1u32..).map(|i| first + (i << 10)).find(|&h| slot(h) == slot(first)).unwrap();
            rig.arfs.consume(first, 2);
            rig.arfs.consume(second, 2);
            for step in 0..100 {
                rig.packet(&one, first, step * 4 * MS);
                rig.packet(&two, second, step * 4 * MS + 2 * MS);
            }
            let built = rig.arfs.stats().built;
            assert!(expect.contains(&built), "{fix:?} {matching:?}: {built}");
        }
    }

    #[test]
    fn a_stale_filter_expires_after_ten_tables_of_packets_and_udp_after_five_seconds() {
        let mut rig = Rig::new(ArfsFix::After, 16384, FlowMatch::Tuple);
        let (tcp, udp) = (key(proto::TCP, 1), key(proto::UDP, 1));
        rig.arfs.consume(0x1111_1100, 2);
        rig.arfs.consume(0x2222_2200, 3);
        rig.packet(&tcp, 0x1111_1100, 0);
        rig.packet(&udp, 0x2222_2200, 0);
        rig.arfs.tick(2 * MS, &rig.idle);
        assert_eq!(rig.arfs.stats().filters.occupancy, 2);
        let last = rig.idle.0[2];
        for (passed, left) in [(10 * 64 - 1, 2), (10 * 64, 1)] {
            rig.idle.0[2] = last + passed;
            let now = if left == 2 { 1100 * MS } else { 2200 * MS };
            rig.arfs.tick(now, &rig.idle);
            assert_eq!(rig.arfs.stats().filters.occupancy, left, "{passed}");
        }
        rig.arfs.tick(4900 * MS, &rig.idle);
        assert_eq!(rig.arfs.stats().filters.occupancy, 1);
        rig.arfs.tick(7000 * MS, &rig.idle);
        assert_eq!(rig.arfs.stats().filters.occupancy, 0);
        assert!(rig.arfs.ice.idle());
        assert_eq!(rig.arfs.stats().filters.evictions, 2);
    }

    #[test]
    fn time_may_jump_to_the_epoch_and_to_the_end() {
        let mut rig = Rig::new(ArfsFix::After, 16384, FlowMatch::Tuple);
        rig.arfs.consume(0x1111_1100, 2);
        let epoch = 1_750_000_000 * 1000 * MS;
        rig.packet(&key(proto::UDP, 1), 0x1111_1100, epoch);
        assert_eq!(rig.packet(&key(proto::UDP, 1), 0x1111_1100, epoch + MS), 2);
        rig.packet(&key(proto::UDP, 1), 0x1111_1100, Nanos::MAX);
        assert_eq!(rig.arfs.stats().filters.occupancy, 0, "five seconds are over");
    }

    #[test]
    fn a_full_table_fails_the_add_and_odd_packets_are_refused() {
        let mut rig = Rig::new(ArfsFix::After, 1, FlowMatch::Tuple);
        for (i, hash) in [0x1111_1100, 0x2222_2200].into_iter().enumerate() {
            rig.arfs.consume(hash, 2);
            rig.packet(&key(proto::TCP, i as u16), hash, 0);
        }
        rig.arfs.tick(2 * MS, &rig.idle);
        let stats = rig.arfs.stats();
        assert_eq!((stats.filters.occupancy, stats.filters.failed_adds), (1, 1));
        for odd in [
            key(proto::SCTP, 1),
            FlowKey { frag: 1, ..key(proto::TCP, 1) },
            FlowKey { tunnel_id: 5, ..key(proto::TCP, 1) },
        ] {
            rig.arfs.consume(0x3333_3300, 3);
            rig.packet(&odd, 0x3333_3300, 3 * MS);
        }
        assert_eq!(rig.arfs.stats().built, 2);
    }

    proptest! {
        /// Whatever the traffic: the books balance, the table keeps to its size, a filter only
        /// ever points at a queue that some thread of the flow wanted, and once traffic stops and
        /// every CPU has moved on, no filter stays.
        #[test]
        fn the_books_balance(
            packets in prop::collection::vec((0u16..8, 0u16..4, 0u64..3), 1..300),
            before: bool, slot_only: bool, capacity in 1u32..6,
        ) {
            let fix = if before { ArfsFix::Before } else { ArfsFix::After };
            let matching = if slot_only { FlowMatch::FlowId } else { FlowMatch::Tuple };
            let mut rig = Rig::new(fix, capacity, matching);
            let mut wanted = [0u8; 8];
            let mut now = 0;
            for (port, cpu, step) in packets {
                now += step * MS;
                let hash = 0x0101_0100 * (u32::from(port) + 1);
                rig.arfs.consume(hash, cpu);
                wanted[usize::from(port)] |= 1 << cpu;
                let queue = rig.packet(&key(proto::TCP, port), hash, now);
                prop_assert!(queue == 0 || wanted[usize::from(port)] >> queue & 1 == 1);
                let stats = rig.arfs.stats();
                let filters = stats.filters;
                prop_assert_eq!(u64::from(filters.occupancy), filters.adds - filters.evictions);
                prop_assert!(filters.occupancy <= capacity);
                prop_assert!(stats.built <= stats.steer_calls);
            }
            rig.idle.0 = rig.idle.0.map(|head| head + 10 * 64);
            for second in 1..4 {
                rig.arfs.tick(now + second * 1000 * MS, &rig.idle);
            }
            prop_assert_eq!(rig.arfs.stats().filters.occupancy, 0);
        }
    }
}
