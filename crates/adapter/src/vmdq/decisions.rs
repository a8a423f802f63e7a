//! The order of filters as a decision table: each row is a test. Sections are those of Intel's X550 datasheet 333369-009.

use super::*;

const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
const OTHER: [u8; 6] = [2, 0, 0, 0, 0xcd, 0xef];
const GROUP: [u8; 6] = [1, 0, 0x5e, 1, 2, 3];
const ALL: [u8; 6] = [0xff; 6];

/// Pool 1 has address A, pool 2 has address B, and pool 0 is the default pool. Nobody is promiscuous.
pub(super) fn card(has_promiscuous: bool) -> Vmdq {
    let mut card = Vmdq::new(Layout::Rss64x2, has_promiscuous);
    card.accept = [Accept { untagged: true, ..Accept::default() }; 64];
    card.add_mac(A, 1).unwrap();
    card.add_mac(B, 2).unwrap();
    card
}

fn to(dst: [u8; 6]) -> L2 {
    L2 { dst, src: OTHER, tci: None, eth_type: 0x0800 }
}

fn tagged(dst: [u8; 6], tci: u16) -> L2 {
    L2 { tci: Some(tci), ..to(dst) }
}

/// Pools as a set.
fn pools(pools: &[u8]) -> Pools {
    pools.iter().fold(0, |all, pool| all | 1 << pool)
}

/// A test for each row: what is set, the frame, the pools that get it, and the step that decided.
macro_rules! rows {
    ($( $name:ident: $section:literal, $set:expr, $frame:expr => $pools:expr, $step:expr; )*) => {$(
        #[test]
        fn $name() {
            let mut card = card(true);
            #[allow(clippy::redundant_closure_call, reason = "rows without settings")]
            ($set as fn(&mut Vmdq))(&mut card);
            let found = card.receive(&$frame);
            assert_eq!(found.pools, pools(&$pools), "section {}: {found:?}", $section);
            let last = found.trace.causes().last().map(|cause| cause.step);
            assert_eq!(last, $step, "section {}: {found:?}", $section);
        }
    )*};
}

