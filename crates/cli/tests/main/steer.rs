//! `flowyard steer`: what it refuses before it touches an interface, its help and its schema. What it does is tested in
//! namespaces (`tests/live/steer.rs`).

use crate::common::{good, json, refused, run, text};

flowyard_testkit::tests! {
    wrong_use_is_refused_with_the_fix,
    rules_that_xdp_cannot_enforce_are_named_with_their_line,
    help_has_examples_that_are_accepted,
    its_documents_have_schemas,
    nothing_pinned_is_nothing_to_stop,
    the_doctor_says_what_steering_needs,
}

/// No interface has this name, so that nothing is ever attached.
const NONE: &str = "none7";

fn wrong_use_is_refused_with_the_fix() {
    for (args, why) in [
        (&["steer"][..], "not provided: <IFACE>"),
        (&["steer", NONE, "--policy", "fast"], "invalid value 'fast' for '--policy <NAME>'"),
        (&["steer", NONE, "--policy", "rules"], "--policy rules needs --rules FILE"),
        (
            &["steer", NONE, "--policy", "rss", "--rules", "x"],
            "--policy rss has no rules; leave out --rules",
        ),
        (&["steer", NONE, "--rules", "none.txt"], "none.txt"),
        (
            &["steer", NONE, "--cpus", "3-1"],
            "--cpus: must be numbers and ranges, such as 2,3,6-9, not '3-1'",
        ),
        (&["steer", NONE, "--cpus", "x"], "--cpus: must be numbers and ranges"),
        (&["steer", NONE, "--entries", "0"], "'--entries <N>': must be 1 to 65536"),
        (&["steer", NONE, "--queue-frames", "20000"], "'--queue-frames <N>': must be 1 to 16384"),
        (&["steer", NONE, "--sample", "0"], "'--sample <N>': must be 1 to"),
        (&["steer", NONE, "--seconds", "0"], "'--seconds <N>': must be 1 to"),
        (&["steer", NONE, "--unordered"], "--unordered is for --policy atr and rfs"),
        (
            &["steer", NONE, "--rss-key", "xyz"],
            "--rss-key: must be random, microsoft, symmetric or hex digits",
        ),
        (&["steer", NONE, "--rss-key", "0011"], "key"),
        (
            &["steer", NONE, "--indirection", "0,9", "--cpus", "0"],
            "names queue 9; there are queues 0 to 0",
        ),
        (&["steer", NONE, "--metrics", "here", "--control", "none"], "--metrics: "),
        (&["steer", NONE, "--control", "/"], "--control PATH"),
        (&["steer", NONE, "--stop", "--policy", "rss"], "cannot be used with"),
        (
            &["steer", NONE, "--pin=/tmp/none7", "--control", "none"],
            "there is no interface 'none7'",
        ),
        (
            &["steer", "lo", "--pin=/proc/none7", "--control", "none"],
            "is not in a BPF file system; mount one",
        ),
    ] {
        let line = refused(&run(args));
        assert!(line.contains(why), "{args:?}: {line}");
    }
}

fn rules_that_xdp_cannot_enforce_are_named_with_their_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.txt");
    let name = file.to_str().unwrap();
    for (rule, why) in [
        (
            "flow-type tcp4 dst-port 80 action 5",
            "rules.txt:2: the rule cannot be enforced by XDP: there is no queue 5; use a queue from 0 to 0",
        ),
        ("flow-type tcp4 dst-port 80 user-def 0x1 action 0", "leave out user-def"),
        ("flow-type tcp4 dst-port 80 context 1", "it names an RSS context; use a queue"),
        ("flow-type tcp4 dst-prot 80 action 0", "dst-prot"),
    ] {
        std::fs::write(&file, format!("# rules\n{rule}\n")).unwrap();
        let line =
            refused(&run(["steer", NONE, "--rules", name, "--cpus", "0", "--control", "none"]));
        assert!(line.contains(why), "{rule}: {line}");
    }
}

/// The examples of the help text are parsed; there is no interface, so each is refused because of that, or for privileges.
fn help_has_examples_that_are_accepted() {
    let help = good(&run(["steer", "--help"]));
    let examples: Vec<_> =
        help.lines().filter_map(|line| line.strip_prefix("  flowyard steer eth0")).collect();
    assert!(examples.len() >= 6, "{help}");
    let flat = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in ["--pin", "--stop", "CAP_BPF", "ethtool -K PEER tx off", "flowyard show steer"] {
        assert!(flat.contains(words), "{words}: {help}");
    }
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.txt");
    std::fs::write(&rules, "flow-type tcp4 dst-port 80 action 0\n").unwrap();
    for example in examples {
        let example = example.replace("rules.txt", rules.to_str().unwrap());
        let example = example.replace("--metrics 9465", "--metrics 0").replace("2,3,4,5", "0");
        let example = example.replace("--elephant-cpus 7", "--elephant-cpus 0");
        let mut args = vec!["steer", NONE, "--control", "none"];
        args.extend(example.split_whitespace());
        let output = run(&args);
        let said = text(&output.stderr);
        let is_stop = args.contains(&"--stop") && output.status.success();
        let is_known =
            said.contains("there is no interface 'none7'") || said.contains("not permitted");
        assert!(is_stop || is_known, "{args:?}: {said}");
    }
}

fn its_documents_have_schemas() {
    for (command, name, fields) in [
        ("steer", "flowyard.steer/1", &["interface", "attached", "seconds", "queues", "flows"][..]),
        (
            "show-steer",
            "flowyard.show.steer/1",
            &["at_s", "policy", "pins", "rings", "learned_flows"],
        ),
    ] {
        let schema = json(["schema", command]);
        assert_eq!(schema["title"], name);
        for field in fields {
            assert!(schema["properties"][field].is_object(), "{command}: {field}");
        }
    }
}

fn nothing_pinned_is_nothing_to_stop() {
    let text = good(&run(["steer", NONE, "--stop", "--control", "none"]));
    assert_eq!(text, "none7: nothing is pinned in /sys/fs/bpf/flowyard/none7\n");
    // The file system reserves dots.
    let text = good(&run(["steer", "none7.100", "--stop", "--control", "none"]));
    assert!(text.contains("/sys/fs/bpf/flowyard/none7_100"), "{text}");
}

fn the_doctor_says_what_steering_needs() {
    let output = run(["doctor", "--interface", "lo", "--kind", "steer", "--all"]);
    let said = text(&output.stdout);
    for about in [
        "kernel for steer",
        "capabilities for steer",
        "types of the kernel",
        "BPF file system",
        "RPS lo",
        "RFS lo",
    ] {
        assert!(said.contains(about), "{about}: {said}");
    }
    assert!(said.contains("warning  XDP lo: the loopback interface has no XDP"), "{said}");
    let output = run(["doctor", "--interface", NONE, "--kind", "steer"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("there is no such interface"));
}
