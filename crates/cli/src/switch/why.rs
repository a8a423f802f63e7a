//! `flowyard switch why`: the flows that a frame matches, queried over an instance's control socket.

use std::fmt::Write as _;

use flowyard_operate::protocol::{Request, SwitchWhy};

use crate::output;
use crate::show::{AskArgs, refused};
use crate::stop::{Stop, bad_input};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard switch why in_port=west,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tcp_src=40000,tcp_dst=443
  flowyard switch why in_port=1,dl_type=0x0806 --json

The last line is the result: the port by which the frame leaves, or the reason for which it is dropped, as
'flowyard show drops' counts it.")]
pub(super) struct Args {
    /// The frame's fields in the syntax of a match of ovs-ofctl; ports may be given by name
    #[arg(value_name = "FIELDS")]
    flow: String,

    /// Refused; a place for what other commands take after the address of a switch
    #[arg(hide = true)]
    more: Vec<String>,

    #[command(flatten)]
    ask: AskArgs,

    #[command(flatten)]
    _unused: super::connect::Unused,
}

pub(super) fn run(args: &Args) -> Result<(), Stop> {
    let is_address = ["tcp:", "tls:", "unix:"].iter().any(|kind| args.flow.starts_with(kind));
    if is_address || !args.more.is_empty() {
        let extra = if is_address { &args.flow } else { &args.more[0] };
        return Err(bad_input(format!(
            "'{extra}': why takes only the fields, in one argument; --control PATH names the instance"
        )));
    }
    let request = Request::SwitchWhy { flow: args.flow.clone() };
    let why: SwitchWhy = args.ask.connect()?.ask(&request).map_err(refused)?;
    if args.ask.json {
        return output::json(super::document::WHY, &why);
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
    for output in &why.outputs {
        let _infallible = writeln!(text, "{output}");
    }
    text += &why.answer;
    text.push('\n');
    if why.is_offloaded {
        let (known, of) = (why.cached_on_cores, why.answering_cores);
        let cores = if of == 1 { "core has" } else { "cores have" };
        let _infallible = writeln!(text, "{known} of {of} {cores} this lookup in the cache now");
    }
    for what in &why.in_front {
        let _infallible = writeln!(text, "in front: {what}");
    }
    for note in &why.cache_notes {
        let _infallible = writeln!(text, "{note}");
    }
    if !why.result.is_empty() {
        let _infallible = writeln!(text, "result: {}", why.result);
    }
    text
}
