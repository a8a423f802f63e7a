//! The star of hosts with `af_xdp` ports, and streams of frames. No two frames of a stream have the same bytes.

use std::net::IpAddr;
use std::time::Duration;

use flowyard_frame::{FlowKey, proto};
use flowyard_testkit::Build;

use super::super::{Star, Wire, ip, says};
use crate::yard::{Live, clock, drops, total, wait_until};

/// Frames that may be on their way at the same time; fewer than a veth's ring holds (256).
pub(super) const WINDOW: u64 = 96;
/// Lengths of frames, in turn.
pub(super) const LENGTHS: [usize; 5] = [60, 1514, 61, 577, 128];

/// The star with `af_xdp` ports, and a socket on each host.
pub(super) struct Rig {
    pub(super) star: Star,
    pub(super) live: Live,
    pub(super) wires: Vec<Wire>,
}

/// One direction of traffic between two hosts, and what has been sent and received of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) from: u8,
    pub(super) to: u8,
    /// The host that receives it now.
    pub(super) at: u8,
    pub(super) protocol: u8,
    pub(super) port: u16,
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) bytes: u64,
}

impl Stream {
    pub(super) fn new(from: u8, to: u8, protocol: u8, port: u16) -> Self {
        Self { from, to, at: to, protocol, port, sent: 0, received: 0, bytes: 0 }
    }

    /// Frame `number`: its bytes differ from those of all other frames.
    pub(super) fn frame(&self, number: u64) -> Vec<u8> {
        let (src, dst): (IpAddr, IpAddr) = (ip(self.from), ip(self.to));
        let mut key = FlowKey::five_tuple(self.protocol, src, self.port, dst, 7);
        (key.eth_src, key.eth_dst) = ([2, 0, 0, 0, 0, self.from], [2, 0, 0, 0, 0, self.to]);
        let seed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        let head = if self.protocol == proto::TCP { 54 } else { 42 };
        let length = LENGTHS[number as usize % LENGTHS.len()] - head;
        let mut payload = vec![0; length.max(6)];
        payload[..6].copy_from_slice(&number.to_be_bytes()[2..]);
        payload[6..].iter_mut().zip(0..).for_each(|(byte, at)| *byte = (seed >> (at % 57)) as u8);
        // The sequence numbers of TCP are not consecutive, so that GRO merges nothing.
        Build::new(&key).flags(FlowKey::ACK).seq(seed as u32 | 1).payload(&payload).bytes()
    }
}

impl Rig {
    /// A switch with this number of cores; port `n` belongs to core `n` modulo that.
    pub(super) fn new(cores: u8) -> Self {
        Self::taking(cores, "\"all\"")
    }

    /// The same; the ports take the frames that `rules` say.
    pub(super) fn taking(cores: u8, rules: &str) -> Self {
        let star = Star::new();
        for host in &star.hosts {
            // Without addresses, the hosts send nothing themselves, so that the counters of ports are exact.
            host.sh("ethtool -K eth gro on tx off > /dev/null; ip addr flush dev eth");
            host.sh("echo 1 > /proc/sys/net/ipv6/conf/eth/disable_ipv6");
        }
        let port = |n: u8| {
            format!(
                "[[port]]\nname = \"p{n}\"\nkind = \"af_xdp\"\ninterface = \"p{n}\"\nmatch = [{rules}]\n\
                 cores = [{}]\nqueues = [0]\nring_frames = 2048\n",
                n % cores
            )
        };
        let live = star.run(cores.into(), &port, "", "[offload]\nxdp = true\n");
        let wires = (1..=4).map(|host| star.wire(host)).collect();
        Self { star, live, wires }
    }

    /// Sends `count` frames of each stream in turn, and receives all of them.
    pub(super) fn exchange(&mut self, streams: &mut [Stream], count: u64) {
        for _ in 0..count {
            for at in 0..streams.len() {
                let stream = &mut streams[at];
                let frame = stream.frame(stream.sent);
                let wire = &mut self.wires[usize::from(stream.from) - 1];
                let (sent, error) = wire.sender.send([&frame[..]].into_iter());
                assert_eq!(sent, 1, "{error:?}");
                stream.sent += 1;
                stream.bytes += frame.len() as u64;
                self.within(streams, WINDOW);
            }
        }
        self.within(streams, 0);
    }

