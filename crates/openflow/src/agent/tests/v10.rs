//! Tests of the messages of 1.0, as bytes. The name of a test begins with the section of OpenFlow
//! 1.0.0 that it checks.

use super::*;
use crate::decode;
use crate::port::Port;

/// The connection of the controller of 1.0.
const OLD: u32 = 2;

fn with_old() -> Agent {
    let mut agent = agent();
    agent.connect(OLD, Version::V10);
    agent.port_add(Port { number: 1, ..Port::default() }, 0, &mut Vec::new());
    agent.drain();
    agent
}

/// A message of 1.0.
fn wire(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = 8 + body.len() as u16;
    [&[1, kind][..], &len.to_be_bytes(), &[0, 0, 0, 5], body].concat()
}

/// The match of an untagged frame from 10.0.0.1 to 10.0.0.2, by port 1.
fn a_match(wildcards: u32, protocol: u8, ports: [u16; 2]) -> Vec<u8> {
    let mut bytes = wildcards.to_be_bytes().to_vec();
    bytes.extend([0, 1, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0xff, 0xff, 0, 0, 8, 0]);
    bytes.extend([0, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    ports.iter().for_each(|port| bytes.extend(port.to_be_bytes()));
    bytes
}

/// A flow-mod with these actions.
fn flow_mod(matching: &[u8], command: u16, idle: u16, flags: u16, actions: &[u8]) -> Vec<u8> {
    let mut body = [matching, &[0; 8], &command.to_be_bytes(), &idle.to_be_bytes()].concat();
    body.extend([0, 0, 0, 9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    body.extend(flags.to_be_bytes());
    body.extend(actions);
    wire(14, &body)
}

/// The answers as bytes, as the controller of 1.0 reads them.
fn say(agent: &mut Agent, bytes: &[u8]) -> Vec<Vec<u8>> {
    let (_, message) = decode(bytes).expect("a message of 1.0");
    let mut out = Vec::new();
    agent.handle(OLD, 5, &message, 0, &mut out);
    let bytes = |out: Out| {
        let mut bytes = Vec::new();
        encode(&out.message, Version::V10, out.xid, &mut bytes).expect("an answer of 1.0");
        bytes
    };
    out.into_iter().filter(|out| out.to == OLD).map(bytes).collect()
}

/// Type and code of the error that a message is answered with.
fn error(agent: &mut Agent, bytes: &[u8]) -> Option<(u8, u8)> {
    match say(agent, bytes).as_slice() {
        [] => None,
        [error] if error[1] == 1 => Some((error[9], error[11])),
        other => panic!("{other:?}"),
    }
}

#[test]
fn s3_4_a_match_without_wildcards_comes_back_without_wildcards_and_with_the_highest_priority() {
    let mut agent = with_old();
    let exact = a_match(0, 17, [1, 2]);
    assert_eq!(error(&mut agent, &flow_mod(&exact, 0, 0, 1, &[])), None);
    let mut request = vec![0, 1, 0, 0];
    request.extend(a_match(0x3f_ffff, 0, [0, 0]));
    request.extend([0xff, 0, 0xff, 0xff]);
    let stats = say(&mut agent, &wire(16, &request)).remove(0);
    assert_eq!((&stats[16..56], &stats[64..66]), (&exact[..], &[0xff, 0xff][..]));
    // The priority of a request for this flow does not matter.
    let gone = say(&mut agent, &flow_mod(&exact, 4, 0, 0, &[])).remove(0);
    assert_eq!((gone[1], &gone[8..48], &gone[56..58]), (11, &exact[..], &[0xff, 0xff][..]));
    // With a wildcard, the priority is the controller's.
    let masked = a_match(1 << 7, 17, [1, 0]);
    assert_eq!(error(&mut agent, &flow_mod(&masked, 0, 0, 0, &[])), None);
    assert_eq!(first(&agent).entry.priority, 9);
}

#[test]
fn s4_6_an_emergency_flow_with_a_timeout_has_an_error_of_its_own() {
    let mut agent = with_old();
    let all = a_match(0x3f_ffff, 0, [0, 0]);
    assert_eq!(error(&mut agent, &flow_mod(&all, 0, 7, 4, &[])), Some((3, 3)));
    assert_eq!(error(&mut agent, &flow_mod(&all, 0, 0, 4, &[])), Some((3, 0)));
    assert_eq!(error(&mut agent, &flow_mod(&all, 3, 0, 4, &[])), None);
}

#[test]
fn s5_3_2_refused_fragment_handling_does_not_lose_the_length_of_packet_ins() {
    let mut agent = with_old();
    assert_eq!(error(&mut agent, &wire(9, &[0, 1, 0, 77])), Some((1, 5)));
    assert_eq!(say(&mut agent, &wire(7, &[]))[0][8..], [0, 0, 0, 77]);
}

#[test]
fn s5_3_6_a_packet_out_may_name_any_port_and_errors_say_bad_port() {
    let mut agent = with_old();
    let mut body = vec![0xff, 0xff, 0xff, 0xff, 0, 99, 0, 8, 0, 0, 0, 8, 0, 1, 0, 0];
    body.extend([0; 60]);
    assert_eq!(error(&mut agent, &wire(13, &body)), None);
    assert!(matches!(&agent.drain()[..], [(_, Change::Send(m))] if m.in_port == 99));
    // Statistics of a port that does not exist.
    let request = [0, 4, 0, 0, 0, 99, 0, 0, 0, 0, 0, 0];
    assert_eq!(error(&mut agent, &wire(16, &request)), Some((4, 0)));
}

#[test]
fn s5_2_3_an_icmp_type_or_code_above_255_is_refused() {
    let mut agent = with_old();
    for ports in [[300, 0], [0, 256]] {
        let bytes = flow_mod(&a_match(0, 1, ports), 0, 0, 0, &[]);
        let problem = decode(&bytes).err().map(|rejected| rejected.problem.code);
        assert_eq!(problem, Some(problem::MATCH_BAD_VALUE.code), "{ports:?}");
    }
    let icmp = a_match(0, 1, [8, 255]);
    let set = |value: u16| {
        let [high, low] = value.to_be_bytes();
        flow_mod(&icmp, 0, 0, 0, &[0, 9, 0, 8, high, low, 0, 0])
    };
    assert_eq!(error(&mut agent, &set(300)), Some((2, 5)));
    assert_eq!(error(&mut agent, &set(3)), None);
}
