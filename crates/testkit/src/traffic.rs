//! Seeded traffic: many connections with a popularity, frame sizes and arrival times.
//!
//! ```text
//!  TCP connection  SYN> <SYN,ACK ACK>  (request> <response) x exchanges  FIN> <FIN ACK>  then the
//!                  slot opens its next connection, from another source port
//!  UDP flow        (request> <response) without end
//! ```
//!
//! A slot is one client of one server. For each packet a slot is drawn by popularity, and takes the next
//! step of its connection. The packets of a connection are therefore in order, and connections are mixed
//! as on a busy link.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flowyard_frame::{FlowKey, Nanos, proto};

use crate::{Build, Rng};

/// How packets are distributed over slots.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Popularity {
    /// All slots have the same weight.
    Uniform,
    /// Slot `i` (from 0) with weight 1 / (i + 1)^exponent.
    Zipf(f64),
}

/// Lengths of the frames that carry data, in bytes without the frame check sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sizes {
    /// All frames have this length.
    Fixed(usize),
    /// Simple IMIX: 60, 590 and 1514 bytes in proportions of 7 : 4 : 1.
    Imix,
}

/// The arrival process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrivals {
    /// Equal distances.
    Constant,
    /// A Poisson process: exponentially distributed distances.
    Poisson,
}

/// A description of traffic.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Profile {
    /// Number of slots, each with one connection at a time.
    pub flows: u32,
    /// How packets are distributed over slots.
    pub popularity: Popularity,
    /// Lengths of data frames; SYN, ACK and FIN have 60 bytes.
    pub sizes: Sizes,
    /// Arrival process.
    pub arrivals: Arrivals,
    /// Packets per second, on average.
    pub rate_pps: f64,
    /// Number of requests, each with a response, in a TCP connection; with 0 it is never closed.
    pub exchanges: u32,
    /// One of `udp_every` slots is UDP; with 0, none is.
    pub udp_every: u32,
    /// One of `ipv6_every` slots is IPv6; with 0, none is.
    pub ipv6_every: u32,
    /// The time of the first packet.
    pub start: Nanos,
}

impl Default for Profile {
    /// 1,000 slots, Zipf 1.0, IMIX, Poisson at a million packets per second, 8 exchanges per connection,
    /// every 4th slot UDP, every 5th IPv6.
    fn default() -> Self {
        Self {
            flows: 1000,
            popularity: Popularity::Zipf(1.0),
            sizes: Sizes::Imix,
            arrivals: Arrivals::Poisson,
            rate_pps: 1e6,
            exchanges: 8,
            udp_every: 4,
            ipv6_every: 5,
            start: 1_700_000_000_000_000_000,
        }
    }
}

/// A generated packet, without its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// The arrival time.
    pub time: Nanos,
    /// Number of the slot.
    pub slot: u32,
    /// Whether the packet goes from server to client.
    pub reply: bool,
    /// The key that a parser finds: 5-tuple, MACs, EtherType and TCP flags.
    pub key: FlowKey,
}

/// Endless traffic, as an iterator, or with [`Traffic::next_into`] in a reused buffer.
#[derive(Clone, Debug)]
pub struct Traffic {
    profile: Profile,
    rng: Rng,
    slots: Vec<Slot>,
    /// Cumulative weights by slot; empty if uniform.
    weights: Vec<f64>,
    elapsed_ns: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    step: u32,
    connection: u32,
}

impl Traffic {
    /// The traffic that `profile` and `seed` describe.
    ///
    /// # Panics
    /// When the profile has no slots, more than 2^24 of them, or no rate.
    #[must_use]
    pub fn new(profile: Profile, seed: u64) -> Self {
        assert!((1..=1 << 24).contains(&profile.flows), "traffic has 1 to 2^24 slots");
        assert!(profile.rate_pps > 0.0, "traffic needs a rate");
        let mut sum = 0.0;
        let weights = match profile.popularity {
            Popularity::Uniform => Vec::new(),
            Popularity::Zipf(exponent) => {
                let weight = |i| f64::from(i + 1).powf(-exponent);
                (0..profile.flows).map(weight).inspect(|w| sum += w).collect::<Vec<_>>()
            }
        };
        let mut upto = 0.0;
        let weights = weights.iter().map(|weight| (upto += weight / sum, upto).1).collect();
        let slots = vec![Slot::default(); profile.flows as usize];
        Self { profile, rng: Rng::new(seed), slots, weights, elapsed_ns: 0.0 }
    }

