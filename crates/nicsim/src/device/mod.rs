//! All parts of the machine except the cores: assists, SDRAM, host and network, in their clock domains.
//!
//! ```text
//!   at one instant:   PCI edge, then MAC edge, then SDRAM edge, then the cycle of the cores
//! ```
//!
//! A device acts only at edges of its domain (`tick`) and at cycles of the cores, through its port
//! (`choose`, `granted`). `next` returns the earliest time at which a tick can have an effect. The reference
//! engine ignores it and ticks every edge; the fast engine relies on it, and a property test compares the
//! two. Thread-safety: values only.

mod bursts;
mod devices;
mod dma;
mod front;
mod histogram;
mod host;
mod mac;
mod net;
mod port;
mod sdram;
mod timeline;

pub(crate) use devices::{ASSISTS, Devices, Domain};
pub use devices::{Departure, DeviceCounters};
pub use histogram::Histogram;
pub use net::{Arrival, FCS_BYTES, FrameCounters, HEADER_BYTES, TAG_BYTES};
pub use sdram::SdramCounters;
pub use timeline::{Happened, What};
