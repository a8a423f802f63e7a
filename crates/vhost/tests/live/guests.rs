//! Two guests of QEMU, whose adapters are ports of a yard.

use std::path::{Path, PathBuf};

use flowyard_livekit::guest::{self, Guest, Image, Vhost};
use flowyard_testkit::note;

use crate::yard::{Yard, config};
use crate::{now, rounds};

flowyard_testkit::tests! {
    two_guests_talk_and_survive_kill_9_of_the_yard_and_of_each_other,
}

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

fn iperf3() -> PathBuf {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut all = std::env::split_paths(&folders).map(|folder| folder.join("iperf3"));
    all.find(|path| path.is_file()).unwrap()
}

/// The guest with this number at this socket, with an address on `eth0` and one on VLAN 7.
fn boot(image: &Image, socket: PathBuf, number: u8, listens: bool) -> Guest {
    let mac = [0x52, 0x54, 0, 0, 0, number];
    let vhost = Vhost { socket, listens, queues: 2, mac };
    let mut guest = Guest::boot_vhost(image, &vhost);
    guest.run("ethtool -L eth0 combined 2");
    guest.sh(&format!(
        "ip addr add 10.9.0.{number}/24 dev eth0; ip link add link eth0 name v7 type vlan id 7; \
         ip addr add 10.9.7.{number}/24 dev v7; ip link set v7 up"
    ));
    guest
}

/// Pings until all of three pings are answered.
fn talks(guest: &mut Guest, what: &str) -> std::time::Duration {
    let from = now();
    for _ in 0..60 {
        if guest.run("ping -c 3 -i 0.2 -W 1 10.9.0.2").1.contains("3 packets received") {
            return from.elapsed();
        }
    }
    panic!("no answer after {what}: {}", guest.run("ip -s link show eth0; ip neigh").1);
}

fn two_guests_talk_and_survive_kill_9_of_the_yard_and_of_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = guest::kernel(&cache()).unwrap();
    let image = Image::new(&cache(), &kernel, &[("iperf3", &iperf3())]);
    // The yard listens in the west, and QEMU does in the east.
    let text = config(folder.path(), "client", "sleep");
    let mut yard = Yard::start(folder.path(), &text);
    yard.wait_for("", "running config", 1);
    let west = folder.path().join("west.sock");
    let east = folder.path().join("east.sock");
    let mut one = boot(&image, west.clone(), 1, false);
    let mut two = boot(&image, east.clone(), 2, true);
    yard.wait_for("", "2 queues to transmit", 2);
    note!("{}", one.run("uname -r; ethtool -l eth0 | tail -5; ethtool -k eth0 | grep -E '^(tx-checksumming|tcp-segm|rx-checksumming)'").1);
    talks(&mut one, "the start");
    note!("{}", one.sh("ping -c 200 -i 0.01 10.9.0.2 | tail -2"));
    assert!(one.sh("ping -c 10 -i 0.1 10.9.7.2").contains("10 packets received"), "a VLAN");
    two.sh("iperf3 -s -D > /dev/null");
    for way in ["", "-R"] {
        let said = one.sh(&format!("iperf3 -c 10.9.0.2 -t 5 {way} | grep -E 'sender|receiver'"));
        note!("iperf3 {way}: {said}");
        assert!(said.contains("receiver"), "{said}");
    }
    let said = one.sh("iperf3 -c 10.9.0.2 -u -b 20M -t 3 | grep receiver");
    note!("iperf3 -u: {said}");
    let mut longest = std::time::Duration::ZERO;
    for round in 1..=rounds() {
        yard.kill();
        yard = Yard::start(folder.path(), &text);
        longest = longest.max(talks(&mut one, &format!("kill -9 {round} of the yard")));
    }
    note!(
        "{} times kill -9 of the yard: 3 pings were answered after at most {longest:.1?}",
        rounds()
    );
    for round in 1..=2 {
        drop(two);
        two = boot(&image, east.clone(), 2, true);
        talks(&mut one, &format!("kill -9 {round} of the guest in the east"));
        drop(one);
        one = boot(&image, west.clone(), 1, false);
        talks(&mut one, &format!("kill -9 {round} of the guest in the west"));
    }
    // A driver that resets its device.
    one.sh("echo virtio0 > /sys/bus/virtio/drivers/virtio_net/unbind; echo virtio0 > /sys/bus/virtio/drivers/virtio_net/bind");
    one.sh("ip link set eth0 up; ip addr add 10.9.0.1/24 dev eth0");
    talks(&mut one, "a reset of the driver");
    note!("{}", yard.log());
    let report = yard.end();
    note!("{report}");
    drop(two);
    image.delete();
}
