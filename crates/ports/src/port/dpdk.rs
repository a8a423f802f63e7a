//! A port of DPDK: an adapter that DPDK drives in place of the kernel, or one of its virtual devices.
//!
//! ```text
//!  lent (module `lending`)   yard's pool ══ registered with DPDK: drivers receive into it and transmit from it
//!  copied                    yard's pool <──copy── buffers of DPDK <── driver
//! ```
//!
//! Which of the two is used depends on the driver; the port reports it at the start. Each core has a queue in each
//! direction.
//!
//! Without the feature `dpdk` only the parameters exist, and a port cannot be opened.

#[cfg(feature = "dpdk")]
mod device;
#[cfg(feature = "dpdk")]
mod lending;
#[cfg(feature = "dpdk")]
mod open;

#[cfg(feature = "dpdk")]
pub use open::open;

/// The parameters of a DPDK port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DpdkPort {
    /// The port number in the metadata of its frames.
    pub number: u16,
    /// The name of the port in messages.
    pub name: String,
    /// Number of cores that own the port; each has a queue of each direction.
    pub cores: usize,
    /// The device and its arguments, as `net_null0,size=64` or `0000:03:00.0`.
    pub device: String,
    /// Which memory frames are received into.
    pub memory: Memory,
    /// The number of descriptors of a queue.
    pub frames: u16,
    /// The MTU that the port gets; 0: the driver's own.
    pub mtu: u16,
    /// The key of the hash by which the adapter distributes frames to queues; `None`: the driver distributes them in
    /// its own way.
    pub hash_key: Option<Vec<u8>>,
    /// The environment, which is the same for all ports.
    pub environment: Environment,
}

/// How DPDK is started.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Environment {
    /// EAL options.
    pub options: Vec<String>,
    /// The devices of all ports.
    pub devices: Vec<String>,
}

/// Which memory a DPDK port receives into.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Memory {
    /// The yard's, if the driver allows it; otherwise DPDK's own, and frames are copied.
    #[default]
    Auto,
    /// The yard's; an error if the driver does not allow it.
    Yard,
    /// DPDK's own.
    Copy,
}

/// Whether `device` names a PCI device by its address, as `0000:03:00.0` or `03:00.0`.
#[must_use]
pub fn is_pci(device: &str) -> bool {
    let name = device.split(',').next().unwrap_or_default();
    let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let Some((bus, place)) = name.rsplit_once(':') else { return false };
    let Some((slot, function)) = place.split_once('.') else { return false };
    bus.split(':').all(is_hex) && is_hex(slot) && is_hex(function)
}

/// The least number of buffers with which DPDK must start for each queue, in addition to its descriptors.
pub const SPARE_FRAMES: usize = 256;

/// An open port.
pub struct Opened {
    /// Both halves, for each core.
    pub halves: Vec<flowyard_yard::port::Halves>,
    /// The rules of its adapter.
    pub rules: Option<Box<dyn flowyard_dpdk::rules::Device + Send>>,
}

/// Opens both halves of `port` for each of its cores.
///
/// # Errors
/// Always: this flowyard has no DPDK.
#[cfg(not(feature = "dpdk"))]
pub fn open(
    port: &DpdkPort,
    _: &flowyard_pool::Pool,
    _: &super::Log,
) -> Result<Opened, crate::live::OpenError> {
    Err(crate::live::OpenError {
        what: format!("port {} needs DPDK, and this flowyard was built without it", port.name),
        fix: BUILD.into(),
    })
}

/// How flowyard is built with DPDK.
pub const BUILD: &str =
    "build it with: apt-get install libdpdk-dev pkg-config; cargo build --release --features dpdk";

#[cfg(test)]
mod tests {
    use super::is_pci;

    #[test]
    fn pci_addresses() {
        for device in ["0000:03:00.0", "03:00.1", "0000:af:1f.7,representor=[0-3]"] {
            assert!(is_pci(device), "{device}");
        }
        for device in ["net_null0", "net_tap0,mac=02:00:00:00:00:01", "net_pcap0,rx_pcap=a:b.c", ""]
        {
            assert!(!is_pci(device), "{device}");
        }
    }
}
