//! Counters: each core counts in its own memory and shows the sums on its own board.
//!
//! ```text
//!  core 3: Counters (plain u64) ──publish: relaxed stores──> Board (own cache lines) <── anyone
//! ```
//!
//! Invariants: numbers never go back (but `copies` of a board, which may be one too high for a
//! moment); over all cores, once nothing moves, `rx_frames + copies = tx_frames + drops` of every
//! reason.
//! Thread-safety: one core writes a board; anyone reads it. A reading is not one instant: while
//! frames move, numbers of different cores may be some ticks apart.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::port::Received;

/// Why a frame was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum DropReason {
    /// Its queue was full, and is configured to drop.
    QueueFull = 1,
    /// It is longer than a pool buffer.
    TooLong,
    /// No pool buffer was free.
    NoBuffer,
    /// It has no bytes: a capture may hold such.
    Empty,
    /// A table said drop.
    Table,
    /// The work said drop.
    Work,
    /// Its destination does not exist: an unknown queue, port or action list.
    NoRoute,
    /// Its core died with it in hand.
    CoreDied,
    /// Its port cannot take frames of its link type.
    LinkType,
    /// Its port failed.
    PortFailed,
    /// It would leave by the port it came in by, or is for nobody but those on that port's link.
    Filtered,
    /// Its destination address is one that no bridge forwards (IEEE 802.1Q, table 8-1).
    Reserved,
    /// Its Ethernet or IP header is cut off, or not a right one.
    Malformed,
    /// It is no IP packet.
    NotIp,
    /// Its time to live, or hop limit, is over.
    TtlExpired,
    /// The interface it came in by had no room left: the kernel dropped it before the yard saw it.
    Overrun,
    /// The interface it was to leave by is down, or gone.
    PortDown,
    /// Its action list changes what an SCTP checksum covers, and not all of that is here: it is a
    /// fragment, or cut.
    Incomplete,
    /// It is for no service, and nothing else is done with such frames.
    NoService,
    /// No backend of its service takes new connections.
    NoBackend,
    /// There is no room for its connection.
    NoConnection,
    /// It is a fragment, and the first of its packet did not come before it.
    Fragment,
    /// No flow of a switch's table matched it.
    NoFlow,
    /// It was above the rate of a switch's meter.
    Metered,
    /// It went to a controller, and nowhere else.
    Punted,
    /// Nobody has said yet which MAC address its next hop has.
    Unresolved,
    /// It is for the yard itself, which has taken note of it: a word of a neighbour, or of a router on
    /// the way to a backend.
    Taken,
}

impl DropReason {
    /// Every reason.
    pub const ALL: [Self; 27] = [
        Self::QueueFull,
        Self::TooLong,
        Self::NoBuffer,
        Self::Empty,
        Self::Table,
        Self::Work,
        Self::NoRoute,
        Self::CoreDied,
        Self::LinkType,
        Self::PortFailed,
        Self::Filtered,
        Self::Reserved,
        Self::Malformed,
        Self::NotIp,
        Self::TtlExpired,
        Self::Overrun,
        Self::PortDown,
        Self::Incomplete,
        Self::NoService,
        Self::NoBackend,
        Self::NoConnection,
        Self::Fragment,
        Self::NoFlow,
        Self::Metered,
        Self::Punted,
        Self::Unresolved,
        Self::Taken,
    ];

