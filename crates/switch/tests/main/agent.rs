//! The data plane with the agent that it follows: what controllers ask for is what frames meet.

use flowyard_openflow::agent::{Agent, Limits, Out};
use flowyard_openflow::flow::FlowCommand;
use flowyard_openflow::port::Port;
use flowyard_openflow::{Message, Version, decode, encode, ofctl};
use flowyard_switch::{Arrival, Datapath, Effects, Lookup, Settings};

flowyard_testkit::tests! {
    a_flow_of_priority_0_is_not_shadowed_by_the_miss_of_1_0,
    a_flow_of_1_0_without_wildcards_has_the_highest_priority,
    an_icmp_type_above_255_is_not_cut,
    a_translated_flow_of_1_0_does_the_same,
}

/// The connections: a controller of each version.
const OLD: u32 = 1;
const NEW: u32 = 2;

struct Both {
    agent: Agent,
    datapath: Datapath,
    out: Effects,
}

impl Both {
    fn new(lookup: Lookup) -> Self {
        let limits = Limits { tables: 3, flows: 100, groups: 9, meters: 9 };
        let mut agent = Agent::new(1, limits, 1);
        for number in 1..=3 {
            agent.port_add(Port { number, ..Port::default() }, 0, &mut Vec::new());
        }
        let settings =
            Settings { tables: 3, lookup, lookups: agent.lookups(), ..Settings::default() };
        let datapath = Datapath::group(1, &settings).remove(0);
        Self { agent, datapath, out: Effects::new(64) }
    }

    fn apply(&mut self) {
        for (number, change) in self.agent.drain() {
            self.datapath.apply(number, &change, 0, &mut self.out);
        }
    }

    fn connect(&mut self) {
        self.agent.connect(OLD, Version::V10);
        self.agent.connect(NEW, Version::V13);
        self.apply();
    }

    /// Sends a message as the version of the connection writes it, and returns the answers as it reads
    /// them.
    fn say(&mut self, from: u32, message: &Message) -> Vec<Message> {
        let version = self.agent.version(from).expect("a connection");
        let mut wire = Vec::new();
        encode(message, version, 1, &mut wire).expect("the version has the message");
        let (_, message) = decode(&wire).expect("a message");
        let mut out = Vec::new();
        self.agent.handle(from, 1, &message, 0, &mut out);
        self.apply();
        let read = |out: Out| {
            let mut wire = Vec::new();
            encode(&out.message, version, out.xid, &mut wire).expect("the version has the answer");
            decode(&wire).expect("an answer").1
        };
        out.into_iter().filter(|out| out.to == from).map(read).collect()
    }

    fn add(&mut self, from: u32, text: &str) {
        let m = ofctl::flow(text, FlowCommand::Add).expect("a flow");
        assert_eq!(self.say(from, &Message::FlowMod(m)), [], "{text}");
    }

    /// The ports to which a frame is sent, and the number of controllers' copies. The second frame is
    /// answered by the cache.
    fn frame(&mut self, port: u32, frame: &[u8]) -> (Vec<u32>, usize) {
        let mut once = || {
            self.datapath.process(frame, Arrival::by(port), 0, &mut self.out);
            let sent = self.out.sent.iter().map(|sent| sent.port).collect();
            (sent, self.out.punts.drain(..).count())
        };
        let first: (Vec<u32>, usize) = once();
        assert_eq!(once(), first);
        first
    }
}

/// A frame to 10.0.0.`dst`, with UDP ports 1 and 2.
fn udp(dst: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, dst]);
    frame.extend([0, 1, 0, 2, 0, 8, 0, 0]);
    frame.resize(60, 0);
    frame
}

fn a_flow_of_priority_0_is_not_shadowed_by_the_miss_of_1_0() {
    for lookup in [Lookup::Merged, Lookup::Linear, Lookup::Hash, Lookup::Space] {
        let mut both = Both::new(lookup);
        both.connect();
        assert_eq!(both.frame(1, &udp(1)), (vec![], 1), "the miss of 1.0");
        both.add(NEW, "priority=0,in_port=1,actions=output:2");
        both.add(OLD, "priority=0,in_port=2,actions=output:3");
        assert_eq!(both.frame(1, &udp(1)), (vec![2], 0));
        assert_eq!(both.frame(2, &udp(1)), (vec![3], 0));
        assert_eq!(both.frame(3, &udp(1)), (vec![], 1));
        // So is a flow of priority 0 that matches everything.
        both.add(NEW, "priority=0,actions=output:1");
        assert_eq!(both.frame(3, &udp(1)), (vec![1], 0));
        both.agent.disconnect(OLD);
        both.apply();
        assert_eq!(both.frame(1, &udp(1)), (vec![2], 0));
    }
}

