//! A yard over an event device: numbered frames through every kind of queue, and what is refused. The tests of flowyard's
//! own queues that are run over an event device are in the program `main`.

use flowyard_config::Config;
use flowyard_ports::mem::Frames;
use flowyard_ports::port::{Pace, SourceRx};
use flowyard_testkit::event_engine::over_device;
use flowyard_yard::Parts;

use super::traffic::{frames_or, pass};

flowyard_testkit::tests! {
    numbered_frames_pass_every_kind_of_queue,
    mistakes_in_the_configuration_are_named,
    what_a_device_cannot_do_is_an_error_at_the_start,
}

/// A yard whose port `gen` is on core 0 and whose port `sink` is on core `sink`.
fn yard(cores: u16, sink: u16, queues: &str, more: &str) -> String {
    over_device(&format!(
        "[yard]\ncores = {cores}\n{more}\n[[port]]\nname = \"gen\"\nkind = \"mem\"\nin = \"none\"\n[[port]]\nname = \"sink\"\n\
         kind = \"mem\"\ncore = {sink}\n{queues}\n[work]\nkind = \"forward\"\nports = {{ gen = \"sink\" }}\n"
    ))
}

fn queue(name: &str, order: &str, consumers: &[u16], window: u32, priority: u8) -> String {
    format!(
        "[[queue]]\nname = {name:?}\norder = {order:?}\nconsumers = {consumers:?}\nwindow_frames = {window}\n\
         priority = {priority}\n"
    )
}

fn numbered_frames_pass_every_kind_of_queue() {
    let frames = frames_or(60_000);
    for (order, consumers) in [
        ("direct", &[0][..]),
        ("direct", &[1]),
        ("unordered", &[1]),
        ("ordered", &[1]),
        ("ordered", &[0, 1, 2]),
        ("atomic", &[1, 2]),
        ("atomic", &[0, 1, 2]),
    ] {
        for window in [1024, 32] {
            let text = yard(3, 2, &queue("q", order, consumers, window, 0), "");
            pass(&text, frames);
        }
    }
    // Several queues with priorities, and a core that has nothing to do but to run the scheduler.
    let queues = [
        queue("a", "atomic", &[0, 1], 256, 3),
        queue("o", "ordered", &[1, 2], 256, 0),
        queue("d", "direct", &[2], 64, 1),
    ];
    pass(&yard(3, 1, &queues.concat(), ""), frames);
    pass(&yard(4, 1, &queues.concat(), ""), frames);
}

fn error(text: &str) -> String {
    Config::parse("y", text).map(drop).unwrap_err().to_string()
}

fn mistakes_in_the_configuration_are_named() {
    let text = yard(2, 0, &queue("q", "ordered", &[0, 1], 64, 0), "");
    let (from, device) = text.split_once("event_sw").unwrap();
    let name = format!("event_sw{}", device.split('"').next().unwrap());
    assert!(from.contains("engine"));
    for (from, to, wanted) in [
        (name.as_str(), "event_opdl0", "gives events on that were released"),
        (&name, "event_dsw0", "a yard over event_dsw0 is not implemented yet"),
        (&name, "event_sw", "'event_sw' is not a name of the software device"),
        (&name, "event_sw+1", "'event_sw+1' is not a name of the software device"),
        (&name, "event_swan,quanta=64", "'event_swan' is not a name of the software device"),
        (&name, "net_null0", "'net_null0' is not an event device of DPDK"),
        ("engine = \"eventdev\"", "", "[dpdk], or add such a port or engine"),
        (
            "engine = \"eventdev\"",
            "engine = \"none\"",
            "'none' is not a valid choice; choose one of own, eventdev",
        ),
        (&format!("event_device = {name:?}"), "", "has no event device"),
        ("cores = 2", "cores = 2\nqueue_limits = \"dlb2\"", "'queue_limits' is for flowyard's own"),
        ("cores = 2", "cores = 300", "ports of an event device, which has at most 255"),
        ("kind = \"forward\"\nports = { gen = \"sink\" }", "kind = \"bridge\"", "copies frames"),
    ] {
        assert!(text.contains(from), "{from}");
        let told = error(&text.replacen(from, to, 1));
        assert!(told.contains(wanted), "{told}");
    }
    for device in ["event_sw0", "event_sw300", "event_sw1,credit_quanta=64", "dlb2_event"] {
        assert!(Config::parse("y", &text.replacen(&name, device, 1)).is_ok(), "{device}");
    }
    let alone = text.replacen("engine = \"eventdev\"", "", 1);
    let told = error(alone.split_once("[dpdk]").unwrap().0);
    assert!(told.contains("the event device is not used"), "{told}");
    let many: String = (0..63).map(|at| queue(&format!("q{at}"), "atomic", &[0], 32, 0)).collect();
    assert!(error(&yard(1, 0, &many, "")).contains("needs 65 queues"), "two ports, too");
}

fn what_a_device_cannot_do_is_an_error_at_the_start() {
    let build = |text: &str| {
        let mut parts = Parts::default();
        parts.rx.insert(0, Box::new(SourceRx::new(0, Box::new(Frames::new()), Pace::Fast)));
        Config::parse("y", text).unwrap().build(parts)
    };
    let consumers: Vec<u16> = (0..60).collect();
    let queues = queue("a", "atomic", &consumers, 32, 0) + &queue("b", "direct", &[0], 32, 0);
    let text = yard(64, 0, &queues, "");
    let told = build(&text).map(drop).unwrap_err().to_string();
    assert!(told.contains("ports of 'event_sw") && told.contains("y:3:"), "{told}");
    // A device is one yard's, until that is gone.
    let text = yard(2, 0, &queue("q", "atomic", &[0, 1], 64, 0), "");
    let first = build(&text);
    let told = build(&text).map(drop).unwrap_err().to_string();
    assert!(told.contains("another yard in this process uses the event device"), "{told}");
    drop(first);
    assert!(build(&text).is_ok());
}
