//! The Lanner paper: two platforms that forward frames.

use flowyard_report::exhibit::{Kind, Made, Spec};
use flowyard_report::{Axis, Plot, Unit};

use super::context::{Context, FigureError};
use crate::forward::{line_pps, machine_pps};
use crate::machine::Machine;
use crate::profile::Profile;

const SIZES: [u64; 7] = [64, 128, 256, 512, 1024, 1280, 1518];

struct Platform {
    name: &'static str,
    machine: Machine,
    frame_ns: f64,
    share: f64,
    /// The inputs of its costs.
    inputs: &'static [&'static str],
}

/// The inputs of the ratio of the platforms, which is one multiplication and one division where the cores
/// are the limit, and 0 where the link is. The cost of a frame decides which of the two is.
const RATIO: [&str; 5] = ["frame_cycles", "new_gain", "new_mhz", "old_mhz", "sibling_share"];

/// The older and the newer platform.
fn platforms(profile: &Profile) -> Result<[Platform; 2], FigureError> {
    let get = |name: &str| profile.get(name);
    let (cycles, share) = (get("frame_cycles")?, get("sibling_share")?);
    let old = Machine { sockets: 1, cores: 2, threads: 2 };
    Ok([
        Platform {
            name: "i5-660",
            machine: old,
            frame_ns: 1000.0 * cycles / get("old_mhz")?,
            share,
            inputs: &["frame_cycles", "old_mhz", "sibling_share"],
        },
        Platform {
            name: "i5-2400",
            machine: profile.machine,
            frame_ns: 1000.0 * cycles / get("new_gain")? / get("new_mhz")?,
            share,
            inputs: &["frame_cycles", "new_gain", "new_mhz"],
        },
    ])
}

impl Platform {
    /// The total of frames a second when processor `n mod over` polls ring `n` of `offered`.
    fn pps(&self, offered: &[f64], over: u16, seconds: f64) -> f64 {
        let cpus = usize::from(self.machine.cpus());
        let mut rings = vec![Vec::new(); cpus];
        for (n, &pps) in offered.iter().enumerate() {
            rings[n % usize::from(over)].push(pps);
        }
        let sibling = |cpu: usize| self.machine.sibling(cpu as u16).map(usize::from);
        machine_pps(&rings, &[self.frame_ns], self.share, sibling, seconds)
    }
}

pub(super) fn gigabit(context: &Context, _: &Spec) -> Result<Made, FigureError> {
    let profile = context.profile("lanner")?;
    if profile.machine.cpus() < 4 {
        let needs = "at least 4 processors";
        return Err(FigureError::Machine { profile: profile.name, needs });
    }
    let platforms = platforms(&profile)?;
    let mut made = Made::default();
    let mut plots = Vec::new();
    for (ports, over, how) in [
        (2u16, 2u16, "2 ports"),
        (4, 2, "4 ports, interrupts on 2 cores"),
        (4, 4, "4 ports, interrupts on all"),
    ] {
        let mut plot = Plot::new(
            format!("{how}, 1 Gb/s each"),
            Axis::categories("frame, bytes", SIZES.map(|size| size.to_string())),
            Axis::linear("of line rate", Unit::Share).range(0.0, 1.0),
        );
        let mut at64 = Vec::new();
        for platform in &platforms {
            made.using(Kind::Predicted, profile.inputs(platform.inputs));
            let mut bars = Vec::new();
            for size in SIZES {
                let line = line_pps(1e9, size);
                let pps = platform.pps(&vec![line; usize::from(ports)], over, 0.2);
                let share = pps / (line * f64::from(ports));
                made.push(
                    format!("{}, {how}, {size} B: % of line rate", platform.name),
                    100.0 * share,
                );
                bars.push(share);
                if size == 64 {
                    at64.push(pps);
                }
            }
            plot = plot.bars(platform.name, bars);
        }
        made.using(Kind::Arithmetic, profile.inputs(&RATIO));
        made.push(
            format!("{how}, 64 B: i5-2400 over i5-660, %"),
            100.0 * (at64[1] / at64[0] - 1.0),
        );
        plots.push(plot);
    }
    made.plots = plots;
    Ok(made)
}

pub(super) fn ten_gigabit(context: &Context, _: &Spec) -> Result<Made, FigureError> {
    let profile = context.profile("lanner")?;
    let platforms = platforms(&profile)?;
    let mut made = Made::default();
    let mut plot = Plot::new(
        "2 ports of 10 Gb/s, one queue a processor",
        Axis::categories("frame, bytes", SIZES.map(|size| size.to_string())),
        Axis::linear("Gb/s of frames, both ways", Unit::Plain("")),
    );
    let mut both = Vec::new();
    for platform in &platforms {
        made.using(Kind::Predicted, profile.inputs(platform.inputs));
        let cpus = platform.machine.cpus();
        let mut bars = Vec::new();
        for size in SIZES {
            let line = line_pps(1e10, size);
            // Each port distributes its frames over all processors.
            let offered = vec![line / f64::from(cpus); 2 * usize::from(cpus)];
            let gbps = platform.pps(&offered, cpus, 30.0) * size as f64 * 8.0 / 1e9;
            made.push(format!("{}, {size} B: Gb/s", platform.name), gbps);
            bars.push(gbps);
        }
        plot = plot.bars(platform.name, bars.clone());
        both.push(bars);
    }
    made.using(Kind::Arithmetic, profile.inputs(&RATIO));
    for (n, size) in SIZES.into_iter().enumerate() {
        made.push(
            format!("{size} B: i5-2400 over i5-660, %"),
            100.0 * (both[1][n] / both[0][n] - 1.0),
        );
    }
    made.plots = vec![plot];
    Ok(made)
}
