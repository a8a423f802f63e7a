//! `flowyard bench compare`: two results of one method, with ratios.

use std::path::PathBuf;

use flowyard_rfc2544::document::compare;

use crate::output::{self, style};
use crate::stop::{Stop, bad_input};

/// Name and version of the document.
pub(crate) const SCHEMA: &str = "flowyard.bench-compare/2";

#[derive(clap::Args)]
#[command(after_help = "Example:\n  flowyard bench compare a.json b.json")]
pub(crate) struct Args {
    /// First result: the output of a bench method with --json
    a: PathBuf,

    /// Second result, of the same method; ratios are B divided by A
    b: PathBuf,

    /// Print JSON (schema flowyard.bench-compare/2) instead of a table
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Stop> {
    let (a, b) = (super::rank::read(&args.a)?, super::rank::read(&args.b)?);
    let both = compare(&a, &b).map_err(bad_input)?;
    if args.json {
        return output::json(SCHEMA, both);
    }
    output::text(&both.table().to_text(&style()))
}
