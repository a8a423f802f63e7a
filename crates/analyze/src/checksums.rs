//! The verdicts on the checksums of a capture, counted.
//!
//! Thread-safety: plain counters.

use std::collections::BTreeMap;

use flowyard_wire::{Ends, Headers, Net, Next, Verdict};

use crate::summary::ChecksumCounts;

/// What a checksum is of, in the order of [`Checksums::counts`]; the second half is that of inner packets.
const NAMES: [&str; 6] = ["ipv4", "tcp", "udp", "sctp", "icmp", "icmpv6"];

/// Counters by name and verdict.
#[derive(Debug, Default)]
pub(crate) struct Checksums {
    counts: [[u64; Verdict::ALL.len()]; 2 * NAMES.len()],
}

/// The index of the transport in [`NAMES`].
fn transport(headers: &Headers) -> Option<usize> {
    match (headers.proto, headers.net) {
        (6, _) => Some(1),
        (17, _) => Some(2),
        (132, _) => Some(3),
        (1, Net::Ipv4) => Some(4),
        (58, Net::Ipv6) => Some(5),
        _ => None,
    }
}

impl Checksums {
    /// Verifies the checksums of a frame whose outermost level is `first`.
    #[inline]
    pub(crate) fn see(&mut self, first: &Headers, bytes: &[u8]) {
        if first.next != Next::None {
            return self.see_tunnel(first, bytes);
        }
        if matches!(first.net, Net::Ipv4 | Net::Ipv6) {
            self.count(first, first.ipv4_checksum(bytes), first.transport_verdict(bytes), 0);
        }
    }

    fn see_tunnel(&mut self, first: &Headers, bytes: &[u8]) {
        let ends = Ends::of(first, bytes);
        let verdicts = ends.verdicts(bytes);
        if let Some(outer) = ends.outer {
            self.count(&outer, verdicts.ip, verdicts.l4, 0);
        }
        if let Some(inner) = ends.inner {
            self.count(&inner, verdicts.inner_ip, verdicts.inner_l4, NAMES.len());
        }
    }

    /// Counts the verdicts of one end; its names begin at `base`.
    fn count(&mut self, headers: &Headers, ip: Verdict, l4: Verdict, base: usize) {
        if headers.net == Net::Ipv4 {
            self.counts[base][ip as usize] += 1;
        }
        // A later fragment has no transport header; a first one has, but not all that it covers.
        if let Some(of) = transport(headers).filter(|_| !headers.fragment.is_later()) {
            self.counts[base + of][l4 as usize] += 1;
        }
    }

    /// The counts of what there was, by name.
    pub(crate) fn summary(&self) -> BTreeMap<String, ChecksumCounts> {
        let name = |at: usize| match NAMES.get(at) {
            Some(name) => (*name).to_owned(),
            None => format!("inner_{}", NAMES[at - NAMES.len()]),
        };
        let seen =
            self.counts.iter().enumerate().filter(|(_, counts)| counts.iter().any(|n| *n > 0));
        seen.map(|(at, counts)| {
            let of = |verdict: Verdict| counts[verdict as usize];
            let counts = ChecksumCounts {
                good: of(Verdict::Good),
                bad: of(Verdict::Bad),
                partial: of(Verdict::Partial),
                not_checked: of(Verdict::NotChecked),
            };
            (name(at), counts)
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use flowyard_testkit::stacks::{Stack, Tunnel};
    use flowyard_wire::LinkType;

    use super::*;

    #[test]
    fn verdicts_are_counted_by_what_they_are_of() {
        let mut checksums = Checksums::default();
        let mut see = |bytes: &[u8]| {
            checksums.see(&Headers::parse(LinkType::Ethernet, bytes), bytes);
        };
        let plain = Stack { payload: vec![1; 9], ..Stack::tcp4() };
        see(&plain.frame());
        see(&plain.partial());
        let mut damaged = plain.frame();
        damaged[60] ^= 1;
        see(&damaged);
        see(&plain.frame()[..50]);
        let tunnel = vec![(true, Tunnel::Vxlan(true))];
        see(&Stack { tunnels: tunnel, tcp: false, ..plain }.frame());
        let counts =
            |good, bad, partial, not_checked| ChecksumCounts { good, bad, partial, not_checked };
        let want = [
            ("inner_ipv4", counts(1, 0, 0, 0)),
            ("inner_udp", counts(1, 0, 0, 0)),
            ("ipv4", counts(4, 0, 0, 0)),
            ("tcp", counts(1, 1, 1, 1)),
            ("udp", counts(1, 0, 0, 0)),
        ];
        let want = want.map(|(name, counts)| (name.to_owned(), counts));
        assert_eq!(checksums.summary(), BTreeMap::from(want));
    }
}
