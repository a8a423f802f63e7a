//! Validation of services, and the addresses of valid ones.

use flowyard_flow::table::Maglev;
use flowyard_flow::table::maglev::BadMaglev;
use flowyard_frame::proto;

use super::make::choices;
use crate::plan::{Front, Fronts, PLACES, cut};
use crate::service::{Mode, Service};

/// The largest weight of a backend. Effective weights are in hundredths, which must fit 32 bits.
pub const HEAVIEST: u32 = 1_000_000;

/// A service was refused because its configuration is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("service '{service}': {what}")]
pub struct BadService {
    /// The name of the service.
    pub service: String,
    /// The index of the invalid backend, if the error is in one.
    pub backend: Option<usize>,
    /// The reason.
    pub what: BadWhat,
}

/// Reasons for which a service is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadWhat {
    /// Two services have the same name.
    #[error("another service has the same name; give each service its own name")]
    Twice,
    /// Two services share an address, protocol and port.
    #[error("service '{0}' already uses this address and port; give each service its own")]
    Overlap(String),
    /// The port range is empty or contains 0.
    #[error("the port range is empty; write FIRST-LAST, each from 1 to 65535")]
    Ports,
    /// A backend port was given for a service with several ports.
    #[error(
        "a backend has its own 'port', but the service has several ports; leave out the backend's 'port'"
    )]
    PortOfRange,
    /// A backend port was given in a mode that does not translate ports.
    #[error(
        "a backend has its own 'port', but this mode does not translate ports; leave it out, or use dnat"
    )]
    PortKept,
    /// A backend's address family differs from that of the VIP, in a mode without a tunnel.
    #[error(
        "backend '{0}' and the VIP have different address families; use mode ipip or gue, which allow that"
    )]
    Family(String),
    /// Two backends of a service with DNAT have the same address and port, so a reply could belong to either.
    #[error(
        "backend '{0}' has the same address and port as backend '{1}', so replies would be ambiguous; leave out one"
    )]
    Returns(String, String),
    /// The weight exceeds [`HEAVIEST`].
    #[error("the weight {0} is out of range; write 0 to 1000000")]
    Weight(u32),
    /// The Maglev table cannot be built.
    #[error(transparent)]
    Maglev(#[from] BadMaglev),
    /// More backends than IDs have indexes for.
    #[error("there are more than {PLACES} backends; remove some")]
    Backends,
    /// A backend of a service with QUIC has no server ID of the configured length.
    #[error(
        "backend '{0}' has no server ID of the length that 'quic' requires; set its 'server_id'"
    )]
    ServerId(String),
    /// PROXY protocol was configured for a service that is not TCP with FullNAT.
    #[error(
        "PROXY protocol works only for TCP with mode fullnat; leave out 'proxy': in the other modes backends see the client's address"
    )]
    Proxy,
    /// A TCP option is to have the client's address where that is not possible.
    #[error(
        "a TCP option tells addresses only for TCP with mode fullnat, and not beside PROXY protocol; leave out 'toa': in the other modes backends see the client's address"
    )]
    Toa,
    /// A service places datagrams one by one, and has something that needs connections.
    #[error("{0}")]
    OnePacket(&'static str),
    /// Two backends of a service have the same server ID.
    #[error("backend '{0}' has the same server ID as another backend; give each backend its own")]
    ServerTwice(String),
}

/// Why a service cannot tell its backends the client's address as it is configured.
fn tells(service: &Service) -> Option<BadWhat> {
    let is_fit = (service.mode, service.proto) == (Mode::FullNat, proto::TCP);
    match (service.proxy, service.toa) {
        (true, _) if !is_fit => Some(BadWhat::Proxy),
        (true, true) => Some(BadWhat::Toa),
        (_, true) if !is_fit => Some(BadWhat::Toa),
        _ => None,
    }
}

