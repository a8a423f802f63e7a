//! Headers at their limits: cut at every byte, with every length, as many as are allowed and one more.

use flowyard_wire::{Fault, Headers, LinkType, Next};

use crate::headers::{ethernet, ipv4, ipv6, tcp, udp};

flowyard_testkit::tests! {
    a_cut_is_reported_for_the_header_that_it_is_in,
    a_length_field_that_ends_inside_a_header_is_reported_for_that_header,
    ports_and_flags_are_read_from_what_there_is_of_a_transport,
    the_udp_length_ends_the_datagram,
    as_many_tags_labels_and_extensions_as_are_allowed,
    the_protocol_field_of_a_tunnel_says_what_is_inside,
    a_gtp_packet_is_behind_its_extensions,
    options_of_an_extension_are_found_behind_others,
    ppp_and_llc_in_all_their_forms,
}

/// Bytes of a header, and the fault if the frame ends in front of the last of them.
type Part = (Vec<u8>, Option<Fault>);

fn part(bytes: &[u8], fault: Fault) -> Part {
    (bytes.to_vec(), Some(fault))
}

/// An IPv4 header without a length, so that the frame's length counts.
fn open_ipv4(proto: u8) -> Part {
    let mut header = ipv4(proto, &[]);
    header[2..4].fill(0);
    part(&header, Fault::TruncatedIp)
}

fn open_ipv6(next: u8) -> Part {
    part(&ipv6(next, &[]), Fault::TruncatedIp)
}

fn open_udp(dport: u16) -> Part {
    let mut header = udp(dport, &[]);
    header[4..6].fill(0);
    part(&header, Fault::TruncatedTransport)
}

/// The headers of tunnels behind IPv4, and the protocol.
fn ip_tunnels() -> Vec<(u8, Vec<u8>)> {
    let erspan3 =
        [&[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20, 1, 0xfc, 0x66][..], &[0; 7], &[1], &[0; 8]];
    vec![
        (97, vec![0x30, 0]),
        (47, vec![0, 0, 8, 0]),
        (47, vec![0xb0, 0, 0x65, 0x58, 1, 1, 0, 0, 0, 0, 0x12, 0x34, 0, 0, 0, 1]),
        (47, vec![0x40, 0, 8, 0, 0, 0, 0, 0, 8, 0, 0, 4, 1, 2, 3, 4, 0, 0, 0, 0]),
        (47, vec![0x30, 0x81, 0x88, 0x0b, 0, 44, 0, 9, 0, 0, 0, 1, 0, 0, 0, 1]),
        (47, vec![0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 1, 0xfc, 0x65, 0, 0, 0, 0]),
        (47, erspan3.concat()),
    ]
}

/// The headers of tunnels in UDP, and the port.
fn udp_tunnels() -> Vec<(u16, Vec<u8>)> {
    vec![
        (4789, vec![8, 0, 0, 0, 0, 1, 2, 0]),
        (8472, vec![8, 0, 0, 0, 0, 1, 2, 0]),
        (4790, vec![0x0c, 0, 0, 3, 0, 1, 2, 0]),
        (6081, vec![3, 0, 0x65, 0x58, 0, 1, 2, 0, 1, 2, 3, 2, 5, 6, 7, 8, 9, 10, 11, 12]),
        (2152, vec![0x30, 255, 0, 40, 1, 2, 3, 4]),
        (2152, vec![0x32, 255, 0, 40, 1, 2, 3, 4, 0, 1, 0, 0x85]),
        (2152, vec![0x34, 255, 0, 48, 0, 0, 0, 5, 0, 0, 0, 0x85, 2, 0, 9, 0, 1, 2, 3, 0]),
    ]
}

/// IPv6 extension headers in a row, each with the number of the next; TCP follows.
fn extensions() -> Vec<Vec<u8>> {
    vec![
        [&[60, 0, 1, 4][..], &[0; 4]].concat(), // hop-by-hop
        [&[43, 2, 1, 2, 0, 0, 0xc9, 16][..], &[3; 16]].concat(), // destination
        [&[44, 2, 2, 1, 0, 0, 0, 0][..], &[4; 16]].concat(), // routing
        vec![51, 0, 0, 0, 0, 0, 0, 9],          // atomic fragment
        [&[135, 4, 0, 0][..], &[0; 20]].concat(), // authentication
        [&[6, 1][..], &[0; 14]].concat(),       // mobility
    ]
}

