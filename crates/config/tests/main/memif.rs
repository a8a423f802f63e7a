//! Ports in shared memory: two other programs' ends, of both roles, with an engine on threads between them.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flowyard_config::Config;
use flowyard_frame::{FlowKey, proto};
use flowyard_memif::{Got, Port, Role, Sent, Settings};
use flowyard_ports::port::Log;
use flowyard_testkit::Build;
use flowyard_yard::{DropReason, Parts};

use super::threads::clock;

flowyard_testkit::tests! {
    frames_pass_between_two_peers_in_order,
    frames_without_a_peer_are_dropped_and_a_new_peer_is_served,
    mistakes_in_the_configuration_are_named,
}

fn text(folder: &Path) -> String {
    format!(
        r#"
        [yard]
        cores = 2
        seed = 1
        [[port]]
        name = "west"
        kind = "memif"
        socket = {:?}
        secret = "s"
        cores = [0, 1]
        [[port]]
        name = "east"
        kind = "memif"
        socket = {:?}
        role = "client"
        id = 4
        ring_frames = 128
        cores = [0, 1]
        [[queue]]
        name = "q0"
        order = "direct"
        consumers = [0]
        [[queue]]
        name = "q1"
        order = "direct"
        consumers = [1]
        # Flows keep their core, and with it their ring (see FLOWS): the peer reads one ring after the other, and cannot know
        # in which order frames of a flow came that changed its ring.
        [steer]
        spread = ["q0", "q1"]
        [work]
        kind = "forward"
        ports = {{ west = "east", east = "west" }}
        "#,
        folder.join("west.sock"),
        folder.join("east.sock"),
    )
}

fn peer(folder: &Path, role: Role) -> Port {
    let (socket, id, secret) = match role {
        Role::Client => ("west.sock", 0, &b"s"[..]),
        Role::Server => ("east.sock", 4, &b""[..]),
    };
    let settings = Settings {
        role,
        socket: folder.join(socket),
        id,
        name: "peer".into(),
        secret: secret.to_vec(),
        queues: 2,
        log2_ring: 7,
        buffer_bytes: 256,
    };
    flowyard_memif::open(&settings, 2, Arc::new(|_| ())).unwrap()
}

fn connected(port: &mut Port) {
    for _ in 0..2000 {
        if port.queues.iter_mut().all(|queue| queue.rx.attend() && queue.tx.attend()) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the peer was not connected within 10 s");
}

/// Few, and with a fixed seed, so that no two of them share one of the 4,096 slots by which transmit queues are chosen: flows
/// that share a slot can change their ring (`docs/run.md`). With random seeds, two of 8 flows share one in 0.7 % of the runs.
const FLOWS: usize = 8;

/// The frame with this number, of the flow `number % FLOWS`. Long ones need several buffers of the peer.
fn frame(number: usize) -> Vec<u8> {
    let flow = number % FLOWS;
    let (from, to) = ([10, 0, 0, 1], [10, 0, 1, flow as u8]);
    let key = FlowKey::five_tuple(proto::UDP, from.into(), 1000, to.into(), 2000 + flow as u16);
    let mut payload = vec![0; if number.is_multiple_of(9) { 900 } else { 20 }];
    payload[..8].copy_from_slice(&(number as u64).to_be_bytes());
    Build::new(&key).payload(&payload).bytes()
}

/// The number of a frame.
fn number_of(frame: &[u8]) -> usize {
    u64::from_be_bytes(*frame[42..].first_chunk().unwrap()) as usize
}

/// Sends all frames by `from`, a flow always by the same ring, and receives them by `to`: in the order of each flow.
fn pass(from: &mut Port, to: &mut Port, frames: std::ops::Range<usize>) {
    let mut next: Vec<usize> = (0..FLOWS).map(|flow| frames.start + flow).collect();
    let (mut sent, mut got, mut bytes) = (frames.start, frames.start, vec![0; 2048]);
    let mut idle = 0;
    while got < frames.end {
        if sent < frames.end {
            let queue = &mut from.queues[sent % FLOWS % 2];
            let frame = frame(sent);
            let write = |sender: &mut flowyard_memif::Sender| {
                sender.begin(1)?;
                sender.write(&frame)
            };
            queue.rx.attend();
            match queue.tx.send(write).unwrap() {
                Some(Sent::Done) => sent += 1,
                Some(Sent::Full) => {}
                other => panic!("{other:?}"),
            }
        }
        let before = got;
        for receiver in to.queues.iter_mut().flat_map(|queue| queue.rx.receivers()) {
            receiver.begin().unwrap();
            while let Some(one) = receiver.read(&mut bytes).unwrap() {
                let Got::Frame(len) = one else { panic!("{one:?}") };
                let number = number_of(&bytes[..len]);
                assert_eq!(bytes[..len], frame(number)[..]);
                assert_eq!(number, next[number % FLOWS], "the order of a flow");
                next[number % FLOWS] += FLOWS;
                got += 1;
            }
            receiver.finish();
        }
        idle = if got == before && sent == frames.end { idle + 1 } else { 0 };
        assert!(idle < 1_000_000, "{} frames are missing", frames.end - got);
        if idle > 0 {
            std::thread::yield_now();
        }
    }
}

fn frames_pass_between_two_peers_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut east = peer(folder.path(), Role::Server);
    let yard = Config::parse("y", &text(folder.path())).unwrap().build(Parts::default()).unwrap();
    let running = yard.start(clock()).unwrap();
    let mut west = peer(folder.path(), Role::Client);
    connected(&mut west);
    connected(&mut east);
    pass(&mut west, &mut east, 0..100_000);
    pass(&mut east, &mut west, 0..100_000);
    running.stop();
    let outcome = running.join();
    assert!(outcome.is_balanced(), "{outcome:?}");
    assert_eq!((outcome.held, outcome.total().rx_frames), (0, 200_000), "{outcome:?}");
    assert_eq!(outcome.total().tx_frames, 200_000, "{outcome:?}");
}

