//! Both roles in one process: rings against a model, peers that break the protocol, whole connections.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use rustix::event::{EventfdFlags, eventfd};

use crate::handshake::{Parts, Server, Step};
use crate::link::{Link, Memory};
use crate::message::Message;
use crate::ring::{Descriptor, Ring};
use crate::shared::{Shared, Thread};
use crate::sys::Region;
use crate::*;

fn waker() -> OwnedFd {
    eventfd(0, EventfdFlags::NONBLOCK).unwrap()
}

fn settings(role: Role) -> Settings {
    Settings {
        role,
        socket: "unused".into(),
        id: 3,
        name: format!("{role:?}"),
        secret: b"key".to_vec(),
        queues: 1,
        log2_ring: 3,
        buffer_bytes: 64,
    }
}

/// The client's end and the server's end of rings with 8 descriptors and buffers of 64 bytes.
fn pair() -> (Link, Link) {
    let layout = Layout { rings: (1, 1), log2_ring: 3, buffer_bytes: 64 };
    let memory = Memory::create(layout, vec![waker()]).unwrap();
    let size = layout.bytes().unwrap() as u64;
    let parts = Parts {
        name: "client".into(),
        regions: vec![(size, memory.fd.try_clone().unwrap())],
        to_server: vec![(layout.ring(true, 0), waker())],
        to_client: vec![(layout.ring(false, 0), waker())],
    };
    (memory.link(), Link::adopt(parts).unwrap())
}

/// The frames that are received at once.
fn drain(receiver: &mut Receiver, room: usize) -> Vec<Result<Vec<u8>, Got>> {
    receiver.begin().unwrap();
    let (mut all, mut bytes) = (Vec::new(), vec![0; room]);
    while let Some(got) = receiver.read(&mut bytes).unwrap() {
        all.push(match got {
            Got::Frame(len) => Ok(bytes[..len].to_vec()),
            other => Err(other),
        });
    }
    receiver.finish();
    all
}

