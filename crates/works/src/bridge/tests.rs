use flowyard_frame::{Action, Frame};

use super::*;
use flowyard_pool::Meta;

const SECOND: Nanos = 1_000_000_000;
const AGE: Nanos = 300 * SECOND;

fn mac(n: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, n]
}

/// A frame: source, destination, VLAN, and the port at which it comes in.
type Given = ([u8; 6], [u8; 6], u16, u16);

/// The destinations that `bridge` gives to these frames, as one batch.
fn send(bridge: &mut Bridge, given: &[Given], now: Nanos) -> Vec<Result<To, u16>> {
    let mut pool = Pool::new(64, 128);
    let mut batch = Batch::default();
    for &(eth_src, eth_dst, vlan_tci, in_port) in given {
        let frame = pool.copy(&[0; 60], Meta::default()).unwrap();
        let key = FlowKey { eth_src, eth_dst, vlan_tci, in_port, ..FlowKey::ZERO };
        let lane = batch.push(frame, key).unwrap();
        batch.actions[lane] = Action::queue(0);
    }
    assert_eq!(bridge.work(&mut batch, &pool, now), now);
    let said = |action: Action| match action.to {
        To::Drop(reason) => Err(reason),
        to => Ok(to),
    };
    batch.lanes().map(|lane| said(batch.actions[lane])).collect()
}

fn one(bridge: &mut Bridge, src: u8, dst: u8, port: u16, now: Nanos) -> Result<To, u16> {
    send(bridge, &[(mac(src), mac(dst), 0, port)], now)[0]
}

#[test]
fn the_bridge_learns_floods_filters_and_forgets() {
    let mut bridge = Bridge::new(3, 64, AGE, 1);
    assert_eq!(one(&mut bridge, 1, 2, 0, 0), Ok(To::Ports(0)), "unknown: to all others");
    assert_eq!(one(&mut bridge, 2, 1, 1, 0), Ok(To::Port(0)));
    assert_eq!(one(&mut bridge, 1, 2, 0, 0), Ok(To::Port(1)));
    assert_eq!(one(&mut bridge, 3, 1, 0, 0), Err(DropReason::Filtered.code()), "same port");
    assert_eq!(one(&mut bridge, 2, 3, 2, SECOND), Ok(To::Port(0)));
    assert_eq!(one(&mut bridge, 1, 2, 0, SECOND), Ok(To::Port(2)), "2 moved");
    assert_eq!(one(&mut bridge, 1, 2, 0, AGE + 3 * SECOND), Ok(To::Ports(0)), "2 was silent");
    let [broadcast, multicast] = [[0xff; 6], [1, 0, 0x5e, 0, 0, 1]];
    let (a, b) = (mac(1), mac(2));
    let later = AGE + 3 * SECOND;
    let given = [(a, broadcast, 0, 1), (a, multicast, 0, 1), (a, a, 0, 1), (broadcast, b, 0, 2)];
    let said = send(&mut bridge, &given, later);
    let filtered = Err(DropReason::Filtered.code());
    assert_eq!(said, [Ok(To::Ports(1)), Ok(To::Ports(1)), filtered, Ok(To::Ports(2))]);
    // Each VLAN has stations of its own: one that is known in one VLAN is unknown in another.
    assert_eq!(send(&mut bridge, &[(b, a, 7, 0)], later), [Ok(To::Ports(0))]);
}

#[test]
fn some_frames_are_never_forwarded() {
    let mut bridge = Bridge::new(3, 64, AGE, 1);
    for last in 0..=0x0f {
        let said = send(&mut bridge, &[(mac(1), [1, 0x80, 0xc2, 0, 0, last], 0, 0)], 0);
        assert_eq!(said, [Err(DropReason::Reserved.code())], "{last}");
    }
    let said = send(&mut bridge, &[(mac(1), [1, 0x80, 0xc2, 0, 0, 0x10], 0, 0)], 0);
    assert_eq!(said, [Ok(To::Ports(0))]);
    assert_eq!(one(&mut bridge, 2, 1, 1, 0), Ok(To::Port(0)), "learnt all the same");

    let mut pool = Pool::new(64, 128);
    let mut batch = Batch::default();
    let raw = Meta { link: LinkType::RawIp, ..Meta::default() };
    let frames = [pool.copy(&[0x45; 60], raw), pool.copy(&[2; 13], Meta::default())];
    for frame in frames.into_iter().map(Result::unwrap).chain([Frame::default()]) {
        let lane = batch.push(frame, FlowKey::ZERO).unwrap();
        batch.actions[lane] = Action::queue(0);
    }
    batch.actions[2].to = To::Port(9); // a table's answer
    bridge.work(&mut batch, &pool, 0);
    let said = [batch.actions[0].to, batch.actions[1].to];
    assert_eq!(said, [DropReason::LinkType, DropReason::Malformed].map(|why| To::Drop(why.code())));
    assert_eq!(batch.actions[2].to, To::Port(9));

    let mut single = Bridge::new(1, 64, AGE, 1);
    assert_eq!(one(&mut single, 1, 2, 0, 0), Err(DropReason::Filtered.code()), "no other port");
}

