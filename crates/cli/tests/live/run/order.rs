//! Checks the order of a TCP flow's frames by their IPv4 identification: the kernel increments it for every
//! segment of a connection, also for retransmissions (`ip_queue_xmit`), so that a later frame has a higher
//! number, whatever was lost.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flowyard_ports::af_packet::{Fanout, Ring, Settings};
use flowyard_ports::live::Interface;

flowyard_testkit::tests! {
    late_and_duplicate_are_distinguished_from_lost,
}

/// Counts over all flows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Frames with data.
    pub(crate) frames: u64,
    /// Frames that arrived after a later one of their flow.
    pub(crate) late: u64,
    /// Frames that arrived twice.
    pub(crate) twice: u64,
    /// The last number of each flow, by its ports.
    last: BTreeMap<[u8; 4], u16>,
}

impl Seen {
    /// Counts a frame, if it is from `from` and has TCP data.
    fn look(&mut self, frame: &[u8], from: [u8; 4]) {
        let Some((flow, number)) = tagged(frame, from) else { return };
        self.frames += 1;
        let last = self.last.entry(flow).or_insert_with(|| number.wrapping_sub(1));
        match number.wrapping_sub(*last) {
            0 => self.twice += 1,
            // Serial numbers (RFC 1982).
            ahead if ahead < 0x8000 => *last = number,
            _ => self.late += 1,
        }
    }
}

/// Ports and identification of an untagged IPv4 frame with TCP data.
fn tagged(frame: &[u8], from: [u8; 4]) -> Option<([u8; 4], u16)> {
    let word = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let is_tcp = word(12)? == 0x0800 && *frame.get(23)? == 6 && frame.get(26..30)? == from;
    let (ip, fragment) = (usize::from(frame.get(14)? & 15) * 4, word(20)? & 0x3fff);
    let tcp = 14 + ip;
    let (data, flags) = (usize::from(frame.get(tcp + 12)? >> 4) * 4, frame.get(tcp + 13)?);
    let has_data = frame.len() > tcp + data && usize::from(word(16)?) > ip + data;
    // SYN and RST have identifications from another sequence.
    let counts = is_tcp && fragment == 0 && has_data && flags & 6 == 0;
    Some((*frame.get(tcp..)?.first_chunk()?, word(18)?)).filter(|_| counts)
}

/// Watches the TCP frames from `from` on the interface, in the calling thread's namespace, until `over` and
/// the ring is empty.
pub(crate) fn watch(interface: &str, from: [u8; 4], over: &AtomicBool) -> Seen {
    let settings = Settings { fanout: Fanout::Hash, frames: 32_768 };
    let interface = Interface::find(interface).unwrap();
    let mut ring = Ring::open(&interface, 1, settings).unwrap().pop().unwrap();
    let (mut seen, mut bytes) = (Seen::default(), Vec::new());
    loop {
        let was_over = over.load(Ordering::Relaxed);
        while let Some(found) = ring.peek() {
            bytes.resize(found.len(None, 0), 0);
            found.write(None, 0, &mut bytes);
            seen.look(&bytes, from);
            ring.advance();
        }
        if was_over {
            return seen;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The check detects late and duplicated frames.
fn late_and_duplicate_are_distinguished_from_lost() {
    let frame = |number: u16, port: u8| {
        let mut frame = [0; 60];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14..20].copy_from_slice(&[0x45, 0, 0, 46, (number >> 8) as u8, number as u8]);
        (frame[23], frame[26], frame[35], frame[46], frame[47]) = (6, 10, port, 0x50, 0x10);
        frame
    };
    let seen = |numbers: &[(u16, u8)]| {
        let mut seen = Seen::default();
        numbers.iter().for_each(|(number, port)| seen.look(&frame(*number, *port), [10, 0, 0, 0]));
        (seen.frames, seen.late, seen.twice)
    };
    assert_eq!(seen(&[(65_534, 1), (65_535, 1), (3, 1), (900, 1)]), (4, 0, 0), "wrapped, and lost");
    assert_eq!(seen(&[(5, 1), (7, 1), (6, 1), (8, 1)]), (4, 1, 0), "overtaken");
    assert_eq!(seen(&[(5, 1), (4, 2), (6, 1), (5, 2)]), (4, 0, 0), "two flows");
    assert_eq!(seen(&[(5, 1), (5, 1)]), (2, 0, 1), "copied");
    let mut other = Seen::default();
    other.look(&frame(1, 1), [10, 0, 0, 9]);
    other.look(&frame(1, 1)[..47], [10, 0, 0, 0]);
    assert_eq!(other, Seen::default());
}
