//! The gateway's SAs and policies, shared by all cores; and the numbers of frames in an ordered queue.
//!
//! ```text
//!  a frame's packet ── classify ──> open with an SA | seal for a policy | pass | drop
//!  arrivals   see `stamps`
//! ```
//!
//! Invariants: SAs and policies do not change after the start. Nothing is allocated for a frame.
//! Thread-safety: any thread.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use flowyard_flow::parse;
use flowyard_frame::{FlowKey, Frag, proto};
use flowyard_wire::edit::tags;
use flowyard_wire::{Headers, LinkType};
use flowyard_yard::{Arrivals, ControlPlane, DropReason};

use crate::esp::{self, Arrived, Kind, NAT_PORT};
use crate::sa::{Mode, Sa, SaConfig};
use crate::spd::{Direction, Policies, Policy, Selector, Verdict};
use crate::suite::BadKey;

mod stamps;
mod unfinished;

use stamps::Stamps;
pub(crate) use stamps::{Run, Runs, Stamp};
pub(crate) use unfinished::{Left, MOST, cut_of};

/// The settings of a gateway.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The SAs, in the order in which outbound ones are used.
    pub sas: Vec<SaConfig>,
    /// The policies.
    pub policies: Vec<Policy>,
    /// The longest packet that leaves with ESP.
    pub mtu: usize,
    /// Whether packets without a policy are dropped; otherwise they pass.
    pub discards_unmatched: bool,
    /// The number of frames that may be on their way between cores.
    pub slack: u32,
    /// The number of buffers of the pool, of both sizes, if an ordered queue spreads frames over several cores.
    pub stamps: usize,
    /// Random numbers: the first IV of each SA is derived from the first, the place of rules from the second.
    pub seeds: [u64; 2],
}

macro_rules! totals {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters that belong to no SA.
        #[derive(Debug, Default)]
        pub struct Totals {
            $($(#[$doc])* pub(crate) $name: AtomicU64,)*
        }

        impl Totals {
            /// Names and values.
            #[must_use]
            pub fn values(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Relaxed))),*]
            }
        }
    };
}

totals! {
    /// Keepalives of NAT (RFC 3948 section 2.3).
    keepalives,
    /// Messages of IKE in UDP to the port of NAT traversal, which pass.
    ike,
    /// Packets that passed unprotected.
    bypassed,
    /// ICMP errors sent because a packet exceeded the MTU of its tunnel.
    too_big_sent,
    /// Long frames that were cut into packets, to be sealed or opened.
    cut,
    /// The packets of these frames.
    segments,
    /// Checksums that were completed before a packet was sealed or opened.
    checksums,
}

/// What happens to a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// It is opened with this SA.
    Open(Arrived, usize),
    /// It is sealed for this outbound policy.
    Seal(usize),
    /// It passes as it is.
    Pass,
    /// It is a message of IKE, and passes.
    Ike,
    /// It keeps a NAT open, and goes no further.
    Keepalive,
    /// It is dropped.
    Drop(DropReason),
}

/// The SAs and policies of a gateway.
#[derive(Debug)]
pub struct IpsecHub {
    /// The SAs.
    pub(crate) sas: Vec<Sa>,
    /// Inbound SAs, by destination and SPI.
    inbound: HashMap<(IpAddr, u32), usize>,
    /// The addresses of this gateway.
    locals: HashSet<IpAddr>,
    /// Ports of NAT traversal.
    nat_ports: Vec<u16>,
    out: Policies,
    /// For each outbound policy, the SAs that fit, in the order of use.
    carriers: Vec<Vec<usize>>,
    into: Policies,
    /// Policies for fragments, which have no ports: those that protect or discard, without their ports, and those that let packets
    /// pass whatever their ports.
    out_of_fragments: Policies,
    into_of_fragments: Policies,
    discards_unmatched: bool,
    /// Whether an SA is in transport mode, which is only for packets between its addresses.
    has_transport: bool,
    pub(crate) mtu: usize,
    stamps: Stamps,
    /// Counters that belong to no SA.
    pub totals: Totals,
}

/// An SA that cannot be used, and its line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {error}")]
pub struct BadSa {
    /// The line.
    pub line: usize,
    /// The reason.
    pub error: SaError,
}

/// Why an SA cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SaError {
    /// Its key.
    #[error(transparent)]
    Key(#[from] BadKey),
    /// The high half of a number cannot be inferred without a window (RFC 4303 appendix A2).
    #[error(
        "an inbound SA with extended sequence numbers (flag esn) needs an anti-replay window; set replay-window to 32 or more"
    )]
    NoWindow,
    /// In transport mode, a template without addresses fits SAs of both directions.
    #[error(
        "policies in both directions fit this SA, so its direction is unknown; write its addresses in the template or in the \
         selector of the policies"
    )]
    Ambiguous,
}

fn without_ports(policy: &Policy) -> Policy {
    Policy { selector: Selector { sport: None, dport: None, ..policy.selector }, ..*policy }
}

