//! Tests of the data plane. Data planes with and without a cache, and with different lookups, must give the
//! same results.

use flowyard_openflow::act::{Action, Instruction};
use flowyard_openflow::change::{Counts, Group, Meter};
use flowyard_openflow::flow::PacketOut;
use flowyard_openflow::group::{Band, Bucket, GroupType, METER_CONTROLLER, meter_flags};
use flowyard_openflow::multipart::{GroupDesc, MeterConfig};
use flowyard_openflow::port::{Port, reserved};
use flowyard_openflow::{Match, Oxm};

use super::*;
use crate::effects::Reason;
use crate::why::Answer;

fn counts(n: usize) -> Arc<[Counts]> {
    (0..n).map(|_| Counts::default()).collect()
}

fn entry(id: u64, table: u8, priority: u16, fields: &[Oxm], then: Vec<Instruction>) -> Arc<Entry> {
    Arc::new(Entry {
        id,
        table,
        priority,
        cookie: id,
        flags: 0,
        matching: Match(fields.to_vec()).normal(),
        instructions: then,
        counts: counts(1),
    })
}

fn output(port: u32) -> Action {
    Action::Output { port, max_len: 0xffff }
}

fn to(port: u32) -> Vec<Instruction> {
    vec![Instruction::ApplyActions(vec![output(port)])]
}

fn settings(lookup: Lookup, cache_entries: usize) -> Settings {
    Settings { tables: 3, lookup, cache_entries, ..Settings::default() }
}

/// Ports and bytes of sent frames, and the number of punts.
type Left = (Vec<(u32, Vec<u8>)>, usize);

struct Bed {
    datapath: Datapath,
    out: Effects,
    changes: u64,
}

impl Bed {
    fn new(settings: &Settings) -> Self {
        let datapath = Datapath::group(1, settings).remove(0);
        let mut bed = Self { datapath, out: Effects::new(16), changes: 0 };
        (1..=4).for_each(|number| bed.port(number, 0, 0));
        bed
    }

    fn apply(&mut self, change: &Change) {
        self.changes += 1;
        self.datapath.apply(self.changes, change, 0, &mut self.out);
        assert_eq!(self.datapath.in_force(), self.changes);
    }

    fn port(&mut self, number: u32, config: u32, state: u32) {
        self.apply(&Change::Port(Arc::new(Port { number, config, state, ..Port::default() })));
    }

    fn flow(&mut self, id: u64, table: u8, priority: u16, fields: &[Oxm], then: Vec<Instruction>) {
        self.apply(&Change::Flow(entry(id, table, priority, fields, then)));
    }

    fn group(&mut self, group: u32, kind: GroupType, buckets: Vec<Bucket>) {
        let n = buckets.len();
        let desc = GroupDesc { kind, group, buckets };
        self.apply(&Change::Group(Arc::new(Group { desc, counts: counts(1), buckets: counts(n) })));
    }

    fn frame(&mut self, port: u32, frame: &[u8]) -> Left {
        self.frame_at(port, frame, 0)
    }

    fn frame_at(&mut self, port: u32, frame: &[u8], now: u64) -> Left {
        self.datapath.process(frame, Arrival::by(port), now, &mut self.out);
        self.left(frame)
    }

    fn left(&mut self, frame: &[u8]) -> Left {
        let sent = self.out.sent.iter();
        let sent = sent.map(|one| (one.port, self.out.bytes(one, frame).to_vec())).collect();
        (sent, self.out.punts.drain(..).count())
    }

    /// Processes frames one by one after looking them up together.
    fn batch(&mut self, frames: &[(u32, Vec<u8>)]) -> Vec<Left> {
        let count = self.datapath.look(frames.iter().map(|(port, f)| (&f[..], Arrival::by(*port))));
        assert_eq!(count, frames.len());
        let act = |(place, (_, frame)): (usize, &(u32, Vec<u8>))| self.act(place, frame);
        frames.iter().enumerate().map(act).collect()
    }

    fn act(&mut self, place: usize, frame: &[u8]) -> Left {
        self.datapath.act(place, frame, 0, &mut self.out);
        self.left(frame)
    }

