//! Devices in the memory of this process: net_null, net_ring, net_pcap.

use flowyard_config::Config;
use flowyard_yard::Parts;

use super::traffic::{clock, frame, frames, frames_or, log, pass, text};

flowyard_testkit::tests! {
    a_ring_returns_every_frame_in_order,
    a_ring_that_is_copied_returns_every_frame_in_order,
    frames_in_long_buffers_pass_in_their_place,
    what_null_gives_is_transmitted_or_counted,
    captures_pass_through_pcap,
}

fn ring(memory: &str) -> String {
    let port = format!(
        "[[port]]\nname = \"ring\"\nkind = \"dpdk\"\ndevice = \"net_ring0\"\nmemory = \"{memory}\""
    );
    text(&port, "gen = \"ring\", ring = \"sink\", sink = \"gen\"")
}

fn a_ring_returns_every_frame_in_order() {
    let ran = pass(&ring("yard"), frames_or(3_000_000));
    assert!(!ran.copies("ring"));
}

fn a_ring_that_is_copied_returns_every_frame_in_order() {
    let ran = pass(&ring("copy"), frames());
    assert!(ran.copies("ring"));
}

/// A long buffer is not lent to the driver, so the frame is copied; those behind it wait for nothing.
fn frames_in_long_buffers_pass_in_their_place() {
    let text =
        ring("yard").replace("memory = \"yard\"", "memory = \"yard\"\noffload = { gro = true }");
    let ran = pass(&text, frames());
    assert!(!ran.copies("ring"));
    assert!(!ran.log.iter().any(|line| line.contains("takes no frames")), "{:?}", ran.log);
}

/// Both directions of two devices that always have frames.
fn what_null_gives_is_transmitted_or_counted() {
    let ports = "[[port]]\nname = \"a\"\nkind = \"dpdk\"\ndevice = \"net_null0,size=64\"\n\
                 [[port]]\nname = \"b\"\nkind = \"dpdk\"\ndevice = \"net_null1,size=700\"\nmemory = \"copy\"";
    let text = text(ports, "a = \"b\", b = \"a\", gen = \"sink\", sink = \"gen\"");
    let (to, log) = log();
    let yard = Config::parse("y", &text).unwrap().build_logged(Parts::default(), &to).unwrap();
    let running = yard.start(clock()).unwrap();
    let received = || running.counters().iter().map(|core| core.rx_frames).sum::<u64>();
    loop {
        std::thread::sleep(std::time::Duration::from_millis(500));
        if received() >= frames_or(10_000) {
            break;
        }
    }
    running.stop();
    let outcome = running.join();
    let total = outcome.total();
    assert!(outcome.is_balanced() && outcome.failed.is_empty() && outcome.held == 0, "{outcome:?}");
    flowyard_testkit::note!("{} frames", total.rx_frames);
    assert!(total.rx_frames >= frames_or(10_000), "{outcome:?}");
    assert_eq!(total.tx_frames, total.rx_frames, "{outcome:?} {log:?}");
}

/// A capture in the classic format with these frames.
fn capture(frames: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        file.extend(word.to_le_bytes());
    }
    for (at, frame) in (0_u32..).zip(frames) {
        for word in [at / 1000, at % 1000, frame.len() as u32, frame.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    file
}

/// The frames of a capture in the classic format.
fn frames_of(file: &[u8]) -> Vec<&[u8]> {
    let (mut at, mut frames) = (24, Vec::new());
    while at < file.len() {
        let len = u32::from_le_bytes(*file[at + 8..].first_chunk().unwrap()) as usize;
        frames.push(&file[at + 16..at + 16 + len]);
        at += 16 + len;
    }
    frames
}

fn captures_pass_through_pcap() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
    let count = frames_or(200_000);
    std::fs::write(&input, capture((0..count).map(frame()))).unwrap();
    let port = format!(
        "[[port]]\nname = \"pcap\"\nkind = \"dpdk\"\ndevice = \"net_pcap0,rx_pcap={},tx_pcap={}\"",
        input.display(),
        output.display()
    );
    let text = text(&port, "pcap = \"pcap\", gen = \"sink\", sink = \"gen\"");
    let (to, log) = log();
    let yard = Config::parse("y", &text).unwrap().build_logged(Parts::default(), &to).unwrap();
    let running = yard.start(clock()).unwrap();
    let (mut size, mut same) = (0, 0);
    while same < 20 {
        std::thread::sleep(std::time::Duration::from_millis(25));
        let now = std::fs::metadata(&output).map_or(0, |file| file.len());
        same = if now == size && now > 0 { same + 1 } else { 0 };
        size = now;
    }
    running.stop();
    let outcome = running.join();
    assert!(outcome.is_balanced() && outcome.held == 0, "{outcome:?} {log:?}");
    assert_eq!(outcome.total().tx_frames, count, "{outcome:?}");
    let written = std::fs::read(&output).unwrap();
    let written = frames_of(&written);
    assert_eq!(written.len() as u64, count);
    let frame = frame();
    assert!((0..count).zip(written).all(|(number, bytes)| bytes == frame(number)));
}
