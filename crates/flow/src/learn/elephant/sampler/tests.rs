use std::collections::HashMap;

use flowyard_frame::{Frame, LANES};
use flowyard_testkit::{Popularity, Profile, Sizes, Traffic};
use proptest::prelude::*;

use super::*;
use crate::Secret;

/// The reference model: counts the bytes of every frame.
#[derive(Default)]
struct Model {
    bytes: HashMap<FlowKey, f64>,
    total: f64,
}

impl Model {
    fn count(&mut self, key: &FlowKey, bytes: usize) {
        *self.bytes.entry(key.flow()).or_default() += bytes as f64;
        self.total += bytes as f64;
    }

    fn halve(&mut self) {
        self.bytes.values_mut().for_each(|bytes| *bytes /= 2.0);
        self.total /= 2.0;
    }

    fn share(&self, key: &FlowKey) -> f64 {
        self.bytes.get(key).map_or(0.0, |bytes| bytes / self.total)
    }
}

fn flow(n: u32) -> FlowKey {
    let ip = std::net::Ipv4Addr::from_bits;
    FlowKey::five_tuple(6, ip(0x0a00_0000 + n).into(), 4000, ip(0x0a80_0001).into(), 80)
}

fn batch(frames: &[(u32, u16)]) -> Batch {
    let mut batch = Batch::default();
    for &(n, len) in frames {
        let mut frame = Frame::unbacked(len);
        frame.hash = n;
        batch.push(frame, flow(n)).unwrap();
    }
    batch
}

#[test]
fn the_sketch_is_four_kib() {
    assert_eq!(size_of::<Set>() * SETS, 4096);
    assert_eq!(align_of::<Set>(), 64);
}

#[test]
fn one_of_64_is_sampled_whatever_the_period() {
    for period in [1, 2, 64, 128] {
        let mut sampler = Sampler::new(64, 64, 7);
        let frames: Vec<_> = (0..128).map(|n| (n % period, 100)).collect();
        let batches: Vec<_> = frames.chunks(LANES).map(batch).collect();
        for _ in 0..2000 {
            for batch in &batches {
                sampler.sample(batch, batch.lanes());
            }
        }
        let mut seen = Seen::default();
        sampler.window(&mut seen);
        assert_eq!(seen.frames, 256_000);
        assert!((3900..4100).contains(&seen.samples), "{} samples", seen.samples);
        assert_eq!(seen.bytes, 100 * seen.samples);
        assert_eq!(seen.entries.iter().map(|&b| u64::from(b)).sum::<u64>(), seen.bytes);
        // The bytes are spread evenly over 64 entries, or over one entry for each flow.
        let flows = period.min(64);
        let even = seen.bytes as f64 / f64::from(flows);
        for &bytes in &seen.entries[..flows as usize] {
            let part = f64::from(bytes) / even;
            assert!((0.4..1.8).contains(&part), "period {period}: {part}");
        }
    }
}

#[test]
fn only_the_lanes_asked_for_count() {
    let mut sampler = Sampler::new(1, 8, 1);
    sampler.sample(&batch(&[(1, 10), (2, 20), (3, 40), (4, 80)]), Lanes(0b1010));
    let mut seen = Seen::default();
    sampler.window(&mut seen);
    let flows: Vec<_> = seen.flows.iter().map(|flow| (flow.hash, flow.bytes)).collect();
    assert_eq!((seen.frames, seen.bytes, flows), (2, 100, vec![(4, 80), (2, 20)]));
    assert_eq!(seen.entries, [0, 0, 20, 0, 80, 0, 0, 0]);
    sampler.window(&mut seen);
    assert_eq!((seen.frames, seen.bytes, seen.entries[4]), (0, 50, 40), "halved");
}

/// Recall and false positives for flows with at least a percent of the bytes, in three mixes that are
/// hard to count in little memory. One window of half a million frames.
#[test]
fn elephants_are_found_and_mice_are_not() {
    let uniform = Popularity::Uniform;
    std::thread::scope(|scope| {
        scope.spawn(|| find("Zipf 1.0, 200,000 slots", 200_000, Popularity::Zipf(1.0), 0, 8));
        scope.spawn(|| find("Zipf 1.1, 1 M slots", 1 << 20, Popularity::Zipf(1.1), 0, 11));
        scope.spawn(|| find("1 M mice and two elephants", 1 << 20, uniform, 2, 2));
    });
}

