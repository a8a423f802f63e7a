//! One tunnel over two cores: two gateways, each with an ordered queue, in seeded simulations.
//!
//! ```text
//!  frames of 64 flows ──> yard 1: seal on two cores ──> yard 2: open on two cores ──> the frames in their order
//! ```

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use flowyard_config::Config;
use flowyard_frame::{FlowKey, proto};
use flowyard_ipsec::IpsecHub;
use flowyard_ports::mem::Frames;
use flowyard_ports::port::{Collect, Pace, SourceRx};
use flowyard_testkit::stacks::Stack;
use flowyard_testkit::{Build, Checker, Rng};
use flowyard_wire::LinkType;
use flowyard_yard::Parts;
use flowyard_yard::sim::{Faults, Sim};

flowyard_testkit::tests! {
    a_tunnel_over_two_cores_keeps_its_numbers_and_frames_in_order,
    long_frames_over_two_cores_keep_their_numbers,
}

/// The bytes in front of the sequence number of a sealed frame: Ethernet, IPv4, SPI.
const NUMBER: usize = 14 + 20 + 4;

/// More than both cores can do.
const STEADY: Pace = Pace::Rate(2e6);

fn files(folder: &Path, window: u32, replaces: bool) {
    let more = if replaces { " limit: soft (INF)(packets), hard 700(packets)\n" } else { "" };
    let state = |spi: u32, more: &str| {
        format!(
            "src 192.0.2.1 dst 192.0.2.2\n proto esp spi {spi} reqid 1 mode tunnel\n replay-window {window}\n aead \
             rfc4106(gcm(aes)) 0x000102030405060708090a0b0c0d0e0f10111213 128\n{more}"
        )
    };
    let path = folder.join("state.txt");
    std::fs::write(&path, [state(0x1000, more), state(0x1001, "")].concat()).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    for (name, dir) in [("out", "out"), ("in", "fwd")] {
        let policy = format!(
            "src 10.0.0.0/8 dst 10.0.0.0/8\n dir {dir} priority 1\n tmpl src 192.0.2.1 dst 192.0.2.2\n proto esp reqid \
             1 mode tunnel\n"
        );
        std::fs::write(folder.join(name), policy).unwrap();
    }
}

/// A configuration with two cores. Frames come in by one port, or by one of each core.
fn text(folder: &Path, policy: &str, ports: u16, full: &str) -> String {
    let port = |n: u16| {
        format!(
            "[[port]]\nname = \"p{n}\"\nkind = \"mem\"\nin = \"given\"\ncore = {n}\nwindow_frames = 64\n"
        )
    };
    let ports: String = (0..ports).map(port).collect();
    format!(
        "[yard]\ncores = 2\n{ports}[[queue]]\nname = \"q\"\norder = \"ordered\"\nconsumers = [0, 1]\nwindow_frames = 64\n\
         full = \"{full}\"\n[work]\nkind = \"ipsec\"\ncost_ns = 700\n[[work.route]]\nprefix = \"0.0.0.0/0\"\nport = \
         \"p0\"\nnext_hop = \"02:00:00:00:00:09\"\n[ipsec]\nstate = {:?}\npolicy = {:?}\n",
        folder.join("state.txt"),
        folder.join(policy),
    )
}

/// What comes out of a yard into which these frames came, and its drops.
fn through(
    text: &str,
    (ports, pace): (Vec<Frames>, Pace),
    seed: u64,
    look: impl Fn(&IpsecHub),
) -> (Vec<Vec<u8>>, u64) {
    let mut parts = Parts::default();
    for (port, frames) in (0..).zip(ports) {
        let rx = SourceRx::new(port, Box::new(frames), pace);
        parts.rx.insert(port, Box::new(rx));
    }
    let out = Collect::default();
    parts.tx.insert(0, Box::new(out.clone()));
    let yard = Config::parse("y", text).unwrap().build(parts).unwrap();
    let mut sim = Sim::new(yard, seed, Faults::default());
    let total = sim.run().unwrap();
    assert!(sim.yard.cores.iter().all(|core| core.counters().work_frames > 100), "both cores work");
    let hub = sim.yard.control_plane::<IpsecHub>().unwrap();
    look(&hub);
    let frames = out.take().iter().map(|(_, data)| data.to_vec()).collect();
    let pool = sim.yard.pool.share();
    drop(sim);
    assert_eq!(pool.held(), 0, "seed {seed}");
    (frames, total.drops.total())
}

