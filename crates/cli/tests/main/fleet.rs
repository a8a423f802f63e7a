//! Services of a provider: what a run does with them, `flowyard run --check`, and the exit status of `flowyard fleet`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use flowyard_testkit::dns::Server;
use rustix::process::Signal;
use serde_json::Value;

use crate::common::{flowyard, refused, text};
use crate::yard::{Yard, wait};

flowyard_testkit::tests! {
    services_of_a_document_are_used_refused_and_kept,
    etcd_that_does_not_answer_is_named,
    a_check_reads_the_provider_or_says_that_it_was_not_read,
    nodes_that_do_not_agree_are_a_failure,
    backends_come_from_srv_records,
}

/// The answer to every request, as a status with fields, and a body.
pub(crate) type Page = Arc<Mutex<(String, String)>>;

/// A server that ends with the test.
pub(crate) fn serve(body: &str) -> (String, Page) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let page = Arc::new(Mutex::new(("200 OK".to_owned(), body.to_owned())));
    let shown = Arc::clone(&page);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut length = 0;
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                if let Some(text) = line.strip_prefix("Content-Length: ") {
                    length = text.trim().parse().unwrap();
                }
                line.clear();
            }
            let _gone = std::io::Read::read_exact(&mut reader, &mut vec![0; length]);
            let (status, body) = shown.lock().unwrap().clone();
            let length = body.len();
            let _gone = stream.write_all(
                format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}").as_bytes(),
            );
        }
    });
    (url, page)
}

pub(crate) fn service(name: &str, port: u16, backends: &[u8]) -> String {
    let mut text = format!(
        "[[service]]\nname = \"{name}\"\nvip = \"192.0.2.10\"\nproto = \"udp\"\nport = {port}\nmode = \"dsr\"\n"
    );
    for n in backends {
        text += &format!(
            "[[service.backend]]\nname = \"b{n}\"\naddr = \"127.0.0.{n}\"\n\
             exit = {{ port = \"east\", next_hop = \"02:00:00:00:01:01\" }}\n"
        );
    }
    text
}

/// A balancer without services, whose provider is a document at this URL.
pub(crate) fn config(url: &str, state: &std::path::Path) -> String {
    format!(
        r#"
        [[port]]
        name = "west"
        kind = "mem"
        in = "captures/yard.pcap"
        repeat = 1000000
        pace = "20000"
        [[port]]
        name = "east"
        kind = "mem"
        [[queue]]
        name = "q"
        order = "atomic"
        consumers = [0]
        [work]
        kind = "balance"
        [balance]
        entries = 251
        seed = 0x123456789abcde
        [cluster]
        kind = "http"
        url = "{url}/services.toml"
        state = {state:?}
        poll_ms = 100
        timeout_ms = 2000
"#
    )
}

/// The services in `lb show`, each with its number of backends.
fn shown(yard: &Yard) -> Vec<(String, usize)> {
    let shown = yard.json(&["lb", "show"]);
    let one = |service: &Value| {
        let backends = service["backends"].as_array().unwrap().len();
        (service["name"].as_str().unwrap().to_owned(), backends)
    };
    shown["services"].as_array().unwrap().iter().map(one).collect()
}

