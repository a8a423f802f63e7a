use super::*;

const YARD: &str = r#"
[[port]]
name = "west"
kind = "mem"
in = "x.pcap"
[[queue]]
name = "q"
order = "direct"
consumers = [0]
[work]
kind = "balance"
[[service]]
name = "web"
vip = "192.0.2.1"
proto = "tcp"
port = 80
mode = "dsr"
backend = [{ name = "a", addr = "10.0.1.1", exit = { port = "west", next_hop = "02:00:00:00:01:01" } }]
"#;

/// `YARD` with a check of these lines. The first one is line 20.
fn with(check: &str) -> Result<Check, ConfigError> {
    let config = Config::parse("y.toml", &format!("{YARD}[service.check]\n{check}"))?;
    Ok(config.services()?.remove(0).check.expect("a check"))
}

#[test]
fn checks_of_each_kind_are_read() {
    assert_eq!(Config::parse("y", YARD).unwrap().services().unwrap()[0].check, None);
    let tcp = with("kind = \"tcp\"").unwrap();
    assert_eq!(tcp, Check { asks: Asks::Tcp, rules: Rules::default(), port: None, agreed: false });
    let text = "kind = \"http\"\ninterval_ms = 500\ntimeout_ms = 250\nrise = 1\nfall = 5\nport = 8080\n\
                path = \"/h\"\nhost = \"web.example\"\nstatus = \"200-399\"\nexpect = \"all well\"";
    let second = 1_000_000_000;
    let http = with(text).unwrap();
    let rules = Rules { interval: second / 2, timeout: second / 4, rise: 1, fall: 5 };
    assert_eq!((http.rules, http.port), (rules, Some(8080)));
    let Asks::Http(asks) = http.asks else { panic!("{http:?}") };
    assert_eq!((asks.path.as_str(), asks.host.as_deref()), ("/h", Some("web.example")));
    assert_eq!((asks.least, asks.most, asks.body.as_deref()), (200, 399, Some("all well")));
    assert_eq!(asks.tls, None);
    let Asks::Http(asks) = with("kind = \"https\"\nstatus = 204").unwrap().asks else { panic!() };
    assert_eq!((asks.path.as_str(), asks.least, asks.most), ("/", 204, 204));
    assert_eq!(asks.tls, Some(Tls { verify: true, ca: None }));
    let udp = with("kind = \"udp\"\nsend = \"hex:00 ff\"\nexpect = \"pong\"").unwrap();
    assert_eq!(udp.asks, Asks::Udp { send: vec![0, 255], expect: Some(b"pong".to_vec()) });
    let dns = with("kind = \"dns\"\nquery = \"www.example\"").unwrap();
    assert_eq!(dns.asks, Asks::Dns { name: "www.example".into(), kind: 1 });
    let dns = with("kind = \"dns\"\nquery = \".\"\ntype = \"soa\"").unwrap();
    assert_eq!(dns.asks, Asks::Dns { name: ".".into(), kind: 6 });
    let grpc = with("kind = \"grpc\"").unwrap();
    assert_eq!(grpc.asks, Asks::Grpc(Grpc { service: String::new(), host: None }));
    let grpc = with("kind = \"grpc\"\nservice = \"a.B\"\nhost = \"web.example\"").unwrap();
    let host = Some("web.example".into());
    assert_eq!(grpc.asks, Asks::Grpc(Grpc { service: "a.B".into(), host }));
    let command = with("kind = \"command\"\ncommand = [\"true\", \"x\"]").unwrap();
    assert_eq!(command.asks, Asks::Command(vec!["true".into(), "x".into()]));
}

#[test]
fn certificates_of_authorities_are_read_with_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    let text = format!("kind = \"https\"\nca = '{}'", path.display());
    let error = with(&text).unwrap_err();
    assert_eq!((error.line, error.column), (21, 6), "{error}");
    assert!(error.to_string().contains("No such file"), "{error}");
    std::fs::write(&path, "hello").unwrap();
    assert!(with(&text).unwrap_err().what.contains("no certificate in it"));
    std::fs::write(&path, "-----BEGIN CERTIFICATE-----\n").unwrap();
    let Asks::Http(asks) = with(&text).unwrap().asks else { panic!() };
    assert_eq!(asks.tls.unwrap().ca.unwrap(), b"-----BEGIN CERTIFICATE-----\n");
    let both = format!("{text}\nverify = false");
    assert!(with(&both).unwrap_err().what.contains("nothing is verified"));
}

