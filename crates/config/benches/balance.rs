//! The balancer alone: key, hash, connection, rewrite. The result is nanoseconds per packet by the
//! number of live flows, measured as in BPF test-run: one batch in the cache, whose source
//! addresses change from round to round. The loop that changes them is measured by itself and
//! subtracted. Time is the processor time of the thread, so that other processes only disturb the
//! caches.
//!
//! `cargo bench -p flowyard-config --bench balance [most flows]`
//!
//! With the argument `cores`, the result is new connections per second of one core while 1 or 16 cores are configured,
//! and the tables of the other 15 are empty or full. With `instructions-1`, `instructions-16` or `instructions-full` it is one
//! such row, once, for an instruction counter.
//!
//! With the argument `hits`, only packets of 1,024 existing connections are sent, a fixed number in each
//! mode, so that an instruction counter can compare two versions. With `marked`, packets of existing connections are sent
//! without and with the marks of an adapter. With `listing`, the result is the time for which a table is locked while its
//! connections are listed.
#![allow(clippy::print_stdout, reason = "a benchmark prints")]
#![allow(unsafe_code, reason = "the standard library does not know a thread's time")]

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use flowyard_flow::table::marked;
use flowyard_flow::{Secret, parse};
use flowyard_frame::{Action, Batch, FlowKey, LANES, proto};
use flowyard_lb::{Backend, Control, Exit, Mode, Service, Timeouts};
use flowyard_lb::{Balance, BalanceSettings, ConnKey, Conns, Hub, Owner, State};
use flowyard_pool::Meta;
use flowyard_pool::Pool;
use flowyard_testkit::Build;
use flowyard_wire::checksum;
use flowyard_yard::Work;
use flowyard_yard::front::{Entry, Front};

const VIP: [u8; 4] = [192, 0, 2, 1];

fn hub(mode: Mode) -> Arc<Hub> {
    let backend = |n: u8| Backend {
        name: format!("b{n}"),
        addr: IpAddr::from([10, 0, 1, n]),
        port: None,
        weight: 1,
        drain: false,
        backup: false,
        ceiling: None,
        exit: Exit { port: 0, src: [2; 6], dst: [4; 6], via: None },
        server_id: Vec::new(),
    };
    let service =
        Service::new("web", VIP.into(), proto::TCP, 80..=80, mode, (0..100).map(backend).collect());
    Arc::new(Hub::new(Control::new(vec![service], 65_537, 7).unwrap()))
}

fn balancer(hub: &Arc<Hub>, connections: usize, opening_most: usize) -> Balance {
    balancers(hub, 1, connections, opening_most).remove(0)
}

/// The balancers of `cores` cores.
fn balancers(
    hub: &Arc<Hub>,
    cores: usize,
    connections: usize,
    opening_most: usize,
) -> Vec<Balance> {
    Balance::group(hub, cores, &settings(connections, opening_most))
}

fn settings(connections: usize, opening_most: usize) -> BalanceSettings {
    BalanceSettings {
        connections,
        full_drops: false,
        opening_most,
        timeouts: Timeouts::default(),
        clients: Exit::default(),
        returns: false,
        local: (1..=17).map(|n| IpAddr::from([10, 9, 0, n])).collect(), // 64,512 ports each
        pass: vec![None],
        places: Vec::new(),
        neighbour_fresh: 0,
        replicated: 0,
        secret: Secret::FIXED,
    }
}

/// The processor time of this thread, in nanoseconds.
fn thread_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the time, and nothing else.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

struct Bench {
    pool: Pool,
    batch: Batch,
    frame: Vec<u8>,
    /// The mark of each flow; empty if frames have none.
    marks: Vec<u32>,
}

/// Marks packets of clients: the number of each flow.
#[derive(Debug, Default)]
struct Marker(Mutex<(u32, Vec<u32>)>);

impl Front for Marker {
    fn reaches(&self, _port: u16) -> bool {
        true
    }

    fn put(&self, entries: &[Entry], _now: u64) -> Option<u32> {
        let mut all = self.0.lock().unwrap();
        let (key, number) = (entries[0].key, all.0);
        all.0 += 1;
        let [_, b, c, d, ..] = key.src;
        let flow = u32::from_be_bytes([0, b, c, d]) as usize;
        if key.dst_ip() == Some(VIP.into()) {
            let most = all.1.len().max(flow + 1);
            all.1.resize(most, 0);
            all.1[flow] = marked::of_flow(number)?;
        }
        Some(number)
    }

    fn remove(&self, _flow: u32) {}

    fn free(&self, _flow: u32) {}

    fn answers(&self) -> bool {
        false
    }
}

