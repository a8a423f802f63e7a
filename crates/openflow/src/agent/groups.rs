//! Groups and meters (1.3.5, sections 6.5 and 6.6): limits, checks, and removal together with the
//! flow entries that refer to them.

use std::sync::Arc;

use super::check::Named;
use super::table::Installed;
use super::{Agent, Ask, Out, Undo, counts, memory};
use crate::act::{Action, Instruction};
use crate::change::{Change, Group, Meter};
use crate::flow::RemovedReason;
use crate::group::{
    self, Band, Bucket, GroupCommand, GroupMod, GroupType, MeterCommand, MeterMod, meter_flags,
};
use crate::multipart::{GroupDesc, MeterConfig};
use crate::port::reserved;
use crate::problem::{self, Problem};

/// The largest number of buckets of a group.
const BUCKETS: usize = 1024;
/// The largest number of bands of a meter.
pub(super) const BANDS: usize = 16;
/// The largest number of buckets of all groups.
const ALL_BUCKETS: usize = 1 << 17;

/// A group, and the time at which it was added.
#[derive(Clone, Debug)]
pub(super) struct GroupState {
    pub(super) group: Arc<Group>,
    pub(super) since: u64,
}

impl GroupState {
    /// What the group takes, in bytes.
    pub(super) fn weight(&self) -> usize {
        memory::of_group(&self.group.desc.buckets, self.group.counts.len())
    }
}

/// A meter, and the time at which it was added.
#[derive(Clone, Debug)]
pub(super) struct MeterState {
    pub(super) meter: Arc<Meter>,
    pub(super) since: u64,
}

impl Agent {
    /// Carries out a group-mod (1.3.5, section 6.5).
    pub(super) fn group_mod(
        &mut self,
        ask: Ask,
        m: &GroupMod,
        out: &mut Vec<Out>,
    ) -> Result<(), Problem> {
        self.check_group(m, Named::MustExist)?;
        if m.command == GroupCommand::Delete {
            return self.group_delete(ask, m.group, out);
        }
        let old = self.groups.get(&m.group);
        match m.command {
            GroupCommand::Add if old.is_some() => return Err(problem::GROUP_EXISTS),
            GroupCommand::Modify if old.is_none() => return Err(problem::GROUP_UNKNOWN),
            GroupCommand::Add if self.groups.len() >= self.limits.groups => {
                return Err(problem::GROUP_OUT_OF_GROUPS);
            }
            _ => {}
        }
        let had = old.map_or(0, |old| old.group.desc.buckets.len());
        if self.chains.buckets() - had + m.buckets.len() > ALL_BUCKETS {
            return Err(problem::GROUP_OUT_OF_BUCKETS);
        }
        let (new, had) =
            (memory::of_group(&m.buckets, self.cores), old.map_or(0, GroupState::weight));
        let grows = new.saturating_sub(had);
        if self.chains.bytes() + grows > self.memory.groups || !self.fits(grows) {
            return Err(problem::GROUP_OUT_OF_MEMORY);
        }
        // A modified group keeps its age and its counts. The counts of its buckets begin at zero,
        // because the buckets are new.
        let (since, kept) = old.map_or_else(
            || (ask.now, counts(self.cores)),
            |old| (old.since, Arc::clone(&old.group.counts)),
        );
        let mut desc = GroupDesc { kind: m.kind, group: m.group, buckets: m.buckets.clone() };
        let actions = desc.buckets.iter_mut().flat_map(|bucket| &mut bucket.actions);
        actions.for_each(Action::mark_tag);
        let buckets = counts(self.cores * m.buckets.len());
        let group = Arc::new(Group { desc, counts: kept, buckets });
        self.emit(Change::Group(Arc::clone(&group)));
        let old = self.groups.insert(m.group, GroupState { group, since });
        self.chains.changed(&self.groups, m.group, old.as_ref());
        self.note(|| Undo::Group(m.group, old));
        Ok(())
    }

    fn note(&mut self, undo: impl FnOnce() -> Undo) {
        if let Some(list) = &mut self.undo {
            list.push(undo());
        }
    }

