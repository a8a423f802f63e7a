//! Adapters of virtual machines: the guests of two front ends, one for each role, with an engine on threads
//! between them.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flowyard_config::Config;
use flowyard_frame::{FlowKey, proto};
use flowyard_ports::port::Log;
use flowyard_testkit::Build;
use flowyard_vhost::guest::{Adapter, Wish};
use flowyard_yard::{DropReason, Parts};

use super::threads::clock;

flowyard_testkit::tests! {
    frames_pass_between_two_guests_in_order,
    guests_come_and_go,
    a_guest_that_breaks_the_rules_harms_only_its_own_port,
    mistakes_in_the_configuration_are_named,
}

fn text(folder: &Path) -> String {
    format!(
        r#"
        [yard]
        cores = 2
        [[port]]
        name = "west"
        kind = "vhost_user"
        socket = {:?}
        cores = [0, 1]
        [[port]]
        name = "east"
        kind = "vhost_user"
        socket = {:?}
        role = "client"
        cores = [0, 1]
        [[queue]]
        name = "q0"
        order = "direct"
        consumers = [0]
        [[queue]]
        name = "q1"
        order = "direct"
        consumers = [1]
        [work]
        kind = "forward"
        ports = {{ west = "east", east = "west" }}
        "#,
        folder.join("west.sock"),
        folder.join("east.sock"),
    )
}

type Lines = Arc<Mutex<Vec<String>>>;

fn log() -> (Log, Lines) {
    let lines = Lines::default();
    let to = Arc::clone(&lines);
    let log: Log =
        Arc::new(move |port: &str, what: &str| to.lock().unwrap().push(format!("{port}: {what}")));
    (log, lines)
}

/// What is logged when both queues of a guest work in both directions. Less is logged when only some of them do.
const READY: &str =
    "the guest's driver is ready: 2 queues to transmit (mergeable buffers), 2 to receive";

