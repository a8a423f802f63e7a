//! The division of frames between the yard and the kernel, and the choice of the queue of a TAP.

use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use flowyard_ports::af_packet::{self, Fanout, Ring};
use flowyard_ports::live::Interface;
use flowyard_ports::tap::{Got, HostQueue, Programs, Queue};

use crate::yard::Live;
use flowyard_livekit::line::{Kind, Line, Plan, ips};
use flowyard_livekit::net::{Net, alone};

flowyard_testkit::tests! {
    af_xdp_leaves_other_frames_to_the_kernel needs [crate::NAMESPACES],
    af_xdp_falls_back_to_generic needs [crate::NAMESPACES],
    the_host_replies_on_the_queue_that_was_written_to needs [crate::NAMESPACES],
    af_packet_shares_flows_from_the_first_frame needs [crate::NAMESPACES],
    tap_shares_flows_from_the_first_frame needs [crate::NAMESPACES],
    a_detached_tap_queue_receives_nothing_and_keeps_the_interface needs [crate::NAMESPACES],
}

/// Only frames that match are taken from the kernel; the interface works as before for all other
/// frames.
fn af_xdp_leaves_other_frames_to_the_kernel() {
    let _alone = alone();
    let line = Line::new(Plan::of(Kind::Xdp));
    let text = line.plan.text().replace("\"all\"", "\"udp to port 7777\"");
    line.yard().address("vb", 3);
    let live = Live::start(line.yard(), &text);
    // Other frames: the kernel resolves neighbours, and answers pings and connections.
    for to in ["10.9.0.3", "fd09::3"] {
        line.ping(to.parse().unwrap(), "");
    }
    let listener = line.yard().within(|| TcpListener::bind("10.9.0.3:22").unwrap());
    line.a.within(|| {
        let to = "10.9.0.3:22".parse().unwrap();
        TcpStream::connect_timeout(&to, Duration::from_secs(3)).unwrap()
    });
    drop(listener);
    assert_eq!(live.running.counters()[0].rx_frames, 0);
    // Frames that match are forwarded to the far host, without neighbour resolution.
    line.acquaint(true);
    let receiver = line.b.within(|| UdpSocket::bind("10.9.0.2:7777").unwrap());
    receiver.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    let sender = line.a.within(|| UdpSocket::bind("10.9.0.1:0").unwrap());
    sender.send_to(b"ours", "10.9.0.2:7777").unwrap();
    let mut buffer = [0; 16];
    assert_eq!(receiver.recv(&mut buffer).unwrap(), 4);
    let outcome = live.stop();
    assert_eq!(outcome.total().drops.total(), 0, "{:?}", outcome.total());
    line.ping("10.9.0.3".parse().unwrap(), "");
}

/// If the driver accepts no XDP program, the program runs behind the driver, and the log reports
/// this.
fn af_xdp_falls_back_to_generic() {
    let _alone = alone();
    let line = Line::new(Plan::of(Kind::Xdp));
    // A veth accepts none if its peer has more transmit queues than it has receive queues.
    line.a.sh("ip link del va");
    line.a.uneven("va", 2, line.yard(), "vb", 1);
    line.a.address("va", 1);
    line.a.sh("ethtool -K va tx off > /dev/null");
    let live = crate::yard::Live::on(&line);
    assert!(live.logged("west: af_xdp on queue 0: copy mode, XDP program in generic mode"));
    assert!(live.logged("east: af_xdp on queue 0: copy mode, XDP program in native mode"));
    for to in flowyard_livekit::line::ips() {
        line.ping(to, "");
        flowyard_livekit::traffic::stream(&line.a, &line.b, to, 1 << 20);
    }
    let outcome = live.stop();
    assert_eq!(outcome.total().drops.total(), 0, "{:?}", outcome.total());
}

const ECHOES: u64 = 400;