fn frames_without_a_peer_are_dropped_and_a_new_peer_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let log = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&log);
    let log_to: Log =
        Arc::new(move |port: &str, what: &str| to.lock().unwrap().push(format!("{port}: {what}")));
    let config = Config::parse("y", &text(folder.path())).unwrap();
    let yard = config.build_logged(Parts::default(), &log_to).unwrap();
    let running = yard.start(clock()).unwrap();
    let mut west = peer(folder.path(), Role::Client);
    connected(&mut west);
    let frame = frame(1);
    for _ in 0..50 {
        let write = |sender: &mut flowyard_memif::Sender| {
            sender.begin(1)?;
            sender.write(&frame)
        };
        assert_eq!(west.queues[0].tx.send(write).unwrap(), Some(Sent::Done));
    }
    for _ in 0..3 {
        let mut east = peer(folder.path(), Role::Server);
        connected(&mut east);
        // What was sent before the peer came was dropped: its number would be a repeated one.
        pass(&mut west, &mut east, 64..2000);
    }
    running.stop();
    let outcome = running.join();
    assert!(outcome.is_balanced(), "{outcome:?}");
    assert_eq!(outcome.total().drops.get(DropReason::PortDown), 50, "{outcome:?}");
    let log = log.lock().unwrap();
    let told = |what: &str| log.iter().filter(|line| line.starts_with(what)).count();
    assert_eq!(told("east: connected with 'peer': 2 rings"), 3, "{log:?}");
    assert!(told("east: disconnected: by the other side") >= 2, "{log:?}");
}

fn mistakes_in_the_configuration_are_named() {
    let good = text(Path::new("/tmp/x"));
    Config::parse("y", &good).unwrap();
    for (from, to, wanted) in [
        (
            "secret = \"s\"",
            "secret = \"0123456789012345678901234\"",
            "a secret of 25 bytes is not possible",
        ),
        ("secret = \"s\"", "interface = \"eth0\"", "a port of kind \"memif\" has no 'interface'"),
        (
            "ring_frames = 128",
            "ring_frames = 32768",
            "a memif ring of 32768 descriptors is not possible",
        ),
        ("ring_frames = 128", "ring_frames = 100", "a ring of 100 frames is not possible"),
        ("role = \"client\"", "", "another port listens at"),
        ("socket = \"/tmp/x/west.sock\"", "", "this memif port has no socket"),
    ] {
        let bad = good.replacen(from, to, 1);
        let bad = if to.is_empty() && from.starts_with("role") {
            bad.replace("east.sock", "west.sock")
        } else {
            bad
        };
        let error = Config::parse("y", &bad).map(drop).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
}
