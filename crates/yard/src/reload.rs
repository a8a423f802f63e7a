//! Reload: new tables for a running engine. A core applies them between two batches; settle keeps
//! the moves that they cause in order, so no frame waits for a reload and none is lost.

use std::fmt;
use std::sync::Arc;

use flowyard_flow::table::Wildcard;
use flowyard_flow::table::marked::Answers;
use flowyard_frame::{Edit, To};

use crate::apply::Lists;
use crate::work::ControlMessage;

/// New contents for the tables of every core.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reload {
    /// Changes to the user's exact entries.
    pub exact: Vec<Edit>,
    /// The indirection table, by index; empty changes nothing. A table of another size than the
    /// running one is repeated or cut to fit.
    pub spread: Vec<To>,
    /// With `spread`: see [`crate::blueprint::SteerPlan::keep_local`]. Cores whose frames stay with them then have
    /// their own queues in their tables.
    pub keep_local: bool,
    /// The rules, all of them; `None` changes nothing.
    pub rules: Option<Arc<Wildcard>>,
    /// The action lists, all of them; `None` changes nothing.
    pub lists: Option<Arc<Lists>>,
    /// The entries that adapters name by marks; `None` changes nothing, and is wrong where adapters do so and the
    /// exact entries or the rules change.
    pub marks: Option<Arc<Answers>>,
    /// A message for the work of every core, applied together with the tables; `None` changes nothing.
    pub work: Option<WorkChange>,
}

/// A message for the work of every core. Two are equal if they are the same message.
#[derive(Clone)]
pub struct WorkChange(pub ControlMessage);

impl fmt::Debug for WorkChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WorkChange")
    }
}

impl PartialEq for WorkChange {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for WorkChange {}
