//! The kernel of a guest as the other gateway.

use std::path::{Path, PathBuf};
use std::time::Duration;

use flowyard_ipsec::sa::Tally;
use flowyard_ipsec::{Sa, SaConfig, esp, xfrm};
use flowyard_livekit::guest::{self, Extra, Guest, Image};
use flowyard_livekit::{Net, pings};
use flowyard_testkit::note;

use crate::yard::{MAC, Yard};

flowyard_testkit::tests! {
    the_kernel_of_a_guest_is_the_other_gateway,
}

/// Modules of IPsec, in the order in which they are loaded.
const MODULES: [&str; 18] = [
    "xfrm_algo",
    "xfrm_user",
    "gf128mul",
    "ghash-generic",
    "gcm",
    "ctr",
    "libchacha",
    "chacha_generic",
    "libpoly1305",
    "poly1305_generic",
    "chacha20poly1305",
    "sha512_generic",
    "jitterentropy_rng",
    "drbg",
    "seqiv",
    "udp_tunnel",
    "esp4",
    "esp6",
];

/// SPIs: to the guest, and from it.
const TO: u32 = 0x1000;
const FROM: u32 = 0x2000;

/// The MAC address of the client.
const CLIENT: &str = "02:00:00:00:00:66";

const GCM_128: (&str, &str) = ("rfc4106(gcm(aes))", "0x000102030405060708090a0b0c0d0e0f10111213");
const GCM_256: (&str, &str) = (
    "rfc4106(gcm(aes))",
    "0x202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f40414243",
);
const CHACHA: (&str, &str) = (
    "rfc7539esp(chacha20,poly1305)",
    "0x404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f60616263",
);

fn cache() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

pub(crate) fn has_kernel() -> Result<(), String> {
    // Without permission to take minutes, nothing is downloaded.
    if std::env::var_os("FLOWYARD_LIVE").is_none() {
        Ok(())
    } else {
        guest::kernel(&cache()).map(drop)
    }
}

/// One form of tunnel.
#[derive(Clone, Copy)]
struct Form {
    name: &'static str,
    aead: (&'static str, &'static str),
    is_v6: bool,
    is_extended: bool,
    is_nat: bool,
}

impl Form {
    /// The outer addresses: of the yard, and of the guest.
    fn ends(&self) -> [&'static str; 2] {
        if self.is_v6 { ["fd00::1", "fd00::2"] } else { ["192.0.2.1", "192.0.2.2"] }
    }

    /// An SA in the text of `ip xfrm state`.
    fn state(&self, is_to: bool, spi: u32, more: &str) -> String {
        let [here, there] = self.ends();
        let (src, dst) = if is_to { (here, there) } else { (there, here) };
        let flag = if self.is_extended { " flag af-unspec esn" } else { " flag af-unspec" };
        let encap = if self.is_nat {
            "\tencap type espinudp sport 4500 dport 4500 addr 0.0.0.0\n"
        } else {
            ""
        };
        let (name, key) = self.aead;
        format!(
            "src {src} dst {dst}\n\tproto esp spi {spi:#010x} reqid 1 mode tunnel\n\treplay-window 64{flag}\n\taead {name} \
             {key} 128\n{encap}{more}"
        )
    }

    /// The command that adds the same SA in the guest.
    fn add(&self, is_to: bool, spi: u32, key: &str) -> String {
        let [here, there] = self.ends();
        let (src, dst) = if is_to { (here, there) } else { (there, here) };
        let flag = if self.is_extended { " flag af-unspec esn" } else { " flag af-unspec" };
        let encap = if self.is_nat { " encap espinudp 4500 4500 0.0.0.0" } else { "" };
        format!(
            "ip xfrm state add src {src} dst {dst} proto esp spi {spi} reqid 1 mode tunnel aead '{}' {key} 128 replay-window \
             64{flag}{encap}",
            self.aead.0
        )
    }

    /// Policies as the yard reads them, for IPv4 and IPv6 in the tunnel.
    fn policies(&self) -> String {
        let [here, there] = self.ends();
        let one = |inside: &str, outside: &str| {
            format!(
                "src {inside} dst {outside}\n\tdir out priority 1 ptype main\n\ttmpl src {here} dst {there}\n\t\tproto esp \
                 reqid 1 mode tunnel\nsrc {outside} dst {inside}\n\tdir fwd priority 1 ptype main\n\ttmpl src {there} dst \
                 {here}\n\t\tproto esp reqid 1 mode tunnel\n"
            )
        };
        [one("10.1.0.0/16", "10.2.0.0/16"), one("fd01::/16", "fd02::/16")].concat()
    }

