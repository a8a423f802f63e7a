//! The user's entries: exact ones and rules, in the order in which the tables are asked.
//!
//! Thread-safety: as of [`Adapters`].

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use flowyard_dpdk::rules::{Hits, Offer, Place, Rule, SwitchPort};
use flowyard_flow::table;
use flowyard_flow::table::marked::{self, Answers};
use flowyard_frame::{Action, FlowKey, To};

use super::forwards::{Forward, Found, SwitchPorts};
use super::pattern::{overlap, pattern};
use super::{Adapter, Adapters, Ask, Placed, RuleId, State, Users};

/// An entry as it is offered.
#[derive(Debug)]
struct Want {
    what: String,
    rule: table::Rule,
    mark: Option<u32>,
    /// The core that alone serves the queue that the entry names.
    core: Option<u16>,
    /// Why it is offered to no adapter.
    contested: Option<String>,
}

/// The user's entries, ready to be offered, and the table of their marks.
#[derive(Debug)]
pub struct Prepared {
    wants: Vec<Want>,
    answers: Arc<Answers>,
}

impl Prepared {
    /// The entries that adapters may name by marks: the tables need them before the first mark comes.
    #[must_use]
    pub fn marks(&self) -> Arc<Answers> {
        Arc::clone(&self.answers)
    }
}

/// Pairs of entries that are compared at most.
const PAIRS: usize = 50_000_000;

impl Users {
    /// All entries with their marks, in the order of precedence.
    fn wants(&self, generation: u8, core: &dyn Fn(u16) -> Option<u16>) -> Vec<Want> {
        let want = |what, rule: table::Rule, at| {
            let to = rule.action.to;
            let core = if let To::Queue(queue) = to { core(queue) } else { None };
            let mark = marked::of_entry(generation, at);
            Want { what, rule, mark, core, contested: None }
        };
        let exact = self.exact.iter().enumerate().map(|(at, (key, action))| {
            let rule = table::Rule { key: *key, mask: FlowKey::FLOW, priority: 0, action: *action };
            want(format!("exact entry {}", at + 1), rule, at)
        });
        let mut order: Vec<usize> = (0..self.rules.len()).collect();
        order.sort_by_key(|at| Reverse(self.rules[*at].priority)); // stable: of equal ones the first
        let rules = order
            .into_iter()
            .map(|at| want(format!("rule {}", at + 1), self.rules[at], self.exact.len() + at));
        let mut all: Vec<Want> = exact.chain(rules).collect();
        let mut left = PAIRS;
        // Two different exact entries share no frame.
        for at in self.exact.len()..all.len() {
            let (before, rest) = all.split_at_mut(at);
            if let Some(want) = rest.first_mut() {
                want.contested = want.contest(before, &mut left);
            }
        }
        all
    }
}

impl Want {
    /// Why another entry may answer some of its frames: one in front of it, with another answer.
    fn contest(&self, before: &[Self], left: &mut usize) -> Option<String> {
        let Some(rest) = left.checked_sub(before.len()) else {
            return Some("there are too many rules to compare".into());
        };
        *left = rest;
        let filter = (&self.rule.key, &self.rule.mask);
        let first = before.iter().find(|other| {
            other.rule.action != self.rule.action
                && overlap(filter, (&other.rule.key, &other.rule.mask))
        });
        first.map(|first| format!("{} is asked first and can match the same frames", first.what))
    }
}

