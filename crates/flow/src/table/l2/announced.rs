//! Which stations a core announces to the other cores, and when: a station that is new or has moved at once, and others
//! from time to time, so that they do not age in the tables of those cores.
//!
//! Invariants: the size is fixed; who does not know the seed cannot choose which stations share an entry.

use flowyard_frame::{Nanos, Rng};

use super::{Learnt, word};
use crate::mix::fold;

/// The longest time after which a station is announced again.
const AGAIN: Nanos = 1_000_000_000;

/// When stations are announced again.
#[derive(Clone, Debug)]
pub struct Announced {
    /// For each hash of an address: MAC address and VLAN id, and the time at which the station is to be announced
    /// again. Stations with equal hashes are announced more often.
    due: Box<[(u64, Nanos)]>,
    again: Nanos,
    /// The key of these hashes.
    keys: [u64; 2],
}

impl Announced {
    /// No station was announced. Tables have about `stations` stations and forget those that were silent for `age`.
    #[must_use]
    pub fn new(stations: usize, age: Nanos, seed: u64) -> Self {
        let mut random = Rng::new(!seed);
        Self {
            due: vec![(0, 0); stations.next_power_of_two()].into(),
            again: again(age),
            keys: [random.bits(), random.bits() | 1],
        }
    }

    /// Changes the ageing time.
    pub fn set_age(&mut self, age: Nanos) {
        self.again = again(age);
    }

    /// The entry that a station has.
    #[inline]
    fn place(&self, key: u64) -> usize {
        fold(key ^ self.keys[0], self.keys[1]) as usize & (self.due.len() - 1)
    }

    /// Whether a station that was seen at `now` is to be announced, after it was learnt with this result.
    #[must_use]
    #[inline]
    pub fn is_due(&self, mac: &[u8; 6], vlan: u16, learnt: Learnt, now: Nanos) -> bool {
        match learnt {
            Learnt::New | Learnt::Moved { .. } => true,
            Learnt::Full | Learnt::NoStation => false,
            Learnt::Known => {
                let key = word(mac, vlan);
                let (whose, due) = self.due[self.place(key)];
                whose != key || due <= now
            }
        }
    }

    /// Notes that a station was announced at `now`, to all cores or, as mailboxes were full, not to all. A mailbox that
    /// is full now will have capacity soon.
    #[inline]
    pub fn sent(&mut self, mac: &[u8; 6], vlan: u16, to_all: bool, now: Nanos) {
        let key = word(mac, vlan);
        let wait = if to_all { self.again } else { self.again / 1024 };
        self.due[self.place(key)] = (key, now.saturating_add(wait));
    }
}

/// How often a station is announced.
fn again(age: Nanos) -> Nanos {
    (age / 4).clamp(1, AGAIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secret;

    const SECOND: Nanos = 1_000_000_000;

    #[test]
    fn a_station_is_announced_at_once_and_then_from_time_to_time() {
        let (mac, known) = ([2; 6], Learnt::Known);
        for (age, again) in [(300 * SECOND, SECOND), (2 * SECOND, SECOND / 2), (0, 1)] {
            let mut all = Announced::new(64, age, 1);
            assert!(all.is_due(&mac, 5, Learnt::New, 0));
            all.sent(&mac, 5, true, 0);
            assert_eq!([again - 1, again].map(|t| all.is_due(&mac, 5, known, t)), [false, true]);
            assert!(all.is_due(&mac, 5, Learnt::Moved { from: 1 }, 0));
            assert!(all.is_due(&mac, 6, known, 0), "another VLAN");
            let none = [Learnt::Full, Learnt::NoStation];
            assert_eq!(none.map(|learnt| all.is_due(&mac, 5, learnt, SECOND)), [false; 2]);
            all.sent(&mac, 5, false, 0);
            let soon = again / 1024;
            assert_eq!(all.is_due(&mac, 5, known, soon.saturating_sub(1)), soon == 0);
            assert!(all.is_due(&mac, 5, known, soon), "a full mailbox");
        }
    }

    /// A core announces a station again when another one has taken its entry since. Stations that share an entry
    /// therefore cost a message for each frame; an adversary who knows the key can compute them.
    #[test]
    fn crafted_stations_cause_as_many_messages_as_others() {
        const COUNT: usize = 24;
        const ROUNDS: u64 = 10;
        let station = |n: u32| {
            let [a, b, c, d] = n.to_be_bytes();
            [2, 0, a, b, c, d]
        };
        let of = |seed: u64| Announced::new(4096, 300 * SECOND, seed);
        let known = of(Secret::FIXED.key("stations"));
        let place = |mac: &[u8; 6]| known.place(word(mac, 0));
        let wanted = place(&station(0));
        let crafted: Vec<_> =
            (0..).map(station).filter(|mac| place(mac) == wanted).take(COUNT).collect();
        let others: Vec<_> = (0..COUNT as u32).map(|n| station(1 << 30 | n << 8)).collect();
        // The messages that these stations cause with ten frames each.
        let cost = |seed: u64, stations: &[[u8; 6]]| {
            let mut all = of(seed);
            let mut count = 0;
            for now in 0..ROUNDS {
                for mac in stations {
                    if all.is_due(mac, 0, Learnt::Known, now) {
                        all.sent(mac, 0, true, now);
                        count += 1;
                    }
                }
            }
            count
        };
        assert_eq!(cost(Secret::FIXED.key("stations"), &crafted), COUNT * ROUNDS as usize);
        let of_all = |stations: &[[u8; 6]]| -> Vec<usize> {
            (2..80).map(|byte| cost(Secret::drawn([byte; 16]).key("stations"), stations)).collect()
        };
        let mut usual = of_all(&others);
        usual.sort_unstable();
        let (median, all) = (usual[usual.len() / 2], of_all(&crafted));
        let mean = all.iter().sum::<usize>() as f64 / all.len() as f64;
        assert!(mean <= 2.0 * median as f64, "{all:?}, usual {median}");
    }
}
