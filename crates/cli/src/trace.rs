//! `flowyard trace`: follows frames of one flow through the stages of a running instance.

use std::fmt::Write as _;

use flowyard_operate::protocol::{Request, Trace, TraceRequest};

use crate::output;
use crate::show::{AskArgs, refused};
use crate::stop::{Stop, bad_input};

/// Name and version of the JSON document; see docs/schema.
pub(crate) const SCHEMA: &str = "flowyard.trace/2";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard trace \"tcp 10.0.0.1:40000 > 10.0.0.2:443\"
  flowyard trace \"udp 10.0.0.1:53 > 10.0.0.2:5353\" --both --count 3 --json
  flowyard trace --drops queue_full

With --drops, the command finds a flow that loses frames for that reason, traces it, and prints the
frames that were dropped for it and how to avoid that.")]
pub(crate) struct Args {
    /// The flow to trace, as 'PROTO SRC:PORT > DST:PORT'
    #[arg(value_name = "FLOW", conflicts_with = "drops")]
    flow: Option<String>,

    /// Trace a flow whose frames are dropped for this reason: one of those that `flowyard show drops`
    /// lists, or any
    #[arg(long, value_name = "REASON")]
    drops: Option<String>,

    /// Also trace the reverse direction of the flow
    #[arg(long)]
    both: bool,

    /// Maximum number of frames to trace
    #[arg(long, value_name = "N", default_value_t = 5)]
    count: usize,

    /// Maximum time to trace, in seconds, at most 3600
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    seconds: f64,

    #[command(flatten)]
    ask: AskArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    if !(args.seconds > 0.0 && args.seconds <= 3600.0) {
        return Err(bad_input("--seconds: must be more than 0 and at most 3600"));
    }
    if args.count == 0 {
        return Err(bad_input("--count: must be at least 1"));
    }
    if args.flow.is_none() && args.drops.is_none() {
        return Err(bad_input(
            "there is nothing to trace; name a flow, such as 'tcp 10.0.0.1:40000 > 10.0.0.2:443', or write --drops \
             REASON (or --drops any) to follow a flow that loses frames",
        ));
    }
    let mut client = args.ask.connect()?;
    let request = Request::Trace(TraceRequest {
        flow: args.flow.clone(),
        drops: args.drops.clone(),
        both: args.both,
        count: args.count,
        seconds: args.seconds,
    });
    let trace: Trace = client.ask(&request).map_err(refused)?;
    if args.ask.json {
        return output::json(SCHEMA, &trace);
    }
    output::text(&text(&trace))
}

/// The trace as text, frame by frame. Times are relative to the frame's first step.
fn text(trace: &Trace) -> String {
    let mut text = String::new();
    let put = |text: &mut String, line: std::fmt::Arguments<'_>| {
        let _infallible = text.write_fmt(line);
    };
    for (number, story) in (1..).zip(&trace.frames) {
        let direction = if story.reverse { " (reverse direction)" } else { "" };
        put(&mut text, format_args!("frame {number}{direction}: {}\n", story.outcome));
        let began = story.steps.first().map_or(0.0, |step| step.at_s);
        for step in &story.steps {
            let after = (step.at_s - began).max(0.0) * 1e6;
            let (core, stage) = (step.core, &step.stage);
            put(
                &mut text,
                format_args!("  {after:>8.0} us  core {core}  {stage:<8} {}\n", step.text),
            );
        }
        if let Some(fix) = &story.fix {
            put(&mut text, format_args!("  fix: {fix}\n"));
        }
        text.push('\n');
    }
    let outcomes: Vec<_> = trace.outcomes.iter().map(|(what, n)| format!("{n} {what}")).collect();
    if !trace.flow.is_empty() {
        let outcomes = if outcomes.is_empty() { "none".into() } else { outcomes.join(", ") };
        put(
            &mut text,
            format_args!(
                "{}: frames traced to their end in {:.3} s: {outcomes}\n",
                trace.flow, trace.seconds
            ),
        );
    }
    if let Some(note) = &trace.note {
        put(&mut text, format_args!("{note}\n"));
    }
    if trace.lost_events > 0 {
        put(
            &mut text,
            format_args!("{} trace events were lost: frames may have gaps\n", trace.lost_events),
        );
    }
    for core in &trace.silent_cores {
        put(&mut text, format_args!("core {core} did not respond: its stages are not shown\n"));
    }
    text
}