impl IpsecHub {
    /// Prepares keys and tables.
    ///
    /// # Errors
    /// When an SA cannot be used: for its key, its window, or because the policies do not tell its direction.
    pub fn new(settings: &Settings) -> Result<Self, BadSa> {
        let of = |is_out: bool| {
            let all = settings.policies.iter().copied();
            all.filter(move |policy| (policy.direction == Direction::Out) == is_out)
        };
        let strict = |is_out: bool| {
            // A fragment need not have the ports for which a policy makes an exception.
            let has_ports = |of: &Selector| of.sport.is_some() || of.dport.is_some();
            let strict = of(is_out)
                .filter(|policy| policy.verdict != Verdict::Bypass || !has_ports(&policy.selector));
            Policies::new(strict.map(|policy| without_ports(&policy)), settings.seeds[1])
        };
        let out = Policies::new(of(true), settings.seeds[1]);
        let numbered = || settings.sas.iter().enumerate();
        let carriers_of = |policy: &Policy| {
            numbered()
                .filter(|(_, sa)| policy.fits(sa))
                .map(|(number, _)| number)
                .collect::<Vec<_>>()
        };
        let carriers: Vec<_> = out.all().iter().map(carriers_of).collect();
        let outbound: HashSet<usize> = carriers.iter().flatten().copied().collect();
        let mut locals = HashSet::new();
        let mut inbound = HashMap::new();
        for (number, sa) in numbered() {
            let bad = |error| Err(BadSa { line: sa.line, error });
            if outbound.contains(&number) {
                // In tunnel mode, templates have addresses.
                if sa.mode == Mode::Transport && of(false).any(|policy| policy.fits(sa)) {
                    return bad(SaError::Ambiguous);
                }
                locals.insert(sa.src);
            } else if sa.is_extended && sa.window == 0 {
                return bad(SaError::NoWindow);
            } else {
                locals.insert(sa.dst);
                inbound.insert((sa.dst, sa.spi), number);
            }
        }
        // The peer's port of an outbound SA may be any that its NAT has chosen.
        let inbound_sas = inbound.values().map(|number| &settings.sas[*number]);
        let mut nat_ports: Vec<u16> =
            inbound_sas.filter_map(|sa| sa.encap).map(|encap| encap.dport).collect();
        if settings.sas.iter().any(|sa| sa.encap.is_some()) {
            nat_ports.push(NAT_PORT);
        }
        nat_ports.sort_unstable();
        nat_ports.dedup();
        let mut iv = flowyard_frame::rng::Rng::new(settings.seeds[0]);
        let sa = |sa: &SaConfig| {
            let line = sa.line;
            let made = Sa::new(sa.clone(), iv.bits(), settings.slack);
            made.map_err(|error| BadSa { line, error: error.into() })
        };
        Ok(Self {
            sas: settings.sas.iter().map(sa).collect::<Result<_, _>>()?,
            inbound,
            locals,
            nat_ports,
            carriers,
            out,
            into: Policies::new(of(false), settings.seeds[1]),
            out_of_fragments: strict(true),
            into_of_fragments: strict(false),
            discards_unmatched: settings.discards_unmatched,
            has_transport: settings.sas.iter().any(|sa| sa.mode == Mode::Transport),
            mtu: settings.mtu,
            stamps: Stamps::new(settings.stamps),
            totals: Totals::default(),
        })
    }

    /// The SAs, with their counters.
    #[must_use]
    pub fn sas(&self) -> &[Sa] {
        &self.sas
    }

    /// Whether the SA with this number is inbound.
    #[must_use]
    pub fn is_inbound(&self, number: usize) -> bool {
        let sa = self.sas.get(number).map(|sa| (sa.config.dst, sa.config.spi));
        sa.is_some_and(|key| self.inbound.contains_key(&key))
    }

    /// What happens to `packet`, whose fields are in `key`: see [`current_key`].
    pub(crate) fn classify(&self, packet: &[u8], key: &FlowKey) -> Class {
        let is_local = || key.dst_ip().is_some_and(|dst| self.locals.contains(&dst));
        match esp::kind(packet, |port| self.nat_ports.binary_search(&port).is_ok()) {
            Kind::Malformed => return Class::Drop(DropReason::Malformed),
            Kind::Short if is_local() => return Class::Drop(DropReason::Malformed),
            Kind::Esp(arrived) if self.locals.contains(&arrived.dst) => {
                return match self.inbound.get(&(arrived.dst, arrived.spi)) {
                    Some(&number) => Class::Open(arrived, number),
                    None => Class::Drop(DropReason::NoSa),
                };
            }
            Kind::Keepalive if is_local() => return Class::Keepalive,
            Kind::Ike if is_local() => return Class::Ike,
            Kind::Fragment if is_local() => return Class::Drop(DropReason::IpsecFragment),
            _ => {}
        }
        if key.fragment() != Frag::No {
            return self.fragment(key);
        }
        match self.into.get(key).map(|(_, policy)| policy.verdict) {
            Some(Verdict::Protect(_) | Verdict::Discard) => return Class::Drop(DropReason::Policy),
            Some(Verdict::Bypass) | None => {}
        }
        self.outbound(key)
    }

