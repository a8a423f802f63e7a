//! The fast engine has the same counters as the reference engine on random machines.

use flowyard_nicsim::config::{Branch, Config};
use flowyard_nicsim::firmware::Builtin;
use flowyard_nicsim::run::builtin;
use flowyard_nicsim::time::Freq;
use flowyard_nicsim::{Fast, Reference};
use proptest::prelude::*;

fn config() -> impl Strategy<Value = Config> {
    let chip = (1u32..=9, 60u64..=400, 0u32..=4, 0u32..=3, any::<bool>(), 10u32..=13, 1u32..=2);
    let more = (any::<bool>(), 1u32..=4, 0u32..=3, 1u32..=12, 0u64..=3000);
    let memory = (100u64..=600, 0u32..=8, 0u32..=30, 0u32..=40);
    let load =
        (18u32..=1472, prop::bool::weighted(0.9), prop::bool::weighted(0.9), 1u32..=8, 1u32..=100);
    (chip, more, memory, load).prop_map(|(chip, more, memory, load)| {
        let mut config = Config::default();
        let c = &mut config.chip;
        (c.cores, c.mhz) = (chip.0, Freq::mhz(chip.1));
        (c.banks, c.interleave_bytes) = (1 << chip.2, 4 << chip.3);
        c.branch = if chip.4 { Branch::Predict } else { Branch::Stall };
        (c.icache_bytes, c.icache_ways) = (1 << chip.5, chip.6);
        c.set_posted = more.0;
        config.assist.gap_cycles = more.1;
        c.imem_overhead_cycles = more.2;
        (c.mult_cycles, c.div_cycles) = (more.3, 2 * more.3);
        config.assist.dma_latency_ns = more.4;
        let s = &mut config.sdram;
        (s.mhz, s.burst_overhead_cycles) = (Freq::mhz(memory.0), memory.1);
        (s.row_miss_cycles, s.bank_conflict_cycles) = (memory.2, memory.3);
        config.load.udp_bytes = vec![load.0, 18, 1472];
        (config.load.send, config.load.receive) = (load.1, load.2);
        config.firmware.bundle = load.3;
        config.load.receive_share = f64::from(load.4) / 100.0;
        (config.run.warmup_us, config.run.measure_us) = (31, 300);
        config
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, max_shrink_iters: 40, ..ProptestConfig::default() })]

    #[test]
    fn both_engines_count_the_same(config in config(), firmware in 0usize..5) {
        let firmware = Builtin::ALL[firmware];
        let mut config = config;
        if firmware == Builtin::Steer {
            (config.host.queues, config.firmware.steer, config.firmware.filters) = (3, 3, 5);
        }
        if firmware == Builtin::Ideal {
            config.chip.cores = 1;
        }
        let slow = builtin::<Reference>(&config, firmware).unwrap();
        let fast = builtin::<Fast>(&config, firmware).unwrap();
        prop_assert_eq!(&slow.window.cores, &fast.window.cores);
        prop_assert_eq!(&slow.end.devices, &fast.end.devices);
        prop_assert_eq!(slow.end, fast.end);
        prop_assert_eq!(slow.window, fast.window);
    }
}
