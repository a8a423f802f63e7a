//! Controllers that send as much as they can to a running switch: what they make it store is limited, and it forwards
//! on.
#![allow(clippy::disallowed_methods, reason = "a test waits for a real process for a limited time")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use flowyard_openflow::act::{Action, Instruction};
use flowyard_openflow::bundle::BundleAdd;
use flowyard_openflow::flow::{FlowMod, PacketOut};
use flowyard_openflow::group::{Bucket, GroupMod};
use flowyard_openflow::message::ErrorMessage;
use flowyard_openflow::multipart::Request;
use flowyard_openflow::port::reserved;
use flowyard_openflow::session::{Heard, Session};
use flowyard_openflow::table::{Feature, TableFeatures};
use flowyard_openflow::{Field, Match, Message, Oxm, Version, encode};

use crate::yard::{Yard, wait};

flowyard_testkit::tests! {
    three_hundred_megabytes_of_bundles_are_refused_at_the_limit,
    a_switch_with_little_memory_forwards_whatever_its_controllers_send,
    a_listener_without_tls_beyond_the_loopback_address_is_logged,
}

/// The sum of the limits that docs/openflow.md lists, with `memory_mib = 32`, in MiB.
const STATED: u64 = 32 + 64 + 8 + 128 + 16 + 64 + 64 + 16;

/// A switch that forwards from west to east, and listens for controllers.
fn config(socket: &Path) -> String {
    format!(
        r#"
        [yard]
        cores = 1
        [[port]]
        name = "west"
        kind = "mem"
        in = "captures/yard.pcap"
        repeat = 100000000
        pace = "5000"
        [[port]]
        name = "east"
        kind = "mem"
        [[queue]]
        name = "q"
        order = "direct"
        consumers = [0]
        [work]
        kind = "switch"
        [switch]
        memory_mib = 32
        listen = ["punix:{}"]
        flows = ["priority=9,in_port=west,actions=output:east"]
        "#,
        socket.display()
    )
}

/// A controller that only sends, while a thread reads and counts errors by type and code.
struct Hostile {
    stream: UnixStream,
    next: u32,
}

/// What a controller has read.
#[derive(Default)]
struct Heards {
    errors: std::collections::BTreeMap<(u16, u16), u64>,
    messages: u64,
    barriers: u64,
}

impl Hostile {
    fn connect(socket: &Path) -> Self {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(&Session::new(&[Version::V13], 0, 0).hello()).unwrap();
        Self { stream, next: 1 }
    }

    /// Sends a message; returns whether the connection is still open.
    fn say(&mut self, message: &Message) -> bool {
        let mut bytes = Vec::new();
        self.next += 1;
        encode(message, Version::V13, self.next, &mut bytes).unwrap();
        self.stream.write_all(&bytes).is_ok()
    }

    fn bundle(&mut self, id: u32, message: &Message) -> bool {
        let mut bytes = Vec::new();
        encode(message, Version::V13, self.next + 1, &mut bytes).unwrap();
        let add = BundleAdd { id, flags: 3, message: bytes, properties: Vec::new() };
        self.say(&Message::BundleAdd(add))
    }

    /// Reads until the connection ends, or a barrier is answered.
    fn read(stream: &UnixStream) -> Heards {
        let (mut stream, mut all) = (stream.try_clone().unwrap(), Heards::default());
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut session = Session::new(&[Version::V13], 0, 0);
        let (mut chunk, mut heard) = (vec![0; 256 << 10], Vec::new());
        while all.barriers == 0 {
            let Ok(len @ 1..) = stream.read(&mut chunk) else { break };
            let mut reply = Vec::new();
            if session.feed(&chunk[..len], 0, &mut heard, &mut reply).is_err() {
                break;
            }
            for one in heard.drain(..) {
                let Heard::Message { message, .. } = one else { continue };
                all.messages += 1;
                match message {
                    Message::Error(ErrorMessage { kind, code, .. }) => {
                        *all.errors.entry((kind, code)).or_default() += 1;
                    }
                    Message::BarrierReply => all.barriers += 1,
                    _ => {}
                }
            }
        }
        all
    }

    /// Sends what `work` says, then a barrier, and reads meanwhile.
    fn run(mut self, work: impl FnOnce(&mut Self) + Send) -> Heards {
        let stream = self.stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            let reads = scope.spawn(move || Self::read(&stream));
            work(&mut self);
            self.say(&Message::BarrierRequest);
            reads.join().unwrap()
        })
    }
}

fn packet_out(len: usize) -> Message {
    Message::PacketOut(PacketOut {
        buffer: u32::MAX,
        in_port: reserved::CONTROLLER,
        actions: Vec::new(),
        data: vec![0x55; len],
    })
}

/// A value of /proc/PID/status, in KiB.
fn kib(yard: &Yard, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", yard.child.id())).unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn sent(yard: &Yard) -> u64 {
    let cores = yard.json(&["show", "cores"]);
    cores["cores"]
        .as_array()
        .unwrap()
        .iter()
        .map(|core| core["counters"]["tx_frames"].as_u64().unwrap())
        .sum()
}

#[track_caller]
fn forwards(yard: &Yard) {
    let before = sent(yard);
    wait("frames that are sent", || (sent(yard) > before + 100).then_some(()));
}

