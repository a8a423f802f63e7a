//! FCoE offloads of the 82599: the redirection table, direct data placement (DDP), and segmentation of sequences.
//!
//! ```text
//!  FCoE frame ─> FC CRC ─> context of its exchange ─┬─ in order ──> payload into the user's buffers, header thrown away
//!                                                   └─ exception ─> whole frame into the queue of FCRETA[OX_ID & 7]
//! ```
//!
//! Sources: Intel's X550 datasheet 333369-009, sections 7.1.3.4 and 7.11, which was read; the sizes of the 82599 are those of ixgbe:
//! 512 contexts, 256 buffers of 4 to 64 KiB, 8 table entries (`IXGBE_FCOE_DDP_MAX`, `IXGBE_BUFFCNT_MAX`, `IXGBE_FCRETA_SIZE`). The X550
//! has 2048, 1024 and 64.
//!
//! Invariant: the bytes that a context placed are the payloads of the exchange, in order, without a gap. Thread-safety:
//! plain data.

use flowyard_wire::fc::{Eof, FcFrame, FcHeader, Sof};
use serde::Serialize;

mod segment;

pub use segment::{Sequence, TooLong, segment};

/// The sizes of an adapter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Sizes {
    /// DDP contexts; the low bits of the exchange's number choose one.
    pub contexts: u16,
    /// Buffers of a context at most.
    pub buffers: u16,
    /// Entries of the redirection table.
    pub redirection: u8,
}

/// The 82599 and X540.
pub const E82599: Sizes = Sizes { contexts: 512, buffers: 256, redirection: 8 };
/// The X550.
pub const X550: Sizes = Sizes { contexts: 2048, buffers: 1024, redirection: 64 };

/// The receive queue of an FCoE frame (7.1.3.4): the low bits of its OX_ID index the table. Without a table it is queue 0.
#[must_use]
pub fn redirected(table: &[u16], ox_id: u16) -> u16 {
    match table.len() {
        0 => 0,
        len => table[usize::from(ox_id) % len],
    }
}

/// The table that ixgbe writes for `queues` queues from `first` on: entry i has queue i modulo their number.
#[must_use]
pub fn table_of_ixgbe(sizes: Sizes, first: u16, queues: u16) -> Vec<u16> {
    (0..u16::from(sizes.redirection)).map(|entry| first + entry % queues.max(1)).collect()
}

/// What the driver reports of a frame (`FCERR` of the receive descriptor; the names are those of `ixgbe_fcoe.h`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fcerr {
    /// 001b: the FC CRC is wrong.
    BadCrc,
    /// 010b: an EOF or SOF that ends the exchange, or none that exists; or an abort.
    EofSof,
    /// 011b: the first frame did not reach the DMA unit.
    NoFirst,
    /// 100b: out of order, or a version that is not supported.
    OutOfOrder,
    /// 101b: the buffers are full.
    NoDma,
    /// 110b: a frame was lost before it.
    PacketLost,
}

/// Why a frame is not placed although nothing is wrong with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NotPlaced {
    /// No context has its exchange.
    NoContext,
    /// It is no solicited data of class 2 or 3.
    NoData,
    /// It has an ESP header.
    Esp,
    /// SOF or EOF do not fit its place in the sequence.
    UnexpectedEofSof,
}

/// What the adapter does with an FCoE frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Placed {
    /// The payload goes into the user's buffers. `header` tells whether the host gets its headers.
    Payload {
        /// Bytes placed.
        bytes: u32,
        /// Whether the headers go to the receive queue: optional headers, or the end of a write.
        header: bool,
        /// Whether the context ended.
        ended: bool,
    },
    /// The status of the command: the context ends, and the driver learns how many bytes it placed.
    Status {
        /// Bytes that the context placed.
        placed: u64,
    },
    /// The whole frame goes to the receive queue.
    Whole(NotPlaced),
    /// The whole frame goes to the receive queue with an error, and the context, if there is one, ends.
    Error(Fcerr),
}