    /// The commands for the policies of the guest.
    fn guest_policies(&self) -> Vec<String> {
        let [here, there] = self.ends();
        let one = |inside: &str, outside: &str| {
            [
                format!(
                    "ip xfrm policy add src {inside} dst {outside} dir in tmpl src {here} dst {there} proto esp reqid 1 mode tunnel"
                ),
                format!(
                    "ip xfrm policy add src {outside} dst {inside} dir out tmpl src {there} dst {here} proto esp reqid 1 mode tunnel"
                ),
            ]
        };
        [one("10.1.0.0/16", "10.2.0.0/16"), one("fd01::/16", "fd02::/16")].concat()
    }
}

const FORMS: [Form; 5] = [
    Form {
        name: "AES-GCM-128 in IPv4",
        aead: GCM_128,
        is_v6: false,
        is_extended: false,
        is_nat: false,
    },
    Form {
        name: "AES-GCM-256 with ESN in IPv6",
        aead: GCM_256,
        is_v6: true,
        is_extended: true,
        is_nat: false,
    },
    Form {
        name: "ChaCha20-Poly1305 in IPv6",
        aead: CHACHA,
        is_v6: true,
        is_extended: false,
        is_nat: false,
    },
    Form {
        name: "ChaCha20-Poly1305 with ESN in UDP",
        aead: CHACHA,
        is_v6: false,
        is_extended: true,
        is_nat: true,
    },
    Form {
        name: "AES-GCM-128 in UDP",
        aead: GCM_128,
        is_v6: false,
        is_extended: false,
        is_nat: true,
    },
];

/// A socket that takes ESP in UDP; the kernel passes nothing to IPsec without one.
const NAT_SOCKET: &str = "perl -e 'socket(S,2,2,17) or die; bind(S,pack(\"S n a4 x8\",2,4500,\"\\0\\0\\0\\0\")) or die; \
     setsockopt(S,17,100,pack(\"i\",2)) or die; sleep 99999' > /tmp/nat 2>&1 &";

/// A line in which `ip` is iproute2, and not the applet of busybox.
fn with_ip(line: &str) -> String {
    format!("ip() {{ /bin/ip \"$@\"; }}; {line}")
}

/// The hosts of a test.
struct Hosts {
    guest: Guest,
    client: Net,
}

impl Hosts {
    fn new(image: &Image) -> Self {
        let mut guest = Guest::boot(image);
        let client = Net::new().unwrap();
        client.cable("c0", guest.net(), "inside", 1);
        client.sh(&format!(
            "ip link set c0 address {CLIENT}; ethtool -K c0 tx off; echo 0 > /proc/sys/net/ipv6/conf/c0/disable_ipv6; ip addr add 10.1.0.2/16 dev c0; ip addr \
             add fd01::2/16 dev c0 nodad; ip neigh add 10.1.0.1 lladdr {MAC} dev c0; ip neigh add fd01::1 lladdr {MAC} dev c0; \
             ip route add default via 10.1.0.1; ip -6 route add default via fd01::1"
        ));
        for line in [
            "for i in eth0 lo; do echo 0 > /proc/sys/net/ipv6/conf/$i/disable_ipv6; done".to_owned(),
            "ip addr add 192.0.2.2/24 dev eth0; ip addr add fd00::2/64 dev eth0 nodad".to_owned(),
            "ip addr add 10.2.0.1/32 dev lo; ip addr add fd02::1/128 dev lo".to_owned(),
            format!("ip neigh add 192.0.2.1 lladdr {MAC} dev eth0; ip neigh add fd00::1 lladdr {MAC} dev eth0"),
            "ip route add 10.1.0.0/16 via 192.0.2.1 dev eth0 src 10.2.0.1; ip -6 route add fd01::/16 via fd00::1 dev eth0 src fd02::1"
                .to_owned(),
            NAT_SOCKET.to_owned(),
        ] {
            guest.sh(&with_ip(&line));
        }
        Self { guest, client }
    }

    /// Runs a line in the guest, which must succeed.
    fn guest_sh(&mut self, line: &str) -> String {
        self.guest.sh(&with_ip(line))
    }

