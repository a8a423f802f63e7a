use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flowyard_frame::{Action, FlowKey, proto};
use flowyard_testkit::Build;
use flowyard_wire::{LinkType, Verdict, checksum};
use proptest::prelude::*;

use super::*;
use flowyard_pool::Meta;

/// A frame as its fields: what each op does to it is a line, and it is built anew each time.
#[derive(Clone, Debug)]
struct Twin {
    key: FlowKey,
    /// Outermost first.
    tags: Vec<(u16, u16)>,
    payload: Vec<u8>,
    fragment: Option<(u16, bool)>,
    ttl: u8,
    /// Bytes behind the packet.
    trailer: usize,
    /// UDP without a checksum.
    unsummed: bool,
    /// No Ethernet header.
    raw: bool,
}

impl Twin {
    fn bytes(&self) -> Vec<u8> {
        let build = Build::new(&self.key).payload(&self.payload).seq(7).ttl(self.ttl);
        let build = match self.fragment {
            Some((offset, more)) => build.fragment(offset, more),
            None => build,
        };
        let mut bytes = build.bytes();
        if self.unsummed && self.key.proto == proto::UDP && self.has_transport() {
            let l4 = 14 + if self.key.is_ipv4() { 20 } else { 40 + 8 * self.fragment.iter().len() };
            bytes[l4 + 6..l4 + 8].fill(0);
        }
        for (tpid, tci) in self.tags.iter().rev() {
            bytes.splice(12..12, [tpid.to_be_bytes(), tci.to_be_bytes()].concat());
        }
        bytes.resize(bytes.len() + self.trailer, 0);
        if self.raw {
            bytes.drain(..14);
        }
        bytes
    }

    const fn link(&self) -> LinkType {
        if self.raw { LinkType::RawIp } else { LinkType::Ethernet }
    }

    fn has_transport(&self) -> bool {
        self.key.is_ip() && self.fragment.is_none_or(|(offset, _)| offset == 0)
    }

    fn port(&mut self, set: impl Fn(&mut FlowKey)) -> Result<(), DropReason> {
        match self.key.proto {
            proto::SCTP if self.has_transport() && self.fragment.is_some_and(|(_, more)| more) => {
                return Err(DropReason::Incomplete);
            }
            proto::TCP | proto::UDP | proto::SCTP if self.has_transport() => set(&mut self.key),
            _ => {}
        }
        Ok(())
    }

    fn address(&mut self, ip: IpAddr, slot: impl Fn(&mut FlowKey) -> &mut [u8; 16]) {
        match ip {
            IpAddr::V4(ip) if self.key.is_ipv4() => {
                slot(&mut self.key)[..4].copy_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) if self.key.is_ipv6() => *slot(&mut self.key) = ip.octets(),
            _ => {}
        }
    }

    fn run(&mut self, op: Op, mark: &mut u32) -> Result<(), DropReason> {
        match op {
            Op::SetEthSrc(mac) => self.key.eth_src = mac,
            Op::SetEthDst(mac) => self.key.eth_dst = mac,
            Op::PushVlan { tpid, tci } if !self.raw => self.tags.insert(0, (tpid, tci)),
            Op::PopVlan if !self.tags.is_empty() => _ = self.tags.remove(0),
            Op::SetVlan(vid) => {
                self.tags.iter_mut().take(1).for_each(|tag| tag.1 = tag.1 & 0xf000 | vid);
            }
            Op::SetPcp(pcp) => {
                let bits = u16::from(pcp) << 13;
                self.tags.iter_mut().take(1).for_each(|tag| tag.1 = tag.1 & 0x1fff | bits);
            }
            Op::DecTtl if self.key.is_ip() && self.ttl <= 1 => return Err(DropReason::TtlExpired),
            Op::DecTtl if self.key.is_ip() => self.ttl -= 1,
            Op::SetSrc(ip) => self.address(ip, |key| &mut key.src),
            Op::SetDst(ip) => self.address(ip, |key| &mut key.dst),
            Op::SetSport(port) => return self.port(|key| key.sport = port),
            Op::SetDport(port) => return self.port(|key| key.dport = port),
            Op::SetDscp(dscp) => self.key.tos = dscp << 2 | self.key.tos & 3,
            Op::SetMark(value) => *mark = value,
            Op::PushVlan { .. } | Op::PopVlan | Op::DecTtl => {}
        }
        Ok(())
    }
}

