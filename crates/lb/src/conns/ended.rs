//! Where a client's part of a connection ends, so that packets of a later connection with the same 5-tuple are recognized.
//!
//! ```text
//!               1 GiB
//!    <───────────────────────────>
//!    [ sent again, late, a probe ] end [ of another connection ...     sequence numbers, modulo 2^32
//!                              FIN ┘
//! ```
//!
//! A client may use a port again while the entry of the connection before is closing. The SYN of the new connection replaces the
//! entry, unless it reaches another machine. Then a packet from the middle of the new connection is the first one that comes
//! here. A client sends nothing behind its FIN or RST, and nothing that is older than a window, which has less than 1 GiB (RFC 7323
//! section 2.3). A sequence number outside of this range is therefore one of another connection. A server that has not forgotten the
//! old connection accepts a SYN only with a larger sequence number or timestamp (RFC 9293 section 3.6.1, RFC 6191), and clients choose their
//! initial sequence numbers by a clock (RFC 9293 section 3.4.1), so that the numbers of a new connection are usually behind the end.
//!
//! The end is stored where the first byte of the client is stored otherwise ([`Proxied`](super::Proxied)). Connections that need that
//! number have no end here.
//!
//! Invariants: only a closing entry has an end; the first end that is seen stays.
//! Thread-safety: plain values.

use flowyard_frame::{FlowKey, Nanos, proto};
use flowyard_wire::{Headers, LinkType};

use super::conn::{Conn, ELSEWHERE, ENDED, OFFERED, Progress};
use super::proxied::Stage;
use super::state::State;
use super::{Conns, wheel};

/// More than the largest receive window of TCP.
const WINDOW: u32 = 1 << 30;

/// The sequence numbers of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbers {
    /// That of its first byte.
    pub first: u32,
    /// That behind its last byte; a FIN counts as a byte.
    pub end: u32,
}

impl Numbers {
    /// The numbers of the TCP segment in an Ethernet frame; `None` if it is not whole.
    #[must_use]
    pub fn of(frame: &[u8]) -> Option<Self> {
        let headers = Headers::parse(LinkType::Ethernet, frame);
        if headers.proto != proto::TCP || headers.fragment.is_fragment() || headers.fault.is_some()
        {
            return None;
        }
        let first = frame.get(headers.l4 as usize + 4..)?.first_chunk::<4>()?;
        let first = u32::from_be_bytes(*first);
        let fin = u32::from(headers.tcp_flags & FlowKey::FIN != 0);
        Some(Self {
            first,
            end: first.wrapping_add(headers.end.saturating_sub(headers.payload) + fin),
        })
    }

    /// Whether the segment can be one of a connection in which the client has sent everything before `end`.
    const fn is_before(self, end: u32) -> bool {
        end.wrapping_sub(self.first) < WINDOW
    }
}

impl Conn {
    /// The sequence number behind everything that the client has sent, if the connection is closing and this is known.
    #[must_use]
    pub const fn end(&self) -> Option<u32> {
        let has_end = matches!(self.state(), State::Closing) && self.marks & ENDED != 0;
        if has_end { Some(self.first) } else { None }
    }

    /// Stores the end of a closing connection, unless it has one, or its first byte is stored.
    pub(super) const fn set_end(&mut self, end: u32) {
        let is_free = self.first == 0 && matches!(self.proxied().stage, Stage::None);
        if is_free && matches!(self.state(), State::Closing) && self.marks & ENDED == 0 {
            self.first = end;
            self.marks |= ENDED;
        }
    }
}

impl Conn {
    /// Notes that no adapter was asked to mark packets of the connection. The end of a closing one has the same bit, and stays.
    pub(super) const fn forget_offer(&mut self) {
        if !matches!(self.state(), State::Closing) {
            self.marks &= !OFFERED;
        }
    }
}

impl State {
    /// Whether [`Conns::continues`] must be asked about a packet of the client with these TCP flags, of a connection that was in
    /// this state before.
    #[inline]
    #[must_use]
    pub const fn may_end(self, flags: u8) -> bool {
        matches!(self, Self::Closing) || flags & (FlowKey::FIN | FlowKey::RST) != 0
    }
}

impl Conns {
    /// Notes of the new entry in `slot` where the connection began, and stores its end if it is closing.
    pub(super) fn adopt_end(&mut self, slot: u32, seen: Progress) {
        let Some(conn) = self.slots.get_mut(slot as usize) else { return };
        if seen.began_elsewhere && conn.port == 0 {
            conn.address |= ELSEWHERE;
        }
        if let Some(end) = seen.end {
            conn.set_end(end);
        }
    }

