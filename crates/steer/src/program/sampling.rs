//! Frames are sampled to find elephants: what was sampled and how loaded the CPUs are, and the decisions carried out.

use std::collections::{BTreeMap, HashMap};

use aya::maps::{Array, HashMap as HashOf, PerCpuArray};
use flowyard_frame::{FlowKey, Nanos};

use super::{Error, Program, refused};
use crate::cpus::{self, Ticks};
use crate::elephants::{Decision, Elephants, Load, Seen, Settings, What};
use crate::layout::{self, Key, Sampling, Sketch};
use crate::policy::Policy;

/// What is remembered from window to window.
#[derive(Debug)]
pub(super) struct Watcher {
    elephants: Elephants,
    settings: Settings,
    /// When the present window ends; `None`: it has not begun.
    end: Option<Nanos>,
    number: u32,
    /// The indirection table that the user chose, and the present one.
    table: Vec<u16>,
    now: Vec<u16>,
    ticks: BTreeMap<u32, Ticks>,
    busy: BTreeMap<u32, f64>,
    /// By CPU: frames and drops so far.
    frames: BTreeMap<u32, u64>,
    drops: BTreeMap<u32, u64>,
}

impl Watcher {
    pub(super) fn new(policy: &Policy) -> Option<Self> {
        let settings = policy.elephants.clone()?;
        let queues = policy.table.iter().map(|&queue| policy.cpus.get(usize::from(queue)));
        let spread = queues.flatten().copied().flatten().collect();
        Some(Self {
            elephants: Elephants::new(settings.clone(), spread, 0),
            settings,
            end: None,
            number: 0,
            table: policy.table.clone(),
            now: policy.table.clone(),
            ticks: BTreeMap::new(),
            busy: BTreeMap::new(),
            frames: BTreeMap::new(),
            drops: BTreeMap::new(),
        })
    }

    /// The indirection table without the CPUs that belong to flows: each of their entries gets one of the other queues,
    /// in turn.
    fn spread(&self, cpus: &[Option<u32>]) -> Vec<u16> {
        let is_taken = |queue: u16| {
            let cpu = cpus.get(usize::from(queue)).copied().flatten();
            cpu.is_some_and(|cpu| self.elephants.is_taken(cpu))
        };
        let mut others: Vec<u16> = self.table.clone();
        others.sort_unstable();
        others.dedup();
        others.retain(|&queue| !is_taken(queue));
        let mut in_turn = others.iter().copied().cycle();
        let one = |&queue| if is_taken(queue) { in_turn.next().unwrap_or(queue) } else { queue };
        self.table.iter().map(one).collect()
    }

    /// The value of the map `sampling`.
    fn value(&self, cpus: &[Option<u32>]) -> Sampling {
        let mut taken = [0_u64; 16];
        for (queue, cpu) in cpus.iter().enumerate() {
            if cpu.is_some_and(|cpu| self.elephants.is_taken(cpu)) {
                taken[queue / 64 % 16] |= 1 << (queue % 64);
            }
        }
        let owned = self.elephants.own().count() as u32;
        layout::sampling(self.number, self.settings.sample_every, owned, &taken)
    }
}

impl Program {
    /// Decides about elephants, if the policy wants that and a window has ended at `now`; called often.
    ///
    /// # Errors
    /// When the kernel does not give what was counted, or refuses a move.
    pub fn watch(&mut self, now: Nanos) -> Result<Vec<Decision>, Error> {
        let Some(mut watcher) = self.watcher.take() else { return Ok(Vec::new()) };
        let decisions = self.end_window(&mut watcher, now);
        self.watcher = Some(watcher);
        decisions
    }

    /// The flows that have a CPU of their own, with the CPU.
    #[must_use]
    pub fn elephants(&self) -> Vec<(FlowKey, u32)> {
        let own = self.watcher.iter().flat_map(|watcher| watcher.elephants.own());
        own.map(|(key, cpu)| (*key, cpu)).collect()
    }