fn services_of_a_document_are_used_refused_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state.json");
    let bulk = service("bulk", 5204, &[1]);
    let (url, page) = serve(&bulk);
    let mut yard = Yard::start(&config(&url, &state), &[]);
    let has = |yard: &Yard, wanted: &[(&str, usize)]| {
        let wanted: Vec<_> = wanted.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        wait("the services", || (shown(yard) == wanted).then_some(()));
    };
    has(&yard, &[("bulk", 1)]);
    let both = bulk + &service("dns", 53, &[1, 2]);
    page.lock().unwrap().1.clone_from(&both);
    has(&yard, &[("bulk", 1), ("dns", 2)]);
    wait("the saved services", || {
        fs::read_to_string(&state).ok().filter(|text| text.contains("dns"))
    });
    // A mistake changes nothing, and is named with its line.
    page.lock().unwrap().1 = both.replace("port = 53", "port = 0");
    let log = yard.wait_for_log("refused, nothing changed");
    assert!(log.contains("/services.toml:") && log.contains("is out of range"), "{log}");
    page.lock().unwrap().1 = "# nothing\n".into();
    yard.wait_for_log("has no services any more");
    page.lock().unwrap().0 = "301 Moved\r\nLocation: https://elsewhere/".into();
    yard.wait_for_log("redirects to https://elsewhere/ (301), which is not followed");
    assert_eq!(shown(&yard).len(), 2);
    // A start without the server uses the last good services, and then those of the server.
    yard.stop();
    page.lock().unwrap().0 = "503 Away".into();
    yard.restart(&[]);
    let log = yard.wait_for_log("the last good services of the file in 'state' are used");
    assert!(log.contains("the answer has status 503"), "{log}");
    has(&yard, &[("bulk", 1), ("dns", 2)]);
    *page.lock().unwrap() = ("200 OK".into(), service("dns", 53, &[2]));
    has(&yard, &[("dns", 1)]);
    let (status, _) = yard.stop();
    assert!(status.success(), "{}", yard.log());
}

