//! Slow models for comparison: the hash bit by bit, the table as a list.

use super::{Action, Hit, Input, Limits, Mode, Pballoc};

/// The 42 bytes of the key, as they are written to the registers.
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
/// at bit n, where bit n + 1 of the repeated hash key is one. Bits are numbered from the end of the
/// stream. The ring closes at the place of the bucket field, which is not part of it: bits 0 to 15
/// are the first two bytes of the stream.
pub(super) fn hash(stream: &[u8; 42], key: u32) -> u16 {
    hash_of_ring(stream, key, 336)
}

/// As [`hash`], with a ring of `length` bits; the bits that the stream does not have are zero.
pub(super) fn hash_of_ring(stream: &[u8; 42], key: u32, length: usize) -> u16 {
    let mut ring: Vec<bool> = Vec::new(); // bit 0 first
    let bits = |byte: u8| (0..8).map(move |i| byte >> i & 1 == 1);
    for &byte in stream[..2].iter().rev().chain(stream[2..].iter().rev()) {
        ring.extend(bits(byte));
    }
    assert_eq!(ring.len(), 336);
    ring.resize(length, false);
    let mut hash = 0;
    for n in 0..=350_usize {
        if key >> ((n + 1) % 32) & 1 == 0 {
            continue;
        }
        for bit in 0..16 {
            // Bit 15 of the window is bit n of the stream, bit 0 is bit n - 15.
            let at = (length + n - 15 + bit) % length;
            hash ^= u16::from(ring[at]) << bit;
        }
    }
    hash
}

/// One filter of [`ListTable`].
struct Filter {
    bucket: u16,
    /// Soft id or signature.
    id: u16,
    input: Input,
    action: Action,
}

/// The filter table as a list, in the order of the adds.
pub(super) struct ListTable {
    mode: Mode,
    pballoc: Pballoc,
    limits: Limits,
    filters: Vec<Filter>,
}

/// The fields of a [`Hit`] that the list can predict.
#[derive(PartialEq, Debug)]
pub(super) struct Seen {
    position: u16,
    id: u16,
    action: Action,
    length_error: bool,
}

impl From<&Hit> for Seen {
    fn from(hit: &Hit) -> Self {
        let Hit { position, id, action, length_error, .. } = *hit;
        Self { position, id, action, length_error }
    }
}

impl ListTable {
    pub(super) const fn new(mode: Mode, pballoc: Pballoc, limits: Limits) -> Self {
        Self { mode, pballoc, limits, filters: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.filters.len()
    }

    pub(super) fn flush(&mut self) {
        self.filters.clear();
    }

    fn bucket_and_signature(&self, input: &Input) -> (u16, u16) {
        let stream = stream(input);
        let (bucket, signature) = super::hash::KEYS;
        (
            hash(&stream, bucket) & self.pballoc.bucket_mask(self.mode),
            hash(&stream, signature) & 0x7fff,
        )
    }

    fn equal(&self, filter: &Filter, input: &Input) -> bool {
        match self.mode {
            Mode::Perfect => filter.input == *input,
            Mode::Signature => (filter.bucket, filter.id) == self.bucket_and_signature(input),
        }
    }

    pub(super) fn add(
        &mut self,
        input: &Input,
        soft_id: u16,
        action: Action,
        update: bool,
    ) -> bool {
        let (bucket, signature) = self.bucket_and_signature(input);
        let id = if self.mode == Mode::Perfect { soft_id } else { signature };
        let same = self.filters.iter().position(|f| self.equal(f, input));
        if let Some(same) = same.filter(|_| update) {
            self.filters[same].id = id;
            self.filters[same].action = action;
            return true;
        }
        if self.filters.len() == self.pballoc.filters(self.mode) {
            return false;
        }
        self.filters.push(Filter { bucket, id, input: *input, action });
        true
    }

    pub(super) fn remove(&mut self, bucket: u16, id: u16) -> bool {
        let at = self.filters.iter().position(|f| (f.bucket, f.id) == (bucket, id));
        at.map(|at| self.filters.remove(at)).is_some()
    }

    /// The first filter that matches.
    pub(super) fn lookup(&self, input: &Input) -> Option<Seen> {
        let (bucket, signature) = self.bucket_and_signature(input);
        let list = self.filters.iter().filter(|f| f.bucket == bucket);
        let (at, filter) = list.enumerate().find(|(_, f)| self.equal(f, input))?;
        let position = at as u16 + 1;
        let id = if self.mode == Mode::Perfect { filter.id } else { signature | 0x8000 };
        let length_error = position > self.limits.max_length;
        Some(Seen { position, id, action: filter.action, length_error })
    }
}
