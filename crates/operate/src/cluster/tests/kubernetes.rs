//! The provider of kind `kubernetes` against a stand-in for the API server, with TLS and a token.

use std::path::Path;
use std::sync::Mutex;

use flowyard_config::Config;

use super::*;

const SERVICES_JSON: &str = include_str!("../kubernetes/objects/services.json");
const SLICES_JSON: &str = include_str!("../kubernetes/objects/endpointslices.json");

/// What the API server has, and the paths that it was asked for.
struct Api {
    services: String,
    slices: String,
    /// The newest version that it knows; it answers 504 to later ones.
    newest: u64,
    /// The status of all answers, in place of those.
    fails_with: Option<&'static str>,
    asked: Vec<String>,
    token: String,
}

fn start(folder: &Path) -> (String, Arc<Mutex<Api>>) {
    let api = Arc::new(Mutex::new(Api {
        services: SERVICES_JSON.into(),
        slices: SLICES_JSON.into(),
        newest: 184_470,
        fails_with: None,
        asked: Vec::new(),
        token: "first".into(),
    }));
    let shared = Arc::clone(&api);
    let url = web::answer(Some(web::certificate(folder)), move |head| {
        let mut api = shared.lock().unwrap();
        let path = head.split(' ').nth(1).unwrap().to_owned();
        api.asked.push(path.clone());
        let said = |status: &str, body: &str| {
            let length = body.len();
            format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
        };
        if let Some(status) = api.fails_with {
            return said(status, "{}");
        }
        if !head.contains(&format!("\r\nAuthorization: Bearer {}\r\n", api.token)) {
            return said(
                "401 Unauthorized",
                r#"{"kind":"Status","status":"Failure","reason":"Unauthorized","code":401}"#,
            );
        }
        let (path, query) = path.split_once('?').unwrap_or((&path, ""));
        if let Some(rest) = query.strip_prefix("resourceVersion=") {
            let version = rest.strip_suffix("&resourceVersionMatch=NotOlderThan").unwrap();
            if version.parse::<u64>().unwrap() > api.newest {
                return said(
                    "504 Gateway Timeout",
                    r#"{"kind":"Status","status":"Failure","message":"Too large resource version","reason":"Timeout","code":504}"#,
                );
            }
        }
        match path {
            "/api/v1/services" => said("200 OK", &api.services),
            "/apis/discovery.k8s.io/v1/endpointslices" => said("200 OK", &api.slices),
            "/api/v1/namespaces/shop/services"
            | "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices" => said(
                "403 Forbidden",
                r#"{"kind":"Status","status":"Failure","reason":"Forbidden","code":403}"#,
            ),
            _ => said("404 Not Found", "404 page not found"),
        }
    });
    (url, api)
}

fn provider(folder: &Path, endpoints: &[&str], more: &str) -> Provider {
    std::fs::write(folder.join("token"), "first").unwrap();
    let text = format!(
        "[cluster]\nkind = \"kubernetes\"\nendpoints = {endpoints:?}\nca = {:?}\ntoken_file = {:?}\ntimeout_ms = 4000\n\
         exit = {{ port = \"east\" }}\nservice = {{ mode = \"dnat\" }}\n{more}\n",
        folder.join("ca.pem"),
        folder.join("token")
    );
    let path = folder.join("fleet.toml");
    std::fs::write(&path, text).unwrap();
    Provider::new(&ClusterConfig::read(&path).unwrap(), clock()).unwrap()
}

#[track_caller]
fn new(provider: &mut Provider) -> Snapshot {
    match provider.poll().whole().unwrap() {
        Some(Found::New(snapshot)) => snapshot,
        other => panic!("{other:?}"),
    }
}

#[test]
fn lists_are_polled_and_never_go_back() {
    let folder = tempfile::tempdir().unwrap();
    let (url, api) = start(folder.path());
    let gone = "https://127.0.0.1:1";
    let mut one = provider(folder.path(), &[gone, &url], "");
    let first = new(&mut one);
    assert_eq!(first.fragments.len(), 11);
    assert_eq!(one.poll().whole(), Ok(None));
    let asked = std::mem::take(&mut api.lock().unwrap().asked);
    let version = |n: u64| format!("?resourceVersion={n}&resourceVersionMatch=NotOlderThan");
    assert_eq!(
        asked,
        [
            "/api/v1/services".to_owned(),
            "/apis/discovery.k8s.io/v1/endpointslices".into(),
            "/api/v1/services".to_owned() + &version(184_467),
            "/apis/discovery.k8s.io/v1/endpointslices".to_owned() + &version(184_470),
        ]
    );
    // A pod becomes ready.
    api.lock().unwrap().slices = SLICES_JSON
        .replace("\"serving\": false", "\"serving\": true")
        .replace("\"ready\": false, \"serving\": true, \"terminating\": false", "\"ready\": true");
    let second = new(&mut one);
    assert_eq!(second.fragments.len(), 13);
    // Versions alone are no change.
    api.lock().unwrap().services = SERVICES_JSON.replace("184467", "184468");
    assert_eq!(one.poll().whole(), Ok(None));
    // An API server that has forgotten the version, or never knew it, is read without one.
    api.lock().unwrap().newest = 100;
    api.lock().unwrap().slices = SLICES_JSON.replace("184470", "90");
    assert_eq!(new(&mut one), first);
    // An expired token is read again from its file.
    api.lock().unwrap().token = "second".into();
    let error = one.poll().whole().unwrap_err();
    assert!(error.contains("access is refused (401)"), "{error}");
    std::fs::write(folder.path().join("token"), "second\n").unwrap();
    assert_eq!(one.poll().whole(), Ok(None));
}

