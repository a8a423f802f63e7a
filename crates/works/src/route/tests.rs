use std::str::FromStr;

use flowyard_flow::parse;
use flowyard_frame::proto;
use flowyard_testkit::Build;
use flowyard_wire::Headers;
use proptest::prelude::*;

use super::*;
use flowyard_pool::Meta;

const NEXT: [u8; 6] = [2, 0, 0, 0, 1, 1];
const OURS: [u8; 6] = [2, 0, 0, 0, 0, 7];

fn router(prefixes: &[(&str, u16)]) -> Router {
    Router::new(routes(prefixes))
}

fn routes(prefixes: &[(&str, u16)]) -> Routes {
    let mut router = Routes::new(prefixes.len());
    for &(prefix, port) in prefixes {
        let [a, b, c, d, e, _] = NEXT;
        let hop = Hop { port, src: OURS, dst: [a, b, c, d, e, port as u8] };
        router.put(&IpNet::from_str(prefix).unwrap(), hop).unwrap();
    }
    router
}

/// Routes these frames, and returns the bytes and the result of each.
fn route(router: &mut Router, frames: &[Vec<u8>], link: LinkType) -> Vec<(Action, Vec<u8>)> {
    let mut pool = Pool::new(64, 2048);
    let mut batch = Batch::default();
    for data in frames {
        let meta = Meta { link, wire_len: data.len() as u32, ..Meta::default() };
        let frame = pool.copy(data, meta).unwrap();
        let key = parse::key(&Headers::parse(link, data), data, 0);
        let lane = batch.push(frame, key).unwrap();
        batch.actions[lane] = Action { mark: 9, ..Action::queue(0) };
    }
    assert_eq!(router.work(&mut batch, &pool, 5), 5);
    let each = |lane: usize| (batch.actions[lane], pool.bytes(&batch.frames[lane]).to_vec());
    batch.lanes().map(each).collect()
}

fn one(router: &mut Router, frame: &[u8]) -> (Action, Vec<u8>) {
    route(router, &[frame.to_vec()], LinkType::Ethernet).remove(0)
}

fn dropped(frame: &[u8]) -> u16 {
    let all = [("0.0.0.0/0", 1), ("::/0", 1)];
    let (action, data) = one(&mut router(&all), frame);
    assert_eq!(data, frame, "a dropped frame is unchanged");
    let To::Drop(reason) = action.to else { panic!("not dropped: {action:?}") };
    reason
}

fn build(src: &str, dst: &str) -> Vec<u8> {
    let key = FlowKey::five_tuple(proto::UDP, src.parse().unwrap(), 1, dst.parse().unwrap(), 2);
    Build::new(&FlowKey { eth_dst: OURS, eth_src: [2; 6], ..key }).payload(&[7; 20]).bytes()
}

#[test]
fn the_longest_prefix_determines_port_and_next_hop() {
    let table = [("0.0.0.0/0", 0), ("10.0.0.0/8", 1), ("10.1.0.0/16", 2), ("2001:db8::/32", 3)];
    let mut router = router(&table);
    for (src, dst, port) in [
        ("9.0.0.1", "8.8.8.8", 0),
        ("9.0.0.1", "10.9.0.1", 1),
        ("9.0.0.1", "10.1.0.1", 2),
        ("2001:db8::1", "2001:db8::2", 3),
    ] {
        let frame = build(src, dst);
        let (action, data) = one(&mut router, &frame);
        assert_eq!(action, Action { to: To::Port(port), counter: 0, mark: 9 }, "{dst}");
        assert_eq!(data[..12], [2, 0, 0, 0, 1, port as u8, 2, 0, 0, 0, 0, 7], "{dst}");
        let ttl = if port == 3 { 14 + 7 } else { 14 + 8 };
        assert_eq!((frame[ttl], data[ttl]), (64, 63), "{dst}");
        let headers = Headers::parse(LinkType::Ethernet, &data);
        assert_eq!(headers.fault, None);
    }
    let (action, _) = one(&mut router, &build("2001:db8::1", "2002::1"));
    assert_eq!(action.to, To::Drop(DropReason::NoRoute.code()));
}

