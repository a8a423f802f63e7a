//! Flow Director with the user's rules (EP mode), RSS behind it.
//!
//! Every rule gets the verdict that this adapter's driver would give. The rules that are in decide:
//! on the 82599 through the model of its filter table, elsewhere by exact match.

use std::collections::HashMap;

use flowyard_adapter::FilterStats;
use flowyard_adapter::fdir::{self, Flex, MaskSet, Mode, Table, VlanMask};
use flowyard_adapter::i40e::I40eConfig;
use flowyard_adapter::profile::FdirKind;
use flowyard_adapter::rules::{self, Rule, RuleAction, RuleTable, Target, Verdict};
use flowyard_frame::FlowKey;

use crate::landing::Stage;
use crate::packet::Packet;
use crate::setup::{BadSetup, RuleFile, Setup, Spec};
use crate::summary::RuleSummary;

/// The rules at work.
pub(crate) struct Fdir {
    engine: Engine,
    lines: Vec<Line>,
    stats: FilterStats,
    target: Target,
}

/// Up to so many rules are looked at in pairs.
const PAIRS_MOST: usize = 2_000;

/// A rule of the file, and what became of it.
struct Line {
    rule: Rule,
    verdict: Verdict,
    packets: u64,
}

enum Engine {
    /// The 82599's own table; soft ids are places in [`Fdir::lines`].
    Ixgbe(Box<Table>),
    /// Exact match, by the number of the line in the file.
    Others { table: RuleTable, place: HashMap<u32, usize> },
}

impl Fdir {
    pub(crate) fn new(file: &RuleFile, setup: &Setup) -> Result<Self, BadSetup> {
        let target = Self::target(setup).ok_or(BadSetup::NoFdir(setup.adapter.name))?;
        let lines = judge(&file.rules, target, setup.queues);
        let placed = lines.iter().filter_map(|line| match line.verdict {
            Verdict::Accepted { loc, .. } => Some((loc, &line.rule)),
            Verdict::Merged { .. } | Verdict::Refused { .. } => None,
        });
        let mut stats = FilterStats { capacity: target.locations(), ..FilterStats::default() };
        stats.adds = placed.clone().count() as u64;
        stats.occupancy = stats.adds as u32;
        let engine = if let Target::E82599 { .. } = target {
            Engine::Ixgbe(Box::new(filter_table(&lines, setup)?))
        } else {
            let place = lines.iter().enumerate().map(|(at, line)| (line.rule.line, at)).collect();
            Engine::Others { table: RuleTable::new(target, placed), place }
        };
        Ok(Self { engine, lines, stats, target })
    }

    /// The adapter's rule engine, if it has one.
    pub(crate) fn target(setup: &Setup) -> Option<Target> {
        match setup.adapter.fdir {
            FdirKind::Ixgbe { .. } => {
                Some(Target::E82599 { pballoc: setup.pballoc, driver: rules::Driver::InTree })
            }
            FdirKind::I40e { .. } => {
                let I40eConfig { guaranteed, best_effort, .. } = I40eConfig::default();
                Some(Target::I40e { guaranteed, best_effort })
            }
            FdirKind::Ice { .. } => Some(Target::Ice),
            FdirKind::None => None,
        }
    }

    /// Why the driver would not take `rule` after those of the setup, if it would not.
    pub(crate) fn refusal(rule: &str, setup: &Setup) -> Option<String> {
        let target = Self::target(setup)?;
        let given = setup.policies.iter().find_map(|spec| match spec {
            Spec::Fdir(file) => Some(file.rules.clone()),
            _ => None,
        });
        let mut rules = given.unwrap_or_default();
        rules.extend(rules::parse("rule", rule).ok()?);
        match judge(&rules, target, setup.queues).pop()?.verdict {
            Verdict::Refused { text, fix, .. } => Some(format!("{text}; {fix}")),
            Verdict::Merged { why, .. } => Some(why),
            Verdict::Accepted { .. } => None,
        }
    }

    /// The mask set that the first rule to go in has fixed, on the 82599.
    pub(crate) fn mask(&self) -> Option<MaskSet> {
        match self.engine {
            Engine::Ixgbe(_) => first_mask(&self.lines),
            Engine::Others { .. } => None,
        }
    }

    /// What the rules say of a frame, or what RSS said.
    #[inline]
    pub(crate) fn receive(&mut self, packet: &Packet, queue: u16, stage: Stage) -> (u16, Stage) {
        let Some(at) = self.find(&packet.key) else {
            self.stats.misses += 1;
            return (queue, stage);
        };
        self.stats.hits += 1;
        let line = &mut self.lines[at];
        line.packets += 1;
        match line.rule.action {
            RuleAction::Queue(queue) => (queue as u16, Stage::Rule),
            _ => (queue, Stage::Dropped),
        }
    }

    /// The rule that matches a frame, in words.
    pub(crate) fn why(&mut self, packet: &Packet) -> Option<String> {
        let at = self.find(&packet.key)?;
        let line = &self.lines[at];
        Some(format!("rule of line {} matches: {}", line.rule.line, line.rule.text.trim()))
    }

    /// The offset from the start of the frame that the flexible word is taken from, if any rule
    /// has one.
    pub(crate) fn flex_offset(&self) -> Option<u16> {
        self.lines.iter().find_map(|line| match line.verdict {
            Verdict::Accepted { .. } => line.rule.flex().map(|flex| flex.offset),
            _ => None,
        })
    }