rows! {
    exact_address: "7.8.3.3.1 step 1", |_| {}, to(A) => [1], Some(Step::Exact);
    exact_group: "7.8.3.3.1 step 1", |card| {
        card.add_mac(GROUP, 1).unwrap();
        card.add_mac(GROUP, 2).unwrap();
    }, to(GROUP) => [1, 2], Some(Step::Exact);
    port_drops_unknown_unicast: "7.1.2.1", |_| {}, to(OTHER) => [], None;
    port_drops_unknown_group: "7.1.2.1", |_| {}, to(GROUP) => [], None;
    port_drops_unknown_vlan: "7.1.2.2", |card| card.filter_vlans = true, tagged(A, 5) => [], None;
    disabled_pool_is_removed: "7.8.3.3.1 step 2", |card| {
        card.may_receive &= !2;
        card.default_pool = None;
    }, to(A) => [], Some(Step::Enabled);
    disabled_pool_falls_to_default: "7.8.3.3.1 steps 2 and 9", |card| card.may_receive &= !2,
        to(A) => [0], Some(Step::Default);
    broadcast_to_accepting_pools: "7.8.3.3.1 step 3", |card| {
        card.accept[1].broadcast = true;
        card.accept[5].broadcast = true;
    }, to(ALL) => [1, 5], Some(Step::Broadcast);
    broadcast_without_pools: "7.8.3.3.1 step 9", |_| {}, to(ALL) => [0], Some(Step::Default);
    unicast_hash: "7.8.3.3.1 step 4", |card| {
        card.add_hash(OTHER);
        card.accept[3].unicast_hash = true;
    }, to(OTHER) => [3], Some(Step::UnicastHash);
    unicast_hash_has_collisions: "7.8.3.3.1 step 4", |card| {
        card.add_hash([2, 9, 9, 9, 0xcd, 0xef]); // the same twelve bits
        card.accept[3].unicast_hash = true;
    }, to(OTHER) => [3], Some(Step::UnicastHash);
    unicast_hash_only_if_empty: "7.8.3.3.1 step 4", |card| {
        card.add_hash(A);
        card.accept[3].unicast_hash = true;
    }, to(A) => [1], Some(Step::Exact);
    multicast_hash: "7.8.3.3.1 step 5", |card| {
        card.add_hash(GROUP);
        card.accept[1].multicast_hash = true;
        card.accept[2].multicast_hash = true;
    }, to(GROUP) => [1, 2], Some(Step::MulticastHash);
    multicast_hash_only_if_empty: "7.8.3.3.1 step 5", |card| {
        card.add_mac(GROUP, 1).unwrap();
        card.add_hash(GROUP);
        card.accept[2].multicast_hash = true;
    }, to(GROUP) => [1], Some(Step::Exact);
    all_multicast_is_added: "7.8.3.3.1 step 6", |card| {
        card.add_mac(GROUP, 1).unwrap();
        card.accept[7].all_multicast = true;
    }, to(GROUP) => [1, 7], Some(Step::AllMulticast);
    all_multicast_is_not_for_broadcast: "7.8.3.3.1 steps 3 and 6", |card| {
        card.accept[7].all_multicast = true;
        card.accept[1].broadcast = true;
    }, to(ALL) => [1], Some(Step::Broadcast);
    all_unicast_is_added: "7.8.3.3.1 step 7", |card| card.accept[9].all_unicast = true,
        to(A) => [1, 9], Some(Step::AllUnicast);
    vlan_members_stay: "7.8.3.3.1 step 8a", |card| {
        card.filter_vlans = true;
        card.add_mac(A, 2).unwrap();
        card.add_vlan(42, 2).unwrap();
    }, tagged(A, 42) => [2], Some(Step::Vlan);
    vlan_priority_does_not_count: "7.8.3.3.1 step 8a", |card| {
        card.filter_vlans = true;
        card.add_vlan(42, 1).unwrap();
    }, tagged(A, 0xe000 | 42) => [1], Some(Step::Exact);
    all_vlans: "7.8.3.3.1 step 8a", |card| {
        card.filter_vlans = true;
        card.accept[1].all_vlans = true;
    }, tagged(A, 42) => [1], Some(Step::Exact);
    untagged_to_accepting_pools: "7.8.3.3.1 step 8b", |card| {
        card.filter_vlans = true;
        card.add_mac(A, 2).unwrap();
        card.accept[1].untagged = false;
    }, to(A) => [2], Some(Step::Vlan);
    no_member_is_empty: "7.8.3.3.1 step 8c", |card| {
        card.filter_vlans = true;
        card.default_pool = None;
        card.add_vlan(42, 2).unwrap();
    }, tagged(A, 42) => [], Some(Step::Vlan);
    vlans_off: "7.8.3.3.1 step 8", |card| card.add_vlan(42, 2).unwrap(),
        tagged(A, 42) => [1], Some(Step::Exact);
    empty_after_vlan_gets_default: "7.8.3.3.1 step 9", |card| {
        card.filter_vlans = true;
        card.add_vlan(42, 2).unwrap();
    }, tagged(A, 42) => [0], Some(Step::Default);
    default_pool_off: "7.8.3.3.1 step 9", |card| {
        card.port_unicast = true;
        card.default_pool = None;
    }, to(OTHER) => [], None;
    promiscuous_port_gives_to_default: "7.8.3.3.1 step 9", |card| card.port_unicast = true,
        to(OTHER) => [0], Some(Step::Default);
    ether_type_takes_the_frame: "7.8.3.3.1 step 10", |card| {
        let filter = EtherTypeFilter { eth_type: 0x0800, pool: Some(6), queue: None };
        card.add_ether_type(filter).unwrap();
    }, to(A) => [6], Some(Step::EtherType);
    ether_type_without_pool: "7.8.3.3.1 step 10", |card| {
        let filter = EtherTypeFilter { eth_type: 0x0800, pool: None, queue: Some(3) };
        card.add_ether_type(filter).unwrap();
    }, to(A) => [1], Some(Step::Exact);
    source_is_pruned: "7.8.3.3.1 step 11", |card| {
        card.accept[1].broadcast = true;
        card.accept[2].broadcast = true;
        card.prune_source = 2;
    }, L2 { src: A, ..to(ALL) } => [2], Some(Step::Source);
    source_stays_without_pruning: "7.8.3.3.1 step 11", |card| {
        card.accept[1].broadcast = true;
    }, L2 { src: A, ..to(ALL) } => [1], Some(Step::Broadcast);
    ether_type_to_disabled_pool: "7.8.3.3.1 step 12", |card| {
        let filter = EtherTypeFilter { eth_type: 0x0800, pool: Some(6), queue: None };
        card.add_ether_type(filter).unwrap();
        card.may_receive &= !(1 << 6);
    }, to(A) => [], Some(Step::Enabled);
    pool_mirror: "7.8.3.3.1 step 13a", |card| {
        card.add_mirror(Mirror { to: 8, what: Mirrored::Pools(2) }).unwrap();
    }, to(A) => [1, 8], Some(Step::Mirror);
    pool_mirror_of_another_pool: "7.8.3.3.1 step 13a", |card| {
        card.add_mirror(Mirror { to: 8, what: Mirrored::Pools(2) }).unwrap();
    }, to(B) => [2], Some(Step::Exact);
    vlan_mirror: "7.8.3.3.1 step 13b", |card| {
        card.filter_vlans = true;
        card.add_vlan(41, 2).unwrap();
        card.add_vlan(42, 1).unwrap();
        card.add_mirror(Mirror { to: 8, what: Mirrored::Vlans(0b10) }).unwrap();
    }, tagged(A, 42) => [1, 8], Some(Step::Mirror);
    uplink_mirror: "7.8.3.3.1 step 13c", |card| {
        card.add_mirror(Mirror { to: 8, what: Mirrored::Uplink }).unwrap();
    }, to(B) => [2, 8], Some(Step::Mirror);
    uplink_mirror_of_an_empty_list: "7.8.3.3.1 step 13c", |card| {
        card.add_mirror(Mirror { to: 8, what: Mirrored::Uplink }).unwrap();
        card.port_unicast = true;
        card.default_pool = None;
    }, to(OTHER) => [], None;
    downlink_mirror_is_not_for_reception: "7.8.3.5", |card| {
        card.add_mirror(Mirror { to: 8, what: Mirrored::Downlink }).unwrap();
    }, to(A) => [1], Some(Step::Exact);
    mirror_to_a_disabled_pool: "7.8.3.3.1 step 14", |card| {
        card.add_mirror(Mirror { to: 8, what: Mirrored::Pools(2) }).unwrap();
        card.may_receive &= !(1 << 8);
    }, to(A) => [1], Some(Step::Enabled);
    one_pool_exact: "7.8.3.3.2 step 1", |card| card.replication = false, to(A) => [1], Some(Step::Exact);
    one_pool_broadcast: "7.8.3.3.2 step 6", |card| {
        card.replication = false;
        card.accept[1].broadcast = true;
    }, to(ALL) => [0], Some(Step::Default);
    one_pool_hash: "7.8.3.3.2 step 3", |card| {
        card.replication = false;
        card.add_hash(OTHER);
        card.accept[3].unicast_hash = true;
    }, to(OTHER) => [3], Some(Step::UnicastHash);
    one_pool_no_mirror: "7.8.3.3.2", |card| {
        card.replication = false;
        card.add_mirror(Mirror { to: 8, what: Mirrored::Pools(2) }).unwrap();
    }, to(A) => [1], Some(Step::Exact);
    one_pool_ether_type: "7.8.3.3.2 step 7", |card| {
        card.replication = false;
        let filter = EtherTypeFilter { eth_type: 0x0800, pool: Some(6), queue: None };
        card.add_ether_type(filter).unwrap();
    }, to(A) => [6], Some(Step::EtherType);
    one_pool_disabled: "7.8.3.3.2 step 8", |card| {
        card.replication = false;
        card.may_receive &= !1;
        card.port_unicast = true;
    }, to(OTHER) => [], Some(Step::Enabled);
}

