//! Counters: each core counts in its own memory and publishes the values on its own board.
//!
//! ```text
//!  core 3: Counters (plain u64) ──publish: relaxed stores──> Board (own cache lines) <── anyone
//! ```
//!
//! Invariants: counters never decrease (except `copies` of a board, which may be one too high for a
//! moment); when no frame moves, the sums over all cores satisfy
//! `rx_frames + copies = tx_frames + drops` for all drop reasons together.
//! Thread-safety: one core writes a board; any thread reads it. The values of a board are not read at one
//! instant: while frames move, counters of different cores may be some ticks apart.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::port::Received;

/// Why a frame was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum DropReason {
    /// The queue was full, and is configured to drop.
    QueueFull = 1,
    /// The frame is longer than a pool buffer.
    TooLong,
    /// No pool buffer was free.
    NoBuffer,
    /// The frame has no bytes; captures may contain such records.
    Empty,
    /// A table entry says drop.
    Table,
    /// The work dropped the frame without another reason.
    Work,
    /// The destination does not exist: an unknown queue, port or action list.
    NoRoute,
    /// The core that had the frame died.
    CoreDied,
    /// The port cannot transmit frames of this link type.
    LinkType,
    /// The port failed.
    PortFailed,
    /// The frame would leave by the port that it came in by, or its destination is on that link.
    Filtered,
    /// The destination MAC address is one that bridges do not forward (IEEE 802.1Q, table 8-1).
    Reserved,
    /// The Ethernet or IP header is truncated or invalid.
    Malformed,
    /// The frame is not an IP packet.
    NotIp,
    /// The time to live, or hop limit, has expired.
    TtlExpired,
    /// The receive ring of the interface was full: the kernel dropped the frame before the engine saw it.
    Overrun,
    /// The interface that the frame was to leave by is down or gone.
    PortDown,
    /// The action list changes fields that an SCTP checksum covers, and the packet is not complete: it is
    /// a fragment, or truncated.
    Incomplete,
    /// The destination is no service, and nothing else is configured for such frames.
    NoService,
    /// No backend of the service accepts new connections.
    NoBackend,
    /// The connection table is full.
    NoConnection,
    /// The frame is a later fragment, and the first fragment of its packet was not seen.
    Fragment,
    /// No flow of the switch's tables matched.
    NoFlow,
    /// The frame exceeded the rate of a meter.
    Metered,
    /// The frame was sent to a controller and nowhere else. This is not a loss.
    Punted,
    /// The MAC address of the next hop is not known yet.
    Unresolved,
    /// The frame was addressed to this host and processed: ARP, neighbour discovery, ICMP errors, ping.
    /// This is not a loss.
    Taken,
    /// The frame met more buckets of groups, or would have become more frames, than one frame may.
    TooManyCopies,
    /// Every backend of the service that accepts new connections has reached its limit of connections.
    BackendLimit,
    /// The client's address and port have a connection to the same backend through another service, so that replies could
    /// belong to either.
    Ambiguous,
    /// No security association has the SPI of the frame, or none is configured for its policy.
    NoSa,
    /// The security association of the frame has reached a limit.
    SaExpired,
    /// The sequence number was accepted before, or is below the anti-replay window.
    Replayed,
    /// The integrity check value of the frame is wrong.
    Unauthentic,
    /// An IPsec policy says drop, or requires protection that the frame does not have.
    Policy,
    /// The frame would exceed the MTU of its tunnel.
    TooBig,
    /// The frame is a fragment, which IPsec neither protects nor opens.
    IpsecFragment,
    /// A checksum of the frame is wrong, and its port drops such frames.
    BadChecksum,
}

