//! Tables 1 to 6. The rows' names are those of `figures/nic-table-*.toml`.

use flowyard_report::exhibit::{Kind, Made};

use super::study::Study;
use crate::engine::{BuildError, Engine, Parts};
use crate::firmware::Builtin;
use crate::profile::{Category, Profile, Share};
use crate::reference::Reference;
use crate::run::{Outcome, RunError, image};
use crate::study::ilp::{self, Order};
use crate::time::Freq;

fn profile(outcome: &Outcome) -> Profile {
    Profile::of(&outcome.image, &outcome.window)
}

/// Frames of the category's direction in the measured time.
fn frames(outcome: &Outcome, category: Category) -> f64 {
    let d = &outcome.window.devices;
    let counters = if category.is_send() { &d.sent } else { &d.received };
    (counters.delivered as f64).max(1.0)
}

/// The categories of Tables 5 and 6, in the order of the paper.
const CATEGORIES: [Category; 8] = [
    Category::FetchSendBd,
    Category::SendFrame,
    Category::SendOrdering,
    Category::SendLocking,
    Category::FetchReceiveBd,
    Category::ReceiveFrame,
    Category::ReceiveOrdering,
    Category::ReceiveLocking,
];

/// The categories of Table 1: the ideal firmware has no ordering and no locks.
const IDEAL: [Category; 4] =
    [Category::FetchSendBd, Category::SendFrame, Category::FetchReceiveBd, Category::ReceiveFrame];

/// The rows and columns of Table 2, in the order of [`ilp::table`].
const ROWS: [&str; 6] = [
    "in order, 1",
    "in order, 2",
    "in order, 4",
    "out of order, 1",
    "out of order, 2",
    "out of order, 4",
];
const COLUMNS: [&str; 5] =
    ["perfect, PBP", "perfect, no BP", "stalls, PBP", "stalls, PBP1", "stalls, no BP"];

/// The bandwidth of `words` scratchpad accesses in Gb/s.
fn gbps(words: f64, seconds: f64) -> f64 {
    words * 32.0 / seconds / 1e9
}

pub(super) fn table1(study: &Study<'_>) -> Result<Made, RunError> {
    let outcome = &study.run(&[study.job(Builtin::Ideal)])?[0];
    let profile = profile(outcome);
    let mut made = Made::of(Kind::Predicted);
    for category in IDEAL {
        let (name, share) = (category.name(), profile.share(category));
        let per_frame = frames(outcome, category);
        made.push(format!("{name}: instructions"), share.instructions as f64 / per_frame);
        made.push(format!("{name}: accesses"), share.accesses as f64 / per_frame);
    }
    Ok(made)
}

/// The trace of the ideal firmware for the ILP study.
fn ilp_trace(study: &Study<'_>) -> Result<ilp::Trace, RunError> {
    let mut job = study.job(Builtin::Ideal);
    job.config.run.warmup_us = 100;
    let image = image(&job.config, job.firmware.elf()).map_err(BuildError::from)?;
    let parts = Parts { config: job.config, image: image.clone(), ..Parts::default() };
    let mut engine = Reference::build(parts)?;
    engine.run_to(80_000)?;
    engine.issued = Some(vec![Vec::new(); 16]);
    engine.run_to(400_000)?;
    let pcs = engine.issued.take().unwrap_or_default();
    Ok(ilp::Trace::of(&image, pcs.first().map_or(&[], Vec::as_slice)))
}

pub(super) fn table2(study: &Study<'_>) -> Result<Made, RunError> {
    let trace = ilp_trace(study)?;
    let mut made = Made::of(Kind::Predicted);
    let orders = [
        ("", Order::AfterStores),
        ("loads pass stores, ", Order::Free),
        ("memory in program order, ", Order::Program),
    ];
    for (prefix, order) in orders {
        let cells = ilp::table(&trace, order);
        for (row, cells) in ROWS.into_iter().zip(cells) {
            for (column, ipc) in COLUMNS.into_iter().zip(cells) {
                made.push(format!("{prefix}{row}: {column}"), ipc);
            }
        }
    }
    made.note(format!(
        "{} instructions of firmware 'ideal', without its dispatch loop.",
        trace.len()
    ));
    Ok(made)
}

