use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::thread::JoinHandle;
use std::time::Duration;

use flowyard_frame::Nanos;
use flowyard_lb::check::Tls;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::*;

const SOON: Nanos = 300_000_000;

/// Runs a check with real time.
fn ask_within(asks: &Asks, addr: SocketAddr, timeout: Nanos) -> Result<(), Fault> {
    #[allow(clippy::disallowed_methods, reason = "tests of real sockets wait by the clock")]
    let start = std::time::Instant::now();
    let now = || start.elapsed().as_nanos() as Nanos;
    let asked = Asked { service: "web".into(), backend: "b1".into(), addr };
    Probe::new(asks).ask(&asked, &Commands::here(), Deadline::new(&now, timeout))
}

fn ask(asks: &Asks, addr: SocketAddr) -> Result<(), Fault> {
    ask_within(asks, addr, SOON * 10)
}

fn wrong(what: &str) -> Result<(), Fault> {
    Err(Fault::wrong(what))
}

fn http(body: Option<&str>, tls: Option<Tls>) -> Http {
    let (path, body) = ("/health".into(), body.map(Into::into));
    Http { path, host: Some("web.example".into()), least: 200, most: 299, body, tls }
}

/// Serves one connection after another with these responses.
fn server(answers: Vec<&'static str>) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let serve = move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 512];
            let len = stream.read(&mut asked).unwrap();
            let asked = String::from_utf8_lossy(&asked[..len]).into_owned();
            assert!(asked.starts_with("GET /health HTTP/1.1\r\nHost: web.example\r\n"), "{asked}");
            let _gone = stream.write_all(answer.as_bytes());
        }
    };
    (addr, std::thread::spawn(serve))
}

#[test]
fn tcp_passes_if_the_connection_is_accepted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    assert_eq!(ask(&Asks::Tcp, addr), Ok(()));
    drop(listener);
    let Err(Fault::Wrong(why)) = ask(&Asks::Tcp, addr) else { panic!("the listener is gone") };
    assert!(why.contains("refused"), "{why}");
}

#[test]
fn http_passes_by_status_and_body() {
    let (addr, server) = server(vec![
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 503 Busy\r\n\r\n",
        "SSH-2.0-x\r\n",
        "HTTP/1.0 204 \r\nX: all well\r\n\r\nall is well",
        "HTTP/1.1 200 OK\r\nX: all well\r\n\r\nall is bad",
        "",
    ]);
    let plain = Asks::Http(http(None, None));
    assert_eq!(ask(&plain, addr), Ok(()));
    assert_eq!(ask(&plain, addr), wrong("the response has status 503"));
    assert_eq!(ask(&plain, addr), wrong("the response is not HTTP/1"));
    let body = Asks::Http(http(Some("is well"), None));
    assert_eq!(ask(&body, addr), Ok(()));
    assert_eq!(ask(&body, addr), wrong("the response body does not contain 'is well'"));
    assert_eq!(ask(&body, addr), wrong("the response is not HTTP/1"));
    server.join().unwrap();
}

#[test]
fn a_response_in_small_pieces_is_late_too() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let slow = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        while stream.write_all(b"H").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let got = ask_within(&Asks::Http(http(None, None)), addr, SOON);
    assert_eq!(got, wrong("no response within 300 ms"));
    slow.join().unwrap();
}

/// A TLS server that sends the page on each connection. Returns its certificate in PEM.
fn tls_server(names: &[&str], connections: usize) -> (SocketAddr, String) {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).unwrap();
    let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let config = Arc::new(config);
    std::thread::spawn(move || {
        for _ in 0..connections {
            let (stream, _) = listener.accept().unwrap();
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(connection, stream);
            let mut asked = [0; 512];
            if stream.read(&mut asked).is_ok() {
                let answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nall\r\n5\r\n well\r\n0\r\n\r\n";
                let _gone = stream.write_all(answer);
            }
        }
    });
    (addr, cert.pem())
}

#[test]
fn https_verifies_certificates_unless_configured_not_to() {
    let (addr, pem) = tls_server(&["web.example", "127.0.0.1"], 9);
    let asks = |verify, ca: Option<&str>, host: Option<&str>| {
        let tls = Tls { verify, ca: ca.map(|pem| pem.as_bytes().to_vec()) };
        let http = http(Some("all well"), Some(tls));
        Asks::Http(Http { host: host.map(Into::into), ..http })
    };
    assert_eq!(ask(&asks(true, Some(&pem), Some("web.example")), addr), Ok(()));
    assert_eq!(ask(&asks(true, Some(&pem), Some("web.example:8443")), addr), Ok(()));
    assert_eq!(ask(&asks(true, Some(&pem), None), addr), Ok(()), "by its address");
    assert_eq!(ask(&asks(false, None, Some("other.example")), addr), Ok(()));
    let refused = |asks: &Asks, said: &str| match ask(asks, addr) {
        Err(Fault::Wrong(why)) => assert!(why.contains(said), "{why}"),
        other => panic!("{other:?}"),
    };
    refused(&asks(true, Some(&pem), Some("other.example")), "not valid for name");
    let (_, other) = tls_server(&["web.example"], 0);
    refused(&asks(true, Some(&other), Some("web.example")), "certificate");
    let cannot = |asks: &Asks| assert!(matches!(ask(asks, addr), Err(Fault::Cannot(_))));
    cannot(&asks(true, Some("no certificate"), None));
    cannot(&asks(false, None, Some("no name!")));
}

