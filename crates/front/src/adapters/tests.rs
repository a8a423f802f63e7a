//! Entries whose frames the adapter sends out by another port, from the start through reloads.

use flowyard_dpdk::rules::{Limits, Protocol, Seen, SharedStandIn, StandIn, SwitchPort};
use flowyard_flow::table::Rule;
use flowyard_frame::{Action, FlowKey, To, proto};
use flowyard_yard::ControlPlane;

use super::{Adapters, State, Users};

const SECOND: u64 = 1_000_000_000;

/// Three adapters, of which `a` and `b` have one embedded switch, and `c` has another one.
struct Bed {
    adapters: Adapters,
    devices: Vec<SharedStandIn>,
    now: u64,
}

impl Bed {
    fn new(counts: bool) -> Self {
        let adapters = Adapters::new(16);
        let mut devices = Vec::new();
        for (port, name) in (0..).zip(["a", "b", "c"]) {
            let switch = Some(SwitchPort { domain: u16::from(port == 2), number: 40 + port });
            let (vlans, ipv6, prefixes, marks) = (true, true, true, true);
            let limits =
                Limits { rules: 64, queues: 1, vlans, ipv6, prefixes, marks, counts, switch };
            let device = SharedStandIn::new(StandIn::new(limits));
            adapters.add(port, name, Box::new(device.clone()), &[0]);
            devices.push(device);
        }
        Self { adapters, devices, now: 1 }
    }

    /// Offers entries; returns the states that they have at port `a`.
    fn offer(&self, users: &Users, is_first: bool) -> Vec<State> {
        let prepared = self.adapters.prepare(users, &|_| None);
        self.adapters.commit(&prepared, is_first);
        self.states()
    }

    fn states(&self) -> Vec<State> {
        let entries = self.adapters.states().ports.remove(0).entries;
        entries.into_iter().map(|one| one.state).collect()
    }

    /// Shows port `a` some frames to this destination.
    fn receive(&self, last: u8, frames: usize) {
        let transport = Some((Protocol::Udp, 5, 53));
        let (from, to) = ([10, 0, 0, 1].into(), [10, 0, 0, last].into());
        let seen = Seen { vlan: None, from, to, transport, bytes: 60 };
        for _ in 0..frames {
            let _rule = self.devices[0].with(|device| device.receive(&seen));
        }
    }

    /// A second later: frames that port `a` sent out and dropped.
    fn counted(&mut self) -> (u64, u64) {
        self.now += SECOND;
        self.adapters.tick(self.now);
        let port = self.adapters.states().ports.remove(0);
        (port.forwarded, port.dropped)
    }
}

/// A rule for one destination, or for all.
fn rule(last: Option<u8>, to: To, counter: u16) -> Rule {
    let mut key = FlowKey { eth_type: 0x0800, proto: proto::UDP, ..FlowKey::ZERO };
    let mut mask = FlowKey { eth_type: 0xffff, proto: 0xff, ..FlowKey::ZERO };
    if let Some(last) = last {
        key.dst[..4].copy_from_slice(&[10, 0, 0, last]);
        mask.dst[..4].fill(0xff);
    }
    Rule { key, mask, priority: 0, action: Action { to, counter, mark: 0 } }
}

fn users(rules: &[Rule]) -> Users {
    Users { exact: Vec::new(), rules: rules.to_vec() }
}

fn out(port: &str) -> State {
    State::Forwards(port.into())
}

#[test]
fn frames_are_sent_out_within_one_switch_and_only_from_the_start() {
    let (b, c) = (To::Port(1), To::Port(2));
    let all = users(&[
        rule(Some(2), b, 0),
        rule(Some(3), b, 1),
        rule(Some(4), c, 0),
        rule(Some(2), b, 0),
        rule(None, b, 0),
    ]);
    let overlaps =
        State::Software("a rule of the start sends some of its frames out by a port".into());
    let contested = State::Software("rule 2 is asked first and can match the same frames".into());
    let bed = Bed::new(true);
    let wanted = [out("b"), State::Marks, State::Marks, overlaps, contested.clone()];
    assert_eq!(bed.offer(&all, true), wanted);
    let one = users(&[rule(Some(2), b, 0)]);
    // An entry that comes while the yard receives is marked.
    assert_eq!(Bed::new(true).offer(&one, false), [State::Marks]);
    // A port whose frames the yard may drop sends none out.
    let bed = Bed::new(true);
    bed.adapters.forbid_forwarding(0);
    assert_eq!(bed.offer(&one, true), [State::Marks]);
    // Without counters.
    assert_eq!(Bed::new(false).offer(&one, true), [out("b")]);
}

#[test]
fn a_reload_keeps_the_rules_of_entries_that_stay() {
    let (b, mut bed) = (To::Port(1), Bed::new(true));
    let (two, three) = (rule(Some(2), b, 0), rule(Some(3), b, 0));
    assert_eq!(bed.offer(&users(&[two, three]), true), [out("b"), out("b")]);
    bed.receive(2, 5);
    bed.receive(3, 7);
    assert_eq!(bed.counted(), (12, 0));
    // The second one changes; the first one stays, behind an entry that shares no frame with it.
    let drops = rule(Some(3), To::DROP, 0);
    assert_eq!(bed.offer(&users(&[drops, two]), false), [State::Drops, out("b")]);
    bed.receive(2, 1);
    bed.receive(3, 2);
    assert_eq!(bed.counted(), (13, 2));
    // An entry in front of it that can match its frames: the yard decides from now on.
    let contested = State::Software("rule 1 is asked first and can match the same frames".into());
    let all = rule(None, To::DROP, 0);
    assert_eq!(bed.offer(&users(&[all, two]), false), [State::Drops, contested]);
    assert_eq!(bed.devices[0].with(|device| device.rules()), 1);
    assert_eq!(bed.counted(), (13, 2));
    // It does not come back while the yard runs.
    assert_eq!(bed.offer(&users(&[two]), false), [State::Marks]);
}

#[test]
fn frames_go_through_the_yard_when_the_other_port_is_closed() {
    let mut bed = Bed::new(true);
    assert_eq!(bed.offer(&users(&[rule(Some(2), To::Port(1), 0)]), true), [out("b")]);
    bed.receive(2, 3);
    assert_eq!(bed.counted(), (3, 0));
    bed.devices[1].with(StandIn::leave_switch);
    assert_eq!(bed.counted(), (3, 0));
    let closed = State::Software("the port that the entry names was closed".into());
    assert_eq!(bed.states(), [closed]);
    assert_eq!(bed.devices[0].with(|device| device.rules()), 0);
}
