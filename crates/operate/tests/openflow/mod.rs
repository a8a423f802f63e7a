//! Tests over loopback sockets: the tests are the controllers, and the data plane is simulated.

#![allow(clippy::disallowed_methods, reason = "tests of live connections measure time")]

mod limits;
mod os_ken;

use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use flowyard_openflow::Version;
use flowyard_openflow::agent::{Agent, Limits, Rate};
use flowyard_openflow::change::{Change, Place, Punt};
use flowyard_openflow::flow::{FlowMod, InReason};
use flowyard_openflow::message::{Role, RoleMessage};
use flowyard_openflow::multipart::{Reply, Request};
use flowyard_openflow::port::{Port, PortStats, reserved};
use flowyard_openflow::session::{Heard, Session};
use flowyard_openflow::{Header, Message, encode};
use flowyard_operate::openflow::tls::{self, Tls};
use flowyard_operate::openflow::{Channel, Config, Dialed, Endpoint, Fail, Plane, dial};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

flowyard_testkit::tests! {
    mod os_ken,
    mod limits,
    a_barrier_waits_until_the_change_is_in_force,
    two_controllers_get_the_messages_of_their_roles,
    a_hundred_thousand_malformed_messages_do_not_affect_other_connections,
    a_controller_that_does_not_read_loses_packet_ins_and_requests_are_answered_in_a_flood,
    standalone_ends_when_a_controller_connects_and_begins_when_it_disconnects,
    standalone_without_controllers_is_always_below_the_flows,
    tls_asks_both_sides_for_certificates,
}

const LIMITS: Limits = Limits { tables: 4, flows: 1000, groups: 16, meters: 16 };

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A data plane in which changes take effect at once, or when the test asks for it.
struct Fake {
    from: Instant,
    applied: Arc<Mutex<Vec<(u64, Change)>>>,
    in_force: Arc<AtomicU64>,
    /// Whether changes take effect at once.
    at_once: bool,
    punts: Receiver<Punt>,
}

impl Plane for Fake {
    fn now(&self) -> u64 {
        self.from.elapsed().as_nanos() as u64
    }

    fn apply(&mut self, changes: &[(u64, Change)]) {
        lock(&self.applied).extend_from_slice(changes);
        if self.at_once {
            self.in_force.store(changes.last().map_or(0, |last| last.0), Ordering::Release);
        }
    }

    fn in_force(&self) -> u64 {
        self.in_force.load(Ordering::Acquire)
    }

    fn punts(&self) -> Receiver<Punt> {
        self.punts.clone()
    }

    fn port_stats(&mut self) -> Vec<PortStats> {
        vec![PortStats { number: 1, basic: [7; 8], ..PortStats::default() }]
    }
}

struct Switch {
    channel: Channel,
    applied: Arc<Mutex<Vec<(u64, Change)>>>,
    in_force: Arc<AtomicU64>,
    punts: Sender<Punt>,
}

fn switch(config: Config, at_once: bool) -> Switch {
    let (punts, inbox) = bounded(100_000);
    let (applied, in_force) = (Arc::default(), Arc::default());
    let plane = Fake {
        from: Instant::now(),
        applied: Arc::clone(&applied),
        in_force: Arc::clone(&in_force),
        at_once,
        punts: inbox,
    };
    let agent = Agent::new(1, LIMITS, 1);
    let channel = Channel::start(config, agent, Box::new(plane)).expect("a channel");
    channel.with(|agent, now, out| {
        let port = Port { number: 1, name: "one".into(), ..Port::default() };
        agent.port_add(port, now, out);
    });
    Switch { channel, applied, in_force, punts }
}

fn listening() -> Config {
    let endpoints = vec!["ptcp:0".parse().expect("an endpoint")];
    Config { endpoints, ..Config::default() }
}

/// A controller.
struct Controller {
    link: Dialed,
    session: Session,
    heard: std::collections::VecDeque<Heard>,
}

impl Controller {
    fn new(link: Dialed, versions: &[Version]) -> Self {
        let session = Session::new(versions, 0, 0);
        let hello = session.hello();
        let mut one = Self { link, session, heard: std::collections::VecDeque::new() };
        one.raw(&hello);
        assert!(matches!(one.next(), Some(Heard::Up(_))));
        one
    }

    fn dial(switch: &Switch) -> Self {
        let listening = switch.channel.listening()[0].replace("ptcp:", "");
        let port = listening.split(':').next().expect("a port");
        let endpoint: Endpoint = format!("tcp:127.0.0.1:{port}").parse().expect("an endpoint");
        Self::new(dial(&endpoint, None).expect("a connection"), &[Version::V13])
    }

