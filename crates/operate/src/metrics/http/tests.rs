#![allow(clippy::disallowed_methods, reason = "tests of real sockets wait by the clock")]
use std::time::{Duration, Instant};

use super::*;

#[test]
fn only_a_complete_get_of_metrics_is_answered() {
    assert_eq!(request(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), Request::Metrics);
    assert_eq!(request(b"HEAD /metrics?x=1 HTTP/1.0\n\n"), Request::Metrics);
    for text in ["", "G", "GET /metrics HTTP/1.1\r\n", "GET /metrics HTTP/1.1\r\nHost: x\r\n"] {
        assert_eq!(request(text.as_bytes()), Request::Partial, "{text:?}");
    }
    let status = |text: &str| match request(text.as_bytes()) {
        Request::Refused(status) => status[..3].to_owned(),
        other => panic!("{text:?}: {other:?}"),
    };
    for (text, wanted) in [
        ("GET / HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("GET /metrics\r\n\r\n", "400"),
        ("GET /metrics HTTP/2\r\n\r\n", "400"),
        ("GET /metrics x HTTP/1.1\r\n\r\n", "400"),
        ("GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", "400"),
        ("\0\u{ff}\r\n\r\n", "400"),
    ] {
        assert_eq!(status(text), wanted, "{text:?}");
    }
    assert_eq!(status(&"x".repeat(LONGEST + 1)), "431");
    let fields = "A: b\r\n".repeat(FIELDS + 1);
    assert_eq!(status(&format!("GET /metrics HTTP/1.1\r\n{fields}\r\n")), "431");
}

#[test]
fn a_port_alone_is_on_loopback() {
    assert_eq!(address("9464").unwrap().to_string(), "127.0.0.1:9464");
    assert_eq!(address("[::1]:0").unwrap().to_string(), "[::1]:0");
    assert!(address("localhost").unwrap_err().to_string().contains("127.0.0.1:9464"));
}

/// A server on a free port with a page of this size, until the returned end of the pipe is closed.
fn server(bytes: usize) -> (SocketAddr, OwnedFd, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let (stopped, stop) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let began = Instant::now();
    let serve = move || {
        let now = || began.elapsed().as_nanos() as Nanos;
        let page = || "x 1\n".repeat(bytes / 4);
        Server { listener, stopped, open: Vec::new(), quiet: 0, now: &now, page: &page }.run();
    };
    (address, stop, thread::spawn(serve))
}

/// The answer to a request in pieces.
fn ask(address: SocketAddr, pieces: &[&str]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    for piece in pieces {
        stream.write_all(piece.as_bytes()).unwrap();
        thread::sleep(Duration::from_millis(20));
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn idle_clients_do_not_delay_a_scrape() {
    let (address, stop, thread) = server(50_000);
    let connect = || TcpStream::connect(address).unwrap();
    let idle: Vec<_> = (0..300).map(|_| connect()).collect();
    let slow: Vec<_> = (0..20)
        .map(|_| {
            let mut stream = connect();
            stream.write_all(b"GET /met").unwrap();
            stream
        })
        .collect();
    let began = Instant::now();
    for _ in 0..5 {
        let got = ask(address, &["GET /metrics HTTP/1.1\r\n\r\n"]);
        assert!(got.starts_with("HTTP/1.1 200 OK") && got.ends_with("x 1\n"), "{}", got.len());
    }
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    // Every one of them is closed, at the latest when its request is late.
    for mut stream in idle.into_iter().chain(slow) {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let got = stream.read(&mut [0; 16]);
        assert!(matches!(got, Ok(0)) || got.is_err_and(|e| e.kind() == ErrorKind::ConnectionReset));
    }
    drop(stop);
    thread.join().unwrap();
}

#[test]
fn requests_in_pieces_and_wrong_ones_are_answered() {
    let (address, stop, thread) = server(50_000);
    assert!(ask(address, &["GET /metr", "ics HTTP/1.1\r\n", "\r\n"]).ends_with("x 1\n"));
    assert!(ask(address, &["GET / HTTP/1.1\r\n\r\n"]).starts_with("HTTP/1.1 404"));
    // More than is read: the answer arrives nevertheless.
    let long = format!("GET /metrics HTTP/1.1\r\nA: {}", "x".repeat(3 * LONGEST));
    assert!(ask(address, &[&long]).starts_with("HTTP/1.1 431"));
    let mut half = TcpStream::connect(address).unwrap();
    half.write_all(b"GET /").unwrap();
    half.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    half.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    drop(stop);
    thread.join().unwrap();
}

#[test]
fn clients_that_read_nothing_or_send_without_end_do_not_delay_a_scrape() {
    let (address, stop, thread) = server(16 << 20);
    let mut greedy = Vec::new();
    // The kernel buffers less than the page for each of them.
    for _ in 0..2 {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        greedy.push(stream);
    }
    let mut endless = TcpStream::connect(address).unwrap();
    let flood = thread::spawn(move || while endless.write_all(&[b'x'; 4096]).is_ok() {});
    let began = Instant::now();
    assert!(ask(address, &["GET /metrics HTTP/1.1\r\n\r\n"]).starts_with("HTTP/1.1 200 OK"));
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    flood.join().unwrap();
    drop(greedy);
    drop(stop);
    thread.join().unwrap();
}
