//! A run: warm-up, measurement, and the check of its counters.

use crate::config::Config;
use crate::counters::{Snapshot, Window};
use crate::device::{Arrival, Departure, FCS_BYTES, HEADER_BYTES, TAG_BYTES};
use crate::elf::{ElfError, Image};
use crate::engine::{BuildError, Engine, Fault, Parts};
use crate::firmware::Builtin;
use crate::timeline::Timeline;

/// Why a run has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The machine could not be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The simulation stopped.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// Nothing arrives, so the run would not end.
    #[error(
        "no more frames of the capture can arrive: the firmware has not started the receiver by the end of \
         run.measure_us (see rx_slots in nic.h)"
    )]
    ReceiverOff,
    /// Frames were changed or reordered, which is an error of the firmware.
    #[error(
        "{0} frames left the adapter out of order, changed or unexpectedly; check the firmware"
    )]
    Frames(u64),
    /// The counters do not balance, which is a defect of the simulator.
    #[error("{0}: this is a defect of flowyard; please report it with the configuration")]
    Defect(String),
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The configuration.
    pub config: Config,
    /// The counters of the measured time.
    pub window: Window,
    /// The counters since time 0, at the end.
    pub end: Snapshot,
    /// The firmware, for the names of its functions.
    pub image: Image,
    /// Time units in a second.
    pub units_per_second: u64,
    /// The transmitted frames, if they were kept.
    pub departures: Vec<Departure>,
    /// The requested variables of the firmware: name and words.
    pub peeks: Vec<(String, Vec<u32>)>,
    /// The timeline, if it was recorded.
    pub timeline: Option<Timeline>,
}

/// The longest time that a timeline covers, in microseconds; a millisecond is 40 MB of JSON.
pub const TIMELINE_US: u64 = 1000;
/// The steps in which a run is extended until a capture has passed, in microseconds.
const STEP_US: u64 = 100;
/// The number of steps without any frame after which a run is not extended any more when all frames have arrived.
const QUIET_STEPS: u32 = 1000;

/// Runs on from cycle `at` until all `frames` of a capture have arrived and left, or nothing moves any more.
fn drain<E: Engine>(engine: &mut E, mut at: u64, step: u64, frames: u64) -> Result<(), RunError> {
    let (mut last, mut quiet) = (0, 0);
    loop {
        let now = engine.snapshot();
        let received = now.devices.received;
        let moved = received.entered + received.delivered + received.dropped;
        quiet = if moved == last { quiet + 1 } else { 0 };
        last = moved;
        let passed = received.entered >= frames && now.held.1 == 0;
        if passed || (received.entered >= frames && quiet > QUIET_STEPS) {
            return Ok(());
        }
        if !now.receiving && quiet > 0 {
            return Err(RunError::ReceiverOff);
        }
        at += step.max(1);
        engine.run_to(at)?;
    }
}

/// The image of a firmware file for this configuration.
///
/// # Errors
/// [`ElfError`].
pub fn image(config: &Config, file: &[u8]) -> Result<Image, ElfError> {
    Image::parse(file, config.chip.scratchpad_kb * 1024)
}

/// Runs an included firmware on engine `E`.
///
/// # Errors
/// [`RunError`].
pub fn builtin<E: Engine>(config: &Config, firmware: Builtin) -> Result<Outcome, RunError> {
    config.check().map_err(BuildError::from)?;
    let image = image(config, firmware.elf()).map_err(BuildError::from)?;
    run::<E>(Parts { config: config.clone(), image, ..Parts::default() })
}

/// Warms up, measures, and checks that no frame was lost and that every cycle has one category.
///
/// # Errors
/// [`RunError`].
pub fn run<E: Engine>(parts: Parts) -> Result<Outcome, RunError> {
    let config = parts.config.clone();
    let peeks = variables(&parts)?;
    let image = parts.image.clone();
    let wants_timeline = parts.timeline;
    let arrivals = parts.arrivals.as_ref().map(|arrivals| arrivals.len() as u64);
    let to_the_end = arrivals.filter(|_| parts.to_the_end);
    let mut engine = build::<E>(parts)?;
    let cycles = |us: u64| (us as f64 * config.chip.mhz.hz() / 1e6).round() as u64;
    let warm = cycles(config.run.warmup_us);
    engine.run_to(warm)?;
    let before = engine.snapshot();
    let end = warm + cycles(config.run.measure_us).max(1);
    let mut timeline = None;
    if wants_timeline {
        engine.begin_timeline();
        engine.run_to(end.min(warm + cycles(TIMELINE_US)))?;
        timeline = engine.timeline();
    }
    engine.run_to(end)?;
    if let Some(frames) = to_the_end {
        drain(&mut engine, end, cycles(STEP_US), frames)?;
    }
    let end = engine.snapshot();
    let window = Window::between(&before, &end);
    check(&window, &end)?;
    let units_per_second =
        config.base().map_err(|error| BuildError::from(crate::config::ConfigError::from(error)))?;
    Ok(Outcome {
        config,
        window,
        image,
        units_per_second: units_per_second.per_second(),
        departures: engine.departures(),
        timeline,
        peeks: peeks
            .into_iter()
            .map(|(name, addr, words)| {
                (name, (0..words).map(|n| engine.peek(addr + 4 * n)).collect())
            })
            .collect(),
        end,
    })
}

/// The machine at time 0, with the filters of the configuration. Parts that do not fit each other are refused.
///
/// # Errors
/// When the configuration or the firmware is wrong, or the firmware does not support the configuration.
pub fn build<E: Engine>(mut parts: Parts) -> Result<E, BuildError> {
    support(&parts).map_err(|what| BuildError::Firmware(what.into()))?;
    install(&mut parts)?;
    E::build(parts)
}

