//! What the user chooses: hash, indirection table, rules, and the CPU of each queue.

use flowyard_adapter::rss::{HashFields, Hfunc};
use flowyard_adapter::rules::{FlowType, Rule, RuleAction};
use flowyard_flow::Quic;
use flowyard_flow::toeplitz::MICROSOFT_KEY;
use flowyard_frame::FlowKey;

use crate::elephants;

/// The largest number of queues.
pub const QUEUES_MOST: usize = 1024;
/// The largest number of rules with masks; there may be any number for single flows.
pub const RULES_MOST: usize = 512;
/// CPUs that flows can follow to are below this number.
pub(crate) const CPUS_MOST: u32 = 256;
/// The largest number of rules for single flows.
const EXACT_MOST: usize = 65_536;
/// The largest number of entries of the indirection table.
const ENTRIES_MOST: usize = 65_536;

/// Who teaches where a flow is consumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Follow {
    /// ATR: the CPU that sends the opposite direction. SYNs teach, and one of `sample` other TCP segments.
    Senders {
        /// The number of segments of which one teaches.
        sample: u32,
    },
    /// RFS: the CPU on which a thread reads the socket.
    Readers,
}

/// A policy that XDP enforces.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The Toeplitz key, 40 to 256 bytes.
    pub key: Vec<u8>,
    /// The hashed fields of each flow type.
    pub fields: HashFields,
    /// The hash function.
    pub hfunc: Hfunc,
    /// The indirection table, of any length: entry (hash modulo length) is the queue.
    pub table: Vec<u16>,
    /// The CPU of each queue; `None` leaves its frames on the CPU that receives them.
    pub cpus: Vec<Option<u32>>,
    /// Whether tunnelled frames are steered by their inner headers.
    pub is_inner: bool,
    /// The packets that are hashed by their QUIC connection ID.
    pub quic: Option<Quic>,
    /// Whether the home address and the type 2 routing header of IPv6 are hashed in place of the header's addresses.
    pub hashes_ipv6_ex: bool,
    /// Who teaches where flows are consumed, if flows follow their consumers.
    pub follow: Option<Follow>,
    /// When a flow gets a CPU of its own, if that is wanted.
    pub elephants: Option<elephants::Settings>,
    /// Whether a flow moves only when no frame of it can be overtaken. Otherwise it moves at once.
    pub settles: bool,
    /// Rules, of which the first that matches applies: in the order of `loc`, and those without one last.
    pub rules: Vec<Rule>,
}

/// Why a policy is refused; the message includes the fix.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadPolicy {
    /// The length of the key is wrong.
    #[error("{0}")]
    Key(String),
    /// No queue, or too many.
    #[error("there are {0} queues; name 1 to {QUEUES_MOST} CPUs")]
    Queues(usize),
    /// A CPU whose number is too large for policies that follow.
    #[error("flows cannot follow their consumers to CPU {0}: CPUs 0 to {last} are possible", last = CPUS_MOST - 1)]
    Cpu(u32),
    /// Every segment is sampled, or none.
    #[error("one of 0 segments cannot be sampled; use 1 or more")]
    Sample,
    /// A setting for elephants is impossible.
    #[error("elephants: {0}")]
    Elephants(String),
    /// No entry in the table, or too many.
    #[error("the indirection table has {0} entries; give it 1 to {ENTRIES_MOST}")]
    Entries(usize),
    /// An entry names a queue that there is not.
    #[error(
        "entry {entry} of the indirection table names queue {queue}; there are queues 0 to {last}"
    )]
    Entry {
        /// The number of the entry.
        entry: usize,
        /// The queue that it names.
        queue: u16,
        /// The last queue.
        last: usize,
    },
    /// A rule needs what XDP programs here do not do.
    #[error("the rule in line {line} cannot be enforced by XDP: {what}; {fix}")]
    Rule {
        /// The line of the rule in its file.
        line: u32,
        /// What it needs.
        what: String,
        /// What to write instead.
        fix: String,
    },
    /// Too many rules.
    #[error(
        "{0} rules have masks, and {RULES_MOST} are possible; rules for single flows are not limited so"
    )]
    Rules(usize),
    /// Too many rules for single flows.
    #[error("{0} rules are for single flows, and {EXACT_MOST} are possible; remove some")]
    Exact(usize),
}

/// A rule with its rank: the lowest rank that matches applies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ranked<'a> {
    pub(crate) rank: u32,
    pub(crate) rule: &'a Rule,
    /// `None`: drop.
    pub(crate) queue: Option<u16>,
}

impl Policy {
    /// A queue for each of `cpus`, 128 entries in turn, ports of all transports hashed, no rules, Microsoft's
    /// published key (live interfaces should have a secret one).
    #[must_use]
    pub fn over(cpus: &[u32]) -> Self {
        let count = cpus.len().clamp(1, QUEUES_MOST) as u16;
        Self {
            key: MICROSOFT_KEY.to_vec(),
            fields: HashFields::ALL_PORTS,
            hfunc: Hfunc::Toeplitz,
            table: (0..128.max(count)).map(|entry| entry % count).collect(),
            cpus: cpus.iter().copied().map(Some).collect(),
            is_inner: false,
            quic: None,
            hashes_ipv6_ex: false,
            follow: None,
            elephants: None,
            settles: true,
            rules: Vec::new(),
        }
    }