/// The far host sends requests, and the yard's host replies, with the flow on core `core`. Returns
/// the frames that each core received.
fn asked(core: usize) -> [u64; 2] {
    let line = Line::new(Plan { cores: 2, ..Plan::of(Kind::Tap) });
    let flow = "udp 10.9.0.2:5000 > 10.9.0.1:6000";
    let steer = format!("[steer]\nexact = [{{ flow = \"{flow}\", queue = \"q{core}\" }}]\n");
    let learned =
        line.plan.text().replacen("interface_mac", "host_queue = \"learned\"\ninterface_mac", 1);
    let live = Live::start(&line.a, &(learned + &steer));
    line.a.address("tap0", 1);
    let bind = |net: &Net, at: &'static str| net.within(move || UdpSocket::bind(at).unwrap());
    let (server, client) = (bind(&line.a, "10.9.0.1:6000"), bind(&line.b, "10.9.0.2:5000"));
    let echo = std::thread::spawn(move || {
        let mut buffer = [0; 64];
        for _ in 0..ECHOES {
            let (len, from) = server.recv_from(&mut buffer).unwrap();
            server.send_to(&buffer[..len], from).unwrap();
        }
    });
    client.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    let to: (IpAddr, u16) = ("10.9.0.1".parse().unwrap(), 6000);
    for number in 0..ECHOES {
        client.send_to(&number.to_be_bytes(), to).unwrap();
        let mut buffer = [0; 64];
        assert_eq!(client.recv(&mut buffer).unwrap(), 8);
        assert_eq!(buffer[..8], number.to_be_bytes());
    }
    echo.join().unwrap();
    let outcome = live.stop();
    [0, 1].map(|core| outcome.cores[core].counters.rx_frames)
}

/// With `host_queue = "learned"`, the host sends a flow's replies on the queue to which the flow was
/// last written, which is the queue of the core that the flow was steered to.
fn the_host_replies_on_the_queue_that_was_written_to() {
    let _alone = alone();
    let [zero, one] = [0, 1].map(asked);
    // Requests come by the same ring in both runs, and replies by the queue of the steered core.
    flowyard_testkit::note!("steered to core 0: {zero:?}, to core 1: {one:?}");
    assert!(zero[0] > one[0] + ECHOES * 9 / 10, "{zero:?} {one:?}");
    assert!(one[1] > zero[1] + ECHOES * 9 / 10, "{zero:?} {one:?}");
}

/// The queues in which frames of each flow are, by the flow's source port.
type Places = std::collections::BTreeMap<[u8; 2], std::collections::BTreeSet<usize>>;

/// The source port of `frame`, if it is a UDP datagram over IPv4.
fn source(frame: &[u8]) -> Option<[u8; 2]> {
    (frame.get(12..14)? == [8, 0] && frame.get(23)? == &17)
        .then(|| frame[34..36].try_into().ok())?
}

