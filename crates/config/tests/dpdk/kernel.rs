//! Devices on interfaces of the kernel, in a namespace that the test creates: net_tap and net_af_packet.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flowyard_livekit::net::Net;
use flowyard_testkit::harness::Need;

use super::DPDK;
use super::traffic::{Ran, frames_or, pass_when, text};

/// What the tests of this module require.
const NEEDS: [Need; 3] = [Need::Namespaces, Need::Program("ip"), DPDK];

flowyard_testkit::tests! {
    two_taps_on_a_bridge_pass_every_frame_in_order needs NEEDS,
    packet_sockets_pass_every_frame_in_order needs NEEDS,
}

/// The most frames on their way: the kernel drops what it has no room for.
const WINDOW: u64 = 128;

/// Frames pass from one device to the other through the kernel.
fn through(net: &Net, devices: [String; 2], frames: u64, is_ready: &Arc<AtomicBool>) -> Ran {
    let [a, b] = devices;
    let ports = format!(
        "[[port]]\nname = \"a\"\nkind = \"dpdk\"\ndevice = \"{a}\"\n\
         [[port]]\nname = \"b\"\nkind = \"dpdk\"\ndevice = \"{b}\""
    );
    let text = text(&ports, "gen = \"a\", b = \"sink\", a = \"sink\", sink = \"gen\"");
    let is_ready = Arc::clone(is_ready);
    net.within(move || pass_when(&text, frames, WINDOW, |_| is_ready.load(Ordering::Acquire)))
}

fn two_taps_on_a_bridge_pass_every_frame_in_order() {
    let net = Net::new().unwrap();
    // The driver makes the interfaces when it is opened; they join the bridge when they appear.
    net.sh("ip link add fybr type bridge forward_delay 0; ip link set fybr up");
    let join = "for i in $(seq 200); do ip link set fyt0 master fybr && ip link set fyt1 master fybr && exit 0; \
                sleep 0.05; done 2>/dev/null; exit 1";
    let (bridge, is_joined) = (Net(net.0.try_clone().unwrap()), Arc::new(AtomicBool::new(false)));
    let tell = Arc::clone(&is_joined);
    let joined = std::thread::spawn(move || {
        bridge.sh(join);
        std::thread::sleep(Duration::from_millis(200)); // until the bridge forwards
        tell.store(true, Ordering::Release);
    });
    let ran = through(
        &net,
        ["net_tap0,iface=fyt0", "net_tap1,iface=fyt1"].map(str::to_owned),
        frames_or(200_000),
        &is_joined,
    );
    joined.join().unwrap();
    assert!(!ran.copies("a") && !ran.copies("b"));
}

fn packet_sockets_pass_every_frame_in_order() {
    let net = Net::new().unwrap();
    net.cable("fyv0", &net, "fyv1", 1);
    let devices = ["net_af_packet0,iface=fyv0", "net_af_packet1,iface=fyv1"].map(str::to_owned);
    let ran = through(&net, devices, frames_or(200_000), &Arc::new(AtomicBool::new(true)));
    assert!(!ran.copies("a") && !ran.copies("b"));
}
