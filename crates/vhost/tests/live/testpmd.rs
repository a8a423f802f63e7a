//! DPDK's testpmd with virtio-user, on both sides of a yard.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use flowyard_testkit::note;

use crate::yard::{FORWARD, Yard, config, dropped, number};
use crate::{now, rounds};

flowyard_testkit::tests! {
    frames_between_two_testpmds_are_conserved,
    a_testpmd_that_is_killed_is_replaced,
}

/// The rings of an adapter.
#[derive(Clone, Copy)]
struct Rings {
    /// Queue pairs.
    queues: u16,
    packed: bool,
}

/// A testpmd at its prompt.
struct Testpmd {
    child: Child,
    stdin: ChildStdin,
    output: Receiver<Vec<u8>>,
}

impl Testpmd {
    /// With a virtio-user adapter at `socket`, where it listens itself if `listens`.
    fn start(socket: &Path, name: &str, listens: bool, rings: Rings, mode: &str) -> Self {
        let Rings { queues, packed } = rings;
        let (server, paired, packed) = (u8::from(listens), queues.to_string(), u8::from(packed));
        // Without a terminal, only the prompt would be written at once.
        let mut command = Command::new("stdbuf");
        command
            .args(["-oL", "dpdk-testpmd"])
            .args(["--lcores", "0@0,1@0", "--no-pci", "--no-huge", "-m", "256", "--no-telemetry"])
            .arg(format!("--file-prefix={name}{}", std::process::id()))
            .arg("--vdev")
            .arg(format!(
                "net_virtio_user0,path={},server={server},queues={queues},queue_size=1024,packed_vq={packed}",
                socket.display()
            ))
            .args(["--", "-i", "--nb-cores=1", "--total-num-mbufs=8192"])
            .args([&format!("--rxq={paired}"), &format!("--txq={paired}")])
            .args(["--rxd=1024", "--txd=1024", &format!("--forward-mode={mode}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        flowyard_livekit::sys::end_with_parent(&mut command);
        let mut child = command.spawn().unwrap();
        let (stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut part = vec![0; 1 << 16];
            while let Ok(len @ 1..) = stdout.read(&mut part) {
                if sender.send(part[..len].to_vec()).is_err() {
                    return;
                }
            }
        });
        let mut new = Self { child, stdin, output };
        new.until_prompt("");
        new
    }

    /// The output up to a prompt behind `what`.
    fn until_prompt(&mut self, what: &str) -> String {
        let mut text = String::new();
        while !text.ends_with("testpmd> ") || !text.contains(what) {
            match self.output.recv_timeout(Duration::from_secs(60)) {
                Ok(part) => text.push_str(&String::from_utf8_lossy(&part)),
                Err(error) => panic!("testpmd: {error}; it printed:\n{text}"),
            }
        }
        text
    }

    /// Says a line, and returns the output up to a prompt behind `what`.
    fn say(&mut self, line: &str, what: &str) -> String {
        writeln!(self.stdin, "{line}").unwrap();
        self.until_prompt(what)
    }

    /// Frames received and transmitted.
    fn frames(&mut self) -> (u64, u64) {
        let text = self.say("show port stats 0", "TX-bytes");
        (
            number(&text.replace("RX-packets:", "\"rx\":"), "rx"),
            number(&text.replace("TX-packets:", "\"tx\":"), "tx"),
        )
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A generator in the west, and a sink in the east, with rings of each layout on either side.
fn frames_between_two_testpmds_are_conserved() {
    for (queues, west, east) in [
        (1, false, false),
        (2, false, false),
        (1, true, true),
        (2, true, true),
        (2, true, false),
        (2, false, true),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let text = config(folder.path(), "client", "busy", FORWARD);
        let mut yard = Yard::start(folder.path(), &text);
        let names = [west, east].map(|packed| if packed { "packed" } else { "split" });
        let [west, east] = [west, east].map(|packed| Rings { queues, packed });
        let mut east =
            Testpmd::start(&folder.path().join("east.sock"), "east", true, east, "rxonly");
        let mut west =
            Testpmd::start(&folder.path().join("west.sock"), "west", false, west, "txonly");
        for (port, layout) in ["west", "east"].into_iter().zip(names) {
            let ready = format!(
                "{queues} queues to transmit (mergeable buffers), {queues} to receive, {layout} rings"
            );
            yard.wait_for(port, &ready, 1);
        }
        east.say("start", "packet forwarding");
        let from = now();
        west.say("start", "packet forwarding");
        std::thread::sleep(Duration::from_secs(5));
        west.say("stop", "Done.");
        let time = from.elapsed();
        std::thread::sleep(Duration::from_secs(1));
        east.say("stop", "Done.");
        let ((_, sent), (got, _)) = (west.frames(), east.frames());
        drop((west, east));
        let report = yard.end();
        let of = |key| number(&report, key);
        let (rx, tx) = (of("rx_frames"), of("tx_frames"));
        let rate = |frames: u64| frames as f64 / time.as_secs_f64() / 1e6;
        note!(
            "{queues} queues, {names:?}: {sent} frames sent, {rx} received by the yard, {tx} transmitted, {got} received by \
             the sink in {time:.1?}: {:.2} and {:.2} million a second",
            rate(sent),
            rate(got)
        );
        assert!(sent > 10_000, "the generator did nothing");
        assert_eq!(rx, sent, "frames that the guest has transmitted: {report}");
        assert_eq!(tx, got, "frames for the guest: {report}");
        assert_eq!(rx, tx + dropped(&report), "conservation: {report}");
    }
}

fn a_testpmd_that_is_killed_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let mut yard = Yard::start(folder.path(), &config(folder.path(), "client", "busy", FORWARD));
    let east = Rings { queues: 1, packed: false };
    let mut east = Testpmd::start(&folder.path().join("east.sock"), "east", true, east, "rxonly");
    east.say("start", "packet forwarding");
    for round in 1..=rounds() {
        let mut west = Testpmd::start(
            &folder.path().join("west.sock"),
            &format!("w{round}"),
            false,
            Rings { queues: 1, packed: round % 2 == 0 },
            "txonly",
        );
        yard.wait_for("west", "the guest's driver is ready", round);
        let before = east.frames().0;
        west.say("start", "packet forwarding");
        for _ in 0..1000 {
            std::thread::sleep(Duration::from_millis(10));
            if east.frames().0 > before {
                break;
            }
        }
        assert!(east.frames().0 > before, "nothing came in round {round}: {}", yard.log());
        // It is killed while it transmits.
        drop(west);
    }
    drop(east);
    let report = yard.end();
    note!("{} times kill -9 of testpmd: {report}", rounds());
}