    /// The end of the connection in `slot`, if it is known, and whether another machine may have an entry of it.
    #[must_use]
    pub fn end(&self, slot: u32) -> Option<(u32, bool)> {
        let conn = self.slots.get(slot as usize)?;
        Some((conn.end()?, conn.began_elsewhere()))
    }

    /// Another machine has seen, at the time `at` of this machine's clock, that the client of the connection with this hash has
    /// ended its part. The entry is changed as if that packet had come here. Returns whether it was: there must be an entry of a
    /// TCP connection without a known end, which can have one, and has got no packet since then. `seed` must be that of the hashes.
    pub fn ended_elsewhere(
        &mut self,
        (hash, seed): (u64, u64),
        end: u32,
        (at, now): (Nanos, Nanos),
    ) -> bool {
        let tick = wheel::tick(now);
        let is = |slot: u32| {
            let conn = self.slots.get(slot as usize);
            conn.is_some_and(|conn| tick < conn.deadline && conn.key.hash(seed) == hash)
        };
        let Some(slot) = self.index.find(hash, is) else { return false };
        self.renew(slot, now);
        let conn = &self.slots[slot as usize];
        let may_end = conn.key.flow().proto == proto::TCP
            && (conn.port, conn.first, conn.proxied().stage) == (0, 0, Stage::None)
            && conn.end().is_none();
        // The last packet came later than this: deadlines are rounded up to a tick.
        let last = wheel::begin(conn.deadline).saturating_sub(self.timeout(conn) + wheel::begin(1));
        if !may_end || last >= at {
            return false;
        }
        if conn.state() != State::Closing {
            // The list of unestablished entries is in the order of their deadlines.
            let since = if conn.is_established() { at.min(now) } else { now };
            self.turn(slot, State::Closing, false, since);
        }
        self.slots[slot as usize].set_end(end);
        true
    }

