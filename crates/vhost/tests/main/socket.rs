//! Whole connections: a front end and its guest on one side, a port's queues on the other.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flowyard_vhost::guest::{Adapter, Agreed, Wish};
use flowyard_vhost::{Got, Port, Queue, Role, Sent, Settings, open};

type Lines = Arc<Mutex<Vec<String>>>;

fn port(path: &Path, role: Role, cores: usize) -> (Port, Lines) {
    let lines = Lines::default();
    let to = Arc::clone(&lines);
    let log = Arc::new(move |what: &str| to.lock().unwrap().push(what.to_owned()));
    let settings = Settings { role, socket: path.to_owned() };
    (open(&settings, cores, log).unwrap(), lines)
}

/// Runs the queues until `done`, as cores do: each receives, and what it has received is transmitted again.
fn echo_until(port: &mut Port, mut done: impl FnMut() -> bool) -> usize {
    let (mut bytes, mut frames) = (vec![0; 4096], 0);
    for _ in 0..2_000_000 {
        if done() {
            return frames;
        }
        for queue in &mut port.queues {
            frames += echo(queue, &mut bytes);
        }
        std::thread::yield_now();
    }
    panic!("it did not happen in time");
}

/// One turn of a core.
fn echo(queue: &mut Queue, bytes: &mut [u8]) -> usize {
    let frames = pass_back(queue, bytes);
    queue.tx.attend();
    frames
}

fn pass_back(Queue { rx, tx }: &mut Queue, bytes: &mut [u8]) -> usize {
    rx.attend();
    let mut frames = 0;
    for at in 0..rx.receivers() {
        let mut all = Vec::new();
        let read = rx.receive(at, |receiver| {
            receiver.begin()?;
            while let Some(got) = receiver.read(bytes)? {
                let Got::Frame(len) = got else { panic!("{got:?}") };
                all.push(bytes[..len].to_vec());
            }
            Ok(())
        });
        if !matches!(read, Some(Ok(()))) {
            return frames;
        }
        for frame in all {
            let sent = tx.send(|sender| {
                sender.begin(u16::MAX)?;
                sender.write(&frame)
            });
            frames += 1;
            assert!(matches!(sent, Some(Ok(Sent::Done)) | None), "{sent:?}");
        }
    }
    frames
}

