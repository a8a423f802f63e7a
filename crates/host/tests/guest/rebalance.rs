//! `flowyard rebalance` in the guest: the counters of the adapter's queues, the order of the datagrams of each flow, and
//! the table at the end.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flowyard_frame::{FlowKey, proto};
use flowyard_livekit::Net;
use flowyard_livekit::guest::{Guest, Image, MAC, send};
use flowyard_testkit::{Build, note};

use crate::flowyard::binary;
use crate::{cache, kernel};

flowyard_testkit::tests! {
    a_skewed_load_is_spread_in_order_and_the_table_returns,
}

const FLOWS: u32 = 300;
/// Datagrams of a flow that follow each other.
const BURST: u32 = 4;
const PORT: u16 = 4000;
const DAEMON: &str = "flowyard rebalance eth0 --every 1s --pause 100ms --return-within 20s --journal /tmp/journal --json";
/// The table sends 13 of 16 entries to queue 0.
const SKEW: &str = "ethtool -X eth0 weight 13 1 1 1";

/// A datagram of a flow with its number.
fn datagram(flow: u32, number: u32) -> Vec<u8> {
    let address = |last: u32| Ipv4Addr::from(0x0a00_0000 | last).into();
    let mut key = FlowKey::five_tuple(
        proto::UDP,
        address(0x100 + flow % 5000),
        1024 + (flow % 5000 * 97) as u16,
        address(2),
        PORT,
    );
    (key.eth_dst, key.eth_src) = (MAC, [2, 0, 0, 0, 0, 1]);
    let payload = [flow.to_be_bytes(), number.to_be_bytes()].concat();
    Build::new(&key).payload(&payload).pad(64).bytes()
}

/// Asks what was received.
const LAST: u32 = u32::MAX;

/// In the guest: receives datagrams, and says when it is asked how many came since, and how many of them after a later one
/// of their flow.
#[allow(clippy::print_stdout, reason = "the shell of the guest reads it")]
pub(crate) fn receive() -> ! {
    let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
    let (mut seen, mut received, mut late) = (BTreeMap::<u32, u32>::new(), 0, 0);
    let mut buffer = [0; 64];
    loop {
        let len = socket.recv(&mut buffer).unwrap();
        let word = |at: usize| u32::from_be_bytes(*buffer[at..len].first_chunk().unwrap());
        let (flow, number) = (word(0), word(4));
        if flow == LAST {
            if received > 0 {
                println!("{received} received, {late} late");
            }
            (received, late) = (0, 0);
            continue;
        }
        received += 1;
        let last = seen.entry(flow).or_default();
        late += u32::from(number < *last);
        *last = number.max(*last);
    }
}

/// All flows send bursts in turn while `work` is done; the datagrams are numbered from `number` on.
fn while_sending(net: &Net, number: &mut u32, work: impl FnOnce()) {
    let done = AtomicBool::new(false);
    let (done, mut next) = (&done, *number);
    *number = std::thread::scope(|scope| {
        let sending = scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let burst = |flow| (0..BURST).map(move |n| datagram(flow, next + n));
                send(net, (0..FLOWS).flat_map(burst).collect(), Duration::from_millis(20));
                next += BURST;
            }
            next
        });
        let ends = Ends(done);
        work();
        drop(ends);
        sending.join().unwrap()
    });
}

/// What the guest has received since this was asked last, and how many of these came late.
fn received(guest: &mut Guest, net: &Net) -> (u32, u32) {
    guest.sh(": > /tmp/received");
    // One may be lost.
    send(net, (0..8).map(|_| datagram(LAST, 0)).collect(), Duration::from_secs(1));
    let text = guest.sh(
        "for i in $(seq 100); do [ -s /tmp/received ] && break; sleep 0.1; done; cat /tmp/received",
    );
    let words: Vec<_> = text.split_whitespace().collect();
    let ["received,", "late"] = [words[1], words[3]] else { panic!("{text}") };
    (words[0].parse().unwrap(), words[2].parse().unwrap())
}

