use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;

fn flow(client: [u8; 4], sport: u16, dport: u16) -> FlowKey {
    let server = Ipv4Addr::new(10, 0, 0, 1);
    let client = Ipv4Addr::from(client);
    let key = FlowKey::five_tuple(proto::TCP, client.into(), sport, server.into(), dport);
    FlowKey { tcp_flags: FlowKey::ACK, ..key }
}

fn with(key: FlowKey, tcp_flags: u8) -> FlowKey {
    FlowKey { tcp_flags, ..key }
}

fn atr() -> Atr82599 {
    Atr82599::new(8, 20, Pballoc::K64).unwrap()
}

#[test]
fn the_twentieth_packet_is_sampled_whatever_the_first_nineteen_were() {
    let (mut atr, rx) = (atr(), flow([10, 0, 0, 5], 40000, 11211));
    let tx = rx.reversed();
    let udp = FlowKey { proto: proto::UDP, ..tx };
    for _ in 0..19 {
        assert_eq!(atr.transmit(3, &udp, 0), Transmit::NotTcp);
    }
    assert_eq!(atr.receive(&rx, 0), None);
    assert_eq!(atr.transmit(3, &tx, 0), Transmit::Added);
    assert_eq!(atr.receive(&rx, 0), Some(3));
    for _ in 0..19 {
        assert_eq!(atr.transmit(3, &tx, 0), Transmit::NotYet);
    }
    assert_eq!(atr.transmit(3, &tx, 0), Transmit::Updated);
}

#[test]
fn every_ring_has_its_own_count() {
    let (mut atr, rx) = (atr(), flow([10, 0, 0, 5], 40000, 11211));
    for i in 0..38 {
        assert_eq!(atr.transmit(i % 2, &rx.reversed(), 0), Transmit::NotYet);
    }
    assert_eq!(atr.transmit(0, &rx.reversed(), 0), Transmit::Added);
    assert_eq!(atr.transmit(1, &rx.reversed(), 0), Transmit::Updated);
    assert_eq!(atr.receive(&rx, 0), Some(1), "the last sample wins");
    assert_eq!(atr.transmit(8, &rx.reversed(), 0), Transmit::Off, "there is no ring 8");
}

#[test]
fn a_syn_is_sampled_at_once_and_a_fin_never() {
    let (mut atr, rx) = (atr(), flow([10, 0, 0, 5], 40000, 80));
    let tx = rx.reversed();
    let fin = with(tx, FlowKey::FIN | FlowKey::ACK);
    assert_eq!(atr.transmit(1, &with(tx, FlowKey::SYN | FlowKey::ACK), 0), Transmit::Added);
    for _ in 0..100 {
        assert_eq!(atr.transmit(1, &fin, 0), Transmit::Fin);
    }
    assert_eq!(atr.transmit(1, &with(tx, FlowKey::SYN | FlowKey::FIN), 0), Transmit::Fin);
    assert_eq!(atr.transmit(1, &tx, 0), Transmit::Updated, "the FINs were counted");
    assert_eq!(atr.stats().removes, 0);
}

#[test]
fn rate_zero_is_off_and_so_are_the_drivers_conditions() {
    let mut atr = Atr82599::new(1, 0, Pballoc::K64).unwrap();
    let syn = with(flow([10, 0, 0, 5], 1, 2), FlowKey::SYN);
    assert_eq!(atr.transmit(0, &syn, 0), Transmit::Off);
    assert_eq!(Atr82599::new(0, 20, Pballoc::K64).unwrap_err(), Error::Rings(0));
    assert_eq!(Atr82599::new(64, 20, Pballoc::K64).unwrap_err(), Error::Rings(64));
    let on = Conditions { rss_queues: 16, sample_rate: 20, ..Conditions::default() };
    assert_eq!(on.off(), None);
    for off in [
        Conditions { ntuple: true, ..on },
        Conditions { hw_tc: true, ..on },
        Conditions { virtualised: true, ..on },
        Conditions { traffic_classes: 2, ..on },
        Conditions { rss_queues: 1, ..on },
        Conditions { sample_rate: 0, ..on },
    ] {
        assert!(off.off().is_some(), "{off:?}");
    }
}

#[test]
fn near_full_stops_sampling_until_the_worker_has_emptied_the_table() {
    let mut atr = atr().with_flush_delay(1000);
    let syn = |i: u16| with(flow([10, 0, (i >> 8) as u8, i as u8], 1000, 80), FlowKey::SYN);
    let mut last = 0;
    while !atr.is_flushing() {
        assert_eq!(atr.transmit(0, &syn(last).reversed(), 5), Transmit::Added);
        last += 1;
    }
    assert_eq!(last, 8191 - 64);
    assert_eq!(atr.transmit(0, &syn(0).reversed(), 1004), Transmit::Off);
    assert_eq!(atr.receive(&syn(0), 1004), Some(0), "the old filters still work");
    assert_eq!(atr.receive(&syn(0), 1005), None);
    assert_eq!((atr.stats().occupancy, atr.stats().flushes), (0, 1));
    assert_eq!(atr.transmit(0, &syn(0).reversed(), 1005), Transmit::Added);
}

