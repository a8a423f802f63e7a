//! Changes of the configuration in etcd, right and wrong ones.

use super::super::changes::empty;
use super::super::store::backend;
use super::topology::{BALANCERS, Fleet, until_up};
use super::{WEB, clock};

/// Cycles of ten changes.
const CYCLES: u64 = 10;

/// A hundred changes: weights, drains, and a backend that is added and removed. They end where they began, so the tables
/// do, too, and connections that were opened before stay with the backends that Maglev names.
pub(crate) fn hundred(fleet: &mut Fleet) -> String {
    let before = fleet.until_current(0);
    let mut longest = 0;
    for cycle in 1..=CYCLES {
        ten(fleet, cycle, &mut longest);
    }
    let (last, checksum) = fleet.until_current(0);
    assert_eq!(checksum, before.1, "equal services have equal tables");
    until_up(fleet, 3);
    format!(
        "generations {} to {last}, all nodes with checksum {checksum}; until all nodes had a change {longest} ms at most, with \
         looks every 100 ms",
        before.0
    )
}

/// Ten changes: two weights, a backend drained in each service, another one added to both, the drains undone, and the
/// new backend drained and removed when it is empty. Waits after each of them until all nodes have it.
fn ten(fleet: &Fleet, cycle: u64, longest: &mut u64) {
    let keys = fleet.keys();
    let mut change = |what: &dyn Fn() -> u64| {
        let clock = clock();
        fleet.until_current(what());
        *longest = (*longest).max(clock() / 1_000_000);
    };
    let weight = match cycle {
        CYCLES => String::new(), // as at the beginning
        _ => format!("weight = {}", 1 + cycle % 5),
    };
    let fourth = WEB.map(|family| backend(family, 4, ""));
    change(&|| keys.put_one(WEB[0], 1, &weight));
    change(&|| keys.put_one(WEB[1], 2, &weight));
    change(&|| keys.put_one(WEB[0], 3, "drain = true"));
    change(&|| keys.put_one(WEB[1], 3, "drain = true"));
    change(&|| keys.at_once(&fourth.clone().map(|(key, value)| (key, Some(value)))));
    change(&|| keys.put_one(WEB[0], 3, ""));
    change(&|| keys.put_one(WEB[1], 3, ""));
    change(&|| keys.put_one(WEB[0], 4, "drain = true"));
    change(&|| keys.put_one(WEB[1], 4, "drain = true"));
    // All nodes have drained it, so no new connection comes.
    empty(&fleet.site, 4);
    change(&|| keys.at_once(&fourth.clone().map(|(key, _)| (key, None))));
}

/// Wrong values: each is refused by all nodes with its key, and changes nothing.
pub(crate) fn mistakes(fleet: &mut Fleet) -> String {
    const KEY: &str = "web4/backends/b9";
    let wrong = [
        "addr = \"nowhere\"\nexit = { port = \"east\" }\n",
        "addr = \"10.2.0.9\"\nexit = { port = \"south\" }\n",
        "addr = \"10.2.0.9\"\nexit = { port = \"east\" }\nwieght = 3\n",
        "\u{1}\u{2}[[[",
        "addr = \"10.2.0.9",
    ];
    let (mut last, checksum) = fleet.until_current(0);
    for value in wrong {
        let revision = fleet.keys().put(KEY, value);
        let shown = fleet.keys().until(BALANCERS, "refused", revision - 1);
        for node in shown["nodes"].as_array().unwrap() {
            let error = node["error"].as_str().unwrap();
            assert!(error.contains(KEY), "{value:?}: {error}");
            let kept = (node["generation"].as_u64(), node["checksum"].as_str());
            assert_eq!(kept, (Some(last), Some(&*checksum)), "{value:?}: {node}");
        }
        let now = fleet.until_current(fleet.keys().delete(KEY));
        assert_eq!(now.1, checksum);
        last = now.0;
    }
    format!("{} values were refused by all nodes, and named by `flowyard fleet`", wrong.len())
}
