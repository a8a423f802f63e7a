//! Every parser of input from outside has a fuzz target.
//!
//! Parsers are found by name: public functions `parse` and `decode`, functions that begin with these
//! words, and implementations of `FromStr`. Others are listed by hand in [`FUZZED`].

use super::{File, Finding, scan};

/// A parser, by crate and name, and the fuzz target that calls it by this text.
struct Parser {
    krate: &'static str,
    name: &'static str,
    target: &'static str,
    call: &'static str,
}

const fn row(
    krate: &'static str,
    name: &'static str,
    target: &'static str,
    call: &'static str,
) -> Parser {
    Parser { krate, name, target, call }
}

const FUZZED: &[Parser] = &[
    row("adapter", "parse", "text", "rules::parse"),
    row("adapter", "parse", "text", "tenants::parse"),
    row("adapter", "parse_ethtool", "text", "rss::parse_ethtool"),
    row("analyze", "Consumers", "text", "same_again::<Consumers>"),
    row("analyze", "Local", "text", "same_again::<Local>"),
    row("config", "Endpoint", "text", "same_again::<Endpoint>"),
    row("config", "Url", "text", "same_again::<Url>"),
    row("config", "parse", "config", "Config::parse"),
    row("config", "recompose", "provider", "old.recompose"),
    row("frame", "FlowKey", "text", "same_again::<FlowKey>"),
    row("host", "decode", "images", ".decode()"),
    row("host", "parse", "plans", "Plan::parse"),
    row("host", "parse", "plans", "journal::parse"),
    row("hostsim", "parse", "config", "Profile::parse"),
    row("ipsec", "kind", "ipsec", "esp::kind"),
    row("ipsec", "policies", "ipsec", "xfrm::policies"),
    row("ipsec", "states", "ipsec", "xfrm::states"),
    row("lb", "quoted", "balance", "icmp::quoted"),
    row("lb", "route", "balance", "route(data)"),
    row("memif", "decode", "memif", "Message::decode"),
    row("nicsim", "Freq", "text", "parse::<Freq>"),
    row("nicsim", "decode", "images", "trace::decode"),
    row("nicsim", "parse", "config", "flowyard_nicsim::Config::parse"),
    row("nicsim", "parse", "images", "Image::parse"),
    row("operate", "read", "sync", "read(data)"),
    row("openflow", "bucket_edit", "text", "ofctl::bucket_edit"),
    row("openflow", "decode", "openflow", "decode(wire)"),
    row("openflow", "feed", "channel", "session.feed"),
    row("openflow", "filter", "text", "ofctl::filter"),
    row("openflow", "flow", "text", "ofctl::flow"),
    row("openflow", "group", "text", "ofctl::group"),
    row("openflow", "handle", "channel", "agent.handle"),
    row("openflow", "meter", "text", "ofctl::meter"),
    row("openflow", "packet_out", "text", "ofctl::packet_out"),
    row("ports", "Pace", "text", "parse::<Pace>"),
    row("ports", "Rule", "text", "parse::<Rule>"),
    row("ports", "open", "captures", "Reader::new"),
    row("report", "parse", "config", "Spec::parse"),
    row("rfc2544", "Genome", "text", "same_again::<Genome>"),
    row("rfc2544", "read", "images", "tag::read"),
    row("scenario", "parse", "config", "Scenario::parse"),
    row("switch", "process", "switch", "datapath.process"),
    row("wire", "from_virtio", "offload", "Offload::from_virtio"),
    row("wire", "levels", "headers", "Headers::levels"),
    row("wire", "parse", "headers", "Control::parse"),
    row("wire", "parse", "headers", "FcFrame::parse"),
    row("wire", "parse", "headers", "Headers::levels"),
];

/// Parsers without a fuzz target: crate, name, reason.
const UNFUZZED: &[(&str, &str, &str)] = &[(
    "operate",
    "Endpoint",
    "an address in the operator's own configuration; the crate would bring TLS into the fuzz build",
)];

const TABLE: &str = "xtask/src/tidy/parsers.rs";

pub(super) fn check(files: &[File], findings: &mut Vec<Finding>) {
    let text = |path: &str| files.iter().find(|file| file.path == path).map(|file| &*file.text);
    let manifest = text("fuzz/Cargo.toml").unwrap_or_default();
    for Parser { krate, name, target, call } in FUZZED {
        let mut wrong = |path: &str, what: String| {
            findings.push(Finding::new("fuzz-targets", path, 0, what));
        };
        if !manifest.contains(&format!("\nname = \"{target}\"\n")) {
            wrong("fuzz/Cargo.toml", format!("no target '{target}', which {krate}::{name} needs"));
        }
        let path = format!("fuzz/src/{target}.rs");
        if !text(&path).is_some_and(|text| text.contains(call)) {
            wrong(&path, format!("'{call}' is not called, so that {krate}::{name} is not fuzzed"));
        }
    }
    let all = FUZZED.iter().map(|row| (row.krate, row.name));
    for (krate, name) in all.chain(UNFUZZED.iter().map(|row| (row.0, row.1))) {
        if !files.iter().any(|file| file.crate_source() == Some(krate) && defines(&file.text, name))
        {
            let what = format!("there is no parser {krate}::{name}: change or remove its row");
            findings.push(Finding::new("fuzz-targets", TABLE, 0, what));
        }
    }
    for file in files.iter().filter(|file| file.is_rust() && !file.is_test()) {
        let Some(krate) = file.crate_source() else { continue };
        let code = scan::code(&file.text);
        for (line, name) in parsers(&String::from_utf8_lossy(&code)) {
            let is_known = FUZZED.iter().any(|row| (row.krate, row.name) == (krate, name))
                || UNFUZZED.iter().any(|row| (row.0, row.1) == (krate, name));
            if !is_known {
                let what = format!(
                    "{krate}::{name} parses, but is in no fuzz target: call it from one, and add a \
                     row to {TABLE}"
                );
                findings.push(Finding::new("fuzz-targets", &file.path, line, what));
            }
        }
    }
}

fn defines(text: &str, name: &str) -> bool {
    let has = |head: &str| {
        let begin = format!("{head}{name}");
        text.match_indices(&begin).any(|(at, _)| {
            !text[at + begin.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_')
        })
    };
    has("fn ") || has("FromStr for ")
}

/// Public parsers of a file: the line and the name.
fn parsers(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(code.lines()) {
        let line = line.trim_start();
        let name = |rest: &'_ str| rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        if let Some((_, rest)) = line.split_once("FromStr for ") {
            found.push((number, &rest[..name(rest).unwrap_or(rest.len())]));
        } else if let Some(rest) = line.strip_prefix("pub fn ") {
            let name = &rest[..name(rest).unwrap_or(rest.len())];
            let is_parser = ["parse", "decode"].iter().any(|word| {
                name.strip_prefix(word).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
            });
            if is_parser {
                found.push((number, name));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_functions_are_parsers() {
        let code = "    pub fn parse(text: &str) {}\npub(crate) fn parse_a() {}\npub fn parsed() {}\n\
                    pub fn decode_all<T>() {}\nimpl std::str::FromStr for Flow {\n";
        assert_eq!(parsers(code), [(1, "parse"), (4, "decode_all"), (5, "Flow")]);
    }

    #[test]
    fn definitions() {
        assert!(defines("pub fn read(a: u8)", "read"));
        assert!(!defines("pub fn reader(a: u8)", "read"));
        assert!(defines("impl FromStr for A {", "A"));
    }
}