/// The 82599 has no UPE and VPE bits (ixgbe: promiscuous mode of a virtual function is refused up to the 82599).
#[test]
fn the_82599_has_no_promiscuous_pools() {
    let mut card = card(false);
    card.accept[9] = Accept { all_unicast: true, all_vlans: true, ..Accept::default() };
    assert_eq!(card.receive(&to(A)).pools, pools(&[1]));
    card.filter_vlans = true;
    card.add_mac(A, 9).unwrap();
    card.add_vlan(42, 1).unwrap();
    assert_eq!(card.receive(&tagged(A, 42)).pools, pools(&[1]));
}

/// A row for each rule of transmission: what is set, the frame of pool 1, whether it leaves, and the pools.
macro_rules! sent {
    ($( $name:ident: $section:literal, $set:expr, $frame:expr => $network:literal, $pools:expr, $dropped:expr; )*) => {$(
        #[test]
        fn $name() {
            let mut card = card(true);
            #[allow(clippy::redundant_closure_call, reason = "rows without settings")]
            ($set as fn(&mut Vmdq))(&mut card);
            let found = card.transmit(1, &L2 { src: A, ..$frame });
            let seen = (found.to_network, found.pools, found.dropped);
            assert_eq!(seen, ($network, pools(&$pools), $dropped), "section {}", $section);
        }
    )*};
}

