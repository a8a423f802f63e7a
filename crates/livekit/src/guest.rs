//! A virtual machine with another kernel and an adapter with RSS from another implementation: QEMU's virtio-net.
//!
//! ```text
//!  test ──frames──> TAP in a namespace ──> QEMU: Toeplitz, table ──> queue of eth0 in the guest
//!       ──lines───> serial port ──> shell of the guest ──> ethtool, flowyard ──> output, exit status
//! ```
//!
//! QEMU runs in a network namespace of its own, without KVM, as the user of the test. The guest has its system in
//! memory ([`Image`]) and ends with the value.
//!
//! Thread-safety: a guest belongs to one thread, and ends with that thread at the latest.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Net, sys};

mod image;

pub use image::{Extra, Image, kernel};

/// The TAP interface in the namespace of a guest, on which its frames are sent.
pub const TAP: &str = "guest0";

/// The MAC address of `eth0` in the guest.
pub const MAC: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];

/// The MAC address of `eth1` in a guest that has it.
pub const SECOND: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x57];

/// The TAP interface of `eth1`.
const OTHER: &str = "guest1";

/// Queues of `eth0` in the guest.
pub const QUEUES: u16 = 4;

/// Frames that wait in the TAP while QEMU is slow.
const ROOM: u32 = 30_000;

/// More than a busy machine takes.
const BOOT: Duration = Duration::from_secs(300);
/// How often QEMU is started if the guest hangs.
const STARTS: usize = 3;
const COMMAND: Duration = Duration::from_secs(300);

/// The end of the output of a command: this text and the exit status in a line.
const END: &str = "@@end ";

/// A MAC address as text.
fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// The adapter of a guest that another program serves by vhost-user.
#[derive(Clone, Debug)]
pub struct Vhost {
    /// The socket.
    pub socket: PathBuf,
    /// Whether QEMU listens at the socket; otherwise it connects, again and again.
    pub listens: bool,
    /// Queue pairs.
    pub queues: u16,
    /// Whether the rings are packed.
    pub packed: bool,
    /// The MAC address of `eth0`.
    pub mac: [u8; 6],
}

/// A running guest.
#[derive(Debug)]
pub struct Guest {
    qemu: Child,
    stdin: ChildStdin,
    output: Receiver<Vec<u8>>,
    net: Net,
    /// The output since the last command.
    printed: String,
}

impl Guest {
    /// Boots a guest with this image and waits for its shell.
    ///
    /// # Panics
    /// When QEMU does not start, or the guest does not answer.
    #[must_use]
    pub fn boot(image: &Image) -> Self {
        Self::start(image, false)
    }

    /// Boots a guest that also has `eth1`, with one queue and the MAC address [`SECOND`]. A bridge connects it to
    /// `eth0`. The bridge has the address 10.7.0.1/24.
    ///
    /// # Panics
    /// As [`Guest::boot`].
    #[must_use]
    pub fn boot_pair(image: &Image) -> Self {
        Self::start(image, true)
    }

    fn start(image: &Image, is_pair: bool) -> Self {
        let net = Net::new().unwrap();
        net.sh(&format!(
            "ip tuntap add {TAP} mode tap multi_queue && \
             ip link set {TAP} txqueuelen {ROOM} up"
        ));
        if is_pair {
            net.sh(&format!(
                "ip tuntap add {OTHER} mode tap && ip link set {OTHER} txqueuelen {ROOM} up && \
                 ip link add bridge0 type bridge && ip link set bridge0 up && \
                 ip link set {TAP} master bridge0 && ip link set {OTHER} master bridge0 && \
                 ip addr add 10.7.0.1/24 dev bridge0"
            ));
        }
        let mut args = vec!["-m".to_owned(), "1024".to_owned()];
        let netdev =
            format!("tap,id=n0,ifname={TAP},script=no,downscript=no,queues={QUEUES},vhost=off");
        let device = format!(
            "virtio-net-pci,netdev=n0,mq=on,vectors={},rss=on,hash=on,rx_queue_size=1024,mac={}",
            2 * QUEUES + 2,
            text(MAC)
        );
        args.extend(["-netdev".to_owned(), netdev, "-device".to_owned(), device]);
        if is_pair {
            let netdev = format!("tap,id=n1,ifname={OTHER},script=no,downscript=no,vhost=off");
            let device = format!("virtio-net-pci,netdev=n1,mac={}", text(SECOND));
            args.extend(["-netdev".to_owned(), netdev, "-device".to_owned(), device]);
        }
        Self::start_qemu(image, &net, 4, &args)
    }

    /// Boots a guest whose `eth0` is a port of another program, by vhost-user. Its memory is shared with that program.
    ///
    /// # Panics
    /// As [`Guest::boot`].
    #[must_use]
    pub fn boot_vhost(image: &Image, vhost: &Vhost) -> Self {
        let Vhost { socket, listens, queues, packed, mac } = vhost;
        let packed = if *packed { "on" } else { "off" };
        let mode = if *listens { "server=on,wait=off" } else { "reconnect=1" };
        let args = [
            "-m",
            "256",
            "-object",
            "memory-backend-memfd,id=mem,size=256M,share=on",
            "-numa",
            "node,memdev=mem",
            "-chardev",
            &format!("socket,id=c0,path={},{mode}", socket.display()),
            "-netdev",
            &format!("vhost-user,id=n0,chardev=c0,queues={queues}"),
            "-device",
            &format!(
                // Without KVM, QEMU 7.2 crashes when it sets up vhost-user with MSI-X.
                "virtio-net-pci,netdev=n0,mq=on,vectors=0,packed={packed},mac={}",
                text(*mac)
            ),
        ];
        Self::start_qemu(image, &Net::new().unwrap(), 2, &args.map(str::to_owned))
    }

