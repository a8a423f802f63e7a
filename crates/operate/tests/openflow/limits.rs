//! What a controller can make the agent do and store is limited, and other controllers are served meanwhile.

use flowyard_openflow::act::Action;
use flowyard_openflow::group::{Bucket, GroupCommand, GroupMod, GroupType};

use super::*;

flowyard_testkit::tests! {
    groups_with_a_thousand_buckets_that_name_each_other_do_not_keep_the_agent_busy,
    a_long_reply_is_complete_and_the_barrier_behind_it_is_answered_after_it,
    a_stuck_agent_is_noticed_and_its_connections_are_closed_until_it_works_again,
    a_stuck_agent_does_not_keep_the_channel_from_ending,
    only_the_user_may_connect_to_a_unix_socket,
    a_connection_that_does_not_come_up_is_closed_in_time_whatever_it_sends,
    connections_that_are_not_up_give_way_to_others,
}

/// A group all of whose buckets name another one, or a port if that is 0.
fn group(kind: GroupType, number: u32, to: u32) -> Message {
    let action = match to {
        0 => Action::Output { port: 1, max_len: 0 },
        to => Action::Group(to),
    };
    let bucket = Bucket {
        weight: u16::from(kind == GroupType::Select),
        watch_port: reserved::ANY,
        watch_group: flowyard_openflow::group::ANY,
        actions: vec![action],
    };
    let (command, buckets) = (GroupCommand::Add, vec![bucket; 1000]);
    Message::GroupMod(GroupMod { command, kind, group: number, buckets })
}

fn groups_with_a_thousand_buckets_that_name_each_other_do_not_keep_the_agent_busy() {
    let switch = switch(listening(), true);
    let (mut one, mut other) = (Controller::dial(&switch), Controller::dial(&switch));
    for number in 1..=4 {
        one.say(number, &group(GroupType::Select, number, number - 1));
        // The first group costs as much as it has buckets; each further one would cost a thousand times as much.
        one.say(
            10 + number,
            &group(GroupType::All, 10 + number, if number == 1 { 0 } else { 9 + number }),
        );
    }
    other.barrier(7);
    one.say(20, &Message::BarrierRequest);
    let mut refused = Vec::new();
    while let Some((xid, message)) = one.message() {
        match message {
            Message::BarrierReply => break,
            Message::Error(error) => refused.push((xid, error.kind, error.code)),
            _ => {}
        }
    }
    let named = |at: u32| {
        lock(&switch.applied)
            .iter()
            .filter(|(_, change)| {
                matches!(change,
        Change::Group(group) if group.desc.group == at)
            })
            .count()
    };
    assert_eq!([1, 2, 3, 4, 11, 12].map(named), [1, 1, 1, 1, 1, 0]);
    // Too many buckets; then groups that name one which does not exist.
    assert_eq!(refused, [(12, 6, 4), (13, 2, 9), (14, 2, 9)]);
}