/// What a list makes of `bytes` in a buffer of `room`; what lies around them must stay as it was.
fn run(
    bytes: &[u8],
    link: LinkType,
    ops: &[Op],
    room: usize,
    mark: &mut u32,
) -> Result<Vec<u8>, DropReason> {
    let mut pool = Pool::new(3, room);
    let meta = Meta { wire_len: 1000, link, ..Meta::default() };
    let full = vec![0xee; pool.longest()];
    let mut near = [(); 3].map(|()| pool.copy(&full, Meta::default()).unwrap());
    near.sort_by_key(Frame::buf);
    let [before, middle, after] = near;
    pool.put(middle);
    let mut frame = pool.copy(bytes, meta).unwrap();
    assert!(before.buf() < frame.buf() && frame.buf() < after.buf());
    let done = List::new(ops, To::DROP).run(&mut frame, mark, &pool);
    assert_eq!((pool.bytes(&before), pool.bytes(&after)), (&full[..], &full[..]));
    let out = pool.bytes(&frame).to_vec();
    let grown = out.len() as i64 - bytes.len() as i64;
    let now = pool.meta(&frame);
    assert_eq!(now, Meta { wire_len: (1000 + grown) as u32, ..meta });
    [before, frame, after].into_iter().for_each(|frame| pool.put(frame));
    done.map(|()| out)
}

fn mac() -> impl Strategy<Value = [u8; 6]> {
    any::<[u8; 6]>()
}

/// Often one of few, so that sums come by 0 and 0xffff.
fn word() -> impl Strategy<Value = u16> {
    prop_oneof![any::<u16>(), Just(0), Just(0xffff)]
}

