//! What a core observes frames with: its learners, and the sampler and the detector of elephants.
//!
//! Thread-safety: runs on the calling thread, before any core does.

use std::sync::Arc;

use flowyard_flow::Learn;
use flowyard_flow::learn::{Cache, Rfs, atr::Atr};
use flowyard_flow::table::Exact;
use flowyard_frame::FlowKey;

use crate::blueprint::{Blueprint, LearnPlan};
use crate::core::{Core, Learner, Stage};
use crate::elephants::{Decider, Decisions, Sampling};
use crate::front::Front;

/// The sampler of a core for the elephant detector, and on one core the detector itself.
pub(super) fn watch_elephants(
    plan: &Blueprint,
    core: &mut Core,
    log: &Decisions,
    marking: Option<&Arc<dyn Front>>,
) {
    let Some(elephants) = &plan.elephants else { return };
    let entries = core.entry.steer.spread.entries();
    let seed = plan.secret.key("sampler") ^ u64::from(core.id) << 32;
    let sizes = (entries.len(), plan.queues.len());
    let sampling = Sampling::new(elephants, sizes, plan.home(core.id), seed);
    if core.id == elephants.core {
        let mut decider = Decider::new(plan, elephants, entries, log.clone());
        if let Some(front) = marking {
            decider.set_marks(Arc::clone(front), plan.ports.len() as u16);
        }
        core.decider = Some(Box::new(decider));
    }
    core.observers.sampling = Some(Box::new(sampling));
}

/// The capacity of the learnt table: every core that teaches has a share of it.
pub(super) fn learnt_entries(plan: &Blueprint) -> usize {
    match plan.learn {
        Some(LearnPlan::Atr(settings)) => {
            let teachers: usize = plan.ports.iter().map(|port| port.cores.len()).sum();
            settings.entries.saturating_mul(teachers)
        }
        Some(LearnPlan::Rfs(settings)) => settings.entries.saturating_mul(plan.cores.into()),
        Some(LearnPlan::Cache(settings)) => settings.entries,
        None => 8192,
    }
}

impl Blueprint {
    /// The memory of the tables of learnt flows, one on each core, in bytes.
    #[must_use]
    pub fn learnt_bytes(&self) -> usize {
        Exact::bytes(learnt_entries(self)).saturating_mul(self.cores.into())
    }
}

/// Learners of core `id`, with those of `others` that are its own; each writes the tables of all cores that receive.
pub(super) fn learners(
    plan: &Blueprint,
    id: u16,
    transmits: bool,
    cache: Option<FlowKey>,
    others: &mut Vec<(u16, Stage, u16, Box<dyn Learn + Send>)>,
) -> Vec<Learner> {
    let teaches = plan.receivers();
    let learner = |stage, home, learn| {
        let (teaches, edits) = (teaches.clone(), Vec::with_capacity(256));
        Learner { stage, learn, home, teaches, edits }
    };
    let mut all = Vec::new();
    match (plan.learn, plan.home(id), cache) {
        (Some(LearnPlan::Atr(settings)), Some(home), _) if transmits => {
            let atr = Atr::new(plan.queues.len() as u16, settings, plan.secret.key("atr"));
            all.push(learner(Stage::Tx, home, Box::new(atr)));
        }
        (Some(LearnPlan::Rfs(settings)), Some(home), _) => {
            let rfs = Rfs::new(settings, plan.secret.key("rfs").wrapping_add(id.into()));
            all.push(learner(Stage::Work, home, Box::new(rfs)));
        }
        (Some(LearnPlan::Cache(settings)), _, Some(mask)) if transmits => {
            let cache = Box::new(Cache::new(settings, &mask, plan.secret.key("cache")));
            // Its own core alone: by mail, edits could come after a change of the rules.
            all.push(Learner { teaches: vec![id], ..learner(Stage::Rules, id, cache) });
        }
        _ => {}
    }
    let (mine, left): (Vec<_>, Vec<_>) =
        std::mem::take(others).into_iter().partition(|learner| learner.0 == id);
    *others = left;
    all.extend(mine.into_iter().map(|(_, stage, home, learn)| learner(stage, home, learn)));
    all
}
