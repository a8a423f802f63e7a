//! The command `flowyard` in the guest: what it says, changes and undoes is compared with what `ethtool` and the files of
//! the kernel say.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flowyard_frame::Rng;
use flowyard_livekit::guest::{Guest, Image, send};
use flowyard_testkit::note;

use crate::{cache, kernel, rounds, rss};

flowyard_testkit::tests! {
    host_says_what_ethtool_says,
    apply_and_undo_survive_kill_9_at_50_moments,
    a_foreign_change_is_noticed_and_not_overwritten,
}

/// Everything that a plan may change, as other programs print it.
pub(crate) const SNAPSHOT: &str = "(ethtool -x eth0; ethtool -l eth0; ethtool -n eth0 rx-flow-hash tcp4; \
    grep -H '' /sys/class/net/eth0/queues/*/?ps_* /proc/irq/*/smp_affinity_list \
    /proc/sys/net/core/rps_sock_flow_entries; true) 2>/dev/null";

/// The program beside this one, or the one that FLOWYARD_BINARY names.
pub(crate) fn binary() -> Result<PathBuf, String> {
    let named = std::env::var_os("FLOWYARD_BINARY").map(PathBuf::from);
    let beside = || -> Option<PathBuf> {
        let program = std::env::current_exe().ok()?;
        Some(program.parent()?.parent()?.join("flowyard"))
    };
    let path = named.or_else(beside).filter(|path| path.is_file());
    let path = path.ok_or("a build of the command: `cargo build -p flowyard-cli`")?;
    let knows = std::process::Command::new(&path).args(["host", "--help"]).output();
    if knows.is_ok_and(|output| output.status.success()) {
        Ok(path)
    } else {
        Err(format!("a build of the command that has `flowyard host`, unlike {}", path.display()))
    }
}

/// A guest with the command in it.
fn guest() -> Guest {
    let image = Image::new(&cache(), &kernel().unwrap(), &[("flowyard", &binary().unwrap())]);
    let guest = Guest::boot(&image);
    image.delete();
    guest
}

fn host_says_what_ethtool_says() {
    let mut guest = guest();
    guest.sh("ethtool -X eth0 weight 1 2 0 1");
    let json: serde_json::Value =
        serde_json::from_str(&guest.sh("flowyard host eth0 --json")).unwrap();
    let printed = guest.sh("ethtool -x eth0");
    let printed = flowyard_adapter::rss::parse_ethtool("ethtool -x", &printed).unwrap();
    let table: Vec<u16> = serde_json::from_value(json["rss"]["table"].clone()).unwrap();
    assert_eq!(table, printed.reta);
    let bytes: Vec<_> = printed.key.unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(json["rss"]["key"], bytes.join(":"));
    assert_eq!(json["driver"]["name"], "virtio_net");
    assert_eq!(json["channels"]["now"]["combined"], 4);
    assert_eq!(json["rx_queues"].as_array().unwrap().len(), 4, "{json}");
}

/// A plan in the guest, `/tmp/plan.json`, that balances a table which sends most flows to queue 0.
fn plan(guest: &mut Guest) {
    guest.sh("ethtool -X eth0 weight 13 1 1 1");
    guest.sh(
        "flowyard plan eth0 --goal balance --seconds 5 -o /tmp/plan.json > /tmp/planned 2>&1 &",
    );
    // The command samples for five seconds from when it has started.
    let done = AtomicBool::new(false);
    let mut random = Rng::new(4);
    let flows: Vec<_> = (0..200).map(|_| rss::frame(&mut random).1).collect();
    std::thread::scope(|scope| {
        let net = guest.net();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                send(net, flows.clone(), Duration::from_millis(20));
            }
        });
        std::thread::sleep(Duration::from_secs(8));
        done.store(true, Ordering::Relaxed);
    });
    guest.sh(
        "for i in $(seq 300); do [ -s /tmp/plan.json ] && break; sleep 0.1; done; cat /tmp/planned",
    );
    let steps = guest.sh("grep -c '\"setting\"' /tmp/plan.json");
    assert_ne!(steps.trim(), "0", "{}", guest.sh("cat /tmp/planned"));
}

fn apply_and_undo_survive_kill_9_at_50_moments() {
    let mut guest = guest();
    plan(&mut guest);
    guest.sh(&format!("{SNAPSHOT} > /tmp/before"));
    let apply = "flowyard apply /tmp/plan.json --journal /tmp/journal";
    let undo = "flowyard undo eth0 --journal /tmp/journal";
    guest.sh(&format!("T=$(cut -d' ' -f1 /proc/uptime); {apply}; echo $T $(cut -d' ' -f1 /proc/uptime) > /tmp/took"));
    guest.sh(&format!("{SNAPSHOT} > /tmp/after; ! cmp -s /tmp/before /tmp/after"));
    guest.sh(undo);
    guest.sh(&format!("{SNAPSHOT} > /tmp/now; diff /tmp/before /tmp/now"));
    let took = guest.sh("cat /tmp/took");
    let times: Vec<f64> = took.split_whitespace().map(|time| time.parse().unwrap()).collect();
    let micros = (1e6 * (times[1] - times[0])) as u64 + 10_000;
    let mut random = Rng::new(50);
    let (mut killed, mut changed, mut undone) = (0, 0, 0);
    let kills = rounds(50, 20);
    for kill in 0..kills {
        // Most of the time the command starts and reads; every second kill comes in the last third.
        let least = if kill % 2 == 0 { 0 } else { 2 * micros / 3 };
        let wait = least + random.below(micros - least);
        let mut line = String::new();
        let _ = write!(
            line,
            "{apply} > /tmp/out 2>&1 & P=$!; usleep {wait}; kill -9 $P 2>/dev/null && echo killed; wait $P; "
        );
        let _ =
            write!(line, "{SNAPSHOT} > /tmp/now; cmp -s /tmp/before /tmp/now || echo changed; ");
        let _ = write!(line, "{undo} > /tmp/out 2>&1 && echo undone; ");
        let _ = write!(line, "{SNAPSHOT} > /tmp/now; diff /tmp/before /tmp/now");
        let printed = guest.sh(&line);
        let has = |what: &str| u32::from(printed.lines().any(|line| line == what));
        (killed, changed, undone) =
            (killed + has("killed"), changed + has("changed"), undone + has("undone"));
    }
    note!(
        "of {kills}: {killed} killed, {changed} had changed settings, {undone} undone; apply takes {micros} us"
    );
    assert!(killed > 0 && changed > 0 && undone >= changed, "{killed} {changed} {undone}");
}

fn a_foreign_change_is_noticed_and_not_overwritten() {
    let mut guest = guest();
    plan(&mut guest);
    guest.sh("flowyard apply /tmp/plan.json --journal /tmp/journal");
    guest.sh("ethtool -X eth0 weight 0 0 0 1; ethtool -x eth0 > /tmp/foreign");
    let (status, printed) = guest.run("flowyard undo eth0 --journal /tmp/journal");
    assert_eq!(status, 1, "{printed}");
    guest.sh("ethtool -x eth0 | diff - /tmp/foreign");
    // A plan that was made for another state is refused.
    let (status, printed) = guest.run("flowyard apply /tmp/plan.json --journal /tmp/other");
    assert_eq!(status, 2, "{printed}");
    guest.sh("ethtool -x eth0 | diff - /tmp/foreign");
}