/// A context refused by the driver (`ixgbe_fcoe_ddp_setup`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The number of the exchange is too large.
    #[error("exchange {0} has no context: the adapter has {1}; use smaller exchange numbers")]
    Number(u16, u16),
    /// The context is in use.
    #[error("the context of exchange {0} is in use; end it first")]
    InUse(u16),
    /// The data need too many buffers.
    #[error("the data need {0} buffers, and a context has at most {1}; use larger buffers")]
    Buffers(u32, u16),
}

/// A DDP context.
#[derive(Clone, Copy, Debug)]
struct Context {
    exchange: u16,
    /// Write exchanges: the context of a target, found by RX_ID.
    is_write: bool,
    /// Bytes that its buffers still take.
    room: u64,
    placed: u64,
    /// The first frame has come.
    started: bool,
    /// What becomes of all further frames, once the filter or the DMA context is invalid.
    broken: Option<Placed>,
    seq_id: u8,
    seq_cnt: u16,
    param: u32,
}

/// The filter context is invalid: further frames of the exchange match nothing.
const UNMATCHED: Placed = Placed::Whole(NotPlaced::NoContext);

/// The contexts of a port.
#[derive(Clone, Debug)]
pub struct Ddp {
    sizes: Sizes,
    contexts: Vec<Option<Context>>,
}

impl Ddp {
    /// No context is in use.
    #[must_use]
    pub fn new(sizes: Sizes) -> Self {
        Self { sizes, contexts: vec![None; usize::from(sizes.contexts)] }
    }

    /// Sets a context up for `bytes` bytes of exchange `exchange`, in buffers of `buffer` bytes (4, 8, 16 or 64 KiB), of which
    /// the first starts at `offset`.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn set_up(
        &mut self,
        exchange: u16,
        is_write: bool,
        bytes: u64,
        buffer: u32,
        offset: u32,
    ) -> Result<(), Refused> {
        if exchange >= self.sizes.contexts {
            return Err(Refused::Number(exchange, self.sizes.contexts));
        }
        let slot = &mut self.contexts[usize::from(exchange)];
        if slot.is_some() {
            return Err(Refused::InUse(exchange));
        }
        let buffers = (bytes + u64::from(offset)).div_ceil(u64::from(buffer.max(1)));
        if buffers > u64::from(self.sizes.buffers) {
            let buffers = u32::try_from(buffers).unwrap_or(u32::MAX);
            return Err(Refused::Buffers(buffers, self.sizes.buffers));
        }
        *slot = Some(Context {
            exchange,
            is_write,
            room: bytes,
            placed: 0,
            started: false,
            broken: None,
            seq_id: 0,
            seq_cnt: 0,
            param: 0,
        });
        Ok(())
    }

    /// Whether `exchange` has a context.
    #[must_use]
    pub fn has(&self, exchange: u16) -> bool {
        self.contexts.get(usize::from(exchange)).is_some_and(Option::is_some)
    }

    /// Ends the context of `exchange`; the bytes that it placed (`ixgbe_fcoe_ddp_put`).
    pub fn end(&mut self, exchange: u16) -> Option<u64> {
        let context = self.contexts.get_mut(usize::from(exchange))?.take()?;
        Some(context.placed)
    }

    /// A frame before this one of the exchange was lost in the adapter's packet buffer: the context takes no more.
    pub fn lost(&mut self, exchange: u16) {
        if let Some(Some(context)) = self.contexts.get_mut(usize::from(exchange)) {
            context.broken = context.broken.or(Some(Placed::Error(Fcerr::PacketLost)));
        }
    }

    /// What the adapter does with `frame`. Exceptions are tried in the order of table 7-86.
    pub fn receive(&mut self, frame: &FcFrame<'_>) -> Placed {
        let header = &frame.header;
        if !frame.is_intact() {
            return Placed::Error(Fcerr::BadCrc);
        }
        if frame.version > 0 {
            return Placed::Error(Fcerr::OutOfOrder); // FCERR 100b; contexts are left intact
        }
        let exchange = header.exchange();
        let is_write = header.f_ctl & FcHeader::RESPONDER == 0;
        let slot = self.contexts.get_mut(usize::from(exchange));
        let known =
            |context: &Context| context.exchange == exchange && context.is_write == is_write;
        let slot = slot.filter(|slot| slot.as_ref().is_some_and(known));
        let (sof, eof) = (Sof::of(frame.sof), Eof::of(frame.eof));
        let is_known = sof.is_some() && !matches!(eof, None | Some(Eof::A | Eof::Ni));
        let Some(slot) = slot else {
            let aborts = !is_write && header.f_ctl & FcHeader::ABORT != 0;
            let wrong = !is_known || aborts;
            return if wrong {
                Placed::Error(Fcerr::EofSof)
            } else {
                Placed::Whole(NotPlaced::NoContext)
            };
        };
        let Some(context) = slot.as_mut() else { return Placed::Whole(NotPlaced::NoContext) };
        if header.df_ctl & FcHeader::ESP != 0 {
            context.broken = context.broken.or(Some(UNMATCHED));
            return Placed::Whole(NotPlaced::Esp);
        }
        if header.is_status() && !context.is_write {
            let placed = context.placed;
            *slot = None;
            return Placed::Status { placed };
        }
        if !is_known || (!is_write && header.f_ctl & FcHeader::ABORT != 0) {
            context.broken = context.broken.or(Some(UNMATCHED));
            return Placed::Error(Fcerr::EofSof);
        }
        if let Some(broken) = context.broken {
            return broken;
        }
        let placed = context.take(frame, sof, eof);
        if let Placed::Payload { ended: true, .. } = placed {
            *slot = None;
        }
        placed
    }
}

