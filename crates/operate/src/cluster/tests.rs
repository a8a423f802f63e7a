//! The client and the poller against a stand-in for etcd, and what the run sees of them.

use std::path::Path;
use std::sync::Arc;

use flowyard_config::{ClusterConfig, Fragment};
use flowyard_lb::{Control, Hub};
use flowyard_yard::Clock;
use proptest::prelude::*;

use super::fleet::Fleet;
use super::status::Status;
use super::watch::Watch;
use super::*;

mod dns;
mod document;
mod kubernetes;
mod stand_in;
mod web;

use stand_in::StandIn;

/// The real clock.
fn clock() -> Clock {
    #[allow(clippy::disallowed_methods, reason = "tests of real sockets wait by the clock")]
    let start = std::time::Instant::now();
    Arc::new(move || start.elapsed().as_nanos() as Nanos)
}

/// `[cluster]` with these endpoints and more lines.
fn config(endpoints: &[String], more: &str) -> ClusterConfig {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fleet.toml");
    let text = format!(
        "[cluster]\nendpoints = {endpoints:?}\nnode = \"lb1\"\ntimeout_ms = 2000\n{more}\n"
    );
    std::fs::write(&path, text).unwrap();
    ClusterConfig::read(&path).unwrap()
}

fn poller(endpoints: &[String]) -> Poller {
    Poller::new(Etcd::new(&config(endpoints, ""), clock()).unwrap(), "/flowyard")
}

fn provider(endpoints: &[String]) -> Provider {
    Provider::new(&config(endpoints, ""), clock()).unwrap()
}

/// What a poll finds, which must be new.
#[track_caller]
fn new(poller: &mut Poller) -> Snapshot {
    match poller.poll().unwrap() {
        Some(Found::New(snapshot)) => snapshot,
        other => panic!("{other:?}"),
    }
}

fn fragment(key: &str, text: &str) -> Fragment {
    Fragment { key: key.into(), text: text.into() }
}

const WEB: &str = "/flowyard/config/services/web";
const DNS: &str = "/flowyard/config/services/dns";

#[test]
fn every_change_is_one_generation_with_the_same_number_on_all_nodes() {
    let etcd = StandIn::start();
    let mut one = poller(&[etcd.url()]);
    assert_eq!(new(&mut one).fragments, []);
    assert_eq!(one.poll().unwrap(), None);
    etcd.put(WEB, "a");
    etcd.put(DNS, "b");
    let both = new(&mut one);
    let all = [fragment("config/services/dns", "b"), fragment("config/services/web", "a")];
    assert_eq!(both.fragments, all);
    assert_eq!(one.poll().unwrap(), None);
    // A node that starts later, after keys that do not belong to the configuration were written.
    (0..5).for_each(|n| etcd.put("/flowyard/status/lb1", &n.to_string()));
    assert_eq!(new(&mut poller(&[etcd.url()])), both);
    // No revision of a key that is left shows the deletion.
    etcd.delete(WEB);
    etcd.put("/flowyard/status/lb1", "x");
    let less = new(&mut one);
    assert_eq!(less.fragments, [fragment("config/services/dns", "b")]);
    assert!(less.generation > both.generation);
    etcd.put("/flowyard/status/lb1", "y");
    assert_eq!(new(&mut poller(&[etcd.url()])), less);
    // The same value again is no other configuration.
    etcd.put(DNS, "b");
    assert_eq!(one.poll().unwrap(), None);
    // Back to what was there once: another generation.
    etcd.put(WEB, "a");
    let again = new(&mut one);
    assert!(again.generation > less.generation && again.fragments == both.fragments);
    assert_eq!(etcd.get("/flowyard/generation").matches("revision").count(), 1);
}

