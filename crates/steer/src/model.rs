//! The decision on a frame, in user space, by the adapter models: what the XDP program has to decide, too.

use flowyard_adapter::Rss;
use flowyard_adapter::rules::{RuleAction, RuleTable, Target};
use flowyard_flow::{Quic, parse};
use flowyard_frame::FlowKey;
use flowyard_wire::{Headers, LinkType, Net};
use schemars::JsonSchema;
use serde::Serialize;

use crate::policy::{self, BadPolicy, Policy};

/// The stage that decided, by the names of `flowyard analyze`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The frame is not IP, or nothing of it is hashed: queue 0.
    NoHash,
    /// Hash and indirection table.
    Rss,
    /// A rule that steers.
    Rule,
    /// A rule that drops.
    Dropped,
    /// The CPU on which the flow's consumer was last seen.
    Filter,
    /// `settle`: the flow is not there yet, because frames of it are on their way to another CPU.
    Settling,
    /// The CPU that the flow has for itself.
    Elephant,
    /// Dropped: the flow gets a CPU for itself, and cannot move there without a pause in its frames.
    GapDrop,
}

impl Reason {
    /// Every reason, in the order of the program's numbers.
    pub const ALL: [Self; 8] = [
        Self::NoHash,
        Self::Rss,
        Self::Rule,
        Self::Dropped,
        Self::Filter,
        Self::Settling,
        Self::Elephant,
        Self::GapDrop,
    ];

    /// The name in tables and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoHash => "no_hash",
            Self::Rss => "rss",
            Self::Rule => "rule",
            Self::Dropped => "dropped",
            Self::Filter => "filter",
            Self::Settling => "settling",
            Self::Elephant => "elephant",
            Self::GapDrop => "gap_drop",
        }
    }
}

/// Where a frame goes, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The queue; 0 if the frame is dropped.
    pub queue: u16,
    /// The stage that decided.
    pub reason: Reason,
    /// The hash, if the decision needed it.
    pub hash: Option<u32>,
}

/// A policy, ready to decide.
#[derive(Clone, Debug)]
pub struct Model {
    rss: Rss,
    table: Vec<u16>,
    rules: RuleTable,
    is_inner: bool,
    quic: Option<Quic>,
}

impl Model {
    /// The model of `policy`.
    ///
    /// # Errors
    /// When the policy is refused.
    pub fn new(policy: &Policy) -> Result<Self, BadPolicy> {
        policy.check()?;
        let ranked = policy.ranked()?;
        policy::count(&ranked)?;
        let rss = Rss::of_card(&policy.key, policy.fields, policy.hfunc, vec![0]);
        let rules = ranked.iter().map(|one| (one.rank, one.rule));
        Ok(Self {
            rss: rss
                .map_err(|error| BadPolicy::Key(error.to_string()))?
                .with_ipv6_ex(policy.hashes_ipv6_ex),
            table: policy.table.clone(),
            rules: RuleTable::new(Target::Software, rules),
            is_inner: policy.is_inner,
            quic: policy.quic.clone(),
        })
    }

    /// The header fields by which an Ethernet frame is steered: the outer ones, or those in its tunnel if the policy
    /// wants them and they are IP.
    #[must_use]
    pub fn key(&self, frame: &[u8]) -> FlowKey {
        parse::key(&self.headers(frame), frame, 0)
    }

    fn headers(&self, frame: &[u8]) -> Headers {
        let outer = Headers::parse(LinkType::Ethernet, frame);
        let inner = self.is_inner.then(|| outer.inner(frame)).flatten();
        let seen = inner.filter(|inner| matches!(inner.net, Net::Ipv4 | Net::Ipv6));
        seen.unwrap_or(outer)
    }

    /// The hash of a frame; `None` if nothing of it is hashed.
    fn hash(&self, key: &FlowKey, headers: &Headers, frame: &[u8]) -> Option<u32> {
        if let Some(id) = self.quic.as_ref().and_then(|quic| quic.hashed(key, headers, frame)) {
            return Some(self.rss.hash_id(id));
        }
        let address = |at: u32| frame.get(at as usize..)?.first_chunk().copied();
        let [src, dst] = [headers.home_address, headers.routing2].map(|at| match at {
            0 => None,
            at => address(at),
        });
        self.rss.hash_with(key, src, dst)
    }

    /// The decision on an Ethernet frame of which nothing was learned.
    #[must_use]
    pub fn decide(&self, frame: &[u8]) -> Decision {
        let headers = self.headers(frame);
        let key = parse::key(&headers, frame, 0);
        self.decided(&key, || self.hash(&key, &headers, frame))
    }

    /// The decision on frames with these header fields, of which nothing was learned. What is not in the key, such as
    /// connection IDs of QUIC, is taken for absent.
    #[must_use]
    pub fn decide_key(&self, key: &FlowKey) -> Decision {
        self.decided(key, || self.rss.hash(key))
    }

    fn decided(&self, key: &FlowKey, hash: impl FnOnce() -> Option<u32>) -> Decision {
        match self.rules.lookup(key) {
            Some((RuleAction::Queue(queue), _)) => {
                return Decision { queue: queue as u16, reason: Reason::Rule, hash: None };
            }
            Some(_) => return Decision { queue: 0, reason: Reason::Dropped, hash: None },
            None => {}
        }
        let hash = hash();
        let (queue, reason) = match hash {
            None => (0, Reason::NoHash),
            Some(hash) => (self.table[hash as usize % self.table.len()], Reason::Rss),
        };
        Decision { queue, reason, hash }
    }
}