proptest! {
    /// A ring is a queue of 8 slots: frames leave whole, in order, and none is lost or invented.
    #[test]
    fn both_directions_are_queues(
        steps in prop::collection::vec((any::<bool>(), prop::collection::vec(1_usize..400, 0..6), any::<bool>()), 1..80)
    ) {
        let (mut client, mut server) = pair();
        let mut waiting: [VecDeque<Vec<u8>>; 2] = Default::default();
        let mut number = 0_u8;
        for (to_server, lengths, receives) in steps {
            let (from, to) = if to_server { (&mut client, &mut server) } else { (&mut server, &mut client) };
            let model = &mut waiting[usize::from(to_server)];
            let used = |model: &VecDeque<Vec<u8>>| model.iter().map(|frame| frame.len().div_ceil(64)).sum::<usize>();
            let sender = &mut from.senders[0];
            // Frames can need more slots than were wanted.
            let wanted = lengths.len();
            let (room, free) = (usize::from(sender.begin(wanted as u16).unwrap()), 8 - used(model));
            prop_assert!(room <= free && room >= free.min(wanted), "{} of {}", room, free);
            let mut has_written = false;
            for len in lengths {
                number = number.wrapping_add(1);
                let frame: Vec<u8> = (0..len).map(|at| (at as u8).wrapping_add(number)).collect();
                let fits = used(model) + len.div_ceil(64) <= 8;
                let sent = sender.write(&frame).unwrap();
                prop_assert_eq!(sent == Sent::Done, fits, "{:?}", sent);
                if fits {
                    model.push_back(frame);
                    has_written = true;
                }
            }
            prop_assert_eq!(sender.finish(), has_written);
            prop_assert!(!sender.ring().wants_wakeups(), "both sides poll");
            if receives {
                let got: Result<Vec<_>, _> = drain(&mut to.receivers[0], 2048).into_iter().collect();
                prop_assert_eq!(got.unwrap(), model.drain(..).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn messages_come_back(bytes in prop::collection::vec(0..128_u8, 128..=128), kind in 0_u8..12) {
        let mut bytes = bytes;
        (bytes[0], bytes[1]) = (kind, 0);
        match Message::decode(&bytes) {
            Ok(message) => prop_assert_eq!(Message::decode(&message.encode()), Ok(message)),
            Err(error) => prop_assert!(kind == 0 || kind > 8, "{}", error),
        }
    }

    /// Whatever a peer writes into the memory: an error or frames, within the ring, and never a panic.
    #[test]
    fn hostile_memory_is_harmless(
        words in prop::collection::vec((0_usize..600, any::<u64>()), 1..40),
        head in any::<u16>(), tail in any::<u16>(),
    ) {
        let layout = Layout { rings: (1, 1), log2_ring: 3, buffer_bytes: 64 };
        let (region, fd) = Region::create(layout.bytes().unwrap()).unwrap();
        let region = Arc::new(region);
        for to_server in [true, false] {
            let at = layout.ring(to_server, 0).offset as usize;
            Ring::new(Arc::clone(&region), at, 3).unwrap().init();
        }
        let parts = Parts {
            name: String::new(),
            regions: vec![(region.len() as u64, fd)],
            to_server: vec![(layout.ring(true, 0), waker())],
            to_client: vec![(layout.ring(false, 0), waker())],
        };
        let mut server = Link::adopt(parts).unwrap();
        for (at, word) in words {
            region.write(at, &word.to_ne_bytes());
        }
        for to_server in [true, false] {
            let ring = Ring::new(Arc::clone(&region), layout.ring(to_server, 0).offset as usize, 3).unwrap();
            ring.head().store(head % 12, Ordering::Relaxed);
            ring.tail().store(tail, Ordering::Relaxed);
        }
        let receiver = &mut server.receivers[0];
        let mut bytes = [0; 256];
        if receiver.begin().is_ok() {
            for _ in 0..8 {
                if !matches!(receiver.read(&mut bytes), Ok(Some(_))) {
                    break;
                }
            }
            receiver.finish();
        }
        let sender = &mut server.senders[0];
        if sender.begin(u16::MAX).is_ok() {
            while matches!(sender.write(&[7; 100]), Ok(Sent::Done)) {}
            let _wakes = sender.finish();
        }
    }
}

#[test]
fn frames_that_do_not_fit() {
    let (mut client, mut server) = pair();
    let sender = &mut client.senders[0];
    sender.begin(u16::MAX).unwrap();
    assert_eq!(sender.write(&[1; 8 * 64 + 1]).unwrap(), Sent::TooLong);
    assert_eq!(sender.write(&[1; 8 * 64]).unwrap(), Sent::Done);
    assert_eq!(sender.write(&[1; 60]).unwrap(), Sent::Full);
    let _wakes = sender.finish();
    // Longer than the receiver's room: one frame is lost, and the ring goes on.
    assert_eq!(drain(&mut server.receivers[0], 100), [Err(Got::TooLong)]);
    sender.begin(u16::MAX).unwrap();
    assert_eq!(sender.write(&[2; 100]).unwrap(), Sent::Done);
    let _wakes = sender.finish();
    assert_eq!(drain(&mut server.receivers[0], 100), [Ok(vec![2; 100])]);
}

#[test]
fn descriptors_outside_of_the_memory_are_refused() {
    let (mut client, mut server) = pair();
    let layout = Layout { rings: (1, 1), log2_ring: 3, buffer_bytes: 64 };
    for (descriptor, wanted) in [
        (
            Descriptor { length: 60, offset: u32::MAX, ..Descriptor::default() },
            "names 60 bytes at 4294967295",
        ),
        (Descriptor { length: u32::MAX, ..Descriptor::default() }, "names 4294967295 bytes at 0"),
        (Descriptor { region: 1, length: 60, ..Descriptor::default() }, "names region 1"),
        (
            Descriptor { flags: 1, length: 60, ..Descriptor::default() },
            "continues behind the last slot",
        ),
    ] {
        let sender = &mut client.senders[0];
        sender.begin(u16::MAX).unwrap();
        assert_eq!(sender.write(&[1; 60]).unwrap(), Sent::Done);
        let _wakes = sender.finish();
        let receiver = &mut server.receivers[0];
        assert!(receiver.begin().unwrap() > 0);
        let ring = receiver.ring();
        let own = ring.descriptor(receiver.next_slot());
        ring.set_descriptor(receiver.next_slot(), descriptor);
        let error = receiver.read(&mut [0; 128]).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
        ring.set_descriptor(receiver.next_slot(), own);
        assert_eq!(drain(receiver, 128).len(), 1);
    }
    assert!(layout.bytes().is_some());
}

#[test]
fn memory_that_can_shrink_is_refused() {
    let open = |seal: bool| {
        let flags = rustix::fs::MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("test", flags).unwrap();
        rustix::fs::ftruncate(&fd, 8192).unwrap();
        if seal {
            rustix::fs::fcntl_add_seals(&fd, rustix::fs::SealFlags::SHRINK).unwrap();
        }
        fd
    };
    assert!(Region::adopt(&open(false), 4096).unwrap_err().to_string().contains("can shrink"));
    assert!(Region::adopt(&open(true), 8193).unwrap_err().to_string().contains("has 8192 bytes"));
    assert_eq!(Region::adopt(&open(true), 8192).unwrap().len(), 8192);
    let (file, _) = std::os::unix::net::UnixStream::pair().unwrap();
    assert!(Region::adopt(&file.into(), 1).unwrap_err().to_string().contains("not a memfd"));
}

/// The messages of both sides until they are connected.
fn shake(mut server: Server<u8>, mut client: Client) -> Result<Parts<u8>, String> {
    let mut message = server.hello();
    for _ in 0..20 {
        let Step::Send(next, attach) = client.receive(&message)? else {
            panic!("connected too early")
        };
        message = match server.receive(next, (attach != Attach::Nothing).then_some(1))? {
            Reply::Send(message) => message,
            Reply::Connect(parts, message) => {
                assert_eq!(client.receive(&message)?, Step::Connected("Server".into()));
                return Ok(parts);
            }
            Reply::Ended(why) => panic!("{why}"),
        };
    }
    panic!("no end");
}

#[test]
fn both_sides_agree_on_rings() {
    for (mine, theirs, agreed) in [(1, 1, 1), (4, 2, 2), (2, 4, 2), (3, 3, 3)] {
        let server = Server::new(Settings { queues: mine, ..settings(Role::Server) });
        let client = Client::new(Settings { queues: theirs, ..settings(Role::Client) });
        let parts = shake(server, client).unwrap();
        assert_eq!((parts.to_server.len(), parts.to_client.len()), (agreed, agreed));
        assert_eq!((parts.regions.len(), &*parts.name), (1, "Client"));
    }
}

#[test]
fn clients_that_ask_for_something_else_are_refused() {
    let shake = |client: Settings| shake(Server::new(settings(Role::Server)), Client::new(client));
    let own = settings(Role::Client);
    assert!(shake(own.clone()).is_ok());
    let wrong = shake(Settings { id: 4, ..own.clone() }).unwrap_err();
    assert_eq!(wrong, "this socket has interface 3, not 4");
    assert_eq!(shake(Settings { secret: vec![1], ..own }).unwrap_err(), "the secret is wrong");
    let mut server = Server::<u8>::new(settings(Role::Server));
    assert!(server.receive(Message::Connect { name: "x".into() }, None).is_err());
}

fn open_at(role: Role, socket: &std::path::Path, log: &Arc<Mutex<Vec<String>>>) -> Port {
    let log = Arc::clone(log);
    let settings = Settings {
        socket: socket.into(),
        queues: 2,
        buffer_bytes: 2048,
        log2_ring: 6,
        ..settings(role)
    };
    open(&settings, 2, Arc::new(move |what| log.lock().unwrap().push(format!("{role:?}: {what}"))))
        .unwrap()
}

/// Whether both halves are connected, or are not. Each of them looks.
fn is(queue: &mut Queue, wanted: bool) -> bool {
    [queue.rx.attend(), queue.tx.attend()] == [wanted; 2]
}

/// Waits until both sides are connected, or are not.
fn until(ports: &mut [&mut Port], wanted: bool) {
    for _ in 0..500 {
        let queues = ports.iter_mut().flat_map(|port| &mut port.queues);
        // Every queue looks, because the first look starts the thread of its port.
        if queues.filter_map(|queue| (!is(queue, wanted)).then_some(())).count() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the ports are not connected: {wanted}");
}

#[test]
fn ports_connect_pass_frames_and_connect_again() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("memif.sock");
    let log = Arc::new(Mutex::new(Vec::new()));
    // The client comes first, and waits.
    let mut client = open_at(Role::Client, &socket, &log);
    for round in 0..3_u8 {
        let mut server = open_at(Role::Server, &socket, &log);
        until(&mut [&mut client, &mut server], true);
        for at in [0, 1] {
            let frame = [round, at, 3];
            let write = |sender: &mut Sender| {
                sender.begin(u16::MAX)?;
                sender.write(&frame)
            };
            assert_eq!(client.queues[usize::from(at)].tx.send(write).unwrap(), Some(Sent::Done));
            let got = drain(&mut server.queues[usize::from(at)].rx.receivers()[0], 2048);
            assert_eq!(got, [Ok(frame.to_vec())]);
            assert_eq!(server.queues[usize::from(at)].tx.send(write).unwrap(), Some(Sent::Done));
            let got = drain(&mut client.queues[usize::from(at)].rx.receivers()[0], 2048);
            assert_eq!(got, [Ok(frame.to_vec())]);
        }
        drop(server);
        until(&mut [&mut client], false);
        assert!(!socket.exists());
    }
    let log = log.lock().unwrap().join("\n");
    assert!(
        log.contains("Client: disconnected: by the other side: the interface is closed"),
        "{log}"
    );
}

/// A peer that sleeps is woken once for what was transmitted, when nothing more was transmitted or after some batches; one
/// that polls is not.
#[test]
fn a_peer_that_sleeps_is_woken() {
    let (mut client, server) = pair();
    let shared = Arc::new(Shared::new(1).unwrap());
    let (receivers, senders) = (server.receivers, server.senders);
    let thread = Thread::new(Arc::clone(&shared), 1, Arc::new(|_| ()), Box::new(|| ()));
    let mut queue = Queue::new(&shared, &Arc::new(thread), 0);
    shared.publish(Some((receivers, senders)));
    assert!(is(&mut queue, true));
    let peer = client.receivers[0].ring();
    let transmit = |queue: &mut Queue| {
        let write = |sender: &mut Sender| {
            sender.begin(u16::MAX)?;
            sender.write(&[1, 2, 3])
        };
        assert_eq!(queue.tx.send(write).unwrap(), Some(Sent::Done));
        queue.tx.wake();
        shared.sleepers.swap(0, Ordering::Relaxed)
    };
    let attend = |queue: &mut Queue| {
        queue.tx.wake();
        shared.sleepers.swap(0, Ordering::Relaxed)
    };
    assert_eq!((transmit(&mut queue), attend(&mut queue)), (0, 0));
    peer.set_polled(false);
    assert_eq!(attend(&mut queue), 0, "nothing was transmitted since");
    assert_eq!((transmit(&mut queue), attend(&mut queue), attend(&mut queue)), (0, 1, 0));
    let reader = &mut client.receivers[0];
    assert_eq!(drain(reader, 64).len(), 2);
    let woken = (0..24).map(|_| {
        let woken = transmit(&mut queue);
        assert_eq!(drain(reader, 64).len(), 1);
        woken
    });
    assert_eq!(woken.sum::<u64>(), 3, "a core that never pauses");
    peer.set_polled(true);
    assert_eq!((transmit(&mut queue), attend(&mut queue)), (0, 0));
}

/// Frames that were written before the peer broke the rules count as transmitted, so the peer must see them.
#[test]
fn frames_before_a_violation_are_published() {
    let (mut client, server) = pair();
    let shared = Arc::new(Shared::new(1).unwrap());
    let thread = Thread::new(Arc::clone(&shared), 1, Arc::new(|_| ()), Box::new(|| ()));
    let mut queue = Queue::new(&shared, &Arc::new(thread), 0);
    // The client names the buffers of the server's frames; the third has no room.
    let ring = client.receivers[0].ring();
    let slot = client.receivers[0].next_slot().wrapping_add(2);
    ring.set_descriptor(slot, Descriptor { length: 0, ..ring.descriptor(slot) });
    shared.publish(Some((server.receivers, server.senders)));
    assert!(is(&mut queue, true));
    let mut written = 0;
    let result = queue.tx.send(|sender| {
        sender.begin(u16::MAX)?;
        for byte in 0..5 {
            sender.write(&[byte; 20])?;
            written += 1;
        }
        Ok(())
    });
    assert_eq!((written, result.unwrap_err().to_string()), (2, "a buffer has no room".to_owned()));
    let got = drain(&mut client.receivers[0], 64);
    assert_eq!(got, [Ok(vec![0; 20]), Ok(vec![1; 20])]);
}

#[test]
fn a_client_does_not_wait_forever_for_a_server_that_says_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("memif.sock");
    let listener = rustix::net::socket(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        None,
    )
    .unwrap();
    let address = rustix::net::SocketAddrUnix::new(&socket).unwrap();
    rustix::net::bind(&listener, &address).unwrap();
    rustix::net::listen(&listener, 4).unwrap();
    let log = Arc::new(Mutex::new(Vec::new()));
    let mut client = open_at(Role::Client, &socket, &log);
    assert!(is(&mut client.queues[0], false));
    let _silent = rustix::net::accept(&listener).unwrap();
    // It hangs up, and calls again.
    let _second = rustix::net::accept(&listener).unwrap();
    drop(client);
    let log = log.lock().unwrap().join("\n");
    assert!(
        log.contains("Client: not connected: the other side did not answer within 2 s"),
        "{log}"
    );
}

/// The names of the threads of this process.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    tasks.filter_map(|task| name(task.unwrap()).ok()).map(|name| name.trim().to_owned()).collect()
}

#[test]
fn no_thread_starts_before_a_core_looks_for_a_connection() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("memif.sock");
    let settings = Settings { socket: socket.clone(), id: 777, ..settings(Role::Server) };
    let is_running = || threads().contains(&"memif 777".to_owned());
    let mut port = open(&settings, 2, Arc::new(|_| ())).unwrap();
    assert!(!is_running());
    assert!(!port.queues[1].rx.attend());
    // A thread sets its name itself.
    assert!((0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(2));
        is_running()
    }));
    drop(port);
    assert!(!is_running() && !socket.exists());
    // A port that nobody used leaves nothing behind either.
    drop(open(&settings, 2, Arc::new(|_| ())).unwrap());
    assert!(!socket.exists());
}

