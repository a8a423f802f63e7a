//! The backend that a flow goes to, and the reason, as sentences.

use std::str::FromStr;

use flowyard_frame::{FlowKey, Nanos, To, proto};
use flowyard_lb::{
    Backend, BackendState, Because, Choice, Explained, Hub, Kept, Plan, State, Table, Target,
};
use flowyard_yard::{DropReason, Handle, Places};

use super::{choice, hub, protocol, state};
use crate::names::name as name_of;
use crate::protocol::LbTrace;

/// Why a connection without an entry goes to a certain backend.
const REPORTED: &str = "no core has an entry for this connection, but another node has reported it ([balance.sync]); a SYN would be placed \
     as a new connection";

/// The backend that packets of `flow` go to, and the reason.
///
/// # Errors
/// The engine does not run a balancer, or `flow` is not a flow with ports.
pub fn trace(yard: &Handle, flow: &str) -> Result<LbTrace, String> {
    let hub = hub(yard)?;
    let key = FlowKey::from_str(flow).map_err(|error| error.to_string())?;
    if !proto::has_ports(key.proto) {
        let fix = "write a flow such as tcp 10.0.0.1:40000 > 192.0.2.1:443";
        return Err(format!("'{flow}' has no ports, so it belongs to no service; {fix}"));
    }
    let explained = hub.explain(&key, yard.now());
    let words =
        Words { explained: &explained, hub: &hub, places: yard.places(), steps: Vec::new() };
    let mut trace = words.all(&key);
    trace.flow = key.flow().to_string();
    Ok(trace)
}

/// The backend that a choice prefers, in words.
const fn best(choice: Choice) -> &'static str {
    match choice {
        Choice::NeverQueue => {
            "a backend without connections, otherwise to the one with the fewest for its weight"
        }
        Choice::Failover => "the backend with the largest weight",
        Choice::Overflow => {
            "the backend with the largest weight of those with less connections than their weight"
        }
        _ => "the backend with the fewest connections for its weight",
    }
}

struct Words<'a> {
    explained: &'a Explained,
    hub: &'a Hub,
    places: &'a Places,
    steps: Vec<String>,
}

/// What decides about a flow, as in [`LbTrace::why`], and why its packets are dropped if they are.
struct Verdict {
    why: &'static str,
    drop: Option<Loss>,
}

/// A reason for which packets are dropped, and what can be done about it.
struct Loss {
    reason: DropReason,
    fix: String,
}

impl<'a> Words<'a> {
    fn all(mut self, key: &FlowKey) -> LbTrace {
        self.service();
        self.left();
        let Verdict { why, drop } = self.verdict(key);
        self.passed_over();
        self.target();
        if let Some(adapter) = &self.explained.adapter {
            self.step(format!("adapter: {adapter}"));
        }
        let Explained { plan, .. } = self.explained;
        let target = self.explained.backend.and_then(|id| plan.target(id));
        LbTrace {
            flow: String::new(),
            generation: plan.generation(),
            service: self.table().map(|table| table.service.name.clone()),
            backend: target.map(|target| short(plan, target)),
            addr: target.map(|target| target.addr.to_string()),
            why: why.into(),
            steps: self.steps,
            drop_reason: drop.as_ref().map(|drop| drop.reason.name().into()),
            fix: drop.map(|drop| drop.fix),
        }
    }

