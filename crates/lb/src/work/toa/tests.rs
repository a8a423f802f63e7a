//! The option against a simple model: where it is inserted, and what the segment becomes.

use flowyard_flow::parse;
use flowyard_frame::{To, proto};
use flowyard_pool::Meta;
use flowyard_testkit::Build;
use flowyard_wire::checksum::transport_checksum;
use flowyard_wire::{Headers, LinkType, Offload};
use proptest::prelude::*;

use crate::{Mode, Service};

use super::super::tests::{addrs, backend, balance, group, one, right, service};
use super::*;

fn telling(v6: bool, mtu: Option<u16>) -> (Service, FlowKey) {
    let [vip, to, client] = addrs(v6);
    let mut told: Service = service("s", vip, proto::TCP, 80..=80, Mode::FullNat);
    (told.toa, told.mtu) = (true, mtu);
    told.backends = vec![backend(1, to, Some(8080))];
    (told, FlowKey::five_tuple(proto::TCP, client, 4000, vip, 80))
}

/// A segment, with its checksum.
#[derive(Clone, Debug, Default)]
struct Sent {
    seq: u32,
    flags: u8,
    options: Vec<u8>,
    payload: Vec<u8>,
}

impl Sent {
    fn bytes(&self, key: &FlowKey) -> Vec<u8> {
        let key = key.flow();
        let mut all = self.options.clone();
        all.extend_from_slice(&self.payload);
        let mut bytes = Build::new(&key).flags(self.flags).payload(&all).bytes();
        let l4 = if key.is_ipv6() { 54 } else { 34 };
        let end = l4 + 20 + all.len();
        bytes[l4 + 4..l4 + 8].copy_from_slice(&self.seq.to_be_bytes());
        bytes[l4 + 12] = ((20 + self.options.len()) as u8 / 4) << 4;
        bytes[l4 + 16..l4 + 18].fill(0);
        let (src, dst) = (key.src_ip().unwrap(), key.dst_ip().unwrap());
        let sum = transport_checksum(src, dst, 6, &bytes[l4..end]);
        bytes[l4 + 16..l4 + 18].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    /// Reads what [`Self::bytes`] has written, or the balancer has made of it.
    fn read(bytes: &[u8]) -> (FlowKey, Self) {
        let headers = Headers::parse(LinkType::Ethernet, bytes);
        let key = parse::key(&headers, bytes, 0);
        let (l3, l4) = if key.is_ipv6() { (14, 54) } else { (14, 34) };
        let word = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        let end = if key.is_ipv6() { 54 + word(l3 + 4) } else { l3 + word(l3 + 2) };
        let header = usize::from(bytes[l4 + 12] >> 4) * 4;
        let sent = Self {
            seq: u32::from_be_bytes(bytes[l4 + 4..l4 + 8].try_into().unwrap()),
            flags: bytes[l4 + 13],
            options: bytes[l4 + 20..l4 + header].to_vec(),
            payload: bytes[l4 + header..end].to_vec(),
        };
        (key, sent)
    }
}

/// The option as the kernel modules read it.
fn expected(key: &FlowKey) -> Vec<u8> {
    let port = key.sport.to_be_bytes();
    match key.src_ip().unwrap() {
        IpAddr::V4(src) => [&[254, 8], &port[..], &src.octets()].concat(),
        IpAddr::V6(src) => [&[254, 20], &port[..], &src.octets()].concat(),
    }
}

fn toa_omitted(hub: &super::super::Hub) -> u64 {
    hub.states()[0].counts.toa_omitted
}

const SYN: u8 = FlowKey::SYN;
const ACK: u8 = FlowKey::ACK;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Segments of a connection in any order: those with an ACK that begin with the client's first byte have the option if there is room; nothing else
    /// changes but what a translation changes.
    #[test]
    fn segments_equal_the_model(
        v6: bool, isn: u32, mtu in prop::option::of(200u16..400),
        segments in prop::collection::vec((0usize..8, 0usize..16, 0usize..11, 0usize..300), 1..20),
    ) {
        let (told, key) = telling(v6, mtu);
        let (hub, mut works) = group(vec![told], 1);
        let work = &mut works[0];
        let (n, ip_header) = (len(v6), if v6 { 40 } else { 20 });
        let mut omitted = 0;
        let syn = Sent { seq: isn, flags: SYN, options: vec![2, 4, 5, 180], payload: Vec::new() };
        let (_, got) = balance(work, &syn.bytes(&key));
        prop_assert_eq!(Sent::read(&got).1.options, &syn.options[..]);
        for (place, flags, words, bytes) in segments {
            // Most segments begin with the first byte and have an ACK.
            let rare = [ACK | 8, ACK | 1, SYN, SYN | ACK, FlowKey::RST, FlowKey::RST | ACK, 0];
            let flags = rare.get(flags).copied().unwrap_or(ACK);
            let seq = isn.wrapping_add([0, 2, 900, u32::MAX].get(place).copied().unwrap_or(1));
            let mut options = vec![1; words * 4];
            if let Some(last) = options.last_mut() {
                *last = 0; // the end of the list
            }
            let sent = Sent { seq, flags, options, payload: vec![7; bytes] };
            let frame = sent.bytes(&key);
            let (action, got) = balance(work, &frame);
            let long = ip_header + 20 + sent.options.len() + bytes;
            // Another connection may begin, of which the model knows no first byte.
            let is_last = flags & (SYN | FlowKey::RST | 1) != 0;
            if mtu.is_some_and(|mtu| long > mtu.into()) {
                prop_assert_ne!(action.to, To::Port(1));
                match is_last {
                    true => break,
                    false => continue,
                }
            }
            prop_assert_eq!(action.to, To::Port(1));
            prop_assert!(right(&got), "checksums");
            let belongs = seq == isn.wrapping_add(1) && flags & (SYN | ACK | FlowKey::RST) == ACK;
            let most = mtu.map_or(65_535, usize::from);
            let fits = 20 + sent.options.len() + n <= 60 && long + n <= most;
            let mut want = sent.clone();
            if belongs && fits {
                want.options = [expected(&key), want.options].concat();
            }
            omitted += u64::from(belongs && !fits);
            let (seen, made) = Sent::read(&got);
            prop_assert_eq!((made.seq, made.flags), (want.seq, want.flags));
            prop_assert_eq!((made.options, made.payload), (want.options, want.payload));
            prop_assert_eq!((seen.dst_ip(), seen.dport), (Some(addrs(v6)[1]), 8080));
            prop_assert_eq!(toa_omitted(&hub), omitted);
            if is_last {
                break;
            }
        }
    }