#[test]
fn equal_hops_share_an_entry_and_equal_prefixes_replace_each_other() {
    let mut routes = routes(&[("10.0.0.0/8", 1), ("11.0.0.0/8", 1)]);
    assert_eq!(routes.hops.len(), 1);
    let hop = Hop { port: 4, src: OURS, dst: NEXT };
    routes.put(&IpNet::from_str("10.0.0.0/8").unwrap(), hop).unwrap();
    let none = routes.put(&IpNet::from_str("12.0.0.0/8").unwrap(), hop);
    assert!(none.is_err(), "the table has space for two");
    let mut router = Router::new(routes);
    assert_eq!(one(&mut router, &build("1.0.0.1", "10.0.0.1")).0.to, To::Port(4));
    assert_eq!(one(&mut router, &build("1.0.0.1", "11.0.0.1")).0.to, To::Port(1));
}

#[test]
fn a_packet_that_cannot_be_forwarded_is_dropped_with_its_reason() {
    let (v4, v6) = (build("10.0.0.1", "10.0.0.2"), build("2001:db8::1", "2001:db8::2"));
    let with = |frame: &[u8], at: usize, byte: u8| {
        let mut frame = frame.to_vec();
        frame[at] = byte;
        frame
    };
    let sums = |mut frame: Vec<u8>| {
        let header = usize::from(frame[14] & 0xf) * 4;
        frame[24..26].fill(0);
        let sum = checksum::checksum(&frame[14..14 + header]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    let key = FlowKey { eth_dst: OURS, ..FlowKey::ZERO };
    let arp = Build::new(&FlowKey { eth_type: 0x0806, ..key }).payload(&[0; 28]).bytes();
    for (reason, frame) in [
        (DropReason::NotIp, arp),
        (DropReason::TtlExpired, sums(with(&v4, 22, 1))),
        (DropReason::TtlExpired, sums(with(&v4, 22, 0))),
        (DropReason::TtlExpired, with(&v6, 21, 1)),
        (DropReason::Malformed, with(&v4, 22, 9)), // the checksum does not match, either
        (DropReason::Malformed, sums(with(&v4, 14, 0x55))),
        (DropReason::Malformed, with(&v4, 14, 0x44)),
        (DropReason::Malformed, sums(with(&v4, 16, 1))), // longer than the frame
        (DropReason::Malformed, sums(with(&v4, 17, 19))), // shorter than its header
        (DropReason::Malformed, with(&v6, 14, 0x40)),
        (DropReason::Malformed, with(&v6, 18, 1)),
        (DropReason::Malformed, v4[..33].to_vec()),
        (DropReason::Malformed, v6[..53].to_vec()),
        (DropReason::Malformed, v4[..13].to_vec()),
        (DropReason::Filtered, with(&v4, 0, 0xff)),
    ] {
        assert_eq!(dropped(&frame), reason.code(), "{reason:?}: {frame:02x?}");
    }
    let mut router = router(&[("0.0.0.0/0", 1)]);
    let raw = route(&mut router, &[v4[14..].to_vec()], LinkType::RawIp).remove(0).0;
    assert_eq!(raw.to, To::Drop(DropReason::LinkType.code()));
}

#[test]
fn a_frame_captured_only_up_to_its_header_is_routed() {
    let frame = build("10.0.0.1", "10.0.0.2");
    let mut pool = Pool::new(4, 2048);
    let meta = Meta { wire_len: frame.len() as u32, ..Meta::default() };
    let mut batch = Batch::default();
    let key = parse::key(&Headers::parse(LinkType::Ethernet, &frame), &frame, 0);
    batch.push(pool.copy(&frame[..40], meta).unwrap(), key).unwrap();
    batch.actions[0] = Action::queue(0);
    router(&[("10.0.0.0/8", 1)]).work(&mut batch, &pool, 0);
    assert_eq!(batch.actions[0].to, To::Port(1));
}

#[test]
fn tags_options_and_extension_headers_are_skipped_and_kept() {
    let key = |src: &str, dst: &str| FlowKey {
        eth_dst: OURS,
        ..FlowKey::five_tuple(proto::UDP, src.parse().unwrap(), 1, dst.parse().unwrap(), 2)
    };
    let tagged = Build::new(&key("10.0.0.1", "10.0.0.2")).tag(0x88a8, 5).vlan(7).bytes();
    let deep = (0..20).fold(build("10.0.0.1", "10.0.0.2"), |mut frame, _| {
        frame.splice(12..12, [0x81, 0, 0, 1]); // more tags than a key is made through
        frame
    });
    let extended = Build::new(&key("2001:db8::1", "2001:db8::2")).fragment(4, true).bytes();
    let mut options = build("10.0.0.1", "10.0.0.2");
    options.splice(34..34, [0x94, 4, 0, 0]); // router alert (RFC 2113)
    options[14] = 0x46;
    let total = (options.len() - 14) as u16;
    options[16..18].copy_from_slice(&total.to_be_bytes());
    options[24..26].fill(0);
    let sum = checksum::checksum(&options[14..38]);
    options[24..26].copy_from_slice(&sum.to_be_bytes());
    for frame in [tagged, deep, extended, options] {
        let mut router = router(&[("10.0.0.0/8", 1), ("2001:db8::/32", 1)]);
        let (action, data) = one(&mut router, &frame);
        assert_eq!(action.to, To::Port(1), "{frame:02x?}");
        let differ = (12..frame.len()).filter(|&at| frame[at] != data[at]).count();
        assert!((1..=3).contains(&differ), "TTL and checksum, and nothing else: {data:02x?}");
    }
}

proptest! {
    /// The checksum updated as in RFC 1624 equals a full computation.
    #[test]
    fn the_checksum_is_that_of_a_new_sum(
        src in any::<[u8; 4]>(),
        dst in any::<[u8; 4]>(),
        ttl in 2_u8..,
        seq in any::<u32>(),
        tos in any::<u8>(),
    ) {
        let key = FlowKey::five_tuple(proto::UDP, src.into(), 1, dst.into(), 2);
        let key = FlowKey { eth_dst: OURS, tos, ..key };
        let frame = Build::new(&key).ttl(ttl).seq(seq).bytes();
        let (action, data) = one(&mut router(&[("0.0.0.0/0", 1)]), &frame);
        prop_assert_eq!(action.to, To::Port(1));
        prop_assert_eq!(data[22], ttl - 1);
        let mut header = data[14..34].to_vec();
        header[10..12].fill(0);
        prop_assert_eq!(&data[24..26], &checksum::checksum(&header).to_be_bytes()[..]);
    }

    /// Any bytes of any link type: no panic, and every forwarded packet has a correct header.
    #[test]
    fn any_bytes_have_an_answer(
        mut frame in prop::collection::vec(any::<u8>(), 0..120),
        eth_type in prop_oneof![Just([8, 0]), Just([0x86, 0xdd]), Just([0x81, 0]), any::<[u8; 2]>()],
        first in any::<u8>(),
        link in prop_oneof![4 => Just(LinkType::Ethernet), 1 => Just(LinkType::RawIp)],
    ) {
        if frame.len() > 14 {
            frame[12..14].copy_from_slice(&eth_type);
            frame[14] = first;
        }
        let mut router = router(&[("0.0.0.0/0", 1), ("::/0", 1)]);
        let (action, data) = route(&mut router, &[frame.clone()], link).remove(0);
        prop_assert_eq!(data.len(), frame.len());
        match action.to {
            To::Port(1) => prop_assert!(check(&frame, frame.len()).is_ok()),
            To::Drop(reason) => prop_assert!(reason != 0 && data == frame),
            other => prop_assert!(false, "{:?}", other),
        }
    }
}

/// A message replaces all routes at once, on every core, and keeps the ones before until it is dropped.
#[test]
fn new_routes_replace_all_between_two_batches() {
    let mut cores = [router(&[("10.0.0.0/8", 1), ("10.1.0.0/16", 2)]), router(&[])];
    cores[1] = cores[0].clone();
    let port = |router: &mut Router, dst: &str| one(router, &build("10.9.0.1", dst)).0.to;
    assert_eq!(port(&mut cores[0], "10.1.0.1"), To::Port(2));
    let message = Arc::new(NewRoutes::new(routes(&[("10.0.0.0/8", 3), ("192.0.2.0/24", 4)])));
    let sent: ControlMessage = Arc::<NewRoutes>::clone(&message);
    for core in &mut cores {
        core.control(&sent, 0, &mut |_, _| {});
        assert_eq!(port(core, "10.1.0.1"), To::Port(3));
        assert_eq!(port(core, "192.0.2.9"), To::Port(4));
        assert_eq!(port(core, "198.51.100.1"), To::Drop(DropReason::NoRoute.code()));
    }
    assert_eq!(message.old.get().map(Arc::strong_count), Some(1), "freed with the message");
    let foreign: ControlMessage = Arc::new(1_u8);
    cores[0].control(&foreign, 0, &mut |_, _| {});
    assert_eq!(port(&mut cores[0], "10.1.0.1"), To::Port(3));
}
