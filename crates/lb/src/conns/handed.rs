//! Entries for another process, and from one.
//!
//! An entry keeps its state, the rest of its time, its local port, and the progress of its PROXY header or its end. Marks of
//! adapters are left out, and whether the connection began on another machine. Entries that are not established keep the order of their deadlines.

use flowyard_frame::Nanos;
use flowyard_yard::handover::bytes::{BadState, Reader, Writer};

use super::conn::{COPY, TWO_WAY};
use super::key::ConnKey;
use super::ports::spread;
use super::state::State;
use super::{Conn, Conns, Owner, wheel};

impl Conns {
    /// Writes all entries that are not expired.
    pub fn hand_over(&self, now: Nanos, writer: &mut Writer) {
        let tick = wheel::tick(now);
        let (mut all, mut unestablished) = (Vec::new(), Vec::new());
        for (slot, conn) in self.iter(now) {
            let list = if conn.is_established() { &mut all } else { &mut unestablished };
            list.push((conn.deadline, slot));
        }
        unestablished.sort_unstable(); // the list of a service has the order of deadlines
        all.extend(unestablished);
        writer.number(all.len() as u64);
        for (_, slot) in all {
            let conn = &self.slots[slot as usize];
            conn.key.words.iter().for_each(|word| {
                writer.number(*word);
            });
            writer.bytes(&conn.backend.to_ne_bytes()).bytes(&(conn.deadline - tick).to_ne_bytes());
            writer.bytes(&conn.first.to_ne_bytes()).bytes(&conn.port.to_ne_bytes());
            // Versions that do not know other bits take the address for that of a copy if it is not 0.
            let address = if conn.port == 0 { conn.address & COPY } else { conn.address };
            writer.bytes(&[address, conn.marks]);
            writer.bytes(&self.ends[slot as usize].reply.to_ne_bytes());
            writer.bytes(&self.mac(slot).unwrap_or_default());
        }
    }

    /// Enters what [`Conns::hand_over`] has written into this table, which is empty. `place` gets the ID of a backend there
    /// and gives its ID and the number of its service here. `local` gets the IP version and the index of a local address there, and gives
    /// its index here. `entered` gets each entry. Returns how many entries were entered,
    /// and how many were left out because their backend is not known or the table is full.
    ///
    /// # Errors
    /// The bytes are not those of entries.
    pub fn take_over(
        &mut self,
        reader: &mut Reader<'_>,
        seed: u64,
        now: Nanos,
        (place, local): (impl Fn(u32) -> Option<(u32, u16)>, impl Fn(bool, u8) -> Option<u8>),
        mut entered: impl FnMut(&Conn),
    ) -> Result<(u64, u64), BadState> {
        let (mut taken, mut left) = (0, 0);
        for _ in 0..reader.number()? {
            let mut words = [0; 5];
            for word in &mut words {
                *word = reader.number()?;
            }
            let key = ConnKey { words };
            let [backend, rest, first] = [reader.array()?, reader.array()?, reader.array()?];
            let port = u16::from_ne_bytes(reader.array()?);
            let [address, marks] = reader.array()?;
            let reply = u32::from_ne_bytes(reader.array()?);
            let mac: [u8; 6] = reader.array()?;
            let is_counted = port != 0 || address == 0;
            let Some((backend, service)) = place(u32::from_ne_bytes(backend)) else {
                left += 1;
                continue;
            };
            let address = if port != 0 { local(key.is_ipv6(), address) } else { Some(address) };
            let Some(address) = address else {
                left += 1;
                continue;
            };
            let owner = Owner { backend, service, sees_answers: marks & TWO_WAY != 0 };
            let hash = key.hash(seed);
            let Ok(slot) = self.insert(&key, hash, owner, State::of_marks(marks), now) else {
                left += 1;
                continue;
            };
            self.unlink(slot);
            let conn = &mut self.slots[slot as usize];
            conn.marks = marks;
            conn.forget_offer();
            conn.first = u32::from_ne_bytes(first);
            conn.address = u8::from(!is_counted);
            let most = wheel::ticks(self.timeouts.longest()).min(u32::MAX.into()) as u32;
            conn.deadline = wheel::tick(now) + u32::from_ne_bytes(rest).clamp(1, most.max(1));
            self.link(slot);
            self.set_mac(slot, mac);
            if port != 0
                && let Some(index) = &mut self.ports.index
                && index.insert(spread(reply), slot)
            {
                let conn = &mut self.slots[slot as usize];
                (conn.port, conn.address) = (port, address);
                self.ends[slot as usize].reply = reply;
            }
            entered(&self.slots[slot as usize]);
            taken += 1;
        }
        Ok((taken, left))
    }
}