    fn ports(&mut self, port: u32, frame: &[u8]) -> Vec<u32> {
        self.frame(port, frame).0.into_iter().map(|(port, _)| port).collect()
    }
}

/// A UDP frame from 10.0.0.`src` to 10.0.0.`dst` with correct checksums.
fn udp(src: u8, dst: u8, ttl: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, dst, 2, 0, 0, 0, 0, src, 8, 0];
    let mut ip = vec![0x45, 0, 0, 32, 0, 0, 0, 0, ttl, 17, 0, 0, 10, 0, 0, src, 10, 0, 0, dst];
    let sum = flowyard_wire::checksum::checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(ip);
    let mut udp = vec![0, 1, 0, 2, 0, 12, 0, 0, 1, 2, 3, 4];
    let (a, b) = ([10, 0, 0, src].into(), [10, 0, 0, dst].into());
    let sum = flowyard_wire::checksum::transport_checksum(a, b, 17, &udp);
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
    frame.extend(udp);
    frame.resize(60, 0);
    frame
}

#[test]
fn the_second_frame_of_a_flow_hits_in_the_port_mapping_and_is_counted() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    let flow = entry(1, 0, 5, &[Oxm::exact(Field::InPort, 1)], to(2));
    bed.apply(&Change::Flow(Arc::clone(&flow)));
    for _ in 0..3 {
        assert_eq!(bed.ports(1, &udp(1, 2, 9)), [2]);
    }
    assert_eq!(
        bed.datapath.totals,
        Totals { frames: 3, cached: 2, mapped: 2, front: 0, over: 0, marked: 0 }
    );
    assert_eq!(flow.counts[0].read().0, 3);
    assert_eq!(bed.datapath.offloaded(&flow), Some((2, 120)));
    // Another rule ends the entry; the counters stay.
    bed.flow(2, 0, 6, &[Oxm::exact(Field::InPort, 1), Oxm::exact(Field::EthType, 0x806)], to(3));
    assert_eq!(bed.ports(1, &udp(1, 2, 9)), [2]);
    assert_eq!(bed.datapath.offloaded(&flow), Some((2, 120)));
    assert_eq!((bed.ports(1, &udp(1, 2, 9)), flow.counts[0].read().0), (vec![2], 5));
    assert_eq!(bed.datapath.offloaded(&flow), Some((3, 180)));
}

#[test]
fn a_table_reports_its_flows_and_tuples() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    assert_eq!([0, 1, 2].map(|table| bed.datapath.table(table)), [Some((0, 0)); 3]);
    assert_eq!(bed.datapath.table(3), None, "there are three tables");
    for port in 1..=4_u32 {
        bed.flow(port.into(), 1, 5, &[Oxm::exact(Field::InPort, port.into())], to(2));
    }
    bed.flow(9, 1, 6, &[Oxm::exact(Field::EthType, 0x800)], to(2));
    let all = [0, 1, 2].map(|table| bed.datapath.table(table));
    assert_eq!(all, [Some((0, 0)), Some((5, 2)), Some((0, 0))]);
}

#[test]
fn a_change_is_in_force_at_once() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    let frame = udp(1, 2, 9);
    bed.flow(1, 0, 5, &[Oxm::exact(Field::InPort, 1)], to(2));
    assert_eq!([bed.ports(1, &frame), bed.ports(1, &frame)], [[2], [2]]);
    // A rule of higher priority that compares a new field; then one that compares known fields.
    bed.flow(2, 0, 6, &[Oxm::exact(Field::EthType, 0x800)], to(3));
    assert_eq!([bed.ports(1, &frame), bed.ports(1, &frame)], [[3], [3]]);
    bed.flow(3, 0, 7, &[Oxm::exact(Field::EthType, 0x800), Oxm::exact(Field::InPort, 1)], to(4));
    assert_eq!([bed.ports(1, &frame), bed.ports(1, &frame)], [[4], [4]]);
    // A rule that replaces another; a rule that is removed; a port that goes down.
    let same = [Oxm::exact(Field::EthType, 0x800), Oxm::exact(Field::InPort, 1)];
    bed.flow(4, 0, 7, &same, to(2));
    assert_eq!(bed.ports(1, &frame), [2]);
    bed.apply(&Change::FlowGone(entry(3, 0, 7, &same, to(4))));
    assert_eq!(bed.ports(1, &frame), [2], "another flow has replaced it");
    bed.apply(&Change::FlowGone(entry(4, 0, 7, &same, to(2))));
    assert_eq!(bed.ports(1, &frame), [3]);
    bed.port(3, 0, 1);
    assert_eq!(bed.ports(1, &frame), [0; 0]);
    assert_eq!(bed.out.reason, Some(Reason::Filtered));
    bed.apply(&Change::PortGone(1));
    assert_eq!((bed.ports(1, &frame), bed.out.reason), (vec![], Some(Reason::NotReceived)));
}

