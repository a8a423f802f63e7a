//! SIGKILL at random moments: nothing of the instance is left, and the next start works. Ten times for each
//! kind of port, or `FLOWYARD_KILLS` times.

use std::time::Duration;

use flowyard_testkit::Rng;

use crate::yard::{Live, wait_until};
use flowyard_livekit::line::{Kind, Line, Plan};
use flowyard_livekit::net::alone;

flowyard_testkit::tests! {
    af_packet,
    af_xdp,
    tap,
}

fn times() -> u64 {
    std::env::var("FLOWYARD_KILLS").map_or(10, |times| times.parse().unwrap())
}

/// Waits until the hosts reach each other through the instance.
fn reaches(line: &Line, live: &mut Live) {
    if line.plan.kind == Kind::Tap {
        wait_until("the tap", || line.a.run("ip link show tap0").status.success());
        line.a.address("tap0", 1);
    }
    wait_until("an answer through the yard", || {
        assert!(live.is_alive(), "{}", live.said("err"));
        line.a.run("ping -c 1 -W 1 10.9.0.2").status.success()
    });
}

/// XDP programs, taps and packet sockets in the instance's namespace.
fn left_behind(line: &Line) -> String {
    let yard = line.yard();
    let links = yard.sh("ip -d -o link");
    let odd = links.lines().filter(|link| link.contains("xdp") || link.contains(" tun "));
    let sockets = yard.sh("cat /proc/net/packet");
    odd.chain(sockets.lines().skip(1)).collect::<Vec<_>>().join("\n")
}

fn killed(kind: Kind, seed: u64) {
    let _alone = alone();
    let line = Line::new(Plan { cores: 2, ..Plan::of(kind) });
    assert_eq!(left_behind(&line), "");
    let (mut rng, mut busy, mut open) = (Rng::new(seed), 0, 0);
    for round in 0..times() {
        let mut live = Live::start(line.yard(), &line.plan.text());
        // Right after the start; when the first port is open; or under traffic, which also shows that the
        // start after the last kill worked.
        let mut traffic = None;
        match rng.below(3) {
            0 => {}
            1 => wait_until("a port", || !left_behind(&line).is_empty()),
            _ => {
                reaches(&line, &mut live);
                let net = line.a.0.try_clone().unwrap();
                traffic = Some(std::thread::spawn(move || {
                    flowyard_livekit::net::Net(net).run("ping -f -w 1 -W 1 -s 1000 10.9.0.2")
                }));
                busy += 1;
            }
        }
        std::thread::sleep(Duration::from_micros(rng.below(60_000)));
        open += u64::from(!left_behind(&line).is_empty());
        live.kill();
        wait_until("nothing is left", || left_behind(&line).is_empty());
        assert!(traffic.is_none_or(|talk| talk.join().is_ok()), "round {round}");
    }
    let mut live = Live::start(line.yard(), &line.plan.text());
    reaches(&line, &mut live);
    assert!(
        !left_behind(&line).is_empty(),
        "the check does not find the ports of a running instance"
    );
    live.stop();
    wait_until("nothing is left after a drain", || left_behind(&line).is_empty());
    flowyard_testkit::note!(
        "{kind:?}: {} kills, {busy} of them under traffic, {open} with a port open; nothing is left",
        times()
    );
    // A process in a namespace of the test would keep the namespace.
    let nets = [Some(&line.a), Some(&line.b), Some(line.yard())];
    let names: Vec<_> = nets.iter().flatten().map(|net| inode(&net.0)).collect();
    assert_eq!(holders(&names), Vec::<String>::new());
}

fn inode(net: &std::fs::File) -> String {
    use std::os::unix::fs::MetadataExt;
    format!("net:[{}]", net.metadata().unwrap().ino())
}

/// The processes in these namespaces.
fn holders(names: &[String]) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let within = processes.filter(|process| {
        let net = std::fs::read_link(process.path().join("ns/net"));
        net.is_ok_and(|net| names.iter().any(|name| net.as_os_str() == name.as_str()))
    });
    within.map(|process| process.path().display().to_string()).collect()
}

fn af_packet() {
    killed(Kind::Packet, 1);
}

fn af_xdp() {
    killed(Kind::Xdp, 2);
}

fn tap() {
    killed(Kind::Tap, 3);
}
