//! Flows of the switch that XDP answers (`[offload] xdp = true`): no frame is lost, changed or reordered, every counter is
//! exact, and time-outs and changes of flows end what XDP answers.

mod rig;

use std::time::Duration;

use flowyard_frame::proto;

use super::says;
use crate::yard::{clock, wait_until};
use flowyard_livekit::net::alone;
use rig::{LENGTHS, Rig, Stream, add, counted, five, passed};

flowyard_testkit::tests! {
    frames_are_conserved_and_counted,
    two_cores_keep_the_order,
    a_host_that_takes_no_redirected_frames,
    flows_that_change_while_xdp_answers,
    changes_under_traffic_lose_nothing,
    flows_that_are_idle_end,
    frames_that_are_too_long_are_dropped_and_counted,
    frames_for_the_kernel_delay_nothing,
}

fn frames_are_conserved_and_counted() {
    let _alone = alone();
    let mut rig = Rig::new(1);
    let mut streams = five(&rig.live);
    for _ in 0..3 {
        rig.exchange(&mut streams, 1000);
        rig.settles(&streams);
    }
    let seen = rig.stop("one core", &[], &streams);
    assert!(
        seen < 7500,
        "XDP has answered hardly anything: {seen} of 15,000 passed through the yard"
    );
}

fn two_cores_keep_the_order() {
    let _alone = alone();
    let mut rig = Rig::new(2);
    let mut streams = five(&rig.live);
    for _ in 0..100 {
        // Pauses let flows enter what XDP answers, and changes make them leave it.
        rig.exchange(&mut streams, 60);
        std::thread::sleep(Duration::from_millis(3));
        let flow = "cookie=0xffff,priority=20,udp,in_port=4,actions=output:1";
        says(&rig.live, "add-flow", &[flow]);
        says(&rig.live, "del-flows", &["cookie=0xffff/-1"]);
    }
    rig.settles(&streams);
    let seen = rig.stop("two cores", &[], &streams);
    assert!(seen < 22_500, "XDP has answered hardly anything: {seen} of 30,000");
}

/// The interface of a host without NAPI takes no redirected frames. Frames to it pass through the yard.
fn a_host_that_takes_no_redirected_frames() {
    let _alone = alone();
    let mut rig = Rig::new(1);
    let gro = |rig: &Rig, state: &str, message: &str| {
        let told = |rig: &Rig| rig.live.said("err").matches(message).count();
        let before = told(rig);
        rig.star.hosts[1].sh(&format!("ethtool -K eth gro {state}"));
        wait_until("the log says it", || told(rig) > before);
    };
    let mut streams = [
        Stream::new(1, 2, proto::UDP, 1001),
        Stream::new(1, 3, proto::UDP, 1002),
        Stream::new(2, 3, proto::TCP, 1003),
    ];
    streams.iter().for_each(|stream| add(&rig.live, stream, ""));
    rig.exchange(&mut streams, 500);
    for _ in 0..3 {
        gro(&rig, "off", "takes no redirected frames");
        rig.exchange(&mut streams, 500);
        gro(&rig, "on", "takes redirected frames now");
        rig.exchange(&mut streams, 500);
    }
    rig.settles(&streams);
    let seen = rig.stop("GRO on and off", &[], &streams);
    // Frames to the host without GRO passed through the yard: three times 500.
    assert!((1500..5500).contains(&seen), "{seen}");
}