/// The result of a lookup before a change is not used after it.
#[test]
fn a_change_between_look_and_act_is_in_force_at_once() {
    for cache in [0, 64] {
        let mut bed = Bed::new(&settings(Lookup::Merged, cache));
        bed.flow(1, 0, 1, &[], to(2));
        let frames = [(1, udp(1, 2, 9)), (1, udp(1, 2, 9)), (1, udp(1, 2, 9))];
        bed.batch(&frames);
        bed.datapath.look(frames.iter().map(|(port, frame)| (&frame[..], Arrival::by(*port))));
        assert_eq!(bed.act(0, &frames[0].1).0[0].0, 2);
        bed.flow(2, 0, 2, &[], to(3));
        assert_eq!(bed.act(1, &frames[1].1).0[0].0, 3);
        bed.apply(&Change::FlowGone(entry(2, 0, 2, &[], to(3))));
        assert_eq!(bed.act(2, &frames[2].1).0[0].0, 2);
        assert_eq!(bed.act(3, &frames[2].1).0, [], "there is no such frame");
    }
}

/// A cache whose lookups miss is paused, reports that, and resumes when flows come that it can hold.
#[test]
fn a_cache_is_paused_while_it_does_not_pay() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    let udp_to = |port| [Oxm::exact(Field::EthType, 0x800), Oxm::exact(Field::UdpDst, port)];
    // A key does not determine the fields after a pop, so only frames to UDP port 2 are cached.
    bed.flow(
        1,
        0,
        1,
        &[],
        vec![Instruction::ApplyActions(vec![Action::PopVlan]), Instruction::GotoTable(1)],
    );
    bed.flow(2, 1, 1, &[], to(2));
    let frame = udp(1, 2, 9);
    for _ in 0..1100 {
        assert_eq!(bed.ports(1, &frame), [2]);
    }
    assert_eq!(bed.datapath.totals.cached, 0);
    let mut key = Key::ZERO;
    key.set(Field::InPort, 1);
    let why = bed.datapath.why(&key);
    let rest = why.rest.unwrap();
    assert_eq!((rest.known, rest.one_in), (0, 256));
    assert!(rest.of >= 1024 && why.to_string().contains("the cache is paused"), "{why}");
    bed.flow(3, 0, 2, &udp_to(2), to(3));
    for _ in 0..256 * 128 {
        assert_eq!(bed.ports(1, &frame), [3]);
    }
    assert_eq!(bed.datapath.why(&key).rest, None);
    let before = bed.datapath.totals.cached;
    (0..100).for_each(|_| assert_eq!(bed.ports(1, &frame), [3]));
    assert_eq!(bed.datapath.totals.cached - before, 100);
}

