//! Captures for `--replay`: their flows, sizes and times; the frames are the bench's own.

use std::path::Path;

use flowyard_frame::Nanos;
use flowyard_ports::{Source, pcap};
use flowyard_rfc2544::traffic::{Capture, Captured, rewrite};

use crate::stop::{Stop, bad_input};

/// The most frames that are replayed; a longer capture is cut there.
const MOST: usize = 1 << 20;

/// The capture in the file at `path`.
pub(super) fn read(path: &Path) -> Result<Capture, Stop> {
    let name = path.display().to_string();
    let fail = |error: &dyn std::fmt::Display| bad_input(format!("--replay {name}: {error}"));
    let mut source = pcap::open(path).map_err(|error| fail(&error))?;
    let mut frames: Vec<(Nanos, usize, Vec<u8>)> = Vec::new();
    while frames.len() < MOST {
        let burst = source.read().map_err(|error| fail(&error))?;
        if burst.is_empty() {
            break;
        }
        // The headers tell the flow; nothing behind them is looked at.
        let seen = burst.iter().map(|(record, data)| {
            (record.time, record.wire_len as usize, data[..data.len().min(128)].to_vec())
        });
        frames.extend(seen);
    }
    if frames.len() < 2 {
        return Err(bad_input(format!("--replay {name}: fewer than two frames; name another")));
    }
    let frames =
        frames.iter().map(|&(time, wire_len, ref bytes)| Captured { time, wire_len, bytes });
    Ok(Capture::new(&name, rewrite(frames)))
}