    fn raw(&mut self, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        while !bytes.is_empty() || self.link.wants_write() {
            self.link.send(&mut bytes).expect("sent");
            // Both sides may send much, so received messages are read meanwhile.
            if !bytes.is_empty() {
                self.pump(10);
            }
        }
    }

    fn say(&mut self, xid: u32, message: &Message) {
        let mut bytes = Vec::new();
        let version = self.session.version().expect("a version");
        encode(message, version, xid, &mut bytes).expect("can be said");
        self.raw(&bytes);
    }

    /// Reads the messages that arrive within `millis`. Returns whether the connection is still open.
    fn pump(&mut self, millis: i64) -> bool {
        let time = Timespec { tv_sec: millis / 1000, tv_nsec: millis % 1000 * 1_000_000 };
        let mut wants = PollFlags::IN;
        if self.link.wants_write() {
            wants |= PollFlags::OUT;
        }
        let _ = poll(&mut [PollFd::from_borrowed_fd(self.link.fd(), wants)], Some(&time));
        let _ = self.link.send(&mut Vec::new());
        let mut bytes = Vec::new();
        let open = self.link.receive(&mut bytes).is_ok();
        let (mut heard, mut reply) = (Vec::new(), Vec::new());
        self.session.feed(&bytes, 0, &mut heard, &mut reply).expect("well-formed");
        self.heard.extend(heard);
        if !reply.is_empty() {
            let _ = self.link.send(&mut reply);
        }
        open
    }

    /// The next event of the session; `None` if there is none within two seconds.
    fn next(&mut self) -> Option<Heard> {
        let from = Instant::now();
        loop {
            if let Some(heard) = self.heard.pop_front() {
                return Some(heard);
            }
            if from.elapsed() > Duration::from_secs(2) || !self.pump(100) && self.heard.is_empty() {
                return None;
            }
        }
    }

    /// The next message that is not a port status.
    fn message(&mut self) -> Option<(u32, Message)> {
        loop {
            match self.next()? {
                Heard::Message { message: Message::PortStatus(_), .. } => {}
                Heard::Message { xid, message } => return Some((xid, message)),
                Heard::Up(_) => {}
            }
        }
    }

    fn barrier(&mut self, xid: u32) {
        self.say(xid, &Message::BarrierRequest);
        while let Some(found) = self.message() {
            if found == (xid, Message::BarrierReply) {
                return;
            }
        }
        panic!("no barrier reply");
    }
}

fn flow(priority: u16) -> Message {
    let any = reserved::ANY;
    let m = FlowMod { priority, buffer: any, out_port: any, out_group: any, ..FlowMod::default() };
    Message::FlowMod(m)
}

fn punt(reason: InReason) -> Punt {
    Punt {
        reason,
        table: 0,
        cookie: 1,
        in_port: 1,
        metadata: 0,
        max_len: 0xffff,
        frame: vec![0x55; 1000],
    }
}

fn a_barrier_waits_until_the_change_is_in_force() {
    let switch = switch(listening(), false);
    let mut one = Controller::dial(&switch);
    one.say(1, &flow(1));
    one.say(2, &Message::BarrierRequest);
    one.say(3, &Message::EchoRequest(vec![1]));
    // The data plane has the flow entry, but the barrier reply has not been sent.
    let from = Instant::now();
    while lock(&switch.applied).len() < 2 && from.elapsed() < Duration::from_secs(2) {
        one.pump(10);
    }
    one.pump(50);
    let waits = |heard: &Heard| !matches!(heard, Heard::Message { xid: 2, .. });
    assert!(one.heard.iter().all(waits), "{:?}", one.heard);
    // The session answers an echo request also while a barrier waits: it checks that the peer is alive.
    assert_eq!(one.message(), Some((3, Message::EchoReply(vec![1]))));
    let last = lock(&switch.applied).last().map(|(number, _)| *number);
    switch.in_force.store(last.expect("a change"), Ordering::Release);
    assert_eq!(one.message(), Some((2, Message::BarrierReply)));
}

