//! A switch from its configuration: changes by mail, which come into force on every core; frames,
//! copies, punts.

use std::sync::Arc;

use flowyard_config::Config;
use flowyard_frame::{FlowKey, proto};
use flowyard_openflow::act::{Action, Instruction};
use flowyard_openflow::change::{Change, Counts, Entry};
use flowyard_openflow::flow::PacketOut;
use flowyard_openflow::port::reserved;
use flowyard_openflow::{Field, Match, Oxm};
use flowyard_ports::mem::Frames;
use flowyard_ports::port::Pace;
use flowyard_ports::port::{Collect, SourceRx};
use flowyard_switch::{SwitchHub, change_message};
use flowyard_testkit::Build;
use flowyard_wire::LinkType;
use flowyard_yard::DropReason;
use flowyard_yard::Parts;
use flowyard_yard::sim::{Faults, Sim};

flowyard_testkit::tests! {
    flows_arrive_by_mail_and_apply_to_frames,
    every_copy_of_a_frame_is_sent_or_counted,
    errors_name_the_place_and_the_fix,
}

const TEXT: &str = r#"
[yard]
cores = 2
[[port]]
name = "a"
kind = "mem"
in = "none"
[[port]]
name = "b"
kind = "mem"
in = "none"
core = 1
[[port]]
name = "c"
kind = "mem"
in = "none"
[[queue]]
name = "q"
order = "ordered"
consumers = [0, 1]
[work]
kind = "switch"
[switch]
ports = { b = 7 }
"#;

fn entry(id: u64, priority: u16, fields: &[Oxm], actions: Vec<Action>) -> (u64, Change) {
    let entry = Entry {
        id,
        table: 0,
        priority,
        cookie: 9,
        flags: 0,
        matching: Match(fields.to_vec()).normal(),
        instructions: vec![Instruction::ApplyActions(actions)],
        counts: (0..2).map(|_| Counts::default()).collect(),
    };
    (id, Change::Flow(Arc::new(entry)))
}

const fn output(port: u32) -> Action {
    Action::Output { port, max_len: 128 }
}

fn tell(sim: &mut Sim, changes: &[(u64, Change)]) {
    let hub = sim.yard.control_plane::<SwitchHub>().unwrap();
    let last = changes.last().unwrap().0;
    for core in 0..2 {
        assert!(hub.in_force() < last);
        assert!(sim.yard.mail.offer(core, change_message(changes.into())));
    }
    let mut steps = 0;
    while hub.in_force() < last {
        sim.step();
        steps += 1;
        assert!(steps < 1000, "the changes are not in force");
    }
}

fn flows_arrive_by_mail_and_apply_to_frames() {
    let config = Config::parse("switch.toml", TEXT).unwrap();
    let ports: Vec<_> = (0..3).map(|_| Collect::default()).collect();
    let mut parts = Parts::default();
    let key =
        |n: u8| FlowKey::five_tuple(proto::UDP, [10, 0, 0, n].into(), 1, [10, 0, 0, 99].into(), 2);
    let mut frames = Frames::new();
    let mut frame = Vec::new();
    // The frames come after the flows are in force; the simulation must not be later than that.
    for at in 0..300_u64 {
        Build::new(&key((at % 3) as u8)).payload(&[at as u8; 30]).write(&mut frame);
        frames.push(10_000_000 + at * 100, LinkType::Ethernet, &frame);
    }
    parts.rx.insert(0, Box::new(SourceRx::new(0, Box::new(frames), Pace::Capture)));
    for number in 1..3 {
        let none = SourceRx::new(number, Box::new(Frames::new()), Pace::Fast);
        parts.rx.insert(number, Box::new(none));
    }
    for (number, port) in (0..).zip(&ports) {
        parts.tx.insert(number, Box::new(port.clone()));
    }
    let yard = config.build(parts).unwrap();
    let hub = yard.control_plane::<SwitchHub>().unwrap();
    assert_eq!(hub.ports().iter().map(|port| port.number).collect::<Vec<_>>(), [1, 7, 2]);
    let mut sim = Sim::new(yard, 1, Faults::default());

    let ip =
        |n: u128| [Oxm::exact(Field::EthType, 0x800), Oxm::exact(Field::Ipv4Src, 0x0a00_0000 + n)];
    let tag = Action::PushVlan(0x8100);
    let flows = [
        entry(1, 1, &ip(0), vec![output(7)]),
        // The frames leave by two ports, with different bytes on each, and to the controller.
        entry(2, 1, &ip(1), vec![output(2), tag, output(7), output(reserved::CONTROLLER)]),
        entry(3, 0, &[], vec![output(reserved::CONTROLLER)]),
    ];
    tell(&mut sim, &flows);
    let message = PacketOut {
        in_port: reserved::CONTROLLER,
        actions: vec![output(2)],
        data: vec![0xab; 64],
        ..PacketOut::default()
    };
    tell(&mut sim, &[(4, Change::Send(Arc::new(message)))]);
    let total = sim.run().unwrap();

    let out = |port: usize| -> Vec<Vec<u8>> {
        ports[port].take().iter().map(|(_, data)| data.to_vec()).collect()
    };
    let (a, b, c) = (out(0), out(1), out(2));
    assert_eq!((a.len(), b.len(), c.len()), (0, 200, 101));
    assert_eq!(c[0], [0xab; 64], "sent by the controller, before the others came");
    let tagged = b.iter().filter(|frame| frame[12..14] == [0x81, 0]);
    assert_eq!(tagged.count(), 100);
    // 100 tagged frames and 100 without a matching flow; the queue has space for all of them.
    let punts: Vec<_> = hub.punts().try_iter().collect();
    assert_eq!(punts.len() as u64 + hub.punts_lost(), 200);
    assert!(punts.iter().all(|punt| punt.in_port == 1 && punt.cookie == 9 && punt.max_len == 128));
    assert_eq!(
        (total.rx_frames, total.copies, total.tx_frames, total.drops.total()),
        (300, 101, 301, 100)
    );
    let stats = hub.port_stats();
    let packets: Vec<_> =
        stats.iter().map(|port| (port.number, port.basic[0], port.basic[1])).collect();
    assert_eq!(packets, [(1, 300, 0), (7, 0, 200), (2, 0, 101)]);
    let counted: u64 = flows
        .iter()
        .map(|(_, change)| match change {
            Change::Flow(entry) => entry.counts.iter().map(|counts| counts.read().0).sum(),
            _ => 0,
        })
        .sum();
    assert_eq!(counted, 300);
}

