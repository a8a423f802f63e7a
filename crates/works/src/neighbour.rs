//! Neighbours: the MAC addresses of next hops (ARP, RFC 826; neighbour discovery, RFC 4861).
//!
//! ```text
//!  unknown ──requested, 1/s──> known ──30 s──> old: requested by unicast, still used ──3 times no answer──> unknown
//!             any message of the neighbour about itself makes it known for the full time again
//! ```
//!
//! A table has only the next hops that a caller needs, so messages of unknown stations cannot fill
//! it. A next hop is requested before the first frame needs it. A core that forwards reads one word
//! of an entry, without a lock. The first core that gets the lock sends the requests that are due.
//!
//! Invariants: there is one entry for each port and address while any caller has it. Times do not
//! depend on a clock that goes back. Only [`Neighbours::entry`] allocates.
//! Thread-safety: any thread. The lock is for control messages and requests, never for a frame that
//! is forwarded.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use flowyard_frame::Nanos;
use flowyard_yard::handover::bytes::{BadState, Reader, Writer};

pub mod message;

use message::{Mac, QUESTION};

/// The interval between requests for a neighbour (RFC 1122 section 2.3.2.1, RFC 4861 section 10).
const AGAIN: Nanos = 1_000_000_000;
/// The interval at which due requests are looked for.
const LOOK: Nanos = 100_000_000;
/// The number of unanswered requests after which a known neighbour is forgotten (RFC 4861 section
/// 10).
const TRIES: u32 = 3;
/// The bit in the word of an entry that means that its MAC address is known.
const KNOWN: u64 = 1 << 48;

/// A next hop.
#[derive(Debug)]
pub struct Neighbour {
    port: u16,
    addr: IpAddr,
    /// Its MAC address, if it is [`KNOWN`].
    word: AtomicU64,
    /// The time until which no request is needed.
    fresh: AtomicU64,
    /// The earliest time of the next request.
    again: AtomicU64,
    /// The number of requests since its last message.
    tries: AtomicU32,
}

impl Neighbour {
    /// Its MAC address, if known.
    #[inline]
    pub fn mac(&self) -> Option<Mac> {
        let word = self.word.load(Relaxed);
        let [_, _, mac @ ..] = word.to_be_bytes();
        (word & KNOWN != 0).then_some(mac)
    }

    /// Records the MAC address of a message. One without the flag `override` does not replace a
    /// known address (RFC 4861 section 7.2.5).
    fn says(&self, mac: Mac, replaces: bool, until: Nanos) {
        let [a, b, c, d, e, f] = mac;
        let word = u64::from_be_bytes([0, 0, a, b, c, d, e, f]) | KNOWN;
        let old = self.word.load(Relaxed);
        if old & KNOWN != 0 && old != word && !replaces {
            return;
        }
        self.fresh.store(until, Relaxed);
        self.tries.store(0, Relaxed);
        self.word.store(word, Relaxed);
    }

    /// Whether a request is due now; if so, records that it is sent.
    fn is_due(&self, now: Nanos) -> bool {
        let known = self.word.load(Relaxed) & KNOWN != 0;
        if known && now < self.fresh.load(Relaxed) || now < self.again.load(Relaxed) {
            return false;
        }
        if known && self.tries.fetch_add(1, Relaxed) >= TRIES {
            self.word.store(0, Relaxed); // frames that need it are dropped as `unresolved`
        }
        self.again.store(now.saturating_add(AGAIN), Relaxed);
        true
    }
}

/// The addresses of the yard at a port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// The port's MAC address.
    pub mac: [u8; 6],
    /// The IP addresses of the port; at least one if neighbours are requested there.
    pub addrs: Vec<IpAddr>,
    /// Whether requests for other addresses are answered there: VIPs and local addresses.
    pub answers: bool,
}

impl Place {
    /// The source address of requests for `addr`. For IPv6 there always is one (RFC 4291 section
    /// 2.5.6).
    fn source(&self, addr: IpAddr) -> Option<IpAddr> {
        let mine = self.addrs.iter().copied().find(|mine| mine.is_ipv6() == addr.is_ipv6());
        mine.or_else(|| (addr.is_ipv6() && !self.addrs.is_empty()).then(|| self.link_local()))
    }

    fn link_local(&self) -> IpAddr {
        let [a, b, c, d, e, f] = self.mac;
        let [w, x, y, z] = [[a ^ 2, b], [c, 0xff], [0xfe, d], [e, f]].map(u16::from_be_bytes);
        Ipv6Addr::new(0xfe80, 0, 0, 0, w, x, y, z).into()
    }

    /// An address of the port of the given family, as a source of messages.
    pub fn own(&self, v6: bool) -> Option<IpAddr> {
        self.addrs.iter().copied().find(|addr| addr.is_ipv6() == v6)
    }

