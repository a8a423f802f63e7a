//! The boundary to the machine: files of sysfs and procfs, and the calls of ethtool.
//!
//! Everything that this crate reads or changes passes through [`Machine`]. [`crate::Here`] is the machine
//! that the program runs on; tests use a simulated one, which can also fail or crash at each call.

use std::io;

use flowyard_frame::FlowKey;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ntuple::{Listed, Request, Table};

/// The driver of an interface (`ETHTOOL_GDRVINFO`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct Driver {
    /// The name, such as `ice`.
    pub name: String,
    /// The version of the driver, or of the kernel.
    pub version: String,
    /// The version of the firmware; empty if the driver names none.
    pub firmware: String,
    /// The address on the bus, such as `0000:00:03.0`; empty if there is none.
    pub bus: String,
}

/// Numbers of channels by use. A channel is an interrupt with the queues that it serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Channels that only receive.
    pub rx: u32,
    /// Channels that only transmit.
    pub tx: u32,
    /// Channels for other purposes, such as link changes.
    pub other: u32,
    /// Channels that receive and transmit.
    pub combined: u32,
}

/// Channels of an interface (`ETHTOOL_GCHANNELS`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct Channels {
    /// The largest numbers that the driver offers.
    pub most: Counts,
    /// The current numbers.
    pub now: Counts,
}

/// Receive-side scaling of one context (`ETHTOOL_GRSSH`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rss {
    /// The queue of each entry of the indirection table; empty if the driver has none.
    pub table: Vec<u32>,
    /// The hash key; empty if the driver does not give it.
    pub key: Vec<u8>,
    /// The bits of the hash functions in use: 1 Toeplitz, 2 XOR, 4 CRC-32; 0 if the driver does not give it.
    pub function: u8,
    /// The transformation of the input: 0 none, 1 symmetric-xor, 2 symmetric-or-xor.
    pub transformation: u8,
}

/// A feature of an interface (`ETHTOOL_GFEATURES`).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Feature {
    /// The name, such as `rx-ntuple-filter`.
    pub name: String,
    /// Whether it is on.
    pub on: bool,
    /// Whether the driver lets it change.
    pub changeable: bool,
}

/// When the adapter interrupts (`ETHTOOL_GCOALESCE`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct Coalesce {
    /// Microseconds from a received frame to its interrupt.
    pub rx_usecs: u32,
    /// Received frames until an interrupt.
    pub rx_frames: u32,
    /// Microseconds from a transmitted frame to its interrupt.
    pub tx_usecs: u32,
    /// Transmitted frames until an interrupt.
    pub tx_frames: u32,
    /// Whether the driver adapts the receive side by itself.
    pub adaptive_rx: bool,
    /// Whether the driver adapts the transmit side by itself.
    pub adaptive_tx: bool,
}

/// A way by which the machine is managed over an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Management {
    /// What it is, as `the SSH connection tcp 192.0.2.1:50000 > 192.0.2.2:22`.
    pub what: String,
    /// What must not be moved or interrupted.
    pub carried: Carried,
}

/// What an interface carries for the management of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carried {
    /// This connection, in the direction that the interface receives.
    Flow(FlowKey),
    /// A connection that is not known.
    AnyFlow,
    /// The default route, while the connection is known: frames must not be lost.
    Route,
}

/// A machine whose settings are read and changed. Paths begin with `/sys` or `/proc`. An error has the
/// kernel's number, if the kernel gave one.
#[allow(clippy::missing_errors_doc, reason = "each method returns the error of the kernel")]
pub trait Machine {
    /// The text of a file.
    fn read(&self, path: &str) -> io::Result<String>;
    /// The names in a folder, sorted.
    fn names(&self, folder: &str) -> io::Result<Vec<String>>;
    /// Writes a file that exists.
    fn write(&mut self, path: &str, text: &str) -> io::Result<()>;
    /// How the machine is managed over the interface; empty if nothing says that it is.
    fn management(&self, interface: &str) -> Vec<Management>;
    /// The kernel's index of an interface.
    fn index(&self, interface: &str) -> io::Result<u32>;
    /// The name of the interface with this index.
    fn name(&self, index: u32) -> io::Result<String>;
    /// The network namespace, as the number that the kernel gives it.
    fn namespace(&self) -> io::Result<u64>;
    /// The driver.
    fn driver(&self, interface: &str) -> io::Result<Driver>;
    /// The channels.
    fn channels(&self, interface: &str) -> io::Result<Channels>;
    /// Changes the numbers of channels. Drivers then reset other settings, such as the indirection table.
    fn set_channels(&mut self, interface: &str, counts: Counts) -> io::Result<()>;
    /// Receive-side scaling of context `context`; 0 is the default context.
    fn rss(&self, interface: &str, context: u32) -> io::Result<Rss>;
    /// Makes an RSS context with a table and a key; without a key, that of the driver. Returns its number.
    fn create_context(&mut self, interface: &str, table: &[u32], key: &[u8]) -> io::Result<u32>;
    /// Deletes an RSS context.
    fn delete_context(&mut self, interface: &str, context: u32) -> io::Result<()>;
    /// Changes the indirection table of the default context.
    fn set_table(&mut self, interface: &str, table: &[u32]) -> io::Result<()>;
    /// Changes the hash key of the default context.
    fn set_key(&mut self, interface: &str, key: &[u8]) -> io::Result<()>;
    /// The hashed fields of a flow type of ethtool, as bits `RXH_*`.
    fn fields(&self, interface: &str, flow_type: u32) -> io::Result<u64>;
    /// Changes the hashed fields of a flow type.
    fn set_fields(&mut self, interface: &str, flow_type: u32, fields: u64) -> io::Result<()>;
    /// The features.
    fn features(&self, interface: &str) -> io::Result<Vec<Feature>>;
    /// When the adapter interrupts.
    fn coalesce(&self, interface: &str) -> io::Result<Coalesce>;
    /// The driver's counters with their names, in the driver's order (`ethtool -S`).
    fn counters(&self, interface: &str) -> io::Result<Vec<(String, u64)>>;
    /// The rules.
    fn rules(&self, interface: &str) -> io::Result<Table>;
    /// The rule at a location, if there is one.
    fn rule(&self, interface: &str, location: u32) -> io::Result<Option<Listed>>;
    /// Installs a rule at a location, or where the driver chooses ([`crate::ntuple::ANY_LOCATION`]). Returns its location.
    fn insert_rule(&mut self, interface: &str, rule: &Request, location: u32) -> io::Result<u32>;
    /// Deletes the rule at a location.
    fn delete_rule(&mut self, interface: &str, location: u32) -> io::Result<()>;
}
