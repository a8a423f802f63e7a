//! Captures in, as frames that arrive; captures out, of frames that were sent.

use std::path::Path;

use flowyard_nicsim::device::{Arrival, FCS_BYTES};
use flowyard_nicsim::run::Outcome;
use flowyard_ports::pcap::{Format, Writer};
use flowyard_ports::{Source, pcap};
use flowyard_wire::LinkType;

use crate::stop::{Stop, bad_input};

/// Frames of a capture, timed from its first. Only whole Ethernet frames of 14 to 1518 bytes can arrive.
pub(super) fn arrivals(file: &str) -> Result<Vec<Arrival>, Stop> {
    let mut source = pcap::open(file).map_err(bad_input)?;
    let mut frames: Vec<Arrival> = Vec::new();
    let mut first = None;
    loop {
        let burst = source.read().map_err(bad_input)?;
        if burst.is_empty() {
            break;
        }
        for (record, bytes) in burst.iter() {
            let number = frames.len() + 1;
            let whole = record.link == LinkType::Ethernet
                && bytes.len() >= 14
                && bytes.len() <= 1518
                && record.wire_len as usize == bytes.len();
            if !whole {
                return Err(bad_input(format!(
                    "{file}: packet {number} is not a whole Ethernet frame of 14 to 1518 bytes \
                     ({} captured of {}); cut or filter the capture",
                    bytes.len(),
                    record.wire_len
                )));
            }
            let start = *first.get_or_insert(record.time);
            frames.push((record.time.saturating_sub(start), bytes.to_vec()));
        }
    }
    if let Some(damage) = source.damage() {
        return Err(bad_input(damage));
    }
    Ok(frames)
}

/// Writes the frames that were sent.
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
