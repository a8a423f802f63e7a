//! Words whose meaning depends on others, and what is said about wrong ones.

use super::*;

/// `icmp_type`, `nw_src` and `tp_src` mean the field of the protocol that the match names.
#[test]
fn the_kind_of_frames_selects_the_field_that_a_name_means() {
    let last = |text: &str| {
        let m = add(&format!("{text},actions=drop")).matching.normal();
        m.0.into_iter()
            .filter(|oxm| !matches!(oxm.field, Field::EthType | Field::IpProto))
            .map(|oxm| (oxm.field, oxm.value))
            .collect::<Vec<_>>()
    };
    for (text, field, value) in [
        ("icmp,icmp_type=8", Field::Icmpv4Type, 8),
        ("icmp,icmp_code=3", Field::Icmpv4Code, 3),
        ("icmp6,icmp_type=135", Field::Icmpv6Type, 135),
        ("icmp6,icmp_code=3", Field::Icmpv6Code, 3),
        ("icmp6,icmpv6_code=3", Field::Icmpv6Code, 3),
        ("ipv6,nw_proto=58,icmp_code=4", Field::Icmpv6Code, 4),
        ("icmp,tp_src=8", Field::Icmpv4Type, 8),
        ("icmp,tp_dst=3", Field::Icmpv4Code, 3),
        ("tcp,tp_src=7", Field::TcpSrc, 7),
        ("tcp,tp_dst=7", Field::TcpDst, 7),
        ("tcp6,tp_src=7", Field::TcpSrc, 7),
        ("udp,tp_src=7", Field::UdpSrc, 7),
        ("udp6,tp_dst=7", Field::UdpDst, 7),
        ("sctp,tp_src=7", Field::SctpSrc, 7),
        ("sctp6,tp_dst=7", Field::SctpDst, 7),
        ("ip,nw_src=10.0.0.1", Field::Ipv4Src, 0x0a00_0001),
        ("ip,nw_dst=10.0.0.1", Field::Ipv4Dst, 0x0a00_0001),
        ("arp,nw_src=10.0.0.1", Field::ArpSpa, 0x0a00_0001),
        ("arp,nw_dst=10.0.0.1", Field::ArpTpa, 0x0a00_0001),
        ("arp,nw_proto=2", Field::ArpOp, 2),
    ] {
        assert_eq!(last(text), [(field, value)], "{text}");
    }
    // Where the match names another kind, there is an error instead of another field.
    for text in [
        "icmp_type=8",
        "icmp_code=0",
        "tcp,icmp_type=8",
        "tcp6,icmp_code=0",
        "ipv6,icmp_code=0",
        "ip,nw_proto=58,icmp_code=0",
        "icmp,icmpv6_code=0",
        "icmp6,icmpv4_code=0",
        "icmp6,tp_src=1",
        "ip,tp_src=1",
        "arp,tp_dst=1",
        "ipv6,nw_src=10.0.0.1",
    ] {
        let text = format!("{text},actions=drop");
        assert!(flow(&text, FlowCommand::Add).is_err(), "{text}");
    }
}

/// The error for a meter that cannot be parsed.
fn refused_meter(text: &str) -> TextError {
    meter(text, MeterCommand::Add).expect_err(text)
}

#[test]
fn a_wrong_band_of_a_meter_is_named_with_what_to_write() {
    for (text, column, words) in [
        (
            "meter=3,kbps,band=type=drpo,rate=1",
            24,
            "'drpo': no such band; write drop or dscp_remark",
        ),
        ("meter=3,kbps,band=type=,rate=1", 24, "no such band; write drop or dscp_remark"),
        ("meter=3,kbps,band=type=drop", 19, "a band without rate; add rate=NUMBER"),
        ("meter=3,kbps,band=type=drop,rate=x", 34, "'x'"),
        ("meter=3,kbps,band=type=drop,rate=4294967296", 34, "4294967295"),
        ("meter=3,kbps,band=type=dscp_remark,rate=1,prec_level=256", 54, "255"),
        ("meter=3,kbps,band=type=drop,rate=1,burst=2", 36, "burst_size=NUMBER"),
        ("meter=3,kbps,band=type=drop,rate", 29, "rate=NUMBER"),
        ("meter=3,kbps,band=rate=1", 19, "no band; write type=drop,rate=NUMBER"),
        ("meter=3,kbps,band=x,type=drop,rate=1", 19, "no band"),
    ] {
        let error = refused_meter(text);
        assert!(error.to_string().contains(words), "{text}: {error}");
        assert_eq!(error.column, column, "{text}: {error}");
    }
    // Each `type` begins another band, and the order of the settings does not matter.
    let text =
        "meter=3,pktps,bands=type=dscp_remark,prec_level=2,rate=7,type=drop,burst_size=5,rate=9";
    let bands = meter(text, MeterCommand::Add).expect(text).bands;
    let remark = Band::DscpRemark { rate: 7, burst: 0, levels: 2 };
    assert_eq!(bands, [remark, Band::Drop { rate: 9, burst: 5 }]);
}