    /// Starts QEMU, and again if the guest hangs: without KVM, a kernel with several processors does so now and then before
    /// it prints anything.
    fn start_qemu(image: &Image, net: &Net, cpus: usize, args: &[String]) -> Self {
        for _ in 1..STARTS {
            let mut guest = Self::spawn(image, net, cpus, args);
            if guest.try_until_end(BOOT / 3).is_some() {
                return guest;
            }
            let _ = writeln!(std::io::stderr(), "a guest hangs, and is started again");
        }
        let mut guest = Self::spawn(image, net, cpus, args);
        guest.until_end(BOOT);
        guest
    }

    fn spawn(image: &Image, net: &Net, cpus: usize, args: &[String]) -> Self {
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", &cpus.to_string()])
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .args(["-serial", "stdio"])
            .args(args);
        command
            .arg("-kernel")
            .arg(&image.kernel)
            .arg("-initrd")
            .arg(&image.system)
            .args(["-append", "console=ttyS0 quiet loglevel=0 panic=-1 rdinit=/init"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        sys::within(&mut command, &net.0);
        sys::end_with_parent(&mut command);
        let mut qemu = command.spawn().unwrap();
        let (stdin, mut stdout) = (qemu.stdin.take().unwrap(), qemu.stdout.take().unwrap());
        let (sender, output) = channel();
        thread::spawn(move || {
            let mut part = vec![0; 1 << 16];
            while let Ok(len @ 1..) = stdout.read(&mut part) {
                if sender.send(part[..len].to_vec()).is_err() {
                    return;
                }
            }
        });
        let net = Net(net.0.try_clone().unwrap());
        Self { qemu, stdin, output, net, printed: String::new() }
    }

    /// The namespace of the TAP.
    #[must_use]
    pub const fn net(&self) -> &Net {
        &self.net
    }

    /// Kills QEMU with signal 9.
    pub fn kill(&mut self) {
        // Neither fails unless QEMU has ended already.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }

    /// Runs a line in the guest's shell. Returns its exit status and what it printed.
    ///
    /// # Panics
    /// When the guest does not answer.
    pub fn run(&mut self, line: &str) -> (i32, String) {
        assert!(line.len() < 4000 && !line.contains('\n'), "a line of a terminal: {line}");
        writeln!(self.stdin, "{line}").unwrap();
        self.stdin.flush().unwrap();
        self.until_end(COMMAND)
    }

    /// Runs a line in the guest's shell, which must succeed. Returns what it printed.
    ///
    /// # Panics
    /// When it fails.
    pub fn sh(&mut self, line: &str) -> String {
        let (status, printed) = self.run(line);
        assert_eq!(status, 0, "in the guest: {line}\n{printed}");
        printed
    }

    /// Frames that the guest's `eth0` has received, by queue.
    ///
    /// # Panics
    /// When ethtool prints no such counters.
    pub fn received(&mut self) -> Vec<u64> {
        let text = self.sh("ethtool -S eth0");
        let counter = |queue| {
            let name = format!("rx_queue_{queue}_packets: ");
            let value = text.lines().find_map(|line| line.trim().strip_prefix(&name));
            value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name}: {text}"))
        };
        (0..QUEUES).map(counter).collect()
    }

    /// The output up to the end of a command, and the exit status.
    fn until_end(&mut self, limit: Duration) -> (i32, String) {
        let done = self.try_until_end(limit);
        done.unwrap_or_else(|| {
            panic!("the guest did not answer within {limit:?}; it printed:\n{}", self.printed)
        })
    }

    /// As [`Guest::until_end`]; `None` if that takes longer than `limit`.
    #[allow(clippy::disallowed_methods, reason = "the guest runs in real time")]
    fn try_until_end(&mut self, limit: Duration) -> Option<(i32, String)> {
        let started = Instant::now();
        self.printed.clear();
        let text = &mut self.printed;
        loop {
            if let Some(end) = text.find(END)
                && let Some((status, _)) = text[end + END.len()..].split_once('\n')
            {
                let status = status.trim().parse().unwrap_or(-1);
                let printed = text[..end].replace('\r', "");
                return Some((status, printed.strip_suffix('\n').unwrap_or(&printed).to_owned()));
            }
            match self.output.recv_timeout(limit.saturating_sub(started.elapsed())) {
                Ok(part) => text.push_str(&String::from_utf8_lossy(&part)),
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("QEMU has ended; it printed:\n{text}")
                }
            }
        }
    }
}

/// Sends frames to the `eth0` of the guest whose TAP is in `net`, and waits for `pause` after each 64 of them. The guest
/// is slow, and QEMU loses frames for which its rings have no room.
///
/// # Panics
/// When a frame cannot be sent.
pub fn send(net: &Net, frames: Vec<Vec<u8>>, pause: Duration) {
    net.within(move || {
        let socket = sys::packet_socket(TAP).unwrap();
        for burst in frames.chunks(64) {
            for frame in burst {
                sys::send(&socket, frame).unwrap();
            }
            thread::sleep(pause);
        }
    });
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.kill();
    }
}