    /// Sets the guest up anew, and starts a yard.
    fn tunnel(&mut self, folder: &Path, form: &Form, states: &str, adds: &[String]) -> Yard {
        self.guest_sh("ip xfrm state flush; ip xfrm policy flush");
        for line in form.guest_policies().iter().chain(adds) {
            self.guest_sh(line);
        }
        let mac = guest::MAC.map(|byte| format!("{byte:02x}")).join(":");
        let macs = [CLIENT, mac.as_str()];
        Yard::start(self.guest.net(), folder, states, &form.policies(), macs)
    }

    /// Sends this many pings through the tunnel. Returns how many were answered.
    fn ping(&self, to: &str, count: u32, more: &str) -> u32 {
        let output = self.client.run(&format!("{} {more} {to}", pings(count)));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let received = text.split(" received").next().and_then(|text| text.rsplit(' ').next());
        received.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{text}"))
    }

    /// The guest's counters of the SA with this SPI: outside of the window, replayed, failed.
    fn counters(&mut self, spi: u32) -> [u64; 3] {
        let text = self.guest_sh("ip -s xfrm state");
        let record =
            text.split("\nsrc ").find(|record| record.contains(&format!("spi {spi:#010x}")));
        let record = record.unwrap_or_else(|| panic!("{text}"));
        let line = record
            .lines()
            .map(str::trim)
            .rfind(|line| line.starts_with("replay-window ") && line.contains("failed"));
        let words: Vec<_> = line.unwrap_or_else(|| panic!("{record}")).split_whitespace().collect();
        [1, 3, 5].map(|at| words[at].parse().unwrap())
    }
}

fn the_kernel_of_a_guest_is_the_other_gateway() {
    let kernel = guest::kernel(&cache()).unwrap();
    let extra = Extra { modules: &MODULES, ..Extra::default() };
    let image = Image::with(&cache(), &kernel, &[("perl", Path::new("/usr/bin/perl"))], &extra);
    let mut hosts = Hosts::new(&image);
    for form in &FORMS {
        both_directions(&mut hosts, form);
    }
    rekey(&mut hosts);
    replayed_and_corrupted(&mut hosts);
    drop(hosts);
    image.delete();
}

/// IPv4 and IPv6 in the tunnel, small and large packets, one after the other and many at once.
fn both_directions(hosts: &mut Hosts, form: &Form) {
    let folder = tempfile::tempdir().unwrap();
    let states = [form.state(true, TO, ""), form.state(false, FROM, "")].concat();
    let key = form.aead.1;
    let yard = hosts.tunnel(
        folder.path(),
        form,
        &states,
        &[form.add(true, TO, key), form.add(false, FROM, key)],
    );
    for to in ["10.2.0.1", "fd02::1"] {
        for more in ["", "-s 1300 -M do"] {
            let got = hosts.ping(to, 10, more);
            assert_eq!(
                got,
                10,
                "{}: {to} {more}\n{}\n{}",
                form.name,
                yard.show(&["drops"]),
                yard.log()
            );
        }
    }
    // Floods use both cores of the yard.
    let flood = hosts.client.run("ping -n -q -f -c 2000 -s 600 10.2.0.1");
    let flood = String::from_utf8_lossy(&flood.stdout).into_owned();
    let (to, from) = (hosts.counters(TO), yard.counter(FROM, "packets"));
    note!(
        "{}: {}; guest's replay counters {to:?}",
        form.name,
        flood.lines().rfind(|line| line.contains("packets")).unwrap_or("?")
    );
    assert_eq!(to, [0; 3], "{}: the guest refuses nothing", form.name);
    assert!(from >= 1000, "{}: {from} packets came from the guest", form.name);
    let refused =
        ["replayed", "late", "unauthentic", "malformed"].map(|name| yard.counter(FROM, name));
    assert_eq!(refused, [0; 4], "{}: the yard refuses nothing", form.name);
    if form.is_v6 {
        return; // the outer address is no source for an error to a sender with IPv4
    }
    // What does not fit is reported to the client.
    let big = hosts.client.run("ping -n -c 1 -W 2 -s 1472 -M do 10.2.0.1");
    let text = [big.stdout, big.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("too long") || text.contains("Frag needed"), "{}: {text}", form.name);
    hosts.client.sh("ip route flush cache");
}

