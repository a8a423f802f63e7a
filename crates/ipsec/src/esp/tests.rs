//! Round trips in all forms, refusals, and hostile packets.

use proptest::prelude::*;

use super::*;
use crate::ip::write_sum;
use crate::sa::tests::config;
use crate::sa::{Encap, Flags, Limits, SaConfig};
use crate::suite::Suite;

const SUITES: [Suite; 3] = [Suite::AesGcm128, Suite::AesGcm256, Suite::ChaCha20Poly1305];

/// A UDP packet.
fn packet(is_v6: bool, payload: &[u8], tos: u8, is_whole: bool) -> Vec<u8> {
    let mut upper = [4000_u16, 5000, 8 + payload.len() as u16, 0].map(u16::to_be_bytes).concat();
    upper.extend_from_slice(payload);
    let (src, dst): (IpAddr, IpAddr) = if is_v6 {
        ("fd01::1".parse().unwrap(), "fd02::1".parse().unwrap())
    } else {
        ("10.1.0.1".parse().unwrap(), "10.2.0.1".parse().unwrap())
    };
    let mut packet = vec![0; outer_len(dst)];
    packet.extend(upper);
    let header = Outer { src, dst, tos, proto: proto::UDP, id: 7, is_whole, hops: 64 };
    assert!(header.write(&mut packet));
    packet
}

/// As a caller does it: room in front and behind, then sealed.
fn sealed(sa: &Sa, packet: &[u8]) -> Result<Vec<u8>, Refuse> {
    let plan = plan(sa, packet)?;
    let number = sa.take().ok_or(Refuse::Expired)?;
    let mut bytes = packet[..plan.len].to_vec();
    bytes.resize(plan.len + plan.tail, 0);
    bytes.splice(plan.at..plan.at, vec![0; plan.head]);
    let mut tally = Tally::default();
    seal(sa, number, &plan, &mut bytes, &mut tally)?;
    tally.flush(sa);
    Ok(bytes)
}

fn opened(sa: &Sa, packet: &[u8]) -> Result<Vec<u8>, Refuse> {
    let Kind::Esp(arrived) = kind(packet, |port| port == NAT_PORT) else {
        return Err(Refuse::Malformed);
    };
    assert_eq!(
        (arrived.spi, arrived.src, arrived.dst),
        (sa.config.spi, sa.config.src, sa.config.dst)
    );
    let mut bytes = packet.to_vec();
    let mut tally = Tally::default();
    let opened = open(sa, &arrived, &mut bytes, &mut tally);
    tally.flush(sa);
    let Opened { at, cut, len, is_v6 } = opened?;
    bytes.drain(at..at + cut);
    bytes.truncate(len);
    assert_eq!((bytes.len(), bytes[0] >> 4 == 6), (len, is_v6));
    Ok(bytes)
}

fn pair(config: &SaConfig) -> (Sa, Sa) {
    let sa = |iv| Sa::new(config.clone(), iv, 0).unwrap();
    (sa(99), sa(5))
}

fn over_v6(mut config: SaConfig) -> SaConfig {
    (config.src, config.dst) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
    config
}

#[test]
fn every_form_of_tunnel_gives_the_packet_back() {
    for suite in SUITES {
        for form in 0..16 {
            let (inner_v6, outer_v6) = (form & 1 > 0, form & 2 > 0);
            let (is_extended, is_nat) = (form & 4 > 0, form & 8 > 0);
            let encap = is_nat.then_some(Encap { sport: 4500, dport: 4500 });
            let config = SaConfig { is_extended, encap, ..config(Mode::Tunnel, suite) };
            let config = if outer_v6 { over_v6(config) } else { config };
            let oseq = if is_extended { (1 << 32) - 2 } else { 0 };
            let (out, into) = pair(&SaConfig { oseq, seq: oseq, ..config });
            for len in 0..9 {
                let packet = packet(inner_v6, &vec![len; len.into()], 0xb9, true);
                let sealed = sealed(&out, &packet).unwrap();
                let ip = Ip::parse(&sealed).unwrap();
                assert_eq!(
                    (ip.is_v6, ip.total, ip.tos, ip.is_whole),
                    (outer_v6, sealed.len(), 0xb9, true)
                );
                assert_eq!(ip.proto, if is_nat { proto::UDP } else { proto::ESP });
                assert!(outer_v6 || checksum::verify_ipv4_header(&sealed[..20]));
                if is_nat && outer_v6 {
                    let (src, dst) = ip.addresses(&sealed).unwrap();
                    assert_eq!(
                        checksum::transport_checksum(src, dst, proto::UDP, &sealed[40..]),
                        0
                    );
                }
                assert_eq!(opened(&into, &sealed).unwrap(), packet);
            }
            assert_eq!((into.window.top(), out.sent()), (oseq + 9, oseq + 9));
        }
    }
}