/// OpenFlow 1.0.0, section 3.4.
fn a_flow_of_1_0_without_wildcards_has_the_highest_priority() {
    for lookup in [Lookup::Merged, Lookup::Linear, Lookup::Hash, Lookup::Space] {
        let mut both = Both::new(lookup);
        both.connect();
        both.add(NEW, "priority=65535,ip,actions=output:2");
        both.add(OLD, "priority=65535,udp,actions=output:2");
        assert_eq!(both.frame(1, &udp(1)), (vec![2], 0));
        both.add(
            OLD,
            "priority=1,in_port=1,dl_vlan=0xffff,dl_dst=02:00:00:00:00:01,dl_src=02:00:00:00:00:02,udp,\
             nw_tos=0,nw_src=10.0.0.1,nw_dst=10.0.0.1,udp_src=1,udp_dst=2,actions=output:3",
        );
        assert_eq!(both.frame(1, &udp(1)), (vec![3], 0));
        assert_eq!(both.frame(1, &udp(2)), (vec![2], 0));
    }
}

/// Type and code of ICMP have 8 bits, and the action of 1.0 has 16.
fn an_icmp_type_above_255_is_not_cut() {
    use flowyard_openflow::act::{Action, Instruction};

    let mut icmp = udp(1);
    icmp[23] = 1;
    icmp[34] = 8;
    for (value, wanted) in [(300, 8), (3, 3)] {
        let mut both = Both::new(Lookup::Merged);
        both.connect();
        // The match does not say that the frames are ICMP.
        let mut m = ofctl::flow("actions=output:2", FlowCommand::Add).expect("a flow");
        if let [Instruction::ApplyActions(list)] = &mut m.instructions[..] {
            list.insert(0, Action::SetTpSrc(value));
        }
        assert_eq!(both.say(OLD, &Message::FlowMod(m)), []);
        both.datapath.process(&icmp, Arrival::by(1), 0, &mut both.out);
        let sent = both.out.bytes(&both.out.sent[0], &icmp);
        assert_eq!(sent[34], wanted);
    }
}

/// A flow of 1.0 is read by a controller of 1.3, deleted, and added again by it; and the reverse.
fn a_translated_flow_of_1_0_does_the_same() {
    use flowyard_openflow::flow::FlowMod;
    use flowyard_openflow::multipart::{FlowFilter, Reply, Request};
    use flowyard_openflow::port::reserved;
    use flowyard_openflow::{Match, group, table};

    let tagged = [&udp(1)[..12], &[0x81, 0, 0x60, 5], &udp(1)[12..]].concat();
    let mut arp = udp(1);
    arp[13] = 6;
    let frames = [udp(1), tagged, arp];
    let sent = |both: &mut Both| {
        let mut all = Vec::new();
        for frame in &frames {
            both.datapath.process(frame, Arrival::by(1), 0, &mut both.out);
            let sent = both.out.sent.iter();
            all.push(
                sent.map(|one| (one.port, one.queue, both.out.bytes(one, frame).to_vec()))
                    .collect(),
            );
        }
        all
    };
    let any = FlowFilter {
        table: table::ALL,
        out_port: reserved::ANY,
        out_group: group::ANY,
        matching: Match::default(),
        ..FlowFilter::default()
    };
    for text in [
        "dl_vlan=5,actions=mod_vlan_vid:6,mod_vlan_pcp:1,output:2",
        "dl_vlan=0xffff,actions=mod_vlan_vid:6,mod_vlan_pcp:1,output:2",
        "dl_vlan=0xffff,actions=mod_vlan_pcp:1,output:2,strip_vlan,output:3",
        "dl_vlan=0xffff,actions=strip_vlan,output:2",
        "dl_vlan=5,actions=strip_vlan,output:2",
        "udp,dl_vlan=5,actions=mod_tp_dst:77,mod_tp_src:78,output:2",
        "arp,actions=mod_tp_dst:77,output:2",
        "in_port=1,actions=enqueue:2:4,output:3,enqueue:2:5",
    ] {
        let mut both = Both::new(Lookup::Merged);
        both.connect();
        both.add(OLD, text);
        let wanted: Vec<Vec<(u32, u32, Vec<u8>)>> = sent(&mut both);
        assert!(wanted.iter().any(|sent| !sent.is_empty()), "{text}");
        for version in [NEW, OLD] {
            let request =
                Message::MultipartRequest { more: false, body: Request::Flow(any.clone()) };
            let answer = both.say(version, &request);
            let [Message::MultipartReply { body: Reply::Flow(flows), .. }] = &answer[..] else {
                panic!("{text}: {answer:?}")
            };
            let add = FlowMod {
                buffer: u32::MAX,
                priority: flows[0].priority,
                matching: flows[0].matching.clone(),
                instructions: flows[0].instructions.clone(),
                out_port: reserved::ANY,
                out_group: group::ANY,
                ..FlowMod::default()
            };
            let delete = FlowMod {
                command: FlowCommand::Delete,
                table: table::ALL,
                matching: Match::default(),
                instructions: Vec::new(),
                ..add.clone()
            };
            assert_eq!(both.say(version, &Message::FlowMod(delete)), [], "{text}");
            assert_eq!(both.agent.flows(), 0, "{text}");
            assert_eq!(both.say(version, &Message::FlowMod(add)), [], "{text}");
            assert_eq!(sent(&mut both), wanted, "{text}, read by connection {version}");
        }
    }
}
