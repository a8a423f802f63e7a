//! The end of tunnels at a backend, in user space, because not every kernel has ipip, ip6tnl, sit and fou
//! (the kernel of the figures in `docs/live.md` has none). It reads frames from `in`, checks the outer
//! headers byte by byte, and delivers inner packets by another interface.
//!
//! ```text
//!  [in] ── ring ── remove outer headers ── sender ── [t0] ─── [t1] kernel of the backend
//! ```

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use flowyard_ports::af_packet::{Fanout, Ring, Sender, Settings};
use flowyard_ports::live::Interface;

use super::balancer::Mode;
use super::site::Site;
use flowyard_livekit::net::Net;

/// Counts of received tunnel packets.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Came {
    /// Packets inside IPv4, and inside IPv6.
    pub(crate) within: [u64; 2],
    /// Packets whose outer headers do not match the mode.
    pub(crate) wrong: u64,
}

pub(crate) struct Tunnel {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Came>>,
}

impl Tunnel {
    pub(crate) fn start(site: &Site, n: usize) -> Self {
        let net: &Net = &site.backends[n - 1];
        net.sh(&format!("ip link add t0 type veth peer name t1 address 02:00:00:00:09:0{n}; ip link set t0 up; ip link set t1 up; \
                echo 0 > /proc/sys/net/ipv4/conf/t1/rp_filter"));
        let to = [2, 0, 0, 0, 9, n as u8];
        let over = Arc::new(AtomicBool::new(false));
        let (flag, mode) = (Arc::clone(&over), site.mode);
        let (opened, wait) = std::sync::mpsc::channel();
        let thread = net.spawn(move || {
            let settings = Settings { fanout: Fanout::Hash, frames: 8192 };
            let ring = Ring::open(&Interface::find("in").unwrap(), 1, settings);
            let ring = ring.unwrap().pop().unwrap();
            let sender = Sender::open(&Interface::find("t0").unwrap(), false).unwrap();
            opened.send(()).unwrap();
            unwrap_all(ring, sender, (mode, n as u8, to), &flag)
        });
        wait.recv().unwrap();
        Self { over, thread: Some(thread) }
    }

    pub(crate) fn stop(mut self) -> Came {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

fn unwrap_all(
    mut ring: Ring,
    mut sender: Sender,
    (mode, n, to): (Mode, u8, [u8; 6]),
    over: &AtomicBool,
) -> Came {
    let (mut came, mut bytes) = (Came::default(), Vec::new());
    while !over.load(Ordering::Relaxed) {
        while let Some(found) = ring.peek() {
            bytes.resize(found.len(None, 0), 0);
            found.write(None, 0, &mut bytes);
            ring.advance();
            match inner(&bytes, mode, n) {
                None => {}
                Some(Err(())) => came.wrong += 1,
                Some(Ok((v6, packet))) => {
                    came.within[usize::from(v6)] += 1;
                    let kind: [u8; 2] = if packet[0] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
                    let frame = [&to[..], &[2, 0, 0, 0, 0, 9], &kind, packet].concat();
                    // A full queue drops frames, as a network does.
                    let _sent = sender.send([&frame[..]].into_iter());
                }
            }
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    came
}

/// The packet in a frame's tunnel, and whether the tunnel is IPv6; `None` if the frame is not a tunnel, an
/// error if the outer headers are wrong for backend `n`.
fn inner(frame: &[u8], mode: Mode, n: u8) -> Option<Result<(bool, &[u8]), ()>> {
    let (kind, outer) = (frame.get(12..14)?, frame.get(14..)?);
    let v6 = match kind {
        [8, 0] => false,
        [0x86, 0xdd] => true,
        _ => return None,
    };
    let proto = *outer.get(if v6 { 6 } else { 9 })?;
    let head = if v6 { 40 } else { 20 };
    let word = |at: usize| u16::from_be_bytes([outer[at], outer[at + 1]]);
    let is_gue = proto == 17 && outer.len() > head + 8 && word(head + 2) == 6080;
    if !matches!(proto, 4 | 41) && !is_gue {
        return None;
    }
    Some(check(outer, v6, proto, mode, n).ok_or(()).map(|packet| (v6, packet)))
}

fn check(outer: &[u8], v6: bool, proto: u8, mode: Mode, n: u8) -> Option<&[u8]> {
    let head = if v6 { 40 } else { 20 };
    let word = |at: usize| usize::from(u16::from_be_bytes([outer[at], outer[at + 1]]));
    let length = if v6 { 40 + word(4) } else { word(2) };
    let (src, dst): (IpAddr, IpAddr) = if v6 {
        let at = |at: usize| <[u8; 16]>::try_from(&outer[at..at + 16]).unwrap();
        (at(8).into(), at(24).into())
    } else {
        let at = |at: usize| <[u8; 4]>::try_from(&outer[at..at + 4]).unwrap();
        (at(12).into(), at(16).into())
    };
    let want = if v6 {
        [format!("fd02::{n}"), "fd02::101".into()]
    } else {
        [format!("10.2.0.{n}"), "10.2.0.101".into()]
    };
    let right = [dst, src].map(|addr| addr.to_string()) == want
        && length == outer.len()
        && (v6 || (outer[0], sum(&[&outer[..20]])) == (0x45, 0xffff));
    let packet = match (mode, proto) {
        (Mode::Ipip, 4 | 41) => &outer[head..],
        (Mode::Gue, 17) => {
            let udp = &outer[head..];
            let pseudo = [&outer[if v6 { 8..40 } else { 12..20 }], &[0, 17], &udp[4..6]].concat();
            // The UDP checksum is optional with IPv4, but not with IPv6.
            let sums = word(head + 6) == 0 && !v6 || sum(&[&pseudo, udp]) == 0xffff;
            if word(head + 4) != udp.len() || !sums {
                return None;
            }
            &udp[8..]
        }
        _ => return None,
    };
    let is = match packet.first()? >> 4 {
        4 => proto != 41,
        6 => proto != 4,
        _ => false,
    };
    (right && is).then_some(packet)
}

/// The sum of the Internet checksum (RFC 1071) over pieces of even length; the last may be odd.
fn sum(pieces: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for pair in pieces.iter().flat_map(|piece| piece.chunks(2)) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