pub(super) fn table3(study: &Study<'_>) -> Result<Made, RunError> {
    let outcome = &study.run(&[study.job(Builtin::SwOnly)])?[0];
    let total = outcome.window.total();
    let cycles = total.cycles() as f64;
    let mut made = Made::of(Kind::Predicted);
    for (name, ours) in [
        ("Execution", total.execute),
        ("Instruction miss stalls", total.fetch),
        ("Load stalls", total.load),
        ("Scratchpad conflict stalls", total.conflict),
        ("Pipeline stalls", total.pipeline),
    ] {
        made.push(name, ours as f64 / cycles);
    }
    made.push_as(Kind::Arithmetic, "Total", total.cycles() as f64 / cycles);
    let per_second = |count: u64| count as f64 / outcome.seconds() / 1e6;
    made.push("scratchpad loads, M/s", per_second(total.loads));
    made.push("scratchpad stores, M/s", per_second(total.stores));
    Ok(made)
}

pub(super) fn table4(study: &Study<'_>) -> Result<Made, RunError> {
    let outcome = &study.run(&[study.job(Builtin::SwOnly)])?[0];
    let (seconds, config) = (outcome.seconds(), &outcome.config);
    let total = outcome.window.total();
    let d = &outcome.window.devices;
    let line = f64::from(config.chip.icache_line_bytes);
    let assists: u64 = d.assist_accesses.iter().sum();
    let words = (total.loads + total.stores + assists) as f64;
    let hz = config.chip.mhz.hz();
    let mut made = Made::of(Kind::Predicted);
    let fills = total.fills as f64 * line * 8.0 / seconds / 1e9;
    made.push_as(Kind::Arithmetic, "instruction memory: peak", hz * 128.0 / 1e9);
    made.push("instruction memory: consumed", fills);
    let peak = hz * 32.0 * f64::from(config.chip.banks) / 1e9;
    made.push_as(Kind::Arithmetic, "scratchpads: peak", peak);
    made.push("scratchpads: consumed", gbps(words, seconds));
    let bytes = f64::from(config.sdram.bytes_per_cycle);
    made.push_as(Kind::Arithmetic, "frame memory: peak", config.sdram.mhz.hz() * bytes * 8.0 / 1e9);
    let moved = d.sdram.bytes_moved as f64 * 8.0 / seconds / 1e9;
    made.push("frame memory: consumed", moved);
    made.push("core accesses, M/s", (total.loads + total.stores) as f64 / seconds / 1e6);
    made.push("assist accesses, M/s", assists as f64 / seconds / 1e6);
    Ok(made)
}

/// The two configurations of Tables 5 and 6, and what an idle pass of the loop costs in each.
fn both(study: &Study<'_>) -> Result<[(Outcome, Profile, Share); 2], RunError> {
    let jobs = [study.job(Builtin::SwOnly), study.job(Builtin::Rmw)];
    let mut idle = jobs.clone();
    for job in &mut idle {
        (job.config.load.send, job.config.load.receive) = (false, false);
        job.config.run.measure_us = 100;
    }
    let all = [jobs, idle].concat();
    let mut outcomes = study.run(&all)?;
    let idle_costs: Vec<Share> = outcomes
        .split_off(2)
        .iter()
        .map(|outcome| {
            let profile = profile(outcome);
            let passes = profile.passes.max(1);
            let total = profile.total();
            Share {
                instructions: total.instructions / passes,
                accesses: total.accesses / passes,
                cycles: total.cycles / passes,
            }
        })
        .collect();
    let rmw = outcomes.remove(1);
    let sw = outcomes.remove(0);
    let (sw_profile, rmw_profile) = (profile(&sw), profile(&rmw));
    Ok([(sw, sw_profile, idle_costs[0]), (rmw, rmw_profile, idle_costs[1])])
}

