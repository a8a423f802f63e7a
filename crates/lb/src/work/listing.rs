//! The connections in the tables of all cores, for `flowyard lb connections`. No packet is involved.
//!
//! ```text
//!  table of a core ──lock, copy a page of slots, unlock──> filter ──> caller
//! ```
//!
//! A core waits for the copy of one page at most. Entries that come or go while the tables are read may be listed or not; the
//! others are listed once for each table that has them.
//! Thread-safety: any thread may call this.

use std::net::{IpAddr, SocketAddr};
use std::sync::PoisonError;

use flowyard_frame::{FlowKey, Nanos, proto};

use crate::conns::Listed;
use crate::{ConnKey, Conns, Plan, State};

use super::Hub;

/// The pages after which the caller is asked whether to go on.
const PAGES: usize = 64;

/// Which connections are listed. A field that is `None` does not restrict them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter {
    /// The index of a service in the plan.
    pub service: Option<u16>,
    /// The ID of a backend.
    pub backend: Option<u32>,
    /// The network of the client.
    pub client: Option<Network>,
    /// The state.
    pub state: Option<StateFilter>,
}

/// An address with its leading bits that matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    is_ipv6: bool,
    pub(super) bits: u8,
    words: [u64; 2],
}

/// What is asked about the state of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateFilter {
    /// It has this state.
    Is(State),
    /// It is established, or is not.
    Established(bool),
}

/// A connection in the table of a core.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    /// The core that has the table.
    pub core: u16,
    /// The 5-tuple of the client's packets.
    pub flow: FlowKey,
    /// The index of its service in the plan; `None` if no service has its destination any more.
    pub service: Option<u16>,
    /// The ID of its backend, which may have been removed.
    pub backend: u32,
    /// The address and port that a FullNAT connection has towards its backend.
    pub local: Option<SocketAddr>,
    /// The state.
    pub state: State,
    /// Whether it is established.
    pub is_established: bool,
    /// Whether it is counted among those of its backend by the entry of another core.
    pub is_copy: bool,
    /// Whether it is answered in front of the balancer, which learns of its packets when the entry would expire.
    pub is_in_front: bool,
    /// The time since the last packet, up to 0.14 seconds too short.
    pub idle: Nanos,
    /// The time until the entry expires if no packet comes.
    pub left: Nanos,
}

impl Network {
    /// The network with this address and number of leading bits; `None` if the address has less bits.
    #[must_use]
    pub fn new(addr: IpAddr, bits: u8) -> Option<Self> {
        let most = if addr.is_ipv6() { 128 } else { 32 };
        let key = ConnKey::of(&FlowKey::five_tuple(proto::TCP, addr, 0, addr, 0));
        let words = key.network(bits, bits);
        (bits <= most).then_some(Self { is_ipv6: addr.is_ipv6(), bits, words })
    }

    fn has(&self, key: &ConnKey) -> bool {
        key.is_ipv6() == self.is_ipv6 && key.network(self.bits, self.bits) == self.words
    }
}

impl StateFilter {
    fn is_of(self, listed: &Listed) -> bool {
        match self {
            Self::Is(state) => listed.conn.state() == state,
            Self::Established(is) => listed.conn.is_established() == is,
        }
    }
}

impl Filter {
    /// Whether the entry is of a service or backend that is wanted, whose index in the plan is `service`.
    fn has(&self, listed: &Listed, service: impl Fn() -> Option<u16>) -> bool {
        self.backend.is_none_or(|backend| listed.conn.backend == backend)
            && self.state.is_none_or(|state| state.is_of(listed))
            && self.client.is_none_or(|network| network.has(listed.conn.key()))
            && self.service.is_none_or(|wanted| service() == Some(wanted))
    }
}

/// The service of an entry: that of its backend, or the one that has its destination.
fn service_of(plan: &Plan, listed: &Listed) -> Option<u16> {
    if let Some(target) = plan.target(listed.conn.backend) {
        return Some(target.service);
    }
    let flow = listed.conn.key().flow();
    plan.service(flow.dst_ip()?, flow.proto, flow.dport)
}

impl Hub {
    /// Passes each connection that `filter` has to `to`, core by core. Ends early when `gone` returns true. Returns the number of
    /// entries that were examined, of all services.
    pub fn list(
        &self,
        plan: &Plan,
        filter: &Filter,
        now: Nanos,
        gone: &dyn Fn() -> bool,
        to: &mut dyn FnMut(&Connection),
    ) -> u64 {
        let Some(tables) = self.conns() else { return 0 };
        let (mut page, mut examined, mut pages) = (Vec::with_capacity(Conns::PAGE), 0, 0);
        for (core, table) in (0..).zip(tables.iter()) {
            let mut from = Some(0);
            while let Some(slot) = from {
                from = {
                    let conns = table.lock().unwrap_or_else(PoisonError::into_inner);
                    conns.page(slot, now, &mut page)
                };
                examined += page.len() as u64;
                for listed in page.drain(..) {
                    if filter.has(&listed, || service_of(plan, &listed)) {
                        to(&self.connection(plan, core, &listed));
                    }
                }
                pages += 1;
                if pages % PAGES == 0 && gone() {
                    return examined;
                }
            }
        }
        examined
    }

    fn connection(&self, plan: &Plan, core: u16, listed: &Listed) -> Connection {
        let conn = &listed.conn;
        let flow = conn.key().flow();
        Connection {
            core,
            flow,
            service: service_of(plan, listed),
            backend: conn.backend,
            local: self.local(core.into(), conn.local(), flow.is_ipv6()),
            state: conn.state(),
            is_established: conn.is_established(),
            is_copy: !conn.is_counted(),
            is_in_front: listed.is_in_front,
            idle: listed.idle,
            left: listed.left,
        }
    }
}