/// Frames that become many: what was received and copied is sent or dropped, with the reasons.
fn every_copy_of_a_frame_is_sent_or_counted() {
    let group = |number: u32, to: &str| {
        format!("\"group_id={number},type=all,bucket=actions={to},bucket=actions={to}\"")
    };
    let mut groups = vec![group(1, "output:c")];
    groups.extend((2..=11).map(|number| group(number, &format!("group:{}", number - 1))));
    let run = |actions: &str, frames: u64, pool: usize| {
        let text = TEXT.replace("cores = 2", &format!("cores = 2\nframes = {pool}"));
        let flows = format!("groups = [{}]\nflows = [\"actions={actions}\"]\n", groups.join(", "));
        let config = Config::parse("switch.toml", &(text + &flows)).unwrap();
        let ports: Vec<_> = (0..3).map(|_| Collect::default()).collect();
        let mut parts = Parts::default();
        let mut made = Frames::new();
        let mut frame = Vec::new();
        let key = FlowKey::five_tuple(proto::UDP, [10, 0, 0, 1].into(), 1, [10, 0, 0, 2].into(), 2);
        for at in 0..frames {
            Build::new(&key).payload(&[at as u8; 30]).write(&mut frame);
            made.push(10_000_000 + at * 100, LinkType::Ethernet, &frame);
        }
        parts.rx.insert(0, Box::new(SourceRx::new(0, Box::new(made), Pace::Capture)));
        for number in 1..3 {
            let none = SourceRx::new(number, Box::new(Frames::new()), Pace::Fast);
            parts.rx.insert(number, Box::new(none));
        }
        for (number, port) in (0..).zip(&ports) {
            parts.tx.insert(number, Box::new(port.clone()));
        }
        let mut agent = config.switch_agent().unwrap();
        config.load_switch(&mut agent).unwrap();
        let yard = config.build(parts).unwrap();
        let mut sim = Sim::new(yard, 1, Faults::default());
        tell(&mut sim, &agent.drain());
        let total = sim.run().unwrap();
        assert_eq!(total.rx_frames, frames);
        assert_eq!(total.inside(), 0, "{total:?}");
        assert_eq!(ports[2].take().len() as u64, total.tx_frames);
        total
    };
    // 2,048 frames come of one, more than the pool has buffers for.
    let total = run("group:11", 8, 6784);
    assert_eq!(total.copies, 8 * 2047);
    assert!(total.tx_frames > 8 && total.drops.get(DropReason::NoBuffer) > 0, "{total:?}");
    // More than one frame may become: the frame is dropped, and nothing is copied.
    let total = run("group:11,group:11,output:b", 5, 6784);
    assert_eq!((total.copies, total.tx_frames), (0, 0));
    assert_eq!(total.drops.get(DropReason::TooManyCopies), 5);
}

fn errors_name_the_place_and_the_fix() {
    let wrong = |from: &str, to: &str| {
        let text = TEXT.replace(from, to);
        Config::parse("switch.toml", &text).unwrap_err().to_string()
    };
    for (from, to, place, what) in [
        ("b = 7", "d = 7", "24:", "d"),
        ("b = 7", "b = 0", "24:", "a port cannot have the number 0"),
        ("b = 7", "b = 7, a = 7", "24:", "already"),
        ("ports", "tables = 256\nports", "24:", "256 tables"),
        ("ports", "datapath = \"xyz\"\nports", "24:", "'xyz' is not a datapath ID"),
        ("ports", "controllers = [\"10.0.0.1\"]\nports", "24:", "start it with tcp:"),
        ("kind = \"switch\"", "kind = \"forward\"", "23:", "is for kind = \"switch\""),
    ] {
        let text = wrong(from, to);
        assert!(text.contains(&format!("switch.toml:{place}")) && text.contains(what), "{text}");
    }
}
