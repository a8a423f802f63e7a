//! The provider of kind `http` against a server of the test.

use std::path::Path;
use std::sync::Mutex;

use super::*;

const WEB: &str = "[[service]]\nname = \"web\"\n";

/// What the server answers, and the head of the last request.
type Page = Arc<Mutex<(Vec<u8>, String)>>;

/// A server with this page, which is changed through the result.
fn server(tls: Option<&Path>) -> (String, Page) {
    let page = Page::default();
    let shown = Arc::clone(&page);
    let url = web::answer(tls.map(web::certificate), move |head| {
        let mut page = shown.lock().unwrap();
        page.1 = head.to_owned();
        page.0.clone()
    });
    (format!("{url}/lb.toml"), page)
}

/// A good answer with this body and more fields.
fn good(body: &str, fields: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{fields}\r\n{body}").into_bytes()
}

fn set(page: &Page, answer: impl Into<Vec<u8>>) {
    page.lock().unwrap().0 = answer.into();
}

fn asked(page: &Page) -> String {
    page.lock().unwrap().1.clone()
}

/// The provider of `[cluster]` with this URL and more lines.
fn opened(url: &str, more: &str) -> Result<Provider, OpenError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fleet.toml");
    let text = format!("[cluster]\nkind = \"http\"\nurl = {url:?}\ntimeout_ms = 2000\n{more}\n");
    std::fs::write(&path, text).unwrap();
    Provider::new(&ClusterConfig::read(&path).unwrap(), clock())
}

fn provider(url: &str) -> Provider {
    opened(url, "").unwrap()
}