impl Adapters {
    /// Prepares an offer of the user's entries, with a new generation of marks, before the tables change. `core` names the
    /// core that alone serves a queue of the yard.
    ///
    /// Removes the rules of the entries that there were: the new tables may want what adapters drop. Rules that give frames
    /// to a queue stay, and so do those that send out frames of an entry which does not change.
    pub fn prepare(&self, users: &Users, core: &dyn Fn(u16) -> Option<u16>) -> Prepared {
        self.flow_lock().users = None;
        let mut hardware = self.lock();
        hardware.generation = marked::next(hardware.generation);
        let generation = hardware.generation;
        let wants = users.wants(generation, core);
        hardware.ports.values_mut().for_each(|adapter| adapter.withdraw(&wants));
        drop(hardware);
        let filters = wants.iter().map(|want| (want.rule.key, want.rule.mask)).collect();
        self.flow_lock().users = Some((generation, filters));
        let mut entries = vec![None; wants.len()];
        for want in &wants {
            let at = want.mark.map_or(0, |mark| (mark & 0xffff) as usize);
            let place = at.checked_sub(1).and_then(|at| entries.get_mut(at));
            if let (Some(place), None) = (place, &want.contested) {
                *place = Some(want.rule);
            }
        }
        Prepared { wants, answers: Arc::new(Answers { generation, entries }) }
    }

    /// Offers the user's entries to all adapters, when the tables have them. `is_first`: the yard does not receive yet.
    /// Returns whether a rule gives frames to another receive queue, or sends them out. What was received before must be
    /// discarded then, because these frames would pass it.
    pub fn commit(&self, prepared: &Prepared, is_first: bool) -> bool {
        let mut hardware = self.lock();
        // Later than at the start, frames that are sent out would pass those in the yard.
        let others = if is_first { hardware.switch_ports() } else { SwitchPorts::new() };
        let mut moves = false;
        for (port, adapter) in &mut hardware.ports {
            adapter.users = adapter.offer(*port, &prepared.wants, is_first, &others);
            moves |= !adapter.queues.is_empty() || !adapter.forwards.is_empty();
        }
        moves
    }
}

impl Adapter {
    /// Removes the rules of the user's entries, but for those that stay when the entries are `wants`.
    fn withdraw(&mut self, wants: &[Want]) {
        // A refusal may have been for want of room.
        self.refuses.clear();
        let mut wanted = HashMap::new();
        if !self.forwards.is_empty() {
            let is_forward =
                |want: &&Want| want.contested.is_none() && want.rule.action.counter == 0;
            let to = |want: &Want| ((want.rule.key, want.rule.mask), want.rule.action.to);
            wanted.extend(wants.iter().filter(is_forward).map(to));
        }
        let gone = self.forwards.keep(|key, mask, to| wanted.get(&(*key, *mask)) == Some(&to));
        let gone: HashSet<RuleId> = gone.into_iter().collect();
        for at in 0..self.users.len() {
            let one = &self.users[at];
            let stays = match one.state {
                State::Queue { .. } => true,
                State::Forwards(_) => one.rule.is_some_and(|rule| !gone.contains(&rule)),
                _ => false,
            };
            if !stays {
                self.take_out(at, "the tables are being changed");
            }
        }
    }

    fn offer(
        &mut self,
        port: u16,
        wants: &[Want],
        is_first: bool,
        others: &SwitchPorts,
    ) -> Vec<Placed> {
        // What rules that were kept have counted.
        let hits: HashMap<RuleId, Hits> =
            self.users.drain(..).filter_map(|one| Some((one.rule?, one.hits?))).collect();
        let mut all = Vec::with_capacity(wants.len());
        for want in wants {
            let state = self.offer_one(port, want, is_first, others);
            let (state, rule) = state.unwrap_or_else(|why| (State::Software(why), None));
            all.push(Placed {
                what: want.what.clone(),
                flow: shown(&want.rule.key, &want.rule.mask),
                state,
                rule,
                hits: rule.and_then(|rule| hits.get(&rule).copied()),
            });
        }
        all
    }

