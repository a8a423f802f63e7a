//! The decision on a received frame with sets, one statement for each step of section 7.8.3.3.1, and the property test that
//! compares it with [`Vmdq::receive`].

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

type Set = BTreeSet<u8>;

fn set(pools: Pools) -> Set {
    each(pools).collect()
}

fn slow(card: &Vmdq, frame: &L2) -> Set {
    let all: Set = (0..card.layout.pools()).collect();
    let which = |of: &dyn Fn(&Accept) -> bool| -> Set {
        all.iter().copied().filter(|pool| of(&card.accept[usize::from(*pool)])).collect()
    };
    let enabled = |list: Set| -> Set {
        list.into_iter()
            .filter(|pool| all.contains(pool) && card.may_receive >> pool & 1 == 1)
            .collect()
    };
    let group = frame.dst[0] & 1 == 1;
    let broadcast = frame.dst == [0xff; 6];
    let number = u16::from_le_bytes([frame.dst[4], frame.dst[5]]) >> 4;
    let hashed = if group { &card.multicast_hash } else { &card.unicast_hash };
    let hashed = hashed[usize::from(number / 64)] >> (number % 64) & 1 == 1;
    let exact = card.macs.iter().find(|filter| filter.mac == frame.dst);
    let vlan = frame.tci.map(|tci| card.vlans.iter().position(|filter| filter.vid == tci % 4096));

    let promiscuous = if group { card.port_multicast } else { card.port_unicast };
    if exact.is_none() && !broadcast && !promiscuous && !hashed {
        return Set::new();
    }
    let all_vlans =
        if card.has_promiscuous { which(&|accept| accept.all_vlans) } else { Set::new() };
    if card.filter_vlans && vlan == Some(None) && all_vlans.is_empty() {
        return Set::new();
    }
    let mut list = enabled(exact.map_or(Set::new(), |filter| set(filter.pools)));
    if broadcast {
        list.extend(which(&|accept| accept.broadcast));
    }
    if !group && list.is_empty() && hashed {
        list.extend(which(&|accept| accept.unicast_hash));
    }
    if group && !broadcast && list.is_empty() && hashed {
        list.extend(which(&|accept| accept.multicast_hash));
    }
    if group && !broadcast {
        list.extend(which(&|accept| accept.all_multicast));
    }
    if !group && card.has_promiscuous {
        list.extend(which(&|accept| accept.all_unicast));
    }
    if card.filter_vlans {
        let members = match vlan {
            None => which(&|accept| accept.untagged),
            Some(found) => {
                let mut members = found.map_or(Set::new(), |number| set(card.vlans[number].pools));
                members.extend(&all_vlans);
                members
            }
        };
        list = &list & &members;
    }
    if list.is_empty() {
        list.extend(card.default_pool);
    }
    if let Some(filter) = card.ether_types.iter().find(|filter| filter.eth_type == frame.eth_type)
        && let Some(pool) = filter.pool
    {
        list = Set::from([pool]);
    }
    if let Some(own) = card.macs.iter().find(|filter| filter.mac == frame.src) {
        list = &list - &set(own.pools & card.prune_source);
    }
    list = enabled(list);
    let before = list.clone();
    for mirror in &card.mirrors {
        let copies = match mirror.what {
            Mirrored::Pools(pools) => !before.is_disjoint(&set(pools)),
            Mirrored::Vlans(numbers) => {
                vlan.flatten().is_some_and(|number| numbers >> number & 1 == 1)
            }
            Mirrored::Uplink => !before.is_empty(),
            Mirrored::Downlink => false,
        };
        list.extend(copies.then_some(mirror.to));
    }
    enabled(list)
}

/// Few addresses, so that frames often match.
fn mac() -> impl Strategy<Value = [u8; 6]> {
    prop_oneof![
        (0_u8..4).prop_map(|n| [2, 0, 0, 0, 0, n << 4]),
        (0_u8..3).prop_map(|n| [1, 0, 0x5e, 0, 0, n << 4]),
        Just([0xff; 6]),
    ]
}

