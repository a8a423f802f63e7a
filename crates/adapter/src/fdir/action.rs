//! The actions of a filter, as Intel's Flow Director paper lists them.

use flowyard_frame::To;
use serde::Serialize;

use crate::profile::{FdirActions, Support};

/// The queue whose frames are dropped, as set by both Linux drivers (FDIRCTRL.DROP_Q). A filter
/// cannot steer to it.
pub const DROP_QUEUE: u16 = 127;

/// Where a matching frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Target {
    /// To a receive queue.
    Queue(u16),
    /// The frame is dropped.
    Drop,
}

/// The interrupt class of a matching frame ("tuning interrupt moderation for either low latency
/// or high bandwidth").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub enum Moderation {
    /// The class of the queue.
    #[default]
    Default,
    /// Interrupt immediately; the INT action of the 500 series.
    LowLatency,
    /// Collect more frames before an interrupt.
    HighBandwidth,
}

impl Moderation {
    /// The classes with their names in rules.
    pub const ALL: [(&'static str, Self); 3] = [
        ("default", Self::Default),
        ("low-latency", Self::LowLatency),
        ("high-bandwidth", Self::HighBandwidth),
    ];

    /// The name in rules.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, class)| *class == self).map_or("default", |(name, _)| name)
    }
}

/// Everything that one filter does with a matching frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Action {
    /// Steer to a queue, or drop.
    pub to: Target,
    /// The hardware counter to increment, if any (the XL710 of the paper has 512).
    pub counter: Option<u16>,
    /// The interrupt class.
    pub moderation: Moderation,
    /// The software-defined value that is written to the receive descriptor; 0 means none.
    pub value: u32,
}

impl Action {
    /// Steers to `queue` and does nothing else.
    #[must_use]
    pub const fn queue(queue: u16) -> Self {
        Self { to: Target::Queue(queue), counter: None, moderation: Moderation::Default, value: 0 }
    }

    /// Drops the frame.
    pub const DROP: Self = Self { to: Target::Drop, ..Self::queue(0) };

    /// The reason for which an adapter with the capabilities `can` refuses this action; `None` when
    /// the adapter accepts it.
    #[must_use]
    pub fn refusal(&self, can: &FdirActions) -> Option<&'static str> {
        match self.to {
            Target::Queue(queue) if can.max_queue.is_some_and(|max| queue > max) => {
                return Some("a filter of this adapter cannot address that queue");
            }
            Target::Drop if can.drop != Support::Yes => {
                return Some(
                    "filters of this adapter cannot drop; steer to an unused queue instead",
                );
            }
            _ => {}
        }
        if self.counter.is_some_and(|counter| counter >= can.counters) {
            return Some("filters of this adapter have no such counter; count in software");
        }
        let class = match self.moderation {
            Moderation::Default => Support::Yes,
            Moderation::LowLatency => can.low_latency,
            Moderation::HighBandwidth => can.high_bandwidth,
        };
        if class != Support::Yes {
            return Some("no driver of this adapter sets the interrupt class of a filter");
        }
        let too_wide = u64::from(self.value) >> can.value_bits != 0;
        too_wide.then_some("the value has more bits than this adapter can report")
    }
}

impl From<Action> for flowyard_frame::Action {
    /// Counter n becomes counter n + 1, because 0 means "no counter" in [`flowyard_frame::Action`].
    fn from(action: Action) -> Self {
        let to = match action.to {
            Target::Queue(queue) => To::Queue(queue),
            Target::Drop => To::DROP,
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
    fn only_the_700_series_has_counters() {
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
    fn an_action_converts_to_the_action_of_a_table() {
        let action = Action { counter: Some(0), value: 7, ..Action::queue(5) };
        let table = flowyard_frame::Action::from(action);
        assert_eq!((table.to, table.counter, table.mark), (To::Queue(5), 1, 7));
    }
}
