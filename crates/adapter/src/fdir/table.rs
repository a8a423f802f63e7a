//! The filter table: bucket lists in the packet buffer.
//!
//! ```text
//!  heads[bucket] ─> slot ─> slot ─> nil      the first equal filter matches; new ones are appended
//!  free ─> slot ─> slot ─> ...               every slot is in one bucket list or in the free list
//! ```
//!
//! The commands are those of FDIRCMD: add, add with FILTER_UPDATE, query, remove. A removal finds
//! its filter by bucket and soft id (or signature), so soft ids should be unique. The datasheet does
//! not state where a list is extended; appending is this model's interpretation, as is the rule that
//! a hit has the LENGTH error when the position of its filter is greater than MAX_LENGTH.
//!
//! Invariants: occupied + free = capacity; a slot keeps its number until removed or flushed;
//! no allocation after `new`. Thread-safety: `&mut self`.

use flowyard_frame::FlowKey;

use super::action::{Action, DROP_QUEUE, Moderation, Target};
use super::answer::{Added, Hit, Limits, Outcome};
use super::error::{Error, Unmatched};
use super::input::{Input, MaskSet};
use super::memory::{Mode, Pballoc};
use super::registers::{Counters, Registers};
use crate::stats::FilterStats;

/// No slot: the end of a list.
const NIL: u16 = u16::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    next: u16,
    /// Soft id in perfect mode, signature in signature mode.
    id: u16,
}

/// The filters of one port.
#[derive(Clone, Debug)]
pub struct Table {
    mode: Mode,
    pballoc: Pballoc,
    mask: MaskSet,
    limits: Limits,
    heads: Box<[u16]>,
    links: Box<[Link]>,
    actions: Box<[Action]>,
    /// The whole keys; empty in signature mode, which stores none.
    inputs: Box<[Input]>,
    free: u16,
    near_full: bool,
    counters: Counters,
    stats: FilterStats,
}

impl Table {
    /// An empty table.
    ///
    /// # Errors
    /// When the hardware does not support the mask set.
    pub fn new(mode: Mode, pballoc: Pballoc, mask: MaskSet, limits: Limits) -> Result<Self, Error> {
        mask.check()?;
        let filters = pballoc.filters(mode);
        let perfect = if mode == Mode::Perfect { filters } else { 0 };
        let mut table = Self {
            mode,
            pballoc,
            mask,
            limits,
            heads: vec![NIL; pballoc.buckets(mode)].into_boxed_slice(),
            links: vec![Link { next: NIL, id: 0 }; filters].into_boxed_slice(),
            actions: vec![Action::queue(0); filters].into_boxed_slice(),
            inputs: vec![Input::default(); perfect].into_boxed_slice(),
            free: NIL,
            near_full: false,
            counters: Counters::default(),
            stats: FilterStats { capacity: filters as u32, ..FilterStats::default() },
        };
        table.clear();
        Ok(table)
    }

    /// The match mode of the table.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// The part of the packet buffer that holds the table.
    #[must_use]
    pub const fn pballoc(&self) -> Pballoc {
        self.pballoc
    }

    /// The mask set of the port.
    #[must_use]
    pub const fn mask(&self) -> &MaskSet {
        &self.mask
    }

    /// Replaces the mask set of the port.
    ///
    /// # Errors
    /// While filters are installed, and when the hardware does not support the mask set.
    pub fn set_mask(&mut self, mask: MaskSet) -> Result<(), Error> {
        mask.check()?;
        if mask != self.mask && self.stats.occupancy > 0 {
            return Err(Error::MaskInUse(self.stats.occupancy));
        }
        self.mask = mask;
        Ok(())
    }

    /// The masked key of a frame.
    ///
    /// # Errors
    /// When the table matches no such frames.
    #[inline]
    pub fn input(&self, key: &FlowKey) -> Result<Input, Unmatched> {
        let input = Input::from_key(key, &self.mask)?;
        match self.mode {
            Mode::Perfect if input.is_ipv6() => Err(Unmatched::Ipv6),
            _ => Ok(input),
        }
    }

    /// The bucket of a masked key.
    #[must_use]
    #[inline]
    pub fn bucket(&self, input: &Input) -> u16 {
        input.folded().bucket(self.mode, self.pballoc)
    }

