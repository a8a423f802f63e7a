//! `flowyard fleet`: the balancers that share their services by etcd, by the statuses that they write there.
//!
//! The exit status is 1 unless all of them use the newest generation with the same tables.

use std::path::PathBuf;

use flowyard_config::{ClusterConfig, ProviderKind};
use flowyard_operate::cluster::Etcd;
use flowyard_operate::cluster::fleet::{Fleet, FleetError, Node, NodeState};
use flowyard_report::{Cell, Column, Table, Tone};

use crate::clock;
use crate::output::{self, style};
use crate::stop::{Stop, bad_input};

/// Name and version of the JSON document.
pub(crate) const SCHEMA: &str = "flowyard.fleet/1";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard fleet --config lb.toml
  flowyard fleet --config lb.toml --json

A node writes its status every 5 seconds. Without one for 15 seconds it is silent. The file needs
only the section [cluster] with 'endpoints'; see docs/fleet.md.

The exit status is 0 if all nodes use the newest generation with the same tables, and 1 if one of
them does not, if no node has written a status, or if etcd cannot be read.")]
pub(crate) struct Args {
    /// Configuration whose section 'cluster' names etcd
    #[arg(long, value_name = "FILE")]
    config: PathBuf,

    /// Print JSON (schema flowyard.fleet/1) instead of a table
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    let config = ClusterConfig::read(&args.config).map_err(bad_input)?;
    if *config.kind.get_ref() != ProviderKind::Etcd {
        return Err(bad_input(format!(
            "{}: nodes write their statuses into etcd, and [cluster] has kind = \"{}\"; compare the metrics \
             flowyard_cluster_generation and flowyard_cluster_refused of the nodes",
            args.config.display(),
            config.kind.get_ref().word(),
        )));
    }
    let mut etcd = Etcd::new(&config, clock::new()).map_err(bad_input)?;
    let fleet = Fleet::read(&mut etcd, &config, clock::unix()).map_err(|error| match error {
        FleetError::Etcd(error) => {
            let fix = "check that etcd runs, and 'endpoints' in [cluster]";
            Stop::Failed(anyhow::anyhow!(
                "reading the statuses of the nodes from etcd: {error}; {fix}"
            ))
        }
        error @ FleetError::Status { .. } => bad_input(error),
    })?;
    match args.json {
        true => output::json(SCHEMA, &fleet)?,
        false => output::text(&text(&fleet))?,
    }
    verdict(&fleet)
}

/// A fleet whose nodes do not agree is a failure, so that scripts and monitoring see it by the exit status.
fn verdict(fleet: &Fleet) -> Result<(), Stop> {
    if fleet.agrees {
        return Ok(());
    }
    let others = fleet.nodes.iter().filter(|node| node.state != NodeState::Current);
    let others: Vec<_> =
        others.map(|node| format!("{} ({})", node.status.node, node.state.name())).collect();
    let why = match others.is_empty() {
        true => "no node has written a status".into(),
        false => format!("the nodes do not agree: {}", others.join(", ")),
    };
    Err(Stop::Failed(anyhow::anyhow!(why)))
}

fn text(fleet: &Fleet) -> String {
    if fleet.nodes.is_empty() {
        return format!("no node has written a status below {}/status/\n", fleet.prefix);
    }
    let mut table = Table::new("Nodes")
        .column(Column::text("node"))
        .column(Column::text("state"))
        .column(Column::number("generation"))
        .column(Column::text("checksum"))
        .column(Column::number("services"))
        .column(Column::text("backends up"))
        .column(Column::number("status age").unit("s"));
    for Node { state, age_s, status } in &fleet.nodes {
        let tone = if *state == NodeState::Current { Tone::Good } else { Tone::Bad };
        table.push(vec![
            Cell::new(status.node.clone()).tone(Tone::Strong),
            Cell::new(state.name()).tone(tone),
            Cell::new(status.generation.to_string()),
            Cell::new(status.checksum.clone()),
            Cell::new(status.services.to_string()),
            Cell::new(format!("{} of {}", status.backends_up, status.backends)),
            Cell::new(age_s.to_string()),
        ]);
    }
    let notes: String = fleet.nodes.iter().flat_map(notes).collect();
    let end = match fleet.agrees {
        true => format!("all nodes use generation {} with the same tables\n", fleet.generation),
        false => format!("the newest generation is {}\n", fleet.generation),
    };
    table.to_text(&style()) + &notes + &end
}

/// What the operator has to know about a node beside its row.
fn notes(node: &Node) -> Vec<String> {
    let (name, status) = (&node.status.node, &node.status);
    let mut all = Vec::new();
    match node.state {
        NodeState::Silent => all.push(format!(
            "{name} has written no status for {} s: it has ended, or cannot reach etcd\n",
            node.age_s
        )),
        NodeState::Behind => {
            all.push(format!("{name} still uses generation {}\n", status.generation));
        }
        NodeState::Differs => all.push(format!(
            "{name} has other tables than the other nodes: compare 'seed' and 'entries' in [balance] and the services in its file\n"
        )),
        NodeState::Ambiguous => all.push(format!(
            "several instances write their status as {name}: give each machine a 'node' of its own in [cluster]\n"
        )),
        NodeState::Refused | NodeState::Current => {}
    }
    if let Some(error) = &status.error {
        all.push(format!("{name} refuses generation {}: {error}\n", status.seen));
    }
    if status.is_from_file {
        all.push(format!("{name} uses the last good services of its own file\n"));
    }
    for service in &status.services_down {
        all.push(format!("{name}: every backend of service '{service}' is down\n"));
    }
    all
}