    /// Receives until at most `most` frames are on their way.
    #[track_caller]
    pub(super) fn within(&mut self, streams: &mut [Stream], most: u64) {
        let clock = clock();
        loop {
            self.receive(streams);
            let way: u64 = streams.iter().map(|stream| stream.sent - stream.received).sum();
            if way <= most {
                return;
            }
            if clock() > 5_000_000_000 {
                panic!("{way} frames do not arrive: {streams:#?}\n{}", self.links());
            }
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    /// Receives what has come: every frame is the next one of its stream, byte for byte.
    pub(super) fn receive(&mut self, streams: &mut [Stream]) {
        for (wire, host) in self.wires.iter_mut().zip(1..) {
            while let Some(frame) = wire.take() {
                let is_ours = |stream: &&mut Stream| {
                    let (to, from) = (stream.to, stream.from);
                    frame.len() >= 42
                        && frame[..6] == [2, 0, 0, 0, 0, to]
                        && frame[6..12] == [2, 0, 0, 0, 0, from]
                        && frame[34..36] == stream.port.to_be_bytes()
                        && frame[23] == stream.protocol
                };
                let Some(stream) = streams.iter_mut().find(is_ours) else { continue };
                assert_eq!(host, stream.at, "a frame at the wrong host: {stream:?}");
                let want = stream.frame(stream.received);
                assert!(frame == want, "{stream:?}: got {frame:02x?}, wanted {want:02x?}");
                stream.received += 1;
            }
        }
    }

    /// The counters of all interfaces, for the message of a failure.
    pub(super) fn links(&self) -> String {
        let mut all = self.star.switch.sh("ip -s link; ethtool -S p1; ethtool -S p2");
        for host in &self.star.hosts {
            all += &host.sh("ip -s link show eth; ethtool -S eth");
        }
        all + &self.live.said("err")
    }

    /// Waits until the counters of all flows and ports are those of the streams, which have all frames.
    #[track_caller]
    pub(super) fn settles(&self, streams: &[Stream]) {
        for stream in streams {
            let want = (stream.sent, stream.bytes);
            wait_until("the counters of a flow", || counted(&self.live, stream) == Some(want));
        }
        for port in 1..=4 {
            let sum = |is_one: &dyn Fn(&Stream) -> bool| {
                let own = streams.iter().filter(|stream| is_one(stream));
                own.fold((0, 0), |all, one| (all.0 + one.sent, all.1 + one.bytes))
            };
            let want = (sum(&|stream| stream.from == port), sum(&|stream| stream.to == port));
            wait_until("the counters of a port", || passed(&self.live, port) == want);
        }
    }

    /// Stops the switch, which has dropped nothing for other reasons than `about`. Returns how many frames it has seen.
    pub(super) fn stop(self, what: &str, about: &[(&str, u64)], streams: &[Stream]) -> u64 {
        let counters = self.live.stop();
        let dropped = drops(&counters);
        let dropped: Vec<_> = dropped.iter().map(|(why, frames)| (&**why, *frames)).collect();
        assert_eq!(dropped, about);
        let all: u64 = streams.iter().map(|stream| stream.sent).sum();
        let seen = total(&counters, "rx_frames");
        flowyard_testkit::note!("{what}: {seen} of {all} frames passed through the yard");
        seen
    }
}

/// The five streams between three hosts, with a flow each.
pub(super) fn five(live: &Live) -> [Stream; 5] {
    let streams = [
        Stream::new(1, 2, proto::UDP, 1001),
        Stream::new(2, 1, proto::UDP, 1002),
        Stream::new(1, 3, proto::TCP, 1003),
        Stream::new(3, 2, proto::UDP, 1004),
        Stream::new(3, 1, proto::TCP, 1005),
    ];
    streams.iter().for_each(|stream| add(live, stream, ""));
    streams
}

/// The number behind `name` in a text.
pub(super) fn number(text: &str, name: &str) -> Option<u64> {
    let rest = text.split(name).nth(1)?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The counters of the flow of the stream: packets and bytes; `None` if there is no such flow.
pub(super) fn counted(live: &Live, stream: &Stream) -> Option<(u64, u64)> {
    let dump = says(live, "dump-flows", &[&format!("cookie={:#x}/-1", stream.port)]);
    Some((number(&dump, "n_packets=")?, number(&dump, "n_bytes=")?))
}

/// The counters of a port: packets and bytes, received and sent.
pub(super) fn passed(live: &Live, port: u8) -> ((u64, u64), (u64, u64)) {
    let dump = says(live, "dump-ports", &[&format!("p{port}")]);
    let both = |part: &str| {
        let rest = dump.split(part).nth(1).unwrap_or_else(|| panic!("{dump}"));
        (number(rest, "pkts=").unwrap(), number(rest, "bytes=").unwrap())
    };
    (both("rx "), both("tx "))
}

/// Adds the flow of a stream.
pub(super) fn add(live: &Live, stream: &Stream, more: &str) {
    let name = if stream.protocol == proto::TCP { "tcp" } else { "udp" };
    let flow = format!(
        "cookie={:#x},priority=9,{more}{name},in_port={},tp_src={},actions=output:{}",
        stream.port, stream.from, stream.port, stream.to
    );
    says(live, "add-flow", &[&flow]);
}
