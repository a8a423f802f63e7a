//! Flow Director with the rules of the user (EP mode), then RSS.
//!
//! Every rule gets the verdict of the adapter's driver. The accepted rules are applied: on the 82599
//! by the model of its filter table, on other adapters by exact matching.

use std::collections::{BTreeMap, HashMap};

use flowyard_adapter::FilterStats;
use flowyard_adapter::fdir::{self, Flex, MaskSet, Mode, Table, VlanMask};
use flowyard_adapter::i40e::I40eConfig;
use flowyard_adapter::profile::FdirKind;
use flowyard_adapter::rules::{self, Extras, Rule, RuleAction, RuleTable, Target, Verdict};
use flowyard_adapter::tenants::Place;
use flowyard_frame::FlowKey;

use crate::landing::{Stage, Steered};
use crate::packet::Packet;
use crate::setup::{BadSetup, RuleFile, Setup, Spec};
use crate::summary::RuleSummary;

/// The rules with their verdicts and counters.
pub(crate) struct Fdir {
    engine: Engine,
    lines: Vec<Line>,
    stats: FilterStats,
    target: Target,
    /// Whether the rule of the last frame asks for a low-latency interrupt.
    is_urgent: bool,
}

/// Largest number of rules that are checked for overlaps, which compares every pair.
const OVERLAP_RULES_MOST: usize = 2_000;

/// A rule of the file with its verdict.
struct Line {
    rule: Rule,
    verdict: Verdict,
    packets: u64,
}

enum Engine {
    /// The filter table of the 82599; the soft ids are indexes into [`Fdir::lines`].
    Ixgbe(Box<Table>),
    /// Exact matching. `index` maps a line number of the file to an index into [`Fdir::lines`].
    Others { table: RuleTable, index: HashMap<u32, usize> },
}

impl Fdir {
    pub(crate) fn new(file: &RuleFile, setup: &Setup) -> Result<Self, BadSetup> {
        let target = Self::target(setup).ok_or(BadSetup::NoFdir(setup.adapter.name))?;
        let lines = judge(&file.rules, target, setup);
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
            let index = lines.iter().enumerate().map(|(at, line)| (line.rule.line, at)).collect();
            Engine::Others { table: RuleTable::new(target, placed), index }
        };
        Ok(Self { engine, lines, stats, target, is_urgent: false })
    }

    /// The rule engine of the adapter, if it has one.
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
            FdirKind::None | FdirKind::NotModelled { .. } => None,
        }
    }

    /// The reason for which the driver refuses `rule` after the rules of the setup, if it does.
    pub(crate) fn refusal(rule: &str, setup: &Setup) -> Option<String> {
        let target = Self::target(setup)?;
        let given = setup.policies.iter().find_map(|spec| match spec {
            Spec::Fdir(file) => Some(file.rules.clone()),
            _ => None,
        });
        let mut rules = given.unwrap_or_default();
        rules.extend(rules::parse("rule", rule).ok()?);
        match judge(&rules, target, setup).pop()?.verdict {
            Verdict::Refused { text, fix, .. } => Some(format!("{text}; {fix}")),
            Verdict::Merged { why, .. } => Some(why),
            Verdict::Accepted { .. } => None,
        }
    }

    /// On the 82599, the mask set that the first accepted rule has fixed.
    pub(crate) fn mask(&self) -> Option<MaskSet> {
        match self.engine {
            Engine::Ixgbe(_) => first_mask(&self.lines),
            Engine::Others { .. } => None,
        }
    }

    /// The decision of the rule that matches a frame, or that of RSS.
    #[inline]
    pub(crate) fn receive(&mut self, packet: &Packet, by_rss: Steered) -> Steered {
        self.is_urgent = false;
        let Some(at) = self.find(&packet.key) else {
            self.stats.misses += 1;
            return by_rss;
        };
        self.stats.hits += 1;
        let line = &mut self.lines[at];
        line.packets += 1;
        self.is_urgent = line.rule.extras.moderation == fdir::Moderation::LowLatency;
        match line.rule.action {
            RuleAction::Queue(queue) => Steered { queue: queue as u16, stage: Stage::Rule },
            _ => Steered { stage: Stage::Dropped, ..by_rss },
        }
    }

    /// Whether the rule of the last frame asks for a low-latency interrupt.
    #[inline]
    pub(crate) const fn is_urgent(&self) -> bool {
        self.is_urgent
    }

    /// The packets of each hardware counter that a rule selects.
    pub(crate) fn counters(&self) -> BTreeMap<u16, u64> {
        let mut counters = BTreeMap::new();
        for line in self.lines.iter().filter(|l| matches!(l.verdict, Verdict::Accepted { .. })) {
            if let Some(counter) = line.rule.extras.counter {
                *counters.entry(counter).or_default() += line.packets;
            }
        }
        counters
    }

    /// The rule that matches a frame, as text.
    pub(crate) fn why(&mut self, packet: &Packet) -> Option<String> {
        let at = self.find(&packet.key)?;
        let line = &self.lines[at];
        Some(format!("the rule in line {} matches: {}", line.rule.line, line.rule.text.trim()))
    }

    /// The offset of the flexible word, if an accepted rule matches one.
    pub(crate) fn flex_offset(&self) -> Option<u16> {
        self.lines.iter().find_map(|line| match line.verdict {
            Verdict::Accepted { .. } => line.rule.flex().map(|flex| flex.offset),
            _ => None,
        })
    }

    /// Remarks on rules that overlap.
    pub(crate) fn notes(&self) -> Vec<String> {
        let accepted: Vec<Rule> = self
            .lines
            .iter()
            .filter(|line| matches!(line.verdict, Verdict::Accepted { .. }))
            .map(|line| line.rule.clone())
            .collect();
        if accepted.len() > OVERLAP_RULES_MOST {
            return Vec::new();
        }
        rules::overlaps(&accepted, self.target).into_iter().map(|overlap| overlap.text).collect()
    }

    pub(crate) fn stats(&self) -> FilterStats {
        self.stats
    }

    pub(crate) fn rules(&self) -> Vec<RuleSummary> {
        self.lines.iter().map(Line::summary).collect()
    }

    /// The index in `lines` of the rule that matches.
    #[inline]
    fn find(&mut self, key: &FlowKey) -> Option<usize> {
        match &mut self.engine {
            Engine::Ixgbe(table) => table.lookup(key).map(|hit| usize::from(hit.id)),
            Engine::Others { table, index } => {
                table.lookup(key).and_then(|(_, line)| index.get(&line).copied())
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
            counter: self.rule.extras.counter,
            moderation: (self.rule.extras.moderation != Extras::NONE.moderation)
                .then(|| self.rule.extras.moderation.name().to_owned()),
            value: (self.rule.extras.value != 0).then_some(self.rule.extras.value),
        }
    }
}