/// The busiest queue's share of the frames of two seconds, over an even share.
fn imbalance(guest: &mut Guest) -> f64 {
    let before = guest.received();
    std::thread::sleep(Duration::from_secs(2));
    let now = guest.received();
    let grown: Vec<u64> = now.iter().zip(before).map(|(now, before)| now - before).collect();
    note!("frames by queue: {grown:?}");
    *grown.iter().max().unwrap() as f64 * grown.len() as f64 / grown.iter().sum::<u64>() as f64
}

/// Starts the daemon in the guest; when it ends, its status is in a file.
fn start(guest: &mut Guest) {
    guest.sh("rm -f /tmp/status /tmp/pid");
    guest.sh(&format!(
        "(sh -c 'echo $$ > /tmp/pid; exec {DAEMON}' > /tmp/rebalance 2>&1; echo $? > /tmp/status) &"
    ));
}

/// Waits until the daemon has ended, and returns its status.
fn ended(guest: &mut Guest) -> String {
    guest
        .sh("for i in $(seq 200); do [ -s /tmp/status ] && break; sleep 0.1; done; cat /tmp/status")
}

fn a_skewed_load_is_spread_in_order_and_the_table_returns() {
    let this = std::env::current_exe().unwrap();
    let programs = [("flowyard", binary().unwrap()), ("receive", this)];
    let programs = programs.each_ref().map(|(name, path)| (*name, path.as_path()));
    let image = Image::new(&cache(), &kernel().unwrap(), &programs);
    let mut guest = Guest::boot(&image);
    image.delete();
    let net = Net(guest.net().0.try_clone().unwrap());
    guest.sh("ip addr add 10.0.0.2/16 dev eth0");
    guest.sh(&format!("{SKEW}; ethtool -x eth0 > /tmp/first"));
    guest.sh("receive receive >> /tmp/received 2>&1 &");
    let mut number = 1;
    while_sending(&net, &mut number, || spread(&mut guest));
    let (all, late) = received(&mut guest, &net);
    note!("{all} datagrams received, {late} late");
    assert!(all > 20_000 && late == 0, "{all} datagrams received, {late} late");
    while_sending(&net, &mut number, || disturb(&mut guest));
}

/// The load becomes even, and the table returns.
fn spread(guest: &mut Guest) {
    std::thread::sleep(Duration::from_secs(1));
    let skewed = imbalance(guest);
    assert!(skewed > 2.5, "{skewed}");
    start(guest);
    std::thread::sleep(Duration::from_secs(25));
    let even = imbalance(guest);
    guest.sh("kill -TERM $(cat /tmp/pid)");
    assert_eq!(ended(guest).trim(), "0", "{}", guest.sh("cat /tmp/rebalance"));
    let text = guest.sh("tail -n 3 /tmp/rebalance");
    note!("{skewed:.2} became {even:.2}: {text}");
    assert!(even < 1.6, "{even}: {}", guest.sh("cat /tmp/rebalance"));
    let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!((&last["kind"], &last["totals"]["forced"]), (&"end".into(), &0.into()));
    assert!(last["totals"]["moves"].as_u64().unwrap() > 40, "{last}");
    guest.sh("ethtool -x eth0 | diff - /tmp/first");
}

/// The daemon is killed, and undone; then another program sets the table.
fn disturb(guest: &mut Guest) {
    start(guest);
    std::thread::sleep(Duration::from_secs(8));
    guest.sh("kill -9 $(cat /tmp/pid)");
    ended(guest);
    guest.sh("! ethtool -x eth0 | cmp -s - /tmp/first");
    guest.sh("flowyard undo eth0 --journal /tmp/journal");
    guest.sh("ethtool -x eth0 | diff - /tmp/first");
    start(guest);
    std::thread::sleep(Duration::from_secs(8));
    guest.sh("ethtool -X eth0 weight 0 0 0 1; ethtool -x eth0 > /tmp/foreign");
    assert_eq!(ended(guest).trim(), "1", "{}", guest.sh("cat /tmp/rebalance"));
    guest.sh("grep -q 'stopped.*rss.table was' /tmp/rebalance");
    guest.sh("ethtool -x eth0 | diff - /tmp/foreign");
}

/// Ends the traffic also if the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
