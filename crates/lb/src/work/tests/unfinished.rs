//! Frames that are not finished: balancing one and then finishing it gives the frames that come of finishing it first.
//!
//! ```text
//!  long frame ──> balancer ──> cut into segments      the same bytes, in the same order, by the same port
//!  long frame ──> cut into segments ──> balancer
//! ```

use flowyard_testkit::Rng;
use flowyard_testkit::stacks::Stack;
use flowyard_wire::segment::Cut;
use flowyard_wire::{Offload, Segment, offload};

use super::*;

/// What a port says of the frame of `stack`: it is to be cut into segments of `size` bytes of payload, unless that is 0.
fn left(stack: &Stack, size: u16, is_partial: bool, fixed: u8) -> Offload {
    let partial = if is_partial { Offload::PARTIAL } else { 0 };
    let (kind, checksum_offset, transport_len) = match (stack.tcp, stack.v6) {
        (true, false) => (Segment::Tcp4, 16, 20 + stack.tcp_options.len() as u8),
        (true, true) => (Segment::Tcp6, 16, 20 + stack.tcp_options.len() as u8),
        (false, _) => (Segment::Udp, 6, 8),
    };
    let checksum_start = stack.l4() as u16;
    let alone = Offload { flags: partial, checksum_start, checksum_offset, ..Offload::NONE };
    match (size, is_partial) {
        (0, false) => Offload::NONE,
        (0, true) => alone,
        _ => {
            let flags = partial | fixed;
            Offload { segment: kind, flags, segment_bytes: size, transport_len, ..alone }
        }
    }
}

/// The frames that a port puts on a wire.
fn finished(bytes: &[u8], left: Offload) -> Vec<Vec<u8>> {
    if left.segment == Segment::None {
        let mut bytes = bytes.to_vec();
        assert!(offload::complete(&mut bytes, left));
        return vec![bytes];
    }
    let cut = Cut::new(bytes, left).unwrap();
    let one = |n: usize| {
        let mut out = vec![0; cut.len(n)];
        assert_eq!(cut.write(bytes, n, &mut out), out.len());
        out
    };
    (0..cut.count()).map(one).collect()
}

/// Balances one frame of which `left` is left to do, and returns its action, its bytes, and what is left then.
fn with(work: &mut Balance, data: &[u8], left: Offload) -> (Action, Vec<u8>, Offload) {
    let mut pool = Pool::new(2, 65_535);
    let meta = Meta { wire_len: data.len() as u32, offload: left, ..Meta::default() };
    let frame = pool.copy(data, meta).unwrap();
    let key = parse::key(&Headers::parse(LinkType::Ethernet, data), data, 0);
    let mut batch = Batch::default();
    let lane = batch.push(frame, key).unwrap();
    batch.actions[lane] = Action::queue(0);
    work.work(&mut batch, &pool, 5);
    let frame = &batch.frames[lane];
    let meta = pool.meta(frame);
    assert_eq!(meta.wire_len as usize, frame.len());
    (batch.actions[lane], pool.bytes(frame).to_vec(), meta.offload)
}

/// A sum of zero has two forms; finishing a frame writes one, and an update by the change keeps the other.
fn one_zero(mut frame: Vec<u8>) -> Vec<u8> {
    let headers = Headers::parse(LinkType::Ethernet, &frame);
    let at = headers.l4 as usize + if headers.proto == proto::TCP { 16 } else { 6 };
    if let Some(field @ [0, 0]) = frame.get_mut(at..at + 2) {
        field.fill(0xff);
    }
    frame
}