#[test]
fn aliases_overwrite_filters_and_are_counted() {
    let mut atr = atr();
    let all = [
        flow([10, 0, 0, 5], 40000, 11211),
        flow([10, 1, 0, 5], 40001, 11211),
        flow([10, 0, 0, 6], 40000, 11208),
    ];
    for (ring, rx) in all.iter().enumerate() {
        let expect = if ring == 0 { Transmit::Added } else { Transmit::Stolen };
        assert_eq!(atr.transmit(ring as u16, &with(rx.reversed(), FlowKey::SYN), 0), expect);
    }
    for rx in &all {
        assert_eq!(atr.receive(rx, 0), Some(2), "the last sample wins for all three");
    }
    let stats = atr.stats();
    assert_eq!((stats.occupancy, stats.aliases, atr.stolen()), (1, 2, 2));
}

#[test]
fn fragments_miss_and_vlan_tags_are_matched() {
    let (mut atr, rx) = (atr(), flow([10, 0, 0, 5], 40000, 80));
    let tagged = FlowKey { vlan_tci: 100, ..rx };
    atr.transmit(2, &with(tagged.reversed(), FlowKey::SYN), 0);
    assert_eq!(atr.receive(&tagged, 0), Some(2));
    assert_eq!(atr.receive(&rx, 0), None);
    assert_eq!(atr.receive(&FlowKey { frag: 1, ..tagged }, 0), None);
    assert_eq!(atr.stats().aliases, 0);
}

/// One filter of [`ListAtr`].
struct Filter {
    /// Signature and bucket, which is what the adapter compares.
    identity: u32,
    queue: u16,
    owner: FlowKey,
}

/// A slow model for comparison: the filters as a list without slots.
#[derive(Default)]
struct ListAtr {
    counts: [u32; 4],
    filters: Vec<Filter>,
    aliases: u64,
    stolen: u64,
}

impl ListAtr {
    fn identity(key: &FlowKey) -> u32 {
        let folded = fdir::Input::from_key(key, &MaskSet::ATR).unwrap().folded();
        u32::from(folded.signature()) << 16
            | u32::from(folded.bucket(Mode::Signature, Pballoc::K64))
    }

    fn transmit(&mut self, ring: u16, key: &FlowKey, rate: u32) {
        let count = &mut self.counts[usize::from(ring)];
        *count += 1;
        let flag = |flag| key.tcp_flags & flag != 0;
        if key.proto != proto::TCP || flag(FlowKey::FIN) {
            return;
        }
        if !flag(FlowKey::SYN) && *count < rate {
            return;
        }
        *count = 0;
        let rx = key.reversed();
        let (identity, owner) = (Self::identity(&rx), rx.masked(&OWNER));
        match self.filters.iter_mut().find(|f| f.identity == identity) {
            Some(filter) => {
                self.stolen += u64::from(filter.owner != owner);
                (filter.queue, filter.owner) = (ring, owner);
            }
            None => self.filters.push(Filter { identity, queue: ring, owner }),
        }
    }

    fn receive(&mut self, key: &FlowKey) -> Option<u16> {
        let identity = Self::identity(key);
        let filter = self.filters.iter().find(|f| f.identity == identity)?;
        self.aliases += u64::from(filter.owner != key.masked(&OWNER));
        Some(filter.queue)
    }
}

proptest! {
    #[test]
    fn atr_behaves_as_the_list(
        rate in 1..6_u32,
        steps in prop::collection::vec((any::<bool>(), 0..4_u16, 0..4_u8, 0..4_u16, 0..8_u8), 1..300),
    ) {
        let mut atr = Atr82599::new(4, rate, Pballoc::K64).unwrap();
        let mut list = ListAtr::default();
        for (sends, ring, host, port, kind) in steps {
            // With adjacent /16 networks and ports, many of these sixteen flows are aliases.
            let mut key = flow([10, host, 0, 5], 40000 + port, 11211);
            match kind {
                0 => key.tcp_flags = FlowKey::SYN,
                1 => key.tcp_flags = FlowKey::FIN | FlowKey::ACK,
                2 => key.proto = proto::UDP,
                _ => {}
            }
            if sends {
                atr.transmit(ring, &key.reversed(), 0);
                list.transmit(ring, &key.reversed(), rate);
            } else {
                prop_assert_eq!(atr.receive(&key, 0), list.receive(&key));
            }
        }
        let stats = atr.stats();
        prop_assert_eq!(stats.occupancy as usize, list.filters.len());
        prop_assert_eq!((stats.aliases, atr.stolen()), (list.aliases, list.stolen));
    }
}
