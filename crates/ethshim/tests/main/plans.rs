//! Plans with rules, which flowyard applies and undoes while the real `ethtool` looks on and changes rules, too.

use std::process::Output;

use crate::{Fake, INTERFACE};

flowyard_testkit::tests! {
    ethtool_sees_the_rule_of_a_plan_until_it_is_undone,
    a_foreign_rule_is_noticed_and_kept,
    the_printed_commands_do_the_same,
    ethtool_sees_the_context_of_a_plan_until_it_is_undone,
    a_context_that_ethtool_changed_is_kept,
}

const FLOW: &str = "tcp 10.0.0.1:40000 > 10.0.0.2:80";

/// A rule of another program, of the same input set.
const OTHER: &str =
    "flow-type tcp4 src-ip 10.0.0.9 dst-ip 10.0.0.2 src-port 9 dst-port 80 action 1";

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// What `ethtool` prints of the rules and of RSS.
fn printed(fake: &Fake) -> String {
    text(&fake.ethtool(&["-n", INTERFACE])) + &text(&fake.ethtool(&["-x", INTERFACE]))
}

/// A driver with a rule of another program and a plan for the flow; the files of the plan and of the journals.
fn planned(model: &str) -> (Fake, String, String) {
    let fake = Fake::new(model);
    // Queue 3 is not used, so that a rule moves fewer flows than the table.
    let weights = fake.ethtool(&["-X", INTERFACE, "weight", "1", "1", "1"]);
    assert_eq!(text(&weights), "", "{model}");
    assert!(!text(&fake.ethtool_add(OTHER)).contains("rror"), "{model}");
    let file = |name: &str| fake.folder.path().join(name).to_str().unwrap().to_owned();
    let (plan, journal) = (file("plan.json"), file("journal"));
    fake.flowyard(&["plan", FLOW, &plan], "");
    (fake, plan, journal)
}

fn ethtool_sees_the_rule_of_a_plan_until_it_is_undone() {
    for model in ["ixgbe", "i40e", "ice", "any"] {
        let (fake, plan, journal) = planned(model);
        let before = printed(&fake);
        assert!(before.contains("Total 1 rules"), "{model}: {before}");
        let applied = fake.flowyard(&["apply", &plan, &journal], "");
        let rule = applied.lines().find(|line| line.contains("flow-type")).unwrap();
        let location = rule.strip_prefix("rule-").unwrap().split(' ').next().unwrap();
        let now = printed(&fake);
        assert!(now.contains("Total 2 rules"), "{model}: {now}");
        for line in [
            &format!("Filter: {location}"),
            "Src IP addr: 10.0.0.1 mask: 0.0.0.0",
            "Src port: 40000 mask: 0x0",
            "Action: Direct to queue 3",
        ] {
            assert!(now.contains(line), "{model}: {line}: {now}");
        }
        fake.flowyard(&["undo", &journal], "");
        assert_eq!(printed(&fake), before, "{model}");
    }
}

fn a_foreign_rule_is_noticed_and_kept() {
    for model in ["ixgbe", "i40e", "ice"] {
        let (fake, plan, journal) = planned(model);
        // Another program takes the location of the plan.
        let foreign = OTHER.replace("10.0.0.9", "10.0.0.7");
        fake.ethtool_add(&foreign);
        let taken = printed(&fake);
        let refused = text(&fake.try_flowyard(&["apply", &plan, &journal], ""));
        assert!(refused.contains("was none and is 'flow-type tcp4 src-ip 10.0.0.7"), "{refused}");
        assert_eq!(printed(&fake), taken, "{model}");
        // Another program replaces the rule of the plan.
        fake.flowyard(&["plan", FLOW, &plan], "");
        let applied = fake.flowyard(&["apply", &plan, &journal], "");
        let rule = applied.lines().find_map(|line| line.strip_prefix("rule-")).unwrap();
        let location = rule.split(' ').next().unwrap();
        assert!(fake.ethtool(&["-N", INTERFACE, "delete", location]).status.success());
        fake.ethtool_add(&foreign.replace("10.0.0.7", "10.0.0.8"));
        let replaced = printed(&fake);
        let refused = text(&fake.try_flowyard(&["undo", &journal], ""));
        assert!(refused.contains("another program changed it"), "{model}: {refused}");
        assert_eq!(printed(&fake), replaced, "{model}");
    }
}

/// All connections to a server.
const SERVICE: &str = "tcp 0.0.0.0:0 > 10.0.0.2:80";

