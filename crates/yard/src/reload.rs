//! Reload: new tables for a running yard. Applied between batches; settle keeps the moves it
//! causes in order, so no frame waits for it and none is lost.

use flowyard_frame::{Edit, To};

/// New contents for the tables of every core.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reload {
    /// Changes to the user's exact entries.
    pub exact: Vec<Edit>,
    /// The indirection table, by index; empty changes nothing. One of another size than the
    /// running one is filled in as far as it goes, and repeated.
    pub spread: Vec<To>,
}