    /// What happens to a packet that may leave unprotected as far as inbound policies are concerned.
    fn outbound(&self, key: &FlowKey) -> Class {
        match self.out.get(key).map(|(number, policy)| (number, policy.verdict)) {
            Some((number, Verdict::Protect(_))) => Class::Seal(number),
            Some((_, Verdict::Discard)) => Class::Drop(DropReason::Policy),
            None if self.discards_unmatched => Class::Drop(DropReason::Policy),
            Some((_, Verdict::Bypass)) | None => Class::Pass,
        }
    }

    /// What happens to a packet that was opened. An inbound policy permits it, so one without an outbound policy passes.
    pub(crate) fn classify_opened(&self, key: &FlowKey) -> Class {
        let is_fragment = key.fragment() != Frag::No;
        let policies = if is_fragment { &self.out_of_fragments } else { &self.out };
        match policies.get(key).map(|(number, policy)| (number, policy.verdict)) {
            Some((_, Verdict::Protect(_))) if is_fragment => Class::Drop(DropReason::IpsecFragment),
            Some((number, Verdict::Protect(_))) => Class::Seal(number),
            Some((_, Verdict::Discard)) => Class::Drop(DropReason::Policy),
            Some((_, Verdict::Bypass)) | None => Class::Pass,
        }
    }

    /// A fragment passes only if no policy, whatever its ports, protects or drops such packets.
    fn fragment(&self, key: &FlowKey) -> Class {
        match self.into_of_fragments.get(key).map(|(_, policy)| policy.verdict) {
            Some(Verdict::Protect(_) | Verdict::Discard) => return Class::Drop(DropReason::Policy),
            Some(Verdict::Bypass) | None => {}
        }
        match self.out_of_fragments.get(key).map(|(_, policy)| policy.verdict) {
            Some(Verdict::Protect(_)) => Class::Drop(DropReason::IpsecFragment),
            Some(Verdict::Discard) => Class::Drop(DropReason::Policy),
            None if self.discards_unmatched => Class::Drop(DropReason::Policy),
            Some(Verdict::Bypass) | None => Class::Pass,
        }
    }

    /// Whether a packet with this key may have come by the SA with this number.
    pub(crate) fn may_arrive(&self, key: &FlowKey, number: usize) -> bool {
        let sa = &self.sas[number].config;
        match self.into.get(key).map(|(_, policy)| policy.verdict) {
            Some(Verdict::Protect(template)) => template.fits(sa),
            Some(Verdict::Bypass) => sa.mode == Mode::Transport,
            Some(Verdict::Discard) | None => false,
        }
    }
}

/// The fields that `packet` has now, if they are not those of `key`, which was made when the frame was received: an action list has
/// changed them, or the frame has more tags than a key is made through. `None` if the key is right.
#[inline]
pub(crate) fn current_key(key: &FlowKey, packet: &[u8]) -> Option<FlowKey> {
    if is_key_of(key, packet) {
        return None;
    }
    let headers = Headers::parse(LinkType::RawIp, packet);
    Some(parse::key(&headers, packet, key.in_port))
}

/// Whether policies find the same in `key` as in `packet`. If not, it may be because the packet has extension headers.
fn is_key_of(key: &FlowKey, packet: &[u8]) -> bool {
    let (is_same, upper, proto) = match packet.first().map(|first| first >> 4) {
        Some(4) => {
            let Some(header) = packet.first_chunk::<20>() else { return false };
            let is_same =
                key.is_ipv4() && key.src[..4] == header[12..16] && key.dst[..4] == header[16..];
            (is_same, usize::from(header[0] & 0xf) * 4, header[9])
        }
        Some(6) => {
            let Some(header) = packet.first_chunk::<40>() else { return false };
            (key.is_ipv6() && key.src == header[8..24] && key.dst == header[24..], 40, header[6])
        }
        _ => return false,
    };
    let is_same_port = |at: usize, port: u16| {
        let field = packet.get(upper + at..).and_then(|rest| rest.first_chunk()).copied();
        field.map(u16::from_be_bytes) == Some(port)
    };
    let has_ports = matches!(proto, proto::TCP | proto::UDP | proto::SCTP);
    let skips = !has_ports || key.fragment() == Frag::Later;
    is_same
        && proto == key.proto
        && (skips || is_same_port(0, key.sport) && is_same_port(2, key.dport))
}

/// The IP packet of an Ethernet frame, with its offset.
pub(crate) fn packet_of(bytes: &[u8], link: LinkType) -> Result<usize, DropReason> {
    if link != LinkType::Ethernet {
        return Err(DropReason::LinkType);
    }
    match tags::ether_type(bytes) {
        Some((0x0800 | 0x86dd, l3)) => Ok(l3),
        Some(_) => Err(DropReason::NotIp),
        None => Err(DropReason::Malformed),
    }
}

impl ControlPlane for IpsecHub {
    fn arrivals(self: Arc<Self>) -> Option<Arc<dyn Arrivals>> {
        self.has_stamps().then_some(self as Arc<dyn Arrivals>)
    }
}
