//! Rules that select the frames for AF_XDP sockets, compiled to an XDP program.
//!
//! ```text
//!  eth [tag [tag]] ip tcp|udp|sctp ──> EtherType, protocol, addresses, ports (on the stack)
//!  for each rule with 'not':  all fields equal? ──> to the kernel
//!  for each other rule:       all fields equal? ──> to the socket       no rule matches: to the kernel
//! ```
//!
//! In an ARP frame, the addresses are the protocol addresses of sender and target.
//!
//! Fragments, including the first one, are treated as having no ports, so that a datagram is not
//! divided between flowyard and the kernel. IPv6 extension headers are not parsed: such a packet
//! has no ports either, and the number of its first extension header as its protocol.

use std::net::IpAddr;

use flowyard_frame::proto;

use super::assemble::{Assembler, Label, R0, R1, R2, R3, R4, R5, R6, R7, R8, R10, Size};
use super::sys::Insn;

mod words;

pub use words::BadRule;

/// The frames that go to AF_XDP sockets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rules {
    /// Every frame.
    All,
    /// Frames that match at least one of these rules and none that is for the kernel.
    Any(Vec<Rule>),
}

/// The fields that a frame must have; fields that are `None` match everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rule {
    /// The kernel keeps the frames that match, whatever other rules say.
    pub kernel: bool,
    /// EtherType after up to two VLAN tags.
    pub ether_type: Option<u16>,
    /// IP protocol number.
    pub protocol: Option<u8>,
    /// Source address.
    pub from: Option<Prefix>,
    /// Destination address.
    pub to: Option<Prefix>,
    /// Source port of TCP, UDP or SCTP.
    pub from_port: Option<u16>,
    /// Destination port of TCP, UDP or SCTP.
    pub to_port: Option<u16>,
}

/// The addresses whose first `bits` bits equal those of `addr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    /// The address.
    pub addr: IpAddr,
    /// The prefix length.
    pub bits: u8,
}

impl Prefix {
    /// Whether `addr` has this prefix.
    #[must_use]
    pub fn has(&self, addr: IpAddr) -> bool {
        let words = |addr: IpAddr| match addr {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        self.addr.is_ipv4() == addr.is_ipv4()
            && (words(self.addr).iter().zip(words(addr)).zip(self.masks()))
                .all(|((a, b), mask)| (a ^ b) & mask == 0)
    }

    /// The mask of each byte.
    fn masks(&self) -> impl Iterator<Item = u8> {
        let bits = u32::from(self.bits);
        (0..16u32).map(move |byte| match bits.saturating_sub(byte * 8) {
            left @ 0..8 => !(0xff_u8.checked_shr(left).unwrap_or(0)),
            _ => 0xff,
        })
    }
}

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ARP: u16 = 0x0806;

/// Offsets of the fields on the program's stack.
const ETHER_TYPE: i16 = -8;
const PROTOCOL: i16 = -16;
const PORTS: i16 = -24;
const SRC: i16 = -40;
const DST: i16 = -56;

/// Flag beside the protocol: there is a complete IP header.
const IS_IP: i32 = 0x100;
/// Flag in place of the protocol: there is a complete ARP message.
const IS_ARP: i32 = 0x200;

/// XDP_PASS.
pub(super) const PASS: i32 = 2;

/// The action for matching frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ours {
    /// Redirect to the socket of their queue in the map with this descriptor, or to the kernel if
    /// there is none.
    Map(i32),
    /// Return this value, to test the rules.
    #[cfg(test)]
    Return(i32),
}

/// Counters of the frames that are left to the kernel, by queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strays {
    /// The array with the counters.
    pub(super) map: i32,
    /// The element of queue 0, and the number of queues that have one.
    pub(super) first: u32,
    pub(super) queues: u32,
    /// The offset of the counter in its element.
    pub(super) offset: i16,
}

impl Strays {
    /// Counts a frame. R6 is the context; R0 to R5 are changed.
    fn count(self, asm: &mut Assembler) {
        let [known, done] = [asm.label(), asm.label()];
        asm.load(R1, R6, RX_QUEUE, Size::Word);
        asm.if_less(R1, self.queues as i32, known);
        asm.goto(done);
        asm.place(known);
        asm.add(R1, self.first as i32);
        asm.store(ETHER_TYPE, R1, Size::Word);
        asm.load_map(R1, self.map);
        asm.move_reg(R2, R10);
        asm.add(R2, ETHER_TYPE.into());
        asm.call(MAP_LOOKUP);
        asm.if_null(R0, done);
        asm.move_imm(R1, 1);
        asm.add_at(R0, self.offset, R1);
        asm.place(done);
    }
}