#[test]
fn a_path_that_the_key_does_not_determine_is_not_cached() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    let pop = Instruction::ApplyActions(vec![Action::PopVlan]);
    bed.flow(1, 0, 1, &[], vec![pop, Instruction::GotoTable(1)]);
    bed.flow(2, 1, 1, &[Oxm::exact(Field::VlanVid, 0)], to(2));
    bed.flow(3, 1, 1, &[Oxm::exact(Field::VlanVid, 0x1007)], to(3));
    let tagged = |tags: &[u8]| {
        let mut frame = udp(1, 2, 9);
        tags.iter().for_each(|tag| drop(frame.splice(12..12, [0x81, 0, 0, *tag])));
        frame
    };
    // The result depends on the inner tag, which is not in the key.
    assert_eq!(bed.ports(1, &tagged(&[5])), [2]);
    assert_eq!(bed.ports(1, &tagged(&[7, 5])), [3]);
    assert_eq!(bed.datapath.paths(), 0);
}

#[test]
fn why_reports_how_the_second_frame_is_processed() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    let mut set = Vec::from([Instruction::WriteMetadata { value: 1, mask: 1 }]);
    set.push(Instruction::GotoTable(1));
    bed.flow(1, 0, 1, &[Oxm::exact(Field::InPort, 1)], set);
    bed.flow(2, 1, 1, &[Oxm::exact(Field::Metadata, 1)], to(2));
    let pop = Instruction::ApplyActions(vec![Action::PopVlan]);
    bed.flow(3, 0, 1, &[Oxm::exact(Field::InPort, 2)], vec![pop, Instruction::GotoTable(1)]);
    let two = Instruction::ApplyActions(vec![output(3), output(2)]);
    bed.flow(4, 0, 1, &[Oxm::exact(Field::InPort, 3)], vec![two]);
    let why = |bed: &Bed, port: u32| bed.datapath.why(&Arrival::by(port).key());
    assert_eq!(why(&bed, 1).answer, Answer::Mapped { port: 2 });
    assert_eq!(why(&bed, 1).path, [(0, 1, 1), (1, 1, 2)]);
    assert!(matches!(why(&bed, 2).answer, Answer::Unproven { table: 0, priority: 1, .. }));
    assert_eq!(why(&bed, 3).answer, Answer::Cached);
    assert_eq!((why(&bed, 4).miss, why(&bed, 4).answer), (Some(0), Answer::CachedMiss));
    assert!(why(&bed, 4).to_string().contains("cached; no flow matches"));
    let text = why(&bed, 2).to_string();
    assert!(
        text.contains("not offloaded: the flow of priority 1 in table 0 executes pop_vlan before"),
        "{text}"
    );
    // The counters agree with it.
    for (port, mapped, cached) in [(1, 1, 1), (2, 1, 1), (3, 1, 2)] {
        for _ in 0..2 {
            bed.frame(port, &udp(1, 2, 9));
        }
        let Totals { mapped: got, cached: all, .. } = bed.datapath.totals;
        assert_eq!((got, all), (mapped, cached), "port {port}");
    }
    // It also reports whether the cache has an entry already.
    for known in [false, true] {
        let text = why(&bed, 4);
        let reported = text.to_string().contains("the cache has no entry for it now");
        assert!(text.is_known == known && reported != known, "{text}");
        bed.frame(4, &udp(1, 2, 9));
    }
}

#[test]
fn a_frame_whose_ttl_expires_is_sent_to_the_controller() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    bed.flow(1, 0, 1, &[], vec![Instruction::ApplyActions(vec![Action::DecNwTtl, output(2)])]);
    let (sent, punts) = bed.frame(1, &udp(1, 2, 9));
    assert_eq!((sent, punts), (vec![(2, udp(1, 2, 8))], 0));
    assert_eq!(bed.frame(1, &udp(1, 2, 1)), (vec![], 1));
    assert_eq!(bed.out.reason, Some(Reason::Ttl));
}

#[test]
fn a_flood_is_sent_to_all_ports_except_its_own_and_those_configured_otherwise() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    bed.flow(1, 0, 1, &[], to(reserved::FLOOD));
    bed.flow(2, 0, 2, &[Oxm::exact(Field::InPort, 2)], to(reserved::ALL));
    bed.flow(3, 0, 2, &[Oxm::exact(Field::InPort, 3)], to(reserved::IN_PORT));
    bed.flow(4, 0, 2, &[Oxm::exact(Field::InPort, 4)], to(4));
    bed.port(4, 0x10, 0);
    let frame = udp(1, 2, 9);
    assert_eq!(bed.ports(1, &frame), [2, 3]);
    assert_eq!(bed.ports(2, &frame), [1, 3, 4]);
    assert_eq!(bed.ports(3, &frame), [3]);
    assert_eq!((bed.ports(4, &frame), bed.out.reason), (vec![], Some(Reason::Filtered)));
    bed.port(2, 0x20, 0);
    assert_eq!(bed.ports(1, &frame), [3]);
}

