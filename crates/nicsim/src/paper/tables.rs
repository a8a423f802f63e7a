//! Tables 1 to 6.

use super::{Exhibit, Study};
use crate::config::Config;
use crate::engine::{Engine, Parts};
use crate::firmware::Builtin;
use crate::profile::{Category, Profile, Share};
use crate::reference::Reference;
use crate::run::{Outcome, RunError, image};
use crate::study::ilp;

/// The paper's tables imply 735.7 thousand frame pairs a second where it says line rate, 812.7:
/// what a profile of all cycles at line rate can come to is this share of them (docs/nic.md).
pub const BUDGET: f64 = 0.905;

fn profile(outcome: &Outcome) -> Profile {
    Profile::of(&outcome.image, &outcome.window)
}

/// Frames of the category's direction in the measured time.
fn frames(outcome: &Outcome, category: Category) -> f64 {
    let d = &outcome.window.devices;
    let books = if category.is_send() { &d.sent } else { &d.received };
    (books.delivered as f64).max(1.0)
}

/// Categories with the paper's numbers: instructions ideal, software-only, RMW; accesses ideal,
/// software-only, RMW; cycles software-only, RMW (Tables 1, 5 and 6).
type Printed = (Category, [Option<f64>; 8]);

fn printed() -> [Printed; 8] {
    let some = |v: [f64; 8]| v.map(|n| if n < 0.0 { None } else { Some(n) });
    let no = -1.0;
    [
        (Category::FetchSendBd, some([24.5, 39.1, 38.5, 10.6, 14.4, 14.4, 62.4, 56.3])),
        (Category::SendFrame, some([256.9, 317.3, 311.5, 90.0, 102.5, 92.4, 427.4, 407.9])),
        (Category::SendOrdering, some([no, 292.1, 141.7, no, 94.0, 32.9, 389.5, 159.8])),
        (Category::SendLocking, some([no, 2.6, 10.6, no, 0.9, 2.7, 6.7, 19.4])),
        (Category::FetchReceiveBd, some([12.1, 12.4, 12.2, 4.1, 5.3, 4.2, 17.5, 16.1])),
        (Category::ReceiveFrame, some([241.0, 292.1, 335.5, 80.8, 135.4, 126.2, 401.4, 438.8])),
        (Category::ReceiveOrdering, some([no, 202.5, 140.7, no, 66.2, 42.9, 281.9, 192.9])),
        (Category::ReceiveLocking, some([no, 20.5, 34.4, no, 5.1, 8.6, 44.2, 62.5])),
    ]
}

/// Words of accesses to the scratchpad, all cores, as Gb/s.
fn gbps(words: f64, seconds: f64) -> f64 {
    words * 32.0 / seconds / 1e9
}