/// The queues on a thread of their own, until the value is dropped.
struct Running {
    stops: Arc<std::sync::atomic::AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    fn new(mut port: Port) -> Self {
        let stops = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let stop = Arc::clone(&stops);
        let thread = std::thread::spawn(move || {
            let mut bytes = vec![0; 4096];
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let frames: usize =
                    port.queues.iter_mut().map(|queue| echo(queue, &mut bytes)).sum();
                if frames == 0 {
                    std::thread::yield_now();
                }
            }
        });
        Self { stops, thread: Some(thread) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stops.store(true, std::sync::atomic::Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Sends frames by `adapter` and receives them back, in order on each pair.
fn pass(adapter: &mut Adapter, pairs: usize, frames: std::ops::Range<u64>) {
    let of = |number: u64| {
        let len = 60 + (number as usize * 37) % 900;
        let mut frame = vec![number as u8; len];
        frame[..8].copy_from_slice(&number.to_le_bytes());
        frame
    };
    let (mut sent, mut got, mut idle) = (frames.start, 0, 0_u64);
    let mut next: Vec<u64> = (0..pairs as u64).map(|pair| frames.start + pair).collect();
    while got < frames.end - frames.start {
        // As many frames wait as the rings to receive have room for.
        let waits = sent - frames.start - got;
        if sent < frames.end
            && waits < 8
            && adapter.transmit((sent - frames.start) as usize % pairs, &of(sent))
        {
            sent += 1;
        }
        let before = got;
        for (pair, next) in next.iter_mut().enumerate() {
            while let Some(frame) = adapter.receive(pair) {
                assert_eq!(frame, of(*next), "the order of a pair");
                *next += pairs as u64;
                got += 1;
            }
        }
        idle = if got == before { idle + 1 } else { 0 };
        assert!(idle < 20_000_000, "{} frames are missing", frames.end - frames.start - got);
        if idle > 0 {
            std::thread::yield_now();
        }
    }
}

fn wait_for(lines: &Lines, what: &str) {
    for _ in 0..2000 {
        if lines.lock().unwrap().iter().any(|line| line.contains(what)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{what:?} was not logged: {:?}", lines.lock().unwrap());
}

#[test]
fn frames_pass_in_both_roles_with_all_features() {
    let folder = tempfile::tempdir().unwrap();
    for role in [Role::Server, Role::Client] {
        for at in 0..32_u8 {
            let bit = |number: u8| at >> number & 1 != 0;
            let agreed = Agreed {
                mergeable: bit(0),
                modern: bit(1),
                indirect: bit(2),
                event_index: bit(3),
                packed: bit(4),
            };
            // Without mergeable buffers a frame needs one buffer.
            let buffer = if agreed.mergeable { 256 } else { 1024 };
            let wish = Wish { buffer, agreed, ..Wish::new(2, 64) };
            let path = folder.path().join(format!("{role:?}-{at}.sock"));
            let listener = (role == Role::Client).then(|| UnixListener::bind(&path).unwrap());
            let (port, _) = port(&path, role, 2);
            let _running = Running::new(port);
            let mut adapter = match &listener {
                Some(listener) => Adapter::accept(listener, wish),
                None => Adapter::connect(&path, wish),
            };
            pass(&mut adapter, 2, 0..1000);
            assert!(adapter.calls(0) > 0 && adapter.calls(1) > 0, "the driver wanted calls");
            let wanted = if agreed.event_index { 2 } else { 0 };
            let kicks = (0..2).filter(|pair| adapter.wants_kick(*pair)).count();
            assert!(kicks <= wanted, "this side polls");
        }
    }
}

/// A guest that sleeps until it is called about its frame, and about the buffer that its frame left, is called: in the next turn
/// of the core, and also if the core takes no other turn.
#[test]
fn a_guest_that_waits_is_called_about_both_rings() {
    let folder = tempfile::tempdir().unwrap();
    for agreed in LAYOUTS {
        for ends in [false, true] {
            let path = folder.path().join(format!("{}-{ends}.sock", agreed.packed));
            let (mut port, lines) = port(&path, Role::Server, 1);
            let mut bytes = vec![0; 4096];
            port.queues[0].rx.attend();
            let mut adapter = Adapter::connect(&path, Wish { agreed, ..Wish::new(1, 64) });
            wait_for(&lines, "ready: 1 queues to transmit (mergeable buffers), 1 to receive");
            // The front end gets a call when it gives the descriptor for it.
            let _first = [0, 1].map(|ring| adapter.calls(ring));
            assert!(adapter.transmit(0, &[7; 60]));
            assert_eq!(echo(&mut port.queues[0], &mut bytes), 1);
            assert_eq!([0, 1].map(|ring| adapter.calls(ring)), [0, 0], "this turn was not idle");
            if ends {
                drop(port);
            } else {
                assert_eq!(echo(&mut port.queues[0], &mut bytes), 0);
            }
            let mut calls = [0, 0];
            for _ in 0..1000 {
                [0, 1].iter().for_each(|ring| calls[*ring] += adapter.calls(*ring));
                if !calls.contains(&0) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(calls, [1, 1], "{agreed:?}, ends: {ends}");
            assert_eq!(adapter.receive(0), Some(vec![7; 60]));
        }
    }
}

#[test]
fn a_guest_may_have_fewer_or_more_queues_than_there_are_cores() {
    let folder = tempfile::tempdir().unwrap();
    for (pairs, cores) in [(1, 3), (4, 2), (3, 3)] {
        let path = folder.path().join("s");
        let (port, lines) = port(&path, Role::Server, cores);
        let running = Running::new(port);
        let mut adapter = Adapter::connect(&path, Wish::new(pairs, 128));
        wait_for(
            &lines,
            &format!("ready: {pairs} queues to transmit (mergeable buffers), {pairs}"),
        );
        if pairs == cores || pairs == 1 {
            pass(&mut adapter, pairs, 0..2000);
        }
        drop(running);
    }
}

/// Adapters with rings of both layouts.
const LAYOUTS: [Agreed; 2] = [Agreed::ALL, Agreed::PACKED];

#[test]
fn a_guest_resets_its_device_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    for agreed in LAYOUTS {
        let path = folder.path().join("s");
        let (port, _) = port(&path, Role::Server, 2);
        let _running = Running::new(port);
        let mut adapter = Adapter::connect(&path, Wish { agreed, ..Wish::new(2, 64) });
        for round in 0..50 {
            pass(&mut adapter, 2, round * 200..(round + 1) * 200);
            // All that was available was used.
            let bases = adapter.stop();
            if agreed.packed {
                assert!(
                    bases.iter().all(|base| base >> 16 == base & 0xFFFF),
                    "nothing is in flight"
                );
            } else {
                let frames = if round % 2 == 0 { 100 } else { 200 };
                assert_eq!((bases[1], bases[3]), (frames, frames), "since the last reset");
            }
            if round % 2 == 0 {
                adapter.resume(&bases);
            } else {
                adapter.start();
            }
        }
    }
}

/// A device that is killed leaves nothing behind but the rings.
#[test]
fn a_device_that_is_killed_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    for agreed in LAYOUTS {
        let path = folder.path().join("s");
        let mut adapter = None;
        for round in 0..30 {
            let (port, _) = port(&path, Role::Server, 2);
            let _running = Running::new(port);
            let wish = Wish { agreed, ..Wish::new(2, 64) };
            let adapter = adapter.get_or_insert_with(|| Adapter::connect(&path, wish));
            if round > 0 {
                adapter.reconnect(&path);
            }
            pass(adapter, 2, round * 77..(round + 1) * 77);
        }
    }
}

#[test]
fn a_disabled_queue_gets_nothing_and_its_frames_are_dropped() {
    LAYOUTS.into_iter().for_each(disable);
}

fn disable(agreed: Agreed) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let (mut port, lines) = port(&path, Role::Server, 1);
    let mut adapter = std::thread::scope(|scope| {
        let guest = scope.spawn(|| {
            let mut adapter = Adapter::connect(&path, Wish { agreed, ..Wish::new(2, 64) });
            adapter.enable(1, false);
            adapter
        });
        echo_until(&mut port, || guest.is_finished());
        guest.join().unwrap()
    });
    wait_for(&lines, "1 queues to transmit (mergeable buffers), 1 to receive");
    for _ in 0..64 {
        assert!(adapter.transmit(1, &[1; 60]), "the ring has room");
    }
    let mut frames = 0;
    let mut looks = 0;
    frames += echo_until(&mut port, || {
        looks += 1;
        looks > 100
    });
    assert_eq!(frames, 0, "frames of a disabled queue");
    assert!(adapter.transmit(1, &[1; 60]), "its buffers were returned");
}

#[test]
fn front_ends_come_and_go_and_a_second_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let (port, lines) = port(&path, Role::Server, 2);
    let _running = Running::new(port);
    for round in 0..20 {
        let mut adapter = Adapter::connect(&path, Wish::new(2, 64));
        pass(&mut adapter, 2, 0..300);
        if round == 0 {
            let second = std::os::unix::net::UnixStream::connect(&path).unwrap();
            wait_for(&lines, "a second front end was refused");
            drop(second);
            pass(&mut adapter, 2, 300..600);
        }
    }
    let lines = lines.lock().unwrap();
    assert_eq!(lines.iter().filter(|line| line.contains("a front end is connected")).count(), 20);
    assert!(lines.iter().any(|line| line.contains("disconnected: the front end is gone")));
}

#[test]
fn a_broken_ring_takes_the_port_down_until_the_guest_resets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let (port, lines) = port(&path, Role::Server, 2);
    let _running = Running::new(port);
    let mut adapter = Adapter::connect(&path, Wish::new(2, 64));
    pass(&mut adapter, 2, 0..100);
    // An available index far ahead, in ring 1.
    let at = adapter.ring(1).parts()[1] + 2;
    adapter.ram().write(at, &9000_u16.to_le_bytes());
    wait_for(&lines, "ring 1: its available index is");
    adapter.stop();
    adapter.start();
    pass(&mut adapter, 2, 0..100);
    // A file that is truncated.
    adapter.ram().truncate();
    wait_for(&lines, "the file behind the guest's memory was truncated");
    drop(adapter);
    let mut adapter = Adapter::connect(&path, Wish::new(2, 64));
    pass(&mut adapter, 2, 0..100);
}

#[test]
fn bytes_that_are_no_messages_end_the_connection_only() {
    use std::io::Write;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let (port, lines) = port(&path, Role::Server, 1);
    let _running = Running::new(port);
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xFF; 400], &[0; 12], &[1, 0, 0, 0, 1, 0, 0, 0]]
    {
        let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
        let _taken = stream.write_all(bytes);
    }
    let mut adapter = Adapter::connect(&path, Wish::new(1, 64));
    pass(&mut adapter, 1, 0..100);
    assert!(lines.lock().unwrap().iter().any(|line| line.contains("broke the protocol")));
}