    /// Bytes of a frame with a partial checksum are those of the finished one, before the checksum is completed.
    #[test]
    fn a_partial_checksum_stays_partial(v6: bool, bytes in 0usize..400) {
        let (told, key) = telling(v6, None);
        let mut twins = [one(told.clone()), one(told)];
        let syn = Sent { seq: 9, flags: SYN, ..Sent::default() }.bytes(&key);
        let next = Sent { seq: 10, flags: ACK, options: vec![1; 12], payload: vec![3; bytes] };
        let whole = next.bytes(&key);
        let l4 = if v6 { 54 } else { 34 };
        let mut partial = whole.clone();
        // The sum of the pseudo-header alone, not inverted.
        let (src, dst) = (key.src_ip().unwrap(), key.dst_ip().unwrap());
        let length = (32 + bytes) as u32;
        let mut pseudo = 6 + length;
        let mut add = |octets: &[u8]| octets.chunks(2).for_each(|two| pseudo += u32::from(u16::from_be_bytes([two[0], two[1]])));
        for addr in [src, dst] {
            match addr {
                IpAddr::V4(addr) => add(&addr.octets()),
                IpAddr::V6(addr) => add(&addr.octets()),
            }
        }
        while pseudo >> 16 != 0 {
            pseudo = (pseudo & 0xffff) + (pseudo >> 16);
        }
        partial[l4 + 16..l4 + 18].copy_from_slice(&(pseudo as u16).to_be_bytes());
        let offload = Offload { flags: Offload::PARTIAL, checksum_start: l4 as u16, checksum_offset: 16, ..Offload::NONE };
        for work in &mut twins {
            let _ = balance(work, &syn);
        }
        let (_, want) = balance(&mut twins[0], &whole);
        let (got, left) = with(&mut twins[1], &partial, offload);
        prop_assert_eq!(left, offload);
        let mut got = got;
        let end = got.len();
        got[l4 + 16..l4 + 18].copy_from_slice(&want[l4 + 16..l4 + 18]);
        prop_assert_eq!(&got, &want[..end]);
        // The partial sum is that of the new pseudo-header.
        let seen = Sent::read(&want).0;
        prop_assert!(right(&want));
        prop_assert_eq!(seen.dst_ip(), Some(addrs(v6)[1]));
    }
}

