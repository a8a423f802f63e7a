//! The machine that the doctor checks: this one, or one simulated by a test.

use std::fs;
use std::io::{self, Read};

use flate2::read::GzDecoder;

use flowyard_host::{Counts, Machine as _, Offload};

use crate::sys;

/// Access to the machine. Every method only reads.
pub trait Machine {
    /// The text of the file at `path`; `None` if it cannot be read.
    fn read(&self, path: &str) -> Option<String>;

    /// The names in the folder at `path`, sorted; empty if it cannot be read.
    fn list(&self, path: &str) -> Vec<String>;

    /// The kernel's build configuration (`.config`); `None` if it cannot be read.
    fn kernel_config(&self) -> Option<String>;

    /// The kernel's index of an interface; `None` if there is none of this name in the network namespace of the process.
    fn index(&self, interface: &str) -> Option<u32>;

    /// Whether an offload of an interface is on.
    ///
    /// # Errors
    /// The system call failed.
    fn offload(&self, interface: &str, offload: Offload) -> io::Result<bool>;

    /// The numbers of receive queues of an interface.
    ///
    /// # Errors
    /// The system call failed, for example because the interface has no configurable queues.
    fn queues(&self, interface: &str) -> io::Result<QueueCounts>;

    /// Tries to open an `AF_XDP` socket.
    ///
    /// # Errors
    /// The socket cannot be opened.
    fn xdp_socket(&self) -> io::Result<()>;

    /// Tries to load an XDP program.
    ///
    /// # Errors
    /// The program cannot be loaded.
    fn xdp_program(&self) -> io::Result<()>;
}

/// Numbers of receive queues of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueCounts {
    /// The queues in use.
    pub now: usize,
    /// The most queues that the interface supports.
    pub most: usize,
    /// Whether they are combined channels. A veth has separate channels to receive and to transmit.
    pub are_combined: bool,
}

/// The machine that this process runs on.
#[derive(Clone, Copy, Debug)]
pub struct Here;

impl Machine for Here {
    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(path).ok()
    }

    fn list(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    fn kernel_config(&self) -> Option<String> {
        let mut text = String::new();
        let packed = fs::File::open("/proc/config.gz").ok();
        let unpacked = packed.and_then(|file| {
            // About 300 KiB is usual; the limit guards against a file that is not a configuration.
            GzDecoder::new(file).take(8 << 20).read_to_string(&mut text).ok()
        });
        match unpacked {
            Some(_) => Some(text),
            None => {
                let release = self.read("/proc/sys/kernel/osrelease")?;
                self.read(&format!("/boot/config-{}", release.trim()))
            }
        }
    }

    fn index(&self, interface: &str) -> Option<u32> {
        flowyard_host::Here.index(interface).ok()
    }

    fn offload(&self, interface: &str, offload: Offload) -> io::Result<bool> {
        flowyard_host::offload(interface, offload)
    }

    fn queues(&self, interface: &str) -> io::Result<QueueCounts> {
        let channels = flowyard_host::Here.channels(interface)?;
        let receive = |counts: Counts| (counts.rx + counts.combined) as usize;
        Ok(QueueCounts {
            now: receive(channels.now),
            most: receive(channels.most),
            are_combined: channels.most.combined > 0,
        })
    }

    fn xdp_socket(&self) -> io::Result<()> {
        sys::xdp_socket()
    }

    fn xdp_program(&self) -> io::Result<()> {
        sys::xdp_program()
    }
}