fn a_tunnel_over_two_cores_keeps_its_numbers_and_frames_in_order() {
    for seed in 0..30 {
        // The smallest window that RFC 4303 permits, and one that every overtaking would leave.
        let (window, replaces) = if seed % 2 == 0 { (32, false) } else { (1, true) };
        let (ports, full) =
            (1 + (seed % 3 == 0) as u16, if seed % 5 == 4 { "drop" } else { "hold" });
        let folder = tempfile::tempdir().unwrap();
        files(folder.path(), window, replaces);
        let (mut checker, mut rng) = (Checker::new(), Rng::new(seed));
        let mut sent = Vec::new();
        for port in 0..ports {
            let (mut frames, mut bytes) = (Frames::new(), Vec::new());
            for time in 0..2000 {
                let flow = rng.below(64) << 8 | u64::from(port);
                let [a, b] = [[10, port as u8, 0, (flow >> 8) as u8], [10, 9, 1, 1]]
                    .map(std::net::IpAddr::from);
                let key = FlowKey::five_tuple(proto::UDP, a, 7, b, 53);
                let payload = [flow.to_be_bytes(), checker.enter(flow).to_be_bytes()].concat();
                Build::new(&key).payload(&payload).write(&mut bytes);
                frames.push(time, LinkType::Ethernet, &bytes);
            }
            sent.push(frames);
        }
        let count = 2000 * u64::from(ports);
        let (sealed, dropped) =
            through(&text(folder.path(), "out", ports, full), (sent, STEADY), seed, |_| {});
        assert!(
            sealed.len() as u64 + dropped == count && (full == "drop" || dropped == 0),
            "seed {seed}"
        );
        let number =
            |frame: &Vec<u8>| u64::from_be_bytes(frame[NUMBER - 4..NUMBER + 4].try_into().unwrap());
        // SPI and sequence number: the second SA follows the first.
        assert!(
            sealed.is_sorted_by(|a, b| number(a) < number(b)),
            "seed {seed}: numbers leave in order"
        );
        if full == "hold" {
            let first = if replaces { 700 } else { count };
            let last = number(sealed.last().unwrap()) as u32;
            assert_eq!(
                u64::from(last),
                if replaces { count - first } else { count },
                "seed {seed}: no gaps"
            );
        }
        let mut frames = Frames::new();
        for (time, frame) in (0..).zip(&sealed) {
            frames.push(time, LinkType::Ethernet, frame);
        }
        let (opened, dropped) =
            through(&text(folder.path(), "in", 1, "hold"), (vec![frames], STEADY), seed, |hub| {
                let counts = hub.sas().iter().map(|sa| sa.counts.read());
                let refused: u64 = counts.map(|sa| sa.replayed + sa.late + sa.unauthentic).sum();
                assert_eq!(refused, 0, "seed {seed}: nothing is refused as replayed");
            });
        assert_eq!((opened.len(), dropped), (sealed.len(), 0), "seed {seed}");
        for data in &opened {
            let word = |at: usize| u64::from_be_bytes(data[at..at + 8].try_into().unwrap());
            checker.leave(word(42), word(50));
        }
        let lost = count - opened.len() as u64;
        checker.finish(lost).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
}

/// Ports join segments into long frames, whose packets leave in order, with numbers that follow each other.
fn long_frames_over_two_cores_keep_their_numbers() {
    for seed in 0..20 {
        let replaces = seed % 2 == 0;
        let ports = 1 + (seed % 3 == 0) as u16;
        let folder = tempfile::tempdir().unwrap();
        files(folder.path(), if replaces { 1 } else { 32 }, replaces);
        let (mut checker, mut rng) = (Checker::new(), Rng::new(seed));
        let mut sent = Vec::new();
        for port in 0..ports {
            let mut frames = Frames::new();
            let mut flows: Vec<_> =
                (0..8).map(|n| Stack { host: n + 1 + 8 * port as u8, ..Stack::tcp4() }).collect();
            for time in 0..12_000 {
                // Mostly the flow of the frame before.
                if rng.below(12) == 0 {
                    flows.rotate_left(1 + rng.below(7) as usize);
                }
                let flow = &mut flows[0];
                let host = u64::from(flow.host);
                flow.payload = vec![time as u8; 1000];
                flow.payload[..8].copy_from_slice(&host.to_be_bytes());
                flow.payload[8..16].copy_from_slice(&checker.enter(host).to_be_bytes());
                frames.push(time, LinkType::Ethernet, &flow.frame());
                (flow.seq, flow.id) = (flow.seq + 1000, flow.id.wrapping_add(1));
            }
            sent.push(frames);
        }
        let count = 12_000 * u64::from(ports);
        let text_of = |policy: &str, ports| {
            let text = text(folder.path(), policy, ports, "hold");
            text.replace("in = \"given\"", "in = \"given\"\noffload = { gro = true }")
        };
        let (sealed, dropped) = through(&text_of("out", ports), (sent, Pace::Fast), seed, |hub| {
            let totals = hub.totals.values();
            let of = |name: &str| totals.iter().find(|(word, _)| *word == name).unwrap().1;
            assert!(
                of("cut") > count / 20 && of("segments") > count / 2,
                "seed {seed}: {totals:?}"
            );
        });
        assert_eq!((sealed.len() as u64, dropped), (count, 0), "seed {seed}");
        let number =
            |frame: &Vec<u8>| u64::from_be_bytes(frame[NUMBER - 4..NUMBER + 4].try_into().unwrap());
        assert!(
            sealed.is_sorted_by(|a, b| number(a) < number(b)),
            "seed {seed}: numbers leave in order"
        );
        let first = if replaces { 700 } else { 0 };
        let last = u64::from(number(sealed.last().unwrap()) as u32);
        assert_eq!(last, count - first, "seed {seed}: no gaps");
        let mut frames = Frames::new();
        for (time, frame) in (0..).zip(&sealed) {
            frames.push(time, LinkType::Ethernet, frame);
        }
        let given = (vec![frames], Pace::Fast);
        let (opened, dropped) = through(&text_of("in", 1), given, seed, |_| {});
        assert_eq!((opened.len(), dropped), (sealed.len(), 0), "seed {seed}");
        for data in &opened {
            let word = |at: usize| u64::from_be_bytes(data[at..at + 8].try_into().unwrap());
            checker.leave(word(54), word(62));
        }
        checker.finish(0).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
}
