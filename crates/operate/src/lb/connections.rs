//! The entries of the connection tables: a list, or numbers by service, backend or client.
//!
//! Invariants: the answer has at most as many connections or groups as the request permits, and at most
//! `CLIENTS` clients are counted.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use flowyard_lb::{Connection, Filter, Network, Plan, State, StateFilter, Target, nearest};
use flowyard_yard::Handle;

use super::{hub, protocol};
use crate::answers::seconds;
use crate::protocol::{LbConnection, LbConnections, LbConnectionsRequest, LbGroup};

/// The most clients that are counted separately.
const CLIENTS: usize = 1 << 18;

/// The entries that a request selects. `gone` tells whether nobody waits for the answer any more.
///
/// # Errors
/// The engine does not run a balancer, or the request names something that does not exist.
pub fn list(
    yard: &Handle,
    request: &LbConnectionsRequest,
    gone: &dyn Fn() -> bool,
) -> Result<LbConnections, String> {
    let hub = hub(yard)?;
    let (plan, now) = (hub.plan(), yard.now());
    let filter = filter(&plan, request)?;
    if request.limit > LbConnectionsRequest::MOST {
        return Err(format!(
            "the limit is too large; write at most {}",
            LbConnectionsRequest::MOST
        ));
    }
    let mut answer = LbConnections {
        at_s: seconds(now),
        generation: plan.generation(),
        by: request.by.clone(),
        ..LbConnections::default()
    };
    let Some(by) = &request.by else {
        answer.entries = hub.list(&plan, &filter, now, gone, &mut |one| {
            answer.selected += 1;
            if answer.connections.len() < request.limit {
                answer.connections.push(described(&plan, one));
            }
        });
        answer.left_out = answer.selected - answer.connections.len() as u64;
        return Ok(answer);
    };
    let mut groups = Groups::new(by)?;
    answer.entries = hub.list(&plan, &filter, now, gone, &mut |one| {
        answer.selected += 1;
        answer.ungrouped += u64::from(!groups.add(one));
    });
    groups.finish(&plan, request.limit, &mut answer);
    Ok(answer)
}

fn filter(plan: &Plan, request: &LbConnectionsRequest) -> Result<Filter, String> {
    let mut filter = Filter::default();
    if let Some(name) = &request.service {
        let names = || plan.services().iter().map(|table| table.service.name.as_str());
        let at = names().position(|one| one == name);
        let at = at.ok_or_else(|| unknown("service", name, &names().collect::<Vec<_>>()))?;
        filter.service = u16::try_from(at).ok();
        if let Some(name) = &request.backend {
            let table = &plan.services()[at];
            let all = || table.service.backends.iter().map(|backend| backend.name.as_str());
            let member = all().zip(plan.members(table)).find(|(one, _)| one == name);
            let (_, target) =
                member.ok_or_else(|| unknown("backend", name, &all().collect::<Vec<_>>()))?;
            filter.backend = Some(target.id);
        }
    } else if request.backend.is_some() {
        return Err("a backend belongs to a service; name the service, too".into());
    }
    filter.client = request.client.as_deref().map(network).transpose()?;
    filter.state = request.state.as_deref().map(state_filter).transpose()?;
    Ok(filter)
}

fn unknown(what: &str, name: &str, all: &[&str]) -> String {
    format!("there is no {what} '{name}'; {}", nearest(name, all.iter().copied()))
}

fn network(text: &str) -> Result<Network, String> {
    let wrong =
        || format!("'{text}' is no client; write an address, or a network such as 203.0.113.0/24");
    let (addr, bits) = match text.split_once('/') {
        Some((addr, bits)) => (addr, Some(bits.parse().map_err(|_| wrong())?)),
        None => (text, None),
    };
    let addr: IpAddr = addr.parse().map_err(|_| wrong())?;
    let bits = bits.unwrap_or(if addr.is_ipv6() { 128 } else { 32 });
    Network::new(addr, bits).ok_or_else(wrong)
}

fn state_filter(text: &str) -> Result<StateFilter, String> {
    let states = [State::Opening, State::Open, State::Closing, State::Datagrams];
    match text {
        "established" => Ok(StateFilter::Established(true)),
        "unestablished" => Ok(StateFilter::Established(false)),
        _ => {
            let state = states.into_iter().find(|state| name(*state) == text);
            let all = LbConnectionsRequest::STATES.join(", ");
            state
                .map(StateFilter::Is)
                .ok_or(format!("there is no state '{text}'; choose one of {all}"))
        }
    }
}

const fn name(state: State) -> &'static str {
    match state {
        State::Opening => "opening",
        State::Open => "open",
        State::Closing => "closing",
        State::Datagrams => "datagrams",
    }
}

fn service_name(plan: &Plan, at: u16) -> Option<String> {
    plan.services().get(usize::from(at)).map(|table| table.service.name.clone())
}

fn backend_name(plan: &Plan, target: &Target) -> Option<String> {
    let table = plan.services().get(usize::from(target.service))?;
    Some(table.service.backends.get(usize::from(target.index))?.name.clone())
}