/// A driver with contexts, of which another program has one, and a plan for two queues for a service.
fn grouped() -> (Fake, String, String) {
    let fake = Fake::new("any");
    let made =
        text(&fake.ethtool(&["-X", INTERFACE, "context", "new", "start", "3", "equal", "1"]));
    assert!(made.contains("New RSS context is 1"), "{made}");
    let file = |name: &str| fake.folder.path().join(name).to_str().unwrap().to_owned();
    let (plan, journal) = (file("plan.json"), file("journal"));
    fake.flowyard(&["plan", SERVICE, &plan, "2"], "");
    (fake, plan, journal)
}

/// What `ethtool` prints of the rules and of all contexts.
fn contexts(fake: &Fake) -> String {
    let one = |number: &str| text(&fake.ethtool(&["-x", INTERFACE, "context", number]));
    printed(fake) + &one("1") + &one("2")
}

fn ethtool_sees_the_context_of_a_plan_until_it_is_undone() {
    let (fake, plan, journal) = grouped();
    let before = contexts(&fake);
    let applied = fake.flowyard(&["apply", &plan, &journal], "");
    assert!(applied.contains("rss.context-2 1 2 1 2"), "{applied}");
    let now = text(&fake.ethtool(&["-x", INTERFACE, "context", "2"]));
    assert!(now.contains("    1     2     1     2"), "{now}");
    let now = printed(&fake);
    assert!(now.contains("RSS Context ID: 2") && now.contains("Total 1 rules"), "{now}");
    let applied = (fake.file("rules"), fake.file("rss"));
    fake.flowyard(&["undo", &journal], "");
    assert_eq!(contexts(&fake), before);
    // The commands of the plan do the same as far as ethtool can set the table.
    let document: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&plan).unwrap()).unwrap();
    let commands: Vec<String> = serde_json::from_value(document["commands"].clone()).unwrap();
    let shell = fake
        .command(std::path::Path::new("sh"))
        .args(["-e", "-c", &commands.join("\n")])
        .output()
        .unwrap();
    assert!(shell.status.success(), "{}", text(&shell));
    assert_eq!(fake.file("rules"), applied.0, "{commands:?}");
    let context = |file: &[u8]| String::from_utf8_lossy(file).lines().last().map(str::to_owned);
    assert_eq!(context(&fake.file("rss")), context(&applied.1), "{commands:?}");
}

fn a_context_that_ethtool_changed_is_kept() {
    let (fake, plan, journal) = grouped();
    fake.flowyard(&["apply", &plan, &journal], "");
    let changed = fake.ethtool(&["-X", INTERFACE, "context", "2", "start", "1", "equal", "3"]);
    assert_eq!(text(&changed), "");
    let now = contexts(&fake);
    let refused = text(&fake.try_flowyard(&["undo", &journal], ""));
    assert!(refused.contains("rss.context-2 is"), "{refused}");
    let context = |text: &str| text.rsplit("RX flow hash").next().unwrap().to_owned();
    assert_eq!(context(&contexts(&fake)), context(&now));
    // A rule of another program that uses a context of flowyard keeps it, too.
    let (fake, plan, journal) = grouped();
    fake.flowyard(&["apply", &plan, &journal], "");
    let added = fake.ethtool_add("flow-type udp4 dst-port 53 context 2");
    assert!(!text(&added).contains("rror"), "{}", text(&added));
    let refused = text(&fake.try_flowyard(&["undo", &journal], ""));
    assert!(refused.contains("is used by a rule of another program"), "{refused}");
    assert!(contexts(&fake).contains("RSS Context ID: 2"));
}

/// The commands of the plan, by a shell and `ethtool`, instead of apply.
fn the_printed_commands_do_the_same() {
    for model in ["ixgbe", "i40e", "ice", "any"] {
        let (fake, plan, journal) = planned(model);
        let document: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&plan).unwrap()).unwrap();
        let commands: Vec<String> = serde_json::from_value(document["commands"].clone()).unwrap();
        fake.flowyard(&["apply", &plan, &journal], "");
        let applied = (fake.file("rules"), printed(&fake));
        fake.flowyard(&["undo", &journal], "");
        let shell = fake
            .command(std::path::Path::new("sh"))
            .args(["-e", "-c", &commands.join("\n")])
            .output();
        assert!(
            shell.as_ref().unwrap().status.success(),
            "{model}: {}",
            text(shell.as_ref().unwrap())
        );
        assert_eq!((fake.file("rules"), printed(&fake)), applied, "{model}: {commands:?}");
    }
}
