//! Checks of the tester itself in real time.
//!
//! ```text
//!  on_cable       a ───────── b         a cable: measures the tester's own rate
//!  around_faults  a ── c [X] d ── b     X is the faulty device, run by a thread
//! ```

use std::sync::atomic::{AtomicBool, Ordering};

use flowyard_frame::Nanos;
use flowyard_rfc2544::dut::{Faults, Faulty, Truth};
use flowyard_rfc2544::line::{Line, Load};
use flowyard_rfc2544::profile::{Profile, Test};
use flowyard_rfc2544::qualify::{Check, faulty, loopback, modes};
use flowyard_rfc2544::setup::{Setup, Topology, Waits};
use flowyard_rfc2544::suite::{self, NoJournal};
use flowyard_rfc2544::tag::{self, Cover, Seen};
use flowyard_rfc2544::tester::{Measure, RealTester, Wire};
use flowyard_rfc2544::traffic::{Addresses, Genome, Spec};
use flowyard_rfc2544::{Dut, Trial};
use flowyard_yard::Clock;

use super::port::{Kind, LiveBench, Port};
use crate::Error;

/// Interfaces and trials of the checks.
#[derive(Clone, Debug)]
pub struct Job {
    /// The tester's two interfaces.
    pub interfaces: Vec<String>,
    /// The kind of socket.
    pub kind: Kind,
    /// Skips the isolation check.
    pub is_isolated: bool,
    /// Frame sizes.
    pub sizes: Vec<Genome>,
    /// Duration of each trial.
    pub trial: Nanos,
    /// Number of times that each rate is searched.
    pub repeats: u32,
    /// Sends in one direction only.
    pub is_uni: bool,
}

/// The checks, and the tester's own highest rate by frame size.
pub type Shown = (Vec<Check>, Vec<(Genome, Load)>);

/// Checks T1, T2, T5 and T6 of docs/bench.md, on a cable.
///
/// # Errors
///
/// When an interface cannot be used, or a trial fails.
pub fn on_cable(job: &Job, clock: &Clock) -> Result<Shown, Error> {
    let profile = Profile {
        sizes: job.sizes.clone(),
        tests: vec![Test::Throughput],
        topology: if job.is_uni { Topology::Uni } else { Topology::Pairs(2) },
        ..Profile::rfc2544(Line::GBIT_10).brief(job.trial, job.repeats)
    };
    let now = || clock();
    let wires = Port::open_all(&job.interfaces, job.kind, job.is_isolated)?;
    let mut bench = LiveBench { wires, clock: &now, reset: None };
    let results = suite::run(&profile, &mut bench, &mut NoJournal, &mut |_: &suite::Progress| ());
    Ok(loopback(&results?))
}

/// Check T9 of docs/bench.md, in real time.
/// The faulty device runs between the two interfaces `device`.
///
/// # Errors
///
/// When an interface cannot be used, a trial fails, or the device itself misses frames.
pub fn around_faults(job: &Job, device: &[String], clock: &Clock) -> Result<Vec<Check>, Error> {
    let now = || clock();
    let mut wires = Port::open_all(&job.interfaces, job.kind, job.is_isolated)?;
    let mut ports = Port::open_all(device, Kind::AfPacket, job.is_isolated)?;
    let mut checks = Vec::new();
    for (mode, faults) in modes() {
        for size in job.sizes.iter().filter_map(Genome::single) {
            let spec = Spec { flows: 3, addresses: Addresses::Random, ..Spec::fixed(size) };
            let Waits { settle, residue, rest } = Waits::SHORT;
            let setup = Setup {
                learning: false,
                settle,
                residue,
                rest,
                ..Setup::new(Line::GBIT_1, Topology::Uni, spec)
            };
            let mut tester = RealTester::new(&mut wires, &now, setup)?;
            let is_over = AtomicBool::new(false);
            let trial = Trial::new(Load::from_pps(4000.0), job.trial);
            let (truth, result) = std::thread::scope(|scope| {
                let thread = scope.spawn(|| run_device(&mut ports, faults, 1, clock, &is_over));
                let result = tester.measure(&trial);
                is_over.store(true, Ordering::Release);
                (thread.join(), result)
            });
            let truth = truth
                .map_err(|_| anyhow::anyhow!("the faulty device panicked"))?
                .map_err(anyhow::Error::msg)?;
            checks.push(faulty(mode, size, &result?.counts, &truth));
        }
    }
    Ok(checks)
}

/// Runs the faulty device on two ports until `is_over`.
fn run_device(
    ports: &mut [Port],
    faults: Faults,
    seed: u64,
    clock: &Clock,
    is_over: &AtomicBool,
) -> Result<Truth, String> {
    let mut device = Faulty::new(2, faults, seed);
    let mut out = Vec::new();
    while !is_over.load(Ordering::Acquire) {
        let mut seen = false;
        for (port, wire) in ports.iter_mut().enumerate() {
            wire.receive(&mut |frame| {
                seen = true;
                // The kernel's own frames, such as IPv6 router solicitations, are not the tester's.
                if tag::read(frame, Cover::Frame) != Seen::Foreign {
                    device.offer(clock(), port as u8, frame);
                }
            });
        }
        device.collect(clock(), &mut |_, port, frame| out.push((port, frame.to_vec())));
        for (port, frame) in out.drain(..) {
            let Some(wire) = ports.get_mut(usize::from(port)) else { continue };
            while wire.send(&[&frame])? == 0 {}
        }
        if !seen {
            std::thread::yield_now();
        }
    }
    let drops: u64 = ports.iter_mut().map(Wire::drops).sum();
    if drops > 0 {
        return Err(format!(
            "the faulty device itself could not receive {drops} frames: the machine is too busy"
        ));
    }
    Ok(device.truth())
}