/// Validates all services and returns their addresses.
pub(super) fn check(services: &[Service], entries: u32, seed: u64) -> Result<Fronts, BadService> {
    let (mut fronts, mut returns) = (Vec::<Front>::new(), Vec::<Front>::new());
    for (number, service) in (0u16..).zip(services) {
        let wrong = |backend, what| BadService { service: service.name.clone(), backend, what };
        let before = &services[..usize::from(number)];
        if before.iter().any(|other| other.name == service.name) {
            return Err(wrong(None, BadWhat::Twice));
        }
        let (first, last) = (*service.ports.start(), *service.ports.end());
        if first == 0 || first > last {
            return Err(wrong(None, BadWhat::Ports));
        }
        if let Some(what) = tells(service) {
            return Err(wrong(None, what));
        }
        if let Some(what) = one_packet(service) {
            return Err(wrong(None, BadWhat::OnePacket(what)));
        }
        let front = Front {
            addr: service.vip,
            proto: service.proto,
            first,
            last,
            service: number,
            index: 0,
            before: 0,
        };
        let other = |f: &&Front| overlap(f, &front);
        if let Some(other) = fronts.iter().find(other) {
            let name = services[usize::from(other.service)].name.clone();
            return Err(wrong(None, BadWhat::Overlap(name)));
        }
        fronts.push(front);
        // Only the names are validated here. With weights of 0 the table is empty, so this is fast.
        Maglev::new(&choices(service, &vec![0; service.backends.len()]), entries, seed)
            .map_err(|error| wrong(None, error.into()))?;
        for (at, backend) in service.backends.iter().enumerate() {
            let name = || backend.name.clone();
            let what = if backend.weight > HEAVIEST {
                BadWhat::Weight(backend.weight)
            } else if backend.port.is_some() && first != last {
                BadWhat::PortOfRange
            } else if backend.port.is_some() && !service.mode.translates() {
                BadWhat::PortKept
            } else if service.mode.overhead(false) == 0
                && backend.addr.is_ipv4() != service.vip.is_ipv4()
            {
                BadWhat::Family(name())
            } else if service.quic.iter().any(|q| q.server_bytes() != backend.server_id.len()) {
                BadWhat::ServerId(name())
            } else if !backend.server_id.is_empty()
                && service.backends[..at].iter().any(|b| b.server_id == backend.server_id)
            {
                BadWhat::ServerTwice(name())
            } else {
                if service.mode == Mode::Dnat {
                    let (first, last) = backend.port.map_or((first, last), |port| (port, port));
                    let front =
                        Front { addr: backend.addr, first, last, index: at as u16, ..front };
                    let mut own = returns.iter().rev().take_while(|f| f.service == number);
                    if let Some(other) = own.find(|f| overlap(f, &front)) {
                        let other = service.backends[usize::from(other.index)].name.clone();
                        return Err(wrong(Some(at), BadWhat::Returns(name(), other)));
                    }
                    returns.push(front);
                }
                continue;
            };
            return Err(wrong(Some(at), what));
        }
    }
    if services.iter().map(|s| s.backends.len()).sum::<usize>() > PLACES {
        let service = services.first().map(|s| s.name.clone()).unwrap_or_default();
        return Err(BadService { service, backend: None, what: BadWhat::Backends });
    }
    fronts.sort_unstable();
    let (returns, shared) = cut(returns);
    Ok(Fronts { vips: fronts, returns, shared })
}

/// Why the datagrams of a service cannot be placed one by one, if they are to be.
fn one_packet(service: &Service) -> Option<&'static str> {
    if !service.one_packet {
        None
    } else if service.proto != proto::UDP {
        Some(
            "only datagrams of UDP can be placed one by one; leave out 'one_packet', or write proto = \"udp\"",
        )
    } else if service.mode == Mode::FullNat {
        Some(
            "in mode fullnat a reply is recognized by its connection, which 'one_packet' does not enter; use dnat, or leave out 'one_packet'",
        )
    } else if service.backends.iter().any(|backend| backend.ceiling.is_some()) {
        Some(
            "'max_connections' of a backend has no effect with 'one_packet', which has no connections; leave out one of them",
        )
    } else {
        None
    }
}

fn overlap(a: &Front, b: &Front) -> bool {
    (a.addr, a.proto) == (b.addr, b.proto) && a.first <= b.last && b.first <= a.last
}