impl DropReason {
    /// Every reason.
    pub const ALL: [Self; 38] = [
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
        Self::TooManyCopies,
        Self::BackendLimit,
        Self::Ambiguous,
        Self::NoSa,
        Self::SaExpired,
        Self::Replayed,
        Self::Unauthentic,
        Self::Policy,
        Self::TooBig,
        Self::IpsecFragment,
        Self::BadChecksum,
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
            Self::TooManyCopies => "too_many_copies",
            Self::BackendLimit => "backend_limit",
            Self::Ambiguous => "ambiguous",
            Self::NoSa => "no_sa",
            Self::SaExpired => "sa_expired",
            Self::Replayed => "replayed",
            Self::Unauthentic => "unauthentic",
            Self::Policy => "policy",
            Self::TooBig => "too_big",
            Self::IpsecFragment => "ipsec_fragment",
            Self::BadChecksum => "bad_checksum",
        }
    }

    /// The code in [`flowyard_frame::To::Drop`].
    #[must_use]
    pub const fn code(self) -> u16 {
        self as u16
    }

    /// The reason with this code; an unknown code is the work's.
    #[must_use]
    pub const fn of(code: u16) -> Self {
        Self::ALL[Self::slot(code)]
    }

    /// The index of this code. An unknown code counts as dropped by the work.
    const fn slot(code: u16) -> usize {
        match code {
            1..=38 => code as usize - 1,
            _ => Self::Work as usize - 1,
        }
    }
}

/// Dropped frames by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drops([u64; DropReason::ALL.len()]);

impl Default for Drops {
    fn default() -> Self {
        Self([0; DropReason::ALL.len()])
    }
}

impl Drops {
    /// Adds `frames` to the reason with this code.
    #[inline]
    pub fn add(&mut self, code: u16, frames: u64) {
        self.0[DropReason::slot(code)] += frames;
    }

    /// Frames dropped for `reason`.
    #[must_use]
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0[DropReason::slot(reason.code())]
    }

    /// Frames dropped for all reasons together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The reasons that occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.into_iter().zip(self.0).filter(|(_, frames)| *frames > 0)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of one core.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[repr(align(128))]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
            /// Frames that this core dropped.
            pub drops: Drops,
        }

        impl Counters {
            /// Names of the counters, without drops, in the order of [`Counters::values`].
            pub const NAMES: [&'static str; NUMBERS] = [$(stringify!($name)),*];

            /// The values, without drops.
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
    /// Frames received, including those dropped at the port.
    rx_frames,
    /// Bytes received.
    rx_bytes,
    /// Frames transmitted.
    tx_frames,
    /// Bytes transmitted.
    tx_bytes,
    /// Copies requested, for frames that leave by more than one port, and frames that the work makes.
    /// Copies that could not be made, for want of a buffer or another reason, are also drops.
    copies,
    /// Frames worked on.
    work_frames,
    /// Batches worked on.
    work_batches,
    /// Frames that an exact or a learnt entry matched.
    exact_hit,
    /// Frames that a rule matched.
    rule_hit,
    /// Flows that moved to another home.
    settle_moved,
    /// Frames kept on the flow's current queue because a move was not yet safe.
    settle_held,
    /// Frames buffered so that their flow could move.
    hold_frames,
    /// Holds that ended with the old home drained, so that the flow could move. Other holds reached their
    /// limit of time or frames.
    hold_moved,
    /// Edits applied to this core's tables.
    edits,
    /// Edits that a table refused.
    edits_refused,
    /// Edits of this core's learners that were lost because a mailbox was full.
    edits_lost,
    /// Reports to the elephant detector that were lost because its mailbox was full.
    reports_lost,
    /// Flows that were split over cores; counted on the core that decides, as the next three counters.
    promoted,
    /// Split flows that returned to one core.
    demoted,
    /// Entries of the indirection table that were moved to another core.
    rebalanced,
    /// Core overloads for which no action was taken.
    refused,
    /// Ports that were opened again, because their interface was replaced or they were stalled.
    port_reopens,
    /// Ports that were found stalled: they received none of the frames that their interface counted.
    port_stalls,
    /// Ports that were taken down, because the guest on their other side broke the rules.
    port_violations,
    /// Received frames whose checksums nobody verified, of ports that verify them: there is none, or not all of the packet is
    /// there.
    checksum_not_checked,
    /// Received frames with checksums that are correct.
    checksum_good,
    /// Received frames with a wrong checksum.
    checksum_bad,
    /// Received frames with a checksum that is not complete yet.
    checksum_partial,
    /// Received frames that became parts of longer ones, of ports that coalesce frames. The long frame counts as one received frame.
    rx_coalesced,
    /// Transmitted frames that were cut into segments, because their port does not pass on long ones. Each counts as one
    /// transmitted frame.
    tx_cut,
    /// Segments that left in place of these frames.
    tx_segments,
    /// Checksums that were completed in transmitted frames.
    tx_checksums,
    /// Transmitted frames that left as parts of longer ones, of ports that coalesce frames. Each counts as one transmitted frame.
    tx_coalesced,
    /// Ticks that made progress.
    ticks_busy,
    /// Ticks without progress.
    ticks_idle,
    /// Time spent in ticks that made progress, in nanoseconds.
    busy_ns,
    /// Processor time of the core's thread, in nanoseconds: ticks with and without progress. 0 under a
    /// virtual clock.
    cpu_ns,
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
        // Not four additions: the compiler loads two fields that the port stored one by one as one word. Such a load waits
        // until all earlier stores, among them those to rings in shared memory, have left the processor.
        if got.reopens | got.stalls | got.violations | got.coalesced != 0 {
            self.port_reopens += u64::from(got.reopens);
            self.port_stalls += u64::from(got.stalls);
            self.port_violations += u64::from(got.violations);
            self.rx_coalesced += u64::from(got.coalesced);
        }
        if got.verdicts != [0; 4] {
            let [not_checked, good, bad, partial] = got.verdicts.map(u64::from);
            self.checksum_not_checked += not_checked;
            self.checksum_good += good;
            self.checksum_bad += bad;
            self.checksum_partial += partial;
        }
        self.rx_frames += u64::from(came);
        came
    }

    /// The sum of the counters of two cores.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        let (a, b) = (self.values(), other.values());
        for (sum, more) in self.drops.0.iter_mut().zip(other.drops.0) {
            *sum += more;
        }
        Self::from_parts(std::array::from_fn(|i| a[i] + b[i]), self.drops)
    }

    /// Frames that were received or copied and have neither left nor been dropped. Meaningful for sums
    /// over all cores.
    #[must_use]
    pub fn inside(&self) -> u64 {
        (self.rx_frames + self.copies).saturating_sub(self.tx_frames + self.drops.total())
    }
}

