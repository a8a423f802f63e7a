//! Processors: how many there are, who shares a core or a socket with whom, what a cache line costs.
//!
//! Numbered as Linux does: first one thread of every core, socket by socket, then the second threads.
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
    /// Sockets.
    pub sockets: u16,
    /// Cores of a socket.
    pub cores: u16,
    /// Hardware threads of a core: 1, or 2 with hyper-threading.
    pub threads: u16,
}

/// How far apart two processors are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// The same processor.
    Same,
    /// Two threads of a core: they share its caches.
    Core,
    /// Two cores of a socket.
    Socket,
    /// Two sockets.
    Far,
}

impl Machine {
    /// Processors in all.
    #[must_use]
    pub const fn cpus(&self) -> u16 {
        self.sockets * self.cores * self.threads
    }

    const fn all_cores(&self) -> u16 {
        self.sockets * self.cores
    }

    /// The socket of `cpu`.
    #[must_use]
    pub const fn socket(&self, cpu: u16) -> u16 {
        (cpu % self.all_cores()) / self.cores
    }

    /// The other thread of `cpu`'s core, if there is one.
    #[must_use]
    pub const fn sibling(&self, cpu: u16) -> Option<u16> {
        if self.threads == 2 { Some((cpu + self.all_cores()) % self.cpus()) } else { None }
    }

    /// How far `a` is from `b`.
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
    fn numbering_is_linux() {
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