    fn offer_one(
        &mut self,
        port: u16,
        want: &Want,
        is_first: bool,
        others: &SwitchPorts,
    ) -> Result<(State, Option<RuleId>), String> {
        let Action { to, counter, .. } = want.rule.action;
        let Some(pattern) = pattern(&want.rule.key, &want.rule.mask, port)? else {
            return Err("the port receives none of its frames".into());
        };
        if let Some(why) = &want.contested {
            return Err(why.clone());
        }
        let filter = (&want.rule.key, &want.rule.mask);
        if self.queues.iter().any(|(key, mask, _)| overlap(filter, (key, mask))) {
            return Err("a rule of the start gives some of its frames to a queue, and stays".into());
        }
        match self.forwards.claim(filter.0, filter.1) {
            None => {}
            Some(Found::Own(rule, name)) => return Ok((State::Forwards(name), Some(rule))),
            Some(Found::Other) => {
                return Err("a rule of the start sends some of its frames out by a port".into());
            }
        }
        // What a counter of the user counts, and what the yard may drop, must reach the yard.
        let by = match to {
            To::Port(port) if counter == 0 && self.may_forward => others.get(&port),
            _ => None,
        };
        let by = by
            .filter(|(_, by)| self.device.switch_port().is_some_and(|own| own.domain == by.domain));
        let asks = self.asks(want, is_first, by.map(|(_, by)| *by));
        let (ask, id) = self.put(&pattern, &asks)?;
        let state = match ask {
            Ask::Drop { .. } => State::Drops,
            Ask::Forward { .. } => {
                let Some(port) = by else { return Err("no port to send frames out".into()) };
                self.forwards.add(Forward::new(filter, to, port, id));
                State::Forwards(port.0.clone())
            }
            Ask::Mark { queue: false } => State::Marks,
            Ask::Mark { queue: true } | Ask::Queue => {
                self.queues.push((want.rule.key, want.rule.mask, id));
                let core = want.core.unwrap_or_default();
                return Ok((State::Queue { core, marks: ask != Ask::Queue }, None));
            }
        };
        Ok((state, Some(id)))
    }

    /// What is asked for an entry, the best first.
    fn asks(&self, want: &Want, is_first: bool, by: Option<SwitchPort>) -> Vec<(Ask, Offer)> {
        let Action { to, counter, .. } = want.rule.action;
        let mut asks = Vec::new();
        let mut push = |ask, place, mark, count| asks.push((ask, Offer { place, mark, count }));
        if to.is_drop() && counter == 0 {
            // What a counter of the user counts must reach the yard.
            push(Ask::Drop { count: true }, Place::Drop, None, true);
            push(Ask::Drop { count: false }, Place::Drop, None, false);
        }
        if let Some(by) = by {
            push(Ask::Forward { count: true }, Place::Port(by), None, true);
            push(Ask::Forward { count: false }, Place::Port(by), None, false);
        }
        let queue = want.core.filter(|_| is_first && self.cores.len() > 1);
        let queue = queue.and_then(|core| self.cores.iter().position(|other| *other == core));
        let queue = queue.map(|at| Place::Queue(at as u16));
        if let (Some(queue), Some(mark)) = (queue, want.mark) {
            push(Ask::Mark { queue: true }, queue, Some(mark), false);
        }
        if let Some(mark) = want.mark {
            push(Ask::Mark { queue: false }, Place::Usual, Some(mark), false);
        }
        if let Some(queue) = queue {
            push(Ask::Queue, queue, None, false);
        }
        asks
    }
}

/// What an entry matches, for display: the pattern where it has one.
fn shown(key: &FlowKey, mask: &FlowKey) -> String {
    if *mask == FlowKey::FLOW {
        return key.to_string();
    }
    let Ok(Some(Rule { vlan, from, to, protocol, from_port, to_port, .. })) =
        pattern(key, mask, key.in_port)
    else {
        return "a match that adapters do not have".into();
    };
    let mut words = Vec::new();
    words.extend(vlan.map(|vlan| format!("vlan {vlan}")));
    words.extend(protocol.map(|protocol| format!("{protocol:?}").to_lowercase()));
    words.extend(from.map(|(address, bits)| format!("from {address}/{bits}")));
    words.extend(from_port.map(|port| format!("port {port}")));
    words.extend(to.map(|(address, bits)| format!("to {address}/{bits}")));
    words.extend(to_port.map(|port| format!("port {port}")));
    if words.is_empty() { "every frame".into() } else { words.join(" ") }
}