impl Context {
    /// A frame of the exchange that passed the other checks.
    fn take(&mut self, frame: &FcFrame<'_>, sof: Option<Sof>, eof: Option<Eof>) -> Placed {
        let header = &frame.header;
        if !self.is_in_order(header, sof) {
            self.broken = Some(UNMATCHED);
            return Placed::Error(Fcerr::OutOfOrder);
        }
        let is_new = !self.started || header.seq_id != self.seq_id;
        let is_last = header.f_ctl & FcHeader::END_SEQUENCE != 0;
        let first = sof.is_some_and(Sof::is_first);
        (self.seq_id, self.seq_cnt) = (header.seq_id, header.seq_cnt.wrapping_add(1));
        self.started = true;
        if !header.is_data() || !matches!(sof, Some(Sof::I2 | Sof::I3 | Sof::N2 | Sof::N3)) {
            return Placed::Whole(NotPlaced::NoData);
        }
        let bytes = frame.payload.len() as u64;
        if header.f_ctl & FcHeader::OFFSET != 0 {
            self.param = header.param.wrapping_add(bytes as u32);
        }
        if (is_new && !first) || (is_last && eof != Some(Eof::T)) {
            // The datasheet's filter goes on. This model places nothing after the gap, where it would be in a wrong place.
            let gap = Placed::Whole(NotPlaced::UnexpectedEofSof);
            self.broken = Some(gap);
            return gap;
        }
        if bytes > self.room {
            self.broken = Some(Placed::Error(Fcerr::NoDma));
            return Placed::Error(Fcerr::NoDma);
        }
        self.room -= bytes;
        self.placed += bytes;
        let ended = self.is_write && is_last && header.f_ctl & FcHeader::INITIATIVE != 0;
        let has_options = header.optional() > 0;
        Placed::Payload { bytes: bytes as u32, header: has_options || ended, ended }
    }

    /// Section 7.11.3.3.7: SEQ_CNT goes on, or starts from zero with a new SEQ_ID; the parameter, if it is an offset, is the next
    /// byte. The first frame of a context has SOFi, and a new sequence a new SEQ_ID.
    fn is_in_order(&self, header: &FcHeader, sof: Option<Sof>) -> bool {
        let first = sof.is_some_and(Sof::is_first);
        let is_new = !self.started || header.seq_id != self.seq_id;
        let counted = header.seq_cnt == self.seq_cnt || (is_new && header.seq_cnt == 0);
        let at = header.f_ctl & FcHeader::OFFSET == 0 || header.param == self.param;
        let begins = self.started || first;
        let repeats = self.started && first && !is_new;
        counted && at && begins && !repeats
    }
}

#[cfg(test)]
mod tests;
