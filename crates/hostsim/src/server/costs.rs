//! The costs of the server's operations, from a profile.

use flowyard_frame::Nanos;

use crate::machine::{Distance, Machine};
use crate::profile::{Profile, ProfileError};

/// The costs of the server's operations in nanoseconds; the profile's file describes each.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "the profile's file describes each")]
pub struct Costs {
    pub irq: Nanos,
    pub idle_exit: Nanos,
    pub ipi_send: Nanos,
    pub ipi_flight: Nanos,
    pub ipi_take: Nanos,
    pub poll_exit: Nanos,
    pub driver: Nanos,
    pub clean: Nanos,
    pub stack: Nanos,
    pub rps: Nanos,
    pub notify: Nanos,
    pub wake: Nanos,
    pub switch: Nanos,
    pub epoll: Nanos,
    pub read: Nanos,
    pub request: Nanos,
    pub send: Nanos,
    pub sibling_share: f64,
    pub line_core: Nanos,
    pub line_socket: Nanos,
    pub line_far: Nanos,
    pub line_memory: Nanos,
    pub socket_lines: u64,
    pub packet_lines: u64,
    pub backlog_lines: u64,
    pub conn_bytes: f64,
    pub cache_bytes: f64,
    pub network: Nanos,
}

impl Costs {
    /// The costs in `profile`.
    ///
    /// # Errors
    /// When it lacks a constant.
    pub fn of(profile: &Profile) -> Result<Self, ProfileError> {
        let scale = profile.get("scale")?;
        let work = |name: &str| Ok((profile.get(name)? * scale).round() as Nanos);
        Ok(Self {
            irq: work("irq_ns")?,
            idle_exit: profile.ns("idle_exit_ns")?,
            ipi_send: work("ipi_send_ns")?,
            ipi_flight: profile.ns("ipi_flight_ns")?,
            ipi_take: work("ipi_take_ns")?,
            poll_exit: work("poll_exit_ns")?,
            driver: work("driver_ns")?,
            clean: work("clean_ns")?,
            stack: work("stack_ns")?,
            rps: work("rps_ns")?,
            notify: work("notify_ns")?,
            wake: work("wake_ns")?,
            switch: work("switch_ns")?,
            epoll: work("epoll_ns")?,
            read: work("read_ns")?,
            request: work("request_ns")?,
            send: work("send_ns")?,
            sibling_share: profile.get("sibling_share")?,
            line_core: profile.ns("line_core_ns")?,
            line_socket: profile.ns("line_socket_ns")?,
            line_far: profile.ns("line_far_ns")?,
            socket_lines: profile.ns("socket_lines")?,
            packet_lines: profile.ns("packet_lines")?,
            backlog_lines: profile.ns("backlog_lines")?,
            line_memory: profile.ns("line_memory_ns")?,
            conn_bytes: profile.get("conn_bytes")?,
            cache_bytes: profile.get("cache_bytes")?,
            network: profile.ns("network_ns")?,
        })
    }

    /// The share of a connection's cache lines that are not in the caches when `connections` are in use.
    pub(super) fn missing(&self, connections: u32) -> f64 {
        let held = self.cache_bytes / (f64::from(connections) * self.conn_bytes).max(1.0);
        (1.0 - held).max(0.0)
    }

    /// The time to fetch the cache lines of a socket to `to` if `from` touched them last; the share `missing`
    /// of them comes from memory.
    pub(super) fn socket(&self, machine: &Machine, from: u16, to: u16, missing: f64) -> Nanos {
        let cached = self.fetch(machine, from, to, self.socket_lines) as f64;
        let memory = (self.socket_lines * self.line_memory) as f64;
        (cached * (1.0 - missing) + memory * missing) as Nanos
    }

    /// The time to fetch `lines` cache lines, which `from` wrote last, to `to`.
    pub(super) fn fetch(&self, machine: &Machine, from: u16, to: u16, lines: u64) -> Nanos {
        lines
            * match machine.distance(from, to) {
                Distance::Same => 0,
                Distance::Core => self.line_core,
                Distance::Socket => self.line_socket,
                Distance::Far => self.line_far,
            }
    }
}
