//! What the self-tests of Snabb's driver for the 82599 (`intel_mp`) say that the adapter does. They ran on hardware. Here
//! are their settings, their frames and what they expect.

use super::*;

const FIRST: [u8; 6] = [0x90, 0x72, 0x82, 0x78, 0xc9, 0x7a];
const SECOND: [u8; 6] = [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc];
const THIRD: [u8; 6] = [0xaa; 6];

/// A pool as that driver sets it up: it accepts broadcast, all multicast and untagged frames.
fn pool(card: &mut Vmdq, number: u8, mac: [u8; 6]) {
    card.add_mac(mac, number).unwrap();
    let accept =
        Accept { untagged: true, broadcast: true, all_multicast: true, ..Accept::default() };
    card.accept[usize::from(number)] = accept;
}

fn card() -> Vmdq {
    let mut card = Vmdq::new(Layout::Rss64x2, false);
    card.accept = [Accept::default(); 64];
    card.default_pool = None;
    card.port_multicast = true;
    card
}

fn frame(dst: [u8; 6]) -> L2 {
    L2 { dst, src: [2, 0, 0, 0, 0, 1], tci: None, eth_type: 0x0800 }
}

/// The number of 51 frames for each of two addresses that a pool gets.
fn packets(card: &Vmdq, number: u8) -> usize {
    let frames = [FIRST, SECOND].into_iter().flat_map(|mac| std::iter::repeat_n(frame(mac), 51));
    frames.filter(|frame| card.receive(frame).pools >> number & 1 == 1).count()
}

/// `test_10g_vmdq_mirror`: pool 1 also gets what pool 0 gets, pool 2 what all pools get: 51, 102 and 102 packets.
#[test]
fn mirrors() {
    let mut card = card();
    pool(&mut card, 0, FIRST);
    pool(&mut card, 1, SECOND);
    pool(&mut card, 2, THIRD);
    card.add_mirror(Mirror { to: 1, what: Mirrored::Pools(1) }).unwrap();
    card.add_mirror(Mirror { to: 2, what: Mirrored::Pools(u64::MAX) }).unwrap();
    assert_eq!([packets(&card, 0), packets(&card, 1), packets(&card, 2)], [51, 102, 102]);
}

/// `test_10g_vmdq_mcast`: a pool gets all 40 broadcast and multicast packets.
#[test]
fn multicast() {
    let mut card = card();
    pool(&mut card, 0, FIRST);
    let groups = [[0xff; 6], [1, 0, 0x5e, 0, 0, 0xfb], [0x33, 0x33, 0, 0, 0, 1]];
    let frames = groups.into_iter().cycle().take(40);
    assert_eq!(frames.filter(|dst| card.receive(&frame(*dst)).pools == 1).count(), 40);
}

/// `test_10g_vmdq_loopback_self`: a pool that sends to its own address gets its packets.
#[test]
fn loopback_to_itself() {
    let mut card = card();
    pool(&mut card, 0, FIRST);
    card.own_loopback = 1;
    let own = L2 { src: FIRST, ..frame(FIRST) };
    assert_eq!(card.transmit(0, &own).pools, 1);
    assert!(!card.transmit(0, &own).to_network);
}

/// `test_10g_vmdq_loopback`: pools of one adapter reach each other.
#[test]
fn loopback_between_pools() {
    let mut card = card();
    pool(&mut card, 0, FIRST);
    pool(&mut card, 1, SECOND);
    assert_eq!(card.transmit(0, &L2 { src: FIRST, ..frame(SECOND) }).pools, 2);
    assert_eq!(card.transmit(1, &L2 { src: SECOND, ..frame(FIRST) }).pools, 1);
}

/// `test_10g_vmdq_tx` and `test_10g_vlan`: a pool with a VLAN transmits with its tag, and gets only packets of the VLAN.
#[test]
fn vlan_of_a_pool() {
    let mut card = card();
    card.filter_vlans = true;
    pool(&mut card, 0, FIRST);
    card.add_vlan(1, 0).unwrap();
    card.insert[0] = Insert::Always(1);
    card.accept[0].untagged = false;
    assert_eq!(card.transmit(0, &L2 { src: FIRST, ..frame(THIRD) }).tci, Some(1));
    let of = |tci| card.receive(&L2 { tci, ..frame(FIRST) }).pools;
    assert_eq!([of(Some(1)), of(Some(2)), of(None)], [1, 0, 0]);
}

/// `test_10g_vmdq_reconfig_mac`: after a pool with VLAN 42 has gone, only the filter of VLAN 43 is left.
#[test]
fn filters_of_a_pool_go_with_it() {
    let mut card = card();
    card.filter_vlans = true;
    pool(&mut card, 0, FIRST);
    card.add_vlan(42, 0).unwrap();
    pool(&mut card, 1, SECOND);
    card.add_vlan(43, 1).unwrap();
    card.remove_vlan(42, 0);
    card.remove_mac(FIRST, 0);
    assert_eq!(card.vlans(), [VlanFilter { vid: 43, pools: 2 }]);
    assert_eq!(card.macs(), [MacFilter { mac: SECOND, pools: 2 }]);
    let of = |dst, vid| card.receive(&L2 { tci: Some(vid), ..frame(dst) }).pools;
    assert_eq!([of(SECOND, 43), of(SECOND, 42), of(FIRST, 42)], [2, 0, 0]);
}

/// `test_10g_2q_blast_vmdq`: with 64 pools, RSS spreads over the two queues of a pool.
#[test]
fn rss_in_a_pool() {
    let queue = |rss| Layout::Rss64x2.queue(2, 2, rss, None);
    assert_eq!((0..4).map(queue).collect::<Vec<_>>(), [4, 5, 4, 5]);
}