    /// Whether a group can be added or deleted.
    pub(super) fn check_group(&self, m: &GroupMod, named: Named) -> Result<(), Problem> {
        if m.command == GroupCommand::Delete {
            let known = m.group <= group::MAX || m.group == group::ALL;
            return if known { Ok(()) } else { Err(problem::GROUP_INVALID) };
        }
        if m.group > group::MAX || m.kind == GroupType::Indirect && m.buckets.len() != 1 {
            return Err(problem::GROUP_INVALID);
        }
        if m.buckets.len() > BUCKETS {
            return Err(problem::GROUP_OUT_OF_BUCKETS);
        }
        // The share of a bucket is its weight divided by the sum of all (1.3.5, section 7.3.4.2), so they may not all be
        // zero. A bucket of weight zero gets nothing.
        let is_weighed = m.buckets.is_empty() || m.buckets.iter().any(|bucket| bucket.weight != 0);
        if m.kind == GroupType::Select && !is_weighed {
            return Err(problem::GROUP_INVALID);
        }
        for bucket in &m.buckets {
            // Other types have no weights (1.3.5, section 6.5).
            if m.kind != GroupType::Select && bucket.weight != 0 {
                return Err(problem::GROUP_INVALID);
            }
            self.check_watch(m.kind, bucket, named)?;
            // A bucket that names its own group is a loop, even if the group does not exist yet.
            if bucket.actions.contains(&Action::Group(m.group)) {
                return Err(problem::GROUP_LOOP);
            }
            self.check_list(&bucket.actions, named)?;
        }
        match named {
            Named::MustExist => self.chains.check(&self.groups, m.group, m.kind, &m.buckets),
            // Earlier messages of the bundle may change the chains.
            Named::MayFollow => Ok(()),
        }
    }

    /// Whether a bucket can watch its port and group. Fast failover groups choose by what their
    /// buckets watch, select groups leave out buckets that are not live, and groups of other types
    /// use every bucket.
    fn check_watch(&self, kind: GroupType, bucket: &Bucket, named: Named) -> Result<(), Problem> {
        let port = Some(bucket.watch_port).filter(|port| *port != reserved::ANY);
        let watched = Some(bucket.watch_group).filter(|group| *group != group::ANY);
        match kind {
            GroupType::FastFailover => {
                let exists = |group| {
                    group <= group::MAX
                        && (named == Named::MayFollow || self.groups.contains_key(&group))
                };
                let there = port.is_none_or(|port| (1..=reserved::MAX).contains(&port))
                    && watched.is_none_or(exists);
                if port.is_none() && watched.is_none() || !there {
                    return Err(problem::GROUP_BAD_WATCH);
                }
            }
            GroupType::Select => {}
            // Some controllers write 0 for a port and a group that are not watched.
            GroupType::All | GroupType::Indirect => {
                let set = |number: Option<u32>| number.is_some_and(|number| number != 0);
                if set(port) || set(watched) {
                    return Err(problem::GROUP_BAD_WATCH_UNSUPPORTED);
                }
            }
        }
        Ok(())
    }

    /// Puts back what a group was.
    pub(super) fn restore_group(&mut self, number: u32, old: Option<GroupState>) {
        let now = match old {
            Some(old) => self.groups.insert(number, old),
            None => self.groups.remove(&number),
        };
        self.chains.changed(&self.groups, number, now.as_ref());
    }

    fn group_delete(&mut self, ask: Ask, number: u32, out: &mut Vec<Out>) -> Result<(), Problem> {
        let all = number == group::ALL;
        if !all && !self.groups.contains_key(&number) {
            return Ok(());
        }
        if !all && self.chains.is_named(number) {
            return Err(problem::GROUP_CHAINED);
        }
        let leads = |action: &Action| match action {
            Action::Group(group) => all || *group == number,
            _ => false,
        };
        let wanted = |flow: &Installed| flow.actions().any(leads);
        self.drop_flows(wanted, RemovedReason::GroupDelete, ask, out);
        let gone: Vec<u32> =
            self.groups.keys().copied().filter(|group| all || *group == number).collect();
        for group in gone {
            let old = self.groups.remove(&group);
            self.chains.changed(&self.groups, group, old.as_ref());
            self.note(|| Undo::Group(group, old));
            self.emit(Change::GroupGone(group));
        }
        Ok(())
    }

