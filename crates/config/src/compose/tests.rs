use proptest::prelude::*;

use super::*;

const FILE: &str = r#"
[[port]]
name = "net"
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

[cluster]
endpoints = ["http://127.0.0.1:2379"]
node = "lb1"
state = "services.json"

[[service]]
name = "local"
vip = "192.0.2.9"
proto = "tcp"
port = 80
mode = "dsr"
"#;

const WEB: &str =
    "vip = \"192.0.2.1\"\nproto = \"tcp\"\nport = 80\nmode = \"dsr\"\n[check]\nkind = \"tcp\"\n";
const BACKEND: &str =
    "addr = \"10.0.0.1\"\nexit = { port = \"net\", next_hop = \"02:00:00:00:00:01\" }\n";

fn fragment(key: &str, text: &str) -> Fragment {
    Fragment { key: format!("config/{key}"), text: text.into() }
}

fn compose(fragments: &[Fragment]) -> Result<Config, String> {
    Config::compose("lb.toml", FILE, "etcd:/flowyard", fragments).map_err(|e| e.to_string())
}

#[test]
fn services_of_the_file_and_of_keys_make_one_configuration() {
    let mut all = vec![
        fragment("services/web/backends/b", &BACKEND.replace("0.1", "0.2")),
        fragment("services/web/backends/a", BACKEND),
        fragment("services/web", WEB),
        fragment("services/dns", &WEB.replace("\"tcp\"\np", "\"udp\"\np")),
    ];
    let config = compose(&all).unwrap();
    let services = config.services().unwrap();
    let names: Vec<&str> = services.iter().map(|service| service.name.as_str()).collect();
    assert_eq!(names, ["local", "dns", "web"]);
    let backends: Vec<_> = services[2].backends.iter().map(|b| (b.name.as_str(), b.addr)).collect();
    let addr = |last| std::net::IpAddr::from([10, 0, 0, last]);
    assert_eq!(backends, [("a", addr(1)), ("b", addr(2))]);
    assert!(services[2].check.is_some(), "a table of a service");
    all.reverse();
    assert_eq!(compose(&all).unwrap().services().unwrap(), services);
    // Only the services change, so this needs no restart.
    let old = compose(&[]).unwrap();
    let new = old.recompose("etcd:/flowyard", &all).unwrap();
    assert_eq!(old.reload(&new).unwrap().services, Some(services));
    assert!(new.recompose("", &all).unwrap().reload(&new).unwrap().services.is_none());
}

#[test]
fn mistakes_name_the_key_and_the_line() {
    let at = "etcd:/flowyard/config/services/web";
    let web = |text: &str| vec![fragment("services/web", text)];
    let backend =
        |text: &str| vec![fragment("services/web", WEB), fragment("services/web/backends/a", text)];
    for (fragments, said) in [
        (web(""), format!("{at}:1:1: the key 'vip' is missing")),
        (web("vip = "), format!("{at}:1:")),
        (
            web(&WEB.replace("port = 80", "prot = 80")),
            format!("{at}:3:1: there is no key 'prot' here"),
        ),
        (
            web(&WEB.replace("192.0.2.1", "nowhere")),
            format!("{at}:1:7: 'nowhere' is not an IP address"),
        ),
        (web("[yard]\ncores = 2"), format!("{at}:1:2: there is no key 'yard' here")),
        (
            web(&format!("name = \"x\"\n{WEB}")),
            format!("{at}:1:1: the name is the last part of the key"),
        ),
        (web(&format!("backend = 5\n{WEB}")), format!("{at}:1:11: ")),
        (
            backend(&BACKEND.replace("net", "ten")),
            format!("{at}/backends/a:2:17: there is no port 'ten'"),
        ),
        (backend("name = \"a\""), format!("{at}/backends/a:1:1: the name is the last part")),
        (
            vec![fragment("services/web/backends/a", BACKEND)],
            format!("{at}/backends/a:1:1: this is a backend of service 'web', which is not there"),
        ),
        (
            vec![fragment("services/local", WEB)],
            "etcd:/flowyard/config/services/local:1:1: ".into(),
        ),
        (
            vec![fragment("service/web", WEB)],
            "config/service/web:1:1: no configuration is read".into(),
        ),
        (
            vec![fragment("services/web/backend/a", BACKEND)],
            "/backend/a:1:1: no configuration is read".into(),
        ),
        (vec![fragment("services/", WEB)], "no configuration is read".into()),
        (
            web(&WEB.replace("kind = \"tcp\"", "kind = \"command\"\ncommand = [\"/bin/true\"]")),
            format!(
                "{at}:5:1: a health check of a service that does not come from the file of this machine cannot run a command"
            ),
        ),
    ] {
        let error = compose(&fragments).unwrap_err();
        assert!(error.contains(&said), "{error} does not contain {said}");
    }
    // A mistake in the file is one of the file, whatever the keys.
    let file = FILE.replace("192.0.2.9", "nowhere");
    let error = Config::compose("lb.toml", &file, "etcd:", &web(WEB)).unwrap_err();
    assert_eq!((error.file.as_str(), error.line), ("lb.toml", 26));
}

