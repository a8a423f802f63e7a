use flowyard_frame::proto;

use super::*;

fn key(port: u16) -> FlowKey {
    let [one, two] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(std::net::IpAddr::from);
    FlowKey::five_tuple(proto::UDP, one, port, two, 53)
}

/// A mapping whose mask has all bits of the source port.
fn mapping(capacity: usize) -> Mapping {
    let mut mapping = Mapping::new(capacity, 7);
    mapping.set_mask(&key(0xffff));
    mapping
}

fn entry(path: u32) -> Mapped {
    Mapped { port: 3, path, half: 9 }
}

/// A flow of two frames never costs an insertion, and an entry that was lost is tried again.
#[test]
fn a_flow_is_tried_at_its_second_frame_and_then_less_and_less_often() {
    let mut mapping = mapping(8);
    let tried: Vec<u32> = (1..=1500).filter(|_| mapping.tries(0xabcd_e200)).collect();
    assert_eq!(tried, [2, 4, 8, 16, 32, 64, 128, 256, 512, 768, 1024, 1280]);
}

#[test]
fn entries_are_shown_until_they_are_removed() {
    let mut mapping = mapping(8);
    (0..4).for_each(|n| mapping.put(&key(n), entry(n.into())));
    assert_eq!((mapping.len(), mapping.capacity()), (4, 8));
    mapping.put(&key(1), entry(77));
    mapping.del(&key(2));
    let mut shown = Vec::new();
    mapping.each(&mut |key, mapped| shown.push((key.sport, mapped)));
    shown.sort_unstable_by_key(|(port, ..)| *port);
    assert_eq!(shown, [(0, 0), (1, 77), (3, 3)].map(|(port, path)| (port, entry(path))));
    // The same mask keeps the entries; another one, and clear, remove them.
    mapping.set_mask(&key(0xffff));
    assert_eq!(mapping.len(), 3);
    mapping.set_mask(&key(0xff00));
    assert_eq!(mapping.len(), 0);
    mapping.put(&key(0x100), entry(1));
    mapping.clear();
    assert_eq!(mapping.len(), 0);
}

/// When all entries are taken, active flows get new ones: after eight tries for each entry all are removed.
#[test]
fn a_full_mapping_is_cleared_after_enough_tries() {
    let mut mapping = mapping(4);
    (0..4).for_each(|n| mapping.put(&key(n), entry(n.into())));
    assert_eq!(mapping.len(), 4);
    let mut tries = 0;
    for flow in 0_u32.. {
        let hash = flow.wrapping_mul(0x9e37_7a00);
        assert!(!mapping.tries(hash), "there is no room");
        let full = mapping.len() == 4;
        assert!(!mapping.tries(hash), "there is no room");
        tries += u32::from(full);
        if mapping.is_worn() {
            mapping.clear();
            break;
        }
        assert!(tries < 1000, "it is never cleared");
    }
    assert!(tries > 32, "{tries}");
    mapping.tries(0x0bcd_e200);
    assert!(mapping.tries(0x0bcd_e200), "there is room again");
}

#[test]
fn a_window_with_few_hits_pauses_the_lookups_unless_flows_are_learnt() {
    for (hits, learnt, paused) in
        [(127, 0, true), (128, 0, false), (0, 127, true), (0, 128, false), (1024, 0, false)]
    {
        let mut mapping = mapping(2048);
        for n in 0..learnt {
            mapping.put(&key(n), entry(1));
        }
        assert!(mapping.looks(1024));
        mapping.hits(hits);
        assert_eq!(!mapping.looks(32), paused, "{hits} hits, {learnt} learnt");
        mapping.resume();
        assert!(mapping.looks(32));
    }
    assert!(!mapping(8).looks(0) && !Mapping::new(0, 7).looks(32));
}