fn stacks() -> Vec<(LinkType, Vec<Part>)> {
    use Fault::{
        TruncatedArp, TruncatedExtension, TruncatedLabel, TruncatedLink, TruncatedLlc,
        TruncatedPppoe, TruncatedTag, TruncatedTransport, TruncatedTunnel,
    };
    let eth = |eth_type: u16| part(&ethernet(eth_type, &[]), TruncatedLink);
    let mut long_tcp = tcp();
    long_tcp[12] = 0x60;
    long_tcp.extend([1; 4]);
    let tcp = part(&long_tcp, TruncatedTransport);
    let mut options = open_ipv4(6);
    options.0[0] = 0x46;
    options.0.extend([1; 4]);
    let mut chain = vec![eth(0x86dd), open_ipv6(0)];
    chain.extend(extensions().iter().map(|header| part(header, TruncatedExtension)));
    chain.push(tcp.clone());
    let tag = |next: [u8; 2]| part(&[&[0x60, 7], &next[..]].concat(), TruncatedTag);
    // Behind the labels, the first byte says what follows; nothing is missing if it is not here.
    let (ip, _) = open_ipv4(6);
    let behind_labels = [(ip[..1].to_vec(), None), part(&ip[1..], Fault::TruncatedIp)];
    let [first, rest] = behind_labels;
    let labels = part(&[0, 1, 0, 64, 0, 2, 1, 64], TruncatedLabel);
    let arp = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &[9; 20]].concat();
    let mut all = vec![
        (LinkType::Ethernet, vec![eth(0x88a8), tag([0x81, 0]), tag([8, 0]), options, tcp.clone()]),
        (LinkType::Ethernet, chain),
        (LinkType::Ethernet, vec![eth(0x8847), labels, first, rest, tcp.clone()]),
        (
            LinkType::Ethernet,
            vec![eth(0x8864), part(&[0x11, 0, 0, 1, 0, 60, 0, 0x57], TruncatedPppoe), open_ipv6(6)],
        ),
        (
            LinkType::Ethernet,
            vec![eth(60), part(&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], TruncatedLlc), open_ipv4(6)],
        ),
        (LinkType::Ethernet, vec![eth(0x0806), part(&arp, TruncatedArp)]),
        (LinkType::Null, vec![part(&[2, 0, 0, 0], TruncatedLink), open_ipv4(6), tcp]),
        (
            LinkType::LinuxSll,
            vec![part(&[&[0; 14][..], &[8, 0]].concat(), TruncatedLink), open_ipv4(6)],
        ),
        (
            LinkType::LinuxSll2,
            vec![part(&[&[8, 0][..], &[0; 18]].concat(), TruncatedLink), open_ipv4(6)],
        ),
    ];
    for (proto, len) in [(17, 8), (132, 12), (1, 4), (58, 4)] {
        let header = part(&vec![0; len], TruncatedTransport);
        all.push((LinkType::RawIp, vec![open_ipv4(proto), header.clone()]));
        all.push((LinkType::RawIp, vec![open_ipv6(proto), header]));
    }
    for (proto, header) in ip_tunnels() {
        all.push((LinkType::RawIp, vec![open_ipv4(proto), part(&header, TruncatedTunnel)]));
    }
    for (port, header) in udp_tunnels() {
        let tunnel = part(&header, TruncatedTunnel);
        all.push((LinkType::RawIp, vec![open_ipv4(17), open_udp(port), tunnel.clone()]));
        all.push((LinkType::RawIp, vec![open_ipv6(17), open_udp(port), tunnel]));
    }
    all
}