#[test]
fn a_document_adds_services_and_nothing_else() {
    let document = |text: &str| vec![Fragment { key: String::new(), text: text.into() }];
    let web = WEB.replace("[check]", "[service.check]");
    let good =
        format!("[[service]]\nname = \"web\"\n{web}[[service.backend]]\nname = \"a\"\n{BACKEND}");
    let services = compose(&document(&good)).unwrap().services().unwrap();
    assert_eq!((services.len(), services[1].name.as_str()), (2, "web"));
    assert!(services[1].check.is_some() && services[1].backends.len() == 1);
    // The same services under keys are the same configuration.
    let keys = [fragment("services/web", WEB), fragment("services/web/backends/a", BACKEND)];
    assert_eq!(compose(&keys).unwrap().services().unwrap(), services);
    let command = good.replace("kind = \"tcp\"", "kind = \"command\"\ncommand = [\"/bin/true\"]");
    let said = |text: &str| {
        let read = Config::compose("lb.toml", FILE, "http://a/x", &document(text));
        read.unwrap_err().to_string()
    };
    for (text, expected) in [
        ("[yard]\ncores = 2", "http://a/x:1:2: there is no key 'yard' here"),
        (&format!("seed = 1\n{good}"), "http://a/x:1:1: there is no key 'seed' here"),
        ("[service]", "http://a/x:1:1: the services are not a list of tables"),
        ("service = [1]", "http://a/x:1:12: the services are not a list of tables"),
        (&good.replace("192.0.2.1", "nowhere"), "http://a/x:3:7: 'nowhere' is not an IP address"),
        (&good.replace("\"web\"", "\"local\""), "http://a/x:2:8: "),
        (&command, "cannot run a command"),
        ("<html>", "http://a/x:1:"),
    ] {
        let error = said(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
    for (text, is_empty) in [
        ("", true),
        ("# soon\n", true),
        ("service = []", true),
        (&good, false),
        ("<html>", false),
        ("[yard]", true),
    ] {
        assert_eq!(document(text)[0].is_empty(), is_empty, "{text}");
    }
    assert!(!fragment("services/web", "").is_empty());
}

#[test]
fn backends_of_srv_records_join_the_service_in_the_file() {
    let srv = "srv = { name = \"_x._tcp.example\", exit = { port = \"net\", next_hop = \"02:00:00:00:00:05\" } }\n";
    let file = FILE.replace("[cluster]\n", "[cluster]\nkind = \"dns\"\n");
    let file = file.replace("endpoints = [\"http://127.0.0.1:2379\"]\nnode = \"lb1\"\n", "");
    let compose = |text: &str, all: &[Fragment]| {
        Config::compose("lb.toml", text, "dns", all).map_err(|error| error.to_string())
    };
    let one = fragment("services/local/backends/10.0.0.7:80", "addr = \"10.0.0.7\"\nweight = 3\n");
    let gone = fragment("services/gone/backends/10.0.0.8:80", "addr = \"10.0.0.8\"\nweight = 3\n");
    let all = [one.clone(), gone];
    let services = compose(&(file.clone() + srv), &all).unwrap().services().unwrap();
    let [service] = &services[..] else { panic!("{services:?}") };
    let [backend] = &service.backends[..] else { panic!("{service:?}") };
    assert_eq!((backend.name.as_str(), backend.weight), ("10.0.0.7:80", 3));
    assert_eq!(backend.exit.dst, [2, 0, 0, 0, 0, 5]);
    // Written backends stay.
    let written = format!("{file}{srv}[[service.backend]]\nname = \"w\"\n{BACKEND}");
    assert_eq!(compose(&written, &all).unwrap().services().unwrap()[0].backends.len(), 2);
    // Backends from before a change of the VIP to the other IP version are left out.
    let v6 = (file.clone() + srv).replace("192.0.2.9", "2001:db8::9");
    let new = fragment("services/local/backends/[2001:db8::7]:80", "addr = \"2001:db8::7\"\n");
    let services = compose(&v6, &[one.clone(), new]).unwrap().services().unwrap();
    let names: Vec<&str> = services[0].backends.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["[2001:db8::7]:80"]);
    // A mistake in a backend is one of the provider, and one in the exit is one of the file.
    let wrong = fragment("services/local/backends/b", "addr = \"x\"\n");
    let error = compose(&(file.clone() + srv), &[wrong]).unwrap_err();
    assert!(error.starts_with("dns/config/services/local/backends/b:1:8: 'x' is not"), "{error}");
    let elsewhere = file.clone() + &srv.replace("\"net\"", "\"ten\"");
    let error = compose(&elsewhere, std::slice::from_ref(&one)).unwrap_err();
    assert!(error.starts_with("lb.toml:") && error.contains("there is no port 'ten'"), "{error}");
    // A service without records takes none, and etcd cannot add backends to a service of the file.
    let static_too = format!("{file}{srv}{SECOND}");
    let other = fragment("services/static/backends/b", BACKEND);
    assert_eq!(
        compose(&static_too, &[one, other.clone()]).unwrap().services().unwrap()[1].backends.len(),
        0
    );
    let error = self::compose(&[fragment("services/local/backends/b", BACKEND)]).unwrap_err();
    assert!(error.contains("this is a backend of service 'local', which is not there"), "{error}");
}

const SECOND: &str = "[[service]]\nname = \"static\"\nvip = \"192.0.2.8\"\nproto = \"tcp\"\nport = 80\nmode = \"dsr\"\n";

#[test]
fn services_of_kubernetes_get_what_they_have_in_common() {
    let file = FILE.replace("node = \"lb1\"\n", "").replace(
        "[cluster]\n",
        "[cluster]\nkind = \"kubernetes\"\nexit = { port = \"net\", next_hop = \"02:00:00:00:00:05\" }\n\
         service = { mode = \"dsr\", choice = \"least\", check = { kind = \"tcp\" } }\n",
    );
    let all = [
        fragment("services/shop.web.http", "vip = \"192.0.2.1\"\nproto = \"tcp\"\nport = 80\n"),
        fragment("services/shop.web.http/backends/web-1", "addr = \"10.0.0.1\"\ndrain = true\n"),
    ];
    let compose = |file: &str| {
        Config::compose("lb.toml", file, "kubernetes", &all).map_err(|e| e.to_string())
    };
    let services = compose(&file).unwrap().services().unwrap();
    assert_eq!((services.len(), services[1].name.as_str()), (2, "shop.web.http"));
    assert!(services[1].check.is_some() && services[0].check.is_none());
    let backend = &services[1].backends[0];
    assert_eq!((backend.drain, backend.exit.dst), (true, [2, 0, 0, 0, 0, 5]));
    let wrong = file.replace("\"least\"", "\"last\"");
    let error = compose(&wrong).unwrap_err();
    assert!(
        error.starts_with("lb.toml:") && error.contains("'last' is not a valid choice"),
        "{error}"
    );
    let command =
        file.replace("kind = \"tcp\" }", "kind = \"command\", command = [\"/bin/true\"] }");
    assert!(compose(&command).unwrap_err().contains("cannot run a command"));
}

/// A value that is nearly right: pieces of right ones.
fn value() -> impl Strategy<Value = String> {
    let lines: Vec<&str> = WEB.lines().chain(BACKEND.lines()).collect();
    let line = prop_oneof![
        4 => prop::sample::select(lines).prop_map(str::to_owned),
        1 => "\\PC{0,20}",
        1 => prop::sample::select(vec!["[[service]]", "[yard]", "[[backend]]", "name = \"x\"", "weight = -1"]).prop_map(str::to_owned),
    ];
    prop::collection::vec(line, 0..8).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn malformed_values_are_refused_and_never_panic(
        values in prop::collection::vec((0usize..5, value()), 0..4), any in "\\PC*", key in "\\PC{0,12}",
    ) {
        let keys = ["services/web", "services/web/backends/a", "services/web/backends/b", "services/x", "other"];
        let mut all: Vec<Fragment> = values.iter().map(|(at, text)| fragment(keys[*at], text)).collect();
        let old = compose(&[]).unwrap();
        let check = |all: &[Fragment]| {
            match old.recompose("etcd:", all) {
                // What is accepted changes nothing but the services that come from keys.
                Ok(new) => {
                    let plan = old.reload(&new).unwrap();
                    let services = new.services().unwrap();
                    assert_eq!(services[0].name, "local");
                    // A document, whose key is empty, may be empty.
                    assert!(!services[1..].is_empty() || all.iter().all(|one| one.key.is_empty()));
                    assert_eq!(plan.services.is_none(), services.len() == 1);
                    assert_eq!(plan.tables, flowyard_yard::Reload::default());
                }
                Err(error) => assert!(error.line > 0 && !error.what.is_empty(), "{error}"),
            }
        };
        check(&all);
        all.push(Fragment { key, text: any });
        check(&all);
    }
}

/// The keys of services with these weights; a weight of 0 is a drained backend.
fn keys(all: &[Vec<u32>]) -> Vec<Fragment> {
    let mut keys = Vec::new();
    for (at, weights) in all.iter().enumerate() {
        let body = WEB.replace("port = 80", &format!("port = {}", 80 + at));
        keys.push(fragment(&format!("services/s{at}"), &body));
        for (n, weight) in weights.iter().enumerate() {
            let body = BACKEND.replace("0.1\"", &format!("{at}.{}\"", n + 1));
            let more =
                if *weight == 0 { "drain = true".into() } else { format!("weight = {weight}") };
            keys.push(fragment(
                &format!("services/s{at}/backends/b{n}"),
                &format!("{body}{more}\n"),
            ));
        }
    }
    keys
}

proptest! {
    #[test]
    fn the_order_in_which_keys_arrive_has_no_effect(
        (keys, shuffled) in prop::collection::vec(prop::collection::vec(0u32..4, 0..5), 0..4)
            .prop_map(|all| keys(&all))
            .prop_flat_map(|keys| (Just(keys.clone()), Just(keys).prop_shuffle())),
    ) {
        let sums = [&keys, &shuffled].map(|keys| {
            let services = compose(keys).unwrap().services().unwrap();
            (services.len(), flowyard_lb::Control::new(services, 251, 7).unwrap().plan().configured_checksum())
        });
        prop_assert_eq!(sums[0], sums[1]);
    }
}
