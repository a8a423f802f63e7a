//! `provider`: any text as what a provider of services has: a document of `[[service]]` tables, or keys with their values.
//!
//! ```text
//!  [[service]] ...           the document, which has no key
//!  @config/services/web      a key; its value follows, up to the next key
//! ```

use std::sync::OnceLock;

use crate::{Limits, Line};
use flowyard_config::{Config, Fragment};

/// The file is read for each of two configurations, and once more for the first input. The plan of a reload resolves both. A
/// parser of TOML collects the errors of a whole text before it reports the first.
pub const LIMITS: Limits = Limits {
    blocks: Line { input: 1_500_000, byte: 10_000 },
    bytes: Line { input: 500_000, byte: 4000 },
};

/// The file of a machine, which has a service of its own.
const FILE: &str = r#"
[[port]]
name = "net"
kind = "mem"
in = "given"

[[queue]]
name = "q"
order = "atomic"
consumers = [0]

[work]
kind = "balance"

[balance]
entries = 251
seed = 0x123456789abcde
local = ["10.9.0.1"]
clients = { port = "net", next_hop = "02:00:00:00:00:09" }

[cluster]
kind = "http"
url = "http://127.0.0.1/services.toml"
state = "services.json"

[[service]]
name = "local"
vip = "192.0.2.9"
proto = "tcp"
port = 80
mode = "dsr"
"#;

fn file() -> &'static Config {
    static OLD: OnceLock<Config> = OnceLock::new();
    OLD.get_or_init(|| Config::parse("lb.toml", FILE).expect("the file is right"))
}

/// Composes the services in `bytes` with those of a file.
///
/// # Panics
/// When the composition panics, when an error has no place, or when what is accepted has an effect on anything but services.
pub fn provider(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut parts = text.split("\n@");
    let document = parts.next().filter(|text| !text.trim().is_empty());
    let document = document.map(|text| Fragment { key: String::new(), text: text.into() });
    let keys = parts.map(|part| {
        let (key, text) = part.split_once('\n').unwrap_or((part, ""));
        Fragment { key: key.into(), text: text.into() }
    });
    let mut fragments: Vec<Fragment> = document.into_iter().chain(keys).collect();
    let old = file();
    let new = old.recompose("provider", &fragments);
    let is_empty = fragments.iter().all(Fragment::is_empty);
    fragments.reverse();
    let reversed = old.recompose("provider", &fragments);
    match (new, reversed) {
        (Ok(new), Ok(reversed)) => {
            let services = new.services().expect("they were checked");
            assert_eq!(services, reversed.services().expect("they were checked"));
            assert_eq!(services[0], old.services().expect("they were checked")[0]);
            assert_eq!(services.len() == 1, is_empty, "what has no service is known");
            assert!(!new.runs_commands(), "a provider does not run programs");
            let plan = old
                .reload(&new)
                .expect("services need no restart, with a port that carries nothing");
            assert_eq!(plan.tables, flowyard_yard::Reload::default());
            assert_eq!(plan.services.is_none(), is_empty);
        }
        (Err(one), Err(other)) => {
            assert_eq!(one, other, "the order has no effect");
            assert!(one.line > 0 && !one.what.is_empty() && !one.fix.is_empty(), "{one}");
        }
        (new, reversed) => panic!("the order has an effect: {:?} {:?}", new.err(), reversed.err()),
    }
}

#[cfg(test)]
mod tests {
    use crate::bounded;

    /// The seeds, with each line left out, doubled or cut, within the limits.
    #[test]
    fn changed_seeds() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/seeds/provider");
        let mut seeds = 0;
        for entry in std::fs::read_dir(folder).expect("the folder can be read").flatten() {
            let seed = std::fs::read_to_string(entry.path()).expect("text");
            let run = |text: &str| bounded(super::LIMITS, text.as_bytes(), super::provider);
            run(&seed);
            for line in seed.lines().filter(|line| !line.is_empty()) {
                run(&seed.replacen(line, "", 1));
                run(&seed.replacen(line, &format!("{line}\n{line}"), 1));
                run(&seed.replacen(line, &line[..line.len() / 2], 1));
                run(&seed.replacen(line, &line.replace(|c: char| c.is_ascii_digit(), "7"), 1));
            }
            seeds += 1;
        }
        assert!(seeds >= 4, "the seeds are there");
    }
}
