//! `flowyard lb`: queries and changes a running load balancer over its control socket.

use std::time::Duration;

use clap::Subcommand;
use flowyard_operate::client::Client;
use flowyard_operate::protocol::{Lb, LbChange, LbRoutes, LbTrace, Request};

use crate::output;
use crate::show::{AskArgs, refused};
use crate::stop::{Stop, bad_input};

pub(crate) mod connections;
pub(crate) mod import;
pub(crate) mod tables;

/// Names and versions of the JSON documents.
pub(crate) const SHOW: &str = "flowyard.lb.show/2";
pub(crate) const TRACE: &str = "flowyard.lb.trace/2";
pub(crate) const CHANGE: &str = "flowyard.lb.change/2";
pub(crate) const ROUTES: &str = "flowyard.lb.routes/1";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard lb show
  flowyard lb trace \"tcp 203.0.113.7:40000 > 192.0.2.1:443\"
  flowyard lb connections web --client 203.0.113.0/24
  flowyard lb drain web/a
  flowyard lb drain web/a --undo
  flowyard lb set-weight web/a 10
  flowyard lb withdraw
  flowyard lb import keepalived.conf

A change made by drain or set-weight lasts until it is undone, the backend is removed from the
configuration, or the instance ends. A reload (SIGHUP) does not undo it.")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show services and backends: health, weights, connections, packets, table checksums
    Show(ShowArgs),
    /// Show which backend a flow goes to, and why
    Trace(TraceArgs),
    /// List the connections in the tables, or count them by service, backend or client
    Connections(connections::Args),
    /// Stop sending new connections to a backend; its existing connections stay
    Drain(DrainArgs),
    /// Set the weight of a backend: its share of new connections
    SetWeight(WeightArgs),
    /// Convert services of IPVS or keepalived into sections of a configuration
    Import(import::Args),
    /// Withdraw the routes to all VIPs, so that routers send new packets to other machines
    Withdraw(WithdrawArgs),
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard lb show
  flowyard lb show web --interval 1
  flowyard lb show --json")]
struct ShowArgs {
    /// Show only this service [default: all]
    #[arg(value_name = "SERVICE")]
    service: Option<String>,

    /// Read the counters twice, this many seconds apart (0.05 to 3600), and print rates per second
    /// [default: print totals]
    #[arg(long, value_name = "SECONDS")]
    interval: Option<f64>,

    #[command(flatten)]
    ask: AskArgs,
}

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  flowyard lb trace \"tcp 203.0.113.7:40000 > 192.0.2.1:443\"")]
struct TraceArgs {
    /// The flow as the client sends it, as 'PROTO SRC:PORT > DST:PORT'
    #[arg(value_name = "FLOW")]
    flow: String,

    #[command(flatten)]
    ask: AskArgs,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard lb drain web/a
  flowyard lb drain web/a --undo")]
struct DrainArgs {
    /// The backend, as SERVICE/BACKEND
    #[arg(value_name = "SERVICE/BACKEND")]
    backend: String,

    /// Undo: send new connections to the backend again
    #[arg(long)]
    undo: bool,

    #[command(flatten)]
    ask: AskArgs,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard lb set-weight web/a 10
  flowyard lb set-weight web/a --undo")]
struct WeightArgs {
    /// The backend, as SERVICE/BACKEND
    #[arg(value_name = "SERVICE/BACKEND")]
    backend: String,

    /// The new weight, 0 to 1000000, relative to those of the service's other backends
    #[arg(
        value_name = "N",
        required_unless_present = "undo",
        conflicts_with = "undo",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(0..=1_000_000)
    )]
    weight: Option<u32>,

    /// Return to the configured weight
    #[arg(long)]
    undo: bool,

    #[command(flatten)]
    ask: AskArgs,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard lb withdraw
  flowyard lb withdraw --undo

The instance goes on to forward what it receives. The configuration must have
[balance.announce]; see docs/routes.md.")]
struct WithdrawArgs {
    /// Undo: announce the VIPs again whose services have backends
    #[arg(long)]
    undo: bool,

