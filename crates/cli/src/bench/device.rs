//! The options that describe the simulated device.

use std::time::Duration;

use flowyard_frame::Nanos;
use flowyard_rfc2544::dut::{Job, YardSpec};
use flowyard_rfc2544::line::Line;

use super::choices::FilterCount;
use crate::stop::{Stop, bad_input};

/// Options of the methods that can test the simulated device.
#[derive(clap::Args)]
pub(super) struct Simulated {
    /// Packet filters in the simulated device (RFC 2544 section 11.4.1)
    #[arg(long, value_name = "N", default_value = "0", help_heading = "Device")]
    pub(super) filters: FilterCount,

    /// Number of cores of the simulated device, 1 to 16
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Device")]
    cores: u8,

    /// The simulated device spreads each flow over all cores, in order, instead of giving each flow to
    /// one core
    #[arg(long, help_heading = "Device")]
    ordered: bool,

    /// The simulated device is an Ethernet switch that can learn N addresses, instead of a forwarder
    #[arg(long, value_name = "N", help_heading = "Device")]
    pub(super) bridge: Option<u32>,

    /// Time that a core of the simulated device needs per frame, at most 1s
    #[arg(long, value_name = "TIME", default_value = "50us", value_parser = humantime::parse_duration, help_heading = "Device")]
    frame_cost: Duration,

    /// Time that a core of the simulated device needs per batch of up to 32 frames, in addition to --frame-cost, at most 1s
    #[arg(long, value_name = "TIME", default_value = "20us", value_parser = humantime::parse_duration, help_heading = "Device")]
    batch_cost: Duration,

    /// Time that a core of the simulated device needs per byte of a frame, in addition to --frame-cost, in picoseconds
    #[arg(long, value_name = "PS", default_value_t = 10_000, help_heading = "Device")]
    byte_cost_ps: u64,

    /// Capacity of each receive ring of the simulated device, in frames
    #[arg(long, value_name = "N", default_value_t = 512, help_heading = "Device")]
    ring: u32,
}

impl Simulated {
    /// The simulated device on this line.
    pub(super) fn spec(&self, line: Option<Line>) -> Result<YardSpec, Stop> {
        if self.cores == 0 || self.cores > 16 {
            return Err(bad_input(format!("--cores: must be 1 to 16, not {}", self.cores)));
        }
        if self.ring == 0 || self.ring > 1 << 20 {
            return Err(bad_input(format!("--ring: must be 1 to 1048576, not {}", self.ring)));
        }
        let nanos = |time: Duration| Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX);
        let [frame_ns, batch_ns] = [self.frame_cost, self.batch_cost].map(nanos);
        for (option, value, most) in [
            ("--frame-cost", frame_ns, "1s"),
            ("--batch-cost", batch_ns, "1s"),
            ("--byte-cost-ps", self.byte_cost_ps, "1000000000"),
        ] {
            if value > 1_000_000_000 {
                return Err(bad_input(format!("{option}: must be at most {most}")));
            }
        }
        Ok(YardSpec {
            cores: self.cores,
            ordered: self.ordered,
            job: self.bridge.map_or(Job::Forward, Job::Bridge),
            frame_ns,
            batch_ns,
            byte_ps: self.byte_cost_ps,
            ring_frames: self.ring,
            filters: self.filters as u8,
            ..YardSpec::new(line.unwrap_or(Line::MBIT_10))
        })
    }
}
