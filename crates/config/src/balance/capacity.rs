//! What the connection tables and the local ports of a balancer can hold, computed from its configuration.

use std::collections::BTreeSet;

use flowyard_flow::table::Directory;
use flowyard_lb::{Conns, LOCALS, Mode, PORTS, Service, ports_for_unestablished};

use crate::{Config, ConfigError, WorkKind};

/// What a balancer can hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// The number of cores that work on packets of the balancer.
    pub cores: usize,
    /// The most connections of all services on a core.
    pub connections: usize,
    /// The most unestablished connections among them.
    pub opening: usize,
    /// Memory of the table of a core when it is full, and of its part of the directory, in bytes.
    pub bytes: usize,
    /// The services, in the order of the configuration.
    pub services: Vec<ServiceCapacity>,
}

/// What a service can hold on a core.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceCapacity {
    /// Its name.
    pub name: String,
    /// The most connections.
    pub connections: usize,
    /// The most unestablished connections among them.
    pub opening: usize,
    /// The unestablished connections that it can have whatever other services do.
    pub part: usize,
    /// Its local ports, if its connections need them.
    pub ports: Option<LocalPorts>,
    /// Whether it has no connections, because its datagrams are placed one by one.
    pub one_packet: bool,
    /// Whether connections beyond this number are served, too: their backend is chosen by hash for each packet.
    pub further: bool,
}

/// The local ports of a service on the core that has the fewest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalPorts {
    /// Local addresses of the core.
    pub addresses: usize,
    /// Ports of each address.
    pub each: usize,
    /// Different addresses and ports of backends.
    pub backends: usize,
}

impl LocalPorts {
    /// The connections that can have a port.
    #[must_use]
    pub const fn connections(&self) -> usize {
        self.addresses.saturating_mul(self.each).saturating_mul(self.backends)
    }
}

impl Config {
    /// What the balancer can hold; `None` if the work is not a balancer.
    ///
    /// # Errors
    /// The first setting that is wrong.
    pub fn capacity(&self) -> Result<Option<Capacity>, ConfigError> {
        if *self.work.get_ref().kind.get_ref() != WorkKind::Balance {
            return Ok(None);
        }
        let settings = self.balance_settings()?;
        let all = usize::from(*self.yard.cores.get_ref()).max(1);
        let queues = self.queue.iter().flat_map(|queue| queue.get_ref().consumers.get_ref());
        let workers: BTreeSet<usize> = queues.map(|core| usize::from(*core.get_ref())).collect();
        // Local addresses are assigned to all cores in turn.
        let addresses = |v6: bool| {
            let many = settings.local.iter().filter(|addr| addr.is_ipv6() == v6).count();
            let of = |&core: &usize| many.saturating_sub(core).div_ceil(all).min(LOCALS);
            workers.iter().map(of).min().unwrap_or(0)
        };
        let one = |service: Service| {
            let backends = service.backends.iter().map(|backend| (backend.addr, backend.port));
            let ports = (service.mode == Mode::FullNat).then(|| LocalPorts {
                addresses: addresses(service.vip.is_ipv6()),
                each: PORTS as usize,
                backends: backends.collect::<BTreeSet<_>>().len(),
            });
            let limits = [
                Some(settings.connections),
                Some(service.connections).filter(|&limit| limit > 0),
                ports.map(|ports| ports.connections()),
            ];
            let limits = limits.into_iter().flatten().filter(|_| !service.one_packet);
            let connections = limits.min().unwrap_or(0);
            let limits = [
                Some(settings.opening_most),
                Some(connections),
                Some(service.opening).filter(|&limit| limit > 0),
                ports.map(|ports| ports_for_unestablished(ports.connections())),
            ];
            let opening = limits.into_iter().flatten().min().unwrap_or(0);
            ServiceCapacity {
                name: service.name,
                one_packet: service.one_packet,
                connections,
                opening,
                part: opening.min(settings.opening_most / self.service.len().max(1)),
                ports,
                further: ports.is_none() && !settings.full_drops,
            }
        };
        Ok(Some(Capacity {
            cores: workers.len(),
            connections: settings.connections,
            opening: settings.opening_most,
            bytes: Conns::bytes(settings.connections, !settings.local.is_empty())
                + if settings.returns { 6 * settings.connections } else { 0 }
                + if all > 1 { Directory::bytes(settings.connections * all) / all } else { 0 },
            services: self.services()?.into_iter().map(one).collect(),
        }))
    }
}