    /// The key of connection number `connection` (from 0) of `slot`, from client to server. Different slots
    /// have different clients; source ports repeat after 60,000 connections.
    #[must_use]
    pub fn key(&self, slot: u32, connection: u32) -> FlowKey {
        let is = |every: u32| every > 0 && slot % every == every - 1;
        let [_, a, b, c] = slot.to_be_bytes();
        let server = (slot % 16) as u8 + 1;
        let (src, dst): (IpAddr, IpAddr) = if is(self.profile.ipv6_every) {
            let site = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, (slot >> 16) as u16, slot as u16);
            let server = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, server.into());
            (site.into(), server.into())
        } else {
            (Ipv4Addr::new(10, a, b, c).into(), Ipv4Addr::new(198, 18, 0, server).into())
        };
        let (proto, dport) =
            if is(self.profile.udp_every) { (proto::UDP, 53) } else { (proto::TCP, 80) };
        let sport = 5000 + (u64::from(slot) * 7919 + u64::from(connection)) % 60_000;
        FlowKey {
            eth_src: [2, 0, 0, a, b, c],
            eth_dst: [2, 1, 0, 0, 0, server],
            ..FlowKey::five_tuple(proto, src, sport as u16, dst, dport)
        }
    }

    /// The next packet; its bytes replace the contents of `frame`.
    pub fn next_into(&mut self, frame: &mut Vec<u8>) -> Packet {
        let slot = self.draw();
        let Slot { step, connection } = self.slots[slot as usize];
        let client = self.key(slot, connection);
        let (flags, reply, data) = self.step(slot, client.proto);
        let key = FlowKey { tcp_flags: flags, ..if reply { client.reversed() } else { client } };
        let len = if data { self.size() } else { 60 };
        let build = Build::new(&key).seq(step);
        // Segments without data get Ethernet padding; their IP packets stay short.
        if data { build.frame_len(len).pad(60) } else { build.pad(60) }.write(frame);
        let time = self.profile.start + self.elapsed_ns as u64;
        self.elapsed_ns += self.gap();
        Packet { time, slot, reply, key }
    }

    /// Draws a slot by its popularity.
    fn draw(&mut self) -> u32 {
        if self.weights.is_empty() {
            return self.rng.below(self.profile.flows.into()) as u32;
        }
        let point = self.rng.unit();
        let slot = self.weights.partition_point(|&upto| upto <= point) as u32;
        slot.min(self.profile.flows - 1) // rounding may leave the last weight below 1
    }

    /// The next step of a slot: TCP flags, whether it is a reply, and whether it has data.
    fn step(&mut self, slot: u32, proto: u8) -> (u8, bool, bool) {
        const SYN_ACK: u8 = FlowKey::SYN | FlowKey::ACK;
        const FIN_ACK: u8 = FlowKey::FIN | FlowKey::ACK;
        let state = &mut self.slots[slot as usize];
        let step = state.step;
        state.step = step.wrapping_add(1);
        if proto == proto::UDP {
            return (0, !step.is_multiple_of(2), true);
        }
        let close = match self.profile.exchanges {
            0 => u32::MAX,
            exchanges => exchanges.saturating_mul(2).saturating_add(3),
        };
        match step {
            0 => (FlowKey::SYN, false, false),
            1 => (SYN_ACK, true, false),
            2 => (FlowKey::ACK, false, false),
            _ if step < close => (FlowKey::ACK, step.is_multiple_of(2), true),
            _ if step == close => (FIN_ACK, false, false),
            _ if step == close.saturating_add(1) => (FIN_ACK, true, false),
            _ => {
                *state = Slot { step: 0, connection: state.connection.wrapping_add(1) };
                (FlowKey::ACK, false, false)
            }
        }
    }

    fn size(&mut self) -> usize {
        match self.profile.sizes {
            Sizes::Fixed(len) => len,
            Sizes::Imix => match self.rng.below(12) {
                0..=6 => 60,
                7..=10 => 590,
                _ => 1514,
            },
        }
    }

    fn gap(&mut self) -> f64 {
        let mean_ns = 1e9 / self.profile.rate_pps;
        match self.profile.arrivals {
            Arrivals::Constant => mean_ns,
            Arrivals::Poisson => -(1.0 - self.rng.unit()).ln() * mean_ns,
        }
    }
}

impl Iterator for Traffic {
    type Item = (Packet, Vec<u8>);

    fn next(&mut self) -> Option<Self::Item> {
        let mut frame = Vec::new();
        let packet = self.next_into(&mut frame);
        Some((packet, frame))
    }
}
