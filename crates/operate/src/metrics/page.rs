//! All metrics as one page.

use std::sync::Arc;
use std::time::Duration;

use flowyard_switch::{SwitchHub, TotalsAsked};
use flowyard_yard::Handle;
use flowyard_yard::ask::Question;

use super::text::Page;
use super::{cluster, engine, ipsec, lb, switch, sync};
use crate::openflow::Connections;

/// The longest wait for the cores to answer, so that a scrape does not hang.
const PATIENCE: Duration = Duration::from_millis(200);

/// All metrics in the text format.
#[must_use]
pub fn page(yard: &Handle) -> String {
    let mut page = Page(String::with_capacity(16 << 10));
    let tables = yard.ask(&Question::Tables { entries: 0 }, PATIENCE);
    engine::page(&mut page, yard, &tables);
    lb::page(&mut page, yard);
    cluster::page(&mut page, yard);
    sync::page(&mut page, yard);
    ipsec::page(&mut page, yard);
    if let Some(hub) = yard.control_plane::<SwitchHub>() {
        let totals = yard.ask(&Question::Work(Arc::new(TotalsAsked)), PATIENCE);
        let agent = yard.control_plane::<Connections>();
        switch::page(&mut page, &hub, &totals, agent.as_deref());
    }
    page.0
}