#[test]
fn normal_learns_stations() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    bed.flow(1, 0, 1, &[], to(reserved::NORMAL));
    assert_eq!(bed.ports(1, &udp(1, 2, 9)), [2, 3, 4]);
    assert_eq!(bed.ports(2, &udp(2, 1, 9)), [1]);
    assert_eq!(bed.ports(1, &udp(1, 2, 9)), [2]);
    assert_eq!(bed.out.seen.len(), 2);
    let mut other = Bed::new(&settings(Lookup::Merged, 64));
    other.flow(1, 0, 1, &[], to(reserved::NORMAL));
    bed.out.seen.iter().for_each(|seen| other.datapath.hear(seen));
    assert_eq!(other.ports(1, &udp(1, 2, 9)), [2]);
}

fn bucket(weight: u16, watch_port: u32, actions: &[Action]) -> Bucket {
    Bucket { weight, watch_port, watch_group: reserved::ANY, actions: actions.to_vec() }
}

#[test]
fn groups_send_to_their_buckets() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    let any = reserved::ANY;
    let set = Action::SetField(Oxm::exact(Field::Ipv4Dst, 0x0a00_0007));
    bed.group(
        1,
        GroupType::All,
        vec![bucket(0, any, &[output(2)]), bucket(0, any, &[set, output(3)])],
    );
    bed.group(
        2,
        GroupType::FastFailover,
        vec![bucket(0, 2, &[output(2)]), bucket(0, 3, &[output(3)])],
    );
    bed.group(3, GroupType::Indirect, vec![bucket(0, any, &[Action::Group(2)])]);
    // The agent rejects loops. If it did not, the data plane would still end them.
    bed.group(4, GroupType::All, vec![bucket(0, any, &[Action::Group(4)])]);
    for port in 1..=4 {
        let then = vec![Instruction::WriteActions(vec![output(9), Action::Group(port)])];
        bed.flow(port.into(), 0, 1, &[Oxm::exact(Field::InPort, port.into())], then);
    }
    let frame = udp(1, 2, 9);
    for _ in 0..2 {
        let sent = bed.frame(1, &frame).0;
        assert_eq!(sent[0], (2, frame.clone()));
        // The checksums are updated: the frame equals one that is built with the new address.
        let mut to7 = udp(1, 7, 9);
        to7[5] = 2;
        assert_eq!(sent[1], (3, to7));
    }
    assert_eq!(bed.ports(3, &frame), [2]);
    bed.port(2, 0, 1);
    // The frame was received from port 3, so it is not sent there.
    assert_eq!((bed.ports(3, &frame), bed.ports(4, &frame)), (vec![], vec![]));
    bed.flow(
        2,
        0,
        1,
        &[Oxm::exact(Field::InPort, 1)],
        vec![Instruction::ApplyActions(vec![Action::Group(3)])],
    );
    assert_eq!(bed.ports(1, &frame), [3]);
}

#[test]
fn select_keeps_a_flow_on_its_bucket_and_follows_the_weights() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 0));
    let any = reserved::ANY;
    let buckets = vec![
        bucket(1, any, &[output(2)]),
        bucket(3, any, &[output(3)]),
        bucket(0, any, &[output(4)]),
    ];
    bed.group(1, GroupType::Select, buckets);
    bed.flow(1, 0, 1, &[], vec![Instruction::ApplyActions(vec![Action::Group(1)])]);
    let mut to3 = 0;
    for flow in 0..4000_u16 {
        let [a, b] = flow.to_be_bytes();
        let mut frame = udp(a, b, 9);
        let first = bed.ports(1, &frame);
        frame[22] = 3; // another TTL, the same flow
        assert_eq!(first, bed.ports(1, &frame));
        to3 += i32::from(first == [3]);
    }
    assert!((to3 - 3000).abs() < 120, "{to3}"); // 4.4 standard deviations
}

