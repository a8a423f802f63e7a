//! `[dpdk]`, and ports of kind `dpdk`: how DPDK is started, and which of its devices are used.

use flowyard_ports::port::dpdk::{self, DpdkPort, Environment, Memory, SPARE_FRAMES};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::{Config, ConfigError, EngineWord, PortConfig, PortKind};
use flowyard_pool::LONGEST_LENDABLE;

/// `[dpdk]`
#[derive(Clone, PartialEq, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct DpdkConfig {
    /// Options of DPDK's environment (EAL), as on the command line of a DPDK program.
    pub options: Vec<Spanned<String>>,
}

/// The default number of descriptors of a queue.
const RING_FRAMES: u32 = 512;

/// EAL options that contradict what flowyard needs.
const REFUSED: [(&str, &str); 4] = [
    ("--proc-type", "flowyard shares no memory with other DPDK programs"),
    ("--file-prefix", "flowyard shares no files with other DPDK programs"),
    ("--vdev", "write it as 'device' of a port"),
    ("--legacy-mem", "it cannot be combined with --in-memory, which flowyard uses"),
];

impl Config {
    pub(crate) fn dpdk_port(&self, number: u16, port: &PortConfig) -> DpdkPort {
        let device = |port: &PortConfig| {
            port.device.as_ref().map(|device| device.get_ref().clone()).unwrap_or_default()
        };
        let hash = port.rss.as_ref().is_none_or(|rss| *rss.get_ref());
        DpdkPort {
            number,
            name: port.name.get_ref().clone(),
            cores: port.owners().count(),
            device: device(port),
            memory: port.memory.as_ref().map(|word| *word.get_ref()).unwrap_or_default().into(),
            frames: port.dpdk_ring() as u16,
            mtu: port.mtu.as_ref().map_or(0, |mtu| *mtu.get_ref() as u16),
            hash_key: hash.then(|| self.receive_key()),
            environment: self.dpdk_environment(),
        }
    }

    /// How DPDK is started: the same for all ports, and for an event device.
    pub(crate) fn dpdk_environment(&self) -> Environment {
        let section = self.dpdk.as_ref().map(|section| &section.get_ref().options);
        let ports = self.ports().filter(|port| port.kind == PortKind::Dpdk);
        let devices = ports.map(|port| port.device.as_ref()).chain([self.event_device()]);
        let text = |one: &Spanned<String>| one.get_ref().clone();
        Environment {
            options: section.into_iter().flatten().map(text).collect(),
            devices: devices.flatten().map(text).collect(),
        }
    }
}

impl PortConfig {
    fn dpdk_ring(&self) -> u32 {
        self.ring_frames.as_ref().map_or(RING_FRAMES, |frames| *frames.get_ref())
    }

    /// Pool buffers that DPDK may have.
    pub(crate) fn dpdk_lent_frames(&self) -> usize {
        let memory = self.memory.as_ref().map(|word| *word.get_ref()).unwrap_or_default();
        if Memory::from(memory) == Memory::Copy {
            return 0;
        }
        (2 * self.dpdk_ring() as usize + 2 * SPARE_FRAMES) * self.owners().count()
    }
}

/// Checks a port of kind `dpdk`.
pub(super) fn check(config: &Config, port: &PortConfig) -> Result<(), ConfigError> {
    if !cfg!(feature = "dpdk") {
        let what = "this flowyard was built without DPDK, so it has no ports of kind \"dpdk\"";
        return Err(config.error(port.name.span(), what, dpdk::BUILD));
    }
    let Some(device) = &port.device else {
        let what = "this dpdk port has no device";
        let fix = "add 'device = \"net_tap0,iface=fy0\"', or the address of a PCI device";
        return Err(config.error(port.name.span(), what, fix));
    };
    let name = device.get_ref().split(',').next().unwrap_or_default();
    if !(dpdk::is_pci(name) || name.starts_with("net_")) || device.get_ref().contains('\0') {
        let what = format!("'{}' is not a network device of DPDK", device.get_ref());
        let fix = "write a virtual device, such as net_null0, or the address of a PCI device, such as 0000:03:00.0";
        return Err(config.error(device.span(), what, fix));
    }
    let same = |other: &&PortConfig| {
        let twin = other.device.as_ref().filter(|_| other.name != port.name);
        twin.is_some_and(|twin| twin.get_ref().split(',').next() == Some(name))
    };
    if config.ports().any(|other| same(&other)) {
        let what = format!("another port has the device '{name}'");
        return Err(config.error(device.span(), what, "give each port a device of its own"));
    }
    if let Some(frames) = port.ring_frames.as_ref().filter(|frames| *frames.get_ref() > 32_768) {
        let what = format!("a queue of {} descriptors is not possible", frames.get_ref());
        return Err(config.error(frames.span(), what, "write at most 32768"));
    }
    let bytes = &config.yard.buffer_bytes;
    let memory = port.memory.as_ref().map(|word| *word.get_ref()).unwrap_or_default();
    if *bytes.get_ref() > LONGEST_LENDABLE && Memory::from(memory) != Memory::Copy {
        let what = format!("buffers of {} bytes cannot be lent to DPDK", bytes.get_ref());
        let fix = format!("write at most {LONGEST_LENDABLE}, or memory = \"copy\" for the port");
        return Err(config.error(bytes.span(), what, fix));
    }
    Ok(())
}

/// Checks the section `[dpdk]`.
pub(super) fn check_section(config: &Config) -> Result<(), ConfigError> {
    let Some(section) = &config.dpdk else { return Ok(()) };
    let has_port = config.ports().any(|port| port.kind == PortKind::Dpdk);
    if !has_port && *config.yard.engine.get_ref() == EngineWord::Own {
        let what = "no port is of kind \"dpdk\", so DPDK is not started";
        let fix = "remove [dpdk], or add such a port or engine = \"eventdev\" in [yard]";
        return Err(config.error(section.span(), what, fix));
    }
    for option in &section.get_ref().options {
        let text = option.get_ref();
        let found = REFUSED.iter().find(|(name, _)| text.split('=').next() == Some(name));
        if let Some((name, why)) = found {
            let what = format!("the option {name} is not possible");
            return Err(config.error(option.span(), what, *why));
        }
        if text.is_empty() || text.contains(['\0', '\n']) {
            let what = "an EAL option is empty or has a line break";
            return Err(config.error(
                option.span(),
                what,
                "write each word as an item of the list",
            ));
        }
    }
    Ok(())
}