fn a_cut_is_reported_for_the_header_that_it_is_in() {
    for (link, parts) in stacks() {
        let whole: Vec<u8> = parts.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
        let faults = parts.iter().flat_map(|(bytes, fault)| vec![*fault; bytes.len()]);
        for (cut, fault) in faults.enumerate() {
            let h = Headers::parse(link, &whole[..cut]);
            let fault = if cut == 0 { Some(Fault::Empty) } else { fault };
            assert_eq!((h.fault, h.next), (fault, Next::None), "{link:?} cut to {cut}: {parts:x?}");
        }
        let last = parts.last().and_then(|(_, fault)| *fault);
        // Behind some of these stacks there is a TCP header, which is not here.
        let missing = matches!(last, Some(Fault::TruncatedIp));
        let h = Headers::parse(link, &whole);
        assert_eq!(h.fault, missing.then_some(Fault::TruncatedTransport), "{link:?} {parts:x?}");
        assert_eq!(h.payload as usize, whole.len(), "{link:?} {parts:x?}");
    }
}

fn a_length_field_that_ends_inside_a_header_is_reported_for_that_header() {
    // The packet is as long as its header says; bytes follow it that belong to no packet.
    let fault = |mut packet: Vec<u8>| {
        packet.extend([0xee; 40]);
        let h = Headers::parse(LinkType::RawIp, &packet);
        assert_eq!(h.end as usize, packet.len() - 40);
        (h.fault, h.next, h.next_id)
    };
    for (proto, len) in [(6, 20), (17, 8), (132, 12), (1, 4), (58, 4)] {
        let header = [&[0, 80, 0, 81, 0, len][..], &[0x50; 14]].concat();
        for cut in 0..=usize::from(len) {
            let past = (cut < usize::from(len)).then_some(Fault::TransportPastLength);
            assert_eq!(fault(ipv4(proto, &header[..cut])).0, past, "protocol {proto}, {cut}");
            if cut > 0 {
                assert_eq!(fault(ipv6(proto, &header[..cut])).0, past, "protocol {proto}, {cut}");
            }
        }
    }
    for (proto, header) in ip_tunnels() {
        for cut in 0..header.len() {
            let past = (Some(Fault::TunnelPastLength), Next::None, 0);
            assert_eq!(fault(ipv4(proto, &header[..cut])), past, "{header:x?} cut to {cut}");
        }
        let (none, next, _) = fault(ipv4(proto, &header));
        assert!(none.is_none() && next != Next::None, "{header:x?}");
    }
    // A port does not make a datagram a tunnel's: if the header does not fit, it is data.
    for (port, header) in udp_tunnels() {
        for cut in 0..header.len() {
            let data = ipv4(17, &udp(port, &header[..cut]));
            assert_eq!(fault(data), (None, Next::None, 0), "{header:x?} cut to {cut}");
        }
        let inner = [&header[..], &ipv4(6, &tcp())].concat();
        let (none, next, id) = fault(ipv4(17, &udp(port, &inner)));
        assert!(none.is_none() && next != Next::None && id != 0, "{header:x?}");
    }
    let chain = extensions();
    let whole = [chain.concat(), tcp()].concat();
    for cut in 1..whole.len() {
        let inside = if cut < chain.concat().len() {
            Fault::ExtensionPastLength
        } else {
            Fault::TransportPastLength
        };
        assert_eq!(fault(ipv6(0, &whole[..cut])).0, Some(inside), "{cut}");
    }
}

fn ports_and_flags_are_read_from_what_there_is_of_a_transport() {
    for (proto, len, has_ports) in
        [(6, 24, true), (17, 8, true), (132, 12, true), (1, 4, false), (58, 4, false)]
    {
        let mut header = [&[0x12, 0x34, 0x56, 0x78][..], &[0; 20]].concat();
        match proto {
            6 => header[12..14].copy_from_slice(&[0x60, 0x12]),
            17 => header[4..6].copy_from_slice(&[0, 24]),
            _ => {}
        }
        for (l4, packet) in [(20, ipv4(proto, &header)), (40, ipv6(proto, &header))] {
            for cut in 0..=header.len() {
                let h = Headers::parse(LinkType::RawIp, &packet[..l4 + cut]);
                let ports = (has_ports && cut >= 4).then_some((0x1234, 0x5678));
                let flags = if proto == 6 && cut >= 14 { 0x12 } else { 0 };
                assert_eq!((h.ports, h.tcp_flags), (ports, flags), "protocol {proto}, {cut} bytes");
                let payload = if cut < len { l4 } else { l4 + len };
                assert_eq!((h.l4 as usize, h.payload as usize), (l4, payload), "{proto}, {cut}");
            }
        }
    }
}

