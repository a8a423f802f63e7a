use flowyard_adapter::rules;

use super::*;

fn with(text: &str) -> Policy {
    Policy { rules: rules::parse("rules", text).unwrap(), ..Policy::over(&[0, 1]) }
}

#[test]
fn rules_apply_by_location_and_then_in_the_order_of_the_file() {
    let policy = with(
        "flow-type tcp4 dst-port 1 action 0\n\
                       flow-type tcp4 dst-port 2 action 1 loc 7\n\
                       flow-type tcp4 dst-port 3 action -1 loc 2\n\
                       flow-type udp4 dst-port 4 action 0\n\
                       flow-type udp4 dst-port 5 action 0 loc 7\n",
    );
    let ranked = policy.ranked().unwrap();
    let seen: Vec<_> = ranked.iter().map(|one| (one.rank, one.rule.line, one.queue)).collect();
    // Line 5 replaces line 2, which has the same location.
    assert_eq!(seen, [(0, 3, None), (1, 5, Some(0)), (2, 1, Some(0)), (3, 4, Some(0))]);
}

#[test]
fn what_xdp_cannot_do_is_refused_with_the_line() {
    for (rule, what) in [
        ("flow-type tcp4 dst-port 1 action 2", "there is no queue 2; use a queue from 0 to 1"),
        ("flow-type tcp4 dst-port 1 action -2", "it wakes up the host"),
        ("flow-type tcp4 dst-port 1 vf 1", "it names a virtual function"),
        ("flow-type tcp4 dst-port 1 context 1", "it names an RSS context"),
        ("flow-type tcp4 dst-port 1 user-def 0x10 action 0", "it matches bytes at an offset"),
        ("flow-type esp4 spi 1 action 0", "it matches an SPI"),
    ] {
        let policy = with(&format!("# a comment\n{rule}\n"));
        let error = policy.ranked().unwrap_err().to_string();
        assert!(error.contains("in line 2") && error.contains(what), "{rule}: {error}");
    }
}

#[test]
fn rules_for_a_single_flow_are_found() {
    let is = |text: &str| is_exact(&with(text).rules[0]);
    let v4 = "src-ip 10.0.0.1 dst-ip 10.0.0.2 src-port 1 dst-port 2 action 0";
    let v6 = "src-ip fd00::1 dst-ip fd00::2 src-port 1 dst-port 2 action 0";
    assert!(is(&format!("flow-type tcp4 {v4}")) && is(&format!("flow-type udp6 {v6}")));
    assert!(!is(&format!("flow-type tcp4 tos 3 {v4}")));
    assert!(!is("flow-type tcp4 src-ip 10.0.0.1 dst-ip 10.0.0.2 src-port 1 action 0"));
    assert!(!is(
        "flow-type tcp4 src-ip 10.0.0.1 m 0.0.0.1 dst-ip 10.0.0.2 src-port 1 dst-port 2 action 0"
    ));
}

#[test]
fn impossible_policies_are_refused() {
    let two = Policy::over(&[0, 1]);
    let refused = |policy: Policy| policy.check().unwrap_err();
    assert_eq!(refused(Policy::over(&[])), BadPolicy::Queues(0));
    assert_eq!(refused(Policy { table: vec![], ..two.clone() }), BadPolicy::Entries(0));
    let entry = BadPolicy::Entry { entry: 1, queue: 2, last: 1 };
    assert_eq!(refused(Policy { table: vec![0, 2], ..two.clone() }), entry);
    let far = Policy { follow: Some(Follow::Readers), ..Policy::over(&[0, 300]) };
    assert_eq!(refused(far), BadPolicy::Cpu(300));
    let none = Some(Follow::Senders { sample: 0 });
    assert_eq!(refused(Policy { follow: none, ..two }), BadPolicy::Sample);
}