    /// Whether `addr` is an address of the port.
    pub fn is(&self, addr: IpAddr) -> bool {
        self.addrs.contains(&addr) || !self.addrs.is_empty() && addr == self.link_local()
    }
}

/// All next hops that callers have.
#[derive(Debug)]
pub struct Neighbours {
    /// By port.
    places: Vec<Place>,
    /// The time for which a MAC address is used before it is requested again.
    fresh: Nanos,
    list: Mutex<BTreeMap<(u16, IpAddr), Weak<Neighbour>>>,
    /// The next time at which due requests are looked for.
    look: AtomicU64,
}

impl Neighbours {
    /// Neighbours at these ports. A MAC address is used for `fresh` nanoseconds before it is
    /// requested again.
    #[must_use]
    pub fn new(places: Vec<Place>, fresh: Nanos) -> Self {
        Self { places, fresh, list: Mutex::default(), look: AtomicU64::new(0) }
    }

    /// The addresses of the yard at `port`.
    pub fn place(&self, port: u16) -> Option<&Place> {
        self.places.get(usize::from(port))
    }

    /// The addresses of the yard, by port.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Whether there are neighbours to request, or requests to answer.
    pub fn speaks(&self) -> bool {
        self.places.iter().any(|place| place.answers || !place.addrs.is_empty())
    }

    /// The entry of a next hop.
    pub fn entry(&self, port: u16, addr: IpAddr) -> Arc<Neighbour> {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = list.get(&(port, addr)).and_then(Weak::upgrade) {
            return known;
        }
        list.retain(|_, known| known.strong_count() > 0);
        let fresh = Arc::new(Neighbour {
            port,
            addr,
            word: AtomicU64::new(0),
            fresh: AtomicU64::new(0),
            again: AtomicU64::new(0),
            tries: AtomicU32::new(0),
        });
        list.insert((port, addr), Arc::downgrade(&fresh));
        self.look.store(0, Relaxed); // at once
        fresh
    }

    /// Writes the MAC addresses that are known, for another process.
    pub fn hand_over(&self, writer: &mut Writer) {
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let known = list.values().filter_map(Weak::upgrade);
        let known: Vec<_> =
            known.filter_map(|one| Some((one.port, one.addr, one.mac()?))).collect();
        writer.number(known.len() as u64);
        for (port, addr, mac) in known {
            writer.number(port.into()).text(&addr.to_string()).bytes(&mac);
        }
    }

    /// Continues with what [`Neighbours::hand_over`] has written. Addresses that are no next hops here are ignored.
    ///
    /// # Errors
    /// The bytes are not those of neighbours.
    pub fn take_over(&self, reader: &mut Reader<'_>, now: Nanos) -> Result<(), BadState> {
        for _ in 0..reader.number()? {
            let port = reader.small()?;
            let addr = reader.text()?.parse().map_err(|_| BadState)?;
            let _wanted = self.heard(port, (addr, reader.array()?), true, now);
        }
        Ok(())
    }

    /// Handles a message from `port` that `addr` has the address `mac`. Returns whether the entry
    /// is in use.
    pub fn heard(&self, port: u16, (addr, mac): (IpAddr, Mac), replaces: bool, now: Nanos) -> bool {
        if mac[0] & 1 != 0 || mac == [0; 6] {
            return false; // a group address is not a station (RFC 1812 section 3.3.2)
        }
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(one) = list.get(&(port, addr)).and_then(Weak::upgrade) else { return false };
        one.says(mac, replaces, now.saturating_add(self.fresh));
        true
    }

    /// Sends the requests that are due: `send` gets a port and a frame, and returns whether the
    /// frame could be sent. Returns the number of requests that were sent.
    pub fn ask(&self, now: Nanos, send: &mut dyn FnMut(u16, &[u8]) -> bool) -> u32 {
        let look = self.look.load(Relaxed);
        if now < look {
            return 0;
        }
        let next = now.saturating_add(LOOK);
        if self.look.compare_exchange(look, next, Relaxed, Relaxed).is_err() {
            return 0; // another core sends them
        }
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let mut asked = 0;
        for one in list.values().filter_map(Weak::upgrade) {
            let Some(place) = self.places.get(usize::from(one.port)) else { continue };
            let Some(source) = place.source(one.addr) else { continue };
            if !one.is_due(now) {
                continue;
            }
            let mut frame = [0; QUESTION];
            let len = message::question(&mut frame, (source, place.mac), one.addr, one.mac());
            asked += u32::from(send(one.port, &frame[..len]));
        }
        asked
    }
}

#[cfg(test)]
mod tests;
