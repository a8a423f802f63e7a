//! The buckets that all cores share.

use super::*;

fn meter(number: u32, rate: u32) -> Change {
    let bands = vec![Band::Drop { rate, burst: 1 }];
    let config = MeterConfig { flags: meter_flags::PKTPS, meter: number, bands };
    Change::Meter(Arc::new(Meter { config, counts: counts(3), bands: counts(3) }))
}

/// Whatever the order in which cores apply changes, no buckets stay when the meters are gone.
#[test]
fn buckets_of_meters_that_are_gone_are_removed() {
    let shared: Shared = Arc::default();
    let settings = settings(Lookup::Merged, 64);
    let mut cores: Vec<_> = (0..3).map(|core| Datapath::one(core, &settings, &shared)).collect();
    let changes: Vec<_> = (1..=20)
        .flat_map(|number| [meter(number, 5), meter(number, 6)])
        .chain((1..=20).map(Change::MeterGone))
        .collect();
    let mut out = Effects::new(0);
    let mut rng = flowyard_testkit::Rng::new(5);
    let mut at = [0; 3];
    let mut most = 0;
    while at.iter().any(|at| *at < changes.len()) {
        let core = rng.bits() as usize % 3;
        if let Some(change) = changes.get(at[core]) {
            at[core] += 1;
            cores[core].apply(at[core] as u64, change, 0, &mut out);
            most = most.max(shared.lock().expect("no panic").len());
        }
    }
    assert_eq!((most, shared.lock().expect("no panic").len()), (20, 0));
}
