//! Published measurements and computations, reproduced with the models.

use flowyard_adapter::atr::{Atr82599, Transmit};
use flowyard_adapter::fdir::Pballoc;
use flowyard_adapter::profile::Profile;
use flowyard_adapter::rss::{Rss, RssConfig};
use flowyard_frame::Rng;
use flowyard_frame::{FlowKey, Nanos};

use crate::common::{exponential, random_flow};

flowyard_testkit::tests! {
    churn_flushes_the_table_every_few_milliseconds,
    a_longer_sample_interval_reorders_less,
    flows_fall_into_queues_like_balls_into_bins,
}

const SECOND: Nanos = 1_000_000_000;

/// Seconds between flushes of an ATR table with `rate` new connections per second, each of which the
/// server answers with one SYN.
fn reinit_period(rate: u64) -> f64 {
    let mut atr = Atr82599::new(16, 20, Pballoc::K64).expect("16 rings");
    let (mut rng, mut now, mut flushes, mut started) = (Rng::new(1), 0, vec![], true);
    while flushes.len() < 6 {
        now += SECOND / rate;
        let syn =
            FlowKey { tcp_flags: FlowKey::SYN | FlowKey::ACK, ..random_flow(&mut rng).reversed() };
        let ring = rng.below(16) as u16;
        let sent = atr.transmit(ring, &syn, now);
        if atr.is_flushing() && started {
            flushes.push(now);
        }
        started = sent != Transmit::Off && !atr.is_flushing();
    }
    assert!(atr.stats().flushes >= 5);
    (flushes[5] - flushes[0]) as f64 / 5.0 / SECOND as f64
}

/// With one connection per request the whole table is flushed every (8191 - 64) / rate: every 81 ms
/// at 100 000 connections per second, every 17 ms at the 470 000 of Fastsocket.
fn churn_flushes_the_table_every_few_milliseconds() {
    for (rate, expected) in [(100_000, 0.081), (470_000, 0.017)] {
        let (period, exact) = (reinit_period(rate), (8191.0 - 64.0) / rate as f64);
        flowyard_testkit::note!("{rate} connections/s: a flush every {:.2} ms", period * 1e3);
        // 60 us of each period are the flush itself. A few pairs of flows share a filter.
        assert!((period - exact - 60e-6).abs() < 0.01 * exact, "{period} against {exact}");
        assert!((period - expected).abs() < 0.03 * expected, "{period} against {expected}");
    }
}

/// Reorder events per minute of one bulk TCP flow into a host whose scheduler moves the receiving
/// thread.
///
/// The model: the thread sends an ACK every `1 / ACKS` seconds from the ring of its core. It stays on
/// a core for an exponentially distributed time and then moves to another of 16 cores. Between two
/// ACKs a burst of data arrives and waits in its queue. A queue is first in, first out; its waiting
/// time is exponentially distributed and drawn again every 10 ms. A reorder event is a burst that is
/// done before an earlier one.
///
/// `ACKS` and `STAY_NS` are fitted to the two published counts, because neither is published.
/// Therefore agreement with these counts is not evidence. The shape of the curve does not depend on
/// the fit. If the sample rate is far below the number of ACKs in a stay, every move is learned and
/// the count does not depend on the rate. If it is far above, at most one move per `rate` ACKs is
/// learned, moves in between have no effect, and the count falls as 1 / rate.
fn reorder_events(sample_rate: u32, seconds: u64) -> f64 {
    const ACKS: u64 = 273_000;
    const STAY_NS: f64 = 4.2e6;
    const WAIT_NS: f64 = 100e3;
    let mut atr = Atr82599::new(16, sample_rate, Pballoc::K64).expect("16 rings");
    let mut rng = Rng::new(42);
    let data = FlowKey { tcp_flags: FlowKey::ACK, ..random_flow(&mut rng) };
    let ack = data.reversed();
    let (mut now, mut core, mut leaves, mut redrawn) = (0, 0_u16, 0.0, 0);
    let (mut waits, mut free_at, mut done, mut events) = ([0.0; 16], [0.0; 16], 0.0_f64, 0_u32);
    let mut behind = false;
    while now < seconds * SECOND {
        now += SECOND / ACKS;
        let time = now as f64;
        if time >= leaves {
            core = (core + 1 + rng.below(15) as u16) % 16;
            leaves = time + exponential(&mut rng, STAY_NS);
        }
        if now >= redrawn {
            waits = std::array::from_fn(|_| exponential(&mut rng, WAIT_NS));
            redrawn = now + 10_000_000;
        }
        let queue = usize::from(atr.receive(&data, now).unwrap_or(0));
        let out = f64::max(free_at[queue], time + waits[queue]);
        free_at[queue] = out;
        events += u32::from(out < done && !behind); // one event for each overtaking queue
        behind = out < done;
        done = done.max(out);
        atr.transmit(core, &ack, now);
    }
    f64::from(events) * 60.0 / seconds as f64
}

