//! The gateway's work: packets are sealed and opened, and then routed.
//!
//! ```text
//!  ESP to an address of this gateway ── open ── inbound policy fits ──┐
//!  packet of an outbound policy ─────── one hop, MTU, seal ───────────┼──> router: longest prefix, port, next hop
//!  packet without a policy ───────────────────────────────────────────┘
//! ```
//!
//! A packet that was opened may be sealed again for another tunnel. Packets that are sealed lose one hop in front of the
//! tunnel, and the packet of the tunnel starts with a hop limit of its own.
//!
//! Frames with partial checksums and frames that are to be cut: see `unfinished`.
//!
//! Invariants: a frame leaves or is dropped with a reason; a packet that a policy protects never leaves unprotected;
//! nothing is allocated after the start.
//! Thread-safety: used by one core; the hub is shared.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use flowyard_flow::parse;
use flowyard_frame::{Batch, FlowKey, Frame, Nanos};
use flowyard_pool::{Meta, Pool};
use flowyard_wire::{Headers, LinkType, Offload};
use flowyard_works::Router;
use flowyard_yard::DropReason;
use flowyard_yard::port::refuse;
use flowyard_yard::work::{ControlMessage, Work, todo};

use crate::esp::{self, Arrived, Refuse};
use crate::hub::{Class, IpsecHub, Stamp, current_key, packet_of};
use crate::icmp::{self, Allowance};
use crate::sa::{Mode, Sa, Tally};

mod unfinished;

use unfinished::Cutter;

impl From<Refuse> for DropReason {
    fn from(refuse: Refuse) -> Self {
        match refuse {
            Refuse::Malformed | Refuse::Congested => Self::Malformed,
            Refuse::Fragment => Self::IpsecFragment,
            Refuse::TooLong => Self::TooLong,
            Refuse::Replayed => Self::Replayed,
            Refuse::Unauthentic => Self::Unauthentic,
            Refuse::Dummy => Self::Taken,
            Refuse::Expired => Self::SaExpired,
        }
    }
}

/// Bytes by which most packets grow when they are sealed.
const ROOM: usize = 64;

/// The work of one core of a gateway.
#[derive(Debug)]
pub struct Ipsec {
    hub: Arc<IpsecHub>,
    router: Router,
    allowance: Allowance,
    now: Nanos,
    /// Packets of the SA with this number that are not yet counted.
    tally: (usize, Tally),
    /// Made when the first long frame is to be cut.
    cutter: Option<Box<Cutter>>,
}

impl Ipsec {
    /// The work of one core.
    #[must_use]
    pub fn new(hub: Arc<IpsecHub>, router: Router) -> Self {
        let (allowance, tally) = (Allowance::new(), (0, Tally::default()));
        Self { hub, router, allowance, now: 0, tally, cutter: None }
    }

    /// An SA, and the tally for its packets. What is there of another SA is counted.
    #[inline]
    fn sa(&mut self, number: usize) -> Result<(&Sa, &mut Tally), DropReason> {
        let Self { hub, tally: (of, tally), .. } = self;
        if *of != number {
            if let Some(before) = hub.sas.get(*of) {
                tally.flush(before);
            }
            *of = number;
        }
        Ok((hub.sas.get(number).ok_or(DropReason::NoSa)?, tally))
    }

    /// Seals or opens the packet of one frame, or leaves it as it is.
    #[inline(always)]
    fn frame(
        &mut self,
        frame: &mut Frame,
        key: &FlowKey,
        pool: &Pool,
        stamp: Stamp,
    ) -> Result<(), DropReason> {
        let l3 = packet_of(pool.bytes(frame), pool.meta(frame).link)?;
        match stamp {
            Stamp::Number(sa, number) => return self.seal(frame, pool, l3, (sa, number), true),
            Stamp::Drop(reason) => return Err(reason),
            Stamp::None => {}
        }
        let totals = &self.hub.totals;
        let packet = pool.bytes(frame).get(l3..).unwrap_or_default();
        let current = current_key(key, packet);
        let key = current.as_ref().unwrap_or(key);
        match self.hub.classify(packet, key) {
            Class::Open(arrived, sa) => self.open(frame, key, pool, l3, (&arrived, sa)),
            Class::Seal(policy) => self.seal_for(frame, pool, l3, (policy, key), true),
            Class::Drop(reason) => Err(reason),
            Class::Keepalive => {
                totals.keepalives.fetch_add(1, Relaxed);
                Err(DropReason::Taken)
            }
            Class::Ike => {
                totals.ike.fetch_add(1, Relaxed);
                Ok(())
            }
            Class::Pass => {
                totals.bypassed.fetch_add(1, Relaxed);
                Ok(())
            }
        }
    }

    /// Takes a number and seals; `sends_error` as for [`Ipsec::seal`].
    fn seal_for(
        &mut self,
        frame: &mut Frame,
        pool: &Pool,
        l3: usize,
        (policy, key): (usize, &FlowKey),
        sends_error: bool,
    ) -> Result<(), DropReason> {
        match self.hub.take(policy, key) {
            Stamp::Number(sa, number) => self.seal(frame, pool, l3, (sa, number), sends_error),
            Stamp::Drop(reason) => Err(reason),
            Stamp::None => Err(DropReason::NoSa),
        }
    }

