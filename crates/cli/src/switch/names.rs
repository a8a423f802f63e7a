//! Commands that do not exist: what was probably meant, for people who know `ovs-ofctl`.

use crate::stop::{Stop, bad_input};

/// Commands of `ovs-ofctl` that this program has under another name or does not have, and what to do.
const ELSEWHERE: &[(&str, &str)] = &[
    ("queue-get-config", "write queue-stats; the switch of flowyard has no queues"),
    ("meter-features", "write dump-meters; up to 65,536 meters can be added"),
    ("dump-group-features", "write dump-groups; the switch has all four types of groups"),
    ("probe", "write ping --count 1"),
    ("mod-meters", "write mod-meter"),
    ("dump-meter", "write dump-meters SWITCH NUMBER"),
    ("dump-group", "write dump-groups SWITCH NUMBER"),
    ("del-meter", "write del-meters SWITCH NUMBER"),
    ("del-group", "write del-groups SWITCH NUMBER"),
    ("del-flow", "write del-flows --strict"),
    ("mod-flow", "write mod-flows --strict"),
    ("set-frags", "leave it out; fragments are processed like other frames"),
    ("get-frags", "leave it out; fragments are processed like other frames"),
    ("controllers", "write 'flowyard show controllers', which asks over the control socket"),
    ("get-controller", "write 'flowyard show controllers', which asks over the control socket"),
    ("set-controller", "write controllers = [..] in [switch] of the configuration"),
    ("ofproto/trace", "write why FIELDS, which asks over the control socket"),
    ("trace", "write why FIELDS, which asks over the control socket"),
    ("bundle", "write add-flow SWITCH @FILE, which is a bundle"),
    ("parse-flow", "write add-flow; a text that cannot be parsed is refused before it is sent"),
    ("parse-flows", "write add-flows; a file that cannot be parsed is refused before it is sent"),
    ("ofp-parse", "write snoop, which prints messages as they pass"),
    ("ofp-print", "write snoop, which prints messages as they pass"),
    ("benchmark", "write 'flowyard bench'; ping measures the time of an answer"),
    ("ct-flush", "leave it out; the switch tracks no connections"),
    ("add-tlv-map", "leave it out; the switch has no tunnel options"),
    ("dump-tlv-map", "leave it out; the switch has no tunnel options"),
    ("dump-ipfix-bridge", "leave it out; 'flowyard run --metrics' counts frames"),
];

/// The error for the command `words[0]`, which is not among `commands`.
pub(super) fn unknown(words: &[String], commands: &clap::Command) -> Stop {
    let word = words.first().map_or("", String::as_str);
    if word.contains(':') {
        let command = words.get(1).map_or("show", String::as_str);
        return bad_input(format!(
            "'{word}' stands where the command is expected; write the command first: flowyard switch {command} {word}"
        ));
    }
    if let Some((_, fix)) = ELSEWHERE.iter().find(|(name, _)| *name == word) {
        // `dump-meter SWITCH 1`: the fix is the command to write.
        let fix = match words.get(1) {
            Some(switch) => fix.replace("SWITCH", switch),
            None => (*fix).to_owned(),
        };
        let fix = match words.get(2) {
            Some(number) if number.parse::<u32>().is_ok() => fix.replace("NUMBER", number),
            _ => fix,
        };
        return bad_input(format!("there is no command '{word}'; {fix}"));
    }
    let known = commands.get_subcommands().map(clap::Command::get_name);
    let near = known.map(|name| (strsim::osa_distance(word, name), name)).min();
    bad_input(match near {
        Some((edits, name)) if edits <= 3 && edits < word.len() => {
            format!("there is no command '{word}'; did you mean '{name}'?")
        }
        _ => format!("there is no command '{word}'; 'flowyard switch --help' lists the commands"),
    })
}
