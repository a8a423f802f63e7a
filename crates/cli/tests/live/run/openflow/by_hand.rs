//! `flowyard switch` with a switch that forwards frames.

use super::{Star, ask, ends, ip, says};
use crate::yard::wait_until;
use flowyard_livekit::net::{alone, pings};
use flowyard_livekit::traffic::stream;

flowyard_testkit::tests! {
    flows_by_hand,
    groups_and_meters_by_hand,
    without_a_controller,
}

/// Flows, groups and ports set by hand, without a controller.
fn flows_by_hand() {
    let _alone = alone();
    let star = Star::new();
    let live = star.start("");
    let shown = says(&live, "show", &[]);
    for n in 1..=4 {
        // A port has the MAC address of its interface.
        let link = star.switch.sh(&format!("ip -br link show p{n}"));
        let mac = link.split_whitespace().nth(2).expect("an address");
        assert!(shown.contains(&format!(" {n}(p{n}): addr:{mac},")), "{shown}{link}");
    }
    assert!(!star.reaches(1, 2), "a ping was answered without any flow");
    says(&live, "add-flow", &["priority=1,actions=NORMAL"]);
    // A change is in effect when the command returns, so the first ping must be answered.
    assert_eq!(star.ping_all(&[1, 2, 3, 4]), 12);
    stream(&star.hosts[0], &star.hosts[3], ip(4), 8 << 20);

    // The flow counts exactly five requests.
    says(&live, "add-flow", &["priority=9,icmp,nw_src=10.9.0.1,nw_dst=10.9.0.2,actions=output:2"]);
    star.hosts[0].sh(&format!("{} 10.9.0.2", pings(5)));
    let dump = says(&live, "dump-flows", &["icmp"]);
    assert!(dump.contains("n_packets=5, n_bytes=490,"), "{dump}");
    says(&live, "mod-flows", &["icmp,actions=drop"]);
    assert!(!star.reaches(1, 2) && star.reaches(1, 3));
    says(&live, "del-flows", &["--strict", "priority=9,icmp,nw_src=10.9.0.1,nw_dst=10.9.0.2"]);
    assert!(star.reaches(1, 2));

    // Address translation in both directions. The hosts answer only if the checksums are right.
    star.hosts[0].sh("ip neigh replace 10.9.0.99 lladdr 02:00:00:00:00:02 dev eth");
    let there = "priority=9,ip,in_port=1,nw_dst=10.9.0.99,actions=mod_nw_dst:10.9.0.2,output:2";
    let back = "priority=9,ip,in_port=2,nw_dst=10.9.0.1,actions=mod_nw_src:10.9.0.99,output:1";
    says(&live, "add-flow", &[there]);
    says(&live, "add-flow", &[back]);
    let said = star.hosts[0].sh(&format!("{} 10.9.0.99", pings(3)));
    assert_eq!(said.matches("from 10.9.0.99").count(), 3, "{said}");
    translated_stream(&star);
    says(&live, "del-flows", &["ip"]);

    // A VLAN tag is pushed towards one host and popped from its frames.
    let tagged = "priority=9,in_port=3,dl_type=0x88b5,\
                  actions=push_vlan:0x8100,set_field:7->vlan_vid,output:4";
    says(&live, "add-flow", &[tagged]);
    let popped = "priority=9,in_port=4,dl_vlan=7,actions=strip_vlan,output:3";
    says(&live, "add-flow", &[popped]);
    let (mut three, mut four) = (star.wire(3), star.wire(4));
    three.send([0xff; 6], 3, &[0x88, 0xb5], 1);
    assert_eq!(four.hears(1), [[0x81, 0, 0, 7, 0x88, 0xb5]]);
    four.send([0xff; 6], 4, &[0x81, 0, 0, 7, 0x88, 0xb5], 2);
    assert_eq!(three.hears(2), [[0x88, 0xb5]]);

    let ports = says(&live, "dump-ports", &[]);
    assert!(ports.contains("port 1: rx pkts=") && !ports.contains("pkts=0,"), "{ports}");
    says(&live, "del-flows", &[]);
    assert_eq!(says(&live, "dump-flows", &[]), "");
    assert!(!star.reaches(1, 2));
    let why = ask(&live, "add-flow", &["actions=group:7"]);
    assert_eq!(why.status.code(), Some(1));
    ends(live, "flows by hand", &[]);
}

