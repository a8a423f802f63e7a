//! The preparation of an unfinished frame for the tables.
//!
//! Thread-safety: owned by one core.

use flowyard_frame::{Batch, Lanes};
use flowyard_openflow::Field;
use flowyard_wire::Offload;

use super::{Datapath, Flow};
use crate::key::Pattern;
use crate::unfinished::{SPLIT_FLAGS, Traits, follows, is_long};

/// What is to be done with a frame before it is processed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preparation {
    /// Nothing.
    Nothing,
    /// Its checksum is to be completed.
    Complete,
    /// It is to be cut into segments, each of which is then processed as a frame.
    Cut,
}

/// What the flows of all tables have that long frames may have to be cut for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Splits {
    /// Whether long frames may come.
    may_come: bool,
    /// The TCP flags that rules compare, or have compared, and that differ between the segments of a frame.
    flags: u16,
    /// Flows with actions before which a long frame must be cut.
    needing_finished: usize,
}

impl Splits {
    pub(super) fn new(may_come: bool) -> Self {
        Self { may_come, ..Self::default() }
    }

    /// A flow was added.
    pub(super) fn add(&mut self, pattern: &Pattern, traits: Traits) {
        self.flags |= pattern.mask.bits(Field::TcpFlags) as u16 & SPLIT_FLAGS;
        self.needing_finished += usize::from(traits.needs_finished);
    }

    /// A flow was removed.
    pub(super) fn remove(&mut self, traits: Traits) {
        self.needing_finished -= usize::from(traits.needs_finished);
    }
}

impl Datapath {
    /// What is to be done with the frame that was looked up at this place, of which `left` is left to do, before
    /// [`Datapath::act_on`] may process it.
    #[must_use]
    pub fn preparation(&self, place: usize, left: Offload) -> Preparation {
        let Some((key, layout)) = self.ahead.keys.get(place).zip(self.ahead.layouts.get(place))
        else {
            return Preparation::Nothing;
        };
        match (left.is_none(), follows(layout, left), is_long(left)) {
            (true, ..) | (false, true, false) => Preparation::Nothing,
            (false, false, false) => Preparation::Complete,
            (false, false, true) => Preparation::Cut,
            (false, true, true) => {
                let differs = key.bits(Field::TcpFlags) as u16 & self.splits.flags != 0;
                if differs || self.may_need_finished(place) {
                    Preparation::Cut
                } else {
                    Preparation::Nothing
                }
            }
        }
    }

    /// Whether the frame at this place may meet an action before which a long frame must be cut.
    fn may_need_finished(&self, place: usize) -> bool {
        if self.splits.needing_finished == 0 && self.world.needing_finished == 0 {
            return false;
        }
        let path = self.ahead.paths[place].filter(|_| self.ahead.holds);
        let needs_finished = |number: &u32| {
            self.flow(*number).is_none_or(|Flow { traits, .. }| {
                traits.needs_finished || traits.has_group && self.world.needing_finished != 0
            })
        };
        path.is_none_or(|path| self.cache.path(path).flows.iter().any(needs_finished))
    }

    /// The lanes whose frames have none of the TCP flags for which a long frame must be cut.
    #[inline]
    pub(super) fn without_split_flags(&self, batch: &Batch, lanes: Lanes) -> Lanes {
        if !self.splits.may_come || self.splits.flags == 0 {
            return lanes;
        }
        let differs =
            |lane: &usize| u16::from(batch.keys[*lane].tcp_flags) & self.splits.flags != 0;
        lanes.filter(differs).fold(lanes, |rest, lane| rest.without(Lanes(1 << lane)))
    }
}
