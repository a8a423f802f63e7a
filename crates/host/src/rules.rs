//! Rules of a plan: whether the driver takes one more, and which frames they match.

use std::collections::{BTreeMap, BTreeSet};

use flowyard_adapter::fdir::Pballoc;
use flowyard_adapter::profile::{FdirKind, Profile, Support};
use flowyard_adapter::rules::{Driver, Rule, RuleAction, RuleTable, Target, Verdict, compile};
use flowyard_frame::{FlowKey, proto};

use crate::setting::{NONE, Setting, Settings};
use crate::state::{RulesState, State};

pub(crate) mod words;

pub(crate) use words::{NEW_CONTEXT, of_flow, read, text};

/// Whether a flow names one connection: no field that a rule could match is left out.
pub(crate) fn is_single(flow: &FlowKey) -> bool {
    let has_ports = !proto::has_ports(flow.proto) || (flow.sport != 0 && flow.dport != 0);
    has_ports && flow.src != [0; 16] && flow.dst != [0; 16] && flow.proto != 0
}

/// The model of the driver that decides which rules it takes.
fn target_of(profile: &Profile, rules: &RulesState) -> Option<Target> {
    match profile.fdir {
        FdirKind::Ixgbe { pballoc } => {
            // The driver tells the number of locations, which the size of its packet buffer decides.
            let sizes = [Pballoc::K64, Pballoc::K128, Pballoc::K256];
            let told = sizes.into_iter().find(|size| Some(size.locations()) == rules.locations);
            Some(Target::E82599 { pballoc: told.unwrap_or(pballoc), driver: Driver::InTree })
        }
        FdirKind::I40e { filters } => {
            let guaranteed = rules.locations.unwrap_or(filters);
            Some(Target::I40e { guaranteed, best_effort: 0 })
        }
        FdirKind::Ice { .. } => Some(Target::Ice),
        FdirKind::None | FdirKind::NotModelled { .. } => None,
    }
}

/// Why a rule is not possible: the limit, and where it is known from.
pub(crate) struct Limit {
    pub(crate) limit: String,
    pub(crate) source: String,
}

fn limited<T>(limit: impl Into<String>, source: impl Into<String>) -> Result<T, Limit> {
    Err(Limit { limit: limit.into(), source: source.into() })
}

/// A rule that the driver is expected to take.
pub(crate) struct Taken {
    /// Where it goes.
    pub(crate) setting: Setting,
    /// Facts for the person who reviews the plan.
    pub(crate) notes: Vec<String>,
}

/// Whether the driver takes one more rule, and where it goes: a free location, or where the driver chooses.
pub(crate) fn judge(state: &State, rule: &Rule) -> Result<Taken, Limit> {
    let rules = match (state.rules.value(), state.rules.why()) {
        (Some(rules), _) => rules,
        (None, why) => {
            let why = why.unwrap_or_default();
            let (source, limit) = why.split_once(": ").unwrap_or(("ETHTOOL_GRXCLSRLCNT", why));
            return limited(limit, source);
        }
    };
    let mut notes = Vec::new();
    match state.profile() {
        Some(profile) => match target_of(profile, rules) {
            Some(target) => by_model(state, profile, target, rule, &mut notes)?,
            None => by_profile(profile, rules, rule, &mut notes)?,
        },
        None => notes.push(format!(
            "flowyard has no model of this driver: whether it takes the rule '{}' shows when it is installed. \
             If it does not, apply undoes the plan.",
            text(rule)
        )),
    }
    Ok(Taken { setting: place(rules)?, notes })
}

/// A free location, the highest as with ethtool; or where the driver chooses, if it can.
fn place(rules: &RulesState) -> Result<Setting, Limit> {
    if rules.chooses_locations {
        return Ok(Setting::NewRule(1));
    }
    let Some(size) = rules.locations else {
        return limited(
            "the driver neither chooses locations nor tells how many it has",
            "ETHTOOL_GRXCLSRLALL",
        );
    };
    let is_free = |location: &u32| rules.list.iter().all(|one| one.location != *location);
    match (0..size).rev().find(is_free) {
        Some(location) => Ok(Setting::Rule(location)),
        None => limited(format!("all {size} locations have rules"), "ETHTOOL_GRXCLSRLALL"),
    }
}

