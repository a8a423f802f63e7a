//! Lives of an interface: it is moved to another namespace and back, deleted and created again with
//! the same index, renamed, set down and up; and the port receives within two seconds after each
//! return.
//!
//! `FLOWYARD_LIVES=200` draws more lives for each kind of port than the fixed 10, and
//! `FLOWYARD_SEED=17` draws others.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread::sleep;
use std::time::Duration;

use flowyard_testkit::Rng;
use flowyard_yard::{Clock, DropReason};

use crate::yard::{Live, clock, drops_but};
use flowyard_livekit::line::{Kind, Line, Plan};
use flowyard_livekit::net::{Net, alone};
use flowyard_livekit::sys;

flowyard_testkit::tests! {
    af_packet_moved_away_and_back needs [crate::NAMESPACES],
    af_xdp_moved_away_and_back needs [crate::NAMESPACES],
    tap_moved_away_and_back needs [crate::NAMESPACES],
    af_packet_created_again_with_its_index needs [crate::NAMESPACES],
    af_xdp_created_again_with_its_index needs [crate::NAMESPACES],
    tap_created_again_with_its_index needs [crate::NAMESPACES],
    af_packet_that_is_bound_and_stalled_is_opened_again needs [crate::NAMESPACES],
    af_xdp_that_is_bound_and_stalled_is_opened_again needs [crate::NAMESPACES],
    tap_that_is_bound_and_stalled_receives_again needs [crate::NAMESPACES],
    af_packet_lives needs [crate::NAMESPACES],
    af_xdp_lives needs [crate::NAMESPACES],
    tap_lives needs [crate::NAMESPACES],
}

/// A returned interface receives within this time.
const LIMIT: Duration = Duration::from_secs(2);

/// Something that happens to an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    /// Moved to another namespace, and back with its index.
    Moved,
    /// Moved to another namespace; meanwhile another interface takes its index.
    MovedAndRenumbered,
    /// Deleted, and created again with its index.
    SameIndex,
    /// Deleted, and created again with the next index.
    NewIndex,
    /// Set down and up.
    Flap,
    /// Set down and up with another MTU.
    Mtu,
    /// Set down and up with other offloads.
    Offloads,
    /// Renamed, and named as before.
    Renamed,
    /// Moved away; another interface with its name and its index takes its place.
    Replaced,
}

const LIVES: [Life; 9] = [
    Life::Moved,
    Life::MovedAndRenumbered,
    Life::SameIndex,
    Life::NewIndex,
    Life::Flap,
    Life::Mtu,
    Life::Offloads,
    Life::Renamed,
    Life::Replaced,
];

/// Two hosts, the engine between them, and numbered datagrams in both directions.
struct Site {
    line: Line,
    live: Live,
    /// Where interfaces are moved to.
    elsewhere: Net,
    clock: Clock,
    /// The sockets of the two hosts, and their addresses.
    ends: [(UdpSocket, SocketAddr); 2],
    /// The last number sent and the last one received, in each direction.
    sent: [u64; 2],
    seen: [u64; 2],
}

fn socket(net: &Net, at: IpAddr) -> (UdpSocket, SocketAddr) {
    let socket = net.within(move || UdpSocket::bind((IpAddr::from([0; 4]), 0)).unwrap());
    socket.set_nonblocking(true).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, (at, port).into())
}

impl Site {
    fn new(plan: Plan) -> Self {
        let line = Line::new(plan);
        let live = Live::on(&line);
        let ends = [socket(&line.a, [10, 9, 0, 1].into()), socket(&line.b, [10, 9, 0, 2].into())];
        let elsewhere = Net::new().unwrap();
        let site = Self { line, live, elsewhere, clock: clock(), ends, sent: [0; 2], seen: [0; 2] };
        site.acquaint();
        site
    }

    /// The hosts know each other's addresses, whatever happens to the interfaces.
    fn acquaint(&self) {
        let mac = |net: &Net, name: &str| {
            net.sh(&format!("ip -o link show {name} | sed 's/.*ether \\([^ ]*\\).*/\\1/'"))
        };
        let near = self.line.near();
        let ends = [(&self.line.a, near), (&self.line.b, "vd")];
        for (at, (net, name)) in ends.into_iter().enumerate() {
            let (other, far) = ends[1 - at];
            let (mac, to) = (mac(other, far), self.ends[1 - at].1.ip());
            net.sh(&format!(
                "ip neigh replace {to} lladdr {} nud permanent dev {name}",
                mac.trim()
            ));
        }
    }

    /// Sends a datagram in each direction, and takes what arrived: in order, and nothing twice.
    fn talk(&mut self) {
        for from in [0, 1] {
            self.sent[from] += 1;
            let to = self.ends[1 - from].1;
            // Fails while the interface is away.
            let _sent = self.ends[from].0.send_to(&self.sent[from].to_be_bytes(), to);
            let mut data = [0; 8];
            while let Ok(len) = self.ends[1 - from].0.recv(&mut data) {
                let number = u64::from_be_bytes(data);
                assert_eq!(len, 8);
                assert!(
                    number > self.seen[from],
                    "{number} after {}, sent by host {from}; {} and {} were sent; {:#?}",
                    self.seen[from],
                    self.sent[0],
                    self.sent[1],
                    self.live.log.lock().unwrap()
                );
                self.seen[from] = number;
            }
        }
    }

