//! The tester's sender alone, at its highest rate.

use flowyard_frame::Nanos;
use flowyard_rfc2544::line::Line;
use flowyard_rfc2544::setup::{Setup, Topology};
use flowyard_rfc2544::tester::{BURST, Stream};
use flowyard_rfc2544::traffic::{Genome, Spec};
use flowyard_yard::Clock;
use schemars::JsonSchema;
use serde::Serialize;

use super::guard;
use super::port::{Kind, Port};
use crate::Error;

/// What to send, and where.
#[derive(Clone, Debug)]
pub struct Job {
    /// The interface.
    pub interface: String,
    /// The kind of socket.
    pub kind: Kind,
    /// Frame sizes.
    pub size: Genome,
    /// Number of flows.
    pub flows: u16,
    /// Skips the isolation check.
    pub is_isolated: bool,
}

/// What was sent.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, JsonSchema)]
pub struct Sent {
    /// Number of frames.
    pub frames: u64,
    /// Time until the last frame was sent.
    pub seconds: f64,
    /// Frames per second.
    pub pps: f64,
}

/// Sends frames for `duration`.
///
/// # Errors
///
/// When the interface fails the isolation check or cannot be opened, or sending fails.
pub fn run(job: &Job, duration: Nanos, clock: &Clock) -> Result<Sent, Error> {
    let spec = Spec { sizes: job.size.clone(), flows: job.flows.max(1), ..Spec::fixed(64) };
    let setup = Setup::new(Line::GBIT_10, Topology::Uni, spec);
    let mut stream = Stream::new(&setup, 0).map_err(anyhow::Error::from)?;
    if !job.is_isolated {
        guard::check(std::slice::from_ref(&job.interface))?;
    }
    let mut port = Port::open(&job.interface, job.kind, false)?;
    let start = clock();
    let mut now = start;
    while now < start + duration {
        stream.send(&mut port, BURST, now).map_err(anyhow::Error::msg)?;
        now = clock();
    }
    port.drain();
    let seconds = (clock() - start) as f64 / 1e9;
    let frames = stream.row();
    Ok(Sent { frames, seconds, pps: frames as f64 / seconds })
}
