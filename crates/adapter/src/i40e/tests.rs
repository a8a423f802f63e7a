//! Tests of the ATR model.

use super::*;
use proptest::prelude::*;
use std::net::Ipv4Addr;

const SECOND: Nanos = 1_000_000_000;

fn key(sport: u16, flags: u8) -> FlowKey {
    let ip = |x| Ipv4Addr::new(10, 0, 0, x).into();
    let key = FlowKey::five_tuple(proto::TCP, ip(1), sport, ip(2), 80);
    FlowKey { tcp_flags: flags, ..key }
}

fn atr(chip: Chip) -> AtrI40e {
    AtrI40e::new(I40eConfig { chip, rings: 4, ..I40eConfig::default() })
}

fn small() -> AtrI40e {
    AtrI40e::new(I40eConfig {
        rings: 4,
        guaranteed: 200,
        best_effort: 0,
        programming_delay: 0,
        ..I40eConfig::default()
    })
}

#[test]
fn a_syn_steers_the_reverse_flow_after_the_programming_delay() {
    let mut atr = atr(Chip::Xl710);
    atr.transmit(3, &key(1, FlowKey::SYN), 0);
    let back = key(1, FlowKey::ACK).reversed();
    assert_eq!(atr.receive(&back, 9_999), None);
    assert_eq!(atr.receive(&back, 10_000), Some(3));
    assert_eq!(atr.receive(&key(1, 0), 10_000), None, "not the transmitted direction");
    assert_eq!(atr.receive(&FlowKey { frag: 1, ..back }, 10_000), None);
}

#[test]
fn every_twentieth_tcp_packet_of_a_ring_is_sampled_and_only_tcp_counts() {
    let mut atr = atr(Chip::Xl710);
    let udp = FlowKey { proto: proto::UDP, ..key(9, 0) };
    for i in 0..19 {
        atr.transmit(0, &key(i, 0), 0);
        atr.transmit(0, &udp, 0);
        atr.transmit(1, &key(100 + i, 0), 0);
    }
    atr.tick(SECOND / 2);
    assert_eq!(atr.stats().adds, 0);
    atr.transmit(0, &key(19, 0), SECOND / 2);
    atr.tick(SECOND);
    assert_eq!(atr.stats().adds, 1);
    assert_eq!(atr.receive(&key(19, 0).reversed(), SECOND), Some(0));
}

#[test]
fn closing_removes_by_driver_on_xl710_and_by_hardware_on_x722() {
    for chip in [Chip::Xl710, Chip::X722] {
        let mut atr = atr(chip);
        atr.transmit(1, &key(1, FlowKey::SYN), 0);
        atr.tick(SECOND / 4);
        atr.transmit(1, &key(1, FlowKey::FIN | FlowKey::ACK), SECOND / 4);
        let left = atr.stats().occupancy;
        assert_eq!(left, if chip == Chip::X722 { 0 } else { 1 }, "{chip:?}");
        atr.tick(SECOND / 2);
        let stats = atr.stats();
        let expect = if chip == Chip::X722 { (0, 1) } else { (1, 0) };
        assert_eq!((stats.removes, stats.evictions), expect, "{chip:?}");
        // X722 does not count a FIN as one of the twenty packets.
        for _ in 0..19 {
            atr.transmit(1, &key(2, 0), SECOND / 2);
        }
        atr.tick(SECOND * 3 / 4);
        assert_eq!(atr.stats().adds, 1, "{chip:?}");
    }
}

#[test]
fn a_tcp_rule_turns_atr_off_until_it_is_deleted() {
    let mut atr = atr(Chip::Xl710);
    atr.transmit(1, &key(1, FlowKey::SYN), 0);
    atr.add_rule(7, false, 0).unwrap();
    assert!(atr.health().atr, "a UDP rule does not matter");
    atr.add_rule(8, true, 0).unwrap();
    assert!(!atr.health().atr);
    atr.transmit(2, &key(2, FlowKey::SYN), SECOND);
    atr.tick(2 * SECOND);
    assert_eq!(atr.receive(&key(1, 0).reversed(), 2 * SECOND), Some(1), "old filters stay");
    assert_eq!(atr.receive(&key(2, 0).reversed(), 2 * SECOND), None);
    assert!(atr.delete_rule(8, 2 * SECOND));
    atr.tick(4 * SECOND);
    assert!(atr.health().atr);
    assert_eq!(
        atr.add_rule(7680, false, 0),
        Err(SidebandError::Location { loc: 7680, limit: 7680 })
    );
}