    /// The time until datagrams arrive that are sent from now on, in each direction. A round of this
    /// loop counts for at most 20 ms: a longer round means that other programs kept this thread, and so
    /// the engine, from running.
    fn answer(&mut self, what: impl std::fmt::Debug) -> [Duration; 2] {
        let (mut before, old) = ((self.clock)(), self.sent);
        let mut took = [None; 2];
        let mut passed = Duration::ZERO;
        while let Some(missing) = took.iter().position(Option::is_none) {
            self.talk();
            let now = (self.clock)();
            passed += Duration::from_nanos(now - before).min(Duration::from_millis(20));
            before = now;
            for from in [0, 1] {
                let here = self.seen[from] > old[from];
                took[from] = took[from].or_else(|| here.then_some(passed));
            }
            let state = ["receiving nothing", "sending nothing"][missing];
            assert!(
                passed < 2 * LIMIT,
                "{what:?}: the port is {state} after {passed:?}; {:#?}",
                self.live.log.lock().unwrap()
            );
            sleep(Duration::from_millis(1));
        }
        took.map(Option::unwrap)
    }

    fn index(&self) -> u32 {
        let (net, name) = (self.line.yard(), self.line.west());
        let said = net.sh(&format!("ip -o link show {name} | cut -d: -f1"));
        said.trim().parse().unwrap()
    }

    /// Creates the interface, with this index if one is named.
    fn create(&self, index: Option<u32>) {
        let Line { ref a, plan, .. } = self.line;
        let queues = plan.cores;
        if plan.kind == Kind::Tap {
            a.within(move || sys::tap("tap0", index, queues > 1).unwrap());
            return;
        }
        let many = format!("numrxqueues {queues} numtxqueues {queues}");
        let index = index.map_or(String::new(), |index| format!("index {index}"));
        self.line.yard().sh(&format!(
            "ip link add vb {index} {many} type veth peer name va {many} netns {}",
            a.path()
        ));
    }

    /// Sets the interface up, and the first host's end of it.
    fn set_up(&self) {
        let Line { ref a, plan, .. } = self.line;
        let (near, west) = (self.line.near(), self.line.west());
        self.line.yard().sh(&format!("ip link set {west} up"));
        a.sh(&format!("ip link set {near} up"));
        if !a.sh(&format!("ip addr show {near}")).contains("10.9.0.1/") {
            a.sh(&format!("ip addr add 10.9.0.1/24 dev {near}"));
        }
        if plan.kind == Kind::Xdp {
            a.sh("ethtool -K va tx off > /dev/null");
        }
        self.acquaint();
    }

    fn away(&self) {
        let path = self.elsewhere.path();
        self.line.yard().sh(&format!("ip link set {} netns {path}", self.line.west()));
    }

    fn back(&self) {
        let path = self.line.yard().path();
        self.elsewhere.sh(&format!("ip link set {} netns {path}", self.line.west()));
    }

    /// One life; `pause` passes while the interface is away.
    fn live(&mut self, life: Life, rng: &mut Rng) {
        let pause = [0, 0, 5, 15, 40, 150][rng.below(6) as usize];
        let index = self.index();
        let west = self.line.west();
        let yard = |what: &str| drop(self.line.yard().sh(what));
        match life {
            Life::Moved | Life::MovedAndRenumbered | Life::Replaced => self.away(),
            Life::SameIndex | Life::NewIndex => yard(&format!("ip link del {west}")),
            Life::Flap | Life::Mtu | Life::Offloads => yard(&format!("ip link set {west} down")),
            Life::Renamed => {
                yard(&format!("ip link set {west} down; ip link set {west} name other"));
            }
        }
        for _ in 0..pause {
            self.talk();
            sleep(Duration::from_millis(1));
        }
        let yard = |what: &str| drop(self.line.yard().sh(what));
        match life {
            Life::Moved => self.back(),
            Life::MovedAndRenumbered => {
                yard(&format!("ip link add taken index {index} type veth peer name taken2"));
                self.back();
                yard("ip link del taken");
                assert_ne!(self.index(), index);
            }
            Life::Replaced => {
                // The peer of a veth remains where it is; its name is taken.
                if self.line.plan.kind != Kind::Tap {
                    self.line.a.sh("ip link set va down; ip link set va name old");
                }
                self.create(Some(index));
                assert_eq!(self.index(), index);
            }
            Life::SameIndex => {
                self.create(Some(index));
                assert_eq!(self.index(), index);
            }
            Life::NewIndex => self.create(None),
            Life::Flap => {}
            Life::Mtu => {
                let mtu = 1300 + rng.below(200);
                yard(&format!("ip link set {west} mtu {mtu}"));
            }
            Life::Offloads => {
                let word = ["on", "off"][rng.below(2) as usize];
                // Not every kind of interface has all of them.
                yard(&format!("ethtool -K {west} gro {word} rx {word} > /dev/null 2>&1 || true"));
            }
            Life::Renamed => yard(&format!("ip link set other name {west}")),
        }
        self.set_up();
    }

