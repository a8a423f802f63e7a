//! No MAC address is configured: the load balancer resolves those of backends and of the router, and
//! answers ARP and neighbour solicitations for VIPs and its own addresses. It also answers packets whose hop
//! limit expires.

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use flowyard_ports::af_packet::{Fanout, Ring, Settings};
use flowyard_ports::live::Interface;

use super::balancer::{Balancer, Config, Mode};
use super::load::{Requests, Web, echoes, small};
use super::modes::answers;
use super::servers::{Echo, Farm};
use super::site::{Site, vips};
use crate::yard::{drops, wait_until};
use flowyard_livekit::net::{Net, alone, pings};

flowyard_testkit::tests! {
    next_hops_are_asked_for_dsr,
    next_hops_are_asked_for_dnat_by_af_xdp,
    next_hops_are_asked_for_fullnat,
    who_traces_the_way_sees_the_balancer,
}

/// The MAC address of `addr` in the neighbour table of `net`, if it is known.
fn neighbour(net: &Net, addr: &str) -> Option<String> {
    let said = net.sh(&format!("ip neigh show to {addr}"));
    Some(said.split("lladdr ").nth(1)?.split(' ').next()?.to_owned())
}

/// Requests and a download with both IP versions, served by all backends.
fn works(site: &Site) {
    for vip in vips() {
        let mut done = Requests::short(vip).run(&site.client, 40);
        done.add(Requests::kept(vip, 10).run(&site.client, 4));
        done.all_well(site.backends.len());
        site.client.within(move || {
            let mut web = Web::open((vip, 80).into(), Duration::from_secs(60)).unwrap();
            web.download("/files/small", &small()).unwrap();
        });
        // With 40 flows, chance leaves a backend without one in 2 of 2^40 calls.
        let by = echoes(&site.client, vip, (40, 2), 3000);
        assert_eq!(by.len(), site.backends.len(), "{by:?}");
    }
}

/// All of it with ports of this kind; backend 2 changes its MAC address.
fn asked(mode: Mode, kind: &'static str) {
    let _alone = alone();
    let site = Site::new(1, 2, mode);
    site.forget();
    if kind == "af_xdp" {
        site.complete_checksums();
    }
    let farm = Farm::start(&site, &[]);
    let _echoes = [1, 2].map(|n| Echo::start(&site, n));
    let mut config = Config { kind, asks: true, ..Config::of(&site) };
    config.balance = "neighbour_ms = 500";
    // As if the VIPs had been on another host: the announcement corrects the entries before any request.
    for vip in super::site::VIPS {
        let stale = "lladdr 02:00:00:00:99:99 dev lb1 nud reachable";
        site.router.sh(&format!("ip neigh replace {vip} {stale}"));
    }
    let balancer = Balancer::start(&site, config);
    for vip in super::site::VIPS {
        wait_until("an announcement", || {
            neighbour(&site.router, vip).as_deref() == Some("02:00:00:00:01:01")
        });
    }
    answers(&site.client);
    for vip in super::site::VIPS {
        let said = site.client.sh(&format!("{} {vip}", pings(3)));
        assert!(said.contains(" 0% packet loss"), "{said}");
    }
    works(&site);
    for vip in super::site::VIPS {
        assert_eq!(neighbour(&site.router, vip).as_deref(), Some("02:00:00:00:01:01"));
    }
    // Without an announcement: frames to the old address are lost until requests for it fail.
    let was = "02:00:00:00:04:02";
    assert!(site.backends[1].sh("ip link show in").contains(was));
    site.backends[1].sh("ip link set in address 02:00:00:00:44:02");
    let clock = crate::yard::clock();
    let back = |vip: IpAddr| {
        wait_until("backend 2 by its new address", || {
            let ask = move || {
                let mut web = Web::open((vip, 80).into(), Duration::from_millis(300))?;
                web.get("/who", true)
            };
            site.client.within(ask).is_ok_and(|who| who == "b2")
        });
    };
    vips().into_iter().for_each(back);
    let took = clock() as f64 / 1e9;
    works(&site);
    site.no_wrong_checksums();
    let lost = drops(&balancer.stop());
    flowyard_testkit::note!(
        "{mode:?}, {kind}: next hops asked for, VIPs answered for; another MAC address after {took:.1} s; dropped {lost:?}"
    );
    let about = ["no_service", "not_ip", "overrun", "taken", "unresolved"];
    let odd: Vec<_> = lost.iter().filter(|drop| !about.contains(&&*drop.0)).collect();
    assert_eq!(odd, Vec::<&(String, u64)>::new());
    drop(farm);
}

