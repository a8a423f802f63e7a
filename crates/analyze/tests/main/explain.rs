//! The fixes of `explain` must be correct according to the models.

use flowyard_adapter::{Profile, rules};
use flowyard_analyze::{Analyzer, Explanation, Question, RuleFile, Setup, Spec, Target};
use flowyard_frame::FlowKey;

flowyard_testkit::tests! {
    a_rule_is_only_suggested_if_the_given_rules_allow_it,
    a_thread_is_only_suggested_if_its_core_leads_to_the_queue,
    the_mask_of_the_rules_is_applied_to_the_bucket,
    atr_is_off_with_one_queue,
}

fn setup(adapter: &str, queues: u16, cores: u16, policies: Vec<Spec>) -> Setup {
    Setup { queues, cores, ..Setup::new(Profile::find(adapter).unwrap(), policies) }
}

fn fdir(text: &str) -> Spec {
    Spec::Fdir(RuleFile { name: "rules".into(), rules: rules::parse("rules", text).unwrap() })
}

fn ask(setup: Setup, flow: FlowKey, queue: u16) -> Explanation {
    let question = Question { expect_queue: Some(queue), choose_port: None };
    Analyzer::new(setup).unwrap().explain(&Target::flow(flow), &question)
}

fn fixes(explanation: &Explanation, policy: &str) -> String {
    explanation.expect.as_ref().unwrap().policies[policy].fix.join("\n")
}

fn flow(text: &str) -> FlowKey {
    text.parse().unwrap()
}

const TCP: &str = "tcp 192.0.2.1:1000 > 192.0.2.10:11211";

fn a_rule_is_only_suggested_if_the_given_rules_allow_it() {
    let empty = ask(setup("x520", 16, 16, vec![Spec::Rss]), flow(TCP), 7);
    let fix = fixes(&empty, "rss");
    assert!(fix.contains("add the rule: ethtool -N IFACE flow-type tcp4"), "{fix}");
    // The mask of the port is fixed already, and it does not include the source.
    let rule = "flow-type tcp4 dst-ip 192.0.2.10 dst-port 80 action 3";
    let taken = ask(setup("x520", 16, 16, vec![fdir(rule)]), flow(TCP), 7);
    assert!(fixes(&taken, "fdir").contains("Only one mask"), "{}", fixes(&taken, "fdir"));
    // On other adapters the input set of the flow type is fixed.
    let taken = ask(setup("e810", 16, 16, vec![fdir(rule)]), flow(TCP), 7);
    assert!(fixes(&taken, "fdir").contains("input set"), "{}", fixes(&taken, "fdir"));
    let fragment = FlowKey { frag: 1, ..flow(TCP) };
    let never = ask(setup("x520", 16, 16, vec![fdir("")]), fragment, 7);
    assert!(fixes(&never, "fdir").contains("fragments"), "{}", fixes(&never, "fdir"));
}

fn a_thread_is_only_suggested_if_its_core_leads_to_the_queue() {
    let ask = |adapter: &str, queues, cores, policy, text: &str, queue| {
        let name = Spec::name(&policy);
        fixes(&ask(setup(adapter, queues, cores, vec![policy]), flow(text), queue), name)
    };
    assert!(ask("x520", 16, 16, Spec::Atr, TCP, 7).contains("on core 7"));
    let udp = TCP.replace("tcp", "udp");
    assert!(ask("x520", 16, 16, Spec::Atr, &udp, 7).contains("not possible"));
    assert!(ask("x520", 16, 16, Spec::Yard, &udp, 7).contains("not possible"));
    assert!(ask("e810", 16, 16, Spec::Arfs, &udp, 7).contains("on core 7"));
    // Four cores transmit on four rings.
    assert!(ask("x520", 16, 4, Spec::Atr, TCP, 7).contains("only to queues 0 to 3"));
    // ixgbe uses 63 rings for ATR.
    assert!(ask("x520", 80, 80, Spec::Atr, TCP, 70).contains("only to queues 0 to 62"));
}

/// A perfect filter is found by the masked key, so the bucket is the same for all flows of a rule.
fn the_mask_of_the_rules_is_applied_to_the_bucket() {
    let rule = "flow-type tcp4 dst-ip 192.0.2.10 dst-port 11211 action 3";
    let bucket = |text: &str| {
        let fdir = ask(setup("x520", 16, 16, vec![fdir(rule)]), flow(text), 3).policies.fdir;
        fdir.unwrap().bucket_hash.unwrap()
    };
    assert_eq!(bucket(TCP), bucket("tcp 198.51.100.9:7 > 192.0.2.10:11211"));
    assert_ne!(bucket(TCP), bucket("tcp 192.0.2.1:1000 > 192.0.2.10:80"));
}

/// ixgbe samples only if RSS has more than one queue.
fn atr_is_off_with_one_queue() {
    let why = |queues| ask(setup("x520", queues, 1, vec![Spec::Atr]), flow(TCP), 0).policies.atr;
    assert!(why(1).unwrap().why.contains("RSS has one queue"));
    assert!(why(2).unwrap().why.contains("no filter for this flow yet"));
    let off = Analyzer::new(setup("x520", 1, 1, vec![Spec::Atr])).unwrap().finish();
    assert!(off.notes.iter().any(|note| note.contains("turns ATR off")), "{:?}", off.notes);
}