#[track_caller]
fn new(provider: &mut Provider) -> Snapshot {
    match provider.poll().whole().unwrap() {
        Some(Found::New(snapshot)) => snapshot,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_document_is_read_again_only_if_it_has_changed() {
    let (url, page) = server(None);
    set(&page, good(WEB, "ETag: \"1\"\r\nLast-Modified: Sat, 01 Jan 2022 00:00:00 GMT\r\n"));
    let mut one = provider(&url);
    let first = new(&mut one);
    assert_eq!(first.fragments, [fragment("", WEB)]);
    let head = asked(&page);
    assert!(head.starts_with("GET /lb.toml HTTP/1.1\r\nHost: 127.0.0.1:"), "{head}");
    assert!(!head.contains("If-") && !head.contains("Authorization"), "{head}");
    set(&page, "HTTP/1.1 304 Not Modified\r\n\r\n");
    assert_eq!(one.poll().whole(), Ok(None));
    let head = asked(&page);
    assert!(head.contains("\r\nIf-None-Match: \"1\"\r\n"), "{head}");
    assert!(head.contains("\r\nIf-Modified-Since: Sat, 01 Jan 2022 00:00:00 GMT\r\n"), "{head}");
    // The same text with another tag is no other generation; other text is, also in chunks, and the old text has the old
    // number again.
    set(&page, good(WEB, "ETag: \"2\"\r\n"));
    assert_eq!(one.poll().whole(), Ok(None));
    set(
        &page,
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n# \r\n1\r\n2\r\n0\r\n\r\n",
    );
    let second = new(&mut one);
    assert_eq!(second.fragments, [fragment("", "# 2")]);
    assert_ne!(second.generation, first.generation);
    set(&page, good(WEB, ""));
    assert_eq!(new(&mut one), first);
    assert_eq!(new(&mut provider(&url)), first, "all nodes have the same number");
    assert!(first.generation > 0 && first.generation < 1 << 48);
}

#[test]
fn a_document_that_may_have_kept_its_tag_is_read_again() {
    use std::sync::atomic::{AtomicU64, Ordering};
    let (url, page) = server(None);
    let ahead = Arc::<AtomicU64>::default();
    let clock: Clock = {
        let ahead = Arc::clone(&ahead);
        Arc::new(move || ahead.load(Ordering::Relaxed))
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fleet.toml");
    std::fs::write(&path, format!("[cluster]\nkind = \"http\"\nurl = {url:?}\n")).unwrap();
    let mut one = Provider::new(&ClusterConfig::read(&path).unwrap(), clock).unwrap();
    let at = |second: u8| format!("Sat, 01 Jan 2022 00:00:0{second} GMT");
    let fields =
        |date| format!("ETag: \"1\"\r\nLast-Modified: {}\r\nDate: {}\r\n", at(4), at(date));
    // It was changed in the second in which it is read.
    set(&page, good(WEB, &fields(4)));
    new(&mut one);
    assert_eq!(one.poll().whole(), Ok(None));
    assert!(!asked(&page).contains("If-None-Match"), "{}", asked(&page));
    set(&page, good("# 2", &fields(5)));
    assert_eq!(new(&mut one).fragments, [fragment("", "# 2")]);
    set(&page, "HTTP/1.1 304 Not Modified\r\n\r\n");
    ahead.store(59_000_000_000, Ordering::Relaxed);
    assert_eq!(one.poll().whole(), Ok(None));
    assert!(asked(&page).contains("If-None-Match: \"1\""));
    // The server has another clock: after a minute it is read in any case.
    set(&page, good("# 3", &fields(5)));
    ahead.store(61_000_000_000, Ordering::Relaxed);
    assert_eq!(new(&mut one).fragments, [fragment("", "# 3")]);
    assert!(!asked(&page).contains("If-None-Match"), "{}", asked(&page));
}

#[test]
fn answers_that_are_no_document_are_errors_that_say_what_to_do() {
    let (url, page) = server(None);
    set(&page, good(WEB, ""));
    let mut one = provider(&url);
    new(&mut one);
    let long = 17 << 20;
    for (answer, said) in [
        (
            "HTTP/1.1 301 Moved\r\nLocation: https://u:secret@b/x?token=secret\r\n\r\n",
            "redirects to https://b/x (301), which is not followed",
        ),
        ("HTTP/1.1 302 Found\r\n\r\n", "redirects (302)"),
        ("HTTP/1.1 401 No\r\n\r\n", "refuses access (401): see 'user'"),
        ("HTTP/1.1 404 Not Found\r\n\r\n", "status 404"),
        ("HTTP/1.1 500 Oh\r\n\r\n", "status 500"),
        ("HTTP/1.1 304 Not Modified\r\n\r\n", "status 304"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[[servic", "was cut off"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n", "was cut off"),
        ("HTTP/1.1 200 OK\r\n\r\n[[service]]\n", "does not say how long it is"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Encoding: gzip\r\n\r\nx",
            "compressed (gzip)",
        ),
        (
            &format!("HTTP/1.1 200 OK\r\nContent-Length: {long}\r\n\r\n{}", " ".repeat(long)),
            "more than 16 MiB",
        ),
        ("SSH-2.0-x\r\n", "not HTTP/1"),
        ("", "not HTTP/1"),
    ] {
        set(&page, answer);
        let error = one.poll().whole().unwrap_err();
        assert!(error.starts_with(&url) && error.contains(said), "{error}");
    }
    set(&page, good(WEB, ""));
    assert_eq!(one.poll().whole(), Ok(None), "nothing has changed after all");
    set(
        &page,
        [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n".as_slice(), &[0xff, 0xfe]].concat(),
    );
    let Ok(Some(Found::Unusable(generation, why))) = one.poll().whole() else { panic!("usable") };
    assert!(generation > 0 && why == format!("{url}: this is not text; write TOML"), "{why}");
}

#[test]
fn the_query_of_a_url_is_sent_and_not_shown() {
    let (url, page) = server(None);
    let mut one = provider(&format!("{url}?token=secret"));
    assert_eq!(one.name(), url);
    set(&page, "HTTP/1.1 404 Not Found\r\n\r\n");
    assert_eq!(one.poll().whole(), Err(format!("{url}: the answer has status 404")));
    assert!(asked(&page).starts_with("GET /lb.toml?token=secret HTTP/1.1\r\n"));
    set(&page, b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n\xff".as_slice());
    let Some(Found::Unusable(_, why)) = one.poll().found else { panic!("usable") };
    assert!(!why.contains("secret"), "{why}");
}

#[test]
fn an_empty_tag_is_no_condition() {
    let (url, page) = server(None);
    set(&page, good(WEB, "ETag: \r\nLast-Modified:\r\n"));
    let mut one = provider(&url);
    new(&mut one);
    assert_eq!(one.poll().whole(), Ok(None));
    assert!(!asked(&page).contains("\r\nIf-"), "{}", asked(&page));
}

#[test]
fn files_that_are_not_there_are_named_with_their_key() {
    let all = "ca = \"/no/ca\"\ncert = \"/no/cert\"\nkey = \"/no/key\"";
    let folder = tempfile::tempdir().unwrap();
    web::certificate(folder.path());
    let good = folder.path().join("ca.pem").display().to_string();
    let with = |lines: &str| opened("https://127.0.0.1/", lines).unwrap_err().to_string();
    let mut lines = all.to_owned();
    for key in ["ca", "cert", "key"] {
        let error = with(&lines);
        assert!(error.starts_with(&format!("/no/{key}: cannot be read: No such file")), "{error}");
        assert!(error.ends_with(&format!("; it is '{key}' of [cluster]")), "{error}");
        lines = lines.replace(&format!("/no/{key}"), &good);
    }
    let error = with("token_file = \"/no/token\"");
    assert!(
        error.starts_with("/no/token: cannot be read") && error.contains("'token_file'"),
        "{error}"
    );
    // A file that this URL does not need.
    let error = opened("http://127.0.0.1/", "ca = \"/no/ca\"").unwrap_err().to_string();
    assert!(error.starts_with("/no/ca: cannot be read"), "{error}");
    std::fs::write(folder.path().join("empty"), "").unwrap();
    let error = with(&format!("ca = {:?}", folder.path().join("empty")));
    assert!(error.contains("/empty: ") && error.contains("has no certificate"), "{error}");
}

#[test]
fn certificates_are_verified_and_secrets_are_sent() {
    let folder = tempfile::tempdir().unwrap();
    let (url, page) = server(Some(folder.path()));
    set(&page, good(WEB, ""));
    let ca = |name: &str| format!("ca = {:?}", folder.path().join(name));
    let error = opened(&url, &ca("other.pem")).unwrap().poll().whole().unwrap_err();
    assert!(error.contains("invalid peer certificate"), "{error}");
    let token = folder.path().join("token");
    let with_token = || opened(&url, &format!("{}\ntoken_file = {token:?}", ca("ca.pem")));
    for (text, said) in [("a b", "this is not a token"), ("", "this is not a token")] {
        std::fs::write(&token, text).unwrap();
        let error = with_token().unwrap_err().to_string();
        assert!(error.contains(said) && error.contains("'token_file' of [cluster]"), "{error}");
    }
    std::fs::write(&token, "first\n").unwrap();
    let mut one = with_token().unwrap();
    new(&mut one);
    assert!(asked(&page).contains("\r\nAuthorization: Bearer first\r\n"));
    // A token that is replaced is used, also after its file is gone.
    std::fs::write(&token, "second\n").unwrap();
    assert_eq!(one.poll().whole(), Ok(None));
    assert!(asked(&page).contains("\r\nAuthorization: Bearer second\r\n"));
    std::fs::remove_file(&token).unwrap();
    assert_eq!(one.poll().whole(), Ok(None));
    assert!(asked(&page).contains("\r\nAuthorization: Bearer second\r\n"));
    std::fs::write(&token, "open sesame\n").unwrap();
    let user = format!("{}\nuser = \"Aladdin\"\npassword_file = {token:?}", ca("ca.pem"));
    new(&mut opened(&url, &user).unwrap());
    let basic = "\r\nAuthorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n"; // RFC 7617 section 2
    assert!(asked(&page).contains(basic), "{}", asked(&page));
}

#[test]
fn a_document_without_services_never_replaces_some() {
    let cluster = Cluster::new("http://a/lb.toml");
    let document = |generation, text| Snapshot { generation, fragments: vec![fragment("", text)] };
    cluster.used(document(9, WEB));
    for (generation, text) in [(4, ""), (5, "# nothing\n"), (6, "service = []\n")] {
        cluster.offer(document(generation, text));
        assert_eq!(cluster.take(), None, "{text}");
        let view = cluster.view();
        assert_eq!((view.generation, view.seen), (9, generation));
        let why = view.error.unwrap();
        assert!(why.starts_with("http://a/lb.toml has no services any more"), "{why}");
    }
    // What is not TOML is refused by the run, with its place.
    cluster.offer(document(7, "<html>"));
    assert!(cluster.take().is_some());
    // The services in use come back: nothing is refused any more, although their number is smaller than one that was seen.
    cluster.offer(document(3, WEB));
    cluster.used(cluster.take().unwrap());
    let view = cluster.view();
    assert_eq!((view.generation, view.seen, view.error, view.refusals), (3, 3, None, 3));
}