fn three_hundred_megabytes_of_bundles_are_refused_at_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("switch");
    let yard = Yard::start(&config(&socket), &[]);
    wait("the switch", || UnixStream::connect(&socket).ok());
    forwards(&yard);
    let before = kib(&yard, "VmRSS:");
    let heard = Hostile::connect(&socket).run(|one| {
        for at in 0..5_000 {
            assert!(one.bundle(at % 10, &packet_out(60_000)), "the connection stays open");
        }
    });
    // 2300 and OFPBFC_MSG_TOO_MANY, as extension 230 has it.
    let refused = heard.errors[&(0xffff, 2312)];
    assert!(heard.errors.len() == 1 && refused > 3_000, "{:?}", heard.errors);
    assert_eq!(heard.barriers, 1);
    let grown = kib(&yard, "VmHWM:").saturating_sub(before) / 1024;
    assert!(
        grown <= 32 + 16 + 24,
        "the limits are 32 MiB of bundles and 16 MiB that wait: {grown}"
    );
    forwards(&yard);
}

/// Each kind of message of which a switch stores something, as many as the controller can send.
fn attacks() -> Vec<fn(&mut Hostile)> {
    fn flows(one: &mut Hostile) {
        for number in 0..60_000_u32 {
            let actions = vec![Action::Output { port: 1, max_len: 0 }; 20];
            let m = FlowMod {
                table: (number % 200) as u8 + 5,
                priority: 1,
                matching: Match(vec![Oxm::exact(Field::InPort, number.into())]),
                instructions: vec![Instruction::ApplyActions(actions)],
                flags: 1,
                buffer: u32::MAX,
                out_port: u32::MAX,
                out_group: u32::MAX,
                ..FlowMod::default()
            };
            if !one.say(&Message::FlowMod(m)) {
                return;
            }
        }
    }
    fn groups(one: &mut Hostile) {
        for group in 0..1_000 {
            let actions = vec![Action::Output { port: 1, max_len: 0 }; 2];
            let bucket = Bucket { watch_port: u32::MAX, watch_group: u32::MAX, actions, weight: 0 };
            let m = GroupMod { group, buckets: vec![bucket; 1_000], ..GroupMod::default() };
            if !one.say(&Message::GroupMod(m)) {
                return;
            }
        }
    }
    fn bundles(one: &mut Hostile) {
        let _ = (0..1_000).all(|at| one.bundle(at % 16, &packet_out(60_000)));
    }
    fn pieces(one: &mut Hostile) {
        let list = vec![1; 2_000];
        let properties = vec![Feature::Tables { kind: 2, list }; 16];
        let features = TableFeatures { properties, ..TableFeatures::default() };
        let body = Request::TableFeatures(vec![features]);
        let piece = Message::MultipartRequest { more: true, body };
        let _ = (0..1_000).all(|_| one.say(&piece));
    }
    fn frames(one: &mut Hostile) {
        let actions = vec![Action::Output { port: reserved::CONTROLLER, max_len: 64 }];
        let m = PacketOut {
            buffer: u32::MAX,
            in_port: reserved::CONTROLLER,
            actions,
            data: vec![0x55; 60_000],
        };
        let _ = (0..1_000).all(|_| one.say(&Message::PacketOut(m.clone())));
    }
    vec![flows, groups, bundles, bundles, pieces, frames]
}

fn a_switch_with_little_memory_forwards_whatever_its_controllers_send() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("switch");
    let config = config(&socket);
    let usual = {
        let yard = Yard::start(&config, &[]);
        wait("the switch", || UnixStream::connect(&socket).ok());
        forwards(&yard);
        kib(&yard, "VmPeak:")
    };
    // Each thread of a connection may reserve address space for its stack and for its heap.
    let threads = (16 * (2 + 64)) << 10;
    let mut yard = Yard::start_within(&config, usual + threads + (STATED << 10));
    wait("the switch", || UnixStream::connect(&socket).ok());
    forwards(&yard);
    let before = kib(&yard, "VmRSS:");
    std::thread::scope(|scope| {
        for attack in attacks() {
            let socket = &socket;
            scope.spawn(move || Hostile::connect(socket).run(attack));
        }
        // A controller that asks for much and reads nothing.
        let mut stalled = Hostile::connect(&socket);
        stalled.stream.set_write_timeout(Some(Duration::from_secs(3))).unwrap();
        let ask =
            Message::MultipartRequest { more: false, body: Request::TableFeatures(Vec::new()) };
        while stalled.say(&ask) {}
        forwards(&yard);
    });
    forwards(&yard);
    let grown = kib(&yard, "VmHWM:").saturating_sub(before) / 1024;
    assert!(grown <= STATED, "the limits allow {STATED} MiB, but the process has grown by {grown}");
    let (status, _) = yard.stop();
    assert!(status.success(), "{}", yard.log());
}

fn a_listener_without_tls_beyond_the_loopback_address_is_logged() {
    let config = |listen: &str| {
        let text = config(Path::new("x"));
        text.replace("\"punix:x\"", &format!("\"{listen}\""))
    };
    const WARNING: &str = "may control the switch without authentication";
    for (listen, warns) in
        [("ptcp:0", false), ("ptcp:0:127.0.0.1", false), ("ptcp:0:0.0.0.0", true)]
    {
        let mut yard = Yard::start(&config(listen), &[]);
        yard.wait_for_log("OpenFlow: listening at");
        forwards(&yard);
        assert_eq!(yard.log().contains(WARNING), warns, "{listen}: {}", yard.log());
        assert!(yard.stop().0.success());
    }
}