fn the_udp_length_ends_the_datagram() {
    for length in 0..50_u8 {
        for (l4, packet) in [(20, ipv4(17, &udp(9, &[7; 30]))), (40, ipv6(17, &udp(9, &[7; 30])))] {
            let mut bytes = packet;
            bytes[l4 + 5] = length;
            bytes.extend([0xee; 3]); // behind the IP packet
            let whole = bytes.len();
            for (link, at) in [(LinkType::RawIp, 0), (LinkType::Ethernet, 14)] {
                let kind = if l4 == 20 { 0x0800 } else { 0x86dd };
                let bytes = if at == 0 { bytes.clone() } else { ethernet(kind, &bytes) };
                let h = Headers::parse(link, &bytes);
                let (fault, end) = match length {
                    8..=38 => (None, at + l4 + usize::from(length)),
                    _ => (Some(Fault::BadUdpLength), at + whole - 3),
                };
                assert_eq!((h.fault, h.end as usize), (fault, end), "{link:?}, length {length}");
                assert_eq!(h.ports, Some((0x1000, 9)));
                if fault.is_none() {
                    let segment = h.segment(&bytes).map(<[u8]>::len);
                    assert_eq!(segment, Some(length.into()), "{link:?}, length {length}");
                }
            }
        }
    }
}

fn as_many_tags_labels_and_extensions_as_are_allowed() {
    let packet = ipv4(6, &tcp());
    for count in 1..=18_u8 {
        let n = usize::from(count);
        let mut tags = [0, 1, 0x81, 0].repeat(n - 1);
        tags.extend([0, 1, 8, 0]);
        let h =
            Headers::parse(LinkType::Ethernet, &ethernet(0x8100, &[&tags[..], &packet].concat()));
        let fault = (count > 16).then_some(Fault::TooManyTags);
        assert_eq!((h.fault, h.tags.count), (fault, count.min(16)), "{count} tags");
        assert_eq!(h.tags.ids().count(), n.min(4));

        let mut labels = [0, 1, 0, 64].repeat(n - 1);
        labels.extend([0, 1, 1, 64]);
        let bytes = ethernet(0x8847, &[&labels[..], &packet].concat());
        let h = Headers::parse(LinkType::Ethernet, &bytes);
        let fault = (count > 16).then_some(Fault::TooManyLabels);
        assert_eq!((h.fault, h.labels.count), (fault, count.min(16)), "{count} labels");
        assert_eq!(h.labels.ids().collect::<Vec<_>>(), vec![16; n.min(4)]);

        let mut extensions = [60, 0, 0, 0, 0, 0, 0, 0].repeat(n - 1);
        extensions.extend([6, 0, 0, 0, 0, 0, 0, 0]);
        let h = Headers::parse(LinkType::RawIp, &ipv6(60, &[extensions, tcp()].concat()));
        let fault = (count > 16).then_some(Fault::TooManyExtensions);
        assert_eq!(h.fault, fault, "{count} extension headers");
    }
}