    /// The CPU of each queue, and after them those that only elephants get.
    pub(crate) fn all_cpus(&self) -> Vec<Option<u32>> {
        let mut all = self.cpus.clone();
        for &cpu in self.elephants.iter().flat_map(|settings| &settings.cpus) {
            if !all.contains(&Some(cpu)) {
                all.push(Some(cpu));
            }
        }
        all
    }

    /// Whether flows move from one CPU to another.
    pub(crate) const fn moves(&self) -> bool {
        self.follow.is_some() || self.elephants.is_some()
    }

    /// Checks everything but the rules.
    pub(crate) fn check(&self) -> Result<(), BadPolicy> {
        let (queues, all) = (self.cpus.len(), self.all_cpus());
        if queues == 0 || all.len() > QUEUES_MOST {
            return Err(BadPolicy::Queues(all.len()));
        }
        let far = all.iter().flatten().copied().find(|cpu| self.moves() && *cpu >= CPUS_MOST);
        if let Some(cpu) = far {
            return Err(BadPolicy::Cpu(cpu));
        }
        if let Some(wrong) = self.elephants.as_ref().and_then(elephants::Settings::wrong) {
            return Err(BadPolicy::Elephants(wrong));
        }
        if self.elephants.is_some() && all.iter().all(|cpu| *cpu == all[0]) {
            let wrong = "there is one CPU, which no flow can have for itself; name two or more";
            return Err(BadPolicy::Elephants(wrong.to_owned()));
        }
        if self.follow == Some(Follow::Senders { sample: 0 }) {
            return Err(BadPolicy::Sample);
        }
        if self.table.is_empty() || self.table.len() > ENTRIES_MOST {
            return Err(BadPolicy::Entries(self.table.len()));
        }
        match self.table.iter().position(|&queue| usize::from(queue) >= queues) {
            Some(entry) => {
                Err(BadPolicy::Entry { entry, queue: self.table[entry], last: queues - 1 })
            }
            None => Ok(()),
        }
    }

    /// The rules in the order in which they apply. Of several with one location the last one counts, as `ethtool -N`
    /// overwrites.
    ///
    /// # Errors
    /// When XDP cannot enforce one of them.
    pub(crate) fn ranked(&self) -> Result<Vec<Ranked<'_>>, BadPolicy> {
        let mut rules: Vec<(u32, &Rule)> = Vec::with_capacity(self.rules.len());
        for rule in &self.rules {
            if let Some(loc) = rule.loc {
                rules.retain(|(_, other)| other.loc != Some(loc));
            }
            rules.push((rule.loc.unwrap_or(u32::MAX), rule));
        }
        rules.sort_by_key(|(loc, _)| *loc); // stable: without a location, in the order of the file
        let ranked = (0..).zip(rules);
        ranked
            .map(|(rank, (_, rule))| Ok(Ranked { rank, rule, queue: self.target(rule)? }))
            .collect()
    }

    /// The queue of a rule; `None` if it drops.
    fn target(&self, rule: &Rule) -> Result<Option<u16>, BadPolicy> {
        let refuse = |what: &str, fix: &str| {
            Err(BadPolicy::Rule { line: rule.line, what: what.to_owned(), fix: fix.to_owned() })
        };
        if rule.spi.is_some() {
            return refuse("it matches an SPI", "leave out spi");
        }
        if rule.user_def.is_some() || rule.vlan_etype.is_some() {
            return refuse("it matches bytes at an offset", "leave out user-def and vlan-etype");
        }
        let last = self.cpus.len() - 1;
        match rule.action {
            RuleAction::Drop => Ok(None),
            RuleAction::Queue(queue) if queue as usize <= last => Ok(Some(queue as u16)),
            RuleAction::Queue(queue) => refuse(
                &format!("there is no queue {queue}"),
                &format!("use a queue from 0 to {last}, or name more CPUs"),
            ),
            RuleAction::Wake => refuse("it wakes up the host", "use a queue, or -1 to drop"),
            RuleAction::Vf { .. } => refuse("it names a virtual function", "use a queue"),
            RuleAction::Context { .. } => refuse("it names an RSS context", "use a queue"),
        }
    }
}

/// Whether a rule matches a single flow: all of the 5-tuple, and nothing else.
pub(crate) fn is_exact(rule: &Rule) -> bool {
    let width = if rule.flow_type.is_ipv4() { 4 } else { 16 };
    let flow = FlowKey { src: [0; 16], dst: [0; 16], ..FlowKey::FLOW };
    let address = |mask: &[u8; 16]| mask[..width] == FlowKey::FLOW.src[..width];
    rule.flow_type != FlowType::Ether
        && address(&rule.mask.src)
        && address(&rule.mask.dst)
        && FlowKey { src: [0; 16], dst: [0; 16], ..rule.mask } == flow
}

/// Checks the number of rules of each kind.
pub(crate) fn count(ranked: &[Ranked<'_>]) -> Result<(), BadPolicy> {
    let exact = ranked.iter().filter(|one| is_exact(one.rule)).count();
    match (exact, ranked.len() - exact) {
        (exact, _) if exact > EXACT_MOST => Err(BadPolicy::Exact(exact)),
        (_, others) if others > RULES_MOST => Err(BadPolicy::Rules(others)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