#[test]
fn after_an_outage_and_without_a_version_everything_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let (url, api) = start(folder.path());
    let mut one = provider(folder.path(), &[&url], "");
    let asked = || std::mem::take(&mut api.lock().unwrap().asked);
    let plain = ["/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices"];
    new(&mut one);
    assert_eq!(asked(), plain);
    // The server that comes back may be one with other versions, which waits for a version that it never has.
    api.lock().unwrap().fails_with = Some("503 Service Unavailable");
    let error = one.poll().whole().unwrap_err();
    assert!(error.starts_with(&url) && error.contains("status 503"), "{error}");
    api.lock().unwrap().fails_with = None;
    asked();
    assert_eq!(one.poll().whole(), Ok(None));
    assert_eq!(asked(), plain);
    // Lists without a version.
    for (list, version) in [(SERVICES_JSON, "184467"), (SLICES_JSON, "184470")] {
        assert!(list.contains(&format!("\"{version}\"")));
    }
    api.lock().unwrap().services = SERVICES_JSON.replace("184467", "");
    api.lock().unwrap().slices = SLICES_JSON.replace("184470", "");
    assert_eq!(one.poll().whole(), Ok(None));
    asked();
    assert_eq!(one.poll().whole(), Ok(None));
    assert_eq!(asked(), plain);
}

/// A balancer that takes its services from Kubernetes.
const FILE: &str = r#"
[[port]]
name = "east"
kind = "mem"
in = "given"
[[queue]]
name = "q"
order = "atomic"
consumers = [0]
[work]
kind = "balance"
[balance]
entries = 251
seed = 0x123456789abcde
clients = { port = "east", next_hop = "02:00:00:00:00:09" }
[cluster]
kind = "kubernetes"
endpoints = ["https://127.0.0.1"]
state = "services.json"
service = { mode = "dnat", check = { kind = "tcp" } }
exit = { port = "east", next_hop = "02:00:00:00:00:01" }
"#;

#[test]
fn what_is_read_is_a_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let (url, _api) = start(folder.path());
    let snapshot = new(&mut provider(folder.path(), &[&url], ""));
    let config = Config::compose("lb.toml", FILE, "kubernetes", &snapshot.fragments).unwrap();
    let services = config.services().unwrap();
    let shown: Vec<String> = services
        .iter()
        .map(|one| format!("{} {} {} {}", one.name, one.vip, one.ports.start(), one.backends.len()))
        .collect();
    assert_eq!(
        shown,
        [
            "infra.dns.53 192.0.2.53 53 1",
            "shop.web.http 192.0.2.10 80 2",
            "shop.web.http.v6 2001:db8::10 80 1",
            "shop.web.https 192.0.2.10 443 2",
            "shop.web.https.v6 2001:db8::10 443 0",
        ]
    );
    let backend = &services[1].backends[1];
    assert_eq!((backend.port, backend.drain), (Some(8080), true));
    assert!(services[1].check.is_some() && backend.exit.dst == [2, 0, 0, 0, 0, 1]);
    let twice = snapshot.fragments.iter().find(|one| one.key.ends_with("shop.web.http")).unwrap();
    let mut all = snapshot.fragments.clone();
    all.push(Fragment { key: "config/services/test.web.http".into(), text: twice.text.clone() });
    let error = Config::compose("lb.toml", FILE, "kubernetes", &all).unwrap_err().to_string();
    assert!(error.starts_with("kubernetes/config/services/test.web.http:3:"), "{error}");
}

#[test]
fn answers_that_are_no_lists_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let (url, api) = start(folder.path());
    let mut one = provider(folder.path(), &[&url], "namespace = \"shop\"");
    let error = one.poll().whole().unwrap_err();
    assert!(
        error.starts_with(&url)
            && error.contains("/api/v1/namespaces/shop/services: access is refused (403)"),
        "{error}"
    );
    assert!(error.contains("permit its user to list services"), "{error}");
    let mut one = provider(folder.path(), &[&url], "");
    for (list, said) in [
        ("{}", "this is not a list: missing field `metadata`"),
        ("<html>", "this is not a list"),
        (&SERVICES_JSON[..SERVICES_JSON.len() / 2], "this is not a list: EOF"),
        (
            &SERVICES_JSON.replace("\"resourceVersion\": \"184467\"", "\"continue\": \"abc\""),
            "the list is not complete",
        ),
    ] {
        api.lock().unwrap().services = list.into();
        let error = one.poll().whole().unwrap_err();
        assert!(error.contains("/api/v1/services: ") && error.contains(said), "{error}");
    }
    api.lock().unwrap().services = SERVICES_JSON.into();
    assert_eq!(new(&mut one).fragments.len(), 11);
}