fn flows_that_change_while_xdp_answers() {
    let _alone = alone();
    let mut rig = Rig::new(1);
    let mut streams = five(&rig.live);
    let mut counts: u64 = 0;
    for round in 0..60 {
        // The first stream goes to the hosts 2 and 4 in turn: from the frame on that follows the command.
        let to = [2, 4][round % 2];
        says(&rig.live, "mod-flows", &[&format!("udp,in_port=1,tp_src=1001,actions=output:{to}")]);
        let begun = streams[0].received;
        let before = streams[0].sent;
        for stream in &mut streams[..1] {
            stream.at = to;
        }
        rig.exchange(&mut streams, 100);
        assert_eq!((streams[0].received - begun, streams[0].sent - before), (100, 100));
        counts += 100;
        // The counters of a removed flow are complete: every frame before is in them.
        if round % 10 == 9 {
            let gone = &streams[1];
            wait_until("the counters", || {
                counted(&rig.live, gone).map(|all| all.0) == Some(counts)
            });
            says(&rig.live, "del-flows", &[&format!("cookie={:#x}/-1", gone.port)]);
            assert_eq!(counted(&rig.live, gone), None);
            add(&rig.live, gone, "");
            counts = 0;
        }
    }
    let stream = &streams[0];
    let want = Some((stream.sent, stream.bytes));
    wait_until("the counters of the changed flow", || counted(&rig.live, stream) == want);
    let seen = rig.stop("changes", &[], &streams);
    assert!(seen < 22_500, "XDP has answered hardly anything: {seen} of 30,000");
}

/// Frames are sent all the time while their flow changes its output, again and again: each arrives once at one of two
/// hosts, at each of them in order, and the flow has counted all of them.
fn changes_under_traffic_lose_nothing() {
    const FRAMES: u64 = 30_000;
    let _alone = alone();
    let mut rig = Rig::new(1);
    let stream = Stream::new(1, 2, proto::UDP, 1001);
    add(&rig.live, &stream, "");
    let mut wire = rig.star.wire(1);
    let sender = std::thread::spawn(move || {
        for first in (0..FRAMES).step_by(10) {
            let frames: Vec<_> = (first..first + 10).map(|number| stream.frame(number)).collect();
            let (sent, error) = wire.sender.send(frames.iter().map(|frame| &frame[..]));
            assert_eq!(sent, 10, "{error:?}");
            std::thread::sleep(Duration::from_micros(300));
        }
    });
    let (mut came, mut next, mut changes) = (vec![false; FRAMES as usize], [0; 4], 0);
    let mut receive = |rig: &mut Rig| {
        for (wire, next) in rig.wires.iter_mut().zip(&mut next) {
            while let Some(frame) = wire.take() {
                let mut number = [0; 8];
                number[2..].copy_from_slice(&frame[42..48]);
                let number = u64::from_be_bytes(number);
                assert!(frame == stream.frame(number), "frame {number} was changed");
                assert!(number >= *next, "frame {number} after {next}");
                assert!(!std::mem::replace(&mut came[number as usize], true), "{number} twice");
                *next = number + 1;
            }
        }
        came.iter().filter(|came| **came).count() as u64
    };
    while !sender.is_finished() {
        receive(&mut rig);
        let to = [4, 2][changes % 2];
        says(&rig.live, "mod-flows", &[&format!("udp,in_port=1,tp_src=1001,actions=output:{to}")]);
        changes += 1;
        std::thread::sleep(Duration::from_millis(10));
    }
    sender.join().unwrap();
    let clock = clock();
    while receive(&mut rig) < FRAMES {
        assert!(
            clock() < 5_000_000_000,
            "{} frames are lost\n{}",
            FRAMES - receive(&mut rig),
            rig.links()
        );
    }
    wait_until("the flow's counter", || {
        counted(&rig.live, &stream).is_some_and(|(frames, _)| frames == FRAMES)
    });
    let all = [Stream { sent: FRAMES, ..stream }];
    let seen = rig.stop("changes under traffic", &[], &all);
    flowyard_testkit::note!("{changes} changes");
    assert!(changes > 10 && seen < FRAMES / 2, "{changes} changes, {seen} frames");
}