    /// The service of the flow.
    fn table(&self) -> Option<&'a Table> {
        let Explained { plan, service, .. } = self.explained;
        service.and_then(|at| plan.services().get(usize::from(at)))
    }

    fn service(&mut self) {
        let Some(table) = self.table() else { return };
        let service = &table.service;
        let (first, last) = (service.ports.start(), service.ports.end());
        let ports = if first == last { first.to_string() } else { format!("{first}-{last}") };
        self.step(format!(
            "service '{}': {} {}, port {ports}, choice {}",
            service.name,
            protocol(service.proto),
            service.vip,
            choice(service.choice)
        ));
    }

    /// An entry of a connection table that is not used because its backend is down or was removed.
    fn left(&mut self) {
        let Explained { plan, left, .. } = self.explained;
        let Some(Kept { core, slot, backend, .. }) = left else { return };
        let how = match plan.target(*backend) {
            Some(target) => format!("{} is down and 'on_down' is move", name(plan, target)),
            None => "its backend was removed".into(),
        };
        self.step(format!(
            "core {core} has an entry for this connection in slot {slot}, but {how}, so another backend is chosen"
        ));
    }

    /// Why the choice of the service decides about a packet, and what the packet is.
    fn newcomer(&self) -> (&'static str, &'static str) {
        match self.table().is_some_and(|table| table.service.one_packet) {
            true => ("each datagram of the service is placed by itself", "a datagram"),
            false => ("no core has an entry for this connection", "a new connection"),
        }
    }

    /// As [`Self::newcomer`], as a sentence.
    fn is_new(&self) -> String {
        match self.newcomer() {
            (why, "a datagram") => why.to_owned(),
            (why, _) => format!("{why}: it is new"),
        }
    }

    fn verdict(&mut self, key: &FlowKey) -> Verdict {
        let (new, it) = self.newcomer();
        const OTHERS: &str = "a packet in the middle of a connection without an entry uses";
        let (why, drop) = match self.explained.why {
            Because::NoService { is_vip } => {
                let port = format!("{} port {}", protocol(key.proto), key.dport);
                let addr = key.dst_ip().map_or_else(String::new, |addr| addr.to_string());
                self.step(match is_vip {
                    true => format!("{addr} is a VIP, but no service has {port}"),
                    false => format!("no service has the address {addr}"),
                });
                ("no_service", self.passed())
            }
            Because::Answer => {
                self.step("a reply from a backend: its source is translated to the VIP".into());
                ("answer", None)
            }
            Because::NotAsked => {
                self.step(
                    "it comes from the address and port of a backend, but no core has an entry for a connection \
                     that it could belong to, so it is not translated (a backend answers health checks from \
                     there, too)"
                        .into(),
                );
                ("no_service", self.passed())
            }
            Because::Kept(Kept { core, slot, state, is_established, .. }) => {
                let state = state_name(state);
                let not = if is_established { "" } else { ", not established" };
                self.step(format!(
                    "core {core} has an entry for this connection in slot {slot}, state {state}{not}"
                ));
                ("connection", None)
            }
            Because::Reported => {
                self.step(REPORTED.into());
                ("reported", None)
            }
            Because::Entry => {
                self.step(self.is_new());
                self.entry(&format!("{it} uses"));
                match self.table().map(|table| table.service.choice) {
                    Some(Choice::SourceHash) => ("source", None),
                    _ => ("maglev", None),
                }
            }
            Because::Turns => {
                self.step(format!(
                    "{new}: {it} goes to the next backend of the round robin, which only the \
                     receiving core knows"
                ));
                self.entry(OTHERS);
                ("roundrobin", None)
            }
            Because::Compared => {
                let chosen = self.table().map_or(Choice::LeastConnections, |t| t.service.choice);
                self.step(format!("{new}: {it} goes to {}", best(chosen)));
                self.connections();
                self.entry(OTHERS);
                (choice(chosen), None)
            }
            Because::Network { age } => {
                self.step(self.is_new());
                self.network(key, age);
                ("network", None)
            }
            Because::NoBackend => {
                let fix = self.no_backend();
                ("no_backend", Some(Loss { reason: DropReason::NoBackend, fix }))
            }
            Because::Full => {
                self.step(self.is_new());
                let fix = self.full();
                let reason = DropReason::BackendLimit;
                ("backend_limit", Some(Loss { reason, fix: fix.into() }))
            }
        };
        Verdict { why, drop }
    }

    /// How a service whose backends are at their limits can accept connections.
    fn full(&mut self) -> &'static str {
        let chosen = self.table().map(|table| table.service.choice);
        if chosen != Some(Choice::Overflow) {
            return "raise 'max_connections' of the backends, or add backends";
        }
        self.connections();
        "raise 'weight' of the backends, which is the limit of their connections with 'ovf', or 'max_connections', or add backends"
    }

    /// The network of the client, which has a backend.
    fn network(&mut self, key: &FlowKey, age: Nanos) {
        let persist = self.table().and_then(|table| table.service.persist);
        let (Some(persist), Some(client)) = (persist, key.src_ip()) else { return };
        let (network, seconds) = (persist.written(client), persist.timeout / 1_000_000_000);
        let age = age as f64 / 1e9;
        self.step(format!(
            "the network {network} has a backend, which it keeps for {seconds} s without new connections; the last one came {age:.0} s ago"
        ));
    }

    /// A backend that has reached its limit of connections.
    fn passed_over(&mut self) {
        let Explained { plan, passed_over, why, .. } = self.explained;
        if let Some(full) = passed_over.and_then(|id| plan.target(id)) {
            let has = full.active.get();
            let limit = full.ceiling.map_or_else(String::new, |ceiling| {
                format!(
                    "max_connections {}, resume_connections {}",
                    ceiling.most(),
                    ceiling.resume()
                )
            });
            self.step(format!(
                "{} has {has} connections and gets no new ones ({limit})",
                name(plan, full)
            ));
        }
        if *why == Because::Full {
            self.step(
                "every other backend that accepts new connections is at its limit, too".into(),
            );
        }
    }

    /// The chosen backend.
    fn target(&mut self) {
        let Explained { plan, backend, why, .. } = self.explained;
        let target = backend.and_then(|id| plan.target(id));
        let Some(target) = target.filter(|_| !matches!(why, Because::Answer | Because::NotAsked))
        else {
            return;
        };
        let weight = f64::from(target.weight) / 100.0;
        let is_backup = described(plan, target).is_some_and(|backend| backend.backup);
        let note = match (why, target.weight) {
            (Because::Kept(_), 0) => "; it gets no new connections but keeps this one",
            (Because::Kept(_), _) => "",
            (Because::Network { .. }, 0) => "; it is drained, but networks keep it",
            _ if is_backup => "; it is a backup: no other backend accepts new connections",
            _ => "",
        };
        self.step(format!("goes to {}, effective weight {weight}{note}", name(plan, target)));
    }

    fn step(&mut self, text: String) {
        self.steps.push(text);
    }

    /// The entry of the Maglev table that the connection hashes to, and its backend.
    fn entry(&mut self, how: &str) {
        let Explained { plan, entry, entries, checksum, fall_back, .. } = self.explained;
        let whose = fall_back.and_then(|id| plan.target(id));
        let whose = whose.map_or_else(String::new, |target| format!(": {}", short(plan, target)));
        self.step(format!(
            "{how} entry {entry} of {entries} of the Maglev table {checksum:016x}{whose}"
        ));
    }

    /// The number of connections of each backend.
    fn connections(&mut self) {
        let plan = &self.explained.plan;
        let members = self.table().into_iter().flat_map(|table| plan.members(table));
        let one = |t: &Target| {
            let (has, weight) = (t.active.get(), f64::from(t.weight) / 100.0);
            format!("{} {has} (weight {weight})", short(plan, t))
        };
        let all: Vec<_> = members.filter(|target| target.weight > 0).take(16).map(one).collect();
        self.step(format!("current connections: {}", all.join(", ")));
    }

    /// By which ports packets of no service leave, depending on the port at which they come in. The result is
    /// the drop, if those of every port are dropped.
    fn passed(&mut self) -> Option<Loss> {
        let port = |number: u16| name_of(self.places, To::Port(number));
        let (mut ways, mut without) = (Vec::new(), Vec::new());
        for (from, to) in (0..).zip(self.hub.pass()) {
            match to {
                Some(to) => ways.push(format!("from {} by {}", port(from), port(to))),
                None => without.push(port(from)),
            }
        }
        if ways.is_empty() {
            self.step("no port has a way for it in 'pass' in [balance], so it is dropped".into());
            let fix = "add a [[service]] with this address, protocol and port, or set with 'pass' in [balance] by \
                       which port other frames leave";
            return Some(Loss { reason: DropReason::NoService, fix: fix.into() });
        }
        self.step(format!("'pass' in [balance] forwards it {}", ways.join(", ")));
        if !without.is_empty() {
            let reason = DropReason::NoService.name();
            self.step(format!(
                "if it is received on {}, it is dropped ({reason})",
                without.join(", ")
            ));
        }
        None
    }

    /// Why no backend accepts new connections; returns what can be done about it.
    fn no_backend(&mut self) -> String {
        let Some(table) = self.table() else { return String::new() };
        let service = &table.service;
        if service.backends.is_empty() {
            self.step("the service has no backends".into());
            return "add a [[service.backend]]".into();
        }
        let states = self.hub.states();
        let of = states.iter().find(|state| state.service.name == service.name);
        let pairs = of.into_iter().flat_map(|of| service.backends.iter().zip(&of.backends));
        let (mut each, mut fixes) = (Vec::new(), Vec::<String>::new());
        for (described, is) in pairs {
            let (why, fix) = refusal(&service.name, described, is);
            each.push(format!("{} {why}", described.name));
            if !fixes.contains(&fix) {
                fixes.push(fix);
            }
        }
        // A service with many backends has few different reasons, and one fix of each is enough to go on.
        fixes.truncate(4);
        self.step(format!(
            "no backend of the service accepts new connections: {}",
            each.join(", ")
        ));
        fixes.join("; ")
    }
}

