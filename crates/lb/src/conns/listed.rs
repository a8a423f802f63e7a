//! Entries as they are listed for users: a page of slots at a time, so that the lock of a table is held shortly.
//!
//! A slot never moves, so an entry that stays in the table while all pages are read is listed once.

use flowyard_frame::Nanos;

use super::{Conn, Conns, wheel};

/// An entry of a table at some time.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    /// The entry.
    pub conn: Conn,
    /// The time since the last packet that the balancer has seen, up to 0.14 seconds too short.
    pub idle: Nanos,
    /// The time until the entry expires if no packet comes.
    pub left: Nanos,
    /// Whether the connection is answered in front of the balancer, which then learns of packets later.
    pub is_in_front: bool,
}

impl Conns {
    /// The number of slots in a page.
    pub const PAGE: usize = 256;

    /// Adds the entries of the page that begins at slot `from` to `into`, which needs room for [`Conns::PAGE`] of them. Returns where
    /// the next page begins; `None` after the last one. Expired entries are left out.
    #[must_use]
    pub fn page(&self, from: u32, now: Nanos, into: &mut Vec<Listed>) -> Option<u32> {
        let tick = wheel::tick(now);
        let from = from as usize;
        let end = (from + Self::PAGE).min(self.slots.len());
        for (slot, conn) in (from..).zip(self.slots.get(from..end).unwrap_or_default()) {
            if tick >= conn.deadline {
                continue;
            }
            let left = wheel::begin(conn.deadline).saturating_sub(now);
            let idle = self.timeout(conn).saturating_sub(left);
            into.push(Listed { conn: *conn, idle, left, is_in_front: self.is_in_front(slot) });
        }
        (end < self.slots.len()).then_some(end as u32)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use flowyard_frame::{FlowKey, proto};
    use proptest::prelude::*;

    use super::*;
    use crate::conns::{ConnKey, Owner, State, Timeouts};

    const SECOND: Nanos = 1_000_000_000;
    const SEED: u64 = 7;

    fn key(number: u16) -> ConnKey {
        let [src, dst] = ["10.0.0.1", "192.0.2.1"].map(|text| text.parse().unwrap());
        ConnKey::of(&FlowKey::five_tuple(proto::TCP, src, number, dst, 80))
    }

    fn all(conns: &Conns, now: Nanos) -> Vec<Listed> {
        let (mut page, mut all) = (Vec::with_capacity(Conns::PAGE), Vec::new());
        let mut from = Some(0);
        while let Some(slot) = from {
            from = conns.page(slot, now, &mut page);
            assert!(page.len() <= Conns::PAGE && page.capacity() == Conns::PAGE);
            all.append(&mut page);
        }
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        /// The pages together have the entries of a map from key to backend and time of the last packet, each once, and their
        /// times are exact to a tick.
        #[test]
        fn pages_equal_a_map(steps in prop::collection::vec((0u16..700, 0u8..8, 0u64..2), 0..2000)) {
            let mut conns = Conns::new(600, Timeouts::default(), false);
            let mut model: BTreeMap<u16, (u32, Nanos)> = BTreeMap::new();
            let mut now = 5 * SECOND;
            for (number, what, passed) in steps {
                now += passed * SECOND / 20;
                let (key, hash) = (key(number), key(number).hash(SEED));
                let found = conns.find(&key, hash, now);
                match (what, found) {
                    (0, Some(slot)) => {
                        conns.remove(slot, SEED);
                        model.remove(&number);
                    }
                    (_, Some(slot)) => {
                        conns.seen(slot, FlowKey::ACK, now);
                        model.get_mut(&number).unwrap().1 = now;
                    }
                    (_, None) => {
                        let owner = Owner { backend: number.into(), service: 0, sees_answers: false };
                        if conns.insert(&key, hash, owner, State::Open, now).is_ok() {
                            model.insert(number, (number.into(), now));
                        }
                    }
                }
                let _expired = conns.advance(now, 64, SEED, &mut |conn| {
                    model.remove(&conn.key().flow().sport);
                });
            }
            let listed = all(&conns, now);
            prop_assert_eq!(listed.len(), model.len());
            for one in listed {
                let (backend, last) = model.remove(&one.conn.key().flow().sport).expect("listed once");
                prop_assert_eq!(one.conn.backend, backend);
                let timeouts = Timeouts::default();
                let timeout = match one.conn.is_established() {
                    true => timeouts.of(one.conn.state()),
                    false => timeouts.unestablished(one.conn.state()),
                };
                let idle = now - last;
                prop_assert!(one.idle <= idle && idle < one.idle + (1 << 27), "{} {}", one.idle, idle);
                let ends = one.left + idle;
                prop_assert!(timeout <= ends && ends < timeout + (1 << 27), "{} {}", one.left, idle);
            }
        }
    }

    #[test]
    fn a_page_that_begins_behind_the_last_slot_is_empty() {
        let conns = Conns::new(10, Timeouts::default(), false);
        for from in [0, 1, u32::MAX] {
            let mut page = Vec::new();
            assert!(conns.page(from, 0, &mut page).is_none() && page.is_empty());
        }
    }
}