/// The index of `copies`.
const COPIES: usize = 4;

/// A core's counters for other threads to read.
#[derive(Debug)]
#[repr(align(128))]
pub struct Board {
    numbers: [AtomicU64; NUMBERS],
    drops: [AtomicU64; DropReason::ALL.len()],
}

impl Default for Board {
    fn default() -> Self {
        Self {
            numbers: [const { AtomicU64::new(0) }; NUMBERS],
            drops: [const { AtomicU64::new(0) }; DropReason::ALL.len()],
        }
    }
}

/// Whether frames in + copies = frames out + drops, by the counters that cores have published.
pub(crate) fn are_drained(boards: &[Arc<Board>]) -> bool {
    let sum = |sum: Counters, board: &Arc<Board>| sum.plus(&board.read());
    let total = boards.iter().fold(Counters::default(), sum);
    // Acquire, and then the copies: those of every frame that was counted out above.
    fence(Ordering::Acquire);
    let copies: u64 = boards.iter().map(|board| board.copies()).sum();
    total.rx_frames + copies == total.tx_frames + total.drops.total()
}

impl Board {
    /// Publishes `counters`. Only the core that owns the board calls this.
    pub fn publish(&self, counters: &Counters) {
        // Release: a thread that reads that a copy left also reads that it was made.
        fence(Ordering::Release);
        let values = counters.values().into_iter().chain(counters.drops.0);
        for (cell, value) in self.numbers.iter().chain(&self.drops).zip(values) {
            cell.store(value, Ordering::Relaxed);
        }
    }

    /// Publishes the number of copies before the next copy can leave.
    pub(crate) fn show_copies(&self, copies: u64) {
        self.numbers[COPIES].store(copies, Ordering::Relaxed);
    }

    /// The last published number of copies. Read after `read` and an acquire fence, it includes every
    /// copy that has left.
    pub(crate) fn copies(&self) -> u64 {
        self.numbers[COPIES].load(Ordering::Relaxed)
    }

    /// The last published values.
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
