//! A received frame, and how it is written into buffers: with its tag, and finished or cut if its receiver needs that.
//!
//! Thread-safety: borrows the ring.

use flowyard_wire::segment::Cut;
use flowyard_wire::{Offload, Segment, offload};

use super::ring::MACS;

/// A frame in the ring.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Its bytes, without the VLAN tag, which is stored separately. The first of them, if the rest waits.
    pub(super) data: &'a [u8],
    /// The length of all of it.
    pub(super) whole: usize,
    /// EtherType and tag.
    pub(super) vlan: Option<[u8; 4]>,
    pub(super) offload: Option<Offload>,
    /// The length on the wire, including the VLAN tag.
    pub wire_len: u32,
    /// Whether the frame was truncated for lack of space.
    pub is_cut: bool,
}

impl<'a> Seen<'a> {
    /// A whole frame; `vlan` is its tag, if it is stored separately.
    pub(crate) const fn whole(data: &'a [u8], vlan: Option<[u8; 4]>, offload: Offload) -> Self {
        let wire_len = data.len() as u32 + if vlan.is_some() { 4 } else { 0 };
        let whole = data.len();
        Seen { data, whole, vlan, offload: Some(offload), wire_len, is_cut: false }
    }

    /// The same frame, of which all but the first `len` bytes wait, with the offload that a ring finds for these.
    pub(crate) fn shortened(self, len: usize) -> Self {
        let data = &self.data[..self.data.len().min(len)];
        let of = |offload: Offload| {
            Offload::from_virtio_front(&offload.to_virtio(), data, self.whole).ok()
        };
        Self { data, offload: self.offload.and_then(of), ..self }
    }
}

impl Seen<'_> {
    /// The segmentation of the frame: `Some(None)` if it need not be segmented, `Some(Some(cut))`
    /// if the sender left segmentation to an adapter, `None` if it must be segmented but cannot be.
    #[must_use]
    pub fn cut(&self) -> Option<Option<Cut>> {
        match self.offload? {
            Offload { segment: Segment::None, .. } => Some(None),
            offload => Cut::new(self.data, offload).ok().map(Some),
        }
    }

    /// What is left to do to the frame, with its tag; `None` if it is to be dropped.
    #[must_use]
    pub fn offload(&self) -> Option<Offload> {
        self.offload?.shifted(if self.vlan.is_some() { 4 } else { 0 })
    }

    /// The length of segment `n` of `cut`, or of the whole frame if `cut` is `None`.
    #[must_use]
    pub fn len(&self, cut: Option<&Cut>, n: usize) -> usize {
        let tag = if self.vlan.is_some() { 4 } else { 0 };
        tag + cut.map_or(self.whole, |cut| cut.len(n))
    }

    /// Whether the frame has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Whether only the first bytes are here, see [`super::Ring::gather`].
    #[must_use]
    pub const fn is_waiting(&self) -> bool {
        self.data.len() < self.whole
    }

    /// Writes the frame, all of which is here, with its tag, and with what is left to do, into `out`, which must have the
    /// length [`Seen::len`] of the whole frame.
    pub fn write_whole(&self, out: &mut [u8]) {
        let Some(vlan) = self.vlan else { return out.copy_from_slice(self.data) };
        let (front, rest) = self.data.split_at(self.data.len().min(MACS));
        let Some((to, more)) = out.split_at_mut_checked(MACS) else { return };
        to.copy_from_slice(front);
        if let Some((tag, plain)) = more.split_first_chunk_mut::<4>() {
            *tag = vlan;
            plain.copy_from_slice(rest);
        }
    }

    /// Writes segment `n` of `cut`, or the whole frame if `cut` is `None`, as on the wire into
    /// `out`, which must have the length [`Seen::len`].
    pub fn write(&self, cut: Option<&Cut>, n: usize, out: &mut [u8]) {
        // The VLAN tag is inserted last: the frame is written four bytes further on, and then the
        // addresses are moved to the front.
        let tag =
            out.len().saturating_sub(self.len(cut, n) - if self.vlan.is_some() { 4 } else { 0 });
        let plain = &mut out[tag..];
        match cut {
            Some(cut) => {
                cut.write(self.data, n, plain);
            }
            None => {
                plain.copy_from_slice(self.data);
                if let Some(all) = self.offload.filter(|all| all.has(Offload::PARTIAL)) {
                    offload::complete(plain, all);
                }
            }
        }
        if let Some(vlan) = self.vlan {
            out.copy_within(4..4 + MACS, 0);
            out[MACS..MACS + 4].copy_from_slice(&vlan);
        }
    }
}