#[test]
fn nodes_that_see_a_change_at_the_same_time_agree() {
    let etcd = StandIn::start();
    etcd.put(WEB, "a");
    let mut one = poller(&[etcd.url()]);
    // Another node writes the record between this node's reading and writing.
    let mut other = poller(&[etcd.url()]);
    etcd.before_next_put_if(move || new(&mut other).generation);
    let snapshot = new(&mut one);
    let record = etcd.get("/flowyard/generation");
    assert!(record.contains(&format!("\"revision\":{}", snapshot.generation)), "{record}");
    assert_eq!(etcd.other(), Some(snapshot.generation));
}

#[test]
fn a_node_that_may_not_write_goes_on() {
    let etcd = StandIn::start();
    etcd.put(WEB, "a");
    etcd.refuse_writes(true);
    let mut one = poller(&[etcd.url()]);
    assert_eq!(new(&mut one).generation, etcd.revision());
    assert_eq!(one.poll().unwrap(), None);
}

#[test]
fn another_endpoint_answers_if_one_does_not() {
    let (one, two) = (StandIn::start(), StandIn::start());
    two.put(WEB, "a");
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    one.answer_with(Some("HTTP/1.1 503 No\r\n\r\n{\"error\":\"no leader now\"}"));
    let mut poller = poller(&[gone.clone(), one.url(), two.url()]);
    assert_eq!(new(&mut poller).fragments.len(), 1);
    // Nobody answers.
    let error = self::poller(std::slice::from_ref(&gone)).poll().unwrap_err();
    assert!(
        matches!(&error, EtcdError::Unreachable { endpoint, .. } if *endpoint == gone),
        "{error}"
    );
    let error = self::poller(&[one.url()]).poll().unwrap_err().to_string();
    assert!(error.contains("no leader now") && error.contains("503"), "{error}");
}

#[test]
fn after_an_outage_the_same_services_are_not_new_and_others_are() {
    let etcd = StandIn::start();
    etcd.put(WEB, "a");
    let mut one = poller(&[etcd.url()]);
    let before = new(&mut one);
    etcd.answer_with(Some("HTTP/1.1 200 OK\r\n\r\nnothing"));
    assert!(matches!(one.poll(), Err(EtcdError::Answer { .. })));
    etcd.answer_with(None);
    assert_eq!(one.poll().unwrap(), None);
    // Another etcd has the same number of keys with the same revisions, and other values.
    etcd.answer_with(Some("HTTP/1.1 200 OK\r\n\r\n"));
    assert!(one.poll().is_err());
    etcd.forget();
    etcd.put(WEB, "b");
    etcd.answer_with(None);
    assert_ne!(new(&mut one).fragments, before.fragments);
}

#[test]
fn values_that_are_not_text_are_refused_with_their_key() {
    let etcd = StandIn::start();
    etcd.put_bytes(WEB, &[0xff, 0xfe]);
    let Some(Found::Unusable(_, why)) = poller(&[etcd.url()]).poll().unwrap() else {
        panic!("usable");
    };
    assert_eq!(why, "etcd:/flowyard/config/services/web: this is not text; write TOML");
}

#[test]
fn a_user_gets_a_token_and_a_new_one_when_it_has_expired() {
    let etcd = StandIn::start();
    etcd.put(WEB, "a");
    etcd.require("flowyard", "secret");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("password");
    let client = |password: &str| {
        std::fs::write(&path, format!("{password}\n")).unwrap();
        let more = format!("user = \"flowyard\"\npassword_file = {path:?}");
        Poller::new(Etcd::new(&config(&[etcd.url()], &more), clock()).unwrap(), "/flowyard")
    };
    let mut one = client("secret");
    assert_eq!(new(&mut one).fragments.len(), 1);
    etcd.expire_tokens();
    etcd.put(WEB, "b");
    assert_eq!(new(&mut one).fragments[0].text, "b");
    // A member refuses the token for a while, and nobody can log in: the token stays.
    etcd.expire_tokens();
    etcd.fail_logins(true);
    assert!(one.poll().unwrap_err().to_string().contains("no leader"));
    etcd.accept_old_tokens();
    etcd.put(WEB, "c");
    assert_eq!(new(&mut one).fragments[0].text, "c");
    etcd.fail_logins(false);
    let error = client("wrong").poll().unwrap_err().to_string();
    assert!(error.contains("invalid user ID or password"), "{error}");
    let error = poller(&[etcd.url()]).poll().unwrap_err().to_string();
    assert!(error.contains("user name is empty"), "{error}");
    let more = "user = \"a\"\npassword_file = \"/no/such/file\"";
    let error = Etcd::new(&config(&[etcd.url()], more), clock()).unwrap_err().to_string();
    assert!(error.starts_with("/no/such/file: ") && error.contains("'password_file'"), "{error}");
}

