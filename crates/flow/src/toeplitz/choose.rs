//! Which source ports land on a wanted index of the indirection table: solved, not searched.
//!
//! The hash is linear over GF(2), so the hash of a flow is that of the flow with port 0, XOR the
//! contributions of the port's set bits. `hash & mask == index` is then at most 32 linear
//! equations in 16 unknowns. The solutions are none, or one port XOR every combination of some
//! independent differences: all of them, for any key, degenerate ones included.

use flowyard_frame::FlowKey;

use super::{HashTypes, Toeplitz};

/// All source ports that solve the equations, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The smallest port.
    first: u16,
    /// Independent differences, smallest first; no other has the leading bit of any.
    differences: Vec<u16>,
}

impl Ports {
    /// How many ports there are: a power of two, at most 65,536.
    #[must_use]
    pub fn count(&self) -> usize {
        1 << self.differences.len()
    }

    /// The ports, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        (0..self.count()).map(|choice| {
            let chosen = self.differences.iter().enumerate().filter(|&(i, _)| choice >> i & 1 == 1);
            chosen.fold(self.first, |port, (_, difference)| port ^ difference)
        })
    }

    /// The smallest port that is at least `least`: 1024 to stay clear of the privileged ones.
    #[must_use]
    pub fn from(&self, least: u16) -> Option<u16> {
        self.iter().find(|&port| port >= least)
    }
}

/// The source ports with which `key` lands on `index` of a table with `mask + 1` entries. `None`
/// when no port does: the key is degenerate, or the ports are not hashed.
#[must_use]
pub fn source_ports(
    toeplitz: &Toeplitz,
    types: &HashTypes,
    key: &FlowKey,
    mask: u32,
    index: u32,
) -> Option<Ports> {
    let hash = |sport| toeplitz.hash_flow(&FlowKey { sport, ..*key }, types);
    let zero = hash(0);
    let effects = std::array::from_fn(|bit| (hash(1 << bit) ^ zero) & mask);
    if index & !mask != 0 {
        return None;
    }
    solve(effects, (zero & mask) ^ index)
}

/// All sums of `effects` that give `want`: Gauss over GF(2), one row for each bit of the port.
fn solve(effects: [u32; 16], want: u32) -> Option<Ports> {
    // Independent effects so far: (effect, the port bits whose sum it is), leading bits distinct.
    let mut rows: Vec<(u32, u16)> = Vec::new();
    let mut differences: Vec<u16> = Vec::new();
    let reduce = |rows: &[(u32, u16)], start: (u32, u16)| {
        rows.iter().fold(start, |sum, row| {
            let leads = sum.0 >> row.0.ilog2() & 1 == 1;
            if leads { (sum.0 ^ row.0, sum.1 ^ row.1) } else { sum }
        })
    };
    for (bit, &effect) in effects.iter().enumerate() {
        match reduce(&rows, (effect, 1 << bit)) {
            // No effect: adding these bits to a solution gives another one. Its leading bit is
            // `bit`, which no earlier row has.
            (0, bits) => differences.push(bits),
            row => {
                // Ordered by leading bit, so that one pass over the rows reduces.
                let at = rows.partition_point(|r| r.0.ilog2() > row.0.ilog2());
                rows.insert(at, row);
            }
        }
    }
    let (left, mut first) = reduce(&rows, (want, 0));
    if left != 0 {
        return None;
    }
    for i in 0..differences.len() {
        let (difference, leading) = (differences[i], differences[i].ilog2());
        first ^= if first >> leading & 1 == 1 { difference } else { 0 };
        for other in &mut differences[i + 1..] {
            *other ^= if *other >> leading & 1 == 1 { difference } else { 0 };
        }
    }
    Some(Ports { first, differences })
}