/// Balances the frame of `stack` by one of two equal balancers, and what comes of finishing it by the other, and compares.
/// Returns where the frame went.
fn compare(twins: &mut [Balance; 2], stack: &Stack, left: Offload) -> To {
    let frame = if left.has(Offload::PARTIAL) { stack.partial() } else { stack.frame() };
    let (action, got, rest) = with(&mut twins[0], &frame, left);
    let before = finished(&frame, left);
    let after: Vec<_> = before.iter().map(|one| with(&mut twins[1], one, Offload::NONE)).collect();
    assert_eq!(action.to, after[0].0.to);
    if action.to.is_drop() {
        return action.to;
    }
    let got = finished(&got, rest).into_iter().map(one_zero);
    let want = after.into_iter().map(|(to, bytes, _)| (to.to, one_zero(bytes)));
    if action.to == To::Port(0) {
        // An ICMP error back to the sender: there is one about the long frame, and it quotes the first segment.
        assert_eq!(rest, Offload::NONE);
        let (got, want) = (got.collect::<Vec<_>>(), want.take(1).collect::<Vec<_>>());
        assert_eq!((got.len(), &got[0]), (1, &want[0].1));
        return action.to;
    }
    assert_eq!(
        (rest.segment, rest.segment_bytes, rest.flags),
        (left.segment, left.segment_bytes, left.flags),
        "nothing was finished early"
    );
    let got: Vec<_> = got.map(|bytes| (action.to, bytes)).collect();
    assert_eq!(got, want.collect::<Vec<_>>());
    action.to
}

/// The addresses of [`Stack`]: any host, and the one that all send to.
fn host(v6: bool, last: u8) -> IpAddr {
    match v6 {
        true => ip(&format!("fd00::{last:x}")),
        false => IpAddr::from([10, 0, 0, last]),
    }
}

const MODES: [Mode; 3] = [Mode::Dsr, Mode::Dnat, Mode::FullNat];

/// Two balancers of a service of `stack`, at the address to which it goes.
fn twins(stack: &Stack, mode: Mode, change: impl Fn(&mut Service)) -> [Balance; 2] {
    let upper = if stack.tcp { proto::TCP } else { proto::UDP };
    let mut service = service("s", host(stack.v6, 200), upper, 80..=80, mode);
    let port = mode.translates().then_some(8080);
    service.backends = vec![backend(1, addrs(stack.v6)[1], port)];
    change(&mut service);
    [(); 2].map(|()| one(service.clone()))
}