fn described(plan: &Plan, one: &Connection) -> LbConnection {
    let flow = &one.flow;
    let end = |addr: Option<IpAddr>, port| {
        addr.map_or_else(String::new, |addr| SocketAddr::new(addr, port).to_string())
    };
    let target = plan.target(one.backend);
    LbConnection {
        proto: protocol(flow.proto).into(),
        client: end(flow.src_ip(), flow.sport),
        vip: end(flow.dst_ip(), flow.dport),
        service: one.service.and_then(|at| service_name(plan, at)),
        backend: target.and_then(|target| backend_name(plan, target)),
        addr: target.map(|target| match target.port {
            Some(port) => SocketAddr::new(target.addr, port).to_string(),
            None => target.addr.to_string(),
        }),
        local: one.local.map(|local| local.to_string()),
        state: name(one.state).into(),
        is_established: one.is_established,
        idle_s: seconds(one.idle),
        expires_in_s: seconds(one.left),
        core: one.core,
        is_copy: one.is_copy,
        is_offloaded: one.is_in_front,
    }
}

/// What entries are counted by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Group {
    Service(Option<u16>),
    Backend(Option<u16>, u32),
    Client(Option<IpAddr>),
}

/// Entries of a group.
#[derive(Clone, Copy, Default, Debug)]
struct Number {
    entries: u64,
    established: u64,
    copies: u64,
}

struct Groups {
    of: fn(&Connection) -> Group,
    all: HashMap<Group, Number>,
}

impl Groups {
    fn new(by: &str) -> Result<Self, String> {
        let of: fn(&Connection) -> Group = match by {
            "service" => |one| Group::Service(one.service),
            "backend" => |one| Group::Backend(one.service, one.backend),
            "client" => |one| Group::Client(one.flow.src_ip()),
            _ => {
                let all = LbConnectionsRequest::GROUPS.join(", ");
                return Err(format!(
                    "connections cannot be counted by '{by}'; choose one of {all}"
                ));
            }
        };
        Ok(Self { of, all: HashMap::new() })
    }

    /// Counts an entry; false if its group is one too many.
    fn add(&mut self, one: &Connection) -> bool {
        let group = (self.of)(one);
        if self.all.len() >= CLIENTS && !self.all.contains_key(&group) {
            return false;
        }
        let number = self.all.entry(group).or_default();
        number.entries += 1;
        number.established += u64::from(one.is_established);
        number.copies += u64::from(one.is_copy);
        true
    }

    /// Writes the largest groups into the answer.
    fn finish(self, plan: &Plan, limit: usize, answer: &mut LbConnections) {
        let mut all: HashMap<_, Number> = HashMap::new();
        for (group, number) in self.all {
            let key = match group {
                Group::Service(service) => {
                    (service.and_then(|at| service_name(plan, at)), None, None)
                }
                Group::Backend(service, id) => {
                    let name = plan.target(id).and_then(|target| backend_name(plan, target));
                    (service.and_then(|at| service_name(plan, at)), name, None)
                }
                Group::Client(addr) => (None, None, addr),
            };
            let sum = all.entry(key).or_default(); // removed backends have no name, and are one group
            sum.entries += number.entries;
            sum.established += number.established;
            sum.copies += number.copies;
        }
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_by(|(a, x), (b, y)| y.entries.cmp(&x.entries).then_with(|| a.cmp(b)));
        answer.left_out = all.len().saturating_sub(limit) as u64;
        let group =
            |((service, backend, client), number): ((_, _, Option<IpAddr>), Number)| LbGroup {
                service,
                backend,
                client: client.map(|addr| addr.to_string()),
                entries: number.entries,
                established: number.established,
                copies: number.copies,
            };
        answer.groups = all.into_iter().take(limit).map(group).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_and_states_are_read_or_refused_with_a_fix() {
        for good in ["10.0.0.1", "10.0.0.0/8", "0.0.0.0/0", "2001:db8::/32", "::1", "::/0"] {
            assert!(network(good).is_ok(), "{good}");
        }
        assert_eq!(network("10.1.2.3/8"), network("10.0.0.0/8"));
        assert_ne!(network("10.0.0.0/8"), network("10.0.0.0/9"));
        for bad in ["", "10.0.0", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1", "/8", "a"] {
            assert!(network(bad).unwrap_err().contains("203.0.113.0/24"), "{bad}");
        }
        for good in LbConnectionsRequest::STATES {
            assert!(state_filter(good).is_ok(), "{good}");
        }
        assert!(state_filter("syn").unwrap_err().contains("choose one of opening, open"));
    }

    #[test]
    fn more_clients_than_are_counted_are_reported() {
        let one = |number: u32| Connection {
            core: 0,
            flow: flowyard_frame::FlowKey::five_tuple(
                6,
                number.to_be_bytes().into(),
                1,
                IpAddr::from([10, 0, 0, 1]),
                80,
            ),
            service: None,
            backend: 0,
            local: None,
            state: State::Open,
            is_established: number == 3,
            is_copy: false,
            is_in_front: false,
            idle: 0,
            left: 0,
        };
        let mut groups = Groups::new("client").unwrap();
        let most = CLIENTS as u32;
        assert!((0..most).all(|number| groups.add(&one(number))));
        assert!(!groups.add(&one(most)) && groups.add(&one(3)));
        assert_eq!(groups.all.len(), CLIENTS);
        let three = groups.all[&(groups.of)(&one(3))];
        assert_eq!((three.entries, three.established), (2, 2));
        assert!(Groups::new("port").is_err());
    }
}