    #[command(flatten)]
    ask: AskArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    match &args.command {
        Command::Show(args) => show(args),
        Command::Trace(args) => {
            let request = Request::LbTrace { flow: args.flow.clone() };
            let trace: LbTrace = args.ask.connect()?.ask(&request).map_err(refused)?;
            print(&args.ask, TRACE, &trace, trace_text)
        }
        Command::Drain(args) => {
            let (service, backend) = split(&args.backend)?;
            change(&args.ask, &Request::LbDrain { service, backend, undo: args.undo })
        }
        Command::SetWeight(args) => {
            let (service, backend) = split(&args.backend)?;
            change(&args.ask, &Request::LbWeight { service, backend, weight: args.weight })
        }
        Command::Connections(args) => connections::run(args),
        Command::Import(args) => import::run(args),
        Command::Withdraw(args) => {
            let request = Request::LbWithdraw { undo: args.undo };
            let routes: LbRoutes = args.ask.connect()?.ask(&request).map_err(refused)?;
            args.ask.print(ROUTES, &routes, |routes| vec![tables::routes(&routes.routes)])
        }
    }
}

fn show(args: &ShowArgs) -> Result<(), Stop> {
    if args.interval.is_some_and(|span| !(0.05..=3600.0).contains(&span)) {
        return Err(bad_input("--interval: must be 0.05 to 3600 seconds"));
    }
    let mut client = args.ask.connect()?;
    let mut before = None;
    if let Some(span) = args.interval {
        before = Some(query(&mut client, args.service.as_deref())?);
        std::thread::sleep(Duration::from_secs_f64(span));
    }
    let now = query(&mut client, args.service.as_deref())?;
    args.ask.print(SHOW, &now, |now| tables::all(now, before.as_ref()))
}

fn query(client: &mut Client, service: Option<&str>) -> Result<Lb, Stop> {
    let mut all: Lb = client.ask(&Request::Lb).map_err(refused)?;
    if let Some(name) = service {
        let names: Vec<_> = all.services.iter().map(|service| service.name.clone()).collect();
        all.services.retain(|service| service.name == name);
        if all.services.is_empty() {
            let names = names.join(", ");
            return Err(bad_input(format!("there is no service '{name}'; choose one of {names}")));
        }
    }
    Ok(all)
}

/// Splits SERVICE/BACKEND.
fn split(text: &str) -> Result<(String, String), Stop> {
    match text.split_once('/') {
        Some((service, backend)) if !service.is_empty() && !backend.is_empty() => {
            Ok((service.into(), backend.into()))
        }
        _ => Err(bad_input(format!("'{text}' is not a backend; write SERVICE/BACKEND, as web/a"))),
    }
}

fn change(ask: &AskArgs, request: &Request) -> Result<(), Stop> {
    let change: LbChange = ask.connect()?.ask(request).map_err(refused)?;
    print(ask, CHANGE, &change, change_text)
}

/// Prints an answer as JSON or as text.
fn print<T: serde::Serialize>(
    ask: &AskArgs,
    schema: &'static str,
    answer: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<(), Stop> {
    if ask.json {
        return output::json(schema, answer);
    }
    output::text(&text(answer))
}

fn trace_text(trace: &LbTrace) -> String {
    let mut text = match (&trace.backend, &trace.service) {
        (Some(backend), Some(service)) => format!("{}: {service}/{backend}\n", trace.flow),
        (None, Some(service)) => format!("{}: {service}, {}\n", trace.flow, trace.why),
        _ => format!("{}: {}\n", trace.flow, trace.why),
    };
    for step in &trace.steps {
        text += &format!("  {step}\n");
    }
    if let Some(drop) = &trace.drop_reason {
        text += &format!("  dropped: {drop}\n");
    }
    if let Some(fix) = &trace.fix {
        text += &format!("  fix: {fix}\n");
    }
    text
}

fn change_text(change: &LbChange) -> String {
    let LbChange { service, backend, generation, state, weight, connections, .. } = change;
    let note = change.note.as_ref().map_or_else(String::new, |note| format!("note: {note}\n"));
    format!(
        "{service}/{backend} is {state}: current weight {weight}, {connections} connections (table generation {generation})\n{note}"
    )
}