/// A random frame to a service, without tunnels.
fn random(seed: u64, payload: usize) -> Stack {
    let stack = Stack::random(&mut Rng::new(seed), payload);
    Stack { tunnels: Vec::new(), ttl: stack.ttl.max(2), ..stack }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a_frame_to_a_backend_may_be_finished_before_or_after(
        seed: u64, long: bool, size in 0u16..3000, mode in 0usize..3, partial: bool, fixed in 0u8..4, ttl: bool,
        mtu in prop::option::of(100u16..3000),
    ) {
        let mut stack = random(seed, if long { 50_000 } else { 4000 });
        stack.ttl = if ttl { stack.ttl } else { 1 };
        let size = if stack.payload.len() <= size.into() { 0 } else { size };
        let left = left(&stack, size, partial || !stack.tcp, fixed << 3);
        let mut twins = twins(&stack, MODES[mode], |service| service.mtu = mtu);
        let to = compare(&mut twins, &stack, left);
        // Packets with options that may change what the checksum covers are not translated.
        let is_plain = !(stack.ip_options && stack.v6) || mode == 0;
        if is_plain && ttl {
            let headers = stack.frame().len() - stack.payload.len() - if stack.vlan.is_some() { 18 } else { 14 };
            let longest = headers + if size == 0 { stack.payload.len() } else { size.into() };
            let fits = mtu.is_none_or(|mtu| longest <= mtu.into());
            prop_assert_eq!(to == To::Port(1), fits, "{} bytes, {:?}", longest, mtu);
        } else {
            prop_assert!(to != To::Port(1));
        }
    }

    #[test]
    fn a_reply_may_be_finished_before_or_after(
        seed: u64, size in 0u16..3000, full: bool, partial: bool, fixed in 0u8..4,
    ) {
        let mut stack = random(seed, 20_000);
        stack.ip_options = false;
        // From the backend to the client, or to the local address of FullNAT.
        let client = if full { host(stack.v6, 9) } else { host(stack.v6, 200) };
        stack.ports = (8080, if full { 1024 } else { 999 });
        let size = if stack.payload.len() <= size.into() { 0 } else { size };
        let left = left(&stack, size, partial || !stack.tcp, fixed << 3);
        let upper = if stack.tcp { proto::TCP } else { proto::UDP };
        let vip = if stack.v6 { ip("2001:db8::80") } else { ip("192.0.2.1") };
        let mode = if full { Mode::FullNat } else { Mode::Dnat };
        let mut service = service("s", vip, upper, 80..=80, mode);
        service.backends = vec![backend(1, host(stack.v6, stack.host), Some(8080))];
        let local = if full { vec![host(stack.v6, 200)] } else { Vec::new() };
        let settings = BalanceSettings { local, ..settings() };
        let mut twins = [(); 2].map(|()| {
            let hub = Arc::new(Hub::new(Control::new(vec![service.clone()], 251, 7).unwrap()));
            let mut work = Balance::group(&hub, 1, &settings).remove(0);
            let key = FlowKey::five_tuple(upper, client, 999, vip, 80);
            assert_eq!(balance(&mut work, &Build::new(&key).bytes()).0.to, To::Port(1));
            work
        });
        prop_assert_eq!(compare(&mut twins, &stack, left), To::Port(40));
    }

    /// Options of a SYN, and the header that is put in front of the stream.
    #[test]
    fn headers_change_under_a_partial_checksum(seed: u64, syn: bool, tells in 0u8..3, mss in 500u16..2000) {
        let mut stack = Stack { tcp: true, ip_options: false, ..random(seed, 1200) };
        let mut twins = twins(&stack, Mode::FullNat, |service| {
            (service.mss, service.proxy, service.toa) = (Some(mss), tells == 1, tells == 2);
        });
        let payload = std::mem::take(&mut stack.payload);
        let first = Stack { flags: FlowKey::SYN, tcp_options: vec![2, 4, 5, 180], ..stack.clone() };
        // Data in a SYN is cut off with PROXY.
        let data = if syn { payload.clone() } else { Vec::new() };
        let first = Stack { payload: data, ..first };
        let is_left = |stack: &Stack| left(stack, 0, true, 0);
        prop_assert_eq!(compare(&mut twins, &first, is_left(&first)), To::Port(1));
        let next = Stack { seq: stack.seq.wrapping_add(1), flags: 0x38, payload, ..stack };
        for next in [next.clone(), Stack { seq: next.seq.wrapping_add(5), ..next }] {
            prop_assert_eq!(compare(&mut twins, &next, is_left(&next)), To::Port(1));
        }
    }

    /// Ports check what they receive, but nothing here relies on it.
    #[test]
    fn no_offload_panics(
        seed: u64, mode in 0usize..5, ttl in 1u8..3, at in 0usize..120, byte: u8, kind in 0usize..4, flags: u8,
        (segment_bytes, checksum_start, checksum_offset, transport_len) in any::<(u16, u16, u8, u8)>(),
        near: bool,
    ) {
        let stack = Stack { ttl, ..random(seed, 3000) };
        let mode = [Mode::Dsr, Mode::Dnat, Mode::FullNat, Mode::Ipip, Mode::Gue][mode];
        let mut works = twins(&stack, mode, |service| {
            (service.mtu, service.mss) = (Some(1000), Some(900));
        });
        let segment = [Segment::None, Segment::Tcp4, Segment::Tcp6, Segment::Udp][kind];
        let checksum_start = if near { stack.l4() as u16 } else { checksum_start };
        let left = Offload { segment, flags, segment_bytes, checksum_start, checksum_offset, transport_len };
        let mut frame = stack.partial();
        if let Some(old) = frame.get_mut(at) {
            *old = byte;
        }
        let _ = with(&mut works[0], &frame, left);
    }

    /// A tunnel has a finished packet in it: the checksum of a UDP tunnel covers it.
    #[test]
    fn the_packet_in_a_tunnel_is_finished(seed: u64, gue: bool, to_v6: bool) {
        let stack = random(seed, 1200);
        let mode = if gue { Mode::Gue } else { Mode::Ipip };
        let mut twins = twins(&stack, mode, |service| {
            service.backends = vec![backend(1, addrs(to_v6)[1], None)];
        });
        let (action, got, rest) = with(&mut twins[0], &stack.partial(), left(&stack, 0, true, 0));
        let (_, want, _) = with(&mut twins[1], &stack.frame(), Offload::NONE);
        prop_assert_eq!((action.to, rest), (To::Port(1), Offload::NONE));
        prop_assert!(right(&got));
        // If the checksum of the packet inside is zero, it has two forms, and so has that of the tunnel.
        let field = stack.l4() + mode.overhead(to_v6) + if stack.tcp { 16 } else { 6 };
        if want[field..field + 2] != [0, 0] {
            prop_assert_eq!(got, want);
        }
    }
}

