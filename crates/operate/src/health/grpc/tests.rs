//! The check against recorded responses, and against servers that misbehave.

use std::net::TcpListener;
use std::thread::JoinHandle;

use flowyard_frame::Nanos;
use proptest::prelude::*;

use super::*;

const SECOND: Nanos = 1_000_000_000;
/// The first frames of a connection from grpcio 1.85.3: SETTINGS, WINDOW_UPDATE, an acknowledgement, and WINDOW_UPDATE.
const BEGIN: [u8; 68] = [
    0, 0, 0x18, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0x40, 0, 0, 0, 5, 0, 0x40, 0, 0, 0, 6, 0, 0, 0x40, 0,
    0xfe, 3, 0, 0, 0, 1, 0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0x3f, 0, 1, 0, 0, 0, 4, 1, 0, 0, 0, 0, 0, 0,
    4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 5,
];
/// In a frame of header fields: there are no more of them.
const END_HEADERS: u8 = 4;
const END_STREAM: u8 = 1;

fn ask_within(addr: SocketAddr, wanted: &Grpc, timeout: Nanos) -> Result<(), Fault> {
    #[allow(clippy::disallowed_methods, reason = "tests of real sockets wait by the clock")]
    let start = std::time::Instant::now();
    let now = || start.elapsed().as_nanos() as Nanos;
    let stream = TcpStream::connect(addr).unwrap();
    ask(&stream, wanted, addr, Deadline::new(&now, timeout))
}

fn about(service: &str) -> Grpc {
    Grpc { service: service.into(), host: Some("web.example".into()) }
}

/// A server that accepts one connection, reads a request, sends `answer` and returns what it has read.
fn server(answer: Vec<u8>) -> (SocketAddr, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let serve = move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut asked, mut piece) = (Vec::new(), [0; 1024]);
        // Up to the DATA frame that ends the request.
        while !asked.windows(9).any(|head| head[3..] == [0, END_STREAM, 0, 0, 0, 1]) {
            let len = stream.read(&mut piece).unwrap();
            assert!(len > 0, "the request is cut off");
            asked.extend_from_slice(&piece[..len]);
        }
        let _gone = stream.write_all(&answer);
        let _rest = stream.shutdown(std::net::Shutdown::Write);
        let _rest = std::io::copy(&mut stream, &mut std::io::sink());
        asked
    };
    (addr, std::thread::spawn(serve))
}

/// A frame of stream 1.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = (payload.len() as u32).to_be_bytes();
    [&length[..], &[kind, flags, 0, 0, 0, 1], payload].concat()
}