#[test]
fn a_server_without_tls_fails() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let plain = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _gone = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let tls = Some(Tls { verify: false, ca: None });
    assert!(matches!(ask(&Asks::Http(http(None, tls)), addr), Err(Fault::Wrong(_))));
    plain.join().unwrap();
}

#[test]
fn udp_passes_on_a_reply_or_without_an_error() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = server.local_addr().unwrap();
    let udp = |expect: Option<&[u8]>| Asks::Udp {
        send: b"ping".to_vec(),
        expect: expect.map(<[u8]>::to_vec),
    };
    assert_eq!(ask_within(&udp(None), addr, SOON / 10), Ok(()), "no reply is not an error");
    assert_eq!(ask_within(&udp(Some(b"pong")), addr, SOON / 10), wrong("no response within 30 ms"));
    let echo = std::thread::spawn(move || {
        for _ in 0..4 {
            let mut asked = [0; 16];
            let (len, from) = server.recv_from(&mut asked).unwrap();
            assert_eq!(&asked[..len], b"ping");
            server.send_to(b"pong 1", from).unwrap();
        }
    });
    assert_eq!(ask(&udp(Some(b"pong")), addr), Ok(()));
    assert_eq!(ask(&udp(Some(b"ping")), addr), wrong("the reply does not begin with 'expect'"));
    echo.join().unwrap();
    assert!(matches!(ask(&udp(None), addr), Err(Fault::Wrong(_))), "port unreachable");
}

#[test]
fn a_command_has_its_backend_in_the_environment_and_is_killed_with_its_children() {
    let addr = "192.0.2.7:9".parse().unwrap();
    let sh = |text: &str| Asks::Command(vec!["sh".into(), "-c".into(), text.into()]);
    let knows = "test $FLOWYARD_SERVICE/$FLOWYARD_BACKEND@$FLOWYARD_ADDRESS:$FLOWYARD_PORT = web/b1@192.0.2.7:9";
    assert_eq!(ask(&sh(knows), addr), Ok(()));
    assert_eq!(ask(&sh("exit 3"), addr), wrong("'sh': exit status: 3"));
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let slow = format!("sleep 60 & echo $! > {}; wait", pid.display());
    assert_eq!(ask_within(&sh(&slow), addr, SOON), wrong("no response within 300 ms"));
    let pid = std::fs::read_to_string(pid).unwrap();
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    let is_gone = || state().map_or(true, |stat| stat.contains(") Z"));
    assert!((0..200).any(|_| is_gone() || {
        std::thread::sleep(Duration::from_millis(5));
        false
    }));
    let none = Asks::Command(vec!["/no/such/program".into()]);
    let Err(Fault::Cannot(why)) = ask(&none, addr) else { panic!("it cannot run") };
    assert!(why.contains("/no/such/program"), "{why}");
    assert!(matches!(ask(&Asks::Command(Vec::new()), addr), Err(Fault::Cannot(_))));
}

#[test]
fn a_deadline_that_has_passed_is_an_error() {
    let time = Cell::new(0);
    let now = || time.get();
    let deadline = Deadline::new(&now, 10);
    assert!(deadline.left().is_ok());
    time.set(10);
    let error = deadline.left().unwrap_err();
    assert_eq!(deadline.fault(&error), Fault::wrong("no response within 0 ms"));
}

/// Answers one query with each of these bytes in place of the second word of the header and the number of answers.
/// The thread returns the number of queries whose ID is the port that they come from.
fn name_server(answers: Vec<([u8; 2], u8)>) -> (SocketAddr, JoinHandle<usize>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = socket.local_addr().unwrap();
    let serve = move || {
        let mut guessed = 0;
        for (flags, count) in answers {
            let mut message = [0; 512];
            let (len, from) = socket.recv_from(&mut message).unwrap();
            guessed += usize::from(message[..2] == from.port().to_be_bytes());
            assert_eq!(message[12..len], *b"\x03www\x07example\0\0\x1c\0\x01");
            let mut strange = message;
            strange[0] ^= 1;
            strange[2] = 0x80;
            socket.send_to(&strange[..len], from).unwrap(); // the response to another query is ignored
            message[2..4].copy_from_slice(&flags);
            message[7] = count;
            socket.send_to(&message[..len + 28 * usize::from(count)], from).unwrap();
        }
        guessed
    };
    (addr, std::thread::spawn(serve))
}

#[test]
fn dns_passes_with_a_record_and_without_an_error() {
    let answers = vec![([0x81, 0x80], 1), ([0x81, 0x80], 0), ([0x81, 0x82], 0)];
    let (addr, server) = name_server(answers);
    let asks = Asks::Dns { name: "www.example".into(), kind: 28 };
    assert_eq!(ask(&asks, addr), Ok(()));
    assert_eq!(ask(&asks, addr), wrong("'www.example': the response has no record"));
    assert_eq!(ask(&asks, addr), wrong("'www.example': the response is an error: SERVFAIL"));
    assert!(server.join().unwrap() < 3, "the port must not tell the ID");
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let late = ask_within(&asks, silent.local_addr().unwrap(), SOON);
    assert_eq!(late, wrong("no response within 300 ms"));
}
