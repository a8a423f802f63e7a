//! Metrics of an IPsec gateway: counters by SA, without keys.

use flowyard_yard::Handle;

use super::text::Page;
use crate::ipsec;

/// The counters of an SA: the name, and what it counts.
const SA: [(&str, &str); 9] = [
    (
        "packets",
        "Counts the packets that the security association sealed, or opened and found authentic.",
    ),
    ("bytes", "Counts the bytes of these packets, with the outer IP header."),
    ("replayed", "Counts the packets whose sequence number was accepted before."),
    ("late", "Counts the packets whose sequence number was below the anti-replay window."),
    ("unauthentic", "Counts the packets whose integrity check value was wrong."),
    (
        "malformed",
        "Counts the authentic packets whose contents did not fit the mode, and packets that were too short.",
    ),
    ("dummies", "Counts the dummy packets (next header 59), which carry nothing."),
    ("expired", "Counts the packets that were refused because of a hard limit."),
    ("soft_limits", "Counts the soft limits that were passed."),
];

/// Counters that belong to no SA.
const TOTALS: [(&str, &str); 7] = [
    ("keepalives", "Counts the keepalives of NAT that arrived."),
    ("ike", "Counts the messages of IKE that passed."),
    ("bypassed", "Counts the packets that passed unprotected."),
    (
        "too_big_sent",
        "Counts the ICMP errors that were sent because a packet exceeded the MTU of its tunnel.",
    ),
    ("cut", "Counts the long frames that were cut into packets, to be sealed or opened."),
    ("segments", "Counts the packets of these frames."),
    ("checksums", "Counts the checksums that were completed before a packet was sealed or opened."),
];

/// Writes the metrics of a gateway; none if the engine does not run one.
pub(super) fn page(page: &mut Page, yard: &Handle) {
    let Ok(all) = ipsec::sas(yard) else { return };
    for (counter, help) in SA {
        let name = format!("ipsec_sa_{counter}_total");
        page.metric(&name, "counter", help);
        for sa in &all.sas {
            let spi = format!("{:#010x}", sa.spi);
            let value = sa.counters.get(counter).copied().unwrap_or(0);
            page.sample(
                &name,
                &[("dst", &sa.dst), ("spi", &spi), ("direction", &sa.direction)],
                value,
            );
        }
    }
    let name = "ipsec_sa_usable";
    page.metric(
        name,
        "gauge",
        "Is 1 if the security association carries packets, and 0 if it has reached a limit.",
    );
    for sa in &all.sas {
        let spi = format!("{:#010x}", sa.spi);
        let labels: [(&str, &dyn std::fmt::Display); 3] =
            [("dst", &sa.dst), ("spi", &spi), ("direction", &sa.direction)];
        page.sample(name, &labels, u8::from(sa.is_usable));
    }
    for (counter, help) in TOTALS {
        let name = format!("ipsec_{counter}_total");
        page.metric(&name, "counter", help);
        page.sample(&name, &[], all.counters.get(counter).copied().unwrap_or(0));
    }
}
