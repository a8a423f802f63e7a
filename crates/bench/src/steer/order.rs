//! Order: numbered datagrams to readers that move between CPUs every few milliseconds; those that arrive late are counted.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use flowyard_frame::Nanos;
use flowyard_rfc2544::document::Machine;
use flowyard_yard::Clock;
use schemars::JsonSchema;
use serde::Serialize;

use super::datagrams::{Flows, Seen};
use super::rig::Rig;
use super::{Frames, Way};
use crate::machine::Before;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// The program flowyard.
    pub program: &'a Path,
    /// The ways of steering.
    pub ways: Vec<Way>,
    /// Datagrams of all flows together, for each way.
    pub datagrams: u64,
    /// Number of flows.
    pub flows: u16,
    /// Number of datagrams of a flow that are sent before those of the next one.
    pub burst: u64,
    /// Each reader moves to the other CPU so often.
    pub every: Duration,
    /// The date now.
    pub date: &'a str,
    /// Version and commit of this program.
    pub build: &'a str,
}

/// The results.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Results {
    /// When the measurement began.
    pub date: String,
    /// Version and commit of the program.
    pub build: String,
    /// The machine.
    pub machine: Machine,
    /// Number of flows, each with a thread that reads it.
    pub flows: u16,
    /// Number of datagrams of a flow that are sent before those of the next one.
    pub burst: u64,
    /// Each thread moves to the other CPU so often, in nanoseconds.
    pub every_ns: Nanos,
    /// By way of steering.
    pub ways: Vec<Measured>,
    /// What should not have happened.
    pub faults: Vec<String>,
}

/// One way of steering.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Measured {
    /// The way.
    pub way: Way,
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams received, each counted once.
    pub received: u64,
    /// Datagrams sent and not received.
    pub lost: u64,
    /// Of them, those that a socket had no room for.
    pub lost_at_sockets: u64,
    /// Datagrams that were received before.
    pub twice: u64,
    /// Datagrams that were received after a later one of their flow.
    pub late: u64,
    /// By how many numbers of their flow at most.
    pub late_by_most: u64,
    /// How often a reader was moved.
    pub moves: u64,
    /// How often the CPU that receives a flow was another one than 8 datagrams before.
    pub flow_moves: u64,
    /// Share of datagrams that were received on the CPU on which they were read.
    pub local_share: f64,
    /// Datagrams received per second.
    pub pps: f64,
    /// Frames that `flowyard steer` counted, by the stage that decided.
    pub frames: Frames,
}

/// Numbers of a flow that are on their way at most: for 4 flows, fewer datagrams than the kernel's backlog takes.
const WINDOW: u64 = 800;

/// Measures all ways of `job`. `progress` is called after each with the number of those done and of all.
///
/// # Errors
/// When the hosts cannot be made, or a program fails.
pub fn measure(
    job: &Job<'_>,
    clock: &Clock,
    progress: &dyn Fn(usize, usize),
) -> anyhow::Result<Results> {
    let before = Before::read();
    let (mut ways, mut faults) = (Vec::new(), Vec::new());
    for (at, &way) in job.ways.iter().enumerate() {
        let done = run(job, way, clock).context(way.name())?;
        done.judge(&mut faults);
        ways.push(done);
        progress(at + 1, job.ways.len());
    }
    Ok(Results {
        date: job.date.into(),
        build: job.build.into(),
        machine: before.machine(),
        flows: job.flows,
        burst: job.burst,
        every_ns: job.every.as_nanos() as Nanos,
        ways,
        faults,
    })
}

fn run(job: &Job<'_>, way: Way, clock: &Clock) -> anyhow::Result<Measured> {
    let rig = Rig::new(job.program)?;
    let steering = rig.steer(way)?;
    let flows = Flows::start(&rig, job.flows, job.every)?;
    let each = job.datagrams / u64::from(job.flows);
    let started = clock();
    let window = (WINDOW / u64::from(job.flows)).max(1);
    flows.send(&rig, [each, job.burst, window], clock)?;
    let seconds = (clock() - started) as f64 / 1e9;
    let (seen, moves) = flows.finish()?;
    let lost_at_sockets = socket_drops(&rig.hosts.server.proc("snmp")?);
    let Seen { received, twice, late, latest, local, checked, changes, .. } = seen;
    let sent = each * u64::from(job.flows);
    Ok(Measured {
        way,
        sent,
        received,
        lost: sent.saturating_sub(received),
        lost_at_sockets,
        twice,
        late,
        late_by_most: latest,
        moves,
        flow_moves: changes,
        local_share: local as f64 / checked.max(1) as f64,
        pps: received as f64 / seconds,
        frames: steering.end()?,
    })
}

/// Datagrams for which sockets of the namespace had no room: the column `RcvbufErrors` of `/proc/net/snmp`.
fn socket_drops(snmp: &str) -> u64 {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let names = lines.next().unwrap_or_default().split_whitespace();
    let mut both = names.zip(lines.next().unwrap_or_default().split_whitespace());
    let found = both.find(|(name, _)| *name == "RcvbufErrors");
    found.and_then(|(_, value)| value.parse().ok()).unwrap_or_default()
}

impl Measured {
    /// Adds what should not have happened.
    fn judge(&self, faults: &mut Vec<String>) {
        let (name, sent) = (self.way.name(), self.sent);
        if self.twice > 0 {
            faults.push(format!("{name}: {} of {sent} datagrams were received twice", self.twice));
        }
        if self.received > sent {
            faults
                .push(format!("{name}: {sent} datagrams were sent and {} received", self.received));
        }
        if self.way.is_ordered() && self.late > 0 {
            faults.push(format!("{name}: {} of {sent} datagrams were late", self.late));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_of_sockets_are_found_by_the_name_of_their_column() {
        let snmp = "Ip: Forwarding DefaultTTL\nIp: 1 64\n\
                    Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\n\
                    Udp: 10 0 3 12 3 0\nUdpLite: InDatagrams\nUdpLite: 0\n";
        assert_eq!(socket_drops(snmp), 3);
        assert_eq!(socket_drops(""), 0);
    }

    #[test]
    fn only_what_is_promised_is_a_fault() {
        let measured = Measured {
            way: Way::SteerRfsUnordered,
            sent: 100,
            received: 90,
            lost: 10,
            lost_at_sockets: 10,
            twice: 0,
            late: 5,
            late_by_most: 2,
            moves: 3,
            flow_moves: 3,
            local_share: 0.9,
            pps: 1e5,
            frames: Frames::new(),
        };
        let faults = |way, twice| {
            let mut faults = Vec::new();
            Measured { way, twice, ..measured.clone() }.judge(&mut faults);
            faults
        };
        assert!(faults(Way::SteerRfsUnordered, 0).is_empty());
        assert!(faults(Way::Rfs, 0).is_empty());
        assert_eq!(faults(Way::SteerRfs, 0), ["steer rfs: 5 of 100 datagrams were late"]);
        assert_eq!(faults(Way::Rfs, 1), ["RFS: 1 of 100 datagrams were received twice"]);
    }
}
