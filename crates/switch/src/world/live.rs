//! Which groups are live (OpenFlow 1.3.5, section 6.5): a group is if one of its buckets is, and a bucket is if the
//! port and the group that it watches are.
//!
//! A group may watch another, which watches a third, and so on. The answer for all groups is therefore found at once,
//! after changes and not for each frame, from the groups that are live by themselves to those that watch them.
//!
//! Invariants: each bucket is looked at a constant number of times for each batch of changes, and not at all if no
//! bucket watches a group.
//! Thread-safety: owned by one core.

use flowyard_openflow::group::Bucket;
use flowyard_openflow::port::{Port, reserved};

use crate::unfinished::Traits;

use super::{DOWN, Grouping, LINK_DOWN, World};

/// The most buckets of a group to which long frames are given as they are.
const LONG_BUCKETS: usize = 128;

/// A group in the list of groups.
#[derive(Debug)]
pub(super) struct Slot {
    number: u32,
    is_live: bool,
    /// Whether one of its buckets watches a group.
    pub(super) watches: bool,
    /// Whether one of its buckets has an action before which a long frame must be cut.
    pub(super) needs_finished: bool,
    /// Absent while it is being applied.
    pub(super) grouping: Option<Grouping>,
}

impl Slot {
    pub(super) fn new(number: u32, grouping: Grouping) -> Self {
        let watches = |bucket: &Bucket| bucket.watch_group <= flowyard_openflow::group::MAX;
        let buckets = &grouping.group.desc.buckets;
        let needs_finished = |bucket: &Bucket| Traits::of_actions(&bucket.actions).needs_finished;
        // The budget of a frame may not hold the bytes of more copies of a long frame.
        let needs_finished = buckets.iter().any(needs_finished) || buckets.len() > LONG_BUCKETS;
        let watches = buckets.iter().any(watches);
        Self { number, is_live: false, watches, needs_finished, grouping: Some(grouping) }
    }

    fn buckets(&self) -> &[Bucket] {
        self.grouping.as_ref().map_or(&[], |one| &one.group.desc.buckets)
    }
}

impl World {
    /// The place of a group in the list, or where it would be.
    pub(super) fn place(&self, number: u32) -> Result<usize, usize> {
        self.groups.binary_search_by_key(&number, |slot| slot.number)
    }

    pub(super) fn grouping(&self, number: u32) -> Option<&Grouping> {
        self.groups[self.place(number).ok()?].grouping.as_ref()
    }

    /// The group that a bucket watches. Some controllers do not use `ANY` if they watch none.
    fn watched(&self, bucket: &Bucket) -> Option<u32> {
        let group = bucket.watch_group;
        let none = group > flowyard_openflow::group::MAX || group == 0 && self.place(0).is_err();
        (!none).then_some(group)
    }

    fn has_live_port(&self, bucket: &Bucket) -> bool {
        let live = |port: &Port| port.config & DOWN == 0 && port.state & LINK_DOWN == 0;
        bucket.watch_port == reserved::ANY
            || bucket.watch_port == 0
            || self.port(bucket.watch_port).is_some_and(live)
    }

    pub(crate) fn is_live(&self, bucket: &Bucket) -> bool {
        let group_is_live = |group| self.place(group).is_ok_and(|at| self.groups[at].is_live);
        self.has_live_port(bucket) && self.watched(bucket).is_none_or(group_is_live)
    }

    /// Finds out which groups are live, if anything has changed since it was last done.
    pub(crate) fn refresh(&mut self) {
        if self.watching == 0 || !std::mem::take(&mut self.is_stale) {
            return;
        }
        // Each bucket that watches a group, as the place of that group and of its own.
        let (mut watchers, mut open) = (Vec::new(), Vec::new());
        for at in 0..self.groups.len() {
            let mut is_live = false;
            for bucket in self.groups[at].buckets() {
                match self.watched(bucket) {
                    _ if !self.has_live_port(bucket) => {}
                    None => is_live = true,
                    Some(group) => watchers.extend(self.place(group).ok().map(|to| (to, at))),
                }
            }
            self.groups[at].is_live = is_live;
            if is_live {
                open.push(at);
            }
        }
        watchers.sort_unstable();
        while let Some(live) = open.pop() {
            let from = watchers.partition_point(|(watched, _)| *watched < live);
            for (_, at) in watchers[from..].iter().take_while(|(watched, _)| *watched == live) {
                if !std::mem::replace(&mut self.groups[*at].is_live, true) {
                    open.push(*at);
                }
            }
        }
    }
}