#[test]
fn transport_mode_gives_the_packet_back_with_options_and_extension_headers() {
    let base = config(Mode::Transport, Suite::AesGcm128);
    let mut v4 = packet(false, b"hello", 0, false);
    v4.splice(20..20, [1, 1, 1, 0]); // options
    v4[0] = 0x46;
    let len = v4.len() as u16;
    v4[2..4].copy_from_slice(&len.to_be_bytes());
    write_sum(&mut v4, 24);
    v4[12..16].copy_from_slice(&[192, 0, 2, 1]);
    v4[16..20].copy_from_slice(&[192, 0, 2, 2]);
    write_sum(&mut v4, 24);
    let (out, into) = pair(&base);
    let bytes = sealed(&out, &v4).unwrap();
    assert_eq!((bytes[9], &bytes[24..28]), (proto::ESP, &out.config.spi.to_be_bytes()[..]));
    assert_eq!(opened(&into, &bytes).unwrap(), v4);

    let mut v6 = packet(true, b"hello", 0, true);
    let config = over_v6(base);
    for (at, address) in [(8, config.src), (24, config.dst)] {
        let IpAddr::V6(address) = address else { unreachable!() };
        v6[at..at + 16].copy_from_slice(&address.octets());
    }
    v6.splice(40..40, [proto::UDP, 0, 1, 4, 0, 0, 0, 0]); // a hop-by-hop header
    v6[6] = 0;
    let payload = v6.len() as u16 - 40;
    v6[4..6].copy_from_slice(&payload.to_be_bytes());
    let (out, into) = pair(&config);
    let bytes = sealed(&out, &v6).unwrap();
    assert_eq!(
        (bytes[6], bytes[40], &bytes[48..52]),
        (0, proto::ESP, &out.config.spi.to_be_bytes()[..])
    );
    assert_eq!(opened(&into, &bytes).unwrap(), v6);
}

#[test]
fn replayed_late_and_corrupted_packets_are_refused_and_counted() {
    let (out, into) = pair(&config(Mode::Tunnel, Suite::AesGcm256));
    let packet = packet(false, b"payload", 0, false);
    let all: Vec<_> = (0..70).map(|_| sealed(&out, &packet).unwrap()).collect();
    assert_eq!(opened(&into, &all[69]), Ok(packet.clone()));
    assert_eq!(opened(&into, &all[69]), Err(Refuse::Replayed));
    assert_eq!(opened(&into, &all[5]), Err(Refuse::Replayed), "below the window of 64");
    assert_eq!(opened(&into, &all[6]), Ok(packet.clone()), "the last in the window");
    for at in 24..all[7].len() {
        let mut bad = all[7].clone();
        bad[at] ^= 1;
        let refused = opened(&into, &bad);
        // The sequence number decides first.
        let is_number = (24..28).contains(&at);
        assert!(
            is_number && refused.is_err() || refused == Err(Refuse::Unauthentic),
            "byte {at}: {refused:?}"
        );
    }
    assert_eq!(opened(&into, &all[7]), Ok(packet), "refused packets do not move the window");
    let counts = into.counts.read();
    assert_eq!((counts.packets, counts.replayed, counts.late), (3, 1, 1));
    assert!(counts.unauthentic >= all[7].len() as u64 - 28, "{counts:?}");
}

#[test]
fn fragments_and_packets_that_are_too_long_are_not_sealed() {
    let (out, into) = pair(&config(Mode::Tunnel, Suite::AesGcm128));
    let mut fragment = packet(false, b"payload", 0, false);
    fragment[6] = 0x20;
    write_sum(&mut fragment, 20);
    assert_eq!(sealed(&out, &fragment), Err(Refuse::Fragment));
    assert_eq!(sealed(&out, &packet(true, &[0; 65_000], 0, true)).map(|p| p.len()), Ok(65_104));
    assert_eq!(sealed(&out, &packet(false, &vec![0; 65_500], 0, true)), Err(Refuse::TooLong));
    assert_eq!(sealed(&out, &[0x45, 0, 0]), Err(Refuse::Malformed));
    // A fragment of ESP, with and without UDP.
    let mut bytes = sealed(&out, &packet(false, b"payload", 0, false)).unwrap();
    bytes[6] = 0x20;
    assert_eq!(kind(&bytes, |_| false), Kind::Fragment);
    assert_eq!(into.counts.read().packets, 0);
}