const fn state_name(state: State) -> &'static str {
    match state {
        State::Opening => "half open",
        State::Open => "open",
        State::Closing => "closing",
        State::Datagrams => "datagrams",
    }
}

/// Why a backend accepts no new connections, and what can be done about it.
fn refusal(service: &str, described: &Backend, is: &BackendState) -> (String, String) {
    let name = format!("{service}/{}", described.name);
    match state(described, is) {
        "down" => (
            "is down".into(),
            "see with 'flowyard lb show' why the health checks fail, or write all_down = \"use\""
                .into(),
        ),
        _ if is.drained => (
            "is drained by hand".into(),
            format!("undo the drain: 'flowyard lb drain {name} --undo'"),
        ),
        _ if described.drain => (
            "is drained by the configuration".into(),
            "remove 'drain = true' from its [[service.backend]] and send SIGHUP".into(),
        ),
        _ if is.set_weight == Some(0) => (
            "has the weight 0, set by hand".into(),
            format!("undo the weight: 'flowyard lb set-weight {name} --undo'"),
        ),
        "drained" => {
            ("has the weight 0".into(), format!("set a weight: 'flowyard lb set-weight {name} 1'"))
        }
        _ => (
            "has an effective weight of 0 in its slow start".into(),
            "wait for its slow start".into(),
        ),
    }
}

/// A backend in the configuration.
fn described<'a>(plan: &'a Plan, target: &Target) -> Option<&'a Backend> {
    let table = plan.services().get(usize::from(target.service))?;
    table.service.backends.get(usize::from(target.index))
}

/// A backend's name in the configuration.
fn short(plan: &Plan, target: &Target) -> String {
    described(plan, target).map_or_else(String::new, |backend| backend.name.clone())
}

/// A backend's name and address.
fn name(plan: &Plan, target: &Target) -> String {
    let port = target.port.map_or_else(String::new, |port| format!(" port {port}"));
    format!("backend '{}' at {}{port}", short(plan, target), target.addr)
}