    /// What the user should know of the rules together: those whose order is only apparent.
    pub(crate) fn notes(&self) -> Vec<String> {
        let accepted: Vec<Rule> = self
            .lines
            .iter()
            .filter(|line| matches!(line.verdict, Verdict::Accepted { .. }))
            .map(|line| line.rule.clone())
            .collect();
        if accepted.len() > PAIRS_MOST {
            return Vec::new(); // every pair is looked at
        }
        rules::overlaps(&accepted, self.target).into_iter().map(|overlap| overlap.text).collect()
    }

    pub(crate) fn stats(&self) -> FilterStats {
        self.stats
    }

    pub(crate) fn rules(&self) -> Vec<RuleSummary> {
        self.lines.iter().map(Line::summary).collect()
    }

    /// The place in `lines` of the rule that matches.
    #[inline]
    fn find(&mut self, key: &FlowKey) -> Option<usize> {
        match &mut self.engine {
            Engine::Ixgbe(table) => table.lookup(key).map(|hit| usize::from(hit.id)),
            Engine::Others { table, place } => {
                table.lookup(key).and_then(|(_, line)| place.get(&line).copied())
            }
        }
    }
}

impl Line {
    fn summary(&self) -> RuleSummary {
        let (verdict, why) = match &self.verdict {
            Verdict::Accepted { loc, notes } => {
                let mut why = format!("at location {loc}");
                for note in notes {
                    why = format!("{why}; {note}");
                }
                ("accepted", why)
            }
            Verdict::Merged { why, .. } => ("merged", why.clone()),
            Verdict::Refused { text, fix, .. } => ("refused", format!("{text}; {fix}")),
        };
        RuleSummary {
            line: self.rule.line,
            rule: self.rule.text.trim().to_owned(),
            verdict: verdict.to_owned(),
            why,
            packets: self.packets,
        }
    }
}

/// The verdict on every rule. What this analysis cannot send anywhere is refused before the
/// driver is asked, so that it does not fix the driver's one mask set either.
fn judge(rules: &[Rule], target: Target, queues: u16) -> Vec<Line> {
    let unmodelled = |rule: &Rule| match rule.action {
        RuleAction::Queue(queue) if queue >= u32::from(queues) => Some((
            rules::Reason::Queue,
            format!("there is no queue {queue}: {queues} are open"),
            format!("name queue 0 to {}, or set --queues", queues - 1),
        )),
        RuleAction::Vf { .. } | RuleAction::Context { .. } => Some((
            rules::Reason::Action,
            "virtual functions and RSS contexts are not modelled here".to_owned(),
            "name a queue".to_owned(),
        )),
        _ => None,
    };
    let possible: Vec<Rule> =
        rules.iter().filter(|rule| unmodelled(rule).is_none()).cloned().collect();
    let mut verdicts = rules::compile(&possible, target).into_iter();
    rules
        .iter()
        .filter_map(|rule| {
            let verdict = match unmodelled(rule) {
                Some((reason, text, fix)) => Verdict::Refused { reason, text, fix },
                None => verdicts.next()?,
            };
            Some(Line { rule: rule.clone(), verdict, packets: 0 })
        })
        .collect()
}

/// The 82599's table in perfect mode with the accepted rules; the first one fixes the mask set.
fn filter_table(lines: &[Line], setup: &Setup) -> Result<Table, fdir::Error> {
    let accepted = || {
        lines
            .iter()
            .enumerate()
            .filter(|(_, line)| matches!(line.verdict, Verdict::Accepted { .. }))
    };
    let mask = first_mask(lines).unwrap_or(MaskSet::FIVE_TUPLE);
    let limits = fdir::Limits::default();
    let mut table = Table::new(Mode::Perfect, setup.pballoc, mask, limits)?;
    for (at, Line { rule, .. }) in accepted() {
        let action = match rule.action {
            RuleAction::Queue(queue) => fdir::Action::queue(queue as u16),
            _ => fdir::Action::DROP,
        };
        table.add(&rule.key, at as u16, action, false)?;
    }
    Ok(table)
}

fn first_mask(lines: &[Line]) -> Option<MaskSet> {
    let first = lines.iter().find(|line| matches!(line.verdict, Verdict::Accepted { .. }))?;
    Some(mask_set(&first.rule))
}

/// A rule's mask as the registers of the 82599 hold it.
fn mask_set(rule: &Rule) -> MaskSet {
    let mask = &rule.mask;
    let v4 = |slot: &[u8; 16]| u32::from_be_bytes([slot[0], slot[1], slot[2], slot[3]]);
    MaskSet {
        src_v4: v4(&mask.src),
        dst_v4: v4(&mask.dst),
        src_v6: 0,
        dst_v6: 0,
        src_port: mask.sport,
        dst_port: mask.dport,
        l4_type: mask.proto != 0,
        vlan: match (mask.vlan_tci & 0x0fff != 0, mask.vlan_tci & 0xe000 != 0) {
            (false, false) => VlanMask::None,
            (true, false) => VlanMask::Id,
            (false, true) => VlanMask::Priority,
            (true, true) => VlanMask::Both,
        },
        pool: false,
        flex: match rule.flex() {
            Some(flex) => Flex::At(flex.offset as u8),
            None if mask.flex != 0 => Flex::ETHERTYPE,
            None => Flex::Masked,
        },
    }
}
