//! Accelerated RFS (aRFS): RFS that programs the adapter to deliver a flow to the queue of its CPU.
//!
//! Two flows with the same slot in the device table of a queue share one record of their filter.
//! Before July 2025 the later flow overwrote the record, so the driver considered the filter of the
//! other flow stale and removed it. Packets of that flow then arrived at its RSS queue, requested a
//! filter again and overwrote the record in turn: both filters were reprogrammed as long as the flows
//! lasted. Since then an active filter keeps its slot, and the second flow has no filter ([netdev,
//! "Prevent RPS table overwrite of active flows"]).
//!
//! Neither rule considers packets that are already in the ring of the old queue. A filter takes
//! effect immediately, so aRFS can reorder packets that RFS alone keeps in order.

use flowyard_frame::{FlowKey, Nanos};

use super::backlog::CpuQueues;
use super::ice::{FlowMatch, Ice, ServiceTask};
use super::rfs::{Rfs, RfsConfig};
use super::steer::{ArfsFix, Steer};
use crate::stats::FilterStats;

/// The parameters of the kernel, the driver and the adapter.
#[derive(Clone, Debug)]
pub struct ArfsConfig {
    /// Sizes of the RFS tables.
    pub rfs: RfsConfig,
    /// The kernel's rule for overwriting slots.
    pub fix: ArfsFix,
    /// Number of filters that the adapter holds: 16384 on the E810.
    pub capacity: u32,
    /// How the driver recognises a flow.
    pub matching: FlowMatch,
    /// The timing of the driver's service task.
    pub task: ServiceTask,
    /// The receive queue that is nearest to each CPU (`rx_cpu_rmap`). CPUs beyond the end have none.
    pub queue_of_cpu: Vec<u16>,
}

impl ArfsConfig {
    /// An E810 with one queue per CPU.
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
    /// Counters of the adapter's table. `adds`, `updates` and `evictions` count writes that took
    /// effect.
    pub filters: FilterStats,
    /// Filters that the driver decided to add.
    pub built: u64,
    /// Requests for a filter by the kernel's network core.
    pub steer_calls: u64,
    /// List entries that the driver visited for these requests.
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

    /// The queue of the adapter's filter that matches; `None` if RSS decides.
    pub fn queue(&mut self, key: &FlowKey) -> Option<u16> {
        self.ice.lookup(key)
    }

    /// The CPU on which the flow was consumed last; see [`Rfs::wanted`].
    #[must_use]
    pub fn wanted(&self, hash: u32) -> Option<u16> {
        self.rfs.wanted(hash)
    }

    /// Reports that a thread on `cpu` received or sent data of the flow; see [`Rfs::consume`].
    pub fn consume(&mut self, hash: u32, cpu: u16) {
        self.rfs.consume(hash, cpu);
    }

    /// The CPU that processes a packet which `rxq` received; see [`Rfs::receive`].
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

    /// Advances the driver to `now`: written filters take effect, and the service task runs if it is
    /// due.
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

/// The adapter as one packet's RFS decision uses it.
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

    /// Backlogs that are always empty.
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
        /// Receives a packet whose RSS queue is 0, and returns the queue that it arrives at.
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
        assert_eq!(rig.packet(&tcp, 0x1111_1100, MS - 1), 0, "the task has not run yet");
        assert_eq!(rig.packet(&tcp, 0x1111_1100, MS), 2);
        rig.arfs.consume(0x1111_1100, 3);
        assert_eq!(rig.packet(&tcp, 0x1111_1100, 2 * MS), 2);
        assert_eq!(rig.packet(&tcp, 0x1111_1100, 3 * MS), 3);
        let stats = rig.arfs.stats();
        // The slot of the filter moved to the table of queue 3; the flow made one request for each.
        assert_eq!((stats.built, stats.filters.adds, stats.filters.updates), (1, 1, 1));
        assert_eq!(stats.steer_calls, 2);
    }

    #[test]
    fn two_flows_of_one_slot_thrash_before_the_fix_and_not_after() {
        for (fix, matching, expect) in [
            // The flows alternate, so each packet finds the filter of the other flow installed.
            (ArfsFix::Before, FlowMatch::Tuple, 200..=200),
            (ArfsFix::After, FlowMatch::Tuple, 1..=1),
            // The driver takes them for one flow: it programs one filter, and the other flow stays
            // on its RSS queue.
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
    fn a_full_table_fails_the_add() {
        let mut rig = Rig::new(ArfsFix::After, 1, FlowMatch::Tuple);
        for (i, hash) in [0x1111_1100, 0x2222_2200].into_iter().enumerate() {
            rig.arfs.consume(hash, 2);
            rig.packet(&key(proto::TCP, i as u16), hash, 0);
        }
        rig.arfs.tick(2 * MS, &rig.idle);
        let stats = rig.arfs.stats();
        assert_eq!((stats.filters.occupancy, stats.filters.failed_adds), (1, 1));
    }

    #[test]
    fn only_whole_tcp_and_udp_packets_of_ip_outside_of_tunnels_get_a_filter() {
        let mut rig = Rig::new(ArfsFix::After, 16384, FlowMatch::Tuple);
        let v6 = |x| std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, x).into();
        let cases = [
            (key(proto::TCP, 10), true),
            (key(proto::UDP, 11), true),
            (FlowKey::five_tuple(proto::TCP, v6(1), 12, v6(2), 80), true),
            (key(proto::SCTP, 13), false),
            (key(proto::ICMP, 0), false),
            (FlowKey { eth_type: 0x88cc, ..key(proto::TCP, 14) }, false),
            (FlowKey { frag: 1, ..key(proto::TCP, 15) }, false),
            (FlowKey { frag: 2, ..key(proto::UDP, 16) }, false),
            (FlowKey { tunnel_id: 5, ..key(proto::TCP, 17) }, false),
            (FlowKey { tunnel_id: 5, frag: 1, ..key(proto::TCP, 18) }, false),
        ];
        // Every case has entries of its own in the kernel's tables, so that each makes a request.
        for (step, (key, is_filtered)) in (0..).zip(cases) {
            let hash = 0x0101_0104 * (step + 1);
            let now = u64::from(step) * 10 * MS;
            let before = rig.arfs.stats();
            rig.arfs.consume(hash, 3);
            rig.packet(&key, hash, now);
            let after = rig.arfs.stats();
            assert_eq!(after.steer_calls, before.steer_calls + 1, "{key:?}");
            assert_eq!(after.built, before.built + u64::from(is_filtered), "{key:?}");
            let queue = rig.packet(&key, hash, now + 2 * MS);
            assert_eq!(queue == 3, is_filtered, "{key:?}");
        }
        // A filter of a flow does not match its fragments.
        assert_eq!(rig.arfs.queue(&key(proto::TCP, 10)), Some(3));
        assert_eq!(rig.arfs.queue(&FlowKey { frag: 1, ..key(proto::TCP, 10) }), None);
    }

    proptest! {
        /// For any traffic the counters balance, the table never exceeds its size, and a filter only
        /// steers to the queue of a CPU that consumed the flow. No filter is left after the traffic
        /// has stopped and every CPU has processed enough other packets.
        #[test]
        fn the_counters_balance(
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