    /// Adds a filter for frames with the masked fields of `key`. In perfect mode a hit reports
    /// `soft_id`. If an equal filter exists, `update` (FILTER_UPDATE) changes its action; without
    /// `update` a second filter is appended.
    ///
    /// # Errors
    /// When the table is full, or when the hardware does not support the filter.
    pub fn add(
        &mut self,
        key: &FlowKey,
        soft_id: u16,
        action: Action,
        update: bool,
    ) -> Result<Added, Error> {
        let input = self.input(key)?;
        self.add_input(&input, soft_id, action, update)
    }

    /// [`Table::add`] for a key from [`Table::input`], which may have been moved to a pool since.
    ///
    /// # Errors
    /// As [`Table::add`].
    pub fn add_input(
        &mut self,
        input: &Input,
        soft_id: u16,
        action: Action,
        update: bool,
    ) -> Result<Added, Error> {
        self.check(input, soft_id, action)?;
        let folded = input.folded();
        let bucket = folded.bucket(self.mode, self.pballoc);
        let id = if self.mode == Mode::Perfect { soft_id } else { folded.signature() };
        let (mut last, mut length, mut equal) = (NIL, 1, NIL);
        let mut slot = self.heads[usize::from(bucket)];
        while slot != NIL {
            if equal == NIL && self.is(slot, input, id) {
                equal = slot;
                if update {
                    break;
                }
            }
            last = slot;
            length += 1;
            slot = self.links[usize::from(slot)].next;
        }
        if update && equal != NIL {
            self.links[usize::from(equal)].id = id;
            self.actions[usize::from(equal)] = action;
            self.stats.updates += 1;
            return Ok(Added { outcome: Outcome::Updated, slot: equal, near_full: false });
        }
        let slot = self.take(input, id, action)?;
        match last {
            NIL => self.heads[usize::from(bucket)] = slot,
            last => self.links[usize::from(last)].next = slot,
        }
        if length > self.counters.max_len {
            (self.counters.max_len, self.counters.max_hash) = (length, bucket);
        }
        self.counters.coll += u64::from(equal != NIL);
        let outcome = if equal == NIL { Outcome::Added } else { Outcome::Duplicate };
        Ok(Added { outcome, slot, near_full: self.crossed() })
    }

    /// The slot and the action of the filter that a command with this bucket and soft id (or
    /// signature) finds.
    #[must_use]
    pub fn query(&self, bucket: u16, id: u16) -> Option<(u16, Action)> {
        let mut slot = *self.heads.get(usize::from(bucket))?;
        // A hit reports a signature with bit 15 set; accept it with and without that bit.
        let id = if self.mode == Mode::Signature { id & 0x7fff } else { id };
        while slot != NIL {
            let link = self.links[usize::from(slot)];
            if link.id == id {
                return Some((slot, self.actions[usize::from(slot)]));
            }
            slot = link.next;
        }
        None
    }

    /// Removes the filter that [`Table::query`] finds, and returns its slot.
    ///
    /// # Errors
    /// [`Error::NotFound`], which the hardware counts in FDIRFSTAT.FREMOVE.
    pub fn remove(&mut self, bucket: u16, id: u16) -> Result<u16, Error> {
        let Some((slot, _)) = self.query(bucket, id) else {
            self.counters.fremove += 1;
            return Err(Error::NotFound { bucket, id });
        };
        let next = self.links[usize::from(slot)].next;
        let mut before = self.heads[usize::from(bucket)];
        if before == slot {
            self.heads[usize::from(bucket)] = next;
        } else {
            while self.links[usize::from(before)].next != slot {
                before = self.links[usize::from(before)].next;
            }
            self.links[usize::from(before)].next = next;
        }
        self.links[usize::from(slot)].next = self.free;
        self.free = slot;
        self.stats.occupancy -= 1;
        self.stats.removes += 1;
        self.counters.remove += 1;
        if self.free_filters() > self.limits.full_threshold {
            self.near_full = false;
        }
        Ok(slot)
    }

    /// The first filter that a frame matches.
    #[inline]
    pub fn lookup(&mut self, key: &FlowKey) -> Option<Hit> {
        let hit = self.input(key).ok().and_then(|input| self.find(&input));
        self.count(hit.is_some());
        hit
    }

    /// [`Table::lookup`] for a key from [`Table::input`], which may have been moved to a pool since.
    pub fn lookup_input(&mut self, input: &Input) -> Option<Hit> {
        let hit = self.find(input);
        self.count(hit.is_some());
        hit
    }

    /// Empties the table and clears the registers, as the drivers' re-initialisation does.
    pub fn flush(&mut self) {
        self.clear();
        self.stats.flushes += 1;
    }