/// Two cores work on the two directions of a conversation: both know the ports, and neither forgets
/// them while the conversation lasts.
#[test]
fn cores_learn_from_each_other() {
    let [mut a, idle, mut b]: [Bridge; 3] =
        Bridge::group(&[true, false, true], 3, 64, AGE, 1).try_into().ok().unwrap();
    assert!(idle.news.is_none(), "a core without frames gets no messages");
    assert_eq!(one(&mut a, 1, 2, 0, 0), Ok(To::Ports(0)));
    assert_eq!(one(&mut b, 2, 1, 1, 10), Ok(To::Port(0)));
    for n in 1..2000 {
        assert_eq!(one(&mut a, 1, 2, 0, n * SECOND), Ok(To::Port(1)), "{n} s");
        assert_eq!(one(&mut b, 2, 1, 1, n * SECOND), Ok(To::Port(0)), "{n} s");
    }
    // A move is announced at once.
    assert_eq!(one(&mut b, 2, 1, 2, 2000 * SECOND), Ok(To::Port(0)));
    assert_eq!(one(&mut a, 1, 2, 0, 2000 * SECOND), Ok(To::Port(2)));
}

/// Two cores that saw a station at two ports at the same time agree again after its next frame.
#[test]
fn cores_agree_after_the_next_frame() {
    let [mut a, mut b]: [Bridge; 2] =
        Bridge::group(&[true, true], 4, 64, AGE, 1).try_into().ok().unwrap();
    let _first = (one(&mut a, 1, 9, 0, SECOND), one(&mut b, 1, 9, 1, SECOND));
    for n in 0..4 {
        let now = 2 * SECOND + n;
        let _told = one(&mut b, 1, 9, 1, now);
        let [x, y] = [one(&mut a, 8, 1, 3, now), one(&mut b, 8, 1, 3, now)];
        if n > 0 {
            assert_eq!([x, y], [Ok(To::Port(1)); 2]);
        }
    }
}

/// A message that a full mailbox dropped is sent again.
#[test]
fn a_lost_message_is_sent_again() {
    let [mut a, mut b]: [Bridge; 2] =
        Bridge::group(&[true, true], 3, 4096, AGE, 1).try_into().ok().unwrap();
    for n in 0..MAILBOX as u32 + 10 {
        let [.., x, y] = n.to_be_bytes();
        let src = [2, 0, 0, 1, x, y];
        send(&mut a, &[(src, mac(1), 0, 0)], SECOND);
    }
    let _last = one(&mut a, 1, 9, 0, SECOND); // no other core is notified
    assert_eq!(one(&mut b, 2, 1, 1, SECOND), Ok(To::Ports(1)));
    let _again = one(&mut a, 1, 9, 0, SECOND + SECOND / 100);
    assert_eq!(one(&mut b, 2, 1, 1, 2 * SECOND), Ok(To::Port(0)));
}

#[test]
fn a_message_changes_the_ageing_time_also_of_known_stations() {
    let mut bridge = Bridge::new(2, 64, AGE, 1);
    assert_eq!(one(&mut bridge, 1, 2, 0, 0), Ok(To::Ports(0)));
    let message: ControlMessage = std::sync::Arc::new(Age(10 * SECOND));
    bridge.control(&message, 0, &mut |_, _| {});
    assert_eq!(one(&mut bridge, 2, 1, 1, 9 * SECOND), Ok(To::Port(0)));
    assert_eq!(one(&mut bridge, 3, 1, 1, 12 * SECOND), Ok(To::Ports(1)), "1 was silent");
}
