//! Front: the port mapping where a core receives frames, before they enter a queue.
//!
//! A frame that is answered here is counted as if the tables had processed it: in its flows, and in the lookups of
//! their tables, at the latest as `noted.rs` says. [`Datapath::apply`] ends every entry that a change could make wrong: a change of a flow changes
//! the generation of its path, and a change of a port clears the mapping.
//!
//! Thread-safety: owned by one core.

use flowyard_frame::{Batch, FlowKey, LANES, Lanes, To};
use flowyard_openflow::Field;
use flowyard_openflow::act::{Action as Act, Instruction};

use super::{Arrival, Datapath, HOT, path, walk};
use crate::cache::Path;
use crate::key::Key;
use crate::mapping::Mapped;

/// Translates the number of an OpenFlow port to the yard's.
pub type Place<'a> = &'a dyn Fn(u32) -> Option<u16>;

impl Datapath {
    /// Looks up `lanes` in the port mapping. The action of a lane that hits becomes a port of the yard, and the lane
    /// is counted; other actions stay. The lanes are plain frames ([`flowyard_flow::parse::fast`]) that were
    /// received as `from` says. Returns the lanes that hit.
    #[inline]
    pub fn front(
        &mut self,
        batch: &mut Batch,
        lanes: Lanes,
        from: Arrival,
        place: Place<'_>,
        now: u64,
    ) -> Lanes {
        if !self.is_ready {
            self.ready();
        }
        if !self.mapping.looks(lanes.count()) {
            return Lanes::NONE;
        }
        let lanes = self.without_split_flags(batch, lanes);
        let marked = self.by_mark(batch, lanes, now);
        let (rest, mut places) = (lanes.without(marked), [0; LANES]);
        let found = self.mapping.lookup(batch, rest, &mut places);
        let Self { mapping, cache, .. } = self;
        let is_alive = |path, half| cache.is_alive(path, half);
        let (alive, is_full) = mapping.note(batch, (found, &places), is_alive, now);
        if is_full {
            self.count_noted();
        }
        if !alive.is_empty() {
            (self.quiet, self.noted_at) = (0, now);
        }
        let answered = Lanes(alive.0 | marked.0);
        self.mapping.hits(answered.count());
        self.wear();
        self.offer(batch, (alive, &places), now);
        self.count_marked(batch, marked, now);
        let frames = u64::from(answered.count());
        self.totals.frames += frames;
        self.totals.cached += frames;
        self.totals.mapped += frames;
        self.totals.front += frames;
        let pays = self.mapping.len() < HOT || !self.is_light;
        for lane in rest.without(alive) {
            // An entry that became invalid was in use, so a new one is tried at once.
            let is_stale = found.has(lane);
            if is_stale {
                self.count_noted();
                self.mapping.del(&batch.keys[lane]);
            }
            if is_stale || pays && self.mapping.tries(batch.frames[lane].hash) {
                self.map_flow(&batch.keys[lane], from, place);
            }
            self.wear();
        }
        answered
    }

    /// Counts frames that marks have answered.
    fn count_marked(&mut self, batch: &mut Batch, marked: Lanes, now: u64) {
        for lane in marked {
            let path = batch.actions[lane].mark;
            self.count_path(path, 1, batch.frames[lane].len() as u64, now);
            (batch.actions[lane].mark, batch.actions[lane].counter) = (0, 0);
        }
    }

    /// Removes all entries of the port mapping if it is worn.
    #[inline]
    fn wear(&mut self) {
        if self.mapping.is_worn() {
            self.count_noted();
            self.mapping.clear();
        }
    }

    /// Counts frames of a path.
    #[inline]
    pub(super) fn count_path(&mut self, path: u32, frames: u64, bytes: u64, now: u64) {
        let fast = self.cache.fast(path);
        if let Some((table, counts)) = &fast.only {
            fast.hits = (fast.hits.0 + frames, fast.hits.1 + bytes);
            if let Some(counts) = counts.get(self.core) {
                counts.add(frames, bytes, now);
            }
            return walk::count(&self.lookups, *table, self.core, (frames, frames), now);
        }
        for number in &self.cache.path(path).flows {
            let Some(Some(flow)) = self.flows.get_mut(*number as usize) else { continue };
            flow.offloaded = (flow.offloaded.0 + frames, flow.offloaded.1 + bytes);
            if let Some(counts) = flow.entry.counts.get(self.core) {
                counts.add(frames, bytes, now);
            }
            walk::count(&self.lookups, flow.entry.table, self.core, (frames, frames), now);
        }
    }

    /// Adds an entry for a flow, if it can have one.
    fn map_flow(&mut self, flow: &FlowKey, from: Arrival, place: Place<'_>) {
        let mut path = std::mem::take(&mut self.path);
        if let Some(port) = self.leads(flow, from, &mut path)
            && let Some(port) = place(port)
        {
            let flows = &self.flows;
            let (path, generation) = self.cache.known(&path, || path::ends(flows, &path));
            self.count_noted();
            self.mapping.put(flow, Mapped { port, path, half: generation as u16 });
        }
        self.path = path;
    }

    /// The port to which the tables send a plain frame without a change, if they do nothing else with it. Writes
    /// the flows that match to `path`. Nothing is counted.
    fn leads(&self, flow: &FlowKey, from: Arrival, path: &mut Path) -> Option<u32> {
        let mut key = from.key();
        key.add_plain(flow);
        path.flows.clear();
        path.miss = None;
        let mut at = Some(0_u8);
        while let Some(table) = at {
            let number = self.tables.get(usize::from(table))?.lookup(&key)?;
            path.flows.push(number);
            at = passes(&self.flow(number)?.entry.instructions, &mut key)?;
            if at.is_some_and(|next| next <= table) {
                return None;
            }
        }
        let port = path::egress_port(path::mapping(&self.flows, path)?, from.port)?;
        (self.world.receives(from.port) && self.world.sends(port)).then_some(port)
    }

    /// Shows the valid entries of the port mapping in no order: the fields of the key that are compared, and the
    /// yard's port.
    pub fn each_mapped(&self, show: &mut dyn FnMut(&FlowKey, To)) {
        self.mapping.each(&mut |key, Mapped { port, path, half }| {
            if self.cache.is_alive(path, half) {
                show(key, To::Port(port));
            }
        });
    }

    /// The greatest number of entries of the port mapping; 0 if there is none.
    #[must_use]
    pub const fn mapped_max(&self) -> usize {
        self.mapping.capacity()
    }
}

/// Applies to `key` what the instructions of a flow do, and returns the next table, if any. Returns `None` if they
/// do more than output, metadata and goto.
fn passes(instructions: &[Instruction], key: &mut Key) -> Option<Option<u8>> {
    let mut next = None;
    for instruction in instructions {
        match instruction {
            Instruction::GotoTable(table) => next = Some(*table),
            Instruction::WriteMetadata { value, mask } => key.write_metadata(*value, *mask),
            Instruction::ApplyActions(list) if list.iter().all(is_output) => {}
            Instruction::WriteActions(list) if list.iter().all(is_output) => {
                for action in list {
                    if let Act::Output { port, .. } = action {
                        key.set(Field::ActsetOutput, (*port).into());
                    }
                }
            }
            _ => return None,
        }
    }
    Some(next)
}

const fn is_output(action: &Act) -> bool {
    matches!(action, Act::Output { .. })
}
