//! Figures 3, 7 and 8.

use flowyard_report::exhibit::{Kind, Made};
use flowyard_report::{Axis, Plot, Unit, num};

use super::study::Study;
use crate::elf::Image;
use crate::engine::{Access, BuildError, Engine, Parts};
use crate::firmware::Builtin;
use crate::reference::Reference;
use crate::run::{Outcome, RunError, image, udp_limit_gbps};
use crate::study::mesi::{self, Filter};
use crate::sweep::Job;
use crate::time::Freq;

/// Core frequencies of Figure 7, in MHz.
const FREQUENCIES: [u64; 6] = [100, 125, 150, 166, 175, 200];
/// Numbers of cores of Figure 7: one curve each.
const CORES: [u32; 5] = [1, 2, 4, 6, 8];
/// UDP payload bytes of Figure 8.
const SIZES: [u32; 9] = [18, 100, 200, 400, 600, 800, 1000, 1200, 1472];

/// The time after which throughput is steady: the transmit buffer has filled, in microseconds. Figures of
/// throughput need not wait until all descriptors are fetched.
const FILLED_US: u64 = 1000;

/// The range in which the lowest clock for line rate is searched.
const LOWEST_MHZ: u64 = 80;
const HIGHEST_MHZ: u64 = 240;

fn gbps(outcome: &Outcome) -> f64 {
    outcome.udp_gbps()
}

/// Every scratchpad access of 1 ms of firmware 'rmw' on 6 cores of 200 MHz, in the order in which the
/// banks performed them, and the image.
fn access_trace(study: &Study<'_>) -> Result<(Image, Vec<Access>), RunError> {
    let mut job = study.job(Builtin::Rmw);
    job.config.chip.mhz = Freq::mhz(200);
    let image = image(&job.config, job.firmware.elf()).map_err(BuildError::from)?;
    let parts = Parts { config: job.config, image: image.clone(), ..Parts::default() };
    let mut engine = Reference::build(parts)?;
    engine.run_to(60_000)?;
    engine.accesses = Some(Vec::new());
    engine.run_to(260_000)?;
    Ok((image, engine.accesses.take().unwrap_or_default()))
}

pub(super) fn figure3(study: &Study<'_>) -> Result<Made, RunError> {
    let (image, trace) = access_trace(study)?;
    Ok(caches(&image, &trace))
}

pub(super) fn figure7(study: &Study<'_>) -> Result<Made, RunError> {
    let job = |cores: u32, mhz: u64| {
        let mut job = study.job(Builtin::SwOnly);
        (job.config.chip.cores, job.config.chip.mhz) = (cores, Freq::mhz(mhz));
        job.config.run.warmup_us = FILLED_US;
        job
    };
    let mut jobs: Vec<Job> = Vec::new();
    for cores in CORES {
        jobs.extend(FREQUENCIES.map(|mhz| job(cores, mhz)));
    }
    let fast = [650, 700, 750, 800, 850, 900];
    jobs.extend(fast.map(|mhz| job(1, mhz)));
    let outcomes = study.run(&jobs)?;
    let limit = udp_limit_gbps(&jobs[0].config);
    let mut made = Made::of(Kind::Predicted);
    let mut plot = Plot::new(
        "UDP throughput, both directions, 1472-byte datagrams, software-only ordering",
        Axis::linear("core frequency, MHz", Unit::Plain("")),
        Axis::linear("Gb/s", Unit::Plain("")).range(0.0, 20.0),
    );
    for (n, cores) in CORES.into_iter().enumerate() {
        let mut points = Vec::new();
        for (m, mhz) in FREQUENCIES.into_iter().enumerate() {
            let ours = gbps(&outcomes[n * FREQUENCIES.len() + m]);
            // The paper's text gives these as shares of the Ethernet limit.
            let share = match (cores, mhz) {
                (6, 175) => Some(0.963),
                (8, 175) => Some(0.987),
                (6 | 8, 200) => Some(0.99),
                _ => None,
            };
            let named = num::count(cores.into(), "core", "cores");
            made.push_beside(format!("{named}, {mhz} MHz"), share.map(|s| s * limit), ours);
            points.push((mhz as f64, ours));
        }
        plot = plot.line(num::count(cores.into(), "core", "cores"), points);
    }
    let first = CORES.len() * FREQUENCIES.len();
    for (n, mhz) in fast.into_iter().enumerate() {
        let paper = (mhz == 800).then_some(0.99 * limit);
        made.push_beside(format!("1 core, {mhz} MHz"), paper, gbps(&outcomes[first + n]));
    }
    made.plots = vec![plot.limit_y(limit, "Ethernet limit")];
    lowest_clocks(study, &mut made)?;
    Ok(made)
}