#[test]
fn a_socket_in_use_is_refused_and_a_stale_one_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("memif.sock");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let log = Arc::new(Mutex::new(Vec::new()));
    let _first = open_at(Role::Server, &socket, &log);
    let second =
        open(&Settings { socket: socket.clone(), ..settings(Role::Server) }, 1, Arc::new(|_| ()));
    let error = second.err().unwrap().to_string();
    assert!(error.contains("is in use by another program; stop that program"), "{error}");
    let nowhere = open(
        &Settings { socket: "/nowhere/a".into(), ..settings(Role::Server) },
        1,
        Arc::new(|_| ()),
    );
    assert!(nowhere.err().unwrap().to_string().contains("make sure that its folder exists"));
}

proptest! {
    /// Frames of all lengths are copied whole, and nothing beside them is changed.
    #[test]
    fn copies_are_exact(len in 0_usize..300, at in 0_usize..200, seed: u8) {
        let (region, _fd) = Region::create(4096).unwrap();
        let before = vec![0xee; 600];
        prop_assert!(region.write(0, &before));
        let data: Vec<u8> = (0..len).map(|byte| (byte as u8).wrapping_mul(7) ^ seed).collect();
        prop_assert!(region.write(at, &data));
        let mut all = vec![0; 600];
        prop_assert!(region.read(0, &mut all));
        prop_assert_eq!(&all[at..at + len], &data[..]);
        prop_assert!(all[..at].iter().chain(&all[at + len..]).all(|byte| *byte == 0xee));
        let mut copied = vec![0x11; len + 20];
        prop_assert!(region.read(at, &mut copied[10..10 + len]));
        prop_assert_eq!(&copied[10..10 + len], &data[..]);
        prop_assert!(copied[..10].iter().chain(&copied[10 + len..]).all(|byte| *byte == 0x11));
    }
}
