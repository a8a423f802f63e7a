//! Two guests of QEMU, whose adapters are ports of a yard.

use std::path::{Path, PathBuf};
use std::time::Duration;

use flowyard_livekit::guest::{self, Guest, Image, Vhost};
use flowyard_testkit::note;

use crate::yard::{SWITCH, Yard, config};
use crate::{now, number_of, rounds};

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

/// After a kill, pings are answered within this time, in which QEMU connects again, and guests of QEMU
/// without KVM need most of it.
const BOUND: Duration = Duration::from_secs(30);

/// Each kill whose number is a multiple of this is one of a guest, which takes longer.
fn guests() -> usize {
    number_of("FLOWYARD_GUESTS", 5)
}

/// The guest with this number at this socket, with an address on `eth0` and one on VLAN 7. The first guest has
/// split rings, and the second one packed rings.
fn boot(image: &Image, socket: PathBuf, number: u8, listens: bool) -> Guest {
    let mac = [0x52, 0x54, 0, 0, 0, number];
    let vhost = Vhost { socket, listens, queues: 2, packed: number == 2, mac };
    let mut guest = Guest::boot_vhost(image, &vhost);
    guest.run("ethtool -L eth0 combined 2");
    guest.sh(&format!(
        "ip addr add 10.9.0.{number}/24 dev eth0; ip link add link eth0 name v7 type vlan id 7; \
         ip addr add 10.9.7.{number}/24 dev v7; ip link set v7 up"
    ));
    guest
}

/// Pings until all of three pings are answered. Returns how long that took.
fn talks(guest: &mut Guest, what: &str) -> Duration {
    let from = now();
    while from.elapsed() < BOUND {
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
    let text = config(folder.path(), "client", "sleep", SWITCH);
    let mut yard = Yard::start(folder.path(), &text);
    yard.wait_for("", "running config", 1);
    let west = folder.path().join("west.sock");
    let east = folder.path().join("east.sock");
    let mut one = boot(&image, west.clone(), 1, false);
    let mut two = boot(&image, east.clone(), 2, true);
    yard.wait_for("", "2 queues to transmit", 2);
    note!("{}", one.run("uname -r; ethtool -l eth0 | tail -5; ethtool -k eth0 | grep -E '^(tx-checksumming|tcp-segm|rx-checksumming)'").1);
    for (guest, layout) in [(&mut one, 0), (&mut two, 1)] {
        // Bit 34 of the negotiated features.
        let packed = guest.sh("cut -c 35 /sys/bus/virtio/devices/virtio0/features");
        assert_eq!(packed.trim(), layout.to_string(), "whether rings are packed");
    }
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
    let mut all = All { yard, one, two };
    all.survive(folder.path(), &text, &image);
    let All { yard, mut one, two } = all;
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

/// What may be killed.
struct All {
    yard: Yard,
    one: Guest,
    two: Guest,
}

impl All {
    /// Kills the yard, and now and then one of the guests, and starts it again. They talk again each time.
    fn survive(&mut self, folder: &Path, text: &str, image: &Image) {
        // Of the yard, of the guest in the east, and of the one in the west.
        let mut times: [Vec<Duration>; 3] = Default::default();
        let names = ["the yard", "the guest in the east", "the guest in the west"];
        for round in 1..=rounds() {
            let at = match round {
                _ if round % guests() != 0 => 0,
                _ if round % (2 * guests()) != 0 => 1,
                _ => 2,
            };
            match at {
                0 => {
                    self.yard.kill();
                    self.yard = Yard::start(folder, text);
                }
                1 => {
                    self.two.kill();
                    self.two = boot(image, folder.join("east.sock"), 2, true);
                }
                _ => {
                    self.one.kill();
                    self.one = boot(image, folder.join("west.sock"), 1, false);
                }
            }
            times[at].push(talks(&mut self.one, &format!("kill -9 {round}, of {}", names[at])));
        }
        for (name, mut times) in names.into_iter().zip(times) {
            times.sort_unstable();
            let (median, longest) = (times.get(times.len() / 2), times.last());
            let count = times.len();
            note!(
                "{count} kills of {name}: 3 pings were answered after {median:.1?}, at most {longest:.1?}"
            );
        }
    }
}
