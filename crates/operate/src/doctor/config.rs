//! The requirements of a configuration on the machine.

use flowyard_config::{PortBody, Setup};
use flowyard_ports::live::Carries;
use flowyard_ports::port::live::LiveKind;
use flowyard_yard::blueprint::Idle;

/// The requirements of a configuration on the machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// The ports that use an interface.
    pub ports: Vec<Port>,
    /// The number of cores of the engine; 0 is unknown.
    pub cores: usize,
    /// The CPUs that cores are pinned to.
    pub pin: Vec<usize>,
    /// Size of the frame pool in bytes; 0 is unknown.
    pub pool_bytes: u64,
    /// Whether idle cores poll instead of sleeping.
    pub busy: bool,
    /// How DPDK is started; `None` if no port needs it.
    pub dpdk: Option<Dpdk>,
}

/// The requirements of DPDK.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Dpdk {
    /// Its options (EAL).
    pub options: Vec<String>,
    /// The devices of the ports.
    pub devices: Vec<String>,
}

/// A port on an interface.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Port {
    /// The name of the interface.
    pub interface: String,
    /// `af_xdp`, `af_packet` or `tap`.
    pub kind: String,
    /// The number of the interface's receive queues that the port is bound to.
    pub queues: usize,
    /// Whether the port computes checksums that senders on this machine leave out.
    pub completes_checksums: bool,
    /// Whether a frame may be in several buffers of an AF_XDP port.
    pub multi_buffer: bool,
    /// The unfinished frames that the port passes on.
    pub carries: Carries,
}

impl Wanted {
    /// The requirements of `setup`.
    #[must_use]
    pub fn of(setup: &Setup) -> Self {
        let plan = &setup.blueprint;
        let live = setup.ports.iter().filter_map(|body| match body {
            PortBody::Live(port) => Some(port),
            PortBody::Capture(_) | PortBody::Memif(_) | PortBody::Vhost(_) | PortBody::Dpdk(_) => {
                None
            }
        });
        let ports = live.map(|port| Port {
            interface: port.interface.clone(),
            kind: port.kind.name().to_owned(),
            queues: port.cores,
            completes_checksums: matches!(&port.kind, LiveKind::AfXdp(xdp) if xdp.completes_checksums),
            multi_buffer: matches!(&port.kind, LiveKind::AfXdp(xdp) if xdp.settings.multi_buffer),
            carries: port.carries,
        });
        let dpdk = setup.ports.iter().find_map(|body| match body {
            PortBody::Dpdk(port) => Some(Dpdk {
                options: port.environment.options.clone(),
                devices: port.environment.devices.clone(),
            }),
            _ => None,
        });
        Self {
            dpdk,
            ports: ports.collect(),
            cores: plan.cores.into(),
            pin: plan.pin.clone(),
            pool_bytes: plan.pool_bytes(),
            busy: plan.idle == Idle::Busy,
        }
    }

    /// Whether the configuration has a port of this kind.
    #[must_use]
    pub fn kind(&self, kind: &str) -> bool {
        self.ports.iter().any(|port| port.kind == kind)
    }
}

#[cfg(test)]
mod tests {
    use flowyard_config::Config;

    use super::*;

    #[test]
    fn a_configuration_says_what_it_needs() {
        let text = r#"
            [yard]
            cores = 4
            pin = [2, 3, 4, 5]
            idle = "busy"
            frames = 100000
            [[port]]
            name = "a"
            kind = "af_xdp"
            interface = "eth1"
            match = ["all"]
            cores = [0, 1]
            [[port]]
            name = "b"
            kind = "pcap"
            in = "b.pcap"
            [[queue]]
            name = "q"
            order = "ordered"
            consumers = [2, 3]
            [work]
            kind = "forward"
        "#;
        let found = Wanted::of(&Config::parse("y.toml", text).unwrap().resolve().unwrap());
        let (interface, kind) = ("eth1".to_owned(), "af_xdp".to_owned());
        let port = Port { interface, kind, queues: 2, ..Port::default() };
        assert_eq!(found.ports, [port]);
        let buffer = 2048 + 64 + 64; // bytes, metadata and key
        assert_eq!((found.cores, found.pool_bytes, found.busy), (4, 100_000 * buffer, true));
        assert_eq!(found.pin, [2, 3, 4, 5]);
        assert!(found.kind("af_xdp") && !found.kind("tap"));
    }
}