/// The verdict of the model of the driver, after the rules that are installed.
fn by_model(
    state: &State,
    profile: &Profile,
    target: Target,
    rule: &Rule,
    notes: &mut Vec<String>,
) -> Result<(), Limit> {
    let feature = state.features.value().into_iter().flatten();
    let feature = feature.into_iter().find(|one| one.name == "rx-ntuple-filter");
    if let Some(feature) = feature.filter(|one| !one.on) {
        let fix = match (feature.changeable, target) {
            (false, _) => "the driver does not let it change",
            (true, Target::E82599 { .. }) => {
                "`ethtool -K IFACE ntuple on` turns it on; that resets the adapter and turns ATR off"
            }
            (true, _) => "`ethtool -K IFACE ntuple on` turns it on",
        };
        let limit =
            format!("{} takes no rules while rx-ntuple-filter is off; {fix}", profile.driver);
        return limited(limit, "ETHTOOL_GFEATURES");
    }
    let source = format!(
        "flowyard adapters: the profile of {}, with flowyard's model of the rules of {}",
        profile.name, profile.driver
    );
    let rules = state.rules.value().into_iter().flat_map(|rules| &rules.list);
    let mut all: Vec<Rule> = Vec::new();
    for one in rules {
        match read(&one.rule) {
            Some(rule) => {
                let (line, loc) = (one.location, Some(one.location));
                all.push(Rule { line, loc, ..rule });
            }
            None => notes.push(format!(
                "The rule at location {} is not one of `ethtool -N`, so its effect on other rules is not known.",
                one.location
            )),
        }
    }
    all.push(Rule { loc: None, ..rule.clone() });
    match compile(&all, target).pop() {
        Some(Verdict::Accepted { notes: more, .. }) => {
            let more = more.into_iter().filter(|note| !note.starts_with("ethtool chooses"));
            notes.extend(more.map(|note| format!("Rules of {}: {note}.", target.driver_name())));
            Ok(())
        }
        Some(Verdict::Merged { why, .. }) => limited(by_location(&why), source),
        Some(Verdict::Refused { text, fix, .. }) => {
            limited(by_location(&format!("{text}; {fix}")), source)
        }
        None => limited("the model has no verdict", source),
    }
}

/// The words of a verdict about a file of rules, for rules that are known by their locations.
fn by_location(words: &str) -> String {
    let words = words
        .replace(&format!(", so no context {NEW_CONTEXT}"), "")
        .replace("the filter of line ", "the rule at location ")
        .replace("the rule of line ", "the rule at location ")
        .replace("the fields of line ", "the fields of the rule at location ");
    // An existing filter is named twice.
    let words = match words.split_once(", line ") {
        Some((front, rest)) => {
            format!("{front}{}", rest.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        None => words,
    };
    words
        .replace("remove this line or line ", "delete the rule at location ")
        .replace(" line ", " the rule at location ")
}

/// What the profile of an adapter whose rules are not modelled says.
fn by_profile(
    profile: &Profile,
    rules: &RulesState,
    rule: &Rule,
    notes: &mut Vec<String>,
) -> Result<(), Limit> {
    let source = format!("flowyard adapters: the profile of {}", profile.name);
    if let FdirKind::NotModelled { filters, ip_flows, contexts } = profile.fdir {
        if ip_flows == Support::No {
            return limited(format!("{} takes no rules for IP flows", profile.driver), source);
        }
        if let Some(most) = filters.filter(|most| rules.installed >= *most) {
            return limited(
                format!("{} takes {most} rules, which are installed", profile.driver),
                source,
            );
        }
        if matches!(rule.action, RuleAction::Context { .. }) && contexts == Support::No {
            return limited(format!("{} has no RSS contexts", profile.driver), source);
        }
    }
    notes.push(format!(
        "Which rules {} takes is not modelled: whether it takes '{}' shows when it is installed. If it does not, apply \
         undoes the plan.",
        profile.driver,
        text(rule)
    ));
    Ok(())
}

/// The rules of settings, indexed for lookups.
#[derive(Clone, Debug)]
pub(crate) struct Matcher {
    table: RuleTable,
    /// Rules whose matches are not modelled: an SPI, a flexible word, or bytes that ethtool has no words for.
    pub(crate) unknown: Vec<Setting>,
    /// The queues to which rules steer.
    pub(crate) queues: BTreeSet<u32>,
}

impl Matcher {
    /// The rules of `settings`.
    pub(crate) fn new(state: &State, settings: &Settings) -> Self {
        let (mut rules, mut unknown) = (BTreeMap::new(), Vec::new());
        for (setting, value) in settings {
            let location = match setting {
                Setting::Rule(location) => *location,
                Setting::NewRule(number) => u32::MAX - *number,
                _ => continue,
            };
            if value == NONE {
                continue;
            }
            match read(value) {
                Some(rule) if rule.spi.is_none() && rule.mask.flex == 0 => {
                    drop(rules.insert(location, rule));
                }
                _ => unknown.push(setting.clone()),
            }
        }
        let target = state.profile().zip(state.rules.value());
        let target = target.and_then(|(profile, rules)| target_of(profile, rules));
        // Without a model the rule with the lowest location applies, as ethtool's manual says.
        let table = RuleTable::new(
            target.unwrap_or(Target::Software),
            rules.iter().map(|(at, rule)| (*at, rule)),
        );
        let queues = rules.values().filter_map(|rule| match rule.action {
            RuleAction::Queue(queue) => Some(queue),
            _ => None,
        });
        Self { table, unknown, queues: queues.collect() }
    }

    /// What the rules do with a flow; `None` if RSS decides.
    pub(crate) fn lookup(&self, key: &FlowKey) -> Option<RuleAction> {
        self.table.lookup(key).map(|(action, _)| action)
    }
}