    /// Whether a packet of the client belongs to the connection in `slot`, which was in state `before`. [`Conns::seen`] was called
    /// for the packet. A FIN or RST ends what the client sends. `numbers` are those of the packet, if they could be read.
    #[cold]
    pub fn continues(
        &mut self,
        slot: u32,
        (before, flags): (State, u8),
        numbers: Option<Numbers>,
    ) -> bool {
        let Some(conn) = self.slots.get_mut(slot as usize) else { return true };
        let is_closing = before == State::Closing;
        if is_closing && flags & (FlowKey::SYN | FlowKey::ACK) == FlowKey::SYN {
            return false; // the client uses its port again
        }
        let Some(numbers) = numbers else { return true };
        if let Some(end) = conn.end() {
            return numbers.is_before(end);
        }
        let ends = flags & (FlowKey::FIN | FlowKey::RST) != 0 && flags & FlowKey::SYN == 0;
        if ends {
            conn.set_end(numbers.end);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use flowyard_testkit::Build;
    use proptest::prelude::*;

    use super::super::proxied::Proxied;
    use super::super::{ConnKey, Owner, Timeouts};
    use super::*;

    const FIN: u8 = FlowKey::FIN | FlowKey::ACK;

    fn flow(v6: bool) -> FlowKey {
        let [src, dst] = match v6 {
            false => ["10.0.0.1", "192.0.2.1"],
            true => ["2001:db8::1", "2001:db8::2"],
        }
        .map(|text| text.parse::<IpAddr>().unwrap());
        FlowKey::five_tuple(proto::TCP, src, 1000, dst, 80)
    }

    /// A table with a closing connection.
    fn closing() -> (Conns, u32) {
        let mut conns = Conns::new(4, Timeouts::default(), false);
        let key = ConnKey::of(&flow(false));
        let owner = Owner { backend: 1, service: 0, sees_answers: false };
        let slot = conns.insert(&key, key.hash(7), owner, State::Closing, 0).unwrap();
        (conns, slot)
    }

    proptest! {
        #[test]
        fn the_numbers_are_those_of_the_segment(
            v6: bool, seq: u32, flags: u8, len in 0usize..600, tags in 0u16..3, pad in 0usize..700, cut in 0usize..60,
        ) {
            let payload = vec![7; len];
            let mut build = Build::new(&flow(v6)).flags(flags).seq(seq).payload(&payload).pad(pad);
            for tag in 0..tags {
                build = build.vlan(tag + 1);
            }
            let fin = u32::from(flags & FlowKey::FIN);
            let wanted = Numbers { first: seq, end: seq.wrapping_add(len as u32 + fin) };
            prop_assert_eq!(Numbers::of(&build.bytes()), Some(wanted));
            // Frames that are cut, and fragments.
            let headers = if v6 { 54 } else { 34 } + 4 * usize::from(tags);
            prop_assert_eq!(Numbers::of(&build.bytes()[..(headers + 19).min(cut)]), None);
            for more in [(0, true), (100, false)] {
                let fragment = Build::new(&flow(v6)).flags(flags).seq(seq).payload(&[7; 8]);
                let fragment = fragment.fragment(more.0, more.1).bytes();
                prop_assert_eq!(Numbers::of(&fragment), None);
            }
        }

        #[test]
        fn any_bytes_have_numbers_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Numbers::of(&bytes);
        }

        /// A client sends a stream of up to 2^40 bytes through a window of less than 1 GiB. Whatever of it comes late, however often,
        /// is of the connection; and what has a clock's numbers for up to three minutes after its begin is not.
        #[test]
        fn a_segment_is_before_the_end_exactly_if_the_client_can_have_sent_it(
            isn: u32, sent in 0u64..1 << 40, late in 0u64..(1 << 30) - 1, len in 0u64..65536, later in 1u64..200_000_000_000,
        ) {
            let at = |offset: u64| isn.wrapping_add(1).wrapping_add(offset as u32);
            let (mut conns, slot) = closing();
            let end = at(sent + 1);
            let numbers = |first: u64, len| Some(Numbers { first: at(first), end: at(first + len) });
            assert!(conns.continues(slot, (State::Open, FIN), numbers(sent, 1)));
            assert_eq!(conns.slots[slot as usize].end(), Some(end));
            let first = (sent + 1).saturating_sub(late);
            let closed = (State::Closing, FlowKey::ACK);
            prop_assert!(conns.continues(slot, closed, numbers(first, len.min(sent + 1 - first))));
            prop_assert!(conns.continues(slot, (State::Closing, FIN), numbers(sent, 1)));
            // The clock of RFC 9293 counts 250,000 numbers a second; that of Linux counts each 64 ns.
            for ahead in [later / 4000, later >> 6] {
                let begins = Numbers { first: end.wrapping_add(1 + ahead as u32), end };
                prop_assert!(!conns.continues(slot, closed, Some(begins)), "{ahead}");
            }
        }
    }

    #[test]
    fn the_first_end_stays() {
        for (first, second) in [(FIN, FlowKey::RST), (FlowKey::RST, FIN), (FIN, FIN)] {
            let (mut conns, slot) = closing();
            let numbers = |end| Some(Numbers { first: end - 1, end });
            assert!(conns.continues(slot, (State::Open, first), numbers(1000)));
            assert!(conns.continues(slot, (State::Closing, second), numbers(500)));
            assert!(!conns.continues(slot, (State::Closing, second), numbers(2000)));
            assert_eq!(conns.slots[slot as usize].end(), Some(1000));
            // Without numbers, the entry is used.
            assert!(conns.continues(slot, (State::Closing, second), None));
        }
    }

    #[test]
    fn an_end_does_not_replace_the_first_byte_nor_the_reverse() {
        let (mut conns, slot) = closing();
        for stage in [Stage::None, Stage::Waiting, Stage::Near, Stage::Far] {
            for first in [0, 1, 4000] {
                if (first, stage) == (0, Stage::None) {
                    continue;
                }
                let proxied = Proxied { first, stage };
                conns.set_proxied(slot, proxied);
                let numbers = Some(Numbers { first: 70, end: 71 });
                assert!(conns.continues(slot, (State::Closing, FIN), numbers));
                assert_eq!(conns.slots[slot as usize].end(), None, "{proxied:?}");
                assert_eq!(conns.proxied(slot), proxied);
            }
        }
        let (mut conns, slot) = closing();
        conns.slots[slot as usize].set_end(71);
        assert_eq!(conns.proxied(slot), Proxied::default());
        let proxied = Proxied { first: 5, stage: Stage::Waiting };
        conns.set_proxied(slot, proxied);
        assert_eq!((conns.proxied(slot), conns.slots[slot as usize].end()), (proxied, None));
        // Other connections have no end.
        let key = ConnKey::of(&flow(true));
        let owner = Owner { backend: 1, service: 0, sees_answers: false };
        let open = conns.insert(&key, key.hash(7), owner, State::Open, 0).unwrap();
        conns.slots[open as usize].set_end(71);
        assert_eq!(conns.slots[open as usize].end(), None);
        assert_eq!(conns.proxied(open), Proxied::default());
    }
}