#[test]
fn a_full_table_turns_sideband_off_then_atr_then_flushes() {
    let mut atr = small();
    atr.add_rule(1, false, 0).unwrap();
    for port in 0..199 {
        atr.transmit(0, &key(port, FlowKey::SYN), 0);
    }
    atr.tick(1);
    assert_eq!((atr.stats().occupancy, atr.stats().failed_adds), (200, 0));
    atr.transmit(0, &key(500, FlowKey::SYN), 2);
    atr.tick(3);
    assert_eq!(atr.health(), Health { atr: true, sideband: false, flush_pending: false });
    assert_eq!(atr.add_rule(2, false, 3), Err(SidebandError::NoSpace));
    atr.transmit(0, &key(501, FlowKey::SYN), 4);
    atr.tick(5);
    assert_eq!(atr.health(), Health { atr: false, sideband: false, flush_pending: true });
    atr.tick(SECOND);
    let stats = atr.stats();
    assert_eq!((stats.flushes, stats.occupancy), (1, 1), "the sideband rule is programmed again");
    assert_eq!(atr.health(), Health { atr: true, sideband: true, flush_pending: false });
}

#[test]
fn a_full_table_fails_a_rule_only_afterwards() {
    let mut atr = small();
    for port in 0..200 {
        atr.transmit(0, &key(port, FlowKey::SYN), 0);
    }
    assert_eq!(atr.add_rule(9, false, 1), Ok(()), "success is reported first");
    atr.tick(2);
    assert_eq!(atr.take_rejected(), [9]);
    assert!(!atr.delete_rule(9, 3), "the driver has dropped it");
}

#[test]
fn flushes_keep_ten_seconds_apart_and_a_second_one_within_thirty_leaves_atr_off() {
    for (rules, atr_after) in [(10, true), (80, false)] {
        let mut atr = small();
        for loc in 0..rules {
            atr.add_rule(loc, false, 0).unwrap();
        }
        let mut port = 0;
        let mut fill = |atr: &mut AtrI40e, now| {
            for _ in 0..203 {
                port += 1;
                atr.transmit(0, &key(port, FlowKey::SYN), now);
                atr.tick(now);
            }
        };
        fill(&mut atr, SECOND / 2);
        atr.tick(2 * SECOND);
        assert_eq!(atr.stats().flushes, 1);
        // The service task turns ATR on again as soon as enough filters are free.
        fill(&mut atr, 3 * SECOND / 2 + SECOND);
        atr.tick(4 * SECOND);
        assert_eq!(atr.stats().flushes, 1, "too soon");
        assert!(atr.health().flush_pending && !atr.health().atr);
        atr.tick(13 * SECOND);
        assert_eq!(atr.stats().flushes, 2);
        assert_eq!(atr.health().atr, atr_after, "{rules} rules");
    }
}

proptest! {
    /// With a large table and no delay the model behaves as a map, and every filter that was added is
    /// either in the table or counted as removed.
    #[test]
    fn the_table_equals_a_simple_replay(
        packets in prop::collection::vec((0u16..4, 0u16..6, 0usize..6), 1..400),
        x722: bool,
    ) {
        let chip = if x722 { Chip::X722 } else { Chip::Xl710 };
        let mut atr = AtrI40e::new(I40eConfig {
            chip, rings: 4, sample_rate: 5, programming_delay: 0, ..I40eConfig::default()
        });
        let mut model = HashMap::new();
        let mut counts = [0u32; 4];
        for (i, (ring, port, kind)) in packets.into_iter().enumerate() {
            let flags = [0, 0, 0, FlowKey::SYN, FlowKey::FIN, FlowKey::RST][kind];
            atr.transmit(ring, &key(port, flags), i as Nanos);
            let closing = kind >= 4;
            if closing && x722 {
                model.remove(&port);
            } else {
                counts[usize::from(ring)] += 1;
                if closing || kind == 3 || counts[usize::from(ring)] == 5 {
                    counts[usize::from(ring)] = 0;
                    if closing { model.remove(&port); } else { model.insert(port, ring); }
                }
            }
            for port in 0..6 {
                let seen = atr.receive(&key(port, 0).reversed(), i as Nanos);
                prop_assert_eq!(seen, model.get(&port).copied());
            }
            let stats = atr.stats();
            let gone = stats.removes + stats.evictions;
            prop_assert_eq!(u64::from(stats.occupancy), stats.adds - gone);
        }
    }
}
