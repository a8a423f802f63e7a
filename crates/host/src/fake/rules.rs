//! The rules of the simulated machine, which the models of the drivers take and refuse.

use std::collections::BTreeMap;
use std::io;

use flowyard_adapter::fdir::Pballoc;
use flowyard_adapter::rules::{Driver, Rule, RuleAction, Target, Verdict, compile};

use super::Fake;
use crate::ntuple::{ANY_LOCATION, Listed, Request, Table};

/// The rules of a driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Rules {
    /// The model; `None`: a driver that takes every rule.
    pub(crate) target: Option<Target>,
    /// Locations; 0: the driver does not tell.
    pub(crate) locations: u32,
    /// Whether the driver chooses locations; then it takes no others.
    pub(crate) chooses: bool,
    /// The feature `rx-ntuple-filter`.
    pub(crate) on: bool,
    pub(crate) list: BTreeMap<u32, Request>,
}

fn error<T>(number: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(number))
}

impl Rules {
    pub(super) fn table(&self) -> Table {
        let rules = self.list.keys().filter_map(|location| self.at(*location)).collect();
        let size = (self.locations > 0).then_some(self.locations);
        Table { size, chooses: self.chooses, rules }
    }

    pub(super) fn at(&self, location: u32) -> Option<Listed> {
        let bytes = *self.list.get(&location)?;
        let mut rule = bytes.decode();
        // ixgbe tells a VLAN field of every rule.
        if let (Some(Target::E82599 { .. }), Ok(rule)) = (self.target, &mut rule) {
            (rule.ext, rule.vlan_etype, rule.user_def) = (true, Some((0, 0)), Some((0, 0)));
        }
        Some(Listed { loc: location, bytes, rule })
    }

    /// Whether a rule spreads over a context.
    pub(super) fn uses(&self, context: u32) -> bool {
        let action = |bytes: &Request| bytes.decode().map(|rule| rule.action);
        self.list.values().any(|bytes| {
            matches!(action(bytes), Ok(RuleAction::Context { context: of, .. }) if of == context)
        })
    }

    /// The highest queue that a rule steers to.
    pub(super) fn highest_queue(&self) -> Option<u32> {
        let queue = |bytes: &Request| match bytes.decode().ok()?.action {
            RuleAction::Queue(queue) => Some(queue),
            _ => None,
        };
        self.list.values().filter_map(queue).max()
    }

    pub(super) fn insert(
        &mut self,
        bytes: &Request,
        location: u32,
        queues: u32,
    ) -> io::Result<u32> {
        let location = match (location, self.chooses) {
            (ANY_LOCATION, true) => (0..).find(|at| !self.list.contains_key(at)).unwrap(),
            (ANY_LOCATION, false) | (_, true) => return error(libc::EINVAL),
            (location, false) => location,
        };
        let rule = bytes.decode();
        if matches!(&rule, Ok(rule) if matches!(rule.action, RuleAction::Queue(queue) if queue >= queues))
        {
            return error(libc::EINVAL);
        }
        // A rule without words is not one of the model's.
        if let (Some(target), Ok(rule)) = (self.target, rule) {
            if !self.on {
                return error(libc::EOPNOTSUPP);
            }
            let others = self.list.iter().filter(|(at, _)| **at != location);
            let mut all: Vec<Rule> = others.flat_map(|(_, bytes)| bytes.decode()).collect();
            all.push(Rule { loc: Some(location), ..rule });
            if !matches!(compile(&all, target).pop(), Some(Verdict::Accepted { .. })) {
                return error(libc::EINVAL);
            }
        }
        self.list.insert(location, bytes.at(location).meant());
        Ok(location)
    }
}

impl Fake {
    /// The machine with an adapter that takes rules, by the name of its driver; of drivers without a model here,
    /// one that takes every rule and chooses locations.
    pub(crate) fn with_rules(driver: &str) -> Self {
        let target = match driver {
            "ixgbe" => Some(Target::E82599 { pballoc: Pballoc::K64, driver: Driver::InTree }),
            "i40e" => Some(Target::I40e { guaranteed: 512, best_effort: 7168 }),
            "ice" => Some(Target::Ice),
            _ => None,
        };
        let mut fake = Self::virtio();
        fake.driver = driver.to_owned();
        fake.contexts = ["mlx5_core", "bnxt_en"].contains(&driver).then(BTreeMap::new);
        fake.rules = Some(Rules {
            target,
            locations: target.map_or(1024, Target::locations),
            chooses: target.is_none(),
            on: true,
            list: BTreeMap::new(),
        });
        fake
    }

    /// Installs a rule as another program would. Returns its location.
    pub(crate) fn foreign_rule(&mut self, text: &str) -> u32 {
        let rule = crate::rules::read(text).unwrap();
        let rules = self.rules.as_mut().unwrap();
        let free = || (0..rules.locations).rev().find(|at| !rules.list.contains_key(at)).unwrap();
        let location = match (rules.chooses, rule.loc) {
            (true, _) => ANY_LOCATION,
            (false, Some(location)) => location,
            (false, None) => free(),
        };
        rules.insert(&Request::encode(&rule, 0), location, 64).unwrap()
    }
}