fn accept() -> impl Strategy<Value = Accept> {
    any::<[bool; 7]>().prop_map(|on| Accept {
        untagged: on[0],
        multicast_hash: on[1],
        unicast_hash: on[2],
        broadcast: on[3],
        all_multicast: on[4],
        all_unicast: on[5],
        all_vlans: on[6],
    })
}

fn mirrored() -> impl Strategy<Value = Mirrored> {
    prop_oneof![
        (0_u64..64).prop_map(Mirrored::Pools),
        (0_u64..8).prop_map(Mirrored::Vlans),
        Just(Mirrored::Uplink),
        Just(Mirrored::Downlink),
    ]
}

prop_compose! {
    fn cards()(
        on in any::<[bool; 5]>(),
        accepts in proptest::collection::vec(accept(), 6),
        macs in proptest::collection::vec((mac(), 0_u8..6), 0..8),
        vlans in proptest::collection::vec((1_u16..4, 0_u8..6), 0..5),
        hashes in proptest::collection::vec(mac(), 0..3),
        mirrors in proptest::collection::vec((0_u8..8, mirrored()), 0..4),
        ether_type in proptest::option::of((0_u16..3, proptest::option::of(0_u8..8))),
        default_pool in proptest::option::of(0_u8..6),
        masks in any::<[u8; 2]>(),
    ) -> Vmdq {
        let mut card = Vmdq::new(Layout::Rss64x2, on[0]);
        card.accept = [Accept::default(); 64];
        card.accept[..6].copy_from_slice(&accepts);
        card.filter_vlans = on[1];
        card.port_unicast = on[2];
        card.port_multicast = on[3];
        card.default_pool = default_pool;
        card.may_receive = !u64::from(masks[0] & 0x11);
        card.prune_source = u64::from(masks[1]);
        macs.into_iter().for_each(|(mac, pool)| card.add_mac(mac, pool).unwrap());
        vlans.into_iter().for_each(|(vid, pool)| card.add_vlan(vid, pool).unwrap());
        hashes.into_iter().for_each(|mac| card.add_hash(mac));
        mirrors.into_iter().for_each(|(to, what)| card.add_mirror(Mirror { to, what }).unwrap());
        if let Some((eth_type, pool)) = ether_type {
            card.add_ether_type(EtherTypeFilter { eth_type, pool, queue: None }).unwrap();
        }
        card
    }
}

proptest! {
    #[test]
    fn pools_are_those_of_the_slow_model(
        card in cards(),
        frames in proptest::collection::vec((mac(), mac(), proptest::option::of(0_u16..5), 0_u16..3), 1..20),
    ) {
        for (dst, src, tci, eth_type) in frames {
            let frame = L2 { dst, src, tci, eth_type };
            let found = card.receive(&frame);
            prop_assert_eq!(set(found.pools), slow(&card, &frame), "{:?} {:?}", frame, found);
        }
    }

    /// With replication off, at most one pool gets a frame, and it may receive.
    #[test]
    fn without_replication_one_pool_gets_it(card in cards(), dst in mac(), src in mac()) {
        let card = Vmdq { replication: false, ..card };
        let found = card.receive(&L2 { dst, src, tci: None, eth_type: 0 });
        prop_assert!(found.pools.count_ones() <= 1);
        prop_assert_eq!(found.pools & !card.may_receive, 0);
    }

    /// A dropped frame goes nowhere, and a pool gets its own frames only with its loopback.
    #[test]
    fn transmission_reaches_no_disabled_pool(
        card in cards(), pool in 0_u8..8, dst in mac(), src in mac(), checks in any::<[u8; 3]>(),
    ) {
        let mut card = card;
        card.check_macs = checks[0].into();
        card.check_vlans = checks[1].into();
        card.own_loopback = checks[2].into();
        card.mirrors.clear();
        let found = card.transmit(pool, &L2 { dst, src, tci: None, eth_type: 0 });
        prop_assert_eq!(found.pools & !card.may_receive, 0);
        prop_assert!(found.dropped.is_none() || (found.pools == 0 && !found.to_network));
        let own = found.pools >> pool & 1 == 1;
        prop_assert!(!own || card.own_loopback >> pool & 1 == 1);
    }
}