/// The lowest clock at which six cores carry 99 % of line rate with each way of ordering, in steps of 5 MHz: what the
/// paper's third mechanism is for (sections 6.1 and 6.3: 200 MHz in software, 166 MHz with RMW).
fn lowest_clocks(study: &Study<'_>, made: &mut Made) -> Result<(), RunError> {
    let mut lowest = [0.0; 2];
    for (n, firmware) in [Builtin::SwOnly, Builtin::Rmw].into_iter().enumerate() {
        let (mut low, mut high) = (LOWEST_MHZ, HIGHEST_MHZ); // `low` is too slow, `high` is fast enough
        while high - low > 5 {
            let mhz = low + (high - low) / 10 * 5;
            let mut job = study.job(firmware);
            (job.config.chip.mhz, job.config.run.warmup_us) = (Freq::mhz(mhz), FILLED_US);
            let outcome = &study.run(&[job])?[0];
            let enough = outcome.udp_gbps() >= 0.99 * outcome.udp_limit_gbps();
            (low, high) = if enough { (low, mhz) } else { (mhz, high) };
        }
        lowest[n] = high as f64;
    }
    made.push("6 cores, software-only: lowest clock for line rate, MHz", lowest[0]);
    made.push("6 cores, RMW: lowest clock for line rate, MHz", lowest[1]);
    made.push("RMW: lowest clock as a share of software-only's", lowest[1] / lowest[0]);
    Ok(())
}

pub(super) fn figure8(study: &Study<'_>) -> Result<Made, RunError> {
    let mut jobs = Vec::new();
    for firmware in [Builtin::SwOnly, Builtin::Rmw] {
        for size in SIZES {
            let mut job = study.job(firmware);
            job.config.run.warmup_us = FILLED_US;
            job.config.load.udp_bytes = vec![size];
            jobs.push(job);
        }
    }
    let outcomes = study.run(&jobs)?;
    let mut made = Made::of(Kind::Predicted);
    let mut plot = Plot::new(
        "UDP throughput, both directions",
        Axis::linear("UDP datagram, bytes", Unit::Plain("")),
        Axis::linear("Gb/s", Unit::Plain("")).range(0.0, 20.0),
    );
    let names = ["software-only, 200 MHz", "RMW, 166.67 MHz"];
    let mut peaks = [0.0f64; 2];
    for (n, name) in names.into_iter().enumerate() {
        let mut points = Vec::new();
        for (m, size) in SIZES.into_iter().enumerate() {
            let outcome = &outcomes[n * SIZES.len() + m];
            // The paper's text: small frames saturate at 2.2 M frames/s, large ones at the link.
            let limit = outcome.udp_limit_gbps();
            let paper = (2.2e6 * f64::from(size) * 8.0 / 1e9).min(limit);
            made.push_beside(format!("{name}: {size} B"), paper, gbps(outcome));
            points.push((f64::from(size), gbps(outcome)));
            if size <= 800 {
                peaks[n] = peaks[n].max(outcome.frames_per_second() / 1e6);
            }
        }
        plot = plot.line(name, points);
    }
    let limits = SIZES.map(|size| {
        let job = jobs.iter().find(|job| job.config.load.udp_bytes == [size]);
        (f64::from(size), job.map_or(0.0, |job| udp_limit_gbps(&job.config)))
    });
    made.plots = vec![plot.line("Ethernet limit", limits.to_vec())];
    for (n, name) in names.into_iter().enumerate() {
        made.push(format!("{name}: saturated, M frames/s"), peaks[n]);
    }
    made.push("RMW below software-only, saturated, %", 100.0 * (1.0 - peaks[1] / peaks[0]));
    Ok(made)
}

/// Figure 3 of any trace of accesses of firmware `image`.
pub(super) fn caches(image: &Image, trace: &[Access]) -> Made {
    let mut made = Made::of(Kind::Predicted);
    let sizes: Vec<u32> = (4..=15).map(|n| 1 << n).collect();
    let mut plot = Plot::new(
        "Collective hit ratio, eight MESI caches",
        Axis::categories("bytes in each cache", sizes.iter().map(ToString::to_string)),
        Axis::linear("hits", Unit::Share).range(0.0, 1.0),
    );
    for filter in Filter::ALL {
        let accesses = filter.keep(image, trace);
        let mut ratios = Vec::new();
        for &size in &sizes {
            let result = mesi::simulate(&accesses, size);
            let hits = result.hits as f64 / (result.accesses as f64).max(1.0);
            let taken = result.invalidating as f64 / (result.writes as f64).max(1.0);
            made.push(format!("{}: {size} B: hits", filter.name()), 100.0 * hits);
            let name = format!("{}: {size} B: writes that invalidate", filter.name());
            made.push(name, 100.0 * taken);
            ratios.push(hits);
        }
        let points = ratios.into_iter().enumerate().map(|(n, hits)| (n as f64, hits));
        plot = plot.line(filter.name(), points.collect::<Vec<_>>());
    }
    made.plots = vec![plot.limit_y(0.55, "the paper's plateau")];
    made
}