/// `planted` flows are elephants in any case; `wanted` flows have a percent of the bytes.
fn find(name: &str, flows: u32, popularity: Popularity, planted: u32, wanted: usize) {
    let profile =
        Profile { flows, popularity, sizes: Sizes::Imix, exchanges: 0, ..Profile::default() };
    let mut traffic = Traffic::new(profile, 11);
    let (mut sampler, mut model) = (Sampler::new(64, 512, 5), Model::default());
    let (mut bytes, mut frames, mut seen) = (Vec::new(), 0, Seen::default());
    while frames < 1 << 19 {
        let mut batch = Batch::default();
        for lane in 0..LANES as u32 {
            // One lane of a batch (3 %) for each planted elephant.
            let (key, len) = if lane < planted {
                (flow(lane), 500)
            } else {
                let key = traffic.next_into(&mut bytes).key;
                (key, bytes.len())
            };
            model.count(&key, len);
            batch.push(Frame::unbacked(len as u16), key).unwrap();
        }
        sampler.sample(&batch, batch.lanes());
        frames += LANES;
    }
    sampler.window(&mut seen);
    let limit = 0.01 * seen.bytes as f64;
    let promoted: Vec<_> =
        seen.flows.iter().filter(|flow| f64::from(flow.at_least) >= limit).collect();
    let found = |key: &FlowKey| promoted.iter().any(|flow| flow.key == *key);
    let elephants: Vec<_> = model.bytes.keys().filter(|key| model.share(key) >= 0.01).collect();
    let missed: Vec<_> =
        elephants.iter().filter(|key| !found(key)).map(|key| model.share(key)).collect();
    println!("{name}: {} of {}", elephants.len() - missed.len(), elephants.len());
    assert_eq!(elephants.len(), wanted, "{name}");
    assert!(missed.len() <= 1, "{name}: {missed:?}");
    assert!(
        missed.iter().all(|&share| share < 0.0125),
        "{name}: missed, and not close to the limit: {missed:?}"
    );
    for flow in promoted {
        assert!(model.share(&flow.key) >= 0.0075, "{name}: {} is no elephant", flow.key);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// The same frames are sampled, however they are divided into batches and lanes.
    #[test]
    fn gaps_do_not_depend_on_batches(
        lanes in prop::collection::vec(any::<u32>(), 1..60),
        every in 1..80_u32,
        seed in any::<u64>(),
    ) {
        let (mut cut, mut single) = (Sampler::new(every, 64, seed), Sampler::new(every, 64, seed));
        let frames: Vec<_> = (0..LANES as u32).map(|n| (n, 100 + n as u16)).collect();
        let whole = batch(&frames);
        for lanes in lanes {
            cut.sample(&whole, Lanes(lanes));
            for lane in Lanes(lanes) {
                single.sample(&batch(&frames[lane..=lane]), Lanes(1));
            }
            prop_assert_eq!((cut.skip, cut.bytes), (single.skip, single.bytes));
        }
        let mut seen = [Seen::default(), Seen::default()];
        cut.window(&mut seen[0]);
        single.window(&mut seen[1]);
        prop_assert_eq!(&seen[0], &seen[1]);
    }

    /// With every frame sampled the bounds of Space-Saving hold for any traffic.
    #[test]
    fn bounds_hold(
        steps in prop::collection::vec(
            prop::collection::vec((prop_oneof![0..8_u32, 0..2000_u32], 1..1514_u16), 1..32), 1..100),
        window in 1..40_usize,
        seed in any::<u64>(),
    ) {
        let (mut sampler, mut model) = (Sampler::new(1, 64, seed), Model::default());
        for (n, frames) in steps.iter().enumerate() {
            let batch = batch(frames);
            sampler.sample(&batch, batch.lanes());
            frames.iter().for_each(|&(n, len)| model.count(&flow(n), len.into()));
            // The bounds depend on all batches so far, so that most of the checks can be left out.
            let window_ends = n % window == window - 1;
            if !window_ends && n % 8 != 0 && n + 1 != steps.len() {
                continue;
            }
            let mut held = HashMap::new();
            for (at, (way, (key, _))) in
                sampler.sets.iter().flat_map(|s| &s.0).zip(&sampler.keys).enumerate()
            {
                if way.bytes > 0 {
                    let exact = model.bytes[key];
                    let [low, high] = [way.bytes - way.over, way.bytes].map(f64::from);
                    prop_assert!(low <= exact && exact <= high, "{low} {exact} {high}");
                    prop_assert!(held.insert(*key, at).is_none(), "held once");
                }
            }
            for (key, exact) in &model.bytes {
                if !held.contains_key(key) {
                    let set = sampler.mix.slim(&words(key).0) as usize % SETS;
                    let least = sampler.sets[set].0.iter().map(|way| way.bytes).min().unwrap();
                    prop_assert!(*exact <= f64::from(least));
                }
            }
            if window_ends {
                sampler.window(&mut Seen::default());
                model.halve();
            }
        }
    }
}

/// Flows of one set replace each other. An adversary who knows the key can compute them; with a secret key they
/// replace each other no more often than other flows.
#[test]
fn crafted_flows_are_replaced_as_often_as_others() {
    const COUNT: usize = 128;
    let known = Mix::new(Secret::FIXED.key("sampler"));
    let set = |n: &u32| known.slim(&words(&flow(*n).flow()).0) as usize % SETS;
    let crafted: Vec<_> = (0..).filter(|n| set(n) == set(&0)).take(COUNT).collect();
    let others: Vec<_> = (1 << 20..).step_by(3).take(COUNT).collect();
    let replaced = |seed: u64, flows: &[u32]| {
        let mut sampler = Sampler::new(1, 64, seed);
        for n in flows {
            let batch = batch(&[(*n, 60)]);
            sampler.sample(&batch, batch.lanes());
        }
        let held = sampler.sets.iter().flat_map(|set| &set.0).filter(|way| way.bytes > 0).count();
        COUNT - held
    };
    assert_eq!(replaced(Secret::FIXED.key("sampler"), &crafted), COUNT - WAYS);
    let of_all = |flows: &[u32]| -> Vec<usize> {
        (2..100).map(|byte| replaced(Secret::drawn([byte; 16]).key("sampler"), flows)).collect()
    };
    let mut usual = of_all(&others);
    usual.sort_unstable();
    let (median, all) = (usual[usual.len() / 2], of_all(&crafted));
    let mean = all.iter().sum::<usize>() as f64 / all.len() as f64;
    assert!(median > 0 && mean <= 2.0 * median as f64, "{all:?}, usual {median}");
}