/// Whether the firmware and the traffic support the configuration.
///
/// # Errors
/// The key, and why its value is refused.
fn support(parts: &Parts) -> Result<(), &'static str> {
    let Parts { config, image, arrivals, .. } = parts;
    if arrivals.is_some() && !config.load.receive {
        return Err("load.receive = false: the frames of a capture cannot arrive; remove this key");
    }
    if config.chip.cores > 1 && Builtin::Ideal.is(image) {
        return Err(
            "chip.cores: firmware ideal has no locks and runs on one core; use --set chip.cores=1",
        );
    }
    let f = &config.firmware;
    if image.symbol_addr("indirection").is_none() {
        return match () {
            () if config.host.queues > 1 => {
                Err("host.queues: this firmware supports one queue; several need --firmware steer")
            }
            () if f.steer != 0 => {
                Err("firmware.steer: this firmware does not steer; use --firmware steer")
            }
            () if f.filters > 0 => {
                Err("firmware.filters: this firmware has no filters; use --firmware steer")
            }
            () => Ok(()),
        };
    }
    if f.filters > 0 && f.steer & 2 == 0 {
        return Err("firmware.filters: the filters are not used; set firmware.steer to 2 or 3");
    }
    Ok(())
}

/// Installs filters for the first generated flows, which name the queues from the last one down.
fn install(parts: &mut Parts) -> Result<(), BuildError> {
    let (queues, count) = (parts.config.host.queues, parts.config.firmware.filters);
    if count > 0 {
        let filters: Vec<_> = (0..count)
            .map(|flow| crate::steer::of_flow(flow, queues - 1 - flow % queues))
            .collect();
        let table = crate::steer::table(&parts.image, &filters)
            .map_err(|error| BuildError::Firmware(format!("firmware.filters: {error}")))?;
        parts.preload.push(table);
    }
    Ok(())
}

/// The name, address and number of words of the variables to read at the end.
fn variables(parts: &Parts) -> Result<Vec<(String, u32, u32)>, BuildError> {
    let find = |name: &String| {
        let symbol = parts.image.symbols.iter().find(|symbol| symbol.name == *name);
        let symbol =
            symbol.filter(|s| s.addr >= crate::memory::SCRATCHPAD_BASE).ok_or_else(|| {
                BuildError::Firmware(format!(
                    "the firmware has no variable '{name}' in the scratchpad"
                ))
            })?;
        Ok((name.clone(), symbol.addr & !3, symbol.size.div_ceil(4).clamp(1, 4096)))
    };
    parts.peeks.iter().map(find).collect()
}

fn check(window: &Window, end: &Snapshot) -> Result<(), RunError> {
    window.check().map_err(|(core, sum, cycles)| {
        RunError::Defect(format!("core {core}: {sum} cycles counted of {cycles}"))
    })?;
    let d = &end.devices;
    for (name, frames, held) in
        [("sent", &d.sent, end.held.0), ("received", &d.received, end.held.1)]
    {
        if frames.entered != frames.delivered + frames.dropped + held && frames.errors == 0 {
            return Err(RunError::Defect(format!(
                "{name}: {} frames in, {} out, {} dropped, {held} held",
                frames.entered, frames.delivered, frames.dropped
            )));
        }
    }
    Ok(())
}

impl Outcome {
    /// Measured seconds.
    pub fn seconds(&self) -> f64 {
        self.window.cycles as f64 / self.config.chip.mhz.hz()
    }

    /// UDP payload delivered, both directions, in Gb/s.
    pub fn udp_gbps(&self) -> f64 {
        let d = &self.window.devices;
        (d.sent.payload_bytes + d.received.payload_bytes) as f64 * 8.0 / self.seconds() / 1e9
    }

    /// The UDP payload of this traffic that the link can carry, in the directions in use, in Gb/s.
    pub fn udp_limit_gbps(&self) -> f64 {
        udp_limit_gbps(&self.config)
    }

    /// Frames delivered, both directions, per second.
    pub fn frames_per_second(&self) -> f64 {
        let d = &self.window.devices;
        (d.sent.delivered + d.received.delivered) as f64 / self.seconds()
    }

    /// Frames that arrived out of order, changed or unknown, in the whole run.
    pub fn errors(&self) -> u64 {
        self.end.devices.sent.errors + self.end.devices.received.errors
    }

    /// Whether all frames arrived in order and unchanged.
    ///
    /// # Errors
    /// [`RunError::Frames`] with [`Outcome::errors`].
    pub fn verdict(&self) -> Result<(), RunError> {
        match self.errors() {
            0 => Ok(()),
            errors => Err(RunError::Frames(errors)),
        }
    }

    /// The share of arriving frames that were dropped in the measured time.
    pub fn drop_share(&self) -> f64 {
        let frames = &self.window.devices.received;
        frames.dropped as f64 / (frames.entered as f64).max(1.0)
    }
}

/// See [`Outcome::udp_limit_gbps`].
pub fn udp_limit_gbps(config: &Config) -> f64 {
    let payload: u64 = config.load.udp_bytes.iter().map(|&size| u64::from(size)).sum();
    let tag = if config.load.vlan == 0 { 0 } else { TAG_BYTES };
    let headers = HEADER_BYTES + tag + FCS_BYTES;
    let overhead = u64::from(config.mac.preamble_bytes + config.mac.gap_bytes + headers);
    let wire = payload + overhead * config.load.udp_bytes.len() as u64;
    let ways = f64::from(config.load.send) + f64::from(config.load.receive);
    config.mac.link_gbps as f64 * payload as f64 / wire as f64 * ways
}

/// The frames of a capture for [`Parts::arrivals`].
pub type Arrivals = Vec<Arrival>;