fn a_check_reads_the_provider_or_says_that_it_was_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let (url, page) = serve(&service("bulk", 5204, &[1]));
    let path = folder.path().join("lb.toml");
    let state = folder.path().join("state.json");
    let text_of = config(&url, &state).replace("timeout_ms = 2000", "timeout_ms = 300");
    fs::write(&path, text_of).unwrap();
    let check =
        |more: &[&str]| flowyard().args(["run", "--check"]).args(more).arg(&path).output().unwrap();
    let output = check(&["--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let provided = &document["provided"];
    assert_eq!((&provided["services"], &provided["unread"]), (&1.into(), &Value::Null));
    assert!(provided["generation"].as_u64().unwrap() > 0);
    let said = text(&check(&[]).stdout);
    assert!(
        said.contains("/services.toml: the services are valid: 1 service in generation "),
        "{said}"
    );
    page.lock().unwrap().1 += &service("dns", 53, &[]);
    let said = text(&check(&[]).stdout);
    assert!(said.contains("the services are valid: 2 services in generation "), "{said}");
    page.lock().unwrap().1 = "[yard]\ncores = 2\n".into();
    let error = refused(&check(&[]));
    assert!(error.contains("/services.toml:1:2: there is no key 'yard' here"), "{error}");
    page.lock().unwrap().0 = "404 Not Found".into();
    let output = check(&[]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "a server that is away is no mistake");
    assert!(
        said.contains("was not read, and only the file was checked") && said.contains("404"),
        "{said}"
    );
    assert!(!state.exists(), "a check saves nothing");
    // A file that is not there is a mistake in the configuration, whatever the server says, and also if it is not needed.
    for key in ["ca", "token_file"] {
        let url = if key == "ca" { &url } else { "https://127.0.0.1:1" };
        fs::write(&path, config(url, &state) + &format!("{key} = \"/no/such/{key}\"\n")).unwrap();
        let error = refused(&check(&[]));
        let said = format!("/no/such/{key}: cannot be read: ");
        assert!(
            error.contains(&said) && error.contains(&format!("'{key}' of [cluster]")),
            "{error}"
        );
    }
}

fn backends_come_from_srv_records() {
    let server = Server::start();
    let name = "_dns._udp.example";
    server.set(name, 33, &["0 SRV 1 1 53 a.example", "0 SRV 1 3 53 b.example"]);
    server.set("a.example", 1, &["0 A 127.0.0.1"]);
    server.set("b.example", 1, &["0 A 127.0.0.2"]);
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state.json");
    let text_of = config("", &state);
    let cluster = format!("kind = \"dns\"\nservers = [\"{}\"]", server.addr());
    let text_of =
        text_of.replace("kind = \"http\"", &cluster).replace("url = \"/services.toml\"", "");
    let srv = |name: &str| {
        format!(
            "srv = {{ name = \"{name}\", exit = {{ port = \"east\", next_hop = \"02:00:00:00:01:01\" }} }}\n"
        )
    };
    let dns = service("dns", 53, &[]) + &srv(name);
    // A check counts the services with records, and not those that have none.
    let path = folder.path().join("lb.toml");
    fs::write(&path, text_of.clone() + &dns + &service("plain", 80, &[])).unwrap();
    let output = flowyard().args(["run", "--check", "--json"]).arg(&path).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["provided"]["services"], 1, "{document}");
    let mut yard = Yard::start(&(text_of.clone() + &dns), &[]);
    let backends = |yard: &Yard| -> Vec<(String, u64)> {
        let shown = yard.json(&["lb", "show"]);
        let all = shown["services"][0]["backends"].as_array().unwrap().clone();
        let one = |one: &Value| {
            (one["name"].as_str().unwrap().to_owned(), one["configured_weight"].as_u64().unwrap())
        };
        all.iter().map(one).collect()
    };
    let has = |yard: &Yard, wanted: &[(&str, u64)]| {
        let wanted: Vec<_> = wanted.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        wait("the backends", || (backends(yard) == wanted).then_some(()));
    };
    has(&yard, &[("127.0.0.1:53", 1), ("127.0.0.2:53", 3)]);
    server.set(name, 33, &["0 SRV 1 5 53 b.example"]);
    has(&yard, &[("127.0.0.2:53", 1)]);
    server.code(name, 33, 2, &[]);
    yard.wait_for_log("DNS cannot be read, the services in use stay: _dns._udp.example: ");
    // A service with other records, by SIGHUP, and one of them is taken away again.
    server.set("_more._udp.example", 33, &["0 SRV 1 1 80 a.example"]);
    let more = service("more", 80, &[]) + &srv("_more._udp.example");
    fs::write(yard.config(), format!("{text_of}{dns}{more}")).unwrap();
    yard.signal(Signal::HUP);
    wait("the other service", || {
        let shown = yard.json(&["lb", "show"]);
        let all = shown["services"].as_array().unwrap().clone();
        (all.len() == 2 && all.iter().all(|one| one["backends"].as_array().unwrap().len() == 1))
            .then_some(())
    });
    fs::write(yard.config(), format!("{text_of}{dns}")).unwrap();
    yard.signal(Signal::HUP);
    wait("one service", || (shown(&yard) == [("dns".into(), 1)]).then_some(()));
    // A VIP of the other IP version: other addresses of the same target.
    server.set(name, 33, &["0 SRV 1 5 53 b.example"]);
    server.set("b.example", 28, &["0 AAAA 2001:db8::2"]);
    fs::write(yard.config(), text_of.clone() + &dns.replace("192.0.2.10", "2001:db8::10")).unwrap();
    yard.signal(Signal::HUP);
    has(&yard, &[("[2001:db8::2]:53", 1)]);
    fs::write(yard.config(), text_of.clone() + &dns).unwrap();
    yard.signal(Signal::HUP);
    has(&yard, &[("127.0.0.2:53", 1)]);
    // A port that the mode keeps: refused as a whole.
    server.set(name, 33, &["0 SRV 1 5 5353 b.example"]);
    let log = yard.wait_for_log("refused, nothing changed");
    assert!(log.contains("dns/config/services/dns/backends/127.0.0.2:5353:"), "{log}");
    assert_eq!(backends(&yard), [("127.0.0.2:53".into(), 1)]);
    // A start without DNS.
    yard.stop();
    server.code(name, 33, 5, &[]);
    yard.restart(&[]);
    yard.wait_for_log("the last good services of the file in 'state' are used");
    has(&yard, &[("127.0.0.2:53", 1)]);
}

