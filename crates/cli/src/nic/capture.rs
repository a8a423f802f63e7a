//! Reads captures as received frames, and writes transmitted frames as captures.

use std::io::{Write, stderr};
use std::path::Path;

use flowyard_nicsim::config::{Config, MAX_RUN_US};
use flowyard_nicsim::device::{Arrival, FCS_BYTES};
use flowyard_nicsim::run::Outcome;
use flowyard_ports::pcap::{Format, Writer};
use flowyard_ports::{Damage, Source, pcap};
use flowyard_wire::LinkType;
use schemars::JsonSchema;
use serde::Serialize;

use crate::interrupt::Reading;
use crate::output;
use crate::stop::{Stop, bad_input};

/// The frames of a capture, with times relative to the first. Frames truncated by the snapshot length are
/// extended with zeros. Frames that this link cannot carry (not Ethernet, longer than 1518 bytes) are
/// skipped, and their number is printed. And the damage of the capture, if it can be read only in part.
pub(super) fn arrivals(file: &str) -> Result<(Vec<Arrival>, Option<Damage>), Stop> {
    let reading = Reading::begin()?;
    let early = || Stop::Failed(anyhow::anyhow!("{file}: interrupted before its first packet"));
    let mut source = match pcap::open_until(file, reading.ender()) {
        Err(_) if reading.was_interrupted() => return Err(early()),
        opened => opened?,
    };
    let (mut frames, mut left_out): (Vec<Arrival>, u64) = (Vec::new(), 0);
    let mut first = None;
    loop {
        let burst = source.read()?;
        if burst.is_empty() {
            break;
        }
        for (record, bytes) in burst.iter() {
            let length = (record.wire_len as usize).max(bytes.len());
            if record.link != LinkType::Ethernet || bytes.len() < 14 || length > 1518 {
                left_out += 1;
                continue;
            }
            let start = *first.get_or_insert(record.time);
            let mut frame = bytes.to_vec();
            frame.resize(length, 0);
            frames.push((record.time.saturating_sub(start), frame));
        }
    }
    let damage = source.damage().cloned();
    if let Some(damage) = damage.as_ref().filter(|_| frames.is_empty()) {
        return Err(Stop::Failed(damage.clone().into()));
    }
    let was_interrupted = reading.was_interrupted();
    reading.over();
    if was_interrupted && frames.is_empty() {
        return Err(early());
    }
    if was_interrupted {
        output::note(&format!(
            "{file}: interrupted; the adapter receives the {} frames that were read until then",
            frames.len()
        ));
    }
    if frames.is_empty() {
        return Err(bad_input(format!(
            "{file}: the capture has no Ethernet frame of 14 to 1518 bytes"
        )));
    }
    if left_out > 0 {
        let note = "packets skipped: not Ethernet, or longer than 1518 bytes";
        let _ = writeln!(stderr(), "flowyard: {file}: {left_out} {note}");
    }
    Ok((frames, damage))
}

/// How the frames of a capture arrived in a simulation.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Replay {
    /// The name of the file.
    file: String,
    /// The number of its frames.
    frames: u64,
    /// From the first to the last frame of the capture.
    seconds: f64,
    /// How many times faster than in the capture the frames arrive.
    speed: f64,
    /// Frames that arrived within the simulated time.
    arrived: u64,
}

/// Sets the times of a capture's frames: the first arrives after the warm-up. Without a `speed`, a capture
/// that is longer than the measured time is received so much faster that it fits. If `fixed`, the user
/// chose the measured time; otherwise it is made long enough for all frames.
///
/// # Errors
/// When this time is longer than a simulation can be.
pub(super) fn schedule(
    (file, frames): (&str, &mut [Arrival]),
    speed: Option<f64>,
    config: &mut Config,
    fixed: bool,
) -> Result<Replay, Stop> {
    /// Time after the last frame, in which it leaves the adapter.
    const TAIL_US: u64 = 100;
    let bits = |(_, bytes): &Arrival| {
        let around = FCS_BYTES + config.mac.preamble_bytes + config.mac.gap_bytes;
        8 * (bytes.len().max(60) as u64 + u64::from(around))
    };
    let on_link_us =
        frames.iter().map(bits).sum::<u64>() / (1000 * config.mac.link_gbps.max(1)) + 1;
    let length_us = frames.iter().map(|(ns, _)| *ns).max().unwrap_or(0) as f64 / 1e3;
    // Frames that come faster than the link carries them arrive later: half of the time is to spare.
    let spare_us = if fixed { TAIL_US } else { TAIL_US + on_link_us / 2 };
    if !fixed {
        let wanted = speed.map_or(config.run.measure_us, |speed| (length_us / speed) as u64);
        config.run.measure_us = (wanted + spare_us).max(2 * on_link_us + spare_us);
        let most_us = MAX_RUN_US.saturating_sub(spare_us);
        if config.run.measure_us > MAX_RUN_US && 2 * on_link_us <= most_us {
            return Err(bad_input(format!(
                "--speed: {file} takes {:.1} s at this speed, and a simulation is at most {} s long; use --speed {:.3} or more",
                wanted as f64 / 1e6,
                MAX_RUN_US / 1_000_000,
                (1e3 * length_us / most_us as f64).ceil() / 1e3
            )));
        }
        if config.run.measure_us > MAX_RUN_US {
            return Err(bad_input(format!(
                "{file}: its frames need {:.1} s on this link, and a simulation is at most {} s long; use a part of the \
                 capture or a greater mac.link_gbps",
                config.run.measure_us as f64 / 1e6,
                MAX_RUN_US / 1_000_000
            )));
        }
    }
    let room_us = config.run.measure_us.saturating_sub(spare_us).max(1);
    let speed = speed.unwrap_or_else(|| (length_us / room_us as f64).max(1.0));
    for (ns, _) in frames.iter_mut() {
        *ns = config.run.warmup_us * 1000 + (*ns as f64 / speed) as u64;
    }
    Ok(Replay {
        file: file.to_owned(),
        frames: frames.len() as u64,
        seconds: length_us / 1e6,
        speed,
        arrived: 0,
    })
}

impl Replay {
    /// The same with the number of frames that arrived in the simulation.
    pub(super) fn ended(self, outcome: &Outcome) -> Self {
        Self { arrived: outcome.end.devices.received.entered, ..self }
    }

    /// One line about the capture, and one if a part of it did not arrive.
    pub(super) fn text(&self) -> String {
        let Self { file, frames, seconds, speed, arrived } = self;
        let mut text = format!("{file}: {frames} frames in {seconds:.6} s, received at ");
        text += &if *speed == 1.0 {
            "the times of the capture".to_owned()
        } else {
            format!("{speed:.4} times the speed of the capture (--speed 1 keeps its times)")
        };
        text.push('\n');
        if arrived < frames {
            text += &format!(
                "{arrived} of these frames arrived within run.measure_us; remove that key to run to the end of the capture\n"
            );
        }
        text
    }
}

/// Writes the transmitted frames.
pub(super) fn write(path: &Path, outcome: &Outcome) -> Result<(), Stop> {
    let failed = |error: flowyard_ports::Error| Stop::Failed(error.into());
    let mut writer = Writer::create(path, Format::PcapNanos, LinkType::Ethernet).map_err(failed)?;
    for (time, bytes) in &outcome.departures {
        let ns = *time as u128 * 1_000_000_000 / u128::from(outcome.units_per_second.max(1));
        let len = bytes.len().max(60) as u32 + FCS_BYTES;
        writer.write(ns as u64, len.min(bytes.len() as u32), bytes).map_err(failed)?;
    }
    writer.finish().map_err(failed)
}