    /// Seals the packet at `l3` with a number of SA `sa`. If it does not fit the MTU, it is dropped, or its sender gets an ICMP
    /// error if `sends_error` is set.
    fn seal(
        &mut self,
        frame: &mut Frame,
        pool: &Pool,
        l3: usize,
        (sa, number): (usize, u64),
        sends_error: bool,
    ) -> Result<(), DropReason> {
        let mtu = self.hub.mtu;
        let (sa, tally) = self.sa(sa)?;
        let plan = esp::plan(sa, pool.bytes(frame).get(l3..).unwrap_or_default())?;
        if plan.total() > mtu {
            if !sends_error {
                return Err(DropReason::TooBig);
            }
            let from = sa.config.src;
            return self.too_big(frame, pool, l3, from, esp::inner_mtu(mtu, &plan), &plan);
        }
        pool.truncate(frame, l3 + plan.len); // padding of Ethernet
        forget_verdict(frame, pool);
        let is_tunnel = sa.config.mode == Mode::Tunnel;
        if is_tunnel && !esp::one_hop(&mut pool.bytes_mut(frame)[l3..]) {
            return Err(DropReason::TtlExpired);
        }
        let end = l3 + plan.len;
        if !pool.insert(frame, end, plan.tail) || !pool.insert(frame, l3 + plan.at, plan.head) {
            return Err(DropReason::TooLong);
        }
        let bytes = pool.bytes_mut(frame);
        let (front, packet) = bytes.split_at_mut(l3);
        esp::seal(sa, number, &plan, packet, tally)?;
        if is_tunnel {
            set_eth_type(front, sa.config.dst.is_ipv6());
        }
        Ok(())
    }

    /// Tells the sender the MTU of the tunnel, if it asked for that, or drops the packet.
    fn too_big(
        &mut self,
        frame: &mut Frame,
        pool: &Pool,
        l3: usize,
        from: IpAddr,
        mtu: usize,
        plan: &esp::Plan,
    ) -> Result<(), DropReason> {
        if !plan.is_whole()
            || !self.allowance.take(self.now)
            || !icmp::too_big(frame, pool, l3, from, mtu)
        {
            return Err(DropReason::TooBig);
        }
        self.hub.totals.too_big_sent.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Opens the packet at `l3`, and seals what was in it if another tunnel protects that.
    fn open(
        &mut self,
        frame: &mut Frame,
        key: &FlowKey,
        pool: &Pool,
        l3: usize,
        (arrived, number): (&Arrived, usize),
    ) -> Result<(), DropReason> {
        let (sa, tally) = self.sa(number)?;
        let bytes = pool.bytes_mut(frame);
        let opened = esp::open(sa, arrived, &mut bytes[l3..], tally)?;
        if !pool.remove(frame, l3 + opened.at, opened.cut) {
            return Err(DropReason::Malformed);
        }
        pool.truncate(frame, l3 + opened.len);
        forget_verdict(frame, pool);
        set_eth_type(&mut pool.bytes_mut(frame)[..l3], opened.is_v6);
        let inner = key_of(pool.bytes(frame), key.in_port);
        let hub = &*self.hub;
        if !hub.may_arrive(&inner, number) {
            return Err(DropReason::Policy);
        }
        match hub.classify_opened(&inner) {
            // An ICMP error would quote what came protected, and leave unprotected.
            Class::Seal(policy) => self.seal_for(frame, pool, l3, (policy, &inner), false),
            Class::Drop(reason) => Err(reason),
            _ => Ok(()),
        }
    }
}

/// What a port knew of the checksums of the frame is not true of the packet that was put around it, or that was in it.
#[inline]
fn forget_verdict(frame: &mut Frame, pool: &Pool) {
    let meta = pool.meta(frame);
    if meta.offload.flags != 0 {
        pool.set_meta(frame, Meta { offload: Offload::NONE, ..meta });
    }
}

/// The fields of an Ethernet frame.
fn key_of(bytes: &[u8], in_port: u16) -> FlowKey {
    let mut key = FlowKey::ZERO;
    if !parse::fast(bytes, in_port, &mut key) {
        key = parse::key(&Headers::parse(LinkType::Ethernet, bytes), bytes, in_port);
    }
    key
}

/// Writes the EtherType, which is the last field of the bytes in front of the packet.
fn set_eth_type(front: &mut [u8], is_v6: bool) {
    let kind: u16 = if is_v6 { 0x86dd } else { 0x0800 };
    if let Some(field) = front.last_chunk_mut::<2>() {
        *field = kind.to_be_bytes();
    }
}

impl Work for Ipsec {
    fn work(&mut self, batch: &mut Batch, pool: &Pool, now: Nanos) -> Nanos {
        self.now = now;
        let stamped = self.hub.has_stamps();
        for lane in todo(batch) {
            if !pool.meta(&batch.frames[lane]).offload.is_none() {
                if let Err(reason) = self.unfinished(batch, lane, pool) {
                    refuse(batch, lane, reason);
                }
                continue;
            }
            // Another core may have received the next frame, all of which is encrypted.
            if stamped && let Some(next) = batch.frames.get(lane + 1) {
                pool.prefetch(next, ROOM);
            }
            let stamp = if stamped { self.hub.stamp(pool, batch, lane) } else { Stamp::None };
            let key = batch.keys[lane];
            if let Err(reason) = self.frame(&mut batch.frames[lane], &key, pool, stamp) {
                refuse(batch, lane, reason);
            }
        }
        let (number, tally) = &mut self.tally;
        if let Some(sa) = self.hub.sas.get(*number) {
            tally.flush(sa);
        }
        self.router.work(batch, pool, now)
    }

    fn control(&mut self, message: &ControlMessage, now: Nanos, send: &mut dyn FnMut(u16, &[u8])) {
        self.router.control(message, now, send); // new routes
    }
}

#[cfg(test)]
mod tests;