    /// The name in counters and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::TooLong => "too_long",
            Self::NoBuffer => "no_buffer",
            Self::Empty => "empty",
            Self::Table => "table",
            Self::Work => "work",
            Self::NoRoute => "no_route",
            Self::CoreDied => "core_died",
            Self::LinkType => "link_type",
            Self::PortFailed => "port_failed",
            Self::Filtered => "filtered",
            Self::Reserved => "reserved",
            Self::Malformed => "malformed",
            Self::NotIp => "not_ip",
            Self::TtlExpired => "ttl_expired",
            Self::Overrun => "overrun",
            Self::PortDown => "port_down",
            Self::Incomplete => "incomplete",
            Self::NoService => "no_service",
            Self::NoBackend => "no_backend",
            Self::NoConnection => "no_connection",
            Self::Fragment => "fragment",
            Self::NoFlow => "no_flow",
            Self::Metered => "metered",
            Self::Punted => "punted",
            Self::Unresolved => "unresolved",
            Self::Taken => "taken",
        }
    }

    /// The number that stands in the `counter` of an action that drops.
    #[must_use]
    pub const fn code(self) -> u16 {
        self as u16
    }

    /// The reason with this code; an unknown one is the work's own.
    #[must_use]
    pub const fn of(code: u16) -> Self {
        Self::ALL[Self::slot(code)]
    }

    /// The slot of this code. An action that drops without saying why was a table's or the
    /// work's own.
    const fn slot(code: u16) -> usize {
        match code {
            1..=27 => code as usize - 1,
            _ => Self::Work as usize - 1,
        }
    }
}

/// Drops by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Drops([u64; DropReason::ALL.len()]);

impl Drops {
    /// Adds `frames` under the reason with this code.
    #[inline]
    pub fn add(&mut self, code: u16, frames: u64) {
        self.0[DropReason::slot(code)] += frames;
    }

    /// How many frames were dropped for `reason`.
    #[must_use]
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0[DropReason::slot(reason.code())]
    }

    /// Frames dropped, for all reasons.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The reasons that occurred, with how often.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.into_iter().zip(self.0).filter(|(_, frames)| *frames > 0)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What one core counts.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[repr(align(128))]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
            /// Frames dropped by this core.
            pub drops: Drops,
        }

        impl Counters {
            /// Names of the numbers, drops apart, in the order of [`Counters::values`].
            pub const NAMES: [&'static str; NUMBERS] = [$(stringify!($name)),*];

            /// The numbers, drops apart.
            #[must_use]
            pub const fn values(&self) -> [u64; NUMBERS] {
                [$(self.$name),*]
            }

            fn from_parts([$($name),*]: [u64; NUMBERS], drops: Drops) -> Self {
                Self { $($name,)* drops }
            }
        }

        const NUMBERS: usize = [$(stringify!($name)),*].len();
    };
}

counters! {
    /// Frames received, those dropped at the port included.
    rx_frames,
    /// Their bytes.
    rx_bytes,
    /// Frames transmitted.
    tx_frames,
    /// Their bytes.
    tx_bytes,
    /// Copies wanted, of frames that leave by more than one port, and frames that the work makes;
    /// those that found no buffer are also drops.
    copies,
    /// Frames worked on.
    work_frames,
    /// Batches worked on.
    work_batches,
    /// Frames that an exact or a learnt entry answered.
    exact_hit,
    /// Frames that a rule answered.
    rule_hit,
    /// Flows that moved to another home.
    settle_moved,
    /// Frames sent to their flow's old home against the tables' word.
    settle_held,
    /// Frames held back so that their flow could move.
    hold_frames,
    /// Holds that ended with the old home drained, so that the flow could move; others were given
    /// up, for time or room.
    hold_moved,
    /// Edits applied to this core's tables.
    edits,
    /// Edits that a table refused.
    edits_refused,
    /// Edits that this core's learners wanted to send and a full mailbox lost.
    edits_lost,
    /// Reports for the core that decides about elephants that a full mailbox lost.
    reports_lost,
    /// Flows that were split over cores: counted where it was decided, as the next three are.
    promoted,
    /// Flows that came back to one core.
    demoted,
    /// Entries of the indirection table that were sent to another core.
    rebalanced,
    /// Overloads that nothing was done about.
    refused,
    /// Ticks that got something done.
    ticks_busy,
    /// Ticks that found nothing to do.
    ticks_idle,
    /// Time spent in ticks that got something done, in nanoseconds.
    busy_ns,
}