    /// Reads the statistics registers and thereby clears them.
    pub fn read_registers(&mut self) -> Registers {
        let free = self.free_filters();
        self.counters.read(free)
    }

    /// Number of filters that can still be added.
    #[must_use]
    pub const fn free_filters(&self) -> u16 {
        (self.stats.capacity - self.stats.occupancy) as u16
    }

    /// Counters that are never cleared. `aliases` stays 0, because the table cannot detect them.
    #[must_use]
    pub const fn stats(&self) -> FilterStats {
        self.stats
    }

    /// The number of filters in each bucket, in the order of the buckets.
    pub fn list_lengths(&self) -> impl Iterator<Item = usize> + '_ {
        self.heads.iter().map(|&head| {
            let next = |&slot: &u16| Some(self.links[usize::from(slot)].next).filter(|&s| s != NIL);
            std::iter::successors(Some(head).filter(|&head| head != NIL), next).count()
        })
    }

    #[inline]
    fn find(&self, input: &Input) -> Option<Hit> {
        let folded = input.folded();
        let bucket = folded.bucket(self.mode, self.pballoc);
        let signature = folded.signature();
        let mut position = 1;
        let mut slot = self.heads[usize::from(bucket)];
        while slot != NIL {
            if self.is(slot, input, signature) {
                let id = match self.mode {
                    Mode::Perfect => self.links[usize::from(slot)].id,
                    Mode::Signature => signature | 0x8000,
                };
                let action = self.actions[usize::from(slot)];
                let length_error = position > self.limits.max_length;
                return Some(Hit { slot, bucket, position, id, action, length_error });
            }
            position += 1;
            slot = self.links[usize::from(slot)].next;
        }
        None
    }

    /// Whether a filter equals a key: by the whole key, or by the signature.
    #[inline]
    fn is(&self, slot: u16, input: &Input, signature: u16) -> bool {
        match self.mode {
            Mode::Perfect => self.inputs[usize::from(slot)] == *input,
            Mode::Signature => self.links[usize::from(slot)].id == signature,
        }
    }

    #[inline]
    const fn count(&mut self, hit: bool) {
        self.stats.hits += hit as u64;
        self.stats.misses += !hit as u64;
        self.counters.matched += hit as u64;
        self.counters.missed += !hit as u64;
    }

    fn check(&self, input: &Input, soft_id: u16, action: Action) -> Result<(), Error> {
        if self.mode == Mode::Perfect && input.is_ipv6() {
            return Err(Unmatched::Ipv6.into());
        }
        match action.to {
            Target::Drop if self.mode == Mode::Signature => return Err(Error::DropInSignature),
            Target::Queue(queue) if queue >= DROP_QUEUE => return Err(Error::Queue(queue)),
            _ => {}
        }
        if action.counter.is_some() {
            return Err(Error::NoSuchAction("hardware counter"));
        }
        if action.moderation == Moderation::HighBandwidth {
            return Err(Error::NoSuchAction("high-bandwidth interrupt class"));
        }
        if action.value != 0 && action.value != u32::from(soft_id) {
            return Err(Error::NoSuchAction("value other than its soft id"));
        }
        Ok(())
    }

    /// Writes a filter to a free slot.
    fn take(&mut self, input: &Input, id: u16, action: Action) -> Result<u16, Error> {
        let slot = self.free;
        if slot == NIL {
            self.counters.fadd += 1;
            self.stats.failed_adds += 1;
            return Err(Error::Full(self.stats.capacity));
        }
        let link = &mut self.links[usize::from(slot)];
        self.free = link.next;
        *link = Link { next: NIL, id };
        self.actions[usize::from(slot)] = action;
        if self.mode == Mode::Perfect {
            self.inputs[usize::from(slot)] = *input;
        }
        self.stats.occupancy += 1;
        self.stats.adds += 1;
        self.counters.add += 1;
        Ok(slot)
    }

    /// Whether the table has just become nearly full.
    const fn crossed(&mut self) -> bool {
        let near = self.free_filters() <= self.limits.full_threshold;
        let crossed = near && !self.near_full;
        self.near_full = near;
        crossed
    }

    fn clear(&mut self) {
        self.heads.fill(NIL);
        let last = self.links.len() - 1;
        for (slot, link) in self.links.iter_mut().enumerate() {
            link.next = if slot == last { NIL } else { slot as u16 + 1 };
        }
        self.free = 0;
        self.near_full = false;
        self.counters = Counters::default();
        self.stats.occupancy = 0;
    }
}