impl Bench {
    fn new(flags: u8) -> Self {
        let key =
            FlowKey::five_tuple(proto::TCP, IpAddr::from([10, 0, 0, 0]), 4000, VIP.into(), 80);
        let frame = Build::new(&key).flags(flags).pad(60).bytes();
        let (mut pool, mut batch) = (Pool::new(64, 2048), Batch::default());
        for _ in 0..LANES {
            let taken = pool.copy(&frame, Meta::default()).unwrap();
            batch.push(taken, FlowKey::ZERO).unwrap();
        }
        Self { pool, batch, frame, marks: Vec::new() }
    }

    /// Runs `packets` packets of the flows from `next`; with the work, or without it.
    fn run(
        &mut self,
        packets: u32,
        work: &mut Option<&mut Balance>,
        next: &mut dyn FnMut() -> u32,
    ) -> f64 {
        let began = thread_ns();
        for round in 0..packets / LANES as u32 {
            for lane in self.batch.lanes() {
                let frame = &mut self.batch.frames[lane];
                if frame.len() != self.frame.len() {
                    self.pool.truncate(frame, self.frame.len()); // the work added a tunnel header
                }
                let bytes = self.pool.bytes_mut(frame);
                bytes.copy_from_slice(&self.frame);
                let flow = next();
                let [a, b, c, d] = flow.to_be_bytes();
                let check = u16::from_be_bytes([bytes[24], bytes[25]]);
                let src = [10, a ^ b, c, d];
                let check = checksum::update_bytes(check, &[10, 0, 0, 0], &src).unwrap();
                bytes[24..26].copy_from_slice(&check.to_be_bytes());
                bytes[26..30].copy_from_slice(&src);
                assert!(parse::fast(bytes, 0, &mut self.batch.keys[lane]));
                self.batch.actions[lane] = Action::queue(0);
                let mark = self.marks.get(flow as usize);
                self.batch.frames[lane].mark = mark.copied().unwrap_or(0);
            }
            if let Some(work) = work {
                work.work(&mut self.batch, &self.pool, u64::from(round) * 2000);
            }
        }
        (thread_ns() - began) as f64 / f64::from(packets)
    }

    /// Establishes the connection of a flow: the backend answers its first packet, and a second one follows.
    fn establish(&mut self, flow: u32, work: &mut Balance) {
        let [_, b, c, d] = flow.to_be_bytes();
        let client = IpAddr::from([10, b, c, d]);
        let key = FlowKey::five_tuple(proto::TCP, client, 4000, VIP.into(), 80);
        let mut pass = |key: &FlowKey| {
            let data = Build::new(key).flags(FlowKey::ACK).bytes();
            let mut batch = Batch::default();
            let lane = batch.push(self.pool.copy(&data, Meta::default()).unwrap(), FlowKey::ZERO);
            let lane = lane.unwrap();
            assert!(parse::fast(&data, 0, &mut batch.keys[lane]));
            batch.actions[lane] = Action::queue(0);
            work.work(&mut batch, &self.pool, 0);
            let mut sent = FlowKey::ZERO;
            let is_plain = parse::fast(self.pool.bytes(&batch.frames[lane]), 0, &mut sent);
            self.pool.put(std::mem::take(&mut batch.frames[lane]));
            is_plain.then(|| sent.flow())
        };
        if let Some(sent) = pass(&key) {
            pass(&sent.reversed()); // with direct return it belongs to no service
        }
        pass(&key);
    }

    /// The best of several runs, without the loop.
    fn best(&mut self, packets: u32, flows: u32, work: &mut Balance) -> f64 {
        let mut state = 1u32;
        let mut next = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((u64::from(state) * u64::from(flows)) >> 32) as u32
        };
        let mut least = [f64::MAX; 2];
        for _ in 0..40 {
            least[0] = least[0].min(self.run(packets, &mut None, &mut next));
            least[1] = least[1].min(self.run(packets, &mut Some(work), &mut next));
        }
        least[1] - least[0]
    }
}

/// Other balancers, in ns per packet, for the rows below: Katran in BPF test-run, on the same kind
/// of machine. It also parses and encapsulates. Established TCP, SYN without Katran's limit of new
/// connections, table bypassed.
const FLOWS: [u32; 5] = [1, 1024, 16_384, 131_072, 1 << 20];
const KATRAN: [[u32; 3]; 5] =
    [[77, 177, 87], [88, 216, 95], [123, 312, 93], [230, 647, 93], [395, 938, 96]];