impl Counters {
    /// Counts what a port received: `frames` in the batch, and others that it dropped. Returns the
    /// number of both.
    #[inline]
    pub(crate) fn receive(&mut self, got: &Received, frames: usize) -> u32 {
        let mut came = frames as u32;
        if got.drops_some() {
            for (reason, dropped) in got.dropped() {
                self.drops.add(reason.code(), dropped.into());
                came += dropped;
            }
        }
        self.rx_frames += u64::from(came);
        came
    }

    /// The sum of two cores' numbers.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        let (a, b) = (self.values(), other.values());
        for (sum, more) in self.drops.0.iter_mut().zip(other.drops.0) {
            *sum += more;
        }
        Self::from_parts(std::array::from_fn(|i| a[i] + b[i]), self.drops)
    }

    /// Frames that came in, or were copied, and neither left nor were dropped: still somewhere inside. Of the sums
    /// over all cores.
    #[must_use]
    pub fn inside(&self) -> u64 {
        (self.rx_frames + self.copies).saturating_sub(self.tx_frames + self.drops.total())
    }
}

/// Where `copies` stands among the numbers.
const COPIES: usize = 4;

/// A core's counters for others to read.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Board {
    numbers: [AtomicU64; NUMBERS],
    drops: [AtomicU64; DropReason::ALL.len()],
}

impl Board {
    /// Shows `counters`. Only the core that owns the board calls this.
    pub fn publish(&self, counters: &Counters) {
        // Release: who reads that a copy left reads that it was made, too.
        fence(Ordering::Release);
        let values = counters.values().into_iter().chain(counters.drops.0);
        for (cell, value) in self.numbers.iter().chain(&self.drops).zip(values) {
            cell.store(value, Ordering::Relaxed);
        }
    }

    /// Shows how many copies there are, before the next one can leave.
    pub(crate) fn show_copies(&self, copies: u64) {
        self.numbers[COPIES].store(copies, Ordering::Relaxed);
    }

    /// The copies shown last. Read after what left (by `read` and a fence that acquires), it has
    /// every copy that left.
    pub(crate) fn copies(&self) -> u64 {
        self.numbers[COPIES].load(Ordering::Relaxed)
    }

    /// What was shown last.
    #[must_use]
    pub fn read(&self) -> Counters {
        let load = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let drops = Drops(std::array::from_fn(|i| load(&self.drops[i])));
        Counters::from_parts(std::array::from_fn(|i| load(&self.numbers[i])), drops)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_read() {
        let mut counters =
            Counters { rx_frames: 10, tx_frames: 3, busy_ns: 5, ..Counters::default() };
        for (i, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!((usize::from(reason.code()), DropReason::slot(reason.code())), (i + 1, i));
        }
        counters.drops.add(DropReason::QueueFull.code(), 2);
        counters.drops.add(0, 1); // dropped without a reason: by the work
        let board = Board::default();
        board.publish(&counters);
        assert_eq!(board.read(), counters);
        let twice = counters.plus(&board.read());
        assert_eq!((twice.rx_frames, twice.busy_ns, twice.drops.total()), (20, 10, 6));
        assert_eq!((counters.inside(), twice.inside()), (4, 8));
        let named: Vec<_> = twice.drops.iter().map(|(reason, n)| (reason.name(), n)).collect();
        assert_eq!(named, [("queue_full", 4), ("work", 2)]);
        assert_eq!((Counters::NAMES[0], Counters::NAMES[COPIES]), ("rx_frames", "copies"));
        counters.copies = 7;
        board.show_copies(7);
        assert_eq!((board.copies(), board.read(), counters.inside()), (7, counters, 11));
    }

    #[test]
    fn boards_share_no_cache_line() {
        assert_eq!((size_of::<Board>() % 128, align_of::<Board>()), (0, 128));
    }
}
