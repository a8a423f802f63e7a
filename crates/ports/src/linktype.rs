//! Names and numbers of link types, from the LINKTYPE_* registry (tcpdump.org).

use flowyard_wire::LinkType;

/// The supported link types in words.
pub const READ: &str = "Ethernet, raw IP, BSD loopback and Linux cooked captures";

/// The registry number that is written to captures for `link`.
#[must_use]
pub const fn number(link: LinkType) -> u16 {
    match link {
        LinkType::Null => 0,
        LinkType::Ethernet => 1,
        LinkType::RawIp => 101,
        LinkType::Loop => 108,
        LinkType::LinuxSll => 113,
        LinkType::Ipv4 => 228,
        LinkType::Ipv6 => 229,
        LinkType::LinuxSll2 => 276,
    }
}

/// The link type with this number, if it is supported. The registry has 16 bits; larger numbers are
/// never supported.
#[must_use]
pub(crate) fn read(number: u32) -> Option<LinkType> {
    LinkType::from_registry(u16::try_from(number).ok()?)
}

/// The registry's name for `number`; `unknown` if this table has no entry.
#[must_use]
pub fn name(number: u32) -> &'static str {
    if let 147..=162 = number {
        return "USER0 to USER15, private use";
    }
    NAMES.binary_search_by_key(&number, |entry| entry.0).map_or("unknown", |i| NAMES[i].1)
}

/// Sorted by number.
const NAMES: &[(u32, &str)] = &[
    (0, "NULL"),
    (1, "ETHERNET"),
    (3, "AX25"),
    (6, "IEEE802_5"),
    (7, "ARCNET_BSD"),
    (8, "SLIP"),
    (9, "PPP"),
    (10, "FDDI"),
    (12, "RAW"),
    (14, "RAW"),
    (50, "PPP_HDLC"),
    (51, "PPP_ETHER"),
    (100, "ATM_RFC1483"),
    (101, "RAW"),
    (104, "C_HDLC"),
    (105, "IEEE802_11"),
    (107, "FRELAY"),
    (108, "LOOP"),
    (113, "LINUX_SLL"),
    (114, "LTALK"),
    (117, "PFLOG"),
    (119, "IEEE802_11_PRISM"),
    (122, "IP_OVER_FC"),
    (123, "SUNATM"),
    (127, "IEEE802_11_RADIOTAP"),
    (129, "ARCNET_LINUX"),
    (130, "JUNIPER_MLPPP"),
    (131, "JUNIPER_MLFR"),
    (132, "JUNIPER_ES"),
    (133, "JUNIPER_GGSN"),
    (134, "JUNIPER_MFR"),
    (135, "JUNIPER_ATM2"),
    (136, "JUNIPER_SERVICES"),
    (137, "JUNIPER_ATM1"),
    (138, "APPLE_IP_OVER_IEEE1394"),
    (139, "MTP2_WITH_PHDR"),
    (140, "MTP2"),
    (141, "MTP3"),
    (142, "SCCP"),
    (143, "DOCSIS"),
    (144, "LINUX_IRDA"),
    (163, "IEEE802_11_AVS"),
    (164, "JUNIPER_MONITOR"),
    (165, "BACNET_MS_TP"),
    (166, "PPP_PPPD"),
    (167, "JUNIPER_PPPOE"),
    (168, "JUNIPER_PPPOE_ATM"),
    (169, "GPRS_LLC"),
    (177, "LINUX_LAPD"),
    (178, "JUNIPER_ETHER"),
    (179, "JUNIPER_PPP"),
    (180, "JUNIPER_FRELAY"),
    (181, "JUNIPER_CHDLC"),
    (182, "MFR"),
    (183, "JUNIPER_VP"),
    (187, "BLUETOOTH_HCI_H4"),
    (189, "USB_LINUX"),
    (192, "PPI"),
    (195, "IEEE802_15_4_WITHFCS"),
    (197, "ERF"),
    (201, "BLUETOOTH_HCI_H4_WITH_PHDR"),
    (202, "AX25_KISS"),
    (203, "LAPD"),
    (204, "PPP_WITH_DIR"),
    (205, "C_HDLC_WITH_DIR"),
    (206, "FRELAY_WITH_DIR"),
    (215, "IEEE802_15_4_NONASK_PHY"),
    (220, "USB_LINUX_MMAPPED"),
    (224, "FC_2"),
    (226, "IPNET"),
    (227, "CAN_SOCKETCAN"),
    (228, "IPV4"),
    (229, "IPV6"),
    (230, "IEEE802_15_4_NOFCS"),
    (231, "DBUS"),
    (239, "NFLOG"),
    (240, "NETANALYZER"),
    (241, "NETANALYZER_TRANSPARENT"),
    (242, "IPOIB"),
    (243, "MPEG_2_TS"),
    (247, "INFINIBAND"),
    (248, "SCTP"),
    (249, "USBPCAP"),
    (251, "BLUETOOTH_LE_LL"),
    (252, "WIRESHARK_UPPER_PDU"),
    (253, "NETLINK"),
    (254, "BLUETOOTH_LINUX_MONITOR"),
    (256, "BLUETOOTH_LE_LL_WITH_PHDR"),
    (258, "PKTAP"),
    (259, "EPON"),
    (266, "USB_DARWIN"),
    (271, "VSOCK"),
    (272, "NORDIC_BLE"),
    (274, "ETHERNET_MPACKET"),
    (276, "LINUX_SLL2"),
    (283, "IEEE802_15_4_TAP"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_answers() {
        assert!(NAMES.is_sorted_by_key(|entry| entry.0));
        assert_eq!(name(127), "IEEE802_11_RADIOTAP");
        assert_eq!(name(150), "USER0 to USER15, private use");
        assert_eq!(name(0x0001_0001), "unknown");
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        for number in 0..=u16::MAX {
            let Some(link) = read(u32::from(number)) else { continue };
            let raw = link == LinkType::RawIp;
            assert!(super::number(link) == number || raw && matches!(number, 12 | 14));
            assert_ne!(name(u32::from(number)), "unknown", "{number}");
        }
    }
}
