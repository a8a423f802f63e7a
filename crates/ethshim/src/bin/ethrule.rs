//! Calls `flowyard_host` in a process of its own, so that the shim can be preloaded into it.
//!
//! `ethrule IFACE add` reads rules, one in each line, and prints the location or the error of each;
//! `ethrule IFACE list` prints the rules; `ethrule IFACE delete LOC` deletes one;
//! `ethrule IFACE plan FLOW FILE [QUEUES]` writes a plan that isolates a flow from others, `apply FILE JOURNAL` applies it,
//! and `undo JOURNAL` undoes it.

use std::io::{self, Read, Write};
use std::path::Path;

use flowyard_adapter::rules::parse;
use flowyard_frame::FlowKey;
use flowyard_host::{Failure, Goal, Here, State, Traffic, apply, ntuple, undo};

fn said(failure: &Failure) -> io::Error {
    io::Error::other(failure.to_string())
}

fn key(flow: &str) -> io::Result<FlowKey> {
    flow.parse().map_err(io::Error::other)
}

/// A plan for the traffic of 200 connections to a server.
fn plan(interface: &str, goal: &Goal, file: &str) -> io::Result<()> {
    let one = key("tcp 10.0.0.1:40000 > 10.0.0.2:80")?;
    let mut traffic = Traffic::default();
    for number in 0..200 {
        traffic.count(FlowKey { sport: 1000 + 7 * number, ..one }, false, &[]);
    }
    let state = State::read(&Here, interface)?;
    let plan = flowyard_host::plan(&state, goal, &traffic, "test");
    std::fs::write(file, serde_json::to_string(&plan)?)
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut out = io::stdout().lock();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [interface, "add"] => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text)?;
            let rules =
                parse("stdin", &text).map_err(|errors| io::Error::other(errors[0].clone()))?;
            for rule in rules {
                match ntuple::insert(interface, &rule) {
                    Ok(loc) => writeln!(out, "{loc}")?,
                    Err(error) => writeln!(out, "error {}", error.raw_os_error().unwrap_or(0))?,
                }
            }
            Ok(())
        }
        [interface, "list"] => {
            for listed in ntuple::list(interface)?.rules {
                match listed.rule {
                    Ok(rule) => writeln!(out, "{}", rule.options())?,
                    Err(why) => writeln!(out, "{}: {why}", listed.loc)?,
                }
            }
            Ok(())
        }
        [interface, "delete", loc] => {
            ntuple::delete(interface, loc.parse().map_err(io::Error::other)?)
        }
        [interface, "plan", flow, file] => plan(interface, &Goal::Isolate(key(flow)?), file),
        [interface, "plan", flow, file, queues] => {
            let queues = queues.parse().map_err(io::Error::other)?;
            plan(interface, &Goal::Group(key(flow)?, queues), file)
        }
        [_, "apply", file, journal] => {
            let plan = serde_json::from_str(&std::fs::read_to_string(file)?)?;
            let journal =
                apply(&mut Here, &plan, Path::new(journal)).map_err(|failure| said(&failure))?;
            journal
                .steps()
                .iter()
                .try_for_each(|step| writeln!(out, "{} {}", step.setting, step.to))
        }
        [interface, "undo", journal] => undo(&mut Here, interface, Path::new(journal))
            .map(drop)
            .map_err(|failure| said(&failure)),
        _ => Err(io::Error::other("use: ethrule IFACE add|list|delete|plan|apply|undo")),
    }
}