pub(super) fn table5(study: &Study<'_>) -> Result<Made, RunError> {
    let both = both(study)?;
    let mut made = Made::of(Kind::Predicted);
    for (what, is_access) in [("instructions", false), ("accesses", true)] {
        for (n, name) in ["software-only", "RMW"].into_iter().enumerate() {
            let (outcome, profile, _) = &both[n];
            for category in CATEGORIES {
                let share = profile.share(category);
                let count = if is_access { share.accesses } else { share.instructions };
                made.push(
                    format!("{name}: {}: {what}", category.name()),
                    count as f64 / frames(outcome, category),
                );
            }
        }
    }
    for (n, name) in ["software-only", "RMW"].into_iter().enumerate() {
        let (outcome, profile, idle) = &both[n];
        let pairs = frames(outcome, Category::SendFrame);
        let polls = profile.idle_passes * idle.instructions;
        let dispatch = profile.share(Category::SendOrdering).instructions
            + profile.share(Category::ReceiveOrdering).instructions
            + profile.share(Category::Other).instructions;
        made.push(format!("{name}: of dispatch and ordering, idle polling"), polls as f64 / pairs);
        made.push(
            format!("{name}: of dispatch and ordering, productive"),
            dispatch.saturating_sub(polls) as f64 / pairs,
        );
    }
    let effect = |category: Category, access: bool| {
        let per = |n: usize| {
            let share = both[n].1.share(category);
            let count = if access { share.accesses } else { share.instructions };
            count as f64 / frames(&both[n].0, category)
        };
        100.0 * (per(1) / per(0) - 1.0)
    };
    let (send, receive) = (Category::SendOrdering, Category::ReceiveOrdering);
    made.push("effect of RMW on send ordering, instructions, %", effect(send, false));
    made.push("effect of RMW on receive ordering, instructions, %", effect(receive, false));
    made.push("effect of RMW on send ordering, accesses, %", effect(send, true));
    made.push("effect of RMW on receive ordering, accesses, %", effect(receive, true));
    Ok(made)
}

pub(super) fn table6(study: &Study<'_>) -> Result<Made, RunError> {
    let both = both(study)?;
    let saturated = study.run(&[Builtin::SwOnly, Builtin::Rmw].map(|firmware| {
        let mut job = study.job(firmware);
        // Twice the line rate, so that no core waits for frames.
        job.config.mac.link_gbps *= 2;
        job.config.mac.mhz = Freq::new(312_500_000, 1).unwrap_or(job.config.mac.mhz);
        job.config.sdram.mhz = Freq::mhz(1000);
        job
    }))?;
    let mut made = Made::of(Kind::Predicted);
    for (n, name) in ["software-only", "RMW"].into_iter().enumerate() {
        let (outcome, profile, idle) = &both[n];
        for way in ["Send", "Receive"] {
            let mut sum = 0.0;
            for category in CATEGORIES {
                if category.is_send() == (way == "Send") {
                    let cycles = profile.share(category).cycles as f64 / frames(outcome, category);
                    sum += cycles;
                    let name = format!("{name}: {}", category.name());
                    made.push(name, cycles);
                }
            }
            made.push(format!("{name}: {way} total"), sum);
        }
        let pairs = frames(outcome, Category::SendFrame);
        let cycles = outcome.window.total().cycles() as f64 / pairs;
        made.push(format!("{name}: all cycles of a pair"), cycles);
        let polls = (profile.idle_passes * idle.cycles) as f64 / pairs;
        made.push(format!("{name}: of these, idle polling"), polls);
        let d = &saturated[n].window.devices;
        let pairs = (d.sent.delivered + d.received.delivered) as f64 / 2.0;
        let cycles = saturated[n].window.total().cycles() as f64 / pairs.max(1.0);
        // Without idle time, the paper's totals would be this number.
        let paper = [886.0 + 745.0, 643.4 + 710.3][n];
        made.push_beside(
            format!("{name}: all cycles of a pair, at more than line rate"),
            paper,
            cycles,
        );
    }
    Ok(made)
}
