//! Reads a capture's flows, frame sizes and times for `--replay`. The frames sent are the tester's own.

use std::path::Path;

use flowyard_frame::Nanos;
use flowyard_ports::pcap::Ender;
use flowyard_ports::{Damage, Source, pcap};
use flowyard_rfc2544::traffic::{Capture, Captured, rewrite};

use crate::Error;

/// Maximum number of frames; the rest of a longer capture is ignored.
const MOST: usize = 1 << 20;

/// Reads the capture in the file at `path`, until `ender` ends it; and its damage, if only a part of it can be read.
///
/// # Errors
///
/// When the file is not a readable capture with at least two frames.
pub fn read(path: &Path, ender: &Ender) -> Result<(Capture, Option<Damage>), Error> {
    let name = path.display().to_string();
    let fail = |error: &dyn std::fmt::Display| Error::input(format!("--replay {name}: {error}"));
    let mut source = pcap::open_until(path, ender).map_err(|error| fail(&error))?;
    let mut frames: Vec<(Nanos, usize, Vec<u8>)> = Vec::new();
    while frames.len() < MOST {
        let burst = source.read().map_err(|error| fail(&error))?;
        if burst.is_empty() {
            break;
        }
        // The flow is in the headers; the rest is not needed.
        let seen = burst.iter().map(|(record, data)| {
            (record.time, record.wire_len as usize, data[..data.len().min(128)].to_vec())
        });
        frames.extend(seen);
    }
    if frames.len() < 2 {
        return Err(Error::input(format!(
            "--replay {name}: the capture has fewer than two frames; choose another one"
        )));
    }
    let frames =
        frames.iter().map(|&(time, wire_len, ref bytes)| Captured { time, wire_len, bytes });
    Ok((Capture::new(&name, rewrite(frames)), source.damage().cloned()))
}