fn two_controllers_get_the_messages_of_their_roles() {
    let switch = switch(listening(), true);
    let (mut one, mut two) = (Controller::dial(&switch), Controller::dial(&switch));
    let role = |role, generation| {
        Message::RoleRequest(RoleMessage { role, generation, ..RoleMessage::default() })
    };
    one.say(1, &role(Role::Master, 1));
    two.say(1, &role(Role::Slave, 1));
    assert!(matches!(one.message(), Some((1, Message::RoleReply(_)))));
    assert!(matches!(two.message(), Some((1, Message::RoleReply(_)))));
    two.say(2, &flow(1));
    assert!(matches!(two.message(), Some((2, Message::Error(error))) if error.code == 10));
    switch.punts.send(punt(InReason::Action)).expect("room");
    assert!(matches!(one.message(), Some((0, Message::PacketIn(m))) if m.data.len() == 1000));
    two.barrier(3);
    // The link goes down: both are notified.
    switch.channel.with(|agent, now, out| {
        agent.port_change(Port { number: 1, state: 1, ..Port::default() }, now, out);
    });
    for controller in [&mut one, &mut two] {
        let down = |heard: Option<Heard>| match heard {
            Some(Heard::Message { message: Message::PortStatus(m), .. }) => m.port.state == 1,
            _ => false,
        };
        assert!(down(controller.next()));
    }
    // The counters are those of the data plane.
    let body = Request::PortStats(1);
    one.say(9, &Message::MultipartRequest { more: false, body });
    let Some((9, Message::MultipartReply { body: Reply::PortStats(stats), .. })) = one.message()
    else {
        panic!("no port statistics")
    };
    assert_eq!(stats[0].basic, [7; 8]);
}

fn a_hundred_thousand_malformed_messages_do_not_affect_other_connections() {
    let switch = switch(listening(), true);
    let (mut bad, mut good) = (Controller::dial(&switch), Controller::dial(&switch));
    let from = Instant::now();
    let mut random = flowyard_frame::Rng::new(1);
    let mut next = || (random.bits() >> 33) as u32;
    let mut wire = Vec::new();
    for number in 0..100_000_u32 {
        wire.clear();
        // A flow-mod that is truncated, extended, or has other bytes; the length in its header is correct.
        encode(&flow(number as u16), Version::V13, number, &mut wire).expect("can be said");
        let at = 8 + next() as usize % (wire.len() - 8);
        match next() % 4 {
            0 => wire.truncate(at),
            1 => wire.extend([next() as u8; 5]),
            2 => wire[1] = 35 + (next() % 200) as u8,
            _ => wire[at] ^= 1 << (next() % 8),
        }
        let len = (wire.len() as u16).to_be_bytes();
        wire[2..4].copy_from_slice(&len);
        bad.raw(&wire);
        if number % 10_000 == 0 {
            good.barrier(number);
            bad.pump(0);
        }
        bad.heard.clear();
    }
    bad.say(7, &Message::BarrierRequest);
    let mut last = None;
    while let Some(found) = bad.message() {
        last = Some(found);
    }
    assert_eq!(last, Some((7, Message::BarrierReply)));
    good.barrier(1);
    assert!(from.elapsed() < Duration::from_secs(40), "{:?}", from.elapsed());
    // A length of seven ends the connection after an error message; the other connection stays.
    bad.raw(&[4, 0, 0, 7, 0, 0, 0, 0]);
    assert!(matches!(bad.message(), Some((_, Message::Error(error))) if error.code == 6));
    assert_eq!(bad.message(), None);
    good.barrier(2);
}

fn a_controller_that_does_not_read_loses_packet_ins_and_requests_are_answered_in_a_flood() {
    let switch = switch(listening(), true);
    switch.channel.with(|agent, _, _| agent.limit_punts(InReason::Action, None));
    let (silent, mut good) = (Controller::dial(&switch), Controller::dial(&switch));
    for _ in 0..20_000 {
        switch.punts.send(punt(InReason::Action)).expect("room");
    }
    good.barrier(1);
    let from = Instant::now();
    let dropped = || switch.channel.status().iter().map(|status| status.dropped).max();
    while dropped() < Some(1001) && from.elapsed() < Duration::from_secs(60) {
        good.pump(20);
        good.barrier(2);
    }
    assert!(dropped() > Some(1000), "{:?}", switch.channel.status());
    drop(silent);
    // With a rate limit, the agent itself drops.
    switch.channel.with(|agent, _, _| {
        agent.limit_punts(InReason::Action, Some(Rate { per_second: 10, burst: 5 }));
    });
    for _ in 0..100 {
        switch.punts.send(punt(InReason::Action)).expect("room");
    }
    good.barrier(3);
    let from = Instant::now();
    while !switch.punts.is_empty() && from.elapsed() < Duration::from_secs(2) {
        good.pump(10);
    }
    let dropped = switch.channel.ask(|agent, _, _| agent.punts_dropped(InReason::Action));
    assert!(dropped >= Some(90), "{dropped:?}");
}

