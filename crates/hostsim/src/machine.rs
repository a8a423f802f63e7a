//! The processors of a machine, and which of them share a core or a socket.
//!
//! They are numbered as in Linux: first one thread of every core, socket by socket, then the second threads.
//!
//! ```text
//!  2 sockets, 2 cores, 2 threads:   socket 0: 0 1    socket 1: 2 3     first threads
//!                                             4 5              6 7     their siblings
//! ```

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The processors of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Number of sockets.
    pub sockets: u16,
    /// Cores in each socket.
    pub cores: u16,
    /// Hardware threads in each core: 1, or 2 with hyper-threading.
    pub threads: u16,
}

/// The distance between two processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// The same processor.
    Same,
    /// Two hardware threads of one core, which share its caches.
    Core,
    /// Two cores of one socket.
    Socket,
    /// Two cores of different sockets.
    Far,
}

impl Machine {
    /// The number of processors: sockets x cores x threads.
    #[must_use]
    pub const fn cpus(&self) -> u16 {
        self.sockets * self.cores * self.threads
    }

    /// The number of cores of all sockets. The processors below it are the first threads of the cores.
    #[must_use]
    pub const fn all_cores(&self) -> u16 {
        self.sockets * self.cores
    }

    /// The socket of `cpu`.
    #[must_use]
    pub const fn socket(&self, cpu: u16) -> u16 {
        (cpu % self.all_cores()) / self.cores
    }

    /// The other hardware thread of the core of `cpu`, if it has two.
    #[must_use]
    pub const fn sibling(&self, cpu: u16) -> Option<u16> {
        if self.threads == 2 { Some((cpu + self.all_cores()) % self.cpus()) } else { None }
    }

    /// The distance between `a` and `b`.
    #[must_use]
    pub const fn distance(&self, a: u16, b: u16) -> Distance {
        if a == b {
            Distance::Same
        } else if a % self.all_cores() == b % self.all_cores() {
            Distance::Core
        } else if self.socket(a) == self.socket(b) {
            Distance::Socket
        } else {
            Distance::Far
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_numbered_as_in_linux() {
        let machine = Machine { sockets: 2, cores: 8, threads: 2 };
        assert_eq!(machine.cpus(), 32);
        assert_eq!([0, 7, 8, 16, 24, 31].map(|cpu| machine.socket(cpu)), [0, 0, 1, 0, 1, 1]);
        assert_eq!((machine.sibling(3), machine.sibling(19)), (Some(19), Some(3)));
        assert_eq!(machine.distance(3, 3), Distance::Same);
        assert_eq!(machine.distance(3, 19), Distance::Core);
        assert_eq!(machine.distance(3, 4), Distance::Socket);
        assert_eq!(machine.distance(3, 12), Distance::Far);
        assert_eq!(Machine { threads: 1, ..machine }.sibling(3), None);
    }
}
