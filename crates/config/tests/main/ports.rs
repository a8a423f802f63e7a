//! Unusual frames at ports, and the sections that a reload may change.

use flowyard_config::Config;
use flowyard_frame::{Action, Edit, To};
use flowyard_ports::mem::Frames;
use flowyard_ports::port::Pace;
use flowyard_ports::port::SourceRx;
use flowyard_ports::{Source, pcap};
use flowyard_wire::LinkType;
use flowyard_yard::sim::{Faults, Sim};
use flowyard_yard::{Closed, Counters, DropReason, Parts, Reload};

flowyard_testkit::tests! {
    unusual_frames_are_dropped_with_their_reason,
    an_output_that_cannot_be_opened_is_refused,
    a_reload_is_the_difference_of_two_configurations,
    entries_that_do_not_fit_the_exact_table_are_refused,
}

fn text(output: &str) -> String {
    format!(
        r#"
        [yard]
        buffer_bytes = 100
        [[port]]
        name = "p"
        kind = "pcap"
        in = "given"
        out = {output:?}
        [[queue]]
        name = "q"
        order = "direct"
        consumers = [0]
        [[queue]]
        name = "r"
        order = "atomic"
        consumers = [0]
        [steer]
        exact = [{{ flow = "tcp 10.0.0.1:1 > 10.0.0.2:2", queue = "r" }}]
        [work]
        kind = "forward"
        "#
    )
}

/// Sends `frames` through an engine that writes `output`; returns its counters, and what its ports say.
fn run(frames: Frames, output: &str) -> (Counters, Closed) {
    let mut parts = Parts::default();
    parts.rx.insert(0, Box::new(SourceRx::new(0, Box::new(frames), Pace::Fast)));
    let yard = Config::parse("y", &text(output)).unwrap().build(parts).unwrap();
    let mut sim = Sim::new(yard, 1, Faults::default());
    let total = sim.run().unwrap();
    let closed = sim.yard.cores[0].close_ports();
    assert_eq!(sim.yard.cores[0].close_ports(), Closed::default(), "closing twice is closing once");
    let pool = sim.yard.pool.share();
    drop(sim);
    assert_eq!(pool.held(), 0);
    (total, closed)
}

fn unusual_frames_are_dropped_with_their_reason() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.pcap");
    let mut frames = Frames::new();
    for (time, len, link) in [
        (10, 60, LinkType::Ethernet),
        (20, 128, LinkType::Ethernet), // what a buffer of 100 bytes holds, in whole lines
        (30, 129, LinkType::Ethernet),
        (40, 0, LinkType::Ethernet),
        (50, 60, LinkType::RawIp),
        (60, 61, LinkType::Ethernet),
    ] {
        frames.push(time, link, &vec![7; len]);
    }
    let (total, closed) = run(frames, path.to_str().unwrap());
    assert_eq!((total.rx_frames, total.tx_frames), (6, 3));
    let drops: Vec<_> = total.drops.iter().collect();
    let each = [DropReason::TooLong, DropReason::Empty, DropReason::LinkType];
    assert_eq!(drops, each.map(|reason| (reason, 1)));
    assert_eq!(closed, Closed::default());
    let mut written = pcap::open(&path).unwrap();
    let burst = written.read().unwrap();
    let times: Vec<_> = burst.iter().map(|(record, data)| (record.time, data.len())).collect();
    assert_eq!(times, [(10, 60), (20, 128), (60, 61)]);
}

fn an_output_that_cannot_be_opened_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for (output, said) in [
        (
            "/nowhere/at/all/out.pcap",
            "cannot create: No such file or directory (os error 2); create the",
        ),
        (
            socket.to_str().unwrap(),
            "cannot create: it exists and is not a regular file; name a file",
        ),
    ] {
        let mut parts = Parts::default();
        parts.rx.insert(0, Box::new(SourceRx::new(0, Box::new(Frames::new()), Pace::Fast)));
        let built = Config::parse("y", &text(output)).unwrap().build(parts);
        let error = built.map(drop).unwrap_err().to_string();
        assert!(error.starts_with(&format!("y:8:15: port 'p': {output}: {said}")), "{error}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file remains");
}

fn a_reload_is_the_difference_of_two_configurations() {
    let parse = |text: &str| Config::parse("new.toml", text).unwrap();
    let old = parse(&text("x"));
    let change = |from: &str, to: &str| {
        assert!(text("x").contains(from));
        old.reload(&parse(&text("x").replacen(from, to, 1)))
    };
    let key = |flow: &str| flow.parse::<flowyard_frame::FlowKey>().unwrap();
    let new = change("10.0.0.1:1 >", "10.0.0.1:7 >").unwrap();
    let del = Edit::Del(key("tcp 10.0.0.1:1 > 10.0.0.2:2"));
    let put = Edit::Put(key("tcp 10.0.0.1:7 > 10.0.0.2:2"), Action::queue(1));
    assert_eq!(new.tables, Reload { exact: vec![del, put], ..Reload::default() });
    let new = change("queue = \"r\"", "drop = true").unwrap();
    let key = key("tcp 10.0.0.1:1 > 10.0.0.2:2");
    let put = Edit::Put(key, Action { to: To::DROP, ..Action::default() });
    assert_eq!(new.tables, Reload { exact: vec![put], ..Reload::default() });
    let new = change("[steer]", "[steer]\nspread = [\"r\"]").unwrap();
    assert_eq!(
        new.tables,
        Reload { exact: vec![], spread: vec![To::Queue(1)], ..Reload::default() }
    );
    let rule = "[[steer.rule]]\nmatch = { proto = \"udp\" }\ndrop = true\n\n[work]";
    let new = change("[work]", rule).unwrap();
    let rules = new.tables.rules.as_ref().map(|rules| (rules.len(), rules.masks()));
    assert_eq!((rules, new.tables.exact.len()), (Some((1, 1)), 0), "rules are replaced as a whole");
    let refused = change("buffer_bytes = 100", "buffer_bytes = 200").unwrap_err().to_string();
    assert_eq!(
        refused,
        "new.toml:2:9: a reload cannot change 'buffer_bytes' in [yard] (100 to 200); restart to apply them, because \
         port 'p' of kind \"pcap\" cannot be taken over"
    );
}

fn entries_that_do_not_fit_the_exact_table_are_refused() {
    let entry = |sport: u16| {
        format!("[[steer.exact]]\nflow = \"tcp 10.0.0.1:{sport} > 10.0.0.2:2\"\ndrop = true\n")
    };
    let with = |count: u16| {
        let text = "[[port]]\nname = \"p\"\nkind = \"mem\"\nin = \"x\"\n[[queue]]\nname = \"q\"\n\
                    order = \"direct\"\nconsumers = [0]\n[work]\nkind = \"forward\"\n[steer]\n\
                    exact_entries = 2\n";
        let entries: String = (1..=count).map(entry).collect();
        Config::parse("new.toml", &format!("{text}{entries}"))
    };
    let (one, two) = (with(1).unwrap(), with(2).unwrap());
    assert_eq!(one.reload(&two).unwrap().tables.exact.len(), 1);
    let refused = with(3).unwrap_err().to_string();
    let place = "new.toml:20:8: ";
    assert!(refused.starts_with(place) && refused.contains("raise 'exact_entries'"), "{refused}");
}
