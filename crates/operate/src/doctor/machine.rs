//! The machine as the doctor sees it: real, or made up by a test.

use std::fs;
use std::io::{self, Read};

use flate2::read::GzDecoder;

use crate::sys;

/// What an interface may do to frames.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Offload {
    /// It fills in checksums of frames that are sent.
    TxChecksum,
    /// It cuts large TCP segments.
    Tso,
    /// The kernel cuts large segments just before it.
    Gso,
    /// Received frames are put together.
    Gro,
}

/// Where the doctor looks.
pub trait Machine {
    /// The text of the file at `path`; `None` if it cannot be read.
    fn read(&self, path: &str) -> Option<String>;

    /// Names in the folder at `path`, sorted.
    fn list(&self, path: &str) -> Vec<String>;

    /// The options that the kernel was built with, as its `.config`.
    fn kernel_config(&self) -> Option<String>;

    /// Whether an interface does this.
    ///
    /// # Errors
    /// When the system does not say.
    fn offload(&self, interface: &str, offload: Offload) -> io::Result<bool>;

    /// Receive queues of an interface now, and the most that it could have.
    ///
    /// # Errors
    /// When the interface has no such number.
    fn queues(&self, interface: &str) -> io::Result<(u32, u32)>;

    /// Whether an `AF_XDP` socket can be opened.
    ///
    /// # Errors
    /// When it cannot.
    fn xdp_socket(&self) -> io::Result<()>;

    /// Whether an XDP program can be loaded.
    ///
    /// # Errors
    /// When it cannot.
    fn xdp_program(&self) -> io::Result<()>;
}

/// The machine that this runs on.
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
            // Some 300 KiB are usual: what is longer than this is no kernel's.
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

    fn offload(&self, interface: &str, offload: Offload) -> io::Result<bool> {
        let get = match offload {
            Offload::TxChecksum => sys::Get::TxChecksum,
            Offload::Tso => sys::Get::Tso,
            Offload::Gso => sys::Get::Gso,
            Offload::Gro => sys::Get::Gro,
        };
        sys::offload(interface, get)
    }

    fn queues(&self, interface: &str) -> io::Result<(u32, u32)> {
        sys::queues(interface)
    }

    fn xdp_socket(&self) -> io::Result<()> {
        sys::xdp_socket()
    }

    fn xdp_program(&self) -> io::Result<()> {
        sys::xdp_program()
    }
}