/// Adds connections until a table has `flows`, at least 1,024: the cost of each, with and without
/// the loop and the parser.
fn insert(hub: &Arc<Hub>, flows: u32) -> [f64; 2] {
    let n = flows.max(1024);
    let mut least = [f64::MAX; 2];
    for _ in 0..((1 << 20) / n.max(1 << 14)).max(3) {
        let mut work = balancer(hub, n as usize, usize::MAX);
        let mut bench = Bench::new(FlowKey::SYN);
        let mut number = 0u32;
        let mut fresh = || {
            number += 1;
            number
        };
        let with = bench.run(n, &mut Some(&mut work), &mut fresh);
        let without = bench.run(n, &mut None, &mut fresh);
        least = [least[0].min(with), least[1].min(without)];
    }
    [least[0] - least[1], least[0]]
}

/// Runs packets of `flows` existing connections.
fn hit(hub: &Arc<Hub>, flows: u32, packets: u32) -> f64 {
    let flows_most = flows as usize;
    let (mut work, mut bench) = (balancer(hub, flows_most, flows_most), Bench::new(FlowKey::ACK));
    for number in 0..flows {
        bench.establish(number, &mut work);
    }
    bench.best(packets, flows, &mut work)
}

/// As [`hit`], with the marks of an adapter.
fn marked_hit(hub: &Arc<Hub>, flows: u32, packets: u32) -> f64 {
    let (flows_most, marker) = (flows as usize, Arc::new(Marker::default()));
    let front: Arc<dyn Front> = Arc::clone(&marker) as _;
    let settings = settings(flows_most, flows_most);
    let mut work = Balance::group_behind(hub, 1, &settings, Some(&front)).remove(0);
    let mut bench = Bench::new(FlowKey::ACK);
    for number in 0..flows {
        bench.establish(number, &mut work);
    }
    bench.marks.clone_from(&marker.0.lock().unwrap().1);
    assert_eq!(bench.marks.len(), flows_most, "every connection is marked");
    let ns = bench.best(packets, flows, &mut work);
    let found = hub.occupancy()[0].marked_packets;
    assert!(found >= u64::from(packets), "{found} packets were found by marks");
    ns
}

/// Packets of existing connections without and with marks.
fn by_marks() {
    println!("ns a packet of an existing connection: without marks, with marks");
    for flows in [1024, 65_536, 1 << 20] {
        for (name, mode) in [("dsr", Mode::Dsr), ("dnat", Mode::Dnat), ("fullnat", Mode::FullNat)] {
            let (plain, marked) =
                (hit(&hub(mode), flows, 1 << 16), marked_hit(&hub(mode), flows, 1 << 16));
            println!("{flows:>9} {name:>8} | {plain:>5.0} {marked:>5.0}");
        }
    }
}

/// What the tables of the other cores have while one core receives new connections.
#[derive(Clone, Copy)]
enum Others {
    None,
    Empty,
    Full,
}

/// Nanoseconds for each new connection of the first core, which find room, or replace the oldest ones.
fn new_connections(hub: &Arc<Hub>, others: Others, is_flood: bool) -> f64 {
    /// Connections that fit in each table.
    const ROOM: u32 = 1 << 16;
    let cores = if matches!(others, Others::None) { 1 } else { 16 };
    let mut works = balancers(hub, cores, ROOM as usize, ROOM as usize);
    let (mut bench, mut number) = (Bench::new(FlowKey::SYN), 0u32);
    let mut fresh = || {
        number += 1;
        number
    };
    if matches!(others, Others::Full) {
        for work in &mut works[1..] {
            bench.run(ROOM, &mut Some(work), &mut fresh);
        }
    }
    if is_flood {
        bench.run(ROOM, &mut Some(&mut works[0]), &mut fresh);
    }
    let with = bench.run(ROOM, &mut Some(&mut works[0]), &mut fresh);
    with - bench.run(ROOM, &mut None, &mut fresh)
}

/// New connections by the number of configured cores, in interleaved rounds: the median of each.
fn by_cores() {
    const ROUNDS: usize = 9;
    let modes = [("dsr", Mode::Dsr), ("dnat", Mode::Dnat), ("fullnat", Mode::FullNat)];
    println!("new connections of one core, million per second, the median of {ROUNDS} rounds");
    println!(
        "{:>20} | {:>7} | {:>16} | {:>16}",
        "", "1 core", "16, others empty", "16, others full"
    );
    for (name, mode) in modes {
        for is_flood in [false, true] {
            let hub = hub(mode);
            let all = [Others::None, Others::Empty, Others::Full];
            let mut times = [const { Vec::new() }; 3];
            for _ in 0..ROUNDS {
                for (times, others) in times.iter_mut().zip(all) {
                    times.push(new_connections(&hub, others, is_flood));
                }
            }
            let [one, empty, full] = times.map(|mut times| {
                times.sort_by(f64::total_cmp);
                times[ROUNDS / 2]
            });
            let what = if is_flood { "replacing" } else { "stored" };
            println!(
                "{name:>8} {what:>11} | {:>7.2} | {:>7.2} ({:>5.2}x) | {:>7.2} ({:>5.2}x)",
                1e3 / one,
                1e3 / empty,
                one / empty,
                1e3 / full,
                one / full
            );
        }
    }
}

