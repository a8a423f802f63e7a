//! Which backend a flow goes to, and why: in words.

use std::str::FromStr;

use flowyard_frame::{FlowKey, proto};
use flowyard_lb::{Because, Choice, Explained, Kept, Plan, State, Target};
use flowyard_yard::{DropReason, Handle};

use super::{choice, hub, protocol};
use crate::mend;
use crate::protocol::LbTrace;

/// Which backend packets of `flow` go to, and why.
///
/// # Errors
/// When the yard is no balancer, or the text no flow with ports.
pub fn trace(yard: &Handle, flow: &str) -> Result<LbTrace, String> {
    let hub = hub(yard)?;
    let key = FlowKey::from_str(flow).map_err(|error| error.to_string())?;
    if !proto::has_ports(key.proto) {
        let mend = "write it as tcp 10.0.0.1:40000 > 192.0.2.1:443";
        return Err(format!("'{flow}' has no ports, so it is no connection; {mend}"));
    }
    let told = hub.explain(&key, yard.now());
    let mut trace = Words { told: &told, steps: Vec::new() }.all(&key);
    trace.flow = key.flow().to_string();
    Ok(trace)
}

struct Words<'a> {
    told: &'a Explained,
    steps: Vec<String>,
}

impl Words<'_> {
    fn all(mut self, key: &FlowKey) -> LbTrace {
        let plan = &self.told.plan;
        let service = self.told.service.and_then(|at| plan.services().get(usize::from(at)));
        let service = service.map(|table| &table.service);
        if let Some(service) = service {
            let (first, last) = (service.ports.start(), service.ports.end());
            let ports = if first == last { first.to_string() } else { format!("{first}-{last}") };
            self.say(format!(
                "service '{}': {} {}, port {ports}, choice {}",
                service.name,
                protocol(service.proto),
                service.vip,
                choice(service.choice)
            ));
        }
        if let Some(Kept { core, slot, backend, .. }) = self.told.left {
            let how = match plan.target(backend) {
                Some(target) => format!("{} is down, and 'on_down' says move", name(plan, target)),
                None => "its backend is gone".into(),
            };
            self.say(format!(
                "core {core} keeps it in slot {slot}, but {how}: it gets another one"
            ));
        }
        let (why, drop) = match self.told.why {
            Because::NoService { is_vip } => {
                let of = format!("{} port {}", protocol(key.proto), key.dport);
                let addr = key.dst_ip().map_or_else(String::new, |addr| addr.to_string());
                self.say(match is_vip {
                    true => format!("{addr} is a VIP, but no service has {of}"),
                    false => format!("no service has the address {addr}"),
                });
                self.say("it is passed on as 'pass' in [balance] says, or dropped".into());
                ("no_service", Some(DropReason::NoService))
            }
            Because::Answer => {
                self.say("it comes from a backend: an answer, which gets the VIP as source".into());
                ("answer", None)
            }
            Because::Kept(Kept { core, slot, state, .. }) => {
                let state = match state {
                    State::Opening => "opening",
                    State::Open => "open",
                    State::Closing => "closing",
                    State::Datagrams => "of datagrams",
                };
                self.say(format!(
                    "core {core} keeps this connection in slot {slot}: it is {state}"
                ));
                ("connection", None)
            }
            Because::Entry => {
                self.say("no core keeps it: a new connection".into());
                self.entry("it goes by");
                match service.map(|service| service.choice) {
                    Some(Choice::SourceHash) => ("source", None),
                    _ => ("maglev", None),
                }
            }
            Because::Turns => {
                self.say("no core keeps it: a new connection goes to whose turn it is, which only the core that gets it knows".into());
                self.entry("a packet in the middle of it goes by");
                ("roundrobin", None)
            }
            Because::Fewest => {
                self.say(
                    "no core keeps it: a new connection goes where the fewest are for the weight"
                        .into(),
                );
                self.fewest();
                self.entry("a packet in the middle of it goes by");
                ("least", None)
            }
            Because::NoBackend => {
                self.nobody();
                ("no_backend", Some(DropReason::NoBackend))
            }
        };
        let target = self.told.backend.and_then(|id| plan.target(id));
        if let Some(target) = target.filter(|_| self.told.why != Because::Answer) {
            let weight = f64::from(target.weight) / 100.0;
            let drained = match (self.told.why, target.weight) {
                (Because::Kept(_), 0) => ": it takes no new connections, and keeps this one",
                _ => "",
            };
            self.say(format!("to {}, weight in force {weight}{drained}", name(plan, target)));
        }
        LbTrace {
            flow: String::new(),
            generation: plan.generation(),
            service: service.map(|service| service.name.clone()),
            backend: target.map(|target| short(plan, target)),
            addr: target.map(|target| target.addr.to_string()),
            why: why.into(),
            steps: self.steps,
            drop: drop.map(|reason| reason.name().into()),
            mend: drop.map(|reason| mend(reason.name(), "it")),
        }
    }

    fn say(&mut self, text: String) {
        self.steps.push(text);
    }

    /// The entry of the table, and who stands there.
    fn entry(&mut self, how: &str) {
        let Explained { plan, entry, entries, checksum, fall_back, hash, .. } = self.told;
        let whose = fall_back.and_then(|id| plan.target(id));
        let whose = whose.map_or_else(String::new, |target| format!(": {}", short(plan, target)));
        self.say(format!(
            "{how} entry {entry} of {entries} of the Maglev table {checksum:016x} (hash {hash:016x}){whose}"
        ));
    }

    fn fewest(&mut self) {
        use std::sync::atomic::Ordering::Relaxed;
        let plan = &self.told.plan;
        let table = self.told.service.and_then(|at| plan.services().get(usize::from(at)));
        let members = table.into_iter().flat_map(|table| plan.members(table));
        let one = |t: &Target| {
            let (has, weight) = (t.active.load(Relaxed), f64::from(t.weight) / 100.0);
            format!("{} has {has} at weight {weight}", short(plan, t))
        };
        let all: Vec<_> = members.filter(|target| target.weight > 0).take(16).map(one).collect();
        self.steps.push(all.join(", "));
    }

    /// Why nobody takes new connections.
    fn nobody(&mut self) {
        let plan = &self.told.plan;
        let table = self.told.service.and_then(|at| plan.services().get(usize::from(at)));
        let Some(table) = table else { return };
        let service = &table.service;
        let text = if service.backends.is_empty() {
            "the service has no backends".to_owned()
        } else {
            let names: Vec<_> = service.backends.iter().map(|b| b.name.as_str()).collect();
            format!(
                "none of {} takes new connections: each is down, drained or of weight 0 ('flowyard lb show' says which)",
                names.join(", ")
            )
        };
        self.say(text);
    }
}

/// A backend's name, as the configuration has it.
fn short(plan: &Plan, target: &Target) -> String {
    let table = plan.services().get(usize::from(target.service));
    let backend = table.and_then(|table| table.service.backends.get(usize::from(target.index)));
    backend.map_or_else(String::new, |backend| backend.name.clone())
}

/// A backend's name and address.
fn name(plan: &Plan, target: &Target) -> String {
    let port = target.port.map_or_else(String::new, |port| format!(" port {port}"));
    format!("backend '{}' at {}{port}", short(plan, target), target.addr)
}
