//! The speed of the simulator in core-cycles a second: six cores, both directions at line rate, firmware
//! 'rmw', on one host core. The items of the bench are core-cycles: 12 million in 0.2 s are 60 million a second.
//!
//! `cargo bench -p flowyard-nicsim`. The minimum that we accept is 30 million a second.

use divan::Bencher;
use flowyard_nicsim::config::Config;
use flowyard_nicsim::engine::{Engine, Parts};
use flowyard_nicsim::firmware::Builtin;
use flowyard_nicsim::run::image;
use flowyard_nicsim::{Fast, Reference};

fn main() {
    divan::main();
}

/// Simulates `cycles` cycles of six cores after a warm-up.
fn line_rate<E: Engine>(bencher: Bencher<'_, '_>, cycles: u64) {
    let config = Config::default();
    let Ok(image) = image(&config, Builtin::Rmw.elf()) else { return };
    let parts = Parts { config, image, ..Parts::default() };
    bencher
        .counter(divan::counter::ItemsCount::new(6 * cycles))
        .with_inputs(|| {
            let mut engine = E::build(parts.clone());
            let _ = engine.as_mut().map(|engine| engine.run_to(100_000));
            engine
        })
        .bench_local_values(|engine| engine.map(|mut engine| engine.run_to(100_000 + cycles)));
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn fast(bencher: Bencher<'_, '_>) {
    line_rate::<Fast>(bencher, 2_000_000);
}

#[divan::bench(sample_count = 3, sample_size = 1)]
fn reference(bencher: Bencher<'_, '_>) {
    line_rate::<Reference>(bencher, 200_000);
}