/// An answer of etcd with these statuses, and with this newest generation.
fn etcd(statuses: &[String], generation: u64) -> String {
    use base64::Engine;
    let encode = |text: &str| base64::prelude::BASE64_STANDARD.encode(text);
    let pair = |value: &str| {
        format!("{{\"key\":\"YQ==\",\"value\":\"{}\",\"mod_revision\":\"1\"}}", encode(value))
    };
    let range = |values: &[String]| {
        let pairs: Vec<_> = values.iter().map(|value| pair(value)).collect();
        format!(
            "{{\"response_range\":{{\"kvs\":[{}],\"count\":\"{}\"}}}}",
            pairs.join(","),
            pairs.len()
        )
    };
    let record = format!("{{\"revision\":{generation},\"digest\":\"x\"}}");
    format!(
        "{{\"header\":{{\"revision\":\"9\"}},\"responses\":[{},{}]}}",
        range(statuses),
        range(&[record])
    )
}

fn nodes_that_do_not_agree_are_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let (url, page) = serve("");
    let path = folder.path().join("fleet.toml");
    fs::write(&path, format!("[cluster]\nendpoints = [\"{url}\"]\n")).unwrap();
    #[allow(clippy::disallowed_methods, reason = "ages of statuses are differences of dates")]
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let status = |node: &str, generation: u64, at: u64, namesake: bool| {
        format!(
            "{{\"node\":\"{node}\",\"generation\":{generation},\"seen\":7,\"error\":null,\"is_from_file\":false,\"checksum\":\"a\",\
             \"services\":1,\"services_down\":[],\"backends\":1,\"backends_up\":1,\"has_namesake\":{namesake},\"at\":{at}}}"
        )
    };
    let fleet = |statuses: &[String]| {
        page.lock().unwrap().1 = etcd(statuses, 7);
        let output = flowyard().arg("fleet").arg("--config").arg(&path).output().unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let good = status("lb1", 7, now, false);
    let (code, out, err) = fleet(&[good.clone(), status("lb2", 7, now, false)]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.contains("all nodes use generation 7 with the same tables"), "{out}");
    for (other, state) in [
        (status("lb2", 6, now, false), "behind"),
        (status("lb2", 7, now - 100, false), "silent"),
        (status("lb2", 7, now, true), "ambiguous"),
        (status("lb2", 7, now, false).replace("null", "\"x\""), "refused"),
    ] {
        let (code, out, err) = fleet(&[good.clone(), other]);
        assert_eq!(code, Some(1), "{state}: {out}");
        assert!(
            out.contains(state) && err.contains(&format!("the nodes do not agree: lb2 ({state})")),
            "{err}"
        );
    }
    let (code, _, err) = fleet(&[]);
    assert!(code == Some(1) && err.contains("no node has written a status"), "{err}");
    // The document is printed in this case, too.
    let output = flowyard().args(["fleet", "--json", "--config"]).arg(&path).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &document["agrees"]), (Some(1), &false.into()));
    fs::write(&path, format!("[cluster]\nkind = \"http\"\nurl = \"{url}\"\n")).unwrap();
    let error = refused(&flowyard().arg("fleet").arg("--config").arg(&path).output().unwrap());
    assert!(error.contains("nodes write their statuses into etcd"), "{error}");
}

fn etcd_that_does_not_answer_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lb.toml");
    // A port on which nobody listens any more.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    std::fs::write(&path, format!("[cluster]\nendpoints = [\"http://127.0.0.1:{port}\"]\n"))
        .unwrap();
    let output = flowyard().arg("fleet").arg("--config").arg(&path).output().unwrap();
    let line = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{line}");
    let said = format!("reading the statuses of the nodes from etcd: http://127.0.0.1:{port}: ");
    assert!(line.starts_with(&format!("flowyard: {said}")), "{line}");
    assert!(line.ends_with("; check that etcd runs, and 'endpoints' in [cluster]\n"), "{line}");
}