#[test]
fn certificates_of_etcd_are_verified() {
    let folder = tempfile::tempdir().unwrap();
    let etcd = StandIn::start_tls(folder.path());
    etcd.put(WEB, "a");
    let client = |ca: &Path| {
        let config = config(&[etcd.url()], &format!("ca = {ca:?}"));
        Etcd::new(&config, clock()).map(|etcd| Poller::new(etcd, "/flowyard"))
    };
    assert_eq!(new(&mut client(&folder.path().join("ca.pem")).unwrap()).fragments.len(), 1);
    let error = client(&folder.path().join("other.pem")).unwrap().poll().unwrap_err().to_string();
    assert!(error.contains("invalid peer certificate"), "{error}");
    std::fs::write(folder.path().join("bad.pem"), "x").unwrap();
    let error = client(&folder.path().join("bad.pem")).unwrap_err().to_string();
    assert!(error.contains("'ca' of [cluster]"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_answer_of_a_server_panics_or_offers_services(text in "\\PC{0,60}", at in 0usize..4, cut in 0usize..400) {
        let etcd = StandIn::start();
        let good = "HTTP/1.1 200 OK\r\n\r\n{\"header\":{\"revision\":\"7\"},\"responses\":[{\"response_range\":\
                    {\"kvs\":[{\"key\":\"L2Zs\",\"mod_revision\":\"2\",\"value\":\"?\"}],\"count\":\"1\"}},{\"response_range\":{}}]}";
        let mut answer = match at {
            0 => text,
            1 => format!("HTTP/1.1 200 OK\r\n\r\n{text}"),
            2 => good.replace("L2Zs", &text.replace(['"', '\\'], "")).replace('?', "="),
            _ => good.replace("\"1\"", "-1"),
        };
        answer.truncate(answer.char_indices().map(|(at, _)| at).nth(cut).unwrap_or(answer.len()));
        etcd.answer_with(Some(&answer));
        let mut poller = poller(&[etcd.url()]);
        prop_assert!(poller.poll().is_err());
        etcd.answer_with(None);
        etcd.put(WEB, "a");
        prop_assert_eq!(new(&mut poller).fragments.len(), 1);
    }
}

fn snapshot(generation: u64, services: &[&str]) -> Snapshot {
    let one = |name: &&str| fragment(&format!("config/services/{name}"), "x");
    Snapshot { generation, fragments: services.iter().map(one).collect() }
}

#[test]
fn an_empty_prefix_never_replaces_services() {
    let cluster = Cluster::default();
    cluster.used(snapshot(0, &[]));
    cluster.offer(snapshot(1, &[]));
    assert_eq!(cluster.take(), Some(snapshot(1, &[])), "there were none");
    cluster.used(snapshot(2, &["web"]));
    cluster.offer(snapshot(3, &[]));
    assert_eq!(cluster.take(), None);
    cluster.offer_again();
    assert_eq!(cluster.take(), None, "whatever the file says");
    let view = cluster.view();
    assert_eq!((view.generation, view.seen, view.refusals), (2, 3, 1));
    assert!(view.error.unwrap().contains("no services any more"));
}

#[test]
fn a_refused_generation_is_offered_again_when_the_file_has_changed() {
    let cluster = Cluster::default();
    cluster.used(snapshot(2, &["web"]));
    cluster.offer(snapshot(3, &["web", "bad"]));
    let offer = cluster.take().unwrap();
    cluster.refuse(offer.clone(), "why".into());
    assert_eq!((cluster.take(), cluster.in_use()), (None, snapshot(2, &["web"])));
    cluster.offer_again();
    assert_eq!(cluster.take(), Some(offer.clone()));
    cluster.used(offer);
    let view = cluster.view();
    assert_eq!((view.generation, view.seen, view.error), (3, 3, None));
    // A newer offer replaces one that was not taken, and one that was refused.
    cluster.refuse(snapshot(4, &["x"]), "why".into());
    cluster.offer(snapshot(5, &["y"]));
    cluster.offer(snapshot(6, &["z"]));
    cluster.offer_again();
    assert_eq!(cluster.take(), Some(snapshot(6, &["z"])));
}

#[test]
fn a_decision_is_seen_as_a_whole() {
    const ALL: u64 = 100_000;
    let cluster = Arc::<Cluster>::default();
    cluster.refuse(snapshot(2, &[]), "why".into());
    let other = Arc::clone(&cluster);
    let reader = std::thread::spawn(move || {
        loop {
            let Inner { view, refused, .. } = &*other.lock();
            // What is refused is offered again after a change of the file.
            assert_eq!(refused.as_ref().map(|one| one.generation), Some(view.seen));
            // Services of the file are not seen as new ones. They have odd numbers here.
            assert_eq!(view.is_from_file, view.generation % 2 == 1, "{}", view.generation);
            if view.generation == ALL {
                return;
            }
        }
    });
    for at in 2..=ALL {
        cluster.refuse(snapshot(at, &[]), "why".into());
        match at % 2 {
            1 => cluster.used_saved(snapshot(at, &[])),
            _ => cluster.used(snapshot(at, &[])),
        }
    }
    reader.join().unwrap();
}

/// A thread that watches etcd as node `lb1`, and does not run by itself.
fn watch(etcd: &StandIn, instance: &str, state: &StateFile, shared: &Arc<Cluster>) -> Watch {
    let hub = Arc::new(Hub::new(Control::new(Vec::new(), 251, 1).unwrap()));
    let watched = WatcherSettings {
        node: "lb1".into(),
        instance: instance.into(),
        provider: provider(&[etcd.url()]),
        every: Duration::from_secs(1),
        state: state.clone(),
        saved: None,
        unix: Box::new(|| 1000),
    };
    Watch::new(watched, hub, Arc::clone(shared))
}

#[test]
fn two_nodes_of_one_name_are_noticed() {
    let etcd = StandIn::start();
    let folder = tempfile::tempdir().unwrap();
    let nodes = ["1", "2"].map(|instance| {
        let state = StateFile::new(&folder.path().join(instance), "/flowyard");
        let shared = Arc::<Cluster>::default();
        (watch(&etcd, instance, &state, &shared), shared)
    });
    let [(mut one, of_one), (mut two, of_two)] = nodes;
    let second = 1_000_000_000;
    let have = || (of_one.view().has_namesake, of_two.view().has_namesake);
    let fleet = || {
        let mut client = Etcd::new(&config(&[etcd.url()], ""), clock()).unwrap();
        Fleet::read(&mut client, &config(&[etcd.url()], ""), 1001).unwrap()
    };
    for (node, shared) in [(&mut one, &of_one), (&mut two, &of_two)] {
        node.step(0);
        shared.used(shared.take().unwrap());
    }
    // A restart replaces the status of the run before it, and is no second node.
    two.step(6 * second);
    two.step(12 * second);
    assert!(fleet().agrees && have() == (false, false));
    // The first one is still there, and each sees what the other has written.
    one.step(13 * second);
    assert_eq!(have(), (true, false));
    two.step(18 * second);
    for at in 19..40 {
        two.step(at * second);
        one.step(at * second);
        assert_eq!(have(), (true, true), "{at}");
    }
    let seen = fleet();
    assert!(!seen.agrees && seen.nodes[0].state.name() == "ambiguous", "{seen:?}");
    // One of them ends.
    (40..70).for_each(|at| drop(two.step(at * second)));
    assert!(!of_two.view().has_namesake && fleet().agrees);
}

#[test]
fn the_thread_reports_and_saves_what_is_in_use() {
    let etcd = StandIn::start();
    let folder = tempfile::tempdir().unwrap();
    let state = StateFile::new(&folder.path().join("services.json"), "/flowyard");
    let shared = Arc::<Cluster>::default();
    shared.used(snapshot(0, &[]));
    let mut thread = watch(&etcd, "1", &state, &shared);
    let hub = Hub::new(Control::new(Vec::new(), 251, 1).unwrap());
    let status = || serde_json::from_str::<Status>(&etcd.get("/flowyard/status/lb1")).unwrap();
    let second = 1_000_000_000;
    thread.step(0);
    shared.used(shared.take().unwrap());
    etcd.put(WEB, "a");
    thread.step(second);
    assert_eq!(status().at, 1000);
    let offer = shared.take().unwrap();
    shared.refuse(offer.clone(), "lb.toml: wrong".into());
    thread.step(second + 1);
    assert_eq!((status().generation < offer.generation, status().seen), (true, offer.generation));
    assert_eq!(status().error.as_deref(), Some("lb.toml: wrong"));
    assert_eq!(state.load().unwrap().unwrap().fragments, []);
    shared.used(offer.clone());
    thread.step(second + 2);
    assert_eq!((status().generation, status().error), (offer.generation, None));
    assert_eq!(status().checksum, format!("{:016x}", hub.plan().configured_checksum()));
    assert_eq!(state.load().unwrap(), Some(offer));
    // Nothing changes: a heartbeat after five seconds.
    let written = etcd.revision();
    thread.step(4 * second);
    assert_eq!(etcd.revision(), written);
    thread.step(7 * second);
    assert_eq!(etcd.revision(), written + 1);
    let mut client = Etcd::new(&config(&[etcd.url()], ""), clock()).unwrap();
    let fleet = Fleet::read(&mut client, &config(&[etcd.url()], ""), 1003).unwrap();
    assert!(fleet.agrees && fleet.nodes[0].age_s == 3, "{fleet:?}");
    // An outage is no reason to change anything.
    etcd.answer_with(Some(""));
    let view = thread.step(9 * second);
    assert!(view.unreachable.is_some() && shared.take().is_none());
    etcd.answer_with(None);
    etcd.put("/flowyard/status/lb2", "{}");
    let error = Fleet::read(&mut client, &config(&[etcd.url()], ""), 0).unwrap_err().to_string();
    assert!(error.contains("/flowyard/status/lb2: this is not the status of a node"), "{error}");
}

#[test]
fn the_first_services_are_waited_for_but_not_for_ever() {
    let etcd = StandIn::start();
    etcd.put(WEB, "a");
    let clock = clock();
    let (mut asked, found) =
        first_poll(&provider(&[etcd.url()]), &clock, Duration::from_secs(30)).unwrap();
    assert!(matches!(found, Found::New(_)));
    assert_eq!(asked.poll().whole(), Ok(None), "what was found is not new any more");
    etcd.answer_with(Some("no"));
    let began = clock();
    let why = first_poll(&provider(&[etcd.url()]), &clock, Duration::from_millis(300)).unwrap_err();
    assert!(why.contains("not HTTP/1"), "{why}");
    assert!((300_000_000..20_000_000_000).contains(&(clock() - began)));
    // A server that accepts and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let why = first_poll(&provider(&[url]), &clock, Duration::from_millis(100)).unwrap_err();
    assert_eq!(why, "no answer within 100 ms");
}

/// Privileges can be given up only while no other thread runs.
#[test]
fn the_thread_that_asks_for_the_first_services_has_ended() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let clock = clock();
    let provider = Provider::new(&config(&[url], ""), Arc::clone(&clock)).unwrap();
    let before = Arc::strong_count(&clock);
    // Its request takes two seconds.
    first_poll(&provider, &clock, Duration::from_millis(1500)).unwrap_err();
    assert_eq!(Arc::strong_count(&clock), before, "the thread has a clock of its own");
}