impl Rules {
    /// The rules, unless they match everything.
    fn some(&self) -> Option<&[Rule]> {
        let has_all = |rules: &[Rule]| rules.contains(&Rule::default());
        match self {
            Self::Any(rules) if !has_all(rules) || rules.iter().any(|r| r.kernel) => Some(rules),
            _ => None,
        }
    }

    /// The program.
    pub(super) fn program(&self, ours: Ours, strays: Option<Strays>) -> Vec<Insn> {
        let mut asm = Assembler::default();
        let [is_ours, pass] = [asm.label(), asm.label()];
        asm.move_reg(R6, R1); // calls do not preserve R1, the context
        if let Some(rules) = self.some() {
            // A rule without fields also matches frames that are too short to be parsed. The kernel rejects
            // programs with unreachable instructions, so nothing may follow it.
            let has_all = rules.contains(&Rule::default());
            parse(&mut asm, if has_all { is_ours } else { pass });
            let ours = rules.iter().filter(|rule| !rule.kernel && !has_all);
            for rule in rules.iter().filter(|rule| rule.kernel).chain(ours) {
                let next = asm.label();
                rule.compare(&mut asm, next);
                asm.goto(if rule.kernel { pass } else { is_ours });
                asm.place(next);
            }
            if !has_all {
                asm.goto(pass);
            }
        }
        asm.place(is_ours);
        match ours {
            Ours::Map(map) => {
                asm.load_map(R1, map);
                asm.load(R2, R6, RX_QUEUE, Size::Word);
                asm.move_imm(R3, PASS);
                asm.call(REDIRECT_MAP);
                if strays.is_some() {
                    asm.if_equal(R0, PASS, pass);
                }
            }
            #[cfg(test)]
            Ours::Return(value) => asm.move_imm(R0, value),
        }
        asm.exit();
        if self.some().is_some() || strays.is_some() {
            // The kernel rejects programs with unreachable instructions.
            asm.place(pass);
            if let Some(strays) = strays {
                strays.count(&mut asm);
            }
            asm.move_imm(R0, PASS);
            asm.exit();
        }
        asm.finish()
    }
}

/// Offsets of the used fields in struct xdp_md.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const RX_QUEUE: i16 = 16;
/// The helpers bpf_redirect_map and bpf_map_lookup_elem.
const REDIRECT_MAP: i32 = 51;
const MAP_LOOKUP: i32 = 1;

/// Stores the fields on the stack; jumps to `pass` if the frame is too short. R2 is the current position, R8
/// the end of the frame.
fn parse(asm: &mut Assembler, pass: Label) {
    let [done, not_v4, not_v6, ports] = [asm.label(), asm.label(), asm.label(), asm.label()];
    for at in [ETHER_TYPE, PROTOCOL, PORTS, SRC, SRC + 8, DST, DST + 8] {
        asm.store_imm(at, 0, Size::Double);
    }
    asm.load(R7, R6, DATA, Size::Word);
    asm.load(R8, R6, DATA_END, Size::Word);
    asm.move_reg(R2, R7);
    asm.add(R2, 14);
    asm.if_greater(R2, R8, pass);
    asm.load(R3, R7, 12, Size::Half);
    for _ in 0..2 {
        let [tag, next] = [asm.label(), asm.label()];
        asm.if_equal(R3, be(0x8100), tag);
        asm.if_not_equal(R3, be(0x88a8), next);
        asm.place(tag);
        asm.move_reg(R4, R2);
        asm.add(R4, 4);
        asm.if_greater(R4, R8, pass);
        asm.load(R3, R2, 2, Size::Half);
        asm.move_reg(R2, R4);
        asm.place(next);
    }
    asm.store(ETHER_TYPE, R3, Size::Word);

    asm.if_not_equal(R3, be(IPV4), not_v4);
    asm.move_reg(R4, R2);
    asm.add(R4, 20);
    asm.if_greater(R4, R8, done);
    asm.load(R3, R2, 9, Size::Byte);
    asm.add(R3, IS_IP);
    asm.store(PROTOCOL, R3, Size::Word);
    for (from, to) in [(12, SRC), (16, DST)] {
        asm.load(R4, R2, from, Size::Word);
        asm.store(to, R4, Size::Word);
    }
    asm.load(R4, R2, 6, Size::Half);
    asm.and(R4, be(0x3fff)); // "more fragments" flag, or a fragment offset
    asm.if_not_equal(R4, 0, done);
    asm.load(R5, R2, 0, Size::Byte);
    asm.and(R5, 0xf);
    asm.if_less(R5, 5, done);
    asm.shift_left(R5, 2);
    asm.add_reg(R2, R5);
    asm.goto(ports);

    asm.place(not_v4);
    asm.if_not_equal(R3, be(IPV6), not_v6);
    asm.move_reg(R4, R2);
    asm.add(R4, 40);
    asm.if_greater(R4, R8, done);
    asm.load(R3, R2, 6, Size::Byte);
    asm.add(R3, IS_IP);
    asm.store(PROTOCOL, R3, Size::Word);
    for (from, to) in [(8, SRC), (24, DST)] {
        for word in [0, 4, 8, 12] {
            asm.load(R5, R2, from + word, Size::Word);
            asm.store(to + word, R5, Size::Word);
        }
    }
    asm.move_reg(R2, R4);
    asm.goto(ports);

    asm.place(not_v6);
    asm.if_not_equal(R3, be(ARP), done);
    parse_arp(asm, done);
    asm.goto(done);

    asm.place(ports);
    parse_ports(asm, done);
    asm.place(done);
}

