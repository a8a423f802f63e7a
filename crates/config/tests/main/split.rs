//! One heavy flow over the cores of an ordered queue, in virtual time, so that the gain does not
//! depend on other load of the machine.

use flowyard_config::Config;
use flowyard_frame::{FlowKey, Nanos, proto};
use flowyard_ports::mem::Frames;
use flowyard_ports::port::Pace;
use flowyard_ports::port::{Collect, SourceRx};
use flowyard_testkit::Build;
use flowyard_wire::LinkType;
use flowyard_yard::Parts;
use flowyard_yard::sim::{Faults, Sim};

flowyard_testkit::tests! {
    two_cores_get_nearly_twice_the_rate_out_of_one_flow,
}

const FRAMES: u64 = 20_000;

/// The time that `cores` cores take until the flow's last frame, at 1,000 ns a frame. Core 0 also
/// receives and transmits.
fn time(cores: u16) -> Nanos {
    let all: Vec<u16> = (0..cores).collect();
    let text = format!(
        r#"
        [yard]
        cores = {cores}
        [[port]]
        name = "p"
        kind = "mem"
        in = "given"
        [[queue]]
        name = "q"
        order = "ordered"
        consumers = {all:?}
        [work]
        kind = "burn"
        cost_ns = 1000
        "#
    );
    let [a, b] = [1, 2].map(|n| std::net::IpAddr::from([10, 0, 0, n]));
    let key = FlowKey::five_tuple(proto::UDP, a, 1, b, 2);
    let (mut frames, collect) = (Frames::new(), Collect::default());
    for seq in 0..FRAMES {
        let data = Build::new(&key).payload(&seq.to_be_bytes()).bytes();
        frames.push(0, LinkType::Ethernet, &data);
    }
    let mut parts = Parts::default();
    parts.rx.insert(0, Box::new(SourceRx::new(0, Box::new(frames), Pace::Fast)));
    parts.tx.insert(0, Box::new(collect.clone()));
    let yard = Config::parse("y", &text).unwrap().build(parts).unwrap();
    let mut sim = Sim::new(yard, 1, Faults::default());
    assert_eq!(sim.run().unwrap().tx_frames, FRAMES);
    let sent = collect.take();
    let seq = |data: &[u8]| u64::from_be_bytes(data[42..50].try_into().unwrap());
    assert!(sent.iter().map(|(_, data)| seq(data)).eq(0..FRAMES), "in order");
    sent.iter().map(|(sent, _)| sent.at).max().unwrap()
}

fn two_cores_get_nearly_twice_the_rate_out_of_one_flow() {
    let [one, two, four] = [1, 2, 4].map(time);
    let gain = |time: Nanos| one as f64 / time as f64;
    flowyard_testkit::note!("gain: {:.2} with two cores, {:.2} with four", gain(two), gain(four));
    assert!(gain(two) > 1.7 && gain(four) > 3.0, "{one} {two} {four}");
}
