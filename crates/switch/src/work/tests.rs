//! The switch as a work of the yard: frames of a batch, copies, counters, and the mail of the agent.

use flowyard_frame::To;
use flowyard_openflow::change::Entry;
use flowyard_pool::Meta;

use super::*;

mod stations;
mod unfinished;

const CORES: usize = 2;

/// A switch with the ports 5 (a), 7 (b), 8 (c) and 3 (d).
struct Bed {
    hub: Arc<SwitchHub>,
    cores: Vec<Switch>,
    pool: Pool,
    changes: u64,
    /// The frames that are missing of each chain.
    missing: u16,
}

/// What became of a frame: the port of the yard and the bytes of each frame that leaves, in order.
type Left = Vec<(u16, Vec<u8>)>;

impl Bed {
    fn new(punts: usize) -> Self {
        let ports = [(5, "a"), (7, "b"), (8, "c"), (3, "d")];
        let hub = Arc::new(SwitchHub::new(SwitchSettings {
            cores: CORES,
            datapath: Settings { tables: 2, ..Settings::default() },
            ports: ports.map(|(number, name)| (number, [2; 6], name.to_owned())).to_vec(),
            punts,
        }));
        let cores = hub.group();
        Self { hub, cores, pool: Pool::new(1024, 2048), changes: 0, missing: 0 }
    }

    /// Gives a core changes.
    fn change(&mut self, core: usize, changes: Changes) {
        let Message::Control(message) = change_message(changes) else { panic!("another message") };
        self.cores[core].control(&message, 0, &mut |_, _| panic!("a change sends nothing"));
    }

    /// Gives a core the changes of flows, written as for `ovs-ofctl`.
    fn flows(&mut self, core: usize, texts: &[&str]) {
        let flow = |(at, text): (u64, &&str)| {
            let m = ofctl::flow(text, FlowCommand::Add).expect(text);
            let entry = Entry {
                id: at,
                table: m.table,
                priority: m.priority,
                cookie: 0,
                flags: 0,
                matching: m.matching.normal(),
                instructions: m.instructions,
                counts: (0..CORES).map(|_| Counts::default()).collect(),
            };
            (at, Change::Flow(Arc::new(entry)))
        };
        let changes: Changes = (self.changes + 1..).zip(texts).map(flow).collect();
        self.changes += texts.len() as u64;
        self.change(core, changes);
    }

    /// Passes frames by port `came` of the yard through a core, as one batch.
    fn pass(
        &mut self,
        core: usize,
        came: u16,
        frames: &[Vec<u8>],
    ) -> Vec<Result<Left, DropReason>> {
        self.pass_at(9, core, came, frames)
    }

    /// As [`Bed::pass`], at time `now`.
    fn pass_at(
        &mut self,
        now: Nanos,
        core: usize,
        came: u16,
        frames: &[Vec<u8>],
    ) -> Vec<Result<Left, DropReason>> {
        let mut batch = Batch::default();
        for data in frames {
            let meta = Meta { wire_len: data.len() as u32, ..Meta::default() };
            let frame = self.pool.copy(data, meta).expect("a buffer");
            let lane = batch.push(frame, FlowKey { in_port: came, ..FlowKey::ZERO });
            batch.actions[lane.expect("a lane")] = Action::queue(0);
        }
        assert_eq!(self.cores[core].work(&mut batch, &self.pool, now), now);
        (0..frames.len()).map(|lane| self.left(&mut batch, lane)).collect()
    }

    fn left(&mut self, batch: &mut Batch, lane: usize) -> Result<Left, DropReason> {
        let mut frame = std::mem::take(&mut batch.frames[lane]);
        let mut left = Vec::new();
        match batch.actions[lane].to {
            To::Port(port) => left.push((port, self.pool.bytes(&frame).to_vec())),
            To::Drop(reason) => {
                self.pool.put(frame);
                return Err(DropReason::of(reason));
            }
            to if to == To::CHAIN => {
                while let Some((copy, port)) = self.pool.untie(&mut frame) {
                    left.push((port, self.pool.bytes(&copy).to_vec()));
                    self.pool.put(copy);
                }
                let (port, (missing, _)) = self.pool.last(&mut frame);
                assert_eq!(missing, self.missing);
                left.push((port, self.pool.bytes(&frame).to_vec()));
            }
            other => panic!("{other:?}"),
        }
        self.pool.put(frame);
        Ok(left)
    }

    /// Received and sent frames and bytes of each port.
    fn stats(&self) -> Vec<[u64; 4]> {
        let of = |port: PortStats| [port.basic[0], port.basic[2], port.basic[1], port.basic[3]];
        self.hub.port_stats().into_iter().map(of).collect()
    }
}

/// A frame between two stations, of this length.
fn frame(src: u8, dst: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, dst, 2, 0, 0, 0, 0, src, 0x88, 0xb5];
    frame.resize(len, src);
    frame
}

