//! `flowyard trace`: one flow of a running yard through every stage.

use std::fmt::Write as _;
use std::io::{Write, stdout};

use flowyard_operate::protocol::{Request, Trace, TraceRequest};

use crate::show::{AskArgs, refused};
use crate::stop::{Stop, bad_input};

/// Follow one flow of a running yard through every stage, with the reason for each decision.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard trace \"tcp 10.0.0.1:40000 > 10.0.0.2:443\"
  flowyard trace \"udp 10.0.0.1:53 > 10.0.0.2:5353\" --both --count 3 --json
  flowyard trace --drops queue_full

With --drops a flow that loses frames for that reason is found and followed; what is printed is the
life of frames that were dropped for it, with the mend.")]
pub(crate) struct Args {
    /// The flow, as PROTO SRC:PORT > DST:PORT
    #[arg(value_name = "FLOW", required_unless_present = "drops", conflicts_with = "drops")]
    flow: Option<String>,

    /// A reason of drops (see show drops), or any
    #[arg(long, value_name = "REASON")]
    drops: Option<String>,

    /// Follow the other direction too
    #[arg(long)]
    both: bool,

    /// The most frames
    #[arg(long, value_name = "N", default_value_t = 5)]
    count: usize,

    /// How long, at most, in seconds
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    seconds: f64,

    #[command(flatten)]
    ask: AskArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    if !(args.seconds > 0.0 && args.seconds <= 3600.0) || args.count == 0 {
        return Err(bad_input("--seconds: more than 0, and at most 3600; --count: at least 1"));
    }
    let mut yard = args.ask.connect()?;
    let request = Request::Trace(TraceRequest {
        flow: args.flow.clone(),
        drops: args.drops.clone(),
        both: args.both,
        count: args.count,
        seconds: args.seconds,
    });
    let trace: Trace = yard.ask(&request).map_err(refused)?;
    if args.ask.json {
        return args.ask.print("flowyard.trace/2", &trace, |_| Vec::new());
    }
    let mut out = stdout().lock();
    out.write_all(text(&trace).as_bytes())?;
    Ok(out.flush()?)
}

/// Stories below each other; times are since the frame came in.
fn text(trace: &Trace) -> String {
    let mut text = String::new();
    let put = |text: &mut String, line: std::fmt::Arguments<'_>| {
        let _infallible = text.write_fmt(line);
    };
    for (number, story) in (1..).zip(&trace.frames) {
        put(&mut text, format_args!("frame {number}: {}\n", story.outcome));
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
                "{}: in {:.3} s, frames seen to their end: {outcomes}\n",
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
            format_args!(
                "{} events were lost because they came too fast: steps may be missing\n",
                trace.lost_events
            ),
        );
    }
    for core in &trace.silent_cores {
        put(&mut text, format_args!("core {core} did not answer: what it does is not seen\n"));
    }
    text
}