    /// Removes what a life left behind.
    fn tidy(&self, life: Life) {
        if life == Life::Replaced {
            let west = self.line.west();
            self.elsewhere.sh(&format!("ip link del {west} 2> /dev/null || true"));
        }
    }

    fn stop(self) -> flowyard_yard::run::Outcome {
        let outcome = self.live.stop();
        // A tap that no process has open drops the frames of its host, and counts them.
        let about = [DropReason::PortDown, DropReason::PortFailed, DropReason::Overrun];
        assert_eq!(drops_but(&outcome, &about), 0, "{:?}", outcome.total().drops);
        outcome
    }
}

/// One life, with one core and with two.
fn once(kind: Kind, life: Life) {
    let _alone = alone();
    for cores in [1, 2] {
        let mut site = Site::new(Plan { cores, ..Plan::of(kind) });
        site.answer("at the start");
        for pause in [0, 100] {
            let mut rng = Rng::new(pause);
            site.live(life, &mut rng);
            let took = site.answer(life);
            flowyard_testkit::note!("{kind:?}, {cores} cores, {life:?}: {took:?}");
            assert!(took.iter().all(|took| *took < LIMIT), "{took:?}");
            site.tidy(life);
        }
        site.stop();
    }
}

fn af_packet_moved_away_and_back() {
    once(Kind::Packet, Life::Moved);
}

fn af_xdp_moved_away_and_back() {
    once(Kind::Xdp, Life::Moved);
}

fn tap_moved_away_and_back() {
    once(Kind::Tap, Life::Moved);
}

fn af_packet_created_again_with_its_index() {
    once(Kind::Packet, Life::SameIndex);
}

fn af_xdp_created_again_with_its_index() {
    once(Kind::Xdp, Life::SameIndex);
}

fn tap_created_again_with_its_index() {
    once(Kind::Tap, Life::SameIndex);
}

/// Somebody keeps the frames from a port that stays bound: the interface counts them, the port
/// receives none, and the supervisor notices.
fn stalled(kind: Kind) {
    let _alone = alone();
    for cores in [1, 2] {
        let mut site = Site::new(Plan { cores, ..Plan::of(kind) });
        site.answer("at the start");
        assert!(sys::stall(site.index()) >= cores);
        let took = site.answer("stalled");
        flowyard_testkit::note!("{kind:?}, {cores} cores, stalled: {took:?}");
        assert!(took[0] > Duration::from_millis(400) && took[0] < LIMIT, "{took:?}");
        assert!(site.live.logged("west: the interface counts frames and the port received none"));
        let total = site.stop().total();
        assert!(total.port_stalls >= 1 && total.port_reopens >= cores as u64, "{total:?}");
    }
}

fn af_packet_that_is_bound_and_stalled_is_opened_again() {
    stalled(Kind::Packet);
}

fn af_xdp_that_is_bound_and_stalled_is_opened_again() {
    stalled(Kind::Xdp);
}

fn tap_that_is_bound_and_stalled_receives_again() {
    stalled(Kind::Tap);
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Lives in a random sequence.
fn lives(kind: Kind) {
    let _alone = alone();
    let (seed, count) = (number("FLOWYARD_SEED"), number("FLOWYARD_LIVES").unwrap_or(10));
    let mut rng = Rng::new(seed.unwrap_or(1));
    let cores = 1 + rng.below(2) as usize;
    let mut site = Site::new(Plan { cores, ..Plan::of(kind) });
    site.answer("at the start");
    let mut all = Vec::new();
    for at in 0..count {
        let life = LIVES[rng.below(LIVES.len() as u64) as usize];
        site.live(life, &mut rng);
        let took = site.answer((at, life));
        assert!(took.iter().all(|took| *took < LIMIT), "life {at}, {life:?}: {took:?}");
        all.extend(took);
        site.tidy(life);
    }
    all.sort_unstable();
    let reopened = site.live.running.counters().iter().map(|core| core.port_reopens).sum::<u64>();
    let outcome = site.stop();
    flowyard_testkit::note!(
        "{kind:?}: {count} lives, {cores} cores; received after {:?} (median), {:?} (longest); {} \
         times opened again ({reopened} before the end); {:?}",
        all[all.len() / 2],
        all[all.len() - 1],
        outcome.total().port_reopens,
        outcome.total().drops
    );
}

fn af_packet_lives() {
    lives(Kind::Packet);
}

fn af_xdp_lives() {
    lives(Kind::Xdp);
}

fn tap_lives() {
    lives(Kind::Tap);
}