/// The processor time of a page of a table of a million connections, whose slots are not in the caches.
fn by_pages() {
    /// Connections in the table.
    const MOST: u32 = 1 << 20;
    let mut conns = Conns::new(MOST as usize, Timeouts::default(), false);
    for number in 0..MOST {
        let (src, dst) = (IpAddr::from(number.to_be_bytes()), IpAddr::from(VIP));
        let key = ConnKey::of(&FlowKey::five_tuple(proto::TCP, src, 7, dst, 80));
        let owner = Owner { backend: 0, service: 0, sees_answers: false };
        conns.insert(&key, key.hash(7), owner, State::Open, 5).unwrap();
    }
    let mut other = vec![1u8; 256 << 20];
    let (mut page, mut times) = (Vec::with_capacity(Conns::PAGE), Vec::new());
    for _ in 0..5 {
        other.iter_mut().for_each(|byte| *byte ^= 3);
        let mut from = Some(0);
        while let Some(slot) = from {
            let before = thread_ns();
            from = conns.page(slot, 5, &mut page);
            times.push(thread_ns() - before);
            std::hint::black_box(&page);
            page.clear();
        }
    }
    times.sort_unstable();
    let at = |share: usize| times[(times.len() - 1) * share / 1000] as f64 / 1e3;
    println!("microseconds of a page: median {}, 99.9 % {}, most {}", at(500), at(999), at(1000));
}

fn main() {
    for arg in std::env::args() {
        let others = match arg.as_str() {
            "cores" => return by_cores(),
            "marked" => return by_marks(),
            "listing" => return by_pages(),
            "instructions-1" => Others::None,
            "instructions-16" => Others::Empty,
            "instructions-full" => Others::Full,
            _ => continue,
        };
        println!("{:.0} ns", new_connections(&hub(Mode::Dsr), others, false));
        return;
    }
    let modes = [Mode::Dsr, Mode::Dnat, Mode::FullNat, Mode::Ipip];
    if std::env::args().any(|arg| arg == "hits") {
        for mode in modes {
            println!("{:.0} ns", hit(&hub(mode), 1024, 1 << 14));
        }
        return;
    }
    let most = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(1 << 20);
    let hubs = modes.map(hub);
    println!("ns a packet, one core, 100 backends, 60-byte TCP; parse and loop taken off");
    println!(
        "{:>9} | {:^31} | {:^23} | {:^23} | {:^23}",
        "", "hit", "insert", "stateless", "new conn./s"
    );
    println!(
        "{:>9} | {:>5} {:>5} {:>7} {:>4} {:>6} | {:>9} {:>13} | {:>9} {:>13} | {:>11} {:>11}",
        "flows",
        "dsr",
        "dnat",
        "fullnat",
        "ipip",
        "Katran",
        "dsr",
        "Katran",
        "dsr",
        "Katran",
        "dsr",
        "with parse"
    );
    for (flows, katran) in FLOWS.into_iter().zip(KATRAN).filter(|(flows, _)| *flows <= most) {
        let packets = (flows / 8).clamp(1 << 14, 1 << 16); // short, so that some are not disturbed
        let insert = insert(&hubs[0], flows);
        // A flood: no connection is stored.
        let mut work = balancer(&hubs[0], 1024, 0);
        let stateless = Bench::new(FlowKey::SYN).best(packets, flows, &mut work);
        let [dsr, dnat, fullnat, ipip] = [0, 1, 2, 3].map(|mode| hit(&hubs[mode], flows, packets));
        let [known, new, none] = katran;
        let rate = insert.map(|ns| format!("{:.1} M", 1e3 / ns));
        println!(
            "{flows:>9} | {dsr:>5.0} {dnat:>5.0} {fullnat:>7.0} {ipip:>4.0} {known:>6} | {:>9.0} {new:>13} | {stateless:>9.0} {none:>13} | {:>11} {:>11}",
            insert[0], rate[0], rate[1]
        );
    }
    println!(
        "Other peers, end to end on veth, CPU-ns a packet at 1 / 1 thousand / 65 thousand flows: Katran, native"
    );
    println!(
        "XDP 415 / 519 / 523, nftables DNAT 933 / 1150 / 1615, nftables ingress DSR 824 / 810 / 835."
    );
}