    /// Carries out a meter-mod (1.3.5, section 6.6).
    pub(super) fn meter_mod(
        &mut self,
        ask: Ask,
        m: &MeterMod,
        out: &mut Vec<Out>,
    ) -> Result<(), Problem> {
        check_meter(m)?;
        if m.command == MeterCommand::Delete {
            self.meter_delete(ask, m.meter, out);
            return Ok(());
        }
        let old = self.meters.get(&m.meter);
        match m.command {
            MeterCommand::Add if old.is_some() => return Err(problem::METER_EXISTS),
            MeterCommand::Modify if old.is_none() => return Err(problem::METER_UNKNOWN),
            MeterCommand::Add if self.meters.len() >= self.limits.meters => {
                return Err(problem::METER_OUT_OF_METERS);
            }
            _ => {}
        }
        let weight = |bands: &[Band]| memory::of_meter(bands, self.cores);
        let (had, new) = (old.map_or(0, |old| weight(&old.meter.config.bands)), weight(&m.bands));
        if !self.fits(new.saturating_sub(had)) {
            return Err(problem::METER_OUT_OF_MEMORY);
        }
        let (since, kept) = old.map_or_else(
            || (ask.now, counts(self.cores)),
            |old| (old.since, Arc::clone(&old.meter.counts)),
        );
        let config = MeterConfig { flags: m.flags, meter: m.meter, bands: m.bands.clone() };
        let bands = counts(self.cores * m.bands.len());
        let meter = Arc::new(Meter { config, counts: kept, bands });
        self.emit(Change::Meter(Arc::clone(&meter)));
        let old = self.put_meter(m.meter, Some(MeterState { meter, since }));
        self.note(|| Undo::Meter(m.meter, old));
        Ok(())
    }

    /// Adds, replaces or removes a meter; returns what it was.
    pub(super) fn put_meter(&mut self, number: u32, new: Option<MeterState>) -> Option<MeterState> {
        let cores = self.cores;
        let weight = |one: &MeterState| memory::of_meter(&one.meter.config.bands, cores);
        let more = new.as_ref().map_or(0, weight);
        let old = match new {
            Some(new) => self.meters.insert(number, new),
            None => self.meters.remove(&number),
        };
        self.meter_bytes = (self.meter_bytes + more).saturating_sub(old.as_ref().map_or(0, weight));
        old
    }

    fn meter_delete(&mut self, ask: Ask, number: u32, out: &mut Vec<Out>) {
        // Virtual meters are not among all meters (1.4.0, section 6.7).
        let all = number == group::METER_ALL;
        let chosen = |meter: &u32| if all { *meter <= group::METER_MAX } else { *meter == number };
        let gone: Vec<u32> = self.meters.keys().copied().filter(chosen).collect();
        if gone.is_empty() {
            return;
        }
        let metered = |flow: &Installed| {
            flow.entry.instructions.iter().any(|one| match one {
                Instruction::Meter(meter) => all || *meter == number,
                _ => false,
            })
        };
        self.drop_flows(metered, RemovedReason::MeterDelete, ask, out);
        for meter in gone {
            let old = self.put_meter(meter, None);
            self.note(|| Undo::Meter(meter, old));
            self.emit(Change::MeterGone(meter));
        }
    }
}

/// Whether a meter can be added or deleted.
pub(super) fn check_meter(m: &MeterMod) -> Result<(), Problem> {
    if m.command == MeterCommand::Delete {
        return Ok(());
    }
    let reserved = m.meter > group::METER_MAX && m.meter != group::METER_CONTROLLER;
    if m.meter == 0 || reserved {
        return Err(problem::METER_INVALID);
    }
    let both = meter_flags::KBPS | meter_flags::PKTPS;
    if m.flags & both == both || m.flags >> 4 != 0 {
        return Err(problem::METER_BAD_FLAGS);
    }
    if m.bands.len() > BANDS {
        return Err(problem::METER_OUT_OF_BANDS);
    }
    m.bands.iter().try_for_each(|band| match band {
        Band::Experimenter { .. } => Err(problem::METER_BAD_BAND),
        Band::DscpRemark { levels, .. } if *levels > 7 => Err(problem::METER_BAD_BAND_VALUE),
        _ => Ok(()),
    })
}