#[test]
fn the_rate_of_a_meter_is_shared_by_all_cores() {
    let bands = vec![Band::Drop { rate: 1000, burst: 100 }];
    let flags = meter_flags::PKTPS | meter_flags::BURST;
    let config = MeterConfig { flags, meter: 1, bands };
    let meter = Change::Meter(Arc::new(Meter { config, counts: counts(2), bands: counts(2) }));
    let then = vec![Instruction::Meter(1), to(2).remove(0)];
    let flow = Change::Flow(entry(1, 0, 1, &[], then));
    let port = |number| Change::Port(Arc::new(Port { number, ..Port::default() }));
    let mut cores = Datapath::group(2, &settings(Lookup::Merged, 64));
    let mut out = Effects::new(0);
    for core in &mut cores {
        for (number, change) in (1..).zip([&meter, &port(1), &port(2), &flow]) {
            core.apply(number, change, 0, &mut out);
        }
    }
    // Two seconds at four times the rate.
    let mut sent = 0;
    for number in 0..8000_u64 {
        let now = 1 + number * 250_000;
        cores[number as usize % 2].process(&udp(1, 2, 9), Arrival::by(1), now, &mut out);
        sent += out.sent.len();
    }
    assert!((2098..=2102).contains(&sent), "{sent}");
    if let Change::Meter(meter) = &meter {
        let took: u64 = meter.bands.iter().map(|counts| counts.read().0).sum();
        assert_eq!(took, 8000 - sent as u64);
    }
}

/// `OFPM_CONTROLLER` limits the frames to controllers; other outputs of a frame are not limited.
#[test]
fn the_controller_meter_limits_punts() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    bed.flow(
        1,
        0,
        1,
        &[],
        vec![Instruction::ApplyActions(vec![output(reserved::CONTROLLER), output(2)])],
    );
    let bands = vec![Band::Drop { rate: 10, burst: 5 }];
    let flags = meter_flags::PKTPS | meter_flags::BURST;
    let config = MeterConfig { flags, meter: METER_CONTROLLER, bands };
    let meter = Arc::new(Meter { config, counts: counts(1), bands: counts(1) });
    bed.apply(&Change::Meter(Arc::clone(&meter)));
    let punted: usize = (0..20).map(|_| bed.frame_at(1, &udp(1, 2, 9), 1).1).sum();
    assert_eq!((punted, bed.out.punts_lost), (5, 15), "five at once");
    assert_eq!((meter.counts[0].read().0, meter.bands[0].read().0), (20, 15));
    assert_eq!(bed.frame_at(1, &udp(1, 2, 9), 1_000_000_000).1, 1, "a second later");
    assert_eq!(bed.out.sent.len(), 1, "port 2 receives all of them");
    bed.apply(&Change::MeterGone(METER_CONTROLLER));
    assert_eq!((0..20).map(|_| bed.frame_at(1, &udp(1, 2, 9), 1).1).sum::<usize>(), 20);
}

#[test]
fn a_frame_from_a_controller_can_be_processed_by_the_tables() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    bed.flow(1, 0, 1, &[Oxm::exact(Field::InPort, reserved::CONTROLLER.into())], to(3));
    let message = PacketOut {
        in_port: reserved::CONTROLLER,
        actions: vec![output(reserved::TABLE), Action::PushVlan(0x8100), output(2)],
        data: udp(1, 2, 9),
        ..PacketOut::default()
    };
    bed.out.clear();
    bed.apply(&Change::Send(Arc::new(message)));
    let sent: Vec<_> = bed.out.sent.iter().map(|s| (s.port, bed.out.bytes(s, &[]).len())).collect();
    assert_eq!(sent, [(3, 60), (2, 64)]);
}

mod budget;
mod front;
mod fronted;
mod groups;
mod meters;
mod ports;
mod random;
mod why;