/// The first SA ends after 20 packets, and the guest gets a newer one, too.
fn rekey(hosts: &mut Hosts) {
    let form = &FORMS[0];
    let folder = tempfile::tempdir().unwrap();
    let limit = "\tlimit: soft 10(packets), hard 20(packets)\n";
    let states = [
        form.state(true, TO, limit),
        form.state(true, TO + 1, ""),
        form.state(false, FROM, ""),
        form.state(false, FROM + 1, ""),
    ];
    let key = form.aead.1;
    let adds = [form.add(true, TO, key), form.add(true, TO + 1, key), form.add(false, FROM, key)];
    let yard = hosts.tunnel(folder.path(), form, &states.concat(), &adds);
    assert_eq!(hosts.ping("10.2.0.1", 40, ""), 40);
    let sent = [TO, TO + 1].map(|spi| yard.counter(spi, "packets"));
    assert_eq!((sent, yard.counter(TO, "soft_limits")), ([20, 20], 1));
    hosts.guest_sh(&form.add(false, FROM + 1, key));
    let [src, dst] = form.ends();
    hosts.guest_sh(&format!("ip xfrm state delete src {dst} dst {src} proto esp spi {FROM}"));
    assert_eq!(hosts.ping("10.2.0.1", 20, ""), 20);
    assert!(yard.counter(FROM + 1, "packets") >= 20);
    note!("{}", yard.show(&["sas"]));
}

/// A frame to the guest with an authentic packet of this number.
fn frame_with(form: &Form, number: u64) -> Vec<u8> {
    let config = xfrm::states(&form.state(true, TO, "")).unwrap().remove(0);
    let sa = Sa::new(SaConfig { oseq: number - 1, ..config }, number << 32, 0).unwrap();
    // A header without payload: protocol 59 of IPv4 goes nowhere.
    let mut packet = vec![0x45, 0, 0, 20, 0, 0, 0, 0, 64, 59, 0, 0, 10, 1, 0, 2, 10, 2, 0, 1];
    let sum = flowyard_wire::checksum::checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let plan = esp::plan(&sa, &packet).unwrap();
    let mut bytes = vec![0; plan.head];
    bytes.extend(packet);
    bytes.resize(plan.total(), 0);
    let number = sa.take().unwrap();
    esp::seal(&sa, number, &plan, &mut bytes, &mut Tally::default()).unwrap();
    [&guest::MAC[..], &[2, 0, 0, 0, 0, 0x77, 8, 0], &bytes].concat()
}

fn replayed_and_corrupted(hosts: &mut Hosts) {
    let form = &FORMS[0];
    let folder = tempfile::tempdir().unwrap();
    let states = [form.state(true, TO, ""), form.state(false, FROM, "")].concat();
    let key = form.aead.1;
    let yard = hosts.tunnel(
        folder.path(),
        form,
        &states,
        &[form.add(true, TO, key), form.add(false, FROM, key)],
    );
    // To the guest: the same packet again, and a changed one.
    assert_eq!(hosts.ping("10.2.0.1", 5, ""), 5);
    let mut bad = frame_with(form, 100);
    *bad.last_mut().unwrap() ^= 1;
    guest::send(hosts.guest.net(), vec![frame_with(form, 3), bad], Duration::from_millis(100));
    std::thread::sleep(Duration::from_secs(1));
    let counters = hosts.counters(TO);
    note!("the guest, after one replayed and one corrupted packet: {counters:?}");
    assert_eq!((counters[1], counters[2]), (1, 1));
    // From the guest: a new SA with the same key starts at number 1 again.
    let [src, dst] = form.ends();
    let delete = format!("ip xfrm state delete src {dst} dst {src} proto esp spi {FROM}");
    hosts.guest_sh(&delete);
    hosts.guest_sh(&form.add(false, FROM, key));
    assert_eq!(hosts.ping("10.2.0.1", 3, ""), 0, "replayed numbers are refused");
    assert_eq!(yard.counter(FROM, "replayed"), 3);
    // Another key.
    hosts.guest_sh(&delete);
    hosts.guest_sh(&form.add(false, FROM, &key.replace("0x00", "0xff")));
    let refused = hosts.ping("10.2.0.1", 12, "");
    assert_eq!(refused, 0, "packets with another key are refused");
    assert!(yard.counter(FROM, "unauthentic") >= 1, "{}", yard.show(&["sas"]));
    // The right key again, with numbers that go on.
    hosts.guest_sh(&delete);
    hosts.guest_sh(&format!("{} replay-oseq 1000", form.add(false, FROM, key)));
    assert_eq!(hosts.ping("10.2.0.1", 5, ""), 5, "refused packets have not moved the window");
    note!("{}{}", yard.show(&["sas"]), yard.show(&["drops"]));
}