/// Header fields as literals without a name from a table (RFC 7541 section 6.2.2).
fn fields(all: &[(&str, &str)]) -> Vec<u8> {
    let one = |(name, value): &(&str, &str)| {
        [&[0, name.len() as u8], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat()
    };
    all.iter().flat_map(one).collect()
}

/// A response of these parts: header fields, messages, and the fields after them.
fn response(head: &[(&str, &str)], body: &[u8], tail: &[(&str, &str)]) -> Vec<u8> {
    let head = [&[0x88][..], &fields(head)].concat(); // 0x88: status 200
    let mut all = [BEGIN.to_vec(), frame(1, END_HEADERS, &head), frame(0, 0, body)].concat();
    all.extend(frame(1, END_HEADERS | END_STREAM, &fields(tail)));
    all
}

const GRPC: (&str, &str) = ("content-type", "application/grpc");

fn answered(answer: Vec<u8>, service: &str) -> Result<(), Fault> {
    let (addr, asked) = server(answer);
    let result = ask_within(addr, &about(service), 5 * SECOND);
    asked.join().unwrap();
    result
}

#[test]
fn a_service_that_accepts_requests_passes() {
    let serving = response(&[GRPC], &[0, 0, 0, 0, 2, 8, 1], &[("grpc-status", "0")]);
    let (addr, asked) = server(serving);
    assert_eq!(ask_within(addr, &about("a.Service"), 5 * SECOND), Ok(()));
    let asked = asked.join().unwrap();
    assert!(asked.starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
    let message = [&[0, 0, 0, 0, 11, 10, 9][..], b"a.Service"].concat();
    assert!(asked.windows(message.len()).any(|part| part == message), "{asked:?}");
}

/// Recorded from grpcio 1.85.3 with grpcio-health-checking: the fields are entered into the table of names.
#[test]
fn recorded_responses_are_understood() {
    let head = b"\x88\x40\x0ccontent-type\x10application/grpc\x40\x14grpc-accept-encoding\x17identity, deflate, gzip";
    let tail = |code: &[u8]| [b"\x40\x0bgrpc-status", code, b"\x00\x0cgrpc-message\x00"].concat();
    let all = |body: &[u8], code: &[u8]| {
        let tail = frame(1, 5, &tail(code));
        [BEGIN.to_vec(), frame(1, 4, head), frame(0, 0, body), tail].concat()
    };
    let serving = all(&[0, 0, 0, 0, 2, 8, 1], b"\x010");
    assert_eq!(answered(serving, ""), Ok(()));
    let not = all(&[0, 0, 0, 0, 2, 8, 2], b"\x010");
    assert_eq!(answered(not, "down.Service"), Err(Fault::wrong("'down.Service': NOT_SERVING")));
    let none = all(&[0, 0, 0, 0, 0], b"\x015");
    let said = "'no.Service': gRPC status 5 (NOT_FOUND)";
    assert_eq!(answered(none, "no.Service"), Err(Fault::wrong(said)));
    // A server without the service of health checks sends one block of fields.
    let only = b"\x88\x40\x0ccontent-type\x10application/grpc\x40\x0bgrpc-status\x0212\x00\x0cgrpc-message\x11Method not found!";
    let only = [BEGIN.to_vec(), frame(1, 5, only)].concat();
    let said = "the server: gRPC status 12 (UNIMPLEMENTED): Method not found!";
    assert_eq!(answered(only, ""), Err(Fault::wrong(said)));
}

#[test]
fn a_response_that_is_not_as_expected_fails_with_the_reason() {
    let good = [0, 0, 0, 0, 2, 8, 1];
    let ok = ("grpc-status", "0");
    let other = [BEGIN.to_vec(), frame(1, 5, b"\x8d")].concat(); // status 404
    for (answer, said) in [
        (other, "the response has status 404"),
        (response(&[("content-type", "text/html")], &good, &[ok]), "is not one of gRPC"),
        (response(&[], &good, &[ok]), "is not one of gRPC"),
        (response(&[GRPC], &good, &[("x", "y")]), "has no grpc-status"),
        (response(&[GRPC], &good, &[("grpc-status", "99")]), "99 (not defined)"),
        (response(&[GRPC], &good, &[("grpc-status", "14")]), "14 (UNAVAILABLE)"),
        (response(&[GRPC], &[], &[ok]), "no message about health"),
        (response(&[GRPC], &[1, 0, 0, 0, 2, 8, 1], &[ok]), "no message about health"),
        (response(&[GRPC], &[0, 0, 0, 0, 2, 8, 3], &[ok]), "the server: SERVICE_UNKNOWN"),
        (response(&[GRPC], &[0, 0, 0, 0, 0], &[ok]), "the server: UNKNOWN"),
        (response(&[GRPC], &[0, 0, 0, 0, 2, 8, 9], &[ok]), "a status that is not defined"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "does not speak HTTP/2 as expected"),
        (b"garbage garbage garbage".to_vec(), "does not speak HTTP/2 as expected"),
    ] {
        let Err(Fault::Wrong(why)) = answered(answer, "") else { panic!("{said}") };
        assert!(why.contains(said), "{said}: {why}");
    }
    // A reset of the stream, and an end of the connection in front of the answer.
    for answer in
        [[BEGIN.to_vec(), frame(3, 0, &[0, 0, 0, 7])].concat(), BEGIN.to_vec(), Vec::new()]
    {
        assert!(matches!(answered(answer, ""), Err(Fault::Wrong(_))));
    }
}

#[test]
fn a_response_that_is_cut_off_anywhere_fails() {
    let whole = response(&[GRPC], &[0, 0, 0, 0, 2, 8, 1], &[("grpc-status", "0")]);
    for end in (0..whole.len()).step_by(3) {
        assert!(answered(whole[..end].to_vec(), "").is_err(), "{end}");
    }
    assert_eq!(answered(whole, ""), Ok(()));
}

#[test]
fn a_server_that_sends_without_end_is_left() {
    let piece = frame(0, 0, &[0; 2000]);
    let head = [&[0x88][..], &fields(&[GRPC, ("grpc-status", "0")])].concat();
    let mut all = [BEGIN.to_vec(), frame(1, END_HEADERS, &head)].concat();
    (0..8).for_each(|_| all.extend_from_slice(&piece));
    assert_eq!(answered(all, ""), Err(Fault::wrong("the server: UNKNOWN")));
}

#[test]
fn a_silent_server_fails_at_the_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let result = ask_within(addr, &about(""), SECOND / 20);
    assert_eq!(result, Err(Fault::wrong("no response within 50 ms")));
    // One that answers with pings only, too.
    let beats = std::thread::spawn(move || {
        let _first = listener.accept();
        let (mut stream, _) = listener.accept().unwrap();
        let ping = [&[0, 0, 8, 6, 0, 0, 0, 0, 0][..], &[0; 8]].concat();
        let mut sent = stream.write_all(&BEGIN);
        while sent.is_ok() {
            std::thread::sleep(Duration::from_millis(2));
            sent = stream.write_all(&ping);
        }
    });
    let result = ask_within(addr, &about(""), SECOND / 10);
    assert_eq!(result, Err(Fault::wrong("no response within 100 ms")));
    beats.join().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// A response with changed bytes gives a result: the check neither panics nor goes on for ever.
    #[test]
    fn damaged_responses_give_a_result(at in prop::collection::vec((0usize..200, any::<u8>()), 0..8)) {
        let mut all = response(&[GRPC], &[0, 0, 0, 0, 2, 8, 1], &[("grpc-status", "0")]);
        let is_same = at.is_empty();
        for (at, byte) in at {
            let at = at % all.len();
            all[at] = byte;
        }
        let (addr, asked) = server(all);
        let result = ask_within(addr, &about(""), SECOND / 4);
        prop_assert!(!is_same || result == Ok(()));
        asked.join().unwrap();
    }
}
