//! For tests of tables: lookups of any number of keys.

use flowyard_frame::{Action, FlowKey, LANES};
use flowyard_testkit::batch;

use super::Table;

/// The actions that a table returns for `keys`, in order; `None` for a miss. Also checks that the
/// actions of lanes that missed are not changed.
pub(super) fn answers(table: &mut dyn Table, keys: &[FlowKey]) -> Vec<Option<Action>> {
    let mut answers = Vec::new();
    for chunk in keys.chunks(LANES) {
        let mut batch = batch(chunk.iter().copied());
        let all = batch.lanes();
        let missed = table.lookup(&mut batch, all);
        answers.extend(all.map(|lane| (!missed.has(lane)).then_some(batch.actions[lane])));
        assert!(missed.into_iter().all(|lane| batch.actions[lane] == Action::default()));
    }
    answers
}

/// The marks of [`answers`].
pub(super) fn marks(table: &mut dyn Table, keys: &[FlowKey]) -> Vec<Option<u32>> {
    answers(table, keys).into_iter().map(|answer| answer.map(|action| action.mark)).collect()
}