/// A packet with these encrypted bytes.
fn forged(sa: &Sa, data: &[u8]) -> Vec<u8> {
    let number = sa.take().unwrap();
    let mut bytes = vec![0; 20 + HEADER + IV];
    bytes.extend(data);
    bytes.extend([0; ICV]);
    let start = 20 + HEADER + IV;
    let header = Outer {
        src: sa.config.src,
        dst: sa.config.dst,
        tos: 3,
        proto: proto::ESP,
        id: 0,
        is_whole: true,
        hops: 9,
    };
    assert!(header.write(&mut bytes));
    bytes[20..24].copy_from_slice(&sa.config.spi.to_be_bytes());
    bytes[24..28].copy_from_slice(&(number as u32).to_be_bytes());
    bytes[28..36].copy_from_slice(&sa.iv_of(number));
    let (aad, len) = sa.aad(number);
    let end = bytes.len() - ICV;
    let tag = sa.key.seal(sa.iv_of(number), &aad[..len], &mut bytes[start..end]).unwrap();
    bytes[end..].copy_from_slice(&tag);
    bytes
}

#[test]
fn authentic_packets_with_other_contents() {
    let (out, into) = pair(&config(Mode::Tunnel, Suite::AesGcm128));
    let with = |mut data: Vec<u8>, trailer: &[u8]| {
        data.extend(trailer);
        opened(&into, &forged(&out, &data))
    };
    let ect = packet(false, b"x", 2, false);
    let mut congested = ect.clone();
    set_tos(&mut congested, 3);
    // Padding for traffic flow confidentiality behind the packet, and then that of ESP.
    let mut padded = ect.clone();
    padded.extend([0xaa; 500]);
    assert_eq!(with(padded, &[1, 2, 2, 4]), Ok(congested));
    assert_eq!(with(vec![9; 30], &[0, NO_NEXT]), Err(Refuse::Dummy));
    assert_eq!(
        with(packet(false, b"x", 0, false), &[0, 4]),
        Err(Refuse::Congested),
        "not ECT, and the outer is CE"
    );
    assert_eq!(with(ect.clone(), &[255, 4]), Err(Refuse::Malformed), "more padding than bytes");
    assert_eq!(with(ect.clone(), &[0, 41]), Err(Refuse::Malformed), "not the announced family");
    assert_eq!(with(ect.clone(), &[0, 17]), Err(Refuse::Malformed), "no tunnel");
    assert_eq!(with(ect[..25].to_vec(), &[0, 4]), Err(Refuse::Malformed), "cut short");
    assert_eq!(with(Vec::new(), &[0, 4]), Err(Refuse::Malformed));
    assert_eq!(with(Vec::new(), &[4]), Err(Refuse::Malformed), "no trailer");
    let counts = into.counts.read();
    assert_eq!((counts.dummies, counts.malformed, counts.packets), (1, 7, 8));

    // Without ECN, and with the DSCP of the outer header.
    let flags = Flags { no_ecn: true, decap_dscp: true, dont_encap_dscp: true, ..Flags::default() };
    let (out, into) = pair(&SaConfig { flags, ..config(Mode::Tunnel, Suite::AesGcm128) });
    let sent = sealed(&out, &packet(false, b"x", 0xb9, false)).unwrap();
    assert_eq!((sent[1], sent[6]), (0, 0));
    assert_eq!(opened(&into, &sent).unwrap()[1], 1);
}

