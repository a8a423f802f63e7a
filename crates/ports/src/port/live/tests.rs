//! Single ports on simulated interfaces: how unfinished frames are received, and what is reported.

use std::net::IpAddr;

use flowyard_frame::{FlowKey, proto};
use flowyard_testkit::Build;
use flowyard_wire::{Offload, Segment};

use super::sim::{Offered, Offloads, World};
use super::*;

/// A port on `interface`, with all offloads, and a log that says nothing.
fn open(world: &World, interface: &str, kind: LiveKind, pool: &Pool) -> Halves {
    let port = LivePort {
        number: 3,
        name: "west".into(),
        interface: interface.into(),
        cores: 1,
        kind,
        carries: Carries::ALL,
        delivered: Carries::ALL,
        coalesces: false,
    };
    let log: Log = Arc::new(|_, _| {});
    world.open(&port, pool, &log).unwrap().remove(0)
}

fn af_packet() -> LiveKind {
    let settings = af_packet::Settings { fanout: af_packet::Fanout::Hash, frames: 64 };
    LiveKind::AfPacket { settings, bypass: false }
}

fn tap() -> LiveKind {
    let settings = tap::Settings { mtu: None, mac: None };
    LiveKind::Tap { settings, host_queue: tap::HostQueue::Flow }
}

fn world(interface: &str, is_tap: bool, coalesces: bool) -> World {
    let world = World::new(1);
    world.create(interface, is_tap, 1, None);
    world.set_up(interface, true);
    let offloads = Offloads { strips_tags: true, leaves_checksums: true, coalesces };
    world.set_offloads(interface, offloads);
    world
}

fn frame(proto: u8, payload: &[u8]) -> Vec<u8> {
    let [from, to] = [1, 2].map(|n| IpAddr::from([10, 0, 0, n]));
    Build::new(&FlowKey::five_tuple(proto, from, 7, to, 80)).payload(payload).bytes()
}

/// The kernel that gets a frame with a partial checksum of SCTP would complete the wrong kind of checksum.
#[test]
fn the_crc_of_sctp_is_completed_at_the_port_of_receipt() {
    for (kind, is_tap) in [(af_packet(), false), (tap(), true)] {
        // Both in a slot, and longer than one.
        for len in [90, 700] {
            let world = world("w0", is_tap, false);
            let (mut pool, mut batch) = (Pool::new(300, 2000), Batch::default());
            let (mut rx, _tx) = open(&world, "w0", kind.clone(), &pool);
            let [sctp, udp] = [proto::SCTP, proto::UDP].map(|proto| frame(proto, &vec![5; len]));
            assert_eq!([&sctp, &udp].map(|one| world.offer("w0", one)), [Offered::Waits; 2]);
            assert!(rx.rx(&mut batch, &mut pool, 0).too_long == 0 && batch.len() == 2);
            let of = |at: usize| pool.meta(&batch.frames[at]).offload;
            assert_eq!((of(0), pool.bytes(&batch.frames[0])), (Offload::NONE, &sctp[..]));
            assert!(of(1).has(Offload::PARTIAL), "that of UDP is left");
            pool.put_batch(&mut batch);
        }
    }
}

/// The start of a long frame may be shorter than one of its segments.
#[test]
fn a_frame_longer_than_its_slot_has_the_offload_of_all_its_bytes() {
    for large in [4, 0] {
        let world = world("w0", false, true);
        let mut pool = Pool::new(300, 2000);
        if large > 0 {
            pool = pool.with_large(large).unwrap();
        }
        let mut batch = Batch::default();
        let (mut rx, _tx) = open(&world, "w0", af_packet(), &pool);
        for n in 0..5 {
            assert_eq!(world.offer("w0", &frame(proto::UDP, &[n; 700])), Offered::Waits);
        }
        let got = rx.rx(&mut batch, &mut pool, 0);
        assert_eq!(got.too_long, 0);
        let frames = &batch.frames[..batch.len()];
        if large > 0 {
            let offload = pool.meta(&frames[0]).offload;
            assert_eq!((frames.len(), frames[0].len()), (1, 42 + 3500));
            assert_eq!((offload.segment, offload.segment_bytes), (Segment::Udp, 700));
        } else {
            let lens: Vec<usize> = frames.iter().map(flowyard_frame::Frame::len).collect();
            assert_eq!(lens, [742; 5], "there is no buffer for all of it");
        }
        pool.put_batch(&mut batch);
    }
}

#[test]
fn an_mtu_that_grows_is_reported_once() {
    let world = world("w0", false, false);
    let (mut pool, mut batch) = (Pool::new(300, 2000), Batch::default());
    let (mut rx, _tx) = open(&world, "w0", af_packet(), &pool);
    let mut remarks = |mtu: u32, now| {
        world.set_mtu("w0", mtu);
        rx.rx(&mut batch, &mut pool, now);
        rx.remarks()
    };
    assert_eq!((remarks(1500, 0).len(), remarks(1400, 1 << 30).len()), (0, 0));
    for now in [2, 3, 4] {
        let said = remarks(9000, now << 30);
        assert!(said.len() == 1 && said[0].contains("'w0' grew from 1500 to 9000: restart"));
    }
}
