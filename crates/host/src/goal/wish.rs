//! What the goals share: the question, the answer, and the CPUs to use.

use std::collections::BTreeMap;

use crate::card::Card;
use crate::plan::Refusal;
use crate::setting::{Setting, Settings, cpu_text};
use crate::state::State;
use crate::traffic::Traffic;

/// What a plan is made from.
#[derive(Clone, Copy)]
pub(super) struct Ask<'a> {
    pub(super) state: &'a State,
    pub(super) settings: &'a Settings,
    pub(super) card: &'a Card,
    pub(super) traffic: &'a Traffic,
    /// The number of queues that the plan makes, if it changes the channels.
    pub(super) planned: Option<u32>,
}

/// The changes that a goal wants, and what it cannot get.
#[derive(Default)]
pub(super) struct Wish {
    pub(super) changes: BTreeMap<Setting, (String, String)>,
    pub(super) refusals: Vec<Refusal>,
    pub(super) notes: Vec<String>,
}

impl Wish {
    pub(super) fn change(&mut self, setting: Setting, to: String, why: &str) {
        self.changes.insert(setting, (to, why.to_owned()));
    }

    pub(super) fn refuse(&mut self, what: &str, limit: &str, source: &str) {
        let (what, limit, source) = (what.to_owned(), limit.to_owned(), source.to_owned());
        self.refusals.push(Refusal { what, limit, source });
    }
}

impl Ask<'_> {
    /// The CPUs on the adapter's NUMA node; all CPUs if there is no such node.
    pub(super) fn near(&self) -> Vec<u32> {
        let node = self.state.numa_node.value().and_then(|node| u32::try_from(*node).ok());
        let all = || self.state.cpus.value().into_iter().flatten();
        let near: Vec<u32> =
            all().filter(|cpu| Some(cpu.node) == node).map(|cpu| cpu.cpu).collect();
        if near.is_empty() { all().map(|cpu| cpu.cpu).collect() } else { near }
    }

    /// The queues over which the table may spread.
    pub(super) fn queues(&self) -> u32 {
        self.planned.or(self.state.queues()).unwrap_or(1)
    }

    /// Whether a queue is there after the plan.
    pub(super) fn keeps(&self, queue: u32) -> bool {
        self.planned.is_none_or(|queues| queue < queues)
    }

    /// Spreads every receive queue over `cpus` by RPS.
    pub(super) fn spread_by_rps(&self, cpus: &[u32], why: &str, wish: &mut Wish) {
        for one in self.state.rx_queues.value().into_iter().flatten() {
            wish.change(Setting::Rps(one.queue), cpu_text(cpus), why);
        }
    }

    /// Gives each queue's interrupt a CPU of its own among `cpus`, in turn. Returns the CPU of each queue.
    pub(super) fn one_cpu_each(
        &self,
        cpus: &[u32],
        why: &str,
        wish: &mut Wish,
    ) -> BTreeMap<u32, u32> {
        let mut of_queue = BTreeMap::new();
        for one in self.state.interrupts.value().into_iter().flatten() {
            let Some(&queue) = one.rx_queue.value().filter(|queue| self.keeps(**queue)) else {
                continue;
            };
            let Some(&cpu) = cpus.get(queue as usize % cpus.len().max(1)) else { continue };
            wish.change(Setting::Affinity(one.irq), cpu.to_string(), why);
            of_queue.insert(queue, cpu);
        }
        if of_queue.is_empty() {
            let why = self.state.interrupts.why();
            let limit = why.unwrap_or("no interrupt's name tells its receive queue");
            wish.refuse(
                "an interrupt on a CPU of its own for each queue",
                limit,
                "/proc/interrupts",
            );
        }
        of_queue
    }
}