#[test]
fn what_else_comes_to_the_port_of_nat_traversal() {
    let udp = |payload: &[u8]| {
        let mut packet = packet(false, payload, 0, false);
        packet[22..24].copy_from_slice(&NAT_PORT.to_be_bytes());
        packet
    };
    let is = |packet: &[u8]| kind(packet, |port| port == NAT_PORT);
    assert_eq!(is(&udp(&[0xff])), Kind::Keepalive);
    assert_eq!(is(&udp(&[0, 0, 0, 0, 1, 2])), Kind::Ike);
    assert_eq!(is(&udp(&[0, 0, 1])), Kind::Short);
    assert!(matches!(
        is(&udp(&[1; 40])),
        Kind::Esp(Arrived { spi: 0x0101_0101, is_udp: true, .. })
    ));
    assert_eq!(kind(&udp(&[0xff]), |_| false), Kind::Other);
    assert_eq!(is(&packet(true, &[1; 40], 0, true)), Kind::Other);
    // An SA without UDP does not take packets with it, and the other way round.
    let (out, _) = pair(&config(Mode::Tunnel, Suite::AesGcm128));
    let encap = Some(Encap { sport: 4500, dport: 4500 });
    let (_, into) = pair(&SaConfig { encap, ..config(Mode::Tunnel, Suite::AesGcm128) });
    let sent = sealed(&out, &packet(false, b"x", 0, false)).unwrap();
    assert_eq!(opened(&into, &sent), Err(Refuse::Malformed));
}

#[test]
fn limits_end_an_inbound_sa() {
    let limits = Limits { hard_packets: 2, ..Limits::NONE };
    let (out, _) = pair(&config(Mode::Tunnel, Suite::AesGcm128));
    let (_, into) = pair(&SaConfig { limits, ..config(Mode::Tunnel, Suite::AesGcm128) });
    let packet = packet(false, b"x", 0, false);
    let open_one = || opened(&into, &sealed(&out, &packet).unwrap()).err();
    assert_eq!([open_one(), open_one(), open_one()], [None, None, Some(Refuse::Expired)]);
    assert_eq!(into.counts.read().expired, 1);
}

#[test]
fn the_mtu_is_the_longest_packet_that_fits() {
    let encap = Some(Encap { sport: 4500, dport: 4500 });
    for config in [
        config(Mode::Tunnel, Suite::AesGcm128),
        config(Mode::Transport, Suite::AesGcm128),
        SaConfig { encap, ..over_v6(config(Mode::Tunnel, Suite::ChaCha20Poly1305)) },
    ] {
        let (out, _) = pair(&config);
        for mtu in 1280..1300 {
            let longest = inner_mtu(mtu, &plan(&out, &packet(false, &[], 0, true)).unwrap());
            let total = |len: usize| {
                plan(&out, &packet(false, &vec![0; len - 28], 0, true)).unwrap().total()
            };
            assert!(total(longest) <= mtu && total(longest + 1) > mtu, "{mtu}: {longest}");
        }
    }
}

#[test]
fn one_hop_less() {
    for is_v6 in [false, true] {
        let mut packet = packet(is_v6, b"x", 0, true);
        assert!(one_hop(&mut packet));
        assert_eq!(packet[if is_v6 { 7 } else { 8 }], 63);
        assert!(is_v6 || checksum::verify_ipv4_header(&packet[..20]));
        packet[if is_v6 { 7 } else { 8 }] = 1;
        assert!(!one_hop(&mut packet));
    }
    assert!(!one_hop(&mut []));
}

proptest! {
    #[test]
    fn any_bytes_are_handled(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        head in prop::sample::select(vec![0x45_u8, 0x46, 0x4f, 0x60, 0]),
        upper in prop::sample::select(vec![50_u8, 17, 44, 0, 43, 60, 6]),
        form in 0..4_u8,
    ) {
        if let Some(first) = bytes.first_mut() {
            *first = head;
        }
        let len = bytes.len() as u16;
        if bytes.len() > 40 {
            if head >> 4 == 6 {
                bytes[6] = upper;
                bytes[4..6].copy_from_slice(&(len - 40).to_be_bytes());
            } else {
                bytes[9] = upper;
                bytes[2..4].copy_from_slice(&len.to_be_bytes());
                bytes[6..8].fill(0);
            }
        }
        let mode = if form & 1 > 0 { Mode::Tunnel } else { Mode::Transport };
        let encap = (form & 2 > 0 && mode == Mode::Tunnel).then_some(Encap { sport: 4500, dport: 4500 });
        let sa = Sa::new(SaConfig { encap, ..config(mode, Suite::AesGcm128) }, 0, 0).unwrap();
        if let Kind::Esp(arrived) = kind(&bytes, |_| form & 2 > 0) {
            let opened = open(&sa, &arrived, &mut bytes.clone(), &mut Tally::default());
            prop_assert!(opened.is_err());
        }
        if let Ok(sealed) = sealed(&sa, &bytes) {
            prop_assert_eq!(Ip::parse(&sealed).map(|ip| ip.total), Some(sealed.len()));
        }
        let _ = one_hop(&mut bytes);
    }
}