fn flows_that_are_idle_end() {
    let _alone = alone();
    let mut rig = Rig::new(1);
    let mut streams = [Stream::new(1, 2, proto::UDP, 1001), Stream::new(1, 2, proto::UDP, 1002)];
    streams.iter().for_each(|stream| add(&rig.live, stream, "idle_timeout=2,"));
    rig.exchange(&mut streams, 100);
    // One stream continues for longer than its time-out: only XDP sees its frames.
    let clock = clock();
    let [mut kept, idle] = streams.map(|stream| [stream]);
    let mut last = 0;
    while clock() < 5_000_000_000 {
        last = clock(); // not after its last frame
        rig.exchange(&mut kept, 2);
        std::thread::sleep(Duration::from_millis(100));
    }
    let want = Some((kept[0].sent, kept[0].bytes));
    wait_until("its counters", || counted(&rig.live, &kept[0]) == want);
    assert_eq!(counted(&rig.live, &idle[0]), None, "idle for five seconds");
    // It ends two seconds after its last frame, and then XDP does not answer it any more.
    wait_until("its end", || counted(&rig.live, &kept[0]).is_none());
    let lasted = clock() - last;
    assert!(lasted > 1_500_000_000, "after {lasted} ns");
    let frame = kept[0].frame(kept[0].sent);
    let (sent, _) = rig.wires[0].sender.send([&frame[..]].into_iter());
    assert_eq!(sent, 1);
    let streams = [&kept[..], &idle[..]].concat();
    wait_until("the frame without a flow", || {
        rig.receive(&mut kept);
        passed(&rig.live, 1).0.0 == streams.iter().map(|stream| stream.sent).sum::<u64>() + 1
    });
    assert_eq!(kept[0].received, kept[0].sent);
    let seen = rig.stop("idle flows", &[("no_flow", 1)], &streams);
    // The first 200 frames come at once, and any number of them passes through the yard before XDP has the flows.
    let later = streams.iter().map(|stream| stream.sent).sum::<u64>() - 200;
    assert!(seen < 200 + later / 2, "{seen} frames, {later} of them later");
}

/// A link with a smaller MTU: XDP leaves longer frames to the yard, which counts why they are dropped.
fn frames_that_are_too_long_are_dropped_and_counted() {
    let _alone = alone();
    let mut rig = Rig::new(1);
    let mut streams = [Stream::new(1, 2, proto::UDP, 1001)];
    add(&rig.live, &streams[0], "");
    rig.exchange(&mut streams, 100);
    rig.star.switch.sh("ip link set p2 mtu 1000");
    std::thread::sleep(Duration::from_millis(200)); // ten times as long as the port looks away
    let long = 1514;
    let mut dropped = 0;
    for _ in 0..200 {
        // Numbers decide about lengths; long frames are sent here, and are not expected.
        while LENGTHS[streams[0].sent as usize % LENGTHS.len()] == long {
            let frame = streams[0].frame(streams[0].sent);
            assert_eq!(rig.wires[0].sender.send([&frame[..]].into_iter()).0, 1);
            streams[0].bytes += frame.len() as u64;
            streams[0].sent += 1;
            streams[0].received += 1;
            dropped += 1;
        }
        rig.exchange(&mut streams, 1);
    }
    assert!(dropped >= 40);
    let want = Some((streams[0].sent, streams[0].bytes));
    wait_until("the counters", || counted(&rig.live, &streams[0]) == want);
    rig.stop("a smaller MTU", &[("too_long", dropped)], &streams);
}

/// Frames that the kernel gets by a rule come all the time, in pauses that are shorter than any wait for quiet.
fn frames_for_the_kernel_delay_nothing() {
    let _alone = alone();
    let mut rig = Rig::taking(1, "\"not arp\", \"all\"");
    let mut streams = five(&rig.live);
    let arp = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1], &[8, 6], &[0; 46]].concat();
    for _ in 0..1000 {
        for wire in &mut rig.wires {
            assert_eq!(wire.sender.send([&arp[..]].into_iter()).0, 1);
        }
        rig.exchange(&mut streams, 3);
        std::thread::sleep(Duration::from_millis(1));
    }
    rig.settles(&streams);
    let seen = rig.stop("with frames for the kernel", &[], &streams);
    assert!(seen < 7500, "XDP has answered hardly anything: {seen} of 15,000");
}