fn standalone_ends_when_a_controller_connects_and_begins_when_it_disconnects() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = listener.local_addr().expect("an address").port();
    let endpoints = vec![format!("tcp:127.0.0.1:{port}").parse().expect("an endpoint")];
    let backoff = (Duration::from_millis(20), Duration::from_millis(50));
    let config = Config { endpoints, backoff, fail: Fail::Standalone, ..Config::default() };
    let switch = switch(Config { auxiliary: 1, ..config }, true);
    let normal = |switch: &Switch| {
        let applied = lock(&switch.applied);
        let mut flows = applied.iter().filter_map(|(_, change)| match change {
            Change::Own(Place::Above, entry) => Some(entry.is_some()),
            _ => None,
        });
        flows.next_back()
    };
    let accept = || {
        let (stream, _) = listener.accept().expect("a switch");
        Controller::new(Dialed::tcp(stream, None).expect("a link"), &[Version::V14])
    };
    for _ in 0..2 {
        // No controller has said hello, so the switch is standalone or soon will be.
        let from = Instant::now();
        while normal(&switch) != Some(true) {
            assert!(from.elapsed() < Duration::from_secs(30), "{:?}", normal(&switch));
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut main = accept();
        main.barrier(1);
        assert_eq!(normal(&switch), Some(false));
        // The auxiliary connection reports its ID and gets the packet-ins.
        let mut auxiliary = accept();
        auxiliary.say(4, &Message::FeaturesRequest);
        let features = auxiliary.message();
        assert!(matches!(features, Some((4, Message::FeaturesReply(m))) if m.auxiliary == 1));
        switch.punts.send(punt(InReason::Action)).expect("room");
        assert!(matches!(auxiliary.message(), Some((0, Message::PacketIn(_)))));
        drop(main);
        while auxiliary.next().is_some() {}
    }
}

/// A tool that connects for a moment changes nothing: flows answer, `NORMAL` handles the rest.
fn standalone_without_controllers_is_always_below_the_flows() {
    let switch = switch(Config { fail: Fail::Standalone, ..listening() }, true);
    for _ in 0..2 {
        let mut tool = Controller::dial(&switch);
        tool.barrier(1);
    }
    let own = |(_, change): &(u64, Change)| match change {
        Change::Own(place, entry) => Some((*place, entry.is_some())),
        _ => None,
    };
    let own: Vec<_> = lock(&switch.applied).iter().filter_map(own).collect();
    assert_eq!(own, [(Place::Below, true)]);
}

fn tls_asks_both_sides_for_certificates() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let authority_key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).expect("a certificate");
    std::fs::write(path("ca"), authority.pem()).expect("written");
    let issuer = rcgen::Issuer::new(params, authority_key);
    for name in ["switch", "controller"] {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec!["127.0.0.1".into()]).expect("parameters");
        let certificate = params.signed_by(&key, &issuer).expect("a certificate");
        std::fs::write(path(name), certificate.pem()).expect("written");
        std::fs::write(path(&format!("{name}.key")), key.serialize_pem()).expect("written");
    }
    let files = |name: &str| Tls {
        certificate: path(name),
        key: path(&format!("{name}.key")),
        authority: path("ca"),
    };
    let endpoints = vec!["ptls:0:127.0.0.1".parse().expect("an endpoint")];
    let config = Config { endpoints, tls: Some(files("switch")), ..Config::default() };
    let switch = switch(config, true);
    let port = switch.channel.listening()[0].split(':').nth(1).expect("a port").to_owned();
    let endpoint: Endpoint = format!("tls:127.0.0.1:{port}").parse().expect("an endpoint");
    let loaded = tls::Loaded::new(&files("controller")).expect("certificates");
    let link = dial(&endpoint, Some(&loaded)).expect("a connection");
    let mut one = Controller::new(link, &[Version::V13]);
    one.say(1, &flow(1));
    one.barrier(2);
    // A client without a certificate is refused; plain bytes are not TLS either.
    let mut plain = TcpStream::connect(format!("127.0.0.1:{port}")).expect("a connection");
    std::io::Write::write_all(&mut plain, &Session::new(&Version::ALL, 0, 0).hello())
        .expect("sent");
    plain.set_read_timeout(Some(Duration::from_secs(2))).expect("a timeout");
    let mut answer = Vec::new();
    let _ = std::io::Read::read_to_end(&mut plain, &mut answer);
    assert_ne!(Header::read(&answer).map(|header| header.kind), Some(0));
    one.barrier(3);
    let wrong = Tls { key: path("controller.key"), ..files("switch") };
    assert!(tls::Loaded::new(&wrong).is_err());
    assert!(tls::Loaded::new(&Tls { key: path("none"), ..files("switch") }).is_err());
}