/// Balances a frame of which work is left. Returns the frame and what is left of it.
fn with(work: &mut Balance, data: &[u8], offload: Offload) -> (Vec<u8>, Offload) {
    use flowyard_frame::{Action, Batch};
    use flowyard_yard::Work;
    let pool = &mut Pool::new(64, 2048);
    let mut batch = Batch::default();
    let meta = Meta { wire_len: data.len() as u32, offload, ..Meta::default() };
    let frame = pool.copy(data, meta).unwrap();
    let key = parse::key(&Headers::parse(LinkType::Ethernet, data), data, 0);
    let lane = batch.push(frame, key).unwrap();
    batch.actions[lane] = Action::queue(0);
    work.work(&mut batch, pool, 5);
    assert_eq!(batch.actions[lane].to, To::Port(1));
    (pool.bytes(&batch.frames[lane]).to_vec(), pool.meta(&batch.frames[lane]).offload)
}

#[test]
fn the_backend_offers_a_smaller_segment_and_a_lost_ack_has_the_option_again() {
    for v6 in [false, true] {
        let (told, key) = telling(v6, None);
        let mut work = one(told);
        let (_, got) =
            balance(&mut work, &Sent { seq: 99, flags: SYN, ..Sent::default() }.bytes(&key));
        let back = Sent::read(&got).0.flow().reversed();
        let offer =
            Sent { seq: 5, flags: SYN | ACK, options: vec![2, 4, 5, 180], payload: Vec::new() };
        let (_, got) = balance(&mut work, &offer.bytes(&back));
        let mss = 1460 - len(v6) as u16;
        let [high, low] = mss.to_be_bytes();
        assert_eq!(Sent::read(&got).1.options, [2, 4, high, low]);
        assert!(right(&got));
        // The ACK, the first data, and both again, and then what follows.
        let ack = Sent { seq: 100, flags: ACK, ..Sent::default() };
        let data = Sent { payload: vec![1; 50], ..ack.clone() };
        for sent in [&ack, &data, &data, &ack] {
            let (_, got) = balance(&mut work, &sent.bytes(&key));
            let (_, made) = Sent::read(&got);
            assert_eq!((made.options, made.payload), (expected(&key), sent.payload.clone()));
        }
        let (_, got) = balance(&mut work, &Sent { seq: 150, ..data }.bytes(&key));
        assert!(Sent::read(&got).1.options.is_empty());
        // Replies are not changed but for their addresses.
        let reply = Sent { seq: 6, flags: ACK, options: vec![1; 4], payload: vec![2; 9] };
        let (_, got) = balance(&mut work, &reply.bytes(&back));
        let (_, made) = Sent::read(&got);
        assert_eq!((made.seq, made.options, made.payload), (6, reply.options, reply.payload));
    }
}

#[test]
fn other_services_are_not_changed_and_unsuitable_ones_are_refused() {
    let (mut plain, key) = telling(false, None);
    plain.toa = false;
    let mut work = one(plain.clone());
    let (_, got) = balance(&mut work, &Sent { seq: 9, flags: SYN, ..Sent::default() }.bytes(&key));
    let back = Sent::read(&got).0.flow().reversed();
    let offer = Sent { flags: SYN | ACK, options: vec![2, 4, 5, 180], ..Sent::default() };
    let (_, got) = balance(&mut work, &offer.bytes(&back));
    assert_eq!(Sent::read(&got).1.options, offer.options);
    let (_, got) = balance(&mut work, &Sent { seq: 10, flags: ACK, ..Sent::default() }.bytes(&key));
    assert!(Sent::read(&got).1.options.is_empty());

    let refused = |service: Service| {
        let error = crate::Control::new(vec![service], 251, 7).unwrap_err();
        assert!(error.to_string().contains("leave out 'toa'"), "{error}");
    };
    let (told, _) = telling(false, None);
    refused(Service { proxy: true, ..told.clone() });
    for mode in [Mode::Dsr, Mode::Dnat, Mode::Ipip, Mode::Gue] {
        let mut backends = told.backends.clone();
        backends[0].port = None;
        refused(Service { mode, backends, ..told.clone() });
    }
    refused(Service { proto: proto::UDP, ..told });
}
