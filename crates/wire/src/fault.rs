//! Why parsing stopped early.
//!
//! There are three families, distinguished by their names:
//! - `truncated_*`: the captured bytes end inside the header. If the captured length is less than the
//!   length on the wire, the capture's snaplen cut the frame; if they are equal, the frame is a runt.
//! - `*_past_length`: an outer length field (IP total length, UDP length) ends before the header does.
//!   The frame is malformed.
//! - all others: a field of the header contradicts its specification. The frame is malformed.

use std::fmt;

/// Declares each fault once: variant, counter name, sentence.
macro_rules! faults {
    ($($(#[$doc:meta])* $variant:ident, $name:literal, $sentence:literal;)*) => {
        /// Why parsing stopped early. Each fault has its own counter, see [`Fault::index`].
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
        #[repr(u8)]
        pub enum Fault {
            $($(#[$doc])* $variant,)*
        }

        impl Fault {
            /// Every fault, in the order of [`Fault::index`].
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name for counters and JSON, in snake case; it does not change between versions.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            const fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $sentence,)* }
            }
        }
    };
}

faults! {
    /// The frame has no bytes.
    Empty, "empty", "the frame has no bytes";
    /// The captured bytes end inside the link header (Ethernet, loopback, cooked, PPP).
    TruncatedLink, "truncated_link", "the captured bytes end inside the link header";
    /// The captured bytes end inside a VLAN tag.
    TruncatedTag, "truncated_tag", "the captured bytes end inside a VLAN tag";
    /// The captured bytes end inside an LLC or SNAP header.
    TruncatedLlc, "truncated_llc", "the captured bytes end inside the LLC or SNAP header";
    /// The captured bytes end inside an MPLS label stack entry.
    TruncatedLabel, "truncated_label", "the captured bytes end inside the MPLS label stack";
    /// The captured bytes end inside the PPPoE header or the PPP protocol after it.
    TruncatedPppoe, "truncated_pppoe", "the captured bytes end inside the PPPoE header";
    /// The captured bytes end inside an ARP packet.
    TruncatedArp, "truncated_arp", "the captured bytes end inside the ARP packet";
    /// The captured bytes end inside the IPv4 header with its options, or the IPv6 header.
    TruncatedIp, "truncated_ip", "the captured bytes end inside the IP header";
    /// The captured bytes end inside an IPv6 extension header or an authentication header.
    TruncatedExtension, "truncated_extension", "the captured bytes end inside an extension header";
    /// The captured bytes end inside the TCP, UDP, SCTP or ICMP header.
    TruncatedTransport, "truncated_transport", "the captured bytes end inside the transport header";
    /// The captured bytes end inside the tunnel's own header.
    TruncatedTunnel, "truncated_tunnel", "the captured bytes end inside the tunnel header";
    /// A tunnel's payload, by the outer lengths, is too short for its link header.
    LinkPastLength, "link_past_length", "the outer length is too short for the inner link header";
    /// A tunnel's payload, by the outer lengths, is too short for its IP header.
    IpPastLength, "ip_past_length", "the outer length is too short for the inner IP header";
    /// An extension header reaches past the IP length.
    ExtensionPastLength, "extension_past_length", "an extension header reaches past the IP length";
    /// The IP length is too short for the transport header.
    TransportPastLength, "transport_past_length", "the IP length is too short for the transport header";
    /// The outer length is too short for the tunnel's own header.
    TunnelPastLength, "tunnel_past_length", "the outer length is too short for the tunnel header";
    /// More VLAN tags than [`crate::Tags::LIMIT`].
    TooManyTags, "too_many_tags", "the frame has more VLAN tags than the limit";
    /// More MPLS labels than [`crate::Labels::LIMIT`].
    TooManyLabels, "too_many_labels", "the MPLS label stack has more entries than the limit";
    /// More extension headers than [`crate::Headers::MAX_EXTENSIONS`].
    TooManyExtensions, "too_many_extensions", "the packet has more extension headers than the limit";
    /// The PPPoE version or type is not 1 (RFC 2516 section 4).
    BadPppoeVersion, "bad_pppoe_version", "the PPPoE version or type is not 1";
    /// The IP version field is not the one that the layer below announces, or neither 4 nor 6.
    BadIpVersion, "bad_ip_version", "the IP version field is not the expected one";
    /// The IPv4 header length field is below 5 words (RFC 791 section 3.1).
    BadIpv4HeaderLength, "bad_ipv4_header_length", "the IPv4 header length is below 20 bytes";
    /// The IPv4 total length is not zero, yet below the header length.
    BadIpv4TotalLength, "bad_ipv4_total_length", "the IPv4 total length is below the header length";
    /// The authentication header is shorter than its fixed part (RFC 4302 section 2.2).
    BadAuthLength, "bad_auth_length", "the authentication header's length is below 12 bytes";
    /// A jumbo payload option that RFC 2675 section 3 forbids.
    BadJumboPayload, "bad_jumbo_payload", "the jumbo payload option contradicts RFC 2675";
    /// The TCP data offset is below 5 words, or past the end of the segment.
    BadTcpDataOffset, "bad_tcp_data_offset", "the TCP data offset does not fit the segment";
    /// The UDP length is below 8, or above what IP carries.
    BadUdpLength, "bad_udp_length", "the UDP length does not fit the datagram";
    /// The GRE version is neither 0 (RFC 2784) nor 1 (RFC 2637).
    BadGreVersion, "bad_gre_version", "the GRE version is neither 0 nor 1";
}

impl Fault {
    /// Number of faults: the size of an array of counters.
    pub const COUNT: usize = Self::ALL.len();

    /// The index of this fault in [`Fault::ALL`] and in an array of counters.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether the captured bytes ended too early, as opposed to a malformed frame. If the captured
    /// length is less than the length on the wire, the capture cut the frame; if they are equal, the
    /// frame was received that short.
    #[must_use]
    pub const fn is_truncation(self) -> bool {
        matches!(
            self,
            Self::Empty
                | Self::TruncatedLink
                | Self::TruncatedTag
                | Self::TruncatedLlc
                | Self::TruncatedLabel
                | Self::TruncatedPppoe
                | Self::TruncatedArp
                | Self::TruncatedIp
                | Self::TruncatedExtension
                | Self::TruncatedTransport
                | Self::TruncatedTunnel
        )
    }

    /// The fault for the same header when a length field ended it, not the capture.
    pub(crate) const fn past_length(self) -> Self {
        match self {
            Self::TruncatedIp => Self::IpPastLength,
            Self::TruncatedExtension => Self::ExtensionPastLength,
            Self::TruncatedTransport => Self::TransportPastLength,
            Self::TruncatedTunnel => Self::TunnelPastLength,
            _ => Self::LinkPastLength,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_the_place_in_the_list_and_names_are_unique() {
        for (i, fault) in Fault::ALL.iter().enumerate() {
            assert_eq!(fault.index(), i);
            assert!(fault.name().bytes().all(|b| b.is_ascii_lowercase() || b"_4".contains(&b)));
        }
        let names: std::collections::BTreeSet<_> = Fault::ALL.iter().map(|f| f.name()).collect();
        assert_eq!(names.len(), Fault::COUNT);
    }

    #[test]
    fn truncations_are_those_named_so() {
        for fault in Fault::ALL {
            let named = fault.name().starts_with("truncated_") || *fault == Fault::Empty;
            assert_eq!(fault.is_truncation(), named, "{}", fault.name());
            assert!(!fault.past_length().is_truncation());
        }
    }
}