fn the_protocol_field_of_a_tunnel_says_what_is_inside() {
    let next = |packet: Vec<u8>| {
        let h = Headers::parse(LinkType::RawIp, &packet);
        assert_eq!(h.fault, None);
        h.next
    };
    let ether_types = [
        (0x0800, Next::Ipv4),
        (0x86dd, Next::Ipv6),
        (0x6558, Next::Ethernet),
        (0x8847, Next::EtherType(0x8847)),
        (0x0806, Next::EtherType(0x0806)),
        (1501, Next::EtherType(1501)),
        (1500, Next::None),
        (0, Next::None),
    ];
    for (eth_type, inside) in ether_types {
        let [high, low] = u16::to_be_bytes(eth_type);
        let payload = [0x45; 24];
        let gre = [&[0, 0, high, low][..], &payload].concat();
        assert_eq!(next(ipv4(47, &gre)), inside, "GRE with {eth_type:#x}");
        let geneve = [&[0, 0, high, low, 0, 0, 1, 0][..], &payload].concat();
        assert_eq!(next(ipv4(17, &udp(6081, &geneve))), inside, "Geneve with {eth_type:#x}");
        let mut later = geneve.clone();
        later[0] = 0x40;
        assert_eq!(next(ipv4(17, &udp(6081, &later))), Next::None, "Geneve of another version");
    }
    // PPP, in version 0 and in both kinds of version 1.
    for (header, inside) in [
        (&[0, 0, 0x88, 0x0b][..], Next::Ppp),
        (&[0x10, 1, 0x88, 0x0b, 0, 0, 0, 1], Next::Ppp),
        (&[0, 0x81, 0x88, 0x0b, 0, 0, 0, 1], Next::None),
    ] {
        assert_eq!(next(ipv4(47, header)), inside, "{header:x?}");
    }
    for protocol in 0..=7 {
        let with = |flags: u8| next(ipv4(17, &udp(4790, &[flags, 0, 0, protocol, 0, 0, 1, 0])));
        let inside = match protocol {
            1 => Next::Ipv4,
            2 => Next::Ipv6,
            3 => Next::Ethernet,
            5 => Next::EtherType(0x8847),
            _ => Next::None,
        };
        assert_eq!(with(0x0c), inside, "VXLAN-GPE with {protocol}");
        assert_eq!(with(0x08), Next::Ethernet, "VXLAN-GPE without a next protocol");
        assert_eq!(with(0x04), Next::None, "VXLAN-GPE without a network identifier");
        assert_eq!(next(ipv4(17, &udp(4789, &[0xf7, 0, 0, protocol, 0, 0, 1, 0]))), Next::None);
    }
    for kind in 0..32_u8 {
        let mut header = vec![0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20, 1, 0xfc, 0x66];
        header.extend([0, 0, 0, 0, 0, 0, 0x80 | kind << 2, 0]);
        let inside = match kind {
            0 => Next::Ethernet,
            2 => Next::Ip,
            _ => Next::None,
        };
        assert_eq!(next(ipv4(47, &header)), inside, "ERSPAN III with {kind}");
    }
    assert_eq!(next(ipv4(97, &[0x20, 0])), Next::None, "EtherIP of another version");
}

fn a_gtp_packet_is_behind_its_extensions() {
    let gtp = |header: &[u8]| {
        let packet = ipv4(6, &tcp());
        let bytes = ipv4(17, &udp(2152, &[header, &packet[..]].concat()));
        let h = Headers::parse(LinkType::RawIp, &bytes);
        assert_eq!(h.fault, None);
        (h.next, h.payload as usize - 28)
    };
    let chain = |count: usize| {
        let mut header = vec![0x34, 255, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0x85];
        header.extend([1, 0, 0, 0x85].repeat(count - 1));
        header.extend([1, 0, 0, 0]);
        header
    };
    for count in 1..=8 {
        assert_eq!(gtp(&chain(count)), (Next::Ip, 12 + 4 * count), "{count} extensions");
    }
    assert_eq!(gtp(&chain(9)), (Next::None, 0), "more than are parsed");
    let mut empty = chain(1);
    empty[12] = 0;
    assert_eq!(gtp(&empty), (Next::None, 0), "an extension without a length");
    for flags in [0x31, 0x32, 0x33] {
        // Without the E bit, the type of the next extension has no meaning.
        let header = [flags, 255, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0x85];
        assert_eq!(gtp(&header), (Next::Ip, 12), "flags {flags:#x}");
    }
    assert_eq!(gtp(&[0x30, 255, 0, 0, 0, 0, 0, 5]), (Next::Ip, 8));
    assert_eq!(gtp(&[0x30, 254, 0, 0, 0, 0, 0, 5]), (Next::None, 0), "an end marker");
    for flags in [0x20, 0x50, 0x10, 0xb0] {
        assert_eq!(gtp(&[flags, 255, 0, 0, 0, 0, 0, 5]), (Next::None, 0), "flags {flags:#x}");
    }
}

