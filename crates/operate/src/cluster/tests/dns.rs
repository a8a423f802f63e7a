//! The thread that watches DNS: what it reports when some records cannot be looked up.

use flowyard_config::Lookup;
use flowyard_testkit::dns::Server;

use super::*;

fn lookup(service: &str) -> Lookup {
    Lookup { service: service.into(), name: format!("{service}.example"), is_v6: false, port: 80 }
}

#[test]
fn a_query_that_fails_is_reported_until_all_succeed() {
    let server = Server::start();
    let backend = |service: &str, addr: &str| {
        server.set(&format!("{service}.example"), 33, &["0 SRV 1 1 80 a.example"]);
        server.set("a.example", 1, &[&format!("0 A {addr}")]);
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fleet.toml");
    let text =
        format!("[cluster]\nkind = \"dns\"\nservers = [\"{}\"]\npoll_ms = 100\n", server.addr());
    std::fs::write(&path, text).unwrap();
    let time = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let shown = Arc::clone(&time);
    let clock: Clock = Arc::new(move || shown.load(std::sync::atomic::Ordering::Relaxed));
    let shared = Arc::<Cluster>::default();
    shared.look_up(vec![lookup("dns"), lookup("web")]);
    let watched = WatcherSettings {
        node: String::new(),
        instance: "1".into(),
        provider: Provider::new(&ClusterConfig::read(&path).unwrap(), clock).unwrap(),
        every: Duration::from_millis(100),
        state: StateFile::new(&folder.path().join("services.json"), "dns"),
        saved: None,
        unix: Box::new(|| 1000),
    };
    let hub = Arc::new(Hub::new(Control::new(Vec::new(), 251, 1).unwrap()));
    let mut thread = Watch::new(watched, hub, Arc::clone(&shared));
    // Each step is half a minute later, so that everything is looked up.
    let mut step = || {
        let now = time.fetch_add(30_000_000_000, std::sync::atomic::Ordering::Relaxed);
        thread.step(now + 30_000_000_000)
    };
    backend("dns", "10.0.0.1");
    backend("web", "10.0.0.1");
    assert_eq!(step().unreachable, None);
    let first = shared.take().unwrap();
    assert_eq!(first.fragments.len(), 2);
    let answered = shared.view().answered;
    for last in 2..5 {
        server.code("dns.example", 33, 2, &[]);
        backend("web", &format!("10.0.0.{last}"));
        let view = step();
        let why = view.unreachable.expect("a query has failed, although another found something");
        assert!(why.starts_with("dns.example: ") && view.answered == answered, "{why}");
        let keys: Vec<_> =
            shared.take().unwrap().fragments.into_iter().map(|one| one.key).collect();
        let web = format!("config/services/web/backends/10.0.0.{last}:80");
        assert_eq!(keys, ["config/services/dns/backends/10.0.0.1:80", &web]);
        // Nothing new, and the other still fails.
        assert!(step().unreachable.is_some() && shared.take().is_none());
    }
    backend("dns", "10.0.0.4");
    let view = step();
    assert!(view.unreachable.is_none() && view.answered > answered);
}