/// Waits until `sent` has risen by `frames`. The sender determines the duration, not a clock,
/// because the machine may be busy.
fn wait_for(sent: &AtomicU64, frames: u64) {
    let wanted = sent.load(Ordering::Relaxed) + frames;
    while sent.load(Ordering::Relaxed) < wanted {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits for a frame in queue 0 of a tap. The kernel drops frames until it has noticed the carrier,
/// which a busy machine delays.
fn first_frame(queue: &mut Queue, saw: &mut impl FnMut(&[u8], usize)) {
    let mut bytes = [0; 2048];
    for _ in 0..5_000 {
        if let Ok(Got::Frame(len)) = queue.read(&mut bytes) {
            return saw(&bytes[..len], 0);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Queues that are opened while an interface is under load share its flows from the first frame on:
/// no flow changes its queue.
fn shared_from_the_first(kind: Kind) {
    let _alone = alone();
    let mut moved = Vec::new();
    for _ in 0..10 {
        let line = Line::new(Plan { cores: 2, ..Plan::of(kind) });
        if kind == Kind::Tap {
            line.a.sh(
                "ip tuntap add tap0 mode tap multi_queue; ip link set tap0 up txqueuelen 20000",
            );
            line.a.address("tap0", 1);
        }
        line.acquaint(true);
        let over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&over);
        let sent = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&sent);
        let talk = line.a.spawn(move || {
            let sockets: Vec<_> = (0..16).map(|_| UdpSocket::bind("10.9.0.1:0").unwrap()).collect();
            while !until.load(Ordering::Relaxed) {
                for socket in &sockets {
                    // The other process may not be ready yet.
                    let _sent = socket.send_to(&[0; 60], (ips()[0], 5000));
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        wait_for(&sent, 1_000);
        let end = move || {
            wait_for(&sent, 1_000);
            over.store(true, Ordering::Relaxed);
            talk.join().unwrap();
        };
        let mut frames = 0;
        let at = line.west();
        let mut places = Places::new();
        let mut saw = |frame: &[u8], queue: usize| {
            frames += 1;
            if let Some(flow) = source(frame) {
                places.entry(flow).or_default().insert(queue);
            }
        };
        match kind {
            Kind::Tap => {
                let programs = Programs::new(2, &HostQueue::Flow).unwrap();
                assert!(programs.has_gate());
                let attach = move || Queue::attach(at, 2, &programs).unwrap().0;
                let mut queues = line.yard().within(attach);
                first_frame(&mut queues[0], &mut saw);
                end();
                for (number, mut queue) in queues.into_iter().enumerate() {
                    let mut bytes = [0; 2048];
                    while let Ok(Got::Frame(len)) = queue.read(&mut bytes) {
                        saw(&bytes[..len], number);
                    }
                }
            }
            _ => {
                let settings = af_packet::Settings { fanout: Fanout::Hash, frames: 16_384 };
                let rings = line.yard().within(move || {
                    Ring::open(&Interface::find(at).unwrap(), 2, settings).unwrap()
                });
                end();
                for (number, mut ring) in rings.into_iter().enumerate() {
                    while let Some(seen) = ring.peek() {
                        let mut bytes = vec![0; seen.len(None, 0)];
                        seen.write(None, 0, &mut bytes);
                        saw(&bytes, number);
                        ring.advance();
                    }
                }
            }
        }
        assert!(frames > 100, "{frames} frames came when the queues were opened");
        moved.extend(places.into_iter().filter(|(_, queues)| queues.len() > 1));
    }
    assert!(moved.is_empty(), "flows in several queues: {moved:?}");
}

fn af_packet_shares_flows_from_the_first_frame() {
    shared_from_the_first(Kind::Packet);
}

fn tap_shares_flows_from_the_first_frame() {
    shared_from_the_first(Kind::Tap);
}

/// The number of frames that wait in `queue`.
fn waiting(queue: &mut Queue) -> usize {
    let mut bytes = [0; 2048];
    std::iter::from_fn(|| matches!(queue.read(&mut bytes), Ok(Got::Frame(_))).then_some(())).count()
}

/// A queue of an older life of a port is detached before newer ones are attached: it receives nothing
/// more, and an interface that a port created stays until it is closed.
fn a_detached_tap_queue_receives_nothing_and_keeps_the_interface() {
    let _alone = alone();
    let net = Net::new().unwrap();
    let attach = || {
        let programs = Programs::new(2, &HostQueue::Flow).unwrap();
        Queue::attach("tap0", 2, &programs).unwrap().0
    };
    let exists = || net.within(|| Interface::find("tap0").is_ok());
    let mut queues = net.within(attach);
    net.sh("ip link set tap0 up; ip address add 10.9.0.1/24 dev tap0");
    net.sh("ip neighbour add 10.9.0.2 lladdr 02:00:00:00:00:02 dev tap0");
    let flows = || {
        net.within(|| {
            for _ in 0..64 {
                let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
                socket.send_to(b"flow", "10.9.0.2:5000").unwrap();
            }
        });
    };
    // The kernel drops frames until it has noticed the carrier.
    for _ in 0..5_000 {
        flows();
        if waiting(&mut queues[1]) > 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    flows();
    assert!(queues[1].is_attached("tap0") && !queues[1].is_of("another"));
    let discarded = queues[1].detacher()();
    assert!(discarded > 0 && waiting(&mut queues[1]) == 0, "{discarded} frames waited");
    assert!(!queues[1].is_attached("tap0") && queues[1].is_of("tap0"));
    assert!(queues[0].is_attached("tap0"));
    waiting(&mut queues[0]);
    flows();
    assert_eq!(waiting(&mut queues[1]), 0);
    assert!(waiting(&mut queues[0]) >= 64);
    // The detached queue keeps the interface, but not the newer queues from it.
    drop(queues.remove(0));
    assert!(exists());
    let mut newer = net.within(attach);
    let detach = queues[0].detacher();
    drop(queues);
    assert_eq!(detach(), 0, "it is closed");
    assert!(exists() && newer.iter().all(|queue| queue.is_attached("tap0")));
    flows();
    assert!(newer.iter_mut().map(waiting).sum::<usize>() >= 64);
    drop(newer);
    assert!(!exists());
}
