//! `flowyard switch why`: the flows that a frame matches, queried over an instance's control socket.

use std::fmt::Write as _;

use flowyard_operate::protocol::{Request, SwitchWhy};

use crate::output;
use crate::show::{AskArgs, refused};
use crate::stop::Stop;

/// Name and version of the JSON document.
pub(crate) const SCHEMA: &str = "flowyard.switch.why/2";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard switch why in_port=west,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tcp_src=40000,tcp_dst=443
  flowyard switch why in_port=1,dl_type=0x0806 --json")]
pub(super) struct Args {
    /// The frame's fields in the syntax of a match of ovs-ofctl; ports may be given by name
    #[arg(value_name = "FIELDS")]
    flow: String,

    #[command(flatten)]
    ask: AskArgs,
}

pub(super) fn run(args: &Args) -> Result<(), Stop> {
    let request = Request::SwitchWhy { flow: args.flow.clone() };
    let why: SwitchWhy = args.ask.connect()?.ask(&request).map_err(refused)?;
    if args.ask.json {
        return output::json(SCHEMA, &why);
    }
    output::text(&text(&why))
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
            writeln!(text, "{known} of {of} cores have this lookup in their cache now");
    }
    for note in &why.cache_notes {
        let _infallible = writeln!(text, "{note}");
    }
    text
}