    fn end_window(&mut self, watcher: &mut Watcher, now: Nanos) -> Result<Vec<Decision>, Error> {
        if watcher.end.is_some_and(|end| now < end) {
            return Ok(Vec::new());
        }
        // From now on the program counts in the other sketch.
        let ended = watcher.number;
        watcher.number = watcher.number.wrapping_add(1).max(1);
        self.set("sampling", 0, &watcher.value(&self.cpus))?;
        let loads = self.loads(watcher)?;
        let is_first = watcher.end.replace(now.saturating_add(watcher.settings.window)).is_none();
        if is_first {
            watcher.elephants.window(now, &[], &[]);
            return Ok(Vec::new());
        }
        let seen = self.sampled(ended)?;
        let decisions = watcher.elephants.window(now, &loads, &seen);
        for decision in &decisions {
            self.carry_out(&decision.what)?;
        }
        if decisions.iter().any(|decision| !matches!(decision.what, What::Refuse(_))) {
            self.set("sampling", 0, &watcher.value(&self.cpus))?;
            let table = watcher.spread(&self.cpus);
            for (entry, (after, before)) in (0..).zip(table.iter().zip(&watcher.now)) {
                if after != before {
                    self.set("table", entry, &u32::from(*after))?;
                }
            }
            watcher.now = table;
        }
        Ok(decisions)
    }

    /// The load of each CPU since the last window.
    fn loads(&mut self, watcher: &mut Watcher) -> Result<Vec<Load>, Error> {
        let ticks = cpus::ticks().map_err(|error| Error::Kernel {
            what: "reading how busy the CPUs are (/proc/stat)",
            error: error.to_string(),
        })?;
        let mut frames: BTreeMap<u32, u64> = BTreeMap::new();
        for counts in self.counts()? {
            if let Some(cpu) = counts.cpu {
                *frames.entry(cpu).or_default() += counts.frames.values().sum::<u64>();
            }
        }
        let mut loads = Vec::new();
        for (&cpu, &all) in &frames {
            let after = ticks.get(&cpu).copied().unwrap_or_default();
            let before = watcher.ticks.insert(cpu, after).unwrap_or(after);
            // Without a tick of the clock the CPU counts as busy as before.
            let known = watcher.busy.get(&cpu).copied().unwrap_or_default();
            let busy = after.busy_since(before).unwrap_or(known);
            watcher.busy.insert(cpu, busy);
            let dropped = self.ring(cpu)?.dropped;
            let before = watcher.drops.insert(cpu, dropped).unwrap_or(dropped);
            let drops = dropped.saturating_sub(before);
            let seen = watcher.frames.insert(cpu, all).unwrap_or(all);
            let is_busy = busy >= watcher.settings.busy_high;
            let waiting = if is_busy { self.waiting(cpu)? } else { 0 };
            loads.push(Load { cpu, busy, waiting, drops, frames: all.saturating_sub(seen) });
        }
        Ok(loads)
    }

    /// The flows that were sampled in the window with this number, by all CPUs together.
    fn sampled(&mut self, window: u32) -> Result<Vec<Seen>, Error> {
        let read = |error| refused("reading what was sampled", &error);
        let cpus = self.cpus.clone();
        let map = PerCpuArray::<_, Sketch>::try_from(&*self.map("sketches")?).map_err(read)?;
        let sketches = map.get(&(window & 1), 0).map_err(read)?;
        let mut flows: HashMap<FlowKey, Seen> = HashMap::new();
        for way in sketches.iter().flat_map(|sketch| layout::ways(sketch, window)) {
            let Some(cpu) = cpus.get(way.queue as usize).copied().flatten() else { continue };
            let seen = flows.entry(way.key).or_insert(Seen { key: way.key, cpu, samples: 0 });
            // Where most of its frames went.
            if way.at_least > seen.samples {
                seen.cpu = cpu;
            }
            seen.samples += way.at_least;
        }
        let mut flows: Vec<Seen> = flows.into_values().collect();
        flows.sort_unstable_by_key(|seen| (seen.samples, layout::key(&seen.key)));
        Ok(flows)
    }

    fn carry_out(&mut self, what: &What) -> Result<(), Error> {
        let (key, queue) = match what {
            What::Refuse(_) => return Ok(()),
            What::Demote { key, .. } => (key, None),
            What::Promote { key, to, .. } => {
                (key, self.cpus.iter().position(|cpu| *cpu == Some(*to)))
            }
        };
        let key = layout::key(key);
        let map = HashOf::<_, Key, u32>::try_from(self.map("owned")?);
        let done = map.and_then(|mut map| match queue {
            Some(queue) => map.insert(key, queue as u32, 0),
            None => map.remove(&key),
        });
        done.map_err(|error| refused("giving a flow a CPU of its own", &error))
    }

    /// The queue that the indirection table gives to this hash now; elephants change the table.
    ///
    /// # Errors
    /// When the kernel does not give it.
    pub fn entry(&mut self, hash: u32) -> Result<u16, Error> {
        let map = Array::<_, u32>::try_from(&*self.map("table")?);
        let queue = map.and_then(|map| map.get(&(hash % map.len().max(1)), 0));
        queue.map(|queue| queue as u16).map_err(|error| refused("table", &error))
    }
}