/// The verdict on every rule. Rules with an action that this analysis does not model are refused
/// first; therefore they do not fix the mask set of the driver.
fn judge(rules: &[Rule], target: Target, setup: &Setup) -> Vec<Line> {
    let queues = setup.queues;
    let placed: Vec<Rule> = rules.iter().map(|rule| by_tenant(rule, setup)).collect();
    let rules = &placed[..];
    let unmodelled = |rule: &Rule| match rule.action {
        RuleAction::Queue(queue) if queue >= u32::from(queues) => Some(Verdict::Refused {
            reason: rules::Reason::Queue,
            text: format!("there is no queue {queue}: {queues} are open"),
            fix: format!("use a queue from 0 to {}, or set --queues", queues - 1),
        }),
        RuleAction::Vf { .. } | RuleAction::Context { .. } => Some(Verdict::Refused {
            reason: rules::Reason::Action,
            text:
                "RSS contexts are not modelled, and virtual functions only of tenants (--tenants)"
                    .to_owned(),
            fix: "use a queue, or name the virtual function in a file of tenants".to_owned(),
        }),
        _ => None,
    };
    let possible: Vec<Rule> =
        rules.iter().filter(|rule| unmodelled(rule).is_none()).cloned().collect();
    let mut verdicts = rules::compile(&possible, target).into_iter();
    rules
        .iter()
        .filter_map(|rule| {
            let verdict = unmodelled(rule).or_else(|| verdicts.next())?;
            Some(Line { rule: rule.clone(), verdict, packets: 0 })
        })
        .collect()
}

/// A rule for a virtual function of a tenant as a rule for its queue, counted over the port, as ixgbe computes it: queue M of
/// function N is queue M of the queues of pool N.
fn by_tenant(rule: &Rule, setup: &Setup) -> Rule {
    let mut rule = rule.clone();
    if let (RuleAction::Vf { vf, queue }, Some(tenants)) = (rule.action, &setup.tenants) {
        let per_pool = u32::from(tenants.layout().queues());
        let is_known = tenants.tenants.iter().any(|t| t.place == Place::Vf(vf.min(255) as u8));
        if is_known && queue < per_pool {
            rule.action = RuleAction::Queue(vf * per_pool + queue);
        }
    }
    rule
}

/// The filter table of the 82599 in perfect mode with the accepted rules, of which the first fixes the
/// mask set.
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
        let mut input = table.input(&rule.key)?;
        if mask.flex != Flex::Masked {
            // The key of a frame has no word at the offset of the EtherType, but a rule gives it (`vlan-etype`).
            input.flex = rule.key.flex;
        }
        table.add_input(&input, at as u16, action, false)?;
    }
    Ok(table)
}

fn first_mask(lines: &[Line]) -> Option<MaskSet> {
    let first = lines.iter().find(|line| matches!(line.verdict, Verdict::Accepted { .. }))?;
    Some(mask_set(&first.rule))
}

/// The mask of a rule in the form of the registers of the 82599.
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

/// The rule engine of the setup's adapter, if it has one that is modelled.
#[must_use]
pub fn rule_engine(setup: &Setup) -> Option<Target> {
    Fdir::target(setup)
}