fn next_hops_are_asked_for_dsr() {
    asked(Mode::Dsr, "af_packet");
}

fn next_hops_are_asked_for_dnat_by_af_xdp() {
    asked(Mode::Dnat, "af_xdp");
}

fn next_hops_are_asked_for_fullnat() {
    asked(Mode::FullNat, "af_packet");
}

/// The host that reports that a datagram to `vip` with this hop limit has expired; `None` if a backend
/// answers.
fn hop(site: &Site, vip: IpAddr, hops: u32) -> Option<IpAddr> {
    site.client.sh(&format!(
        "ip route replace default via 10.1.0.254 hoplimit {hops}; \
         ip -6 route replace default via fd01::254 hoplimit {hops}"
    ));
    site.client.within(move || {
        let settings = Settings { fanout: Fanout::Hash, frames: 1024 };
        let near = Interface::find("near").unwrap();
        let mut ring = Ring::open(&near, 1, settings).unwrap().pop().unwrap();
        let any: IpAddr = if vip.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        let socket = UdpSocket::bind((any, 0)).unwrap();
        socket.connect((vip, 7)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let port = socket.local_addr().unwrap().port();
        socket.send(&[0; 40]).unwrap();
        let (mut frame, mut who) = (Vec::new(), None);
        wait_until("an answer", || {
            while let Some(seen) = ring.peek() {
                frame.resize(seen.len(None, 0), 0);
                seen.write(None, 0, &mut frame);
                ring.advance();
                who = who.or_else(|| expired(&frame, port));
            }
            who.is_some() || socket.recv(&mut [0; 100]).is_ok_and(|len| len == 40)
        });
        who
    })
}

/// The sender of a frame, if it is a Time Exceeded error about a datagram from `port` (RFC 792, RFC 4443).
fn expired(frame: &[u8], port: u16) -> Option<IpAddr> {
    let packet = frame.get(14..)?;
    let (from, l4, kind, inner): (IpAddr, usize, [u8; 2], usize) = match frame.get(12..14)? {
        [8, 0] => (<[u8; 4]>::try_from(packet.get(12..16)?).ok()?.into(), 20, [1, 11], 20),
        [0x86, 0xdd] => (<[u8; 16]>::try_from(packet.get(8..24)?).ok()?.into(), 40, [58, 3], 40),
        _ => return None,
    };
    let proto = packet[if l4 == 20 { 9 } else { 6 }];
    let quoted = packet.get(l4 + 8 + inner..)?.first_chunk::<2>()?;
    let is = [proto, packet[l4]] == kind && u16::from_be_bytes(*quoted) == port;
    is.then_some(from)
}

fn who_traces_the_way_sees_the_balancer() {
    let _alone = alone();
    for (mode, asks) in [(Mode::Dsr, true), (Mode::Dnat, false), (Mode::FullNat, true)] {
        let site = Site::new(1, 1, mode);
        let farm = Farm::start(&site, &[]);
        let _echo = Echo::start(&site, 1);
        let balancer = Balancer::start(&site, Config { asks, ..Config::of(&site) });
        answers(&site.client);
        for (vip, router, own) in [
            (vips()[0], "10.1.0.254", "10.3.1.2"), //
            (vips()[1], "fd01::254", "fd03:1::2"),
        ] {
            // Without an address of its own, it uses the VIP as its source.
            let own = if asks { own.parse().unwrap() } else { vip };
            let way = [1, 2, 3].map(|hops| hop(&site, vip, hops));
            assert_eq!(way, [Some(router.parse().unwrap()), Some(own), None], "{mode:?}");
        }
        site.client.sh(
            "ip route replace default via 10.1.0.254; ip -6 route replace default via fd01::254",
        );
        site.no_wrong_checksums();
        let lost = drops(&balancer.stop());
        flowyard_testkit::note!("{mode:?}: a traced way has the balancer in it; dropped {lost:?}");
        drop(farm);
    }
}
