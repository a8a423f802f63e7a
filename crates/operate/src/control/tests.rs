#![allow(clippy::disallowed_methods, reason = "tests of real sockets wait by the clock")]

use std::io::Write as _;

use super::*;

struct Nothing;

impl Answers for Nothing {
    fn answer(&self, _: &Request, _: &dyn Fn() -> bool) -> Result<serde_json::Value, String> {
        Ok(serde_json::Value::Null)
    }
}

/// A connection that is served, with this time for a request.
fn with_connection(wait: Duration, client: impl FnOnce(UnixStream)) -> Duration {
    let (stream, other) = UnixStream::pair().unwrap();
    let source = Source::Other(Arc::new(Nothing));
    thread::scope(|scope| {
        let serve = || {
            let from = Instant::now();
            let _closed = converse(&stream, &source, &Busy::default(), wait);
            let _gone = shutdown(&stream, Shutdown::Both);
            from.elapsed()
        };
        let served = scope.spawn(serve);
        client(other);
        served.join().unwrap()
    })
}

#[test]
fn a_request_arrives_in_time_as_a_whole() {
    let took = with_connection(Duration::from_millis(300), |mut client| {
        // A byte comes in time, but the line does not.
        for _ in 0..60 {
            if client.write_all(b" ").is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
    });
    assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn each_request_has_the_whole_time() {
    // The requests take longer together than one may.
    with_connection(Duration::from_secs(2), |client| {
        let mut lines = BufReader::new(&client);
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(700));
            (&client).write_all(b"{\"ask\":\"queues\"}\n").unwrap();
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            assert!(!line.is_empty());
        }
    });
}
