//! What a filter does with a frame: the actions of Intel's Flow Director paper, as data.

use flowyard_frame::To;
use serde::Serialize;

use crate::profile::{FdirActions, Support};

/// The queue that drops, in both Linux drivers (FDIRCTRL.DROP_Q): no filter may name it.
pub const DROP_QUEUE: u16 = 127;

/// Where a matching frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Target {
    /// To a receive queue.
    Queue(u16),
    /// Nowhere.
    Drop,
}

/// The interrupt class of a matching frame ("tuning interrupt moderation for either low latency
/// or high bandwidth").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Moderation {
    /// The queue's own.
    #[default]
    Default,
    /// Interrupt at once; the 500 series' INT action.
    LowLatency,
    /// Gather more frames before an interrupt.
    HighBandwidth,
}

/// All that a filter may do at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Action {
    /// Queue or drop.
    pub to: Target,
    /// One of the adapter's counters to add to (512 in the paper's XL710).
    pub counter: Option<u16>,
    /// The interrupt class.
    pub moderation: Moderation,
    /// The software-defined value put into the receive descriptor; 0 is none.
    pub value: u32,
}

impl Action {
    /// To `queue`, and nothing else.
    #[must_use]
    pub const fn queue(queue: u16) -> Self {
        Self { to: Target::Queue(queue), counter: None, moderation: Moderation::Default, value: 0 }
    }

    /// Drop.
    pub const DROP: Self = Self { to: Target::Drop, ..Self::queue(0) };

    /// Why an adapter with `can` refuses this action; `None` when it takes it.
    #[must_use]
    pub fn refusal(&self, can: &FdirActions) -> Option<&'static str> {
        match self.to {
            Target::Queue(queue) if can.max_queue.is_some_and(|max| queue > max) => {
                return Some("no filter of this adapter can name that queue");
            }
            Target::Drop if can.drop != Support::Yes => {
                return Some("this adapter's filters cannot drop; steer to a queue nobody reads");
            }
            _ => {}
        }
        if self.counter.is_some_and(|counter| counter >= can.counters) {
            return Some("this adapter has no such counter for a filter; count in software");
        }
        let class = match self.moderation {
            Moderation::Default => Support::Yes,
            Moderation::LowLatency => can.low_latency,
            Moderation::HighBandwidth => can.high_bandwidth,
        };
        if class != Support::Yes {
            return Some("no driver of this adapter sets an interrupt class for each filter");
        }
        let too_wide = u64::from(self.value) >> can.value_bits != 0;
        too_wide.then_some("the value has more bits than this adapter reports")
    }
}

impl From<Action> for flowyard_frame::Action {
    /// Counter 0 is "none" there: counter n becomes n + 1.
    fn from(action: Action) -> Self {
        let to = match action.to {
            Target::Queue(queue) => To::Queue(queue),
            Target::Drop => To::Drop,
        };
        let counter = action.counter.map_or(0, |counter| counter.saturating_add(1));
        Self { to, counter, mark: action.value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    #[test]
    fn counters_are_the_700_series() {
        let counted = Action { counter: Some(511), ..Action::queue(3) };
        let refusal = |name: &str, action: Action| {
            action.refusal(&Profile::find(name).unwrap().actions.unwrap())
        };
        assert!(refusal("82599", counted).unwrap().contains("count in software"));
        assert_eq!(refusal("xl710", counted), None);
        assert!(refusal("xl710", Action { counter: Some(512), ..counted }).is_some());
        assert!(refusal("82599", Action::queue(127)).is_some());
        assert!(refusal("82599", Action { value: 0x1_0000, ..Action::DROP }).is_some());
        assert_eq!(refusal("82599", Action { value: 0xffff, ..Action::DROP }), None);
        assert_eq!(
            refusal("82599", Action { moderation: Moderation::LowLatency, ..Action::queue(0) }),
            None
        );
    }

    #[test]
    fn an_action_becomes_a_tables_action() {
        let action = Action { counter: Some(0), value: 7, ..Action::queue(5) };
        let table = flowyard_frame::Action::from(action);
        assert_eq!((table.to, table.counter, table.mark), (To::Queue(5), 1, 7));
    }
}
