use super::*;

const GOOD: &str = r#"
[[port]]
name = "west"
kind = "mem"

[[queue]]
name = "q"
order = "direct"
consumers = [0]

[work]
kind = "forward"

[[send]]
port = "west"
flow = "udp 10.0.0.1:1 > 10.0.0.2:2"
count = 3

[expect]
sent = { west = 3 }
"#;

/// The error for `GOOD` with `from` replaced, from parsing or running it.
fn said(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    let text = GOOD.replacen(from, to, 1);
    match Scenario::parse("s.toml", &text) {
        Ok(scenario) => scenario.run().err().unwrap_or_default(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_difference_is_reported_with_its_place() {
    assert_eq!(said("count", "count"), "");
    assert_eq!(
        said("west = 3", "west = 4"),
        "s.toml:20:17: sent.west: expected 4, got 3; with seed 0"
    );
    assert_eq!(
        said("{ west = 3 }", "{}"),
        "s.toml:19:1: sent.west: expected 0 (not named), got 3; with seed 0"
    );
    for (from, to, what) in [
        (
            "sent =",
            "drops = { table = { at_least = 1 } }\nsent =",
            "20:19: drops.table: expected at least 1, got 0",
        ),
        ("sent =", "queue = { q = 2 }\nsent =", "queue.q: expected 2, got 3"),
        ("sent =", "core = [{ worked = 4 }]\nsent =", "core 0: worked: expected 4, got 3"),
        ("sent =", "settle_moved = 1\nsent =", "settle_moved: expected 1, got 0"),
        (
            "sent =",
            "in_order = false\nsent =",
            "in_order: expected false, got true; with every seed",
        ),
    ] {
        assert!(said(from, to).contains(what), "{to}: {}", said(from, to));
    }
}

/// A link without a device.
struct Nothing;

impl Link for Nothing {
    fn lent_frames(&self) -> usize {
        0
    }

    fn rx(&mut self, _: u16, _: &Pool, far: Box<dyn Rx>) -> Result<Box<dyn Rx>, String> {
        Ok(far)
    }

    fn tx(&mut self, _: u16, _: &Pool, far: Box<dyn Tx>) -> Result<Box<dyn Tx>, String> {
        Ok(far)
    }
}

#[test]
fn frames_out_of_order_must_be_seen_also_with_few_seeds() {
    let text = GOOD.replacen("sent =", "in_order = false\nsent =", 1);
    for (text, wanted) in [(GOOD, ""), (text.as_str(), "in_order: expected false, got true")] {
        let scenario = Scenario::parse("s.toml", text).unwrap().with_seeds(2);
        for result in [scenario.run(), scenario.run_over(&mut Nothing)] {
            let said = result.err().unwrap_or_default();
            assert!(said.contains(wanted) && said.is_empty() == wanted.is_empty(), "{said}");
        }
        assert_eq!(scenario.seeds(), 2);
    }
}

#[test]
fn a_mistake_is_reported_with_the_fix() {
    let given = format!("count = 90000\nbytes = \"{}\"", "00".repeat(800));
    for (from, to, what) in [
        (
            "port = \"west\"",
            "port = \"wets\"",
            "s.toml:15:8: there is no port 'wets'; the ports are west",
        ),
        ("udp 10", "upd 10", "'upd' is not a protocol; write a flow as"),
        ("count = 3", "count = 0", "'count' is out of range"),
        ("count = 3", "length = 70000", "the frame has too many bytes"),
        ("count = 3", "count = 90000\nlength = 60000", "more than 64 MiB"),
        ("count = 3", &given, "more than 64 MiB"),
        ("count = 3", "bytes = \"0\"", "these are not bytes"),
        ("count = 3", "every = \"10\"", "'10' is not a time: write 500ns"),
        ("count = 3", "at = \"1s\"", "comes after 5ms; send faster"),
        ("count = 3", "flags = \"sin\"", "'sin' is not a TCP flag"),
        ("count = 3", "flows = 0", "source port one higher"),
        ("count = 3", "cuont = 3", "did you mean 'count'?"),
        ("[expect]", "[[reload]]\nat = \"1us\"\n[expect]", "this reload changes nothing"),
        ("[expect]", "[[reload]]\nat = \"1s\"\nexact = []\n[expect]", "after 5ms"),
        ("[expect]", "[[reload]]\nat = \"1us\"\nspread = [\"x\"]\n[expect]", "no queue 'x'"),
        ("west = 3", "wset = 3", "there is no port 'wset'"),
        ("west = 3", "west = -3", "a count is not negative"),
        (
            "sent =",
            "drops = { tabel = 1 }\nsent =",
            "there is no drop reason 'tabel'; choose one of",
        ),
        ("sent =", "queue = { p = 1 }\nsent =", "there is no queue 'p'"),
        ("sent =", "core = [{}, {}]\nsent =", "[expect] lists 2 cores, but there are 1"),
        ("sent =", "pinned = true\nsent =", "without a cost"),
        (
            "sent =",
            "together = [[\"udp 1.1.1.1:1 > 1.1.1.1:2\"]]\nsent =",
            "no [[send]] has the flow",
        ),
        ("[expect]\nsent = { west = 3 }", "", "expects nothing"),
        ("kind = \"mem\"", "kind = \"mem\"\nin = \"x.pcap\"", "receives a capture already"),
    ] {
        assert!(said(from, to).contains(what), "{to}: {}", said(from, to));
    }
}

#[test]
fn a_flow_that_no_core_worked_on_has_no_cores() {
    let drops = "[steer]\nexact = [{ flow = \"udp 10.0.0.1:1 > 10.0.0.2:2\", drop = true }]\n\n\
                 [expect]\ndrops = { table = 3 }\n\n[[expect.flow]]\n\
                 flow = \"udp 10.0.0.1:1 > 10.0.0.2:2\"\ncores_each = ";
    let run = |cores: u8| said("[expect]\nsent = { west = 3 }", &format!("{drops}{cores}"));
    assert_eq!(run(0), "");
    assert!(run(1).contains("source port 1: cores_each: expected 1, got 0"), "{}", run(1));
}

#[test]
fn mutants_must_fail() {
    let mutants = |text: &str| {
        let text = format!("{GOOD}\n[[expect.mutant]]\n{text}");
        Scenario::parse("s.toml", &text).unwrap().mutants()
    };
    assert_eq!(mutants("from = 'count = 3'\nto = 'count = 4'"), Ok(()));
    let unnoticed = mutants("from = 'order = \"direct\"'\nto = 'order = \"atomic\"'").unwrap_err();
    assert!(unnoticed.contains("s.toml:23:8: with 'order"), "{unnoticed}");
    assert!(mutants("from = 'x = 1'\nto = ''").unwrap_err().contains("exactly once"));
    assert!(mutants("from = 'count'\nto = 'cuont'").unwrap_err().contains("did you mean"));
    let none = Scenario::parse("s.toml", GOOD).unwrap().mutants().unwrap_err();
    assert!(none.contains("it is not tested that it can fail"), "{none}");
}