/// Published for i40e with iperf3 for 60 s: about 7000 reorder events at sample rate 20 and 769 at
/// 10 000, which is a ratio of 9.1 (intel-wired-lan, 2026).
fn a_longer_sample_interval_reorders_less() {
    let often = reorder_events(20, 20);
    let seldom = reorder_events(10_000, 20);
    flowyard_testkit::note!("reorder events in 60 s: rate 20: {often}, rate 10 000: {seldom}");
    flowyard_testkit::note!("ratio {:.1}, published 9.1", often / seldom);
    assert!((often - 7000.0).abs() < 0.15 * 7000.0, "{often}");
    assert!((often / seldom - 9.1).abs() < 0.2 * 9.1, "{}", often / seldom);
    // The shape of the curve, which does not depend on the fit.
    let (ten, thousand) = (reorder_events(10, 6), reorder_events(100_000, 20));
    assert!((ten - often).abs() < 0.15 * often, "constant while every move is learned: {ten}");
    let tenth = seldom / thousand;
    assert!((6.0..16.0).contains(&tenth), "1/rate when few moves are learned: {tenth}");
    assert_eq!(reorder_events(0, 1), 0.0, "without ATR the flow never moves");
}

/// The ratio of the fullest queue to the mean queue, averaged over `trials` sets of random flows.
fn imbalance(name: &str, queues: u16, flows: u32, trials: u32) -> f64 {
    let profile = Profile::find(name).expect(name);
    let rss = Rss::new(profile, queues, RssConfig::default()).expect(name);
    assert_eq!(rss.queues(), queues);
    let mut rng = Rng::new(2024);
    let mut sum = 0.0;
    for _ in 0..trials {
        let mut counts = vec![0_u32; usize::from(queues)];
        for _ in 0..flows {
            counts[usize::from(rss.queue(rss.hash(&random_flow(&mut rng))))] += 1;
        }
        let fullest = counts.iter().max().copied().unwrap_or(0);
        sum += f64::from(fullest) * f64::from(queues) / f64::from(flows);
    }
    sum / f64::from(trials)
}

/// RSS distributes the 120 connections of the memcached test as balls in bins: the fullest of 16
/// queues has 1.69 times the mean, the fullest of 32 queues 2.20 times.
fn flows_fall_into_queues_like_balls_into_bins() {
    for (name, queues, flows, trials, expected) in [
        ("82599", 16, 120, 4000, 1.69),
        ("x710", 32, 120, 4000, 2.20),
        ("82599", 16, 1000, 800, 1.23),
        ("82599", 16, 10_000, 100, 1.07),
    ] {
        let found = imbalance(name, queues, flows, trials);
        flowyard_testkit::note!(
            "{flows} flows on {queues} queues: max/mean {found:.3}, expected {expected}"
        );
        assert!((found - expected).abs() < 0.02 * expected, "{found} against {expected}");
    }
}