fn a_long_reply_is_complete_and_the_barrier_behind_it_is_answered_after_it() {
    let switch = switch(listening(), true);
    let (mut one, mut other) = (Controller::dial(&switch), Controller::dial(&switch));
    for number in 0..4000_u16 {
        let Message::FlowMod(flow) = flow(number / 4) else { unreachable!() };
        one.say(0, &Message::FlowMod(FlowMod { table: (number % 4) as u8, ..flow }));
    }
    one.barrier(1);
    let any = reserved::ANY;
    let filter = flowyard_openflow::multipart::FlowFilter {
        table: 0xff,
        out_port: any,
        out_group: any,
        ..Default::default()
    };
    let request = Message::MultipartRequest { more: false, body: Request::Flow(filter) };
    one.say(2, &request);
    one.say(3, &request);
    one.say(4, &Message::BarrierRequest);
    other.barrier(5);
    let (mut flows, mut order) = (0, Vec::new());
    while let Some((xid, message)) = one.message() {
        order.push(xid);
        match message {
            Message::MultipartReply { body: Reply::Flow(list), .. } => flows += list.len(),
            Message::BarrierReply => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(flows, 8000);
    assert!(order.is_sorted(), "{order:?}");
}

fn impatient() -> Config {
    Config { patience: Duration::from_secs(1), ..listening() }
}

#[track_caller]
fn soon(what: &str, is_so: impl Fn() -> bool) {
    let from = Instant::now();
    while !is_so() {
        assert!(from.elapsed() < Duration::from_secs(10), "{what}: not within 10 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn a_stuck_agent_is_noticed_and_its_connections_are_closed_until_it_works_again() {
    let config = impatient();
    let state = config.connections.clone();
    let switch = switch(config, true);
    let mut one = Controller::dial(&switch);
    one.barrier(1);
    assert!(state.responds() && state.times_stuck() == 0);
    let (free, waits) = bounded::<()>(0);
    switch.channel.with(move |_, _, _| {
        let _ = waits.recv();
    });
    soon("noticed", || !state.responds());
    let closed = Instant::now();
    while one.pump(50) {
        assert!(closed.elapsed() < Duration::from_secs(10), "the connection stays open");
    }
    assert_eq!((state.times_stuck(), state.responds()), (1, false));
    // The data plane has what it had; new connections are refused.
    assert!(switch.channel.is_running());
    let mut late = connect(&switch);
    late.set_read_timeout(Some(Duration::from_secs(5))).expect("an option");
    assert_eq!(std::io::Read::read(&mut late, &mut [0; 8]).expect("no timeout"), 0);
    drop(free);
    soon("it works again", || state.responds());
    let mut again = Controller::dial(&switch);
    again.barrier(2);
    assert_eq!(state.times_stuck(), 1);
}

fn a_stuck_agent_does_not_keep_the_channel_from_ending() {
    let switch = switch(impatient(), true);
    let mut one = Controller::dial(&switch);
    one.barrier(1);
    let (free, waits) = bounded::<()>(0);
    switch.channel.with(move |_, _, _| {
        let _ = waits.recv();
    });
    // More than the queue of the agent holds.
    for xid in 0..3000 {
        let mut bytes = Vec::new();
        encode(&Message::BarrierRequest, Version::V13, xid, &mut bytes).expect("can be said");
        let _ = one.link.send(&mut bytes);
    }
    let from = Instant::now();
    drop(switch);
    assert!(from.elapsed() < Duration::from_secs(8), "{:?}", from.elapsed());
    drop(free);
}

fn only_the_user_may_connect_to_a_unix_socket() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("switch");
    let endpoint = format!("punix:{}", path.display()).parse().expect("an endpoint");
    let switch = switch(Config { endpoints: vec![endpoint], ..Config::default() }, true);
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(&path).expect("a socket").permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    drop(switch);
}

/// A connection of which nothing is read.
fn connect(switch: &Switch) -> TcpStream {
    let port = switch.channel.listening()[0].replace("ptcp:", "");
    let address = format!("127.0.0.1:{}", port.split(':').next().expect("a port"));
    TcpStream::connect(address).expect("accepted by the kernel")
}

/// Whether the switch has closed the connection. What it has sent is read.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).expect("an option");
    loop {
        match std::io::Read::read(stream, &mut [0; 64]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }
}

fn a_connection_that_does_not_come_up_is_closed_in_time_whatever_it_sends() {
    let switch = switch(Config { hello_timeout: Duration::from_millis(300), ..listening() }, true);
    let mut up = Controller::dial(&switch);
    let mut slow = connect(&switch);
    // A hello of 65,535 bytes, of which each is in time for the session.
    let mut bytes = [4, 0, 0xff, 0xff].into_iter().chain(std::iter::repeat(0));
    let from = Instant::now();
    while !is_closed(&mut slow) {
        assert!(from.elapsed() < Duration::from_secs(10), "the connection stays open");
        let _closed = std::io::Write::write(&mut slow, &[bytes.next().unwrap_or(0)]);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(from.elapsed() >= Duration::from_millis(300), "{:?}", from.elapsed());
    // One that is up stays so.
    up.barrier(1);
}

fn connections_that_are_not_up_give_way_to_others() {
    let switch = switch(listening(), true);
    let mut first = Controller::dial(&switch);
    first.barrier(1);
    let mut idle: Vec<_> = (0..63).map(|_| connect(&switch)).collect();
    let mut late = Controller::dial(&switch);
    late.barrier(2);
    soon_closed(&mut idle[0]);
    assert!(!is_closed(&mut idle[62]), "only the oldest is closed");
    first.barrier(3);
}

#[track_caller]
fn soon_closed(stream: &mut TcpStream) {
    let from = Instant::now();
    while !is_closed(stream) {
        assert!(from.elapsed() < Duration::from_secs(5), "it stays open");
        std::thread::sleep(Duration::from_millis(5));
    }
}
