//! Address caching capacity and learning rate of the simulated switch (RFC 2889 sections 5.7 and 5.8).

use flowyard_rfc2544::MeasureError;
use flowyard_rfc2544::dut::{Dut, YardDut, YardSpec};
use flowyard_rfc2544::learn::{PORTS, probe};
use flowyard_rfc2544::search::learning::{Caching, LearningRate, Probe, Probed};
use schemars::JsonSchema;
use serde::Serialize;

/// The results, with every probe that led to them.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Found {
    /// The device's description.
    pub device: String,
    /// Addresses that it can learn, without the tester's own.
    pub capacity: u32,
    /// Number of addresses for which the learning rate was measured.
    pub learning_addresses: u32,
    /// Highest rate at which it learns these, in frames per second.
    pub learning_pps: u64,
    /// All probes and their results.
    pub probes: Vec<(Probe, Probed)>,
}

/// Searches the capacity with up to `most` addresses at `learning_pps` learning frames per second, then the
/// highest learning rate up to `line_pps`.
///
/// # Errors
///
/// When the device cannot be built.
pub fn search(
    spec: YardSpec,
    most: u32,
    learning_pps: u64,
    line_pps: u64,
) -> Result<Found, MeasureError> {
    let spec = YardSpec { ports: PORTS, ..spec };
    let mut probes = Vec::new();
    let mut make = |next: Probe| -> Result<Probed, MeasureError> {
        let mut dut = YardDut::new(spec)?;
        let probed = probe(&mut dut, &next);
        probes.push((next, probed));
        Ok(probed)
    };
    let mut caching = Caching::new(most, learning_pps);
    while let Some(next) = caching.next_probe() {
        let probed = make(next)?;
        caching.record(next, probed);
    }
    let capacity = caching.answer();
    let learning_addresses = capacity.clamp(1, 4096);
    let mut rate = LearningRate::new(learning_addresses, line_pps.max(1));
    while let (1.., Some(next)) = (capacity, rate.next_probe()) {
        let probed = make(next)?;
        rate.record(next, probed);
    }
    let device = YardDut::new(spec)?.describe();
    Ok(Found { device, capacity, learning_addresses, learning_pps: rate.answer(), probes })
}