sent! {
    local_unicast_stays: "7.8.3.4.1 steps 1 and 11b", |_| {}, to(B) => false, [2], None;
    unknown_unicast_leaves: "7.8.3.4.1 step 11b", |_| {}, to(OTHER) => true, [], None;
    unknown_unicast_has_no_default: "7.8.3.4", |card| card.port_unicast = true, to(OTHER) => true, [], None;
    disabled_target_leaves: "7.8.3.4.1 step 11b", |card| card.may_receive &= !4, to(B) => true, [], None;
    hashed_unicast_leaves_too: "7.8.3.4.1 steps 5 and 11b", |card| {
        card.add_hash(OTHER);
        card.accept[3].unicast_hash = true;
    }, to(OTHER) => true, [3], None;
    broadcast_leaves_and_loops: "7.8.3.4.1 steps 4 and 11a", |card| {
        card.accept[1].broadcast = true;
        card.accept[2].broadcast = true;
    }, to(ALL) => true, [2], None;
    group_leaves_and_loops: "7.8.3.4.1 steps 8 and 11a", |card| card.accept[2].all_multicast = true,
        to(GROUP) => true, [2], None;
    own_address: "7.8.3.4.1 step 9", |_| {}, to(A) => false, [], None;
    own_address_with_own_loopback: "7.8.3.4.1 step 9", |card| card.own_loopback = 2, to(A) => false, [1], None;
    other_vlan: "7.8.3.4.1 step 10", |card| {
        card.filter_vlans = true;
        card.add_vlan(42, 1).unwrap();
    }, tagged(B, 42) => false, [], None;
    loopback_off: "7.8.3.4", |card| card.loopback = false, to(B) => true, [], None;
    pool_mirror_of_local: "7.8.3.4.1 step 13a", |card| {
        card.add_mirror(Mirror { to: 8, what: Mirrored::Pools(4) }).unwrap();
    }, to(B) => false, [2, 8], None;
    downlink_mirror: "7.8.3.4.1 step 13c", |card| {
        card.add_mirror(Mirror { to: 8, what: Mirrored::Downlink }).unwrap();
    }, to(OTHER) => true, [8], None;
    downlink_mirror_of_local: "7.8.3.4.1 step 13c", |card| {
        card.add_mirror(Mirror { to: 8, what: Mirrored::Downlink }).unwrap();
    }, to(B) => false, [2], None;
    one_pool_broadcast_sent: "7.8.3.4.2 step 6", |card| card.replication = false, to(ALL) => true, [0], None;
    disabled_sender: "4.6.10.1.4", |card| card.may_transmit &= !2, to(B) => false, [], Some(Spoof::Disabled);
    own_source_passes: "4.6.10.1.3", |card| card.check_macs = 2, to(B) => false, [2], None;
    vlan_member_passes: "4.6.10.1.3", |card| {
        card.check_vlans = 2;
        card.add_vlan(42, 1).unwrap();
    }, tagged(OTHER, 42) => true, [], None;
    vlan_of_others_is_dropped: "4.6.10.1.3", |card| {
        card.check_vlans = 2;
        card.add_vlan(42, 2).unwrap();
    }, tagged(OTHER, 42) => false, [], Some(Spoof::Vlan);
    port_vlan_passes: "4.6.10.1.3", |card| {
        card.check_vlans = 2;
        card.add_vlan(42, 1).unwrap();
        card.insert[1] = Insert::Always(42);
    }, to(OTHER) => true, [], None;
    port_vlan_refuses_own_tags: "4.6.10.1.3", |card| {
        card.check_vlans = 2;
        card.add_vlan(42, 1).unwrap();
        card.insert[1] = Insert::Always(42);
    }, tagged(OTHER, 42) => false, [], Some(Spoof::Vlan);
}