#[test]
fn a_port_closes_while_a_message_is_incomplete() {
    use std::io::Write;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let (mut port, lines) = port(&path, Role::Server, 1);
    assert!(!port.queues[0].rx.attend(), "nobody is connected");
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.write_all(&[1, 0, 0]).unwrap();
    wait_for(&lines, "a front end is connected");
    drop(port);
    assert!(!path.exists(), "the socket was removed");
}

/// QEMU enables rings before it has set the features. It may want a reply.
#[test]
fn a_ring_may_be_enabled_before_the_features_are_set() {
    use std::io::{Read, Write};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let (port, lines) = port(&path, Role::Server, 1);
    let _running = Running::new(port);
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let message = |request: u32, flags: u32, body: &[u8]| {
        let mut bytes = Vec::new();
        for word in [request, flags, body.len() as u32] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(body);
        bytes
    };
    let reply = |stream: &mut std::os::unix::net::UnixStream| {
        let mut bytes = [0; 20];
        stream.read_exact(&mut bytes).unwrap();
        bytes
    };
    // Without a negotiated reply; then GET_FEATURES, which is answered.
    stream.write_all(&message(18, 1, &[1, 0, 0, 0, 1, 0, 0, 0])).unwrap();
    stream.write_all(&message(1, 1, &[])).unwrap();
    assert_eq!(reply(&mut stream)[..4], [1, 0, 0, 0]);
    // SET_PROTOCOL_FEATURES with REPLY_ACK.
    stream.write_all(&message(16, 1, &8_u64.to_ne_bytes())).unwrap();
    stream.write_all(&message(18, 9, &[0, 0, 0, 0, 1, 0, 0, 0])).unwrap();
    assert_eq!(reply(&mut stream)[..12], [18, 0, 0, 0, 5, 0, 0, 0, 8, 0, 0, 0]);
    stream.write_all(&message(18, 9, &[64, 0, 0, 0, 1, 0, 0, 0])).unwrap();
    wait_for(&lines, "ring 64 does not exist");
}
