//! Versions of OpenFlow, and how two sides agree on one.

/// A version that this crate supports. Its number is the one on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Version {
    /// OpenFlow 1.0.
    V10 = 1,
    /// OpenFlow 1.3.
    #[default]
    V13 = 4,
    /// OpenFlow 1.4.
    V14 = 5,
}

impl Version {
    /// All versions, in rising order.
    pub const ALL: [Self; 3] = [Self::V10, Self::V13, Self::V14];

    /// The version with this number on the wire.
    #[must_use]
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|version| *version as u8 == number)
    }

    /// The version that both sides use (1.3.5, section 6.3.1), from the other side's hello. If the
    /// hello has a version bitmap, this is the highest version that both bitmaps have. Without a
    /// bitmap, it is the lower of both sides' highest versions; `header` is the other side's.
    #[must_use]
    pub fn agree(own: &[Self], header: u8, bitmap: Option<u32>) -> Option<Self> {
        let best = own.iter().copied().max()?;
        if let Some(map) = bitmap {
            return own.iter().copied().filter(|one| map & 1 << *one as u8 != 0).max();
        }
        let lower = header.min(best as u8);
        own.iter().copied().find(|version| *version as u8 == lower)
    }
}
