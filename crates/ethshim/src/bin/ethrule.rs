//! Calls `flowyard_host::ntuple` in a process of its own, so that the shim can be preloaded into it.
//!
//! `ethrule IFACE add` reads rules, one in each line, and prints the location or the error of each;
//! `ethrule IFACE list` prints the rules; `ethrule IFACE delete LOC` deletes one.

use std::io::{self, Read, Write};

use flowyard_adapter::rules::parse;
use flowyard_host::ntuple;

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
        _ => Err(io::Error::other("use: ethrule IFACE add|list|delete LOC")),
    }
}