fn options_of_an_extension_are_found_behind_others() {
    // A destination option header of 32 bytes: its home address stands behind other options.
    let home = |options: &[u8]| {
        let mut header = vec![6, 3];
        header.extend(options);
        header.resize(32, 0);
        let h = Headers::parse(LinkType::RawIp, &ipv6(60, &[header, tcp()].concat()));
        assert_eq!((h.fault, h.ports), (None, Some((80, 81))), "{options:?}");
        h.home_address
    };
    let address = [&[0xc9, 16][..], &[7; 16]].concat();
    assert_eq!(home(&address), 44);
    assert_eq!(home(&[&[0, 0, 0][..], &address].concat()), 47, "behind single bytes of padding");
    assert_eq!(home(&[&[1, 4, 0, 0, 0, 0][..], &address].concat()), 50, "behind padding");
    assert_eq!(home(&[&[1, 10][..], &[0; 10], &address].concat()), 56, "to the last byte");
    assert_eq!(home(&[&[1, 11][..], &[0; 11], &address].concat()), 0, "past the header");
    assert_eq!(home(&[&[0xc9, 15][..], &[7; 15]].concat()), 0, "of another length");
    assert_eq!(home(&[&[0xc8, 16][..], &[7; 16]].concat()), 0, "another option");
    // A routing header has a home address only if it is of type 2, and as long as one address needs.
    for (kind, words, at) in [(2, 2, 48), (2, 1, 0), (0, 2, 0), (4, 2, 0)] {
        let mut header = vec![6, words, kind, 1];
        header.resize(8 + 8 * usize::from(words), 0);
        let h = Headers::parse(LinkType::RawIp, &ipv6(43, &[header, tcp()].concat()));
        assert_eq!((h.fault, h.routing2), (None, at), "type {kind}, {words} words");
    }
    // The authentication header's fixed part has 12 bytes; its length counts words of 4, less two.
    for (words, fault) in [(0, Some(Fault::BadAuthLength)), (1, None), (2, None)] {
        let mut header = vec![6, words, 0, 0];
        header.resize(4 * (usize::from(words) + 2), 0);
        let packet = ipv4(51, &[header, tcp()].concat());
        assert_eq!(Headers::parse(LinkType::RawIp, &packet).fault, fault, "{words} words");
    }
}

fn ppp_and_llc_in_all_their_forms() {
    let (v4, v6) = (ipv4(6, &tcp()), ipv6(6, &tcp()));
    let mpls = [&[0, 1, 1, 64], &v4[..]].concat();
    for control in [&[][..], &[0xff, 3]] {
        for (protocol, payload, l3, is_ip) in [
            (&[0, 0x21][..], &v4, 0, true),
            (&[0x21], &v4, 0, true),
            (&[0, 0x57], &v6, 0, true),
            (&[0x57], &v6, 0, true),
            (&[2, 0x81], &mpls, 4, true),
            (&[2, 0x83], &mpls, 4, true),
            (&[0xc0, 0x21], &v4, 0, false),
            (&[0x2b], &v4, 0, false),
        ] {
            let session = [&[0x11, 0, 0, 7, 0, 99][..], control, protocol, payload].concat();
            let h = Headers::parse(LinkType::Ethernet, &ethernet(0x8864, &session));
            let at = 20 + control.len() + protocol.len() + l3;
            assert_eq!((h.fault, h.pppoe, h.l3 as usize), (None, Some(7), at), "{protocol:x?}");
            assert_eq!(h.ports.is_some(), is_ip, "{protocol:x?}");
        }
    }
    for version in [0x10, 0x01, 0x21, 0x12] {
        let session = [version, 0, 0, 7, 0, 99, 0, 0x21];
        let h = Headers::parse(LinkType::Ethernet, &ethernet(0x8864, &session));
        assert_eq!(h.fault, Some(Fault::BadPppoeVersion), "{version:#x}");
    }
    // 802.3: a length of at most 1500, then LLC. Only SNAP with an EtherType is followed.
    let snap =
        |eth_type: u16| [&[0xaa, 0xaa, 3, 0, 0, 0][..], &eth_type.to_be_bytes(), &v4].concat();
    for (length, inner, ports) in [
        (1500, 0x0800, Some((80, 81))),
        (1501, 0x0800, None),
        (0, 0x0800, Some((80, 81))),
        (60, 1500, None),
        (60, 0x86dd, None),
    ] {
        let h = Headers::parse(LinkType::Ethernet, &ethernet(length, &snap(inner)));
        assert_eq!(h.ports, ports, "length {length}, type {inner:#x}");
        let fault = (inner == 0x86dd).then_some(Fault::BadIpVersion);
        assert_eq!(h.fault, fault, "length {length}, type {inner:#x}");
    }
}
