//! Metrics of a switch: lookups by table, what its cache answered, and frames that controllers lost.

use std::sync::Arc;

use flowyard_openflow::change::Counts;
use flowyard_switch::{SwitchHub, Totals, TotalsAsked};
use flowyard_yard::Handle;
use flowyard_yard::ask::{Answer, Question};

use super::{PATIENCE, Page};

/// The metrics of a switch; nothing, if the yard is none.
pub(super) fn page(page: &mut Page, yard: &Handle) {
    let Some(hub) = yard.control_plane::<SwitchHub>() else { return };
    let tables: Vec<(u64, u64)> = hub
        .lookups()
        .iter()
        .map(|cores| {
            cores
                .iter()
                .map(Counts::read)
                .fold((0, 0), |sum, (looked, matched, _)| (sum.0 + looked, sum.1 + matched))
        })
        .collect();
    for (name, help, of) in [
        ("switch_lookups_total", "Frames looked up in a table", 0),
        ("switch_matches_total", "Frames that a flow of the table matched", 1),
    ] {
        page.metric(name, "counter", help);
        for (table, counted) in tables.iter().enumerate().filter(|(_, counted)| counted.0 > 0) {
            page.sample(name, &[("table", &table)], [counted.0, counted.1][of]);
        }
    }
    let cores: Vec<_> = yard.ask(&Question::Work(Arc::new(TotalsAsked)), PATIENCE);
    for (name, help, of) in [
        ("switch_frames_total", "Frames that the switch worked on", 0),
        ("switch_cached_total", "Of these, frames whose flows the cache knew", 1),
        ("switch_mapped_total", "Of those, frames that the port mapping answered", 2),
        ("switch_front_total", "Of those, frames that it answered before they entered a queue", 3),
    ] {
        page.metric(name, "counter", help);
        for (core, answer) in cores.iter().enumerate() {
            let Some(Answer::Work(Some(answer))) = answer else { continue };
            let Some(totals) = answer.downcast_ref::<Totals>() else { continue };
            let value = [totals.frames, totals.cached, totals.mapped, totals.front][of];
            page.sample(name, &[("core", &core)], value);
        }
    }
    page.metric("switch_punts_lost_total", "counter", "Frames for controllers that found no room");
    page.sample("switch_punts_lost_total", &[], hub.punts_lost());
}
