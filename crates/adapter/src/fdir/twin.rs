//! Slow twins, as plain as can be: the hash bit by bit, the table as a list.

use super::{Action, Hit, Input, Limits, Mode, Pballoc};

/// The 42 bytes of the key, as they go over the register interface.
pub(super) fn stream(input: &Input) -> [u8; 42] {
    let mut bytes = vec![input.pool, input.flow_type];
    bytes.extend(input.vlan.to_be_bytes());
    bytes.extend(input.dst);
    bytes.extend(input.src);
    bytes.extend(input.src_port.to_be_bytes());
    bytes.extend(input.dst_port.to_be_bytes());
    bytes.extend(input.flex.to_be_bytes());
    bytes.try_into().unwrap()
}

/// The formal definition: the XOR over n = 0..=350 of the 16-bit window of the stream that ends
/// at bit n, where bit n + 1 of the repeated hash key is one. Bits are numbered from the stream's
/// end; the ring closes where the bucket field, not part of it, would be: bits 0 to 15 are the
/// stream's first two bytes.
pub(super) fn hash(stream: &[u8; 42], key: u32) -> u16 {
    let mut ring: Vec<bool> = Vec::new(); // bit 0 first
    let bits = |byte: u8| (0..8).map(move |i| byte >> i & 1 == 1);
    for &byte in stream[..2].iter().rev().chain(stream[2..].iter().rev()) {
        ring.extend(bits(byte));
    }
    assert_eq!(ring.len(), 336);
    let mut hash = 0;
    for n in 0..=350_usize {
        if key >> ((n + 1) % 32) & 1 == 0 {
            continue;
        }
        for bit in 0..16 {
            // bit 15 of the window is S[n], bit 0 is S[n - 15]
            let at = (336 + n - 15 + bit) % 336;
            hash ^= u16::from(ring[at]) << bit;
        }
    }
    hash
}

/// The table as a list of (bucket, id, key, action), in the order of the adds.
pub(super) struct Twin {
    pub mode: Mode,
    pub pballoc: Pballoc,
    pub limits: Limits,
    pub filters: Vec<(u16, u16, Input, Action)>,
}

impl Twin {
    fn ids(&self, input: &Input) -> (u16, u16) {
        let stream = stream(input);
        let (bucket, signature) = super::hash::KEYS;
        (
            hash(&stream, bucket) & self.pballoc.bucket_mask(self.mode),
            hash(&stream, signature) & 0x7fff,
        )
    }

    fn equal(&self, filter: &(u16, u16, Input, Action), input: &Input) -> bool {
        match self.mode {
            Mode::Perfect => filter.2 == *input,
            Mode::Signature => (filter.0, filter.1) == self.ids(input),
        }
    }

    pub(super) fn add(
        &mut self,
        input: &Input,
        soft_id: u16,
        action: Action,
        update: bool,
    ) -> bool {
        let (bucket, signature) = self.ids(input);
        let id = if self.mode == Mode::Perfect { soft_id } else { signature };
        let same = self.filters.iter().position(|f| self.equal(f, input));
        if let Some(same) = same.filter(|_| update) {
            self.filters[same].1 = id;
            self.filters[same].3 = action;
            return true;
        }
        if self.filters.len() == self.pballoc.filters(self.mode) {
            return false;
        }
        self.filters.push((bucket, id, *input, action));
        true
    }

    pub(super) fn remove(&mut self, bucket: u16, id: u16) -> bool {
        let at = self.filters.iter().position(|f| (f.0, f.1) == (bucket, id));
        at.map(|at| self.filters.remove(at)).is_some()
    }

    /// (position, id, action, length error) of the first filter that matches.
    pub(super) fn lookup(&self, input: &Input) -> Option<(u16, u16, Action, bool)> {
        let (bucket, signature) = self.ids(input);
        let list = self.filters.iter().filter(|f| f.0 == bucket);
        let (at, filter) = list.enumerate().find(|(_, f)| self.equal(f, input))?;
        let position = at as u16 + 1;
        let id = if self.mode == Mode::Perfect { filter.1 } else { signature | 0x8000 };
        Some((position, id, filter.3, position > self.limits.max_length))
    }
}

/// What the twin can say of a hit.
pub(super) fn seen(hit: &Hit) -> (u16, u16, Action, bool) {
    (hit.position, hit.id, hit.action, hit.length_error)
}