#[test]
fn frames_leave_by_the_port_of_the_yard_and_are_counted_by_port() {
    let mut bed = Bed::new(4);
    for core in 0..CORES {
        bed.flows(core, &["in_port=5,actions=output:3", "in_port=7,actions=output:5"]);
    }
    let data = [frame(1, 2, 60), frame(3, 4, 100)];
    let [first, second] = [&data[0], &data[1]].map(Clone::clone);
    // Port 5 is the yard's first, port 3 its fourth.
    let wanted = [Ok(vec![(3, first.clone())]), Ok(vec![(3, second)])];
    assert_eq!(bed.pass(0, 0, &data), wanted);
    assert_eq!(bed.pass(1, 1, &data[..1]), [Ok(vec![(0, first)])]);
    // No flow matches frames of port 8.
    assert_eq!(bed.pass(0, 2, &data[..1]), [Err(DropReason::NoFlow)]);
    let wanted = [[2, 160, 1, 60], [1, 60, 0, 0], [1, 60, 0, 0], [0, 0, 2, 160]];
    assert_eq!(bed.stats(), wanted);
    let numbers: Vec<_> = bed.hub.port_stats().iter().map(|port| port.number).collect();
    assert_eq!(numbers, [5, 7, 8, 3]);
}

#[test]
fn copies_leave_in_the_order_of_the_outputs_with_their_own_bytes() {
    let mut bed = Bed::new(4);
    let text = "in_port=5,actions=output:8,mod_dl_dst:02:00:00:00:00:77,output:7,output:3";
    bed.flows(0, &[text, "in_port=7,actions=mod_dl_dst:02:00:00:00:00:77,output:5"]);
    let data = frame(1, 2, 80);
    let mut changed = data.clone();
    changed[5] = 0x77;
    for _ in 0..400 {
        // More rounds than the pool has buffers: none is lost.
        let wanted = vec![(2, data.clone()), (1, changed.clone()), (3, changed.clone())];
        assert_eq!(bed.pass(0, 0, std::slice::from_ref(&data)), [Ok(wanted)]);
        let wanted = vec![(0, changed.clone())];
        assert_eq!(bed.pass(0, 1, std::slice::from_ref(&data)), [Ok(wanted)]);
    }
    let each = [400, 32_000];
    let wanted = [[each, each], [each, each], [[0; 2], each], [[0; 2], each]];
    assert_eq!(bed.stats(), wanted.map(|[rx, tx]| [rx[0], rx[1], tx[0], tx[1]]));
}

/// The agent may know a port that is none of the yard. What leaves by others is sent, wherever that one is in the list.
#[test]
fn an_output_without_a_port_of_the_yard_does_not_drop_the_others() {
    let mut bed = Bed::new(4);
    let foreign = Port { number: 99, ..Port::default() };
    bed.change(0, [(1, Change::Port(foreign.into()))].into());
    bed.changes = 1;
    let text = "in_port=5,actions=output:7,mod_dl_dst:02:00:00:00:00:77,output:8,output:99";
    bed.flows(0, &[text, "in_port=7,actions=output:99,output:5", "in_port=8,actions=output:99"]);
    let data = frame(1, 2, 80);
    let mut changed = data.clone();
    changed[5] = 0x77;
    bed.missing = 1;
    let mut pass = |came| bed.pass(0, came, std::slice::from_ref(&data)).remove(0);
    assert_eq!(pass(0), Ok(vec![(1, data.clone()), (2, changed)]));
    assert_eq!(pass(1), Ok(vec![(0, data.clone())]));
    assert_eq!(pass(2), Err(DropReason::NoRoute));
}

#[test]
fn frames_for_controllers_wait_in_a_queue_and_those_without_room_are_counted() {
    let mut bed = Bed::new(3);
    bed.flows(0, &["in_port=5,actions=controller"]);
    let data: Vec<_> = (0..5).map(|n| frame(n, 9, 60)).collect();
    assert_eq!(bed.pass(0, 0, &data), vec![Err(DropReason::Punted); 5]);
    assert_eq!(bed.hub.punts_lost(), 2);
    let punts: Vec<_> = bed.hub.punts().try_iter().map(|punt| (punt.in_port, punt.frame)).collect();
    let wanted: Vec<_> = data[..3].iter().map(|data| (5, data.clone())).collect();
    assert_eq!(punts, wanted);
    assert_eq!(bed.pass(0, 0, &data[..1]), [Err(DropReason::Punted)]);
    assert_eq!((bed.hub.punts_lost(), bed.hub.punts().len()), (2, 1));
}

#[test]
fn a_change_is_in_force_when_every_core_has_applied_it() {
    let mut bed = Bed::new(4);
    assert_eq!(bed.hub.in_force(), 0);
    bed.flows(0, &["in_port=5,actions=output:3", "in_port=7,actions=drop"]);
    assert_eq!(bed.hub.in_force(), 0);
    bed.changes = 0;
    bed.flows(1, &["in_port=5,actions=output:3"]);
    assert_eq!(bed.hub.in_force(), 1);
    bed.flows(1, &["in_port=7,actions=drop"]);
    assert_eq!(bed.hub.in_force(), 2);
}

