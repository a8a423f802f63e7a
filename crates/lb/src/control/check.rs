//! What can be wrong with services, and the addresses they have if nothing is.

use flowyard_flow::table::Maglev;
use flowyard_flow::table::maglev::BadMaglev;
use flowyard_frame::proto;

use super::HEAVIEST;
use super::make::choices;
use crate::plan::{Front, PLACES};
use crate::service::{Mode, Service};

/// The addresses of services, and those that answers of DNAT backends come from; both sorted.
pub(super) type Fronts = (Vec<Front>, Vec<Front>);

/// Why services cannot be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("service '{service}': {what}")]
pub struct BadService {
    /// Its name.
    pub service: String,
    /// The index of the backend that is wrong, if one is.
    pub backend: Option<usize>,
    /// What is wrong.
    pub what: BadWhat,
}

/// What is wrong with a service.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadWhat {
    /// Its name is taken.
    #[error("there is one of this name already; give each its own name")]
    Twice,
    /// Its ports are another's.
    #[error("'{0}' has this address and port already; give each its own")]
    Overlap(String),
    /// The ports are none.
    #[error("there is no port in this range; write first-last, from 1 to 65535")]
    Ports,
    /// One for each port would be needed.
    #[error("a backend has a port of its own, and the service has many; leave the backend's out")]
    PortOfRange,
    /// Only addresses and ports that are translated can be others.
    #[error(
        "a backend has a port of its own, and this mode changes none; leave it out, or use dnat"
    )]
    PortKept,
    /// IPv4 is not translated to IPv6.
    #[error(
        "backend '{0}' is not of the address family of the VIP; this mode needs that, ipip and gue do not"
    )]
    Family(String),
    /// Answers could not be told apart.
    #[error(
        "backend '{0}' is one of '{1}' too, with the same port; answers could not be told apart: use fullnat or another port"
    )]
    Returns(String, String),
    /// It weighs too much.
    #[error("a weight of {0} is not possible; write 0 to 1000000")]
    Weight(u32),
    /// What Maglev's table says.
    #[error(transparent)]
    Maglev(#[from] BadMaglev),
    /// Each has a place.
    #[error("there are more than {PLACES} backends; leave some out")]
    Backends,
    /// A server ID of another length is never found.
    #[error("backend '{0}' has no server ID of the length that 'quic' says; give it one")]
    ServerId(String),
    /// Only what is terminated in between would need it elsewhere.
    #[error(
        "PROXY protocol is for TCP with fullnat; leave 'proxy' out, backends see the client's address"
    )]
    Proxy,
    /// Two servers of one ID.
    #[error("backend '{0}' has the server ID of another one; give each its own")]
    ServerTwice(String),
}

/// The addresses of all services, and those that answers come from.
pub(super) fn check(services: &[Service], entries: u32, seed: u64) -> Result<Fronts, BadService> {
    let (mut fronts, mut returns) = (Vec::<Front>::new(), Vec::<(Front, &str)>::new());
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
        if service.proxy && (service.mode, service.proto) != (Mode::FullNat, proto::TCP) {
            return Err(wrong(None, BadWhat::Proxy));
        }
        let front = Front {
            addr: service.vip,
            proto: service.proto,
            first,
            last,
            service: number,
            index: 0,
        };
        let other = |f: &&Front| overlap(f, &front);
        if let Some(other) = fronts.iter().find(other) {
            let name = services[usize::from(other.service)].name.clone();
            return Err(wrong(None, BadWhat::Overlap(name)));
        }
        fronts.push(front);
        // Without weights the table is empty, and quickly made: the names are what counts here.
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
                    if let Some((other, _)) = returns.iter().find(|(f, _)| overlap(f, &front)) {
                        let other = services[usize::from(other.service)].name.clone();
                        return Err(wrong(Some(at), BadWhat::Returns(name(), other)));
                    }
                    returns.push((front, &backend.name));
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
    let mut returns: Vec<Front> = returns.into_iter().map(|(front, _)| front).collect();
    returns.sort_unstable();
    Ok((fronts, returns))
}

fn overlap(a: &Front, b: &Front) -> bool {
    (a.addr, a.proto) == (b.addr, b.proto) && a.first <= b.last && b.first <= a.last
}
