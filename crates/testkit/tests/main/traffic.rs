//! Traffic matches its profile.

use std::collections::HashMap;

use flowyard_frame::{FlowKey, proto};
use flowyard_testkit::{Arrivals, Popularity, Profile, Sizes, Traffic};

const QUIET: Profile = Profile {
    flows: 10,
    popularity: Popularity::Uniform,
    sizes: Sizes::Fixed(100),
    arrivals: Arrivals::Constant,
    rate_pps: 1e6,
    exchanges: 2,
    udp_every: 0,
    ipv6_every: 0,
    start: 0,
};

#[test]
fn equal_seeds_give_equal_traffic() {
    let take = |seed| Traffic::new(Profile::default(), seed).take(500).collect::<Vec<_>>();
    assert_eq!(take(1), take(1));
    assert_ne!(take(1), take(2));
}

#[test]
fn connections_open_talk_and_close() {
    let traffic = Traffic::new(Profile { flows: 1, ..QUIET }, 1);
    let steps: Vec<_> = traffic
        .clone()
        .take(11)
        .map(|(p, frame)| (p.key.tcp_flags, p.reply, frame.len()))
        .collect();
    let (syn, fin, ack) = (FlowKey::SYN, FlowKey::FIN, FlowKey::ACK);
    assert_eq!(
        steps,
        [
            (syn, false, 60),
            (syn | ack, true, 60),
            (ack, false, 60),
            (ack, false, 100),
            (ack, true, 100),
            (ack, false, 100),
            (ack, true, 100),
            (fin | ack, false, 60),
            (fin | ack, true, 60),
            (ack, false, 60),
            (syn, false, 60), // the next connection
        ]
    );
    let keys: Vec<_> = traffic.clone().take(11).map(|(p, _)| p.key).collect();
    assert_eq!(keys[1].flow(), keys[0].flow().reversed());
    assert_eq!(keys[9].flow(), keys[0].flow());
    assert_eq!(keys[10].flow(), traffic.key(0, 1).flow());
    assert_ne!(keys[10].flow(), keys[0].flow());
}

#[test]
fn slots_are_drawn_by_their_popularity() {
    let share = |popularity| {
        let mut counts = vec![0_u32; 100];
        let profile = Profile { flows: 100, popularity, ..QUIET };
        Traffic::new(profile, 3).take(50_000).for_each(|(p, _)| counts[p.slot as usize] += 1);
        counts
    };
    let uniform = share(Popularity::Uniform);
    assert!(uniform.iter().all(|count| (400..600).contains(count)), "{uniform:?}");
    let zipf = share(Popularity::Zipf(1.0));
    let harmonic: f64 = (1..=100).map(|i| 1.0 / f64::from(i)).sum();
    for (i, &count) in zipf.iter().enumerate() {
        let want = 50_000.0 / harmonic / (i + 1) as f64;
        // Six standard deviations of a binomial count.
        assert!(
            (f64::from(count) - want).abs() < 6.0 * want.sqrt(),
            "slot {i}: {count}, not {want}"
        );
    }
}

#[test]
fn packets_come_at_the_rate() {
    for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
        let profile = Profile { arrivals, rate_pps: 4e6, start: 7, ..QUIET };
        let times: Vec<_> = Traffic::new(profile, 5).take(40_001).map(|(p, _)| p.time).collect();
        assert!(times[0] == 7 && times.is_sorted());
        let mean = (times[40_000] - 7) as f64 / 40_000.0;
        let gaps = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64);
        let variance = gaps.map(|gap| (gap - mean).powi(2)).sum::<f64>() / 40_000.0;
        // The standard deviation of an exponential distribution equals its mean.
        let deviation = if arrivals == Arrivals::Constant { 0.0 } else { 250.0 };
        assert!((mean - 250.0).abs() < 7.5, "{mean}");
        assert!((variance.sqrt() - deviation).abs() < 10.0, "{}", variance.sqrt());
    }
}

#[test]
fn sizes_and_kinds_mix() {
    let profile = Profile { popularity: Popularity::Uniform, exchanges: 0, ..Profile::default() };
    let (mut sizes, mut kinds) = (HashMap::new(), HashMap::new());
    for (packet, frame) in Traffic::new(profile, 9).take(60_000) {
        if packet.key.proto == proto::UDP && packet.key.is_ipv4() {
            *sizes.entry(frame.len()).or_insert(0) += 1;
        }
        *kinds.entry((packet.key.proto, packet.key.is_ipv6())).or_insert(0) += 1;
    }
    let total: i32 = sizes.values().sum();
    for (len, of_12) in [(60, 7), (590, 4), (1514, 1)] {
        let share = f64::from(sizes[&len]) / f64::from(total);
        assert!((share - f64::from(of_12) / 12.0).abs() < 0.02, "{len}: {share}");
    }
    assert_eq!((sizes.len(), kinds.len()), (3, 4));
    let udp = kinds[&(proto::UDP, false)] + kinds[&(proto::UDP, true)];
    assert!((14_000..16_000).contains(&udp), "{udp}");
}

#[test]
fn a_million_keys_are_different() {
    let traffic = Traffic::new(Profile { flows: 1 << 20, ..Profile::default() }, 1);
    let mut keys: Vec<_> = (0..1 << 20)
        .map(|slot| {
            let key = traffic.key(slot, 0);
            (key.src, key.dst, key.sport, key.proto)
        })
        .collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 1 << 20);
}