/// Ports cut such frames when they receive them, as long as there are such services.
#[test]
fn long_frames_enter_no_tunnel_and_get_no_header() {
    let stack = Stack { payload: vec![7; 5000], ..Stack::tcp4() };
    let long = left(&stack, 1000, true, 0);
    for (mode, proxy) in [(Mode::Ipip, false), (Mode::Gue, false), (Mode::FullNat, true)] {
        let mut work = twins(&stack, mode, |service| service.proxy = proxy);
        let (action, got, rest) = with(&mut work[0], &stack.partial(), long);
        assert_eq!(action.to, To::Drop(DropReason::TooLong.code()), "{mode:?}");
        assert_eq!((got.len(), rest), (stack.frame().len(), long));
    }
}

/// Frames of no service leave as they came.
#[test]
fn what_is_passed_on_stays_unfinished() {
    let stack = Stack { payload: vec![7; 5000], ports: (1, 2), ..Stack::tcp4() };
    let mut work = twins(&stack, Mode::Dnat, |_| ());
    let long = left(&stack, 1000, true, 0);
    let (action, got, rest) = with(&mut work[0], &stack.partial(), long);
    assert_eq!((action.to, got, rest), (To::Port(50), stack.partial(), long));
}

/// The balancer answers, or translates, finished messages.
#[test]
fn icmp_is_finished_when_it_is_received() {
    for v6 in [false, true] {
        let [vip, to, client] = addrs(v6);
        let mut service = service("s", vip, proto::TCP, 80..=80, Mode::Dnat);
        service.backends = vec![backend(1, to, Some(8080))];
        let hub = Arc::new(Hub::new(Control::new(vec![service], 251, 7).unwrap()));
        let settings = BalanceSettings { pass: Vec::new(), ..settings() };
        let mut twins = [(); 2].map(|()| Balance::group(&hub, 1, &settings).remove(0));
        let key = FlowKey::five_tuple(proto::TCP, client, 999, vip, 80);
        for work in &mut twins {
            assert_eq!(balance(work, &Build::new(&key).bytes()).0.to, To::Port(1));
        }
        let icmp = if v6 { proto::ICMPV6 } else { proto::ICMP };
        let echo = FlowKey::five_tuple(icmp, client, 0, vip, 0);
        let mut echo = Build::new(&echo).payload(&[9; 57]).bytes();
        let l4 = if v6 { 54 } else { 34 };
        echo[l4] = if v6 { 128 } else { 8 };
        for mut whole in [echo, error_about(&key.reversed(), if v6 { 2 } else { 3 }, 0)] {
            // The checksum of ICMP has no pseudo header.
            let src = Headers::parse(LinkType::Ethernet, &whole).src_ip(&whole).unwrap();
            let part = whole.len() - l4;
            whole[l4 + 2..l4 + 4].fill(0);
            let pseudo = match v6 {
                true => !transport_checksum(src, vip, icmp, &vec![0; part]),
                false => 0,
            };
            whole[l4 + 2..l4 + 4].copy_from_slice(&pseudo.to_be_bytes());
            let partial = whole.clone();
            let left = Offload {
                flags: Offload::PARTIAL,
                checksum_start: l4 as u16,
                checksum_offset: 2,
                ..Offload::NONE
            };
            assert!(offload::complete(&mut whole, left) && right(&whole));
            let (action, got, rest) = with(&mut twins[0], &partial, left);
            let want = with(&mut twins[1], &whole, Offload::NONE);
            assert!(matches!(action.to, To::Port(0 | 1)) && right(&got), "{action:?}");
            assert_eq!((action, got, rest), want);
            let outside = Offload { checksum_start: 9000, ..left };
            let (action, ..) = with(&mut twins[0], &partial, outside);
            assert_eq!(action.to, To::Drop(DropReason::Malformed.code()));
        }
    }
}
