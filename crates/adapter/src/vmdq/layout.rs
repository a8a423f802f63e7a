//! How the 128 receive queues are divided among pools (X550 datasheet, tables 7-3 and 7-4).

use serde::Serialize;

/// A queuing scheme of MRQC.MRQE with virtualization. The pool number is in the high bits of the queue number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Layout {
    /// 64 pools with 2 queues, chosen by RSS.
    Rss64x2,
    /// 32 pools with 4 queues, chosen by RSS.
    Rss32x4,
    /// 32 pools with 4 traffic classes (DCB).
    Dcb32x4,
    /// 16 pools with 8 traffic classes (DCB).
    Dcb16x8,
}

impl Layout {
    /// All layouts with their names in a file of tenants.
    pub const ALL: [(&'static str, Self); 4] = [
        ("64x2", Self::Rss64x2),
        ("32x4", Self::Rss32x4),
        ("dcb32x4", Self::Dcb32x4),
        ("dcb16x8", Self::Dcb16x8),
    ];

    /// The name in a file of tenants.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, layout)| *layout == self).map_or("64x2", |(name, _)| name)
    }

    /// The number of pools.
    #[must_use]
    pub const fn pools(self) -> u8 {
        match self {
            Self::Rss64x2 => 64,
            Self::Rss32x4 | Self::Dcb32x4 => 32,
            Self::Dcb16x8 => 16,
        }
    }

    /// The number of queues of each pool.
    #[must_use]
    pub const fn queues(self) -> u16 {
        128 / self.pools() as u16
    }

    /// Whether RSS chooses the queue in a pool.
    #[must_use]
    pub const fn has_rss(self) -> bool {
        matches!(self, Self::Rss64x2 | Self::Rss32x4)
    }

    /// The set of all pools.
    #[must_use]
    pub const fn all(self) -> super::Pools {
        u64::MAX >> (64 - self.pools())
    }

    /// The queue of a frame in `pool`. `rss` is what the indirection table has for its hash, of which the low bits count
    /// (`queues` of the pool may be fewer: PSRTYPE.RQPL); 0 for frames without a hash. With traffic classes, `tci` is
    /// its tag, whose priority is the class: priority P is class P of 8, and class P / 2 of 4, as ixgbe maps them by
    /// default. Frames without a tag are in class 0.
    #[must_use]
    pub fn queue(self, pool: u8, queues: u16, rss: u16, tci: Option<u16>) -> u16 {
        let priority = tci.map_or(0, |tci| tci >> 13);
        let index = match self {
            Self::Rss64x2 | Self::Rss32x4 => rss & (queues.clamp(1, self.queues()) - 1),
            Self::Dcb32x4 => priority / 2,
            Self::Dcb16x8 => priority,
        };
        u16::from(pool) * self.queues() + index
    }

    /// The layout that ixgbe chooses for this number of virtual functions: 4 queues for each of at most 32 pools, among
    /// which is that of the physical function, and 2 queues for more (`ixgbe_set_sriov_queues`).
    #[must_use]
    pub const fn of_ixgbe(virtual_functions: u8) -> Self {
        if virtual_functions < 32 { Self::Rss32x4 } else { Self::Rss64x2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// X550 datasheet 333369-009, section 7.1.3.2: with 64 pools, pool N has queues 2N and 2N+1; with 32 pools, 4N to 4N+3; with
    /// traffic classes, the pool is in the high bits and the class in the low ones.
    #[test]
    fn pools_have_the_queues_of_table_7_4() {
        let tag = |priority: u16| Some(priority << 13 | 7);
        for (layout, pool, rss, tci, queue) in [
            (Layout::Rss64x2, 63, 15, None, 127),
            (Layout::Rss64x2, 63, 14, tag(7), 126),
            (Layout::Rss32x4, 31, 15, None, 127),
            (Layout::Rss32x4, 5, 6, None, 22),
            (Layout::Dcb32x4, 3, 15, tag(7), 15),
            (Layout::Dcb32x4, 3, 15, tag(2), 13),
            (Layout::Dcb16x8, 3, 15, tag(7), 31),
            (Layout::Dcb16x8, 3, 15, None, 24),
        ] {
            assert_eq!(layout.queue(pool, layout.queues(), rss, tci), queue, "{layout:?} {pool}");
        }
    }

    /// Section 7.1.3.2: a pool may use fewer queues (PSRTYPE.RQPL); the high bits of the RSS index are then zero.
    #[test]
    fn a_pool_may_use_fewer_queues() {
        let queue = |queues, rss| Layout::Rss32x4.queue(2, queues, rss, None);
        assert_eq!([queue(1, 3), queue(2, 3), queue(4, 3)], [8, 9, 11]);
        assert_eq!(queue(8, 7), 11, "not more than the layout has");
    }

    #[test]
    fn every_queue_belongs_to_one_pool() {
        for (_, layout) in Layout::ALL {
            assert_eq!(u16::from(layout.pools()) * layout.queues(), 128);
            assert_eq!(layout.all().count_ones(), u32::from(layout.pools()));
        }
        assert_eq!(Layout::of_ixgbe(31).queues(), 4);
        assert_eq!(Layout::of_ixgbe(32).queues(), 2);
    }
}