fn any_op() -> impl Strategy<Value = Op> {
    let ip = || {
        prop_oneof![
            any::<u32>().prop_map(|bits| IpAddr::V4(bits.into())),
            any::<u128>().prop_map(|bits| IpAddr::V6(bits.into())),
            Just(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            Just(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        ]
    };
    prop_oneof![
        mac().prop_map(Op::SetEthSrc),
        mac().prop_map(Op::SetEthDst),
        (prop_oneof![Just(0x8100), Just(0x88a8)], any::<u16>())
            .prop_map(|(tpid, tci)| Op::PushVlan { tpid, tci }),
        Just(Op::PopVlan),
        (0..4096_u16).prop_map(Op::SetVlan),
        (0..8_u8).prop_map(Op::SetPcp),
        Just(Op::DecTtl),
        ip().prop_map(Op::SetSrc),
        ip().prop_map(Op::SetDst),
        word().prop_map(Op::SetSport),
        word().prop_map(Op::SetDport),
        (0..64_u8).prop_map(Op::SetDscp),
        any::<u32>().prop_map(Op::SetMark),
    ]
}

prop_compose! {
    fn any_key()(
        family in 0..5,
        (src, dst) in any::<([u8; 16], [u8; 16])>(),
        (eth_src, eth_dst) in (mac(), mac()),
        (sport, dport) in (word(), word()),
        tos in any::<u8>(),
        upper in 0..5_usize,
    ) -> FlowKey {
        let (eth_type, icmp) = match family {
            0 | 1 => (0x0800, proto::ICMP),
            2 | 3 => (0x86dd, proto::ICMPV6),
            _ => ([0x0806, 0x88cc][upper % 2], 0),
        };
        let proto = [proto::TCP, proto::UDP, proto::SCTP, icmp, 89][upper];
        let mut key =
            FlowKey { src, dst, eth_src, eth_dst, sport, dport, tos, eth_type, proto, ..FlowKey::ZERO };
        if key.is_ipv4() {
            key.src[4..].fill(0);
            key.dst[4..].fill(0);
        }
        key
    }
}

prop_compose! {
    fn any_frame()(
        key in any_key(),
        tags in prop::collection::vec((prop_oneof![Just(0x8100_u16), Just(0x88a8)], any::<u16>()), 0..3),
        payload in prop::collection::vec(any::<u8>(), 0..40),
        fragment in prop::option::weighted(0.3, (0..3_u16, any::<bool>())),
        ttl in prop_oneof![Just(64), Just(1), Just(0), any::<u8>()],
        trailer in 0..10_usize,
        unsummed in prop::bool::weighted(0.1),
        raw in prop::bool::weighted(0.1),
    ) -> Twin {
        let raw = raw && key.is_ip();
        let tags = if raw { Vec::new() } else { tags };
        Twin { key, tags, payload, fragment, ttl, trailer, unsummed, raw }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// Each op, and any row of them, does what building the frame anew does; and where sums can
    /// be checked they are right.
    #[test]
    fn a_list_is_its_slow_twin(frame in any_frame(), ops in prop::collection::vec(any_op(), 1..5)) {
        let mut twin = frame.clone();
        let (mut mark, mut expected_mark) = (0, 0);
        let got = run(&frame.bytes(), frame.link(), &ops, 256, &mut mark);
        let expected = ops.iter().try_for_each(|&op| twin.run(op, &mut expected_mark));
        let expected = expected.map(|()| twin.bytes());
        prop_assert_eq!(&got, &expected);
        prop_assert_eq!(mark, expected_mark);
        if let Ok(bytes) = got {
            let h = Headers::parse(frame.link(), &bytes);
            prop_assert_ne!(h.ipv4_checksum(&bytes), Verdict::Bad);
            let verdict = h.transport_checksum(&bytes);
            let absent = frame.unsummed && frame.key.proto == proto::UDP;
            prop_assert!(verdict != Verdict::Bad || absent, "{:?}", verdict);
            let summed = frame.fragment.is_none() && frame.key.is_ip() && frame.key.proto != 89;
            prop_assert!(!summed || absent || verdict == Verdict::Good);
        }
    }

    /// Of a frame that is cut, an op does to what is there what it does to the whole, or nothing.
    #[test]
    fn a_cut_frame_is_changed_as_far_as_it_goes(frame in any_frame(), op in any_op(), cut in any::<prop::sample::Index>()) {
        let whole = frame.bytes();
        let cut = cut.index(whole.len());
        let before = &whole[..cut];
        let all = run(&whole, frame.link(), &[op], 256, &mut 0);
        if let Ok(bytes) = run(before, frame.link(), &[op], 256, &mut 0) && bytes != before {
            let all = all.unwrap();
            prop_assert_eq!(all.len() - bytes.len(), whole.len() - cut);
            // The last byte may be the first half of a checksum, which is not half fixed.
            let sure = bytes.len().saturating_sub(1);
            prop_assert_eq!(&bytes[..sure], &all[..sure]);
        }
    }

    /// What was wrong stays wrong: a change fixes no damage.
    #[test]
    fn damage_stays_visible(frame in any_frame(), ops in prop::collection::vec(any_op(), 1..5), flip in 1..=255_u8) {
        let frame = Twin { fragment: None, unsummed: false, payload: vec![1; 8], ..frame };
        let mut bytes = frame.bytes();
        let h = Headers::parse(frame.link(), &bytes);
        bytes[h.end as usize - 1] ^= flip;
        let verdict = Headers::parse(frame.link(), &bytes).transport_checksum(&bytes);
        if verdict != Verdict::Bad {
            return Ok(()); // nothing here is summed
        }
        if let Ok(after) = run(&bytes, frame.link(), &ops, 256, &mut 0) {
            let h = Headers::parse(frame.link(), &after);
            prop_assert_eq!(h.transport_checksum(&after), Verdict::Bad);
        }
    }

    /// Any bytes on any link: no panic, nothing outside.
    #[test]
    fn any_bytes_do(
        bytes in prop::collection::vec(any::<u8>(), 1..64),
        link in prop_oneof![Just(LinkType::Ethernet), Just(LinkType::RawIp), Just(LinkType::LinuxSll)],
        ops in prop::collection::vec(any_op(), 1..6),
    ) {
        let _ = run(&bytes, link, &ops, 64, &mut 0);
    }
}

fn v6(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last)
}

/// An IPv6 packet with one extension header and a UDP datagram summed from `src` to `dst`.
fn extended(next: u8, extension: &[u8], src: Ipv6Addr, dst: Ipv6Addr) -> Vec<u8> {
    let mut udp = vec![0, 1, 0, 2, 0, 11, 0, 0, 7, 8, 9];
    let sum = checksum::transport_checksum(src.into(), dst.into(), proto::UDP, &udp);
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
    let len = (extension.len() + udp.len()) as u8;
    let fixed = [0x60, 0, 0, 0, 0, len, next, 64];
    [&fixed[..], &v6(1).octets(), &v6(2).octets(), extension, &udp].concat()
}

#[test]
fn the_pseudo_header_has_the_ends_of_the_route() {
    let hop = |kind, left| [&[17, 2, kind, left, 0, 0, 0, 0][..], &v6(9).octets()].concat();
    let home = [&[17, 2, 1, 2, 0, 0, 0xc9, 16][..], &v6(9).octets()].concat();
    for (bytes, covers) in [
        (extended(43, &hop(0, 1), v6(1), v6(9)), (true, false)),
        (extended(43, &hop(0, 0), v6(1), v6(2)), (true, true)),
        (extended(60, &home, v6(9), v6(2)), (false, true)),
    ] {
        let sum_at = bytes.len() - 5;
        for (op, covered) in
            [(Op::SetSrc(v6(7).into()), covers.0), (Op::SetDst(v6(8).into()), covers.1)]
        {
            let out = run(&bytes, LinkType::RawIp, &[op], 128, &mut 0).unwrap();
            let h = Headers::parse(LinkType::RawIp, &out);
            assert_eq!(h.transport_checksum(&out), Verdict::Good, "{op:?}");
            assert_eq!(out[sum_at..sum_at + 2] != bytes[sum_at..sum_at + 2], covered, "{op:?}");
        }
    }
    // A route that nobody here can read (type 3, RPL): its end is not in the header's field.
    let rpl = extended(43, &hop(3, 1), v6(1), v6(9));
    let out = run(&rpl, LinkType::RawIp, &[Op::SetDst(v6(8).into())], 128, &mut 0).unwrap();
    assert_eq!((&out[..24], &out[40..]), (&rpl[..24], &rpl[40..]));
}

/// `wire` does not verify these, so the sum is made here.
#[test]
fn the_relatives_of_udp_keep_their_sums() {
    for proto in [33, 136] {
        let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let mut body = vec![0, 1, 0, 2, 4, 0, 0, 0, 1, 2, 3, 4];
        let sum = checksum::transport_checksum(src.into(), dst.into(), proto, &body);
        body[6..8].copy_from_slice(&sum.to_be_bytes());
        let key = FlowKey::five_tuple(proto, src.into(), 0, dst.into(), 0);
        let bytes = Build::new(&key).payload(&body).bytes();
        let new = Ipv4Addr::new(192, 0, 2, 200);
        let out = run(&bytes, LinkType::Ethernet, &[Op::SetSrc(new.into())], 128, &mut 0).unwrap();
        assert_ne!(out[40..42], bytes[40..42]);
        assert_eq!(checksum::transport_checksum(new.into(), dst.into(), proto, &out[34..]), 0);
    }
}

#[test]
fn a_tag_that_does_not_fit_drops_its_frame() {
    let ops = [Op::PushVlan { tpid: 0x8100, tci: 7 }];
    let bytes = |len| vec![1; len];
    assert_eq!(run(&bytes(60), LinkType::Ethernet, &ops, 64, &mut 0).unwrap().len(), 64);
    assert_eq!(run(&bytes(61), LinkType::Ethernet, &ops, 64, &mut 0), Err(DropReason::TooLong));
    // Room that a tag left can be taken again.
    let again = [Op::PopVlan, ops[0], Op::PopVlan, ops[0]];
    let tagged = [&[1; 12][..], &[0x81, 0, 0, 9], &[2; 48]].concat();
    let out = run(&tagged, LinkType::Ethernet, &again, 64, &mut 0).unwrap();
    assert_eq!((out.len(), &out[12..16]), (64, &[0x81, 0, 0, 7][..]));
}

#[test]
fn a_batch_goes_through_the_lists_its_actions_name() {
    let mut pool = Pool::new(8, 64);
    let mut batch = Batch::default();
    let key = FlowKey::five_tuple(proto::UDP, [10, 0, 0, 1].into(), 1, [10, 0, 0, 2].into(), 2);
    let bytes = Build::new(&key).ttl(1).bytes();
    let to = [To::List(0), To::List(1), To::List(2), To::List(9), To::Queue(4), To::DROP];
    for to in to {
        let frame = pool.copy(&bytes, Meta::default()).unwrap();
        let lane = batch.push(frame, key).unwrap();
        batch.actions[lane] = Action { to, counter: 3, mark: 1 };
    }
    let set = [Op::SetEthSrc([2; 6]), Op::SetMark(7)];
    let lists = Lists::new([
        List::new(set, To::Queue(5)),
        List::new([Op::DecTtl], To::Port(1)),
        List::new([], To::List(0)),
    ]);
    assert_eq!(lists.apply(&mut batch, &pool), Lanes(0b10));
    let actions = &batch.actions[..6];
    let now: Vec<_> = actions.iter().map(|action| (action.to, action.counter)).collect();
    let expired = DropReason::TtlExpired.code();
    let expected = [
        (To::Queue(5), 3),
        (To::Drop(expired), 3),
        (To::List(0), 3),
        (To::List(9), 3),
        (To::Queue(4), 3),
        (To::DROP, 3),
    ];
    assert_eq!(now, expected);
    assert_eq!(actions.iter().map(|action| action.mark).collect::<Vec<_>>(), [7, 1, 1, 1, 1, 1]);
    assert_eq!(batch.keys[0], key, "a flow is who it was");
    assert_eq!(pool.bytes(&batch.frames[0])[6..12], [2; 6]);
    batch.drain().for_each(|frame| pool.put(frame));
}

/// A checksum that is completed after a list ran is the one that a list makes of a frame with a complete one: it follows
/// addresses, and nothing that is summed up later.
#[test]
fn a_partial_checksum_follows_the_pseudo_header_only() {
    let v6 = |n: u16| IpAddr::from(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n));
    let v4 = |n: u8| IpAddr::from([10, 0, n, 1]);
    for (proto, at) in [(proto::TCP, 16), (proto::UDP, 6)] {
        for (from, to, other) in [(v4(1), v4(2), v4(200)), (v6(1), v6(2), v6(0xabcd))] {
            let key = FlowKey::five_tuple(proto, from, 40_000, to, 80);
            let whole = Build::new(&key).payload(&[0x5a; 99]).bytes();
            let l4 = Headers::parse(LinkType::Ethernet, &whole).l4 as usize;
            let field = l4 + at..l4 + at + 2;
            // All words but the pseudo header are summed up later: their sum is taken out of the checksum.
            let complete = |bytes: &mut [u8]| {
                let sum = checksum::Sum::ZERO.bytes(&bytes[l4..]).finish();
                bytes[field.clone()].copy_from_slice(&sum.to_be_bytes());
            };
            let mut partial = whole.clone();
            partial[field.clone()].fill(0);
            let rest = checksum::Sum::ZERO.bytes(&partial[l4..]).finish();
            let full = u16::from_be_bytes([whole[field.start], whole[field.start + 1]]);
            let pseudo = checksum::Sum::ZERO.word(u64::from(!full)).word(u64::from(rest)).finish();
            partial[field.clone()].copy_from_slice(&(!pseudo).to_be_bytes());
            let ops = [
                Op::SetDst(other),
                Op::PushVlan { tpid: 0x8100, tci: 5 },
                Op::SetSrc(other),
                Op::SetSport(7),
                Op::DecTtl,
                Op::PopVlan,
                Op::SetDport(65_000),
            ];
            let offload = flowyard_wire::Offload {
                flags: flowyard_wire::Offload::PARTIAL,
                checksum_start: l4 as u16,
                checksum_offset: at as u8,
                ..flowyard_wire::Offload::NONE
            };
            let mut pool = Pool::new(2, 256);
            let mut frame = pool.copy(&partial, Meta { offload, ..Meta::default() }).unwrap();
            List::new(ops, To::DROP).run(&mut frame, &mut 0, &pool).unwrap();
            assert_eq!(pool.meta(&frame).offload, offload);
            let mut got = pool.bytes(&frame).to_vec();
            complete(&mut got);
            let wanted = run(&whole, LinkType::Ethernet, &ops, 256, &mut 0).unwrap();
            assert_eq!(got, wanted, "{proto} {from}");
            pool.put(frame);
        }
    }
}