impl Study<'_> {
    pub(super) fn table1(&self) -> Result<Exhibit, RunError> {
        let outcome = &self.run(&[self.job(Builtin::Ideal)])?[0];
        let profile = profile(outcome);
        let mut exhibit = Exhibit::new("Table 1", "ideal cost of a frame", "");
        for (category, paper) in printed() {
            let share = profile.share(category);
            let per_frame = frames(outcome, category);
            if paper[0].is_some() {
                let name = category.name();
                exhibit.row(
                    format!("{name}: instructions"),
                    paper[0],
                    share.instructions as f64 / per_frame,
                );
                exhibit.row(
                    format!("{name}: accesses"),
                    paper[3],
                    share.accesses as f64 / per_frame,
                );
            }
        }
        exhibit.note("firmware 'ideal': one core of 700 MHz (the slowest in steps of 50 that carries line rate), no locks, no ordering; maximum-sized frames both ways");
        Ok(exhibit)
    }

    /// The trace of the ideal firmware for the ILP study.
    ///
    /// # Errors
    /// When the run fails.
    pub fn ilp_trace(&self) -> Result<ilp::Trace, RunError> {
        let mut job = self.job(Builtin::Ideal);
        job.config.run.warmup_us = 100;
        let image =
            image(&job.config, job.firmware.elf()).map_err(crate::engine::BuildError::from)?;
        let parts = Parts { config: job.config, image: image.clone(), ..Parts::default() };
        let mut engine = Reference::build(parts)?;
        engine.run_to(80_000)?;
        engine.issued = Some(vec![Vec::new(); 16]);
        engine.run_to(400_000)?;
        let pcs = engine.issued.take().unwrap_or_default();
        Ok(ilp::Trace::of(&image, pcs.first().map_or(&[], Vec::as_slice)))
    }

    pub(super) fn table2(&self) -> Result<Exhibit, RunError> {
        let trace = self.ilp_trace()?;
        let free = ilp::table(&trace, false);
        let strict = ilp::table(&trace, true);
        let paper = [
            ("in order, 1", [1.00, 1.00, 0.87, 0.87, 0.87]),
            ("in order, 2", [1.45, 1.38, 1.19, 1.19, 1.13]),
            ("in order, 4", [1.73, 1.45, 1.34, 1.33, 1.17]),
            ("out of order, 1", [1.00, 1.00, 1.00, 1.00, 0.88]),
            ("out of order, 2", [1.98, 1.49, 1.96, 1.74, 1.21]),
            ("out of order, 4", [2.97, 1.69, 2.65, 2.00, 1.29]),
        ];
        let columns =
            ["perfect, PBP", "perfect, no BP", "stalls, PBP", "stalls, PBP1", "stalls, no BP"];
        let mut exhibit = Exhibit::new("Table 2", "limits of instructions per cycle", "IPC");
        for (row, (name, numbers)) in paper.into_iter().enumerate() {
            for (column, number) in numbers.into_iter().enumerate() {
                exhibit.row(format!("{name}: {}", columns[column]), number, free[row][column]);
            }
        }
        for (row, (name, _)) in paper.into_iter().enumerate() {
            for (column, title) in columns.iter().enumerate() {
                let name = format!("memory in program order, {name}: {title}");
                exhibit.row(name, None, strict[row][column]);
            }
        }
        exhibit
            .note(format!("{} instructions of firmware 'ideal', dispatch left out", trace.len()));
        exhibit.note("the paper does not say how memory accesses may be reordered: above freely, below not at all");
        Ok(exhibit)
    }

    pub(super) fn table3(&self) -> Result<Exhibit, RunError> {
        let outcome = &self.run(&[self.job(Builtin::SwOnly)])?[0];
        let total = outcome.window.total();
        let cycles = total.cycles() as f64;
        let mut exhibit = Exhibit::new("Table 3", "where the cycles of a core go", "IPC");
        for (name, paper, ours) in [
            ("Execution", 0.72, total.execute),
            ("Instruction miss stalls", 0.01, total.fetch),
            ("Load stalls", 0.12, total.load),
            ("Scratchpad conflict stalls", 0.05, total.conflict),
            ("Pipeline stalls", 0.10, total.pipeline),
        ] {
            exhibit.row(name, paper, ours as f64 / cycles);
        }
        exhibit.row("Total", 1.0, total.cycles() as f64 / cycles);
        let per_second = |count: u64| count as f64 / outcome.seconds() / 1e6;
        exhibit.row("scratchpad loads, M/s", 142.8, per_second(total.loads));
        exhibit.row("scratchpad stores, M/s", 107.8, per_second(total.stores));
        exhibit.note("firmware 'swonly' on 6 cores of 200 MHz: 0.72 is Table 5 over Table 6 of that configuration");
        Ok(exhibit)
    }

    pub(super) fn table4(&self) -> Result<Exhibit, RunError> {
        let outcome = &self.run(&[self.job(Builtin::SwOnly)])?[0];
        let (seconds, config) = (outcome.seconds(), &outcome.config);
        let total = outcome.window.total();
        let d = &outcome.window.devices;
        let line = f64::from(config.chip.icache_line_bytes);
        let assists: u64 = d.assist_accesses.iter().sum();
        let words = (total.loads + total.stores + assists) as f64;
        let hz = config.chip.mhz.hz();
        let mut exhibit = Exhibit::new("Table 4", "bandwidth", "Gb/s");
        let fills = total.fills as f64 * line * 8.0 / seconds / 1e9;
        exhibit.row("instruction memory: peak", 25.6, hz * 128.0 / 1e9);
        exhibit.row("instruction memory: consumed", 0.9, fills);
        let peak = hz * 32.0 * f64::from(config.chip.banks) / 1e9;
        exhibit.row("scratchpads: peak", 25.6, peak);
        exhibit.row("scratchpads: consumed", 9.4, gbps(words, seconds));
        let bytes = f64::from(config.sdram.bytes_per_cycle);
        exhibit.row("frame memory: peak", 64.0, config.sdram.mhz.hz() * bytes * 8.0 / 1e9);
        let moved = d.sdram.bytes_moved as f64 * 8.0 / seconds / 1e9;
        exhibit.row("frame memory: consumed", 39.7, moved);
        exhibit.row(
            "core accesses, M/s",
            250.6,
            (total.loads + total.stores) as f64 / seconds / 1e6,
        );
        exhibit.row("assist accesses, M/s", 41.7, assists as f64 / seconds / 1e6);
        exhibit.note(
            "all code fits the 8 KB cache: no misses once warm; the paper's was a little larger",
        );
        Ok(exhibit)
    }

    /// The two configurations of Tables 5 and 6, and what an idle pass of the loop costs in each.
    fn both(&self) -> Result<[(Outcome, Profile, Share); 2], RunError> {
        let jobs = [self.job(Builtin::SwOnly), self.job(Builtin::Rmw)];
        let mut idle = jobs.clone();
        for job in &mut idle {
            (job.config.load.send, job.config.load.receive) = (false, false);
            job.config.run.measure_us = 100;
        }
        let all = [jobs, idle].concat();
        let mut outcomes = self.run(&all)?;
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

    pub(super) fn table5(&self) -> Result<Exhibit, RunError> {
        let both = self.both()?;
        let mut exhibit = Exhibit::new("Table 5", "instructions and accesses of a frame", "");
        for (what, offset) in [("instructions", 1), ("accesses", 4)] {
            for (n, name) in ["software-only", "RMW"].into_iter().enumerate() {
                let (outcome, profile, _) = &both[n];
                for (category, paper) in printed() {
                    let share = profile.share(category);
                    let count = if offset == 1 { share.instructions } else { share.accesses };
                    exhibit.row(
                        format!("{name}: {}: {what}", category.name()),
                        paper[offset + n],
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
            exhibit.row(
                format!("{name}: of dispatch and ordering, idle polling"),
                None,
                polls as f64 / pairs,
            );
            exhibit.row(
                format!("{name}: of dispatch and ordering, productive"),
                None,
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
        exhibit.row("effect of RMW on send ordering, instructions, %", -51.5, effect(send, false));
        exhibit.row(
            "effect of RMW on receive ordering, instructions, %",
            -30.8,
            effect(receive, false),
        );
        exhibit.row("effect of RMW on send ordering, accesses, %", -65.0, effect(send, true));
        exhibit.row("effect of RMW on receive ordering, accesses, %", -35.2, effect(receive, true));
        exhibit.note("the paper's numbers times its line rate need 110 % of its machine: a profile of all cycles at line rate is 0.905 of them");
        exhibit.note("idle polling is idle passes of the loop times what one costs without traffic; cores always poll");
        Ok(exhibit)
    }

    pub(super) fn table6(&self) -> Result<Exhibit, RunError> {
        let both = self.both()?;
        let mut exhibit = Exhibit::new("Table 6", "cycles of a frame", "cycles");
        let totals = [("Send", [886.0, 643.4]), ("Receive", [745.0, 710.3])];
        for (n, name) in ["software-only", "RMW"].into_iter().enumerate() {
            let (outcome, profile, idle) = &both[n];
            for (way, paper_totals) in totals {
                let mut sum = 0.0;
                for (category, paper) in printed() {
                    if category.is_send() == (way == "Send") {
                        let cycles =
                            profile.share(category).cycles as f64 / frames(outcome, category);
                        sum += cycles;
                        let name = format!("{name}: {}", category.name());
                        exhibit.row(name, paper[6 + n], cycles);
                    }
                }
                exhibit.row(format!("{name}: {way} total"), paper_totals[n], sum);
            }
            let pairs = frames(outcome, Category::SendFrame);
            let cycles = outcome.window.total().cycles() as f64 / pairs;
            exhibit.row(format!("{name}: all cycles of a pair"), None, cycles);
            let polls = (profile.idle_passes * idle.cycles) as f64 / pairs;
            exhibit.row(format!("{name}: of these, idle polling"), None, polls);
        }
        exhibit.note("6 cores of 200 MHz (software-only) and 166.67 MHz (RMW), maximum-sized frames both ways");
        exhibit.note("the paper's totals are 1631 and 1354 cycles a pair; 6 x 200 MHz over 812,744 pairs a second has 1476, 6 x 166.67 has 1230");
        Ok(exhibit)
    }
}

/// What a configuration can spend on a pair of frames at line rate, in cycles.
pub fn cycles_per_pair(config: &Config) -> f64 {
    let frame = config.load.udp_bytes.first().copied().unwrap_or(1472) + 46;
    let wire = f64::from(frame + config.mac.preamble_bytes + config.mac.gap_bytes) * 8.0;
    let pairs = config.mac.link_gbps as f64 * 1e9 / wire;
    f64::from(config.chip.cores) * config.chip.mhz.hz() / pairs
}
