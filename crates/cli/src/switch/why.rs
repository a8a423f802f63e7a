//! `flowyard switch why`: what becomes of a frame, asked on the yard's control socket.

use std::fmt::Write as _;
use std::io::{Write, stdout};

use flowyard_operate::protocol::{Request, SwitchWhy};

use crate::show::{AskArgs, refused};
use crate::stop::Stop;

/// The schema of what is printed with --json.
const SCHEMA: &str = "flowyard.switch.why/2";

/// Says which flows a frame meets.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard switch why in_port=west,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tcp_src=40000,tcp_dst=443
  flowyard switch why in_port=1,dl_type=0x0806 --json")]
pub(super) struct Args {
    /// The frame's fields as ovs-ofctl writes a match; ports may have their names
    #[arg(value_name = "FLOW")]
    flow: String,

    #[command(flatten)]
    ask: AskArgs,
}

pub(super) fn run(args: &Args) -> Result<(), Stop> {
    let request = Request::SwitchWhy { flow: args.flow.clone() };
    let why: SwitchWhy = args.ask.connect()?.ask(&request).map_err(refused)?;
    if args.ask.json {
        return args.ask.print(SCHEMA, &why, |_| Vec::new());
    }
    let mut out = stdout().lock();
    out.write_all(text(&why).as_bytes())?;
    Ok(out.flush()?)
}

fn text(why: &SwitchWhy) -> String {
    let mut text = String::new();
    for met in &why.flows {
        let _infallible = writeln!(text, "{} (offloaded: {} frames)", met.flow, met.offloaded);
    }
    if let Some(table) = why.miss_table {
        let _infallible = writeln!(text, "table {table}: no flow matches");
    }
    text += &why.answer;
    text.push('\n');
    if why.is_offloaded {
        let (known, of) = (why.cached_on_cores, why.answering_cores);
        let _infallible =
            writeln!(text, "a frame like it is in the caches of {known} of {of} cores now");
    }
    for note in &why.cache_notes {
        let _infallible = writeln!(text, "{note}");
    }
    text
}
