//! Explicit congestion notification in tunnels (RFC 6040).

/// The bits of the ECN field in the traffic class.
const ECN: u8 = 3;
const NOT_ECT: u8 = 0;
const ECT_1: u8 = 1;
const CE: u8 = 3;

/// The traffic class of the outer header: DSCP and ECN of the inner one (RFC 6040 section 4.1, normal mode).
pub(crate) const fn outer(inner: u8, no_dscp: bool, no_ecn: bool) -> u8 {
    let dscp = if no_dscp { 0 } else { inner & !ECN };
    let ecn = if no_ecn { 0 } else { inner & ECN };
    dscp | ecn
}

/// The ECN field of the packet that leaves the tunnel (RFC 6040 section 4.2); `None` if it must be dropped: a router
/// reported congestion to a sender that would not learn of it.
pub(crate) const fn inner(inner: u8, outer: u8) -> Option<u8> {
    match (inner & ECN, outer & ECN) {
        (NOT_ECT, CE) => None,
        (NOT_ECT, _) => Some(NOT_ECT),
        (_, CE) => Some(CE),
        (ecn, ECT_1) if ecn != CE => Some(ECT_1),
        (ecn, _) => Some(ecn),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figure 4 of RFC 6040: rows are the inner field, columns the outer one, in the order not-ECT, ECT(0), ECT(1), CE.
    #[test]
    fn the_table_of_rfc_6040() {
        const NO: u8 = 0;
        const E0: u8 = 2;
        const E1: u8 = 1;
        let table = [
            (NO, [Some(NO), Some(NO), Some(NO), None]),
            (E0, [Some(E0), Some(E0), Some(E1), Some(CE)]),
            (E1, [Some(E1), Some(E1), Some(E1), Some(CE)]),
            (CE, [Some(CE), Some(CE), Some(CE), Some(CE)]),
        ];
        for (row, wanted) in table {
            let got = [NO, E0, E1, CE].map(|column| inner(row, column));
            assert_eq!(got, wanted, "inner {row}");
            assert_eq!(
                [outer(0xb8 | row, false, false), outer(0xb8 | row, true, false)],
                [0xb8 | row, row]
            );
            assert_eq!(outer(0xb8 | row, false, true), 0xb8);
        }
    }
}