#[test]
fn a_mistake_in_a_check_is_reported_with_its_place_and_the_fix() {
    for (check, place, said) in [
        ("kind = \"tpc\"", "20:8", "'tpc' is not a valid choice; did you mean 'tcp'?"),
        ("port = 80", "19:1", "the key 'kind' is missing"),
        ("kind = \"tcp\"\nport = 0", "21:8", "'0' is out of range; write a port from 1 to 65535"),
        ("kind = \"tcp\"\npth = \"/\"", "21:1", "no key 'pth' here; did you mean 'path'?"),
        (
            "kind = \"tcp\"\npath = \"/\"",
            "21:8",
            "'path' is for checks of kind http and https; leave",
        ),
        ("kind = \"http\"\nverify = false", "21:10", "'verify' is for checks of kind https; leave"),
        ("kind = \"http\"\nsend = \"x\"", "21:8", "'send' is for checks of kind udp; leave"),
        (
            "kind = \"http\"\npath = \"health\"",
            "21:8",
            "'health' is not a path; write it as \"/health\"",
        ),
        ("kind = \"http\"\npath = \"/a b\"", "21:8", "'/a b' is not a path"),
        ("kind = \"http\"\nhost = \"a\\r\\nb\"", "21:8", "is not a host"),
        ("kind = \"http\"\nstatus = 99", "21:10", "a status is 100 to 599"),
        ("kind = \"http\"\nstatus = \"300-200\"", "21:10", "a status is 100 to 599"),
        (
            "kind = \"tcp\"\ninterval_ms = 5",
            "21:15",
            "interval_ms = 5 is not possible; write 10 to",
        ),
        ("kind = \"tcp\"\ntimeout_ms = 0", "21:14", "timeout_ms = 0 is not possible; write 1 to"),
        ("kind = \"tcp\"\nrise = 0", "21:8", "rise = 0 is not possible; write 1 to 100"),
        ("kind = \"tcp\"\nfall = 101", "21:8", "fall = 101 is not possible; write 1 to 100"),
        ("kind = \"udp\"", "19:1", "nothing would be sent; add 'send = ...'"),
        ("kind = \"udp\"\nsend = \"hex:0\"", "21:8", "'0' are not bytes in hexadecimal"),
        ("kind = \"tcp\"\nservice = \"a\"", "21:11", "'service' is for checks of kind grpc; leave"),
        ("kind = \"grpc\"\nservice = \"a b\"", "21:11", "'a b' is not a service; write it as"),
        ("kind = \"grpc\"\nhost = \"a/b\"", "21:8", "'a/b' is not a host; write its name"),
        ("kind = \"dns\"", "19:1", "nothing would be asked for; add 'query = ...'"),
        ("kind = \"dns\"\nquery = \"a..b\"", "21:9", "'a..b' is not a domain name; write it"),
        ("kind = \"dns\"\nquery = \"\"", "21:9", "'' is not a domain name"),
        ("kind = \"dns\"\nquery = \"a\"\ntype = \"AAA\"", "22:8", "'AAA' is not a valid choice"),
        ("kind = \"udp\"\nsend = \"x\"\ntype = \"a\"", "22:8", "'type' is for checks of kind dns"),
        ("kind = \"command\"", "19:1", "there is no command; add 'command = "),
        ("kind = \"command\"\ncommand = [\"\"]", "19:1", "there is no command; add 'command = "),
    ] {
        let error = with(check).unwrap_err().to_string();
        assert!(error.starts_with(&format!("y.toml:{place}: ")), "{error} not at {place}");
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn nodes_agree_on_health_only_if_they_know_each_other() {
    let error = with("kind = \"tcp\"\nagreed = true").unwrap_err().to_string();
    assert!(error.contains("nodes do not know each other; write [balance.sync]"), "{error}");
    assert!(!with("kind = \"tcp\"\nagreed = false").unwrap().agreed);
    let sync = "[balance]\nseed = 281474976710656\n[balance.sync]\nlisten = \"10.9.0.1:1\"\npeers = [\"10.9.0.2:1\"]\nkey_file = \"k\"\n";
    let text = YARD.replace("[[service]]", &format!("{sync}[[service]]"));
    let config =
        Config::parse("y.toml", &format!("{text}[service.check]\nkind = \"tcp\"\nagreed = true"));
    let check = config.unwrap().services().unwrap().remove(0).check;
    assert!(check.unwrap().agreed);
}
