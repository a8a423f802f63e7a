//! The secret of hashes: another one at every start, unless a seed is written; and nobody prints it.

use std::collections::HashSet;
use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

use crate::common::{good, json, refused, run, text};

flowyard_testkit::tests! {
    each_start_hashes_differently_unless_a_seed_is_written,
    a_simulation_repeats_whatever_is_drawn,
    a_cluster_without_a_common_seed_is_refused,
    a_balancer_says_that_its_seed_was_drawn,
}

const QUEUES: usize = 8;
const FLOWS: u16 = 400;

/// A yard that distributes many flows over queues by their receive hash.
fn config(folder: &Path, yard: &str) -> String {
    let mut toml = format!(
        "[yard]\n{yard}\n[[port]]\nname = \"west\"\nkind = \"mem\"\n\
         [work]\nkind = \"forward\"\nports = {{ west = \"west\" }}\n"
    );
    for n in 0..QUEUES {
        write!(toml, "[[queue]]\nname = \"q{n}\"\norder = \"direct\"\nconsumers = [0]\n").unwrap();
    }
    for n in 0..FLOWS {
        let port = 1000 + n;
        let flow = format!("udp 10.0.0.1:{port} > 10.0.0.2:80");
        write!(toml, "[[send]]\nport = \"west\"\nflow = \"{flow}\"\ncount = 1\n").unwrap();
    }
    let path = folder.join("yard.toml");
    std::fs::write(&path, toml).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The frames that entered each queue.
fn entered(config: &str) -> Vec<u64> {
    let run: Value = json(["run", config, "--json", "--control", "none", "--log", "error"]);
    let queues = run["queues"].as_array().unwrap().iter();
    let counts: Vec<u64> = queues
        .filter(|queue| queue["tx"] == false)
        .map(|queue| queue["enqueued"].as_u64().unwrap())
        .collect();
    assert_eq!((counts.len(), counts.iter().sum::<u64>()), (QUEUES, u64::from(FLOWS)), "{run}");
    counts
}

fn each_start_hashes_differently_unless_a_seed_is_written() {
    let folder = tempfile::tempdir().unwrap();
    // Two starts give equal counts in eight queues with a probability of about 10^-6.
    let drawn = config(folder.path(), "");
    let starts: HashSet<Vec<u64>> = (0..3).map(|_| entered(&drawn)).collect();
    assert!(starts.len() > 1, "{starts:?}");
    let written = config(folder.path(), "seed = 1");
    let starts: HashSet<Vec<u64>> = (0..3).map(|_| entered(&written)).collect();
    assert_eq!(starts.len(), 1, "{starts:?}");
}

fn a_simulation_repeats_whatever_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let path = config(folder.path(), "");
    let mut toml = std::fs::read_to_string(&path).unwrap();
    let written = config(folder.path(), "seed = 1");
    let counts = entered(&written);
    let names = counts.iter().enumerate().map(|(n, count)| format!("q{n} = {count}"));
    let names: Vec<String> = names.collect();
    write!(
        toml,
        "[sim]\nseeds = 3\n[expect]\nsent = {{ west = {FLOWS} }}\nqueue = {{ {} }}\n",
        names.join(", ")
    )
    .unwrap();
    let path = folder.path().join("scenario.toml");
    std::fs::write(&path, toml).unwrap();
    good(&run(["run", path.to_str().unwrap(), "--simulate"]));
}

/// A balancer with these settings.
fn balancer(folder: &Path, settings: &str) -> String {
    let path = folder.join("balancer.toml");
    let toml = format!(
        "[[port]]\nname = \"net\"\nkind = \"mem\"\n\
         [[queue]]\nname = \"q\"\norder = \"atomic\"\nconsumers = [0]\n\
         [work]\nkind = \"balance\"\n[balance]\n{settings}\n\
         [[service]]\nname = \"web\"\nvip = \"192.0.2.1\"\nproto = \"tcp\"\nport = 80\nmode = \"dsr\"\n\
         backend = [{{ name = \"a\", addr = \"10.0.0.1\", exit = {{ port = \"net\", next_hop = \"02:00:00:00:00:01\" }} }}]\n\
         [[send]]\nport = \"net\"\nflow = \"tcp 10.0.0.9:1000 > 192.0.2.1:80\"\ncount = 1\n"
    );
    std::fs::write(&path, toml).unwrap();
    path.to_str().unwrap().to_owned()
}

fn a_cluster_without_a_common_seed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let said = |settings: &str| {
        refused(&run(["run", &balancer(folder.path(), settings), "--control", "none"]))
    };
    let missing = said("cluster = true");
    assert!(missing.contains("[balance] has no 'seed'"), "{missing}");
    assert!(missing.contains("openssl rand"), "the fix: {missing}");
    assert!(said("cluster = true\nseed = 7").contains("can be guessed"));
}

fn a_balancer_says_that_its_seed_was_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let log = |settings: &str| {
        let config = balancer(folder.path(), settings);
        let output = run(["run", &config, "--control", "none"]);
        assert!(output.status.success(), "{output:?}");
        text(&output.stderr)
    };
    let drawn = log("");
    assert!(drawn.contains("write 'seed' in [balance] to keep the choice"), "{drawn}");
    let seed = "81985529216486895";
    let written = log(&format!("cluster = true\nseed = {seed}"));
    assert!(!written.contains("was drawn") && !written.contains(seed), "{written}");
}