/// A TCP stream to the translated address.
fn translated_stream(star: &Star) {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    let listener = star.hosts[1].within(|| TcpListener::bind((ip(2), 7007)).unwrap());
    let sent = star.hosts[0].spawn(|| {
        let mut stream = TcpStream::connect((ip(99), 7007)).unwrap();
        stream.write_all(&[0x3c; 1 << 20]).unwrap();
    });
    let mut got = Vec::new();
    listener.accept().unwrap().0.read_to_end(&mut got).unwrap();
    sent.join().unwrap();
    assert!(got.len() == 1 << 20 && got.iter().all(|byte| *byte == 0x3c), "{}", got.len());
}

/// A fast-failover group follows the state of links; a meter limits a flow.
fn groups_and_meters_by_hand() {
    let _alone = alone();
    let star = Star::new();
    let live = star.start("");
    let group = "group_id=1,type=ff,bucket=watch_port:2,actions=output:2,\
                 bucket=watch_port:3,actions=output:3";
    says(&live, "add-group", &[group]);
    says(&live, "add-flow", &["in_port=1,dl_type=0x88b5,actions=group:1"]);
    let (mut one, mut two, mut three) = (star.wire(1), star.wire(2), star.wire(3));
    one.send([0xff; 6], 1, &[0x88, 0xb5], 1);
    assert_eq!((two.hears(1).len(), three.heard(1).len()), (1, 0));
    star.switch.sh("ip link set p2 down");
    wait_until("the link is seen to be down", || says(&live, "show", &[]).contains("LINK_DOWN"));
    one.send([0xff; 6], 1, &[0x88, 0xb5], 2);
    assert_eq!(three.hears(2).len(), 1);
    star.switch.sh("ip link set p2 up");
    wait_until("the link is seen to be up", || !says(&live, "show", &[]).contains("LINK_DOWN"));
    one.send([0xff; 6], 1, &[0x88, 0xb5], 3);
    assert_eq!((two.hears(3).len(), three.heard(3).len()), (1, 0));
    let stats = says(&live, "dump-group-stats", &[]);
    assert!(stats.contains("packet_count=3,"), "{stats}");

    // Ten frames at once, with a rate of one per second and a burst of two.
    says(&live, "add-meter", &["meter=1,pktps,burst,band=type=drop,rate=1,burst_size=2"]);
    says(&live, "add-flow", &["in_port=3,dl_type=0x88b5,actions=meter:1,output:2"]);
    (0..10).for_each(|_| three.send([0xff; 6], 3, &[0x88, 0xb5], 4));
    wait_until("all came to the meter", || {
        says(&live, "meter-stats", &[]).contains("packet_in_count:10 ")
    });
    let mut through = 0;
    wait_until("some came through", || {
        through += two.heard(4).len();
        through >= 2
    });
    let stats = says(&live, "meter-stats", &[]);
    let dropped = format!("packet_count={},", 10 - through);
    assert!(through < 10 && stats.contains(&dropped), "{through} came through: {stats}");
    ends(live, "groups and meters by hand", &["metered", "port_down"]);
}

/// Fail-standalone: a switch without its controller is a bridge.
fn without_a_controller() {
    let _alone = alone();
    let star = Star::new();
    let live = star.start("fail = \"standalone\"\ncontrollers = [\"tcp:10.99.0.1:6653\"]");
    star.reached(1, 2);
    assert_eq!(star.ping_all(&[1, 2, 3, 4]), 12);
    stream(&star.hosts[1], &star.hosts[2], ip(3), 8 << 20);
    ends(live, "a switch without a controller", &[]);
}