#[test]
fn a_station_that_one_core_has_learnt_is_known_to_the_other() {
    let mut bed = Bed::new(4);
    for core in 0..CORES {
        bed.flows(core, &["actions=normal"]);
    }
    let (there, back) = (frame(1, 2, 60), frame(2, 1, 60));
    let flood = vec![(1, there.clone()), (2, there.clone()), (3, there.clone())];
    let mut found = bed.pass(0, 0, std::slice::from_ref(&there));
    found[0].as_mut().expect("a flood").sort();
    assert_eq!(found, [Ok(flood)]);
    assert_eq!(bed.pass(1, 2, std::slice::from_ref(&back)), [Ok(vec![(0, back.clone())])]);
    assert_eq!(bed.pass(0, 0, std::slice::from_ref(&there)), [Ok(vec![(2, there.clone())])]);
}

#[test]
fn a_frame_that_is_not_of_ethernet_is_refused() {
    let mut bed = Bed::new(4);
    bed.flows(0, &["actions=output:3"]);
    let mut batch = Batch::default();
    let meta = Meta { link: LinkType::RawIp, wire_len: 60, ..Meta::default() };
    let frame = bed.pool.copy(&[0x45; 60], meta).expect("a buffer");
    batch.push(frame, FlowKey::ZERO).expect("a lane");
    batch.actions[0] = Action::queue(0);
    bed.cores[0].work(&mut batch, &bed.pool, 9);
    assert_eq!(bed.left(&mut batch, 0), Err(DropReason::LinkType));
    assert_eq!(bed.stats(), [[0; 4]; 4], "it was not received by a port of the switch");
}

#[test]
fn the_fields_of_a_frame_are_read_from_text() {
    let hub = Bed::new(4).hub;
    for text in
        ["in_port=b,udp,nw_dst=10.0.0.1,udp_dst=53", "in_port=7,udp,nw_dst=10.0.0.1,udp_dst=53"]
    {
        let key = hub.key(text).expect(text);
        let found =
            [Field::InPort, Field::InPhyPort, Field::EthType, Field::IpProto, Field::UdpDst];
        assert_eq!(found.map(|field| key.get(field)), [7, 7, 0x800, 17, 53].map(Some));
        // A frame without a tag.
        assert!(key.has(Field::VlanVid) && key.get(Field::VlanVid) == Some(0));
        assert_eq!(key.get(Field::Ipv4Src), None);
    }
    let tagged = hub.key("in_port=a,dl_vlan=9").expect("a tag");
    assert_eq!(tagged.get(Field::VlanVid), Some(0x1009));
    // Reserved ports are ports of every switch, and a frame may come from nowhere.
    assert_eq!(hub.key("in_port=LOCAL").map(|key| key.get(Field::InPort)), Ok(Some(0xffff_fffe)));
    assert_eq!(hub.key("").map(|key| key.get(Field::InPort)), Ok(None));
    for (text, words) in [
        (
            "in_port=6",
            "in_port=6: the switch has no such port; its ports are 5 (a), 7 (b), 8 (c), 3 (d)",
        ),
        ("in_port=9,udp", "in_port=9: the switch has no such port"),
        (
            "in_port=a,ip,nw_dst=10.0.0.0/8",
            "a frame has one value in each field; leave out masks and prefixes",
        ),
        ("in_port=e", "'e'"),
    ] {
        let error = hub.key(text).expect_err(text);
        assert!(error.contains(words), "{text}: {error}");
    }
}

#[test]
fn the_text_of_a_frame_is_read_back() {
    let hub = Bed::new(4).hub;
    let ip = |last| std::net::IpAddr::from([10, 0, 0, last]);
    let key = FlowKey {
        in_port: 2,
        vlan_tci: 9,
        eth_dst: [2, 0, 0, 0, 0, 7],
        ..FlowKey::five_tuple(17, ip(1), 4000, ip(2), 53)
    };
    let text = hub.fields(&key);
    assert!(text.starts_with("in_port=c,"), "{text}");
    let read = hub.key(&text).expect(&text);
    let fields = [
        Field::InPort,
        Field::EthDst,
        Field::VlanVid,
        Field::Ipv4Src,
        Field::UdpSrc,
        Field::UdpDst,
    ];
    let wanted = [8, 0x0200_0000_0007, 0x1009, 0x0a00_0001, 4000, 53];
    assert_eq!(fields.map(|field| read.get(field)), wanted.map(Some));
    assert!(hub.fields(&FlowKey { in_port: 77, ..key }).starts_with("in_port=PORT,"));
    assert_eq!(hub.port_names().collect::<Vec<_>>(), [(5, "a"), (7, "b"), (8, "c"), (3, "d")]);
    assert!(hub.ports().iter().all(|port| port.hw == [2; 6]));
}
