use super::*;
use crate::vmdq::{L2, Spoof};

const WEB: [u8; 6] = [2, 0, 0, 0, 0, 1];
const ALL: [u8; 6] = [0xff; 6];

fn file(text: &str) -> Tenants {
    parse("tenants.txt", text).unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// The switch of an 82599.
fn card(text: &str) -> Vmdq {
    file(text).card(false).unwrap().0
}

fn to(dst: [u8; 6], tci: Option<u16>) -> L2 {
    L2 { dst, src: [2, 0, 0, 0, 9, 9], tci, eth_type: 0x0800 }
}

#[test]
fn tenants_sort_by_address_and_vlan() {
    let card = card(
        "tenant web pool 1 mac 02:00:00:00:00:01 vlan 42 # the first\n\
         tenant db pool 2 mac 2:0:0:0:0:1 vlan 43 untagged off\n",
    );
    let of = |tci| card.receive(&to(WEB, tci)).pools;
    assert_eq!([of(Some(42)), of(Some(0x6000 | 43)), of(None)], [2, 4, 2]);
    assert_eq!(of(Some(44)), 0, "no tenant has the VLAN");
    assert_eq!(card.receive(&to(ALL, Some(43))).pools, 4);
}

#[test]
fn ip_link_sets_virtual_functions() {
    let tenants = file(
        "ip link set eth0 vf 0 mac 02:00:00:00:00:01\n\
         ip link set dev eth0 vf 0 vlan 7 qos 2 proto 802.1Q\n\
         ip link set eth0 vf 1 mac 02:00:00:00:00:02 spoofchk off trust on max_tx_rate 500\n\
         ip link set eth0 vf 2 state disable\n",
    );
    assert_eq!(tenants.virtual_functions(), 3);
    assert_eq!(tenants.layout(), Layout::Rss32x4);
    assert_eq!(tenants.default_pool(), Some(3), "the pool of the physical function");
    let of = |vf: usize| &tenants.tenants[vf];
    assert_eq!((of(0).port_vlan, of(0).spoofchk), (Some(2 << 13 | 7), true));
    assert_eq!((of(1).spoofchk, of(1).trust, of(1).rate), (false, true, Some(500)));
    let card = tenants.card(false).unwrap().0;
    // The first has a port VLAN: its frames get the tag, and only tagged ones reach it.
    let sent = card.transmit(0, &L2 { src: WEB, ..to(ALL, None) });
    assert_eq!((sent.tci, sent.dropped), (Some(2 << 13 | 7), None));
    assert_eq!(card.transmit(0, &to(ALL, None)).dropped, Some(Spoof::Mac));
    assert_eq!(card.transmit(1, &to(ALL, None)).dropped, None, "spoofchk off");
    assert_eq!(card.transmit(2, &to(ALL, None)).dropped, Some(Spoof::Disabled));
    assert_eq!(card.receive(&to(WEB, Some(7))).pools, 1);
    assert_eq!(
        card.receive(&to(WEB, None)).pools,
        1 << 3,
        "untagged goes to the physical function"
    );
}

#[test]
fn a_later_line_of_ip_link_replaces_an_earlier_one() {
    let tenants = file(
        "ip link set eth0 vf 0 mac 02:00:00:00:00:01 vlan 7\n\
         ip link set eth0 vf 0 mac 02:00:00:00:00:02 vlan 0\n\
         tenant web vf 0 broadcast off\n",
    );
    let [tenant] = &tenants.tenants[..] else { panic!("{tenants:?}") };
    assert_eq!((&*tenant.name, &tenant.macs[..]), ("web", &[[2, 0, 0, 0, 0, 2]][..]));
    assert_eq!((tenant.port_vlan, tenant.broadcast), (None, false));
}

#[test]
fn ixgbe_chooses_the_layout() {
    assert_eq!(file("ip link set eth0 vf 30 trust on").layout(), Layout::Rss32x4);
    assert_eq!(file("ip link set eth0 vf 31 trust on").layout(), Layout::Rss64x2);
    assert_eq!(file("tenant a pool 3").layout(), Layout::Rss64x2);
    assert_eq!(file("layout dcb16x8\ntenant a pool 3").layout(), Layout::Dcb16x8);
}

/// ixgbe gives an untrusted virtual function no promiscuous mode, and the 82599 has none.
#[test]
fn what_the_driver_refuses_is_a_remark() {
    let texts = |text: &str, has_promiscuous| {
        let remarks = file(text).card(has_promiscuous).unwrap().1;
        remarks.into_iter().map(|remark| remark.text).collect::<Vec<_>>()
    };
    let untrusted = texts("tenant a vf 0 promiscuous on", true);
    assert!(untrusted[0].contains("not trusted"), "{untrusted:?}");
    let old = texts("tenant a vf 0 trust on promiscuous on", false);
    assert!(old[0].contains("cannot be promiscuous"), "{old:?}");
    assert_eq!(texts("tenant a vf 0 trust on promiscuous on multicast all", true), [""; 0]);
}

#[test]
fn mirrors_and_groups() {
    let card = card(
        "tenant a pool 1 mac 02:00:00:00:00:01 mac 01:00:5e:00:00:05 vlan 42\n\
         tenant ids pool 9 untagged off broadcast off\n\
         mirror pool 1 to pool 9\n\
         mirror vlan 42 to 10\n\
         default none\n",
    );
    assert_eq!(card.receive(&to([1, 0, 0x5e, 0, 0, 5], None)).pools, 1 << 1 | 1 << 9);
    assert_eq!(card.receive(&to(WEB, Some(42))).pools, 1 << 1 | 1 << 9 | 1 << 10);
    assert_eq!(card.receive(&to([1, 0, 0x5e, 0, 0x10, 5], None)).pools, 0);
}

#[test]
fn the_answer_says_who_and_why() {
    let tenants = file(
        "tenant web pool 1 mac 02:00:00:00:00:01 vlan 42 queues 1\ntenant db pool 2 mac 02:00:00:00:00:02",
    );
    let card = tenants.card(false).unwrap().0;
    let answer = tenants.answer(&card, &to(WEB, Some(42)), 5);
    let web = Copy { pool: 1, tenant: Some("web".to_owned()), queue: 2 };
    assert_eq!(answer.copies, [web]);
    assert_eq!(answer.why, ["the destination address is a filter of web (pool 1) (step 1)"]);
    let answer = tenants.answer(&card, &to(ALL, None), 5);
    assert_eq!(answer.copies.iter().map(|copy| copy.queue).collect::<Vec<_>>(), [1, 2, 5]);
    let lost = tenants.answer(&card, &to([2, 0, 0, 0, 0, 7], None), 0);
    assert!(lost.copies.is_empty() && lost.why[0].contains("dropped"), "{lost:?}");
}

#[test]
fn the_management_controller() {
    let bmc = file("bmc mac 02:00:00:00:00:99 vlan 5 port 443 arp on rmcp on exclusive on").bmc;
    let bmc = bmc.unwrap();
    assert_eq!((bmc.macs.len(), &bmc.vlans[..], &bmc.ports[..]), (1, &[5][..], &[443][..]));
    assert!(bmc.arp && bmc.rmcp && bmc.exclusive && !bmc.broadcast);
}

/// Each line is refused at the column of the mistake, with this in the message.
#[test]
fn mistakes_are_reported_with_their_place() {
    for (line, col, what) in [
        ("tennant a pool 1", 1, "does not start a line"),
        ("tenant a pool 64", 15, "too large"),
        ("tenant a vf 63", 13, "too large"),
        ("tenant a", 9, "no value"),
        ("tenant a queue 1", 10, "not a place"),
        ("tenant a pool 1 mac 02:00:00", 21, "not a valid MAC"),
        ("tenant a pool 1 mac ff:ff:ff:ff:ff:ff", 17, "no address"),
        ("tenant a pool 1 vlan 0", 22, "no VLAN"),
        ("tenant a pool 1 vlan 4095", 22, "too large"),
        ("tenant a pool 1 trust yes", 23, "on or off"),
        ("tenant a pool 1 colour red", 17, "no option"),
        ("tenant a pool 1 rate 5", 22, "refuses a rate"),
        ("tenant a pool 1 queues 3", 24, "not a queues"),
        ("layout 8x8", 8, "not a layout"),
        ("mirror pool 1", 14, "no value"),
        ("mirror pool 1 pool 2", 15, "ends with"),
        ("mirror all to pool 1", 8, "cannot be mirrored"),
        ("bmc ip 10.0.0.1", 5, "no option"),
        ("default none 3", 14, "unexpected word"),
        ("ip route", 1, "only `ip link set`"),
        ("ip link set eth0 up", 13, "no virtual function"),
        ("ip link set eth0 vf 0", 13, "nothing is set"),
        ("ip link set eth0 vf 0 mac 01:00:00:00:00:01", 23, "group address"),
        ("ip link set eth0 vf 0 vlan 7 qos 8", 34, "too large"),
        ("ip link set eth0 vf 0 vlan 7 proto 802.1ad", 36, "EPROTONOSUPPORT"),
        ("ip link set eth0 vf 0 min_tx_rate 50", 23, "no lowest rate"),
        ("ip link set eth0 vf 0 state up", 29, "not a state"),
    ] {
        let errors = parse("t", &format!("# a comment\n{line}\n")).unwrap_err();
        let [error] = &errors[..] else { panic!("{line}: {errors:?}") };
        assert_eq!((error.line, error.col), (2, col), "{error}");
        assert!(error.what.contains(what) && !error.fix.is_empty(), "{error}");
    }
}

#[test]
fn conflicts_between_lines_are_reported() {
    for (text, what) in [
        ("tenant a pool 1\ntenant b pool 1", "has this place already"),
        ("tenant vfirewall pool 1\ntenant b pool 1", "has this place already"),
        ("tenant a pool 1\ntenant b vf 1", "both have pool 1"),
        (
            "tenant a pool 1 mac 02:00:00:00:00:01\ntenant b pool 2 mac 02:00:00:00:00:01",
            "same address",
        ),
        (
            "tenant a pool 1 mac 02:00:00:00:00:01 vlan 3\ntenant b pool 2 mac 02:00:00:00:00:01 vlan 3 untagged off",
            "same address",
        ),
    ] {
        let errors = parse("t", text).unwrap_err();
        assert!(errors[0].line == 2 && errors[0].what.contains(what), "{errors:?}");
    }
}

#[test]
fn a_full_table_is_an_error_of_the_file() {
    let many: String = (1..=65).map(|vid| format!(" vlan {vid}")).collect();
    let errors = file(&format!("tenant a pool 1{many}")).card(false).unwrap_err();
    assert_eq!(errors[0].line, 1);
    assert!(errors[0].to_string().contains("64 VLAN filters"), "{errors:?}");
    let errors = file("layout 32x4\ntenant a pool 40").card(false).unwrap_err();
    assert!(errors[0].to_string().contains("no pool 40"), "{errors:?}");
}

#[test]
fn a_default_pool_that_the_layout_does_not_have_is_an_error() {
    for (text, line, pool) in [
        ("layout 32x4\ntenant a pool 1\ndefault pool 40", 3, 40),
        // The physical function would have the pool after the last virtual function.
        ("tenant a vf 31\nlayout 32x4", 1, 32),
    ] {
        let errors = file(text).card(false).unwrap_err();
        let [error] = &errors[..] else { panic!("{text}: {errors:?}") };
        assert_eq!(error.line, line, "{error}");
        assert!(
            error.what.contains(&format!("the default pool: there is no pool {pool}")),
            "{error}"
        );
    }
    assert!(file("layout 32x4\ntenant a vf 31\ndefault none").card(false).is_ok());
}

#[test]
fn a_mirrored_vlan_that_no_tenant_has_is_an_error() {
    let text = "tenant a pool 1 vlan 42\nmirror vlan 42 to 10\nmirror vlan 43 to 10";
    let errors = file(text).card(false).unwrap_err();
    let [error] = &errors[..] else { panic!("{errors:?}") };
    assert!(error.line == 3 && error.what.contains("no tenant has VLAN 43"), "{error}");
    assert!(error.fix.contains("`vlan 43`"), "{error}");
}
