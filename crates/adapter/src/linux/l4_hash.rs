//! Whether Linux takes the hash of the adapter for steering.
//!
//! A driver hands over a hash with its type (`skb_set_hash`). `skb_get_hash`, which RPS, RFS and accelerated RFS call,
//! keeps a hash of type L4 and replaces any other by the [`SoftHash`](super::SoftHash), which covers the ports.

use flowyard_frame::{FlowKey, Frag, proto};

use crate::Rss;

/// Whether the driver of this name (`ixgbe`) marks the hash of a frame as one of type L4.
///
/// ixgbe, igc, mlx5, bnxt and virtio go by the hash type that the adapter reports, hence by the hashed fields. i40e and
/// ice go by the packet type, whatever fields are hashed (`I40E_PTT(..., PAY4)`, also for ICMP), and so do ena
/// (`ena_set_rx_hash`) and gve with queues of format GQI (`gve_rss_type`). igb marks every hash as L3 (`igb_rx_hash`). No
/// driver marks that of a fragment.
#[must_use]
#[inline]
pub fn is_l4_hash(driver: &str, rss: &Rss, key: &FlowKey) -> bool {
    if key.fragment() != Frag::No {
        return false;
    }
    let is_tcp_or_udp = matches!(key.proto, proto::TCP | proto::UDP);
    match driver {
        "igb" => false,
        "i40e" | "ice" => {
            is_tcp_or_udp || matches!(key.proto, proto::SCTP | proto::ICMP | proto::ICMPV6)
        }
        "ena" | "gve" => is_tcp_or_udp,
        _ => rss.hashes_ports(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Profile, RssConfig};

    /// What the drivers pass to `skb_set_hash`, for TCP, UDP, SCTP and ICMP with the fields that are hashed by default.
    #[test]
    fn drivers_mark_hashes_as_their_sources_say() {
        let ip = |x| std::net::Ipv4Addr::new(10, 0, 0, x).into();
        let protocols = [proto::TCP, proto::UDP, proto::SCTP, proto::ICMP];
        for (name, marked) in [
            ("x520", [true, false, false, false]),
            ("x550", [true, false, false, false]),
            ("x710", [true; 4]),
            ("e810", [true; 4]),
            ("mlx5", [true, true, false, false]),
            ("i210", [false; 4]),
            ("igc", [true, false, false, false]),
            ("bnxt", [true, true, false, false]),
            ("ena", [true, true, false, false]),
            ("gve", [true, true, false, false]),
            ("virtio", [true, true, false, false]),
        ] {
            let profile = Profile::find(name).unwrap();
            let rss = Rss::new(profile, 4, RssConfig::default()).unwrap();
            for (protocol, marked) in protocols.into_iter().zip(marked) {
                let key = FlowKey::five_tuple(protocol, ip(1), 4000, ip(2), 53);
                assert_eq!(
                    is_l4_hash(profile.driver, &rss, &key),
                    marked,
                    "{name}, protocol {protocol}"
                );
                for frag in [1, 2] {
                    assert!(!is_l4_hash(profile.driver, &rss, &FlowKey { frag, ..key }), "{name}");
                }
            }
        }
    }
}
