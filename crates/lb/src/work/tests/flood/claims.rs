//! What docs/balance.md claims about floods, at its bounds.

use super::*;

/// All of a kind, from as many addresses as packets, to one core: the worst case for its limits.
#[test]
fn each_kind_of_flood_alone_leaves_clients_served() {
    let none = Flood { syns: false, acks: false, datagrams: false, ..ALL };
    let kinds = [
        Flood { syns: true, ..none },
        Flood { acks: true, ..none },
        Flood { datagrams: true, ..none },
    ];
    let mut counted = Vec::new();
    for (seed, mode) in (10..).zip(MODES) {
        for (kind, flood) in kinds.into_iter().enumerate() {
            let mut run = Run::new((mode, Choice::Maglev), 1, &defaults(true), flood, seed);
            let source = |number| run.packet(Event::Forged { number }).unwrap().src_ip();
            let addresses: HashSet<_> = (0..flood.packets).map(source).collect();
            assert_eq!(addresses.len(), 100_000);
            let served = run.run();
            let sum = run.sum();
            run.check();
            assert!(served[0] >= 99 && served[1] >= 99, "{mode:?}, flood {kind}: {served:?}");
            // Only unestablished connections were replaced, and all of the flood got an entry.
            assert!(
                sum.evicted[Limit::Unestablished as usize] > 60_000,
                "{mode:?}, {kind}: {sum:?}"
            );
            assert_eq!((sum.evicted[1..].to_vec(), sum.refused), (vec![0; 3], [0; 4]), "{mode:?}");
            counted.push((mode, kind, served));
        }
    }
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "served, of 100 of TCP and 100 of UDP: {counted:?}");
}

/// A client's entry stays until the flood has made as many as there may be. Afterwards `fullnat` cannot know its
/// local port any more; the other modes choose its backend again.
#[test]
fn the_limit_of_unestablished_connections_is_the_time_that_a_fullnat_client_has() {
    let most = 1000;
    let settings = BalanceSettings { connections: 4096, opening_most: most, ..defaults(true) };
    for mode in MODES {
        for (forged, keeps_its_entry) in [(most - 5, true), (most + 5, false)] {
            let mut way = ports::Way::new(services(mode, Choice::Maglev), &settings);
            let flood = |way: &mut ports::Way, from: u32, count: usize| {
                for number in from..from + count as u32 {
                    way.pass(&ports::syn(ports::client(number, proto::TCP, "192.0.2.1", 80)), 5);
                }
            };
            flood(&mut way, 10_000, 3 * most);
            let key = ports::client(1, proto::TCP, "192.0.2.1", 80);
            let first = way.pass(&ports::syn(key), 5);
            assert!(!first.0.is_drop(), "{mode:?}");
            flood(&mut way, 20_000, forged);
            let kept = matches!(way.hub.explain(&key, 5).why, Because::Kept(_));
            assert_eq!(kept, keeps_its_entry, "{mode:?}, {forged}");
            let second = way.pass(&ports::ack(key), 5);
            assert_eq!(second == first, kept || mode != Mode::FullNat, "{mode:?}, {forged}");
        }
    }
}
