//! Metrics of a switch: lookups by table, frames by the stage that handled them, lost packet-ins.

use flowyard_openflow::change::Counts;
use flowyard_switch::{SwitchHub, Totals};
use flowyard_yard::ask::Answer;

use super::text::Page;
use crate::openflow::Connections;

/// A counter of the switch on each core.
struct CoreMetric {
    name: &'static str,
    help: &'static str,
    value: fn(&Totals) -> u64,
}

const CORE: [CoreMetric; 6] = [
    CoreMetric {
        name: "switch_frames_total",
        help: "Counts the frames that the switch processed on the core.",
        value: |totals| totals.frames,
    },
    CoreMetric {
        name: "switch_cached_frames_total",
        help: "Counts the frames whose flow entries were found in the flow cache, a part of switch_frames_total.",
        value: |totals| totals.cached,
    },
    CoreMetric {
        name: "switch_mapped_frames_total",
        help: "Counts the frames that were sent by the port mapping, a part of switch_cached_frames_total.",
        value: |totals| totals.mapped,
    },
    CoreMetric {
        name: "switch_mapped_before_queue_frames_total",
        help: "Counts the frames that were sent by the port mapping without entering a queue, a part of \
               switch_mapped_frames_total.",
        value: |totals| totals.front,
    },
    CoreMetric {
        name: "switch_marked_frames_total",
        help: "Counts the frames whose entry in the port mapping an adapter named by a mark, a part of \
               switch_mapped_before_queue_frames_total.",
        value: |totals| totals.marked,
    },
    CoreMetric {
        name: "switch_over_budget_frames_total",
        help: "Counts the frames, those of controllers included, that were dropped because they met more buckets of \
               groups, or became more frames, than one frame may.",
        value: |totals| totals.over,
    },
];

/// Lookups in a flow table, over all cores.
#[derive(Clone, Copy)]
struct Lookups {
    looked_up: u64,
    matched: u64,
}

/// Writes the metrics of a switch. `cores` has the totals of each core.
pub(super) fn page(
    page: &mut Page,
    hub: &SwitchHub,
    cores: &[Option<Answer>],
    agent: Option<&Connections>,
) {
    let of = |cores: &[Counts]| {
        cores.iter().map(Counts::read).fold(
            Lookups { looked_up: 0, matched: 0 },
            |sum, (looked_up, matched, _)| Lookups {
                looked_up: sum.looked_up + looked_up,
                matched: sum.matched + matched,
            },
        )
    };
    let tables: Vec<Lookups> = hub.lookups().iter().map(|cores| of(cores)).collect();
    let used = || tables.iter().enumerate().filter(|(_, lookups)| lookups.looked_up > 0);
    let name = "switch_lookups_total";
    page.metric(name, "counter", "Counts the frames that were looked up in the flow table.");
    for (table, lookups) in used() {
        page.sample(name, &[("table", &table)], lookups.looked_up);
    }
    let name = "switch_matches_total";
    page.metric(name, "counter", "Counts the frames that matched an entry of the flow table.");
    for (table, lookups) in used() {
        page.sample(name, &[("table", &table)], lookups.matched);
    }
    for CoreMetric { name, help, value } in CORE {
        page.metric(name, "counter", help);
        for (core, answer) in cores.iter().enumerate() {
            let Some(Answer::Work(Some(answer))) = answer else { continue };
            let Some(totals) = answer.downcast_ref::<Totals>() else { continue };
            page.sample(name, &[("core", &core)], value(totals));
        }
    }
    let name = "switch_packet_ins_lost_total";
    let help = "Counts the frames for a controller that were lost because the queue to the OpenFlow agent was full.";
    page.metric(name, "counter", help);
    page.sample(name, &[], hub.punts_lost());
    let Some(agent) = agent else { return };
    let name = "switch_agent_responds";
    let help = "Shows whether the OpenFlow agent responds: 1 or 0. While it does not, its connections are closed.";
    page.metric(name, "gauge", help);
    page.sample(name, &[], u64::from(agent.responds()));
    let name = "switch_agent_stuck_total";
    let help = "Counts how many times the OpenFlow agent did not respond for some seconds.";
    page.metric(name, "counter", help);
    page.sample(name, &[], agent.times_stuck());
}
