use super::{four, six};

#[test]
fn default_routes_of_ipv4() {
    let table = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
        eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
        eth1\t00000000\t00000000\t0001\t0\t0\t0\t00000080\t0\t0\t0\n\
        *\t00000000\t00000000\t0200\t0\t0\t0\t00000000\t0\t0\t0\n\
        eth2\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n\
        wg0\t00000000\t00000000\t0001\t0\t0\t0\t00000000\t0\t0\t0\n\
        torn\t00000000\n\n";
    assert_eq!(four(table).collect::<Vec<_>>(), ["eth0", "wg0"]);
    assert_eq!(four("").count(), 0);
}

#[test]
fn default_routes_of_ipv6() {
    let zero = "0".repeat(32);
    let line = |to: &str, len: &str, flags: &str, name: &str| {
        format!("{to} {len} {zero} 00 {zero} 00000400 00000001 00000000 {flags} {name}\n")
    };
    let table = [
        line(&zero, "00", "00450003", "eth0"),
        line(&zero, "00", "00200200", "lo"),
        line(&zero, "01", "00000001", "eth1"),
        line("fd090000000000000000000000000000", "40", "00000001", "eth2"),
        format!("{zero} 00\n\n"),
    ]
    .concat();
    assert_eq!(six(&table).collect::<Vec<_>>(), ["eth0"]);
}