#[test]
fn a_foreign_source_is_dropped() {
    let mut card = card(true);
    card.check_macs = 2;
    let spoofed = L2 { src: B, ..to(OTHER) };
    assert_eq!(card.transmit(1, &spoofed).dropped, Some(Spoof::Mac));
    assert_eq!(card.transmit(2, &spoofed).dropped, None);
    assert_eq!(card.transmit(64, &spoofed).dropped, Some(Spoof::Disabled));
}

#[test]
fn a_port_vlan_is_inserted() {
    let mut card = card(true);
    card.insert[1] = Insert::Always(0x6000 | 42);
    assert_eq!(card.transmit(1, &to(OTHER)).tci, Some(0x6000 | 42));
    card.insert[1] = Insert::Never;
    assert_eq!(card.transmit(1, &tagged(OTHER, 7)).tci, None);
}

/// Section 7.8.3.2: 128 addresses, 64 VLANs; section 7.8.3.5: 4 mirroring rules; section 7.1.3.3: 8 EtherType filters.
#[test]
fn tables_have_the_sizes_of_the_datasheet() {
    let mut card = Vmdq::new(Layout::Rss32x4, false);
    let mac = |n: u16| [2, 0, 0, 0, (n >> 8) as u8, n as u8];
    let count =
        |mut add: Box<dyn FnMut(u16) -> bool + '_>| (0..200).take_while(|n| add(*n)).count();
    assert_eq!(count(Box::new(|n| card.add_mac(mac(n), 0).is_ok())), 128);
    assert_eq!(count(Box::new(|n| card.add_vlan(n, 0).is_ok())), 64);
    let mirror = Mirror { to: 0, what: Mirrored::Uplink };
    assert_eq!(count(Box::new(|_| card.add_mirror(mirror).is_ok())), 4);
    let filter = |eth_type| EtherTypeFilter { eth_type, pool: None, queue: None };
    assert_eq!(count(Box::new(|n| card.add_ether_type(filter(n)).is_ok())), 8);
    assert_eq!(card.add_mac(mac(1), 31), Ok(()), "an address of the table takes another pool");
    assert_eq!(card.add_mac(mac(1), 32), Err(Error::NoPool(32, 32)));
}