/// A field in network byte order, as the program loads it.
fn be(value: u16) -> i32 {
    i32::from(u16::from_ne_bytes(value.to_be_bytes()))
}

/// Stores the addresses of the ARP message at R2; jumps to `done` if it is truncated.
fn parse_arp(asm: &mut Assembler, done: Label) {
    asm.move_reg(R4, R2);
    asm.add(R4, 28);
    asm.if_greater(R4, R8, done);
    for (from, to) in [(14, SRC), (24, DST)] {
        asm.load(R4, R2, from, Size::Word);
        asm.store(to, R4, Size::Word);
    }
    asm.store_imm(PROTOCOL, IS_ARP, Size::Word);
}

/// Stores the ports of the transport header at R2, whose protocol is in R3; jumps to `done` if there are none.
fn parse_ports(asm: &mut Assembler, done: Label) {
    let read = asm.label();
    for proto in [proto::TCP, proto::UDP, proto::SCTP] {
        asm.if_equal(R3, IS_IP | i32::from(proto), read);
    }
    asm.goto(done);
    asm.place(read);
    asm.move_reg(R4, R2);
    asm.add(R4, 4);
    asm.if_greater(R4, R8, done);
    asm.load(R5, R2, 0, Size::Word);
    asm.store(PORTS, R5, Size::Word);
    asm.store_imm(PORTS + 4, 1, Size::Word); // flag: ports are valid
}

impl Rule {
    /// Emits a comparison that falls through if all fields are equal, and jumps to `next` if not.
    fn compare(&self, asm: &mut Assembler, next: Label) {
        let mut word = |at: i16, mask: u32, want: u32| {
            if mask != 0 {
                asm.load_stack(R3, at, Size::Word);
                asm.and(R3, mask as i32);
                asm.if_not_equal(R3, (want & mask) as i32, next);
            }
        };
        let half = |[a, b]: [u8; 2], first: bool| {
            u32::from_ne_bytes(if first { [a, b, 0, 0] } else { [0, 0, a, b] })
        };
        let families = [self.from, self.to].into_iter().flatten();
        let is_arp = self.ether_type == Some(ARP);
        let families = families
            .map(|prefix| if prefix.addr.is_ipv4() { IPV4 } else { IPV6 })
            .filter(|family| !is_arp || *family == IPV6);
        for ether_type in self.ether_type.into_iter().chain(families) {
            word(ETHER_TYPE, u32::MAX, u16::from_ne_bytes(ether_type.to_be_bytes()).into());
        }
        if let Some(protocol) = self.protocol {
            word(PROTOCOL, u32::MAX, IS_IP as u32 | u32::from(protocol));
        } else if self.from.is_some() || self.to.is_some() {
            let flag = if is_arp { IS_ARP } else { IS_IP } as u32;
            word(PROTOCOL, flag, flag);
        }
        for (at, prefix) in [(SRC, self.from), (DST, self.to)] {
            let Some(prefix) = prefix else { continue };
            let masks: Vec<u8> = prefix.masks().collect();
            let octets = match prefix.addr {
                IpAddr::V4(v4) => v4.octets().to_vec(),
                IpAddr::V6(v6) => v6.octets().to_vec(),
            };
            let words = octets.as_chunks::<4>().0.iter().zip(masks.as_chunks::<4>().0);
            for (n, (want, mask)) in (0..).zip(words) {
                word(at + 4 * n, u32::from_ne_bytes(*mask), u32::from_ne_bytes(*want));
            }
        }
        for (port, first) in [(self.from_port, true), (self.to_port, false)] {
            if let Some(port) = port {
                word(PORTS + 4, u32::MAX, 1);
                word(PORTS, half([0xff; 2], first), half(port.to_be_bytes(), first));
            }
        }
    }
}

#[cfg(test)]
mod tests;