/// Waits until `what` was logged this often.
fn wait_for(lines: &Lines, what: &str, times: usize) {
    for _ in 0..2000 {
        if lines.lock().unwrap().iter().filter(|line| line.contains(what)).count() >= times {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("'{what}' was not logged {times} times within 10 s: {:?}", lines.lock().unwrap());
}

fn listener(folder: &Path) -> UnixListener {
    UnixListener::bind(folder.join("east.sock")).unwrap()
}

const FLOWS: usize = 64;
/// The first number of frames that are sent to find a broken ring.
const PROBES: usize = 10_000_000;
const WISH: Wish = Wish::new(2, 256);

/// The frame with this number, of the flow `number % FLOWS`. Long ones need several buffers of the guest.
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

/// Sends all frames by `from`, a flow always by the same queue, and receives them by `to`: in the order of
/// each flow.
fn pass(from: &mut Adapter, to: &mut Adapter, frames: std::ops::Range<usize>) {
    let mut next: Vec<usize> = (0..FLOWS).map(|flow| frames.start + flow).collect();
    let (mut sent, mut got, mut idle) = (frames.start, frames.start, 0);
    while got < frames.end {
        // Fewer frames wait than the rings have buffers for, so that none is dropped if this thread does not
        // run for long.
        if sent < frames.end && sent - got < 48 && from.transmit(sent % FLOWS % 2, &frame(sent)) {
            sent += 1;
        }
        let before = got;
        for pair in 0..2 {
            while let Some(bytes) = to.receive(pair) {
                let number = number_of(&bytes);
                // Frames that were sent to find a broken ring may be left in the yard.
                if number >= PROBES {
                    continue;
                }
                assert_eq!(bytes, frame(number));
                assert_eq!(number, next[number % FLOWS], "the order of a flow");
                next[number % FLOWS] += FLOWS;
                got += 1;
            }
        }
        idle = if got == before { idle + 1 } else { 0 };
        assert!(idle < 3_000_000, "{} frames are missing", frames.end - got);
        if idle > 0 {
            std::thread::yield_now();
        }
    }
}

fn frames_pass_between_two_guests_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let listener = listener(folder.path());
    let (log, lines) = log();
    let config = Config::parse("y", &text(folder.path())).unwrap();
    let yard = config.build_logged(Parts::default(), &log).unwrap();
    let running = yard.start(clock()).unwrap();
    let mut east = Adapter::accept(&listener, WISH);
    let mut west = Adapter::connect(&folder.path().join("west.sock"), WISH);
    wait_for(&lines, READY, 2);
    pass(&mut west, &mut east, 0..100_000);
    pass(&mut east, &mut west, 0..100_000);
    running.stop();
    let outcome = running.join();
    assert!(outcome.is_balanced(), "{outcome:?}");
    assert_eq!((outcome.held, outcome.total().rx_frames), (0, 200_000), "{outcome:?}");
    assert_eq!(outcome.total().tx_frames, 200_000, "{outcome:?}");
}

fn guests_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let (log, lines) = log();
    let config = Config::parse("y", &text(folder.path())).unwrap();
    let yard = config.build_logged(Parts::default(), &log).unwrap();
    let running = yard.start(clock()).unwrap();
    let mut west = Adapter::connect(&folder.path().join("west.sock"), WISH);
    wait_for(&lines, &format!("west: {READY}"), 1);
    for _ in 0..50 {
        assert!(west.transmit(0, &frame(1)), "the ring has room");
    }
    let dropped =
        || running.counters().iter().map(|core| core.drops.get(DropReason::PortDown)).sum::<u64>();
    for _ in 0..2000 {
        if dropped() == 50 {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(dropped(), 50, "there is no guest in the east");
    let listener = listener(folder.path());
    for round in 1..=10 {
        let mut east = Adapter::accept(&listener, WISH);
        wait_for(&lines, &format!("east: {READY}"), round);
        pass(&mut west, &mut east, 64..2000);
        pass(&mut east, &mut west, 64..2000);
    }
    for round in 2..=10 {
        // The west's guest is replaced, too.
        drop(west);
        west = Adapter::connect(&folder.path().join("west.sock"), WISH);
        wait_for(&lines, &format!("west: {READY}"), round);
    }
    running.stop();
    let outcome = running.join();
    assert!(outcome.is_balanced(), "{outcome:?}");
    assert!(outcome.total().port_reopens >= 18, "{outcome:?}");
}

fn a_guest_that_breaks_the_rules_harms_only_its_own_port() {
    let folder = tempfile::tempdir().unwrap();
    let listener = listener(folder.path());
    let (log, lines) = log();
    let config = Config::parse("y", &text(folder.path())).unwrap();
    let yard = config.build_logged(Parts::default(), &log).unwrap();
    let running = yard.start(clock()).unwrap();
    let mut east = Adapter::accept(&listener, WISH);
    let mut west = Adapter::connect(&folder.path().join("west.sock"), WISH);
    for round in 1..=5 {
        for side in ["west", "east"] {
            wait_for(&lines, &format!("{side}: {READY}"), round);
        }
        pass(&mut west, &mut east, 0..500);
        pass(&mut east, &mut west, 0..500);
        // The yard may find the ring broken at once.
        let before = lines.lock().unwrap().len();
        // An index, heads and buffers that do not exist, in another ring each time. What the driver writes
        // for each frame that it transmits would repair the last two.
        let ring = round % 4;
        let [descriptors, available, _] = east.ring(ring).parts();
        let ram = east.ram();
        match (ring, round % 3) {
            (1 | 3, _) => ram.write(available + 2, &30_000_u16.to_le_bytes()),
            (_, 1) => ram.write(available + 4, &[0xFF; 512]),
            _ => ram.write(descriptors, &[0xA5; 16 * 256]),
        }
        // Frames of both sides on each queue, for which the rings are read.
        for turn in 0.. {
            if lines.lock().unwrap()[before..].iter().any(|line| line.contains("east: ring")) {
                break;
            }
            assert!(turn < 1_000_000, "ring {ring} was not found to be broken");
            for pair in 0..2 {
                let _full = west.transmit(pair, &frame(PROBES + turn));
                while west.receive(pair).is_some() {}
            }
            std::thread::yield_now();
        }
        west.stop();
        // If the port handles the stop and the start together, nothing has changed, and it logs nothing.
        wait_for(&lines, "west: the guest's driver is not ready", round);
        west.start();
        east.stop();
        east.start();
    }
    wait_for(&lines, &format!("west: {READY}"), 6);
    assert!(!lines.lock().unwrap().iter().any(|line| line.contains("west: ring")), "{lines:?}");
    running.stop();
    let outcome = running.join();
    assert!(outcome.is_balanced(), "{outcome:?}");
    assert_eq!(outcome.total().port_violations, 5, "{outcome:?}");
}

fn mistakes_in_the_configuration_are_named() {
    let good = text(Path::new("/tmp/x"));
    Config::parse("y", &good).unwrap();
    for (from, to, wanted) in [
        ("socket = \"/tmp/x/west.sock\"", "", "this vhost_user port has no socket"),
        ("role = \"client\"", "secret = \"s\"", "a port of kind \"vhost_user\" has no 'secret'"),
        ("role = \"client\"", "id = 1", "a port of kind \"vhost_user\" has no 'id'"),
        (
            "role = \"client\"",
            "ring_frames = 64",
            "a port of kind \"vhost_user\" has no 'ring_frames'",
        ),
        ("role = \"client\"", "interface = \"eth0\"", "has no 'interface'"),
        ("/tmp/x/west.sock", "", "'' is not a valid path of a socket"),
        ("role = \"client\"", "", "another port listens at"),
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
