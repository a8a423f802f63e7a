//! Reads captures as received frames, and writes transmitted frames as captures.

use std::io::{Write, stderr};
use std::path::Path;

use flowyard_nicsim::device::{Arrival, FCS_BYTES};
use flowyard_nicsim::run::Outcome;
use flowyard_ports::pcap::{Format, Writer};
use flowyard_ports::{Source, pcap};
use flowyard_wire::LinkType;

use crate::stop::{Stop, bad_input};

/// The frames of a capture, with times relative to the first. Frames truncated by the snapshot length are
/// extended with zeros. Frames that this link cannot carry (not Ethernet, longer than 1518 bytes) are
/// skipped, and their number is printed.
pub(super) fn arrivals(file: &str) -> Result<Vec<Arrival>, Stop> {
    let mut source = pcap::open(file).map_err(bad_input)?;
    let (mut frames, mut left_out): (Vec<Arrival>, u64) = (Vec::new(), 0);
    let mut first = None;
    loop {
        let burst = source.read().map_err(bad_input)?;
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
    if let Some(damage) = source.damage() {
        return Err(bad_input(damage));
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
    Ok(frames)
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
