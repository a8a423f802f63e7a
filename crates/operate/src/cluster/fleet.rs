//! All nodes of a cluster, by the statuses that they write.

use flowyard_config::ClusterConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::etcd::{below, only};
use super::poll::{Record, place};
use super::status::Status;
use super::{Etcd, EtcdError};

/// A node without a status for this long, in seconds, counts as silent. It writes one every 5 seconds.
const SILENT: u64 = 15;

/// The nodes of a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Fleet {
    /// What all keys begin with.
    pub prefix: String,
    /// The newest generation: what every node should use.
    pub generation: u64,
    /// Whether there are nodes, every node is current, and all have the same checksum.
    pub agrees: bool,
    /// The nodes, by name.
    pub nodes: Vec<Node>,
}

/// A node of a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Node {
    /// What stands between the node and the rest of the fleet.
    pub state: NodeState,
    /// The age of the status in seconds, by the clocks of the node and of this machine.
    pub age_s: u64,
    /// What the node says of itself.
    #[serde(flatten)]
    pub status: Status,
}

/// How a node stands to the rest of the fleet. The first that applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// It has not written a status for 15 seconds: it has ended, or cannot reach etcd.
    Silent,
    /// Several instances write their status under its name.
    Ambiguous,
    /// It has refused the newest generation.
    Refused,
    /// It uses an older generation.
    Behind,
    /// It uses the newest generation, but most nodes with this generation have another checksum.
    Differs,
    /// It uses the newest generation.
    Current,
}

impl NodeState {
    /// The state in one word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Ambiguous => "ambiguous",
            Self::Refused => "refused",
            Self::Behind => "behind",
            Self::Differs => "differs",
            Self::Current => "current",
        }
    }
}

impl Fleet {
    /// Reads the statuses of all nodes. `unix` is the time in seconds since 1970-01-01.
    ///
    /// # Errors
    /// etcd does not answer as it should, or a status is not one.
    pub fn read(etcd: &mut Etcd, config: &ClusterConfig, unix: u64) -> Result<Self, FleetError> {
        let prefix = config.prefix();
        let ranges = [below(&format!("{prefix}/status/")), only(&format!("{prefix}/generation"))];
        let (_, mut found) = etcd.ranges(&ranges)?;
        let record = found.pop().and_then(|range| Record::of(&range).0);
        let mut statuses = Vec::new();
        for pair in found.pop().unwrap_or_default().pairs {
            let status = serde_json::from_slice(&pair.value);
            statuses.push(status.map_err(|error| FleetError::Status {
                key: String::from_utf8_lossy(&pair.key).into_owned(),
                place: place(""),
                why: error.to_string(),
            })?);
        }
        Ok(Self::of(prefix, record.map_or(0, |record| record.revision), statuses, unix))
    }

    /// Compares the statuses with each other.
    fn of(prefix: &str, generation: u64, statuses: Vec<Status>, unix: u64) -> Self {
        let age = |status: &Status| unix.saturating_sub(status.at);
        let usual =
            usual(statuses.iter().filter(|s| s.generation == generation && age(s) < SILENT));
        let state = |status: &Status| match status {
            _ if age(status) >= SILENT => NodeState::Silent,
            Status { has_namesake: true, .. } => NodeState::Ambiguous,
            Status { error: Some(_), .. } => NodeState::Refused,
            _ if status.generation != generation => NodeState::Behind,
            _ if usual.as_ref().is_some_and(|usual| *usual != status.checksum) => {
                NodeState::Differs
            }
            _ => NodeState::Current,
        };
        let node = |status: Status| Node { state: state(&status), age_s: age(&status), status };
        let nodes: Vec<Node> = statuses.into_iter().map(node).collect();
        let agrees = !nodes.is_empty() && nodes.iter().all(|node| node.state == NodeState::Current);
        Self { prefix: prefix.into(), generation, agrees, nodes }
    }
}

/// The checksum that most of these nodes have; the smallest one of several.
fn usual<'a>(all: impl Iterator<Item = &'a Status>) -> Option<String> {
    let mut counts = std::collections::BTreeMap::<&str, usize>::new();
    all.for_each(|status| *counts.entry(&status.checksum).or_default() += 1);
    let most = counts.values().max().copied()?;
    counts.into_iter().find(|(_, count)| *count == most).map(|(sum, _)| sum.to_owned())
}

/// The fleet cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// A request has failed.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// A status is not one.
    #[error("{place}{key}: this is not the status of a node: {why}; delete the key")]
    Status {
        /// The key.
        key: String,
        /// What stands before it in messages.
        place: String,
        /// What is wrong.
        why: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_differ_are_named() {
        let status = |node: &str, generation, checksum: &str, at| Status {
            node: node.into(),
            generation,
            checksum: checksum.into(),
            at,
            ..Status::default()
        };
        let refused = Status { error: Some("x:1:1".into()), ..status("r", 8, "a", 100) };
        let all = vec![
            status("a", 9, "b", 100),
            status("b", 9, "b", 99),
            status("c", 9, "a", 100),
            status("d", 8, "b", 100),
            status("e", 9, "b", 85),
            refused,
            Status { has_namesake: true, ..status("n", 9, "b", 100) },
        ];
        let fleet = Fleet::of("/p", 9, all, 100);
        let states: Vec<&str> = fleet.nodes.iter().map(|node| node.state.name()).collect();
        assert_eq!(
            states,
            ["current", "current", "differs", "behind", "silent", "refused", "ambiguous"]
        );
        assert!(!fleet.agrees && fleet.nodes[4].age_s == 15 && fleet.nodes[1].age_s == 1);
        let all = vec![status("a", 9, "b", 100), status("b", 9, "b", 101)];
        assert!(Fleet::of("/p", 9, all, 100).agrees);
        assert!(!Fleet::of("/p", 9, Vec::new(), 100).agrees, "nobody is there");
    }
}
