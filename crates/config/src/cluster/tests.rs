use super::*;

/// A balancer without services, with these lines in `[cluster]`.
fn config(cluster: &str) -> Result<Config, String> {
    let text = format!(
        "[[port]]\nname = \"net\"\nkind = \"mem\"\nin = \"given\"\n[[queue]]\nname = \"q\"\norder = \"atomic\"\n\
         consumers = [0]\n[work]\nkind = \"balance\"\n[balance]\nseed = 0x123456789abcde\n[cluster]\n{cluster}\n"
    );
    Config::parse("y.toml", &text).map_err(|error| error.to_string())
}

const GOOD: &str = "endpoints = [\"http://10.0.0.1:2379\", \"https://[2001:db8::1]\"]\nnode = \"lb1\"\nstate = \"s.json\"";

#[test]
fn a_cluster_needs_no_services_in_the_file() {
    let good = config(GOOD).unwrap();
    let cluster = good.cluster.as_ref().unwrap().get_ref();
    assert_eq!((cluster.node(), cluster.state()), ("lb1", Path::new("s.json")));
    assert_eq!(cluster.prefix(), "/flowyard");
    let all: Vec<String> = cluster.endpoints().iter().map(ToString::to_string).collect();
    assert_eq!(all, ["http://10.0.0.1:2379", "https://[2001:db8::1]:2379"]);
    assert!(good.services().unwrap().is_empty() && good.resolve().is_ok());
}

#[test]
fn mistakes_are_reported_with_their_place() {
    for (cluster, said) in [
        ("", "the key 'endpoints' is missing"),
        ("endpoints = []", "no address of etcd is named"),
        (
            "endpoints = [\"10.0.0.1:2379\"]",
            "y.toml:14:14: '10.0.0.1:2379' is not an address of etcd: there is no http://",
        ),
        ("endpoints = [\"ftp://x\"]", "only http and https"),
        ("endpoints = [\"http://\"]", "not a host name"),
        ("endpoints = [\"http://a b\"]", "not a host name"),
        ("endpoints = [\"http://a:0\"]", "the port is not 1 to 65535"),
        ("endpoints = [\"http://a:x\"]", "the port is not"),
        ("endpoints = [\"http://[::1\"]", "the ']' is missing"),
        ("endpoints = [\"http://a\"]", "the key 'node' is missing"),
        (
            "endpoints = [\"http://a\"]\nnode = \"a/b\"",
            "y.toml:15:8: 'a/b' cannot be the name of a node",
        ),
        ("endpoints = [\"http://a\"]\nnode = \"a\"", "the key 'state' is missing"),
        (&format!("{GOOD}\nprefix = \"/\""), "cannot be the prefix"),
        (&format!("{GOOD}\nuser = \"a\""), "'user' needs 'password_file'"),
        (&format!("{GOOD}\nkey = \"a\""), "'key' needs 'cert'"),
        (&format!("{GOOD}\npoll_ms = 0"), "poll_ms = 0 is not possible"),
        (&format!("{GOOD}\nendpoint = 1"), "there is no key 'endpoint' here"),
    ] {
        let error = config(cluster).unwrap_err();
        assert!(error.contains(said), "{cluster}: {error}");
    }
}

const URL: &str = "kind = \"http\"\nurl = \"https://a/lb.toml\"\nstate = \"s.json\"";

#[test]
fn each_kind_has_its_keys() {
    let good = config(&format!("{URL}\ntoken_file = \"t\"")).unwrap();
    let cluster = good.cluster().unwrap();
    assert_eq!(*cluster.kind.get_ref(), ProviderKind::Http);
    assert_eq!(
        (cluster.place(), cluster.identity()),
        ("https://a/lb.toml".into(), "https://a/lb.toml".into())
    );
    assert_eq!(cluster.endpoints()[0].to_string(), "https://a:443");
    // What a query may hold is not for logs; the file of the last good services tells documents apart by it.
    let secret = config(&URL.replace("lb.toml", "lb.toml?token=x")).unwrap();
    let cluster = secret.cluster().unwrap();
    assert_eq!(
        (cluster.place(), cluster.identity(), cluster.url().unwrap().path),
        ("https://a/lb.toml".into(), "https://a/lb.toml?token=x".into(), "/lb.toml?token=x".into())
    );
    assert_eq!(config(GOOD).unwrap().cluster().unwrap().place(), "etcd:/flowyard");
    for (cluster, said) in [
        ("kind = \"consul\"".into(), "'consul' is not a valid choice; choose one of etcd"),
        ("kind = \"http\"".into(), "the key 'url' is missing"),
        (
            format!("{URL}\nendpoints = []"),
            "y.toml:17:13: 'endpoints' is not for kind = \"http\"; leave it out, or write kind = \"etcd\"",
        ),
        (format!("{URL}\nnode = \"a\""), "'node' is not for kind"),
        (format!("{GOOD}\nurl = \"http://a\""), "'url' is not for kind = \"etcd\""),
        (
            URL.replace("https://a", "a"),
            "y.toml:15:7: this is not the address of a document: there is no http://",
        ),
        (
            format!("{}\ntoken_file = \"t\"", URL.replace("https", "http")),
            "would be sent without encryption",
        ),
        (
            format!("{URL}\ntoken_file = \"t\"\nuser = \"u\"\npassword_file = \"p\""),
            "cannot have both",
        ),
        (format!("{URL}\npassword_file = \"p\""), "'password_file' needs 'user'"),
        ("kind = \"http\"\nurl = \"http://a\"".into(), "the key 'state' is missing"),
    ] {
        let error = config(&cluster).unwrap_err();
        assert!(error.contains(said), "{cluster}: {error}");
    }
}

/// A balancer whose provider is DNS, with this service.
fn dns(cluster: &str, service: &str) -> Result<Config, String> {
    let service = format!(
        "[[service]]\nname = \"web\"\nvip = \"192.0.2.1\"\nproto = \"tcp\"\nport = 80\nmode = \"dsr\"\n{service}"
    );
    config(&format!("kind = \"dns\"\nstate = \"s.json\"\n{cluster}\n{service}"))
}

const SRV: &str = "srv = { name = \"_HTTP._tcp.web.example.\", exit = { port = \"net\", next_hop = \"02:00:00:00:00:01\" } }";

#[test]
fn backends_come_from_srv_records() {
    let good = dns("servers = [\"10.0.0.53\", \"[2001:db8::53]:5353\"]", SRV).unwrap();
    let web = Lookup {
        service: "web".into(),
        name: "_http._tcp.web.example".into(),
        is_v6: false,
        port: 80,
    };
    assert_eq!(good.lookups(), [web]);
    let servers: Vec<String> =
        good.cluster().unwrap().servers().iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["10.0.0.53:53", "[2001:db8::53]:5353"]);
    for (cluster, service, said) in [
        ("", "", "no service has backends from SRV records"),
        ("servers = []", SRV, "no DNS server is named"),
        ("servers = [\"dns.example\"]", SRV, "'dns.example' is not the address of a DNS server"),
        ("servers = [\"10.0.0.53:0\"]", SRV, "is not the address"),
        ("ca = \"x\"", SRV, "'ca' is not for kind = \"dns\""),
        ("password_file = \"x\"", SRV, "'password_file' is not for kind = \"dns\"; leave it out"),
        ("", &SRV.replace("_tcp", &"x".repeat(64)), "is not a domain name"),
        ("", &SRV.replace("_HTTP._tcp.web.example", ""), "the root has no SRV records"),
        ("", &SRV.replace("exit", "exits"), "there is no key 'exits' here"),
    ] {
        let error = dns(cluster, service).unwrap_err();
        assert!(error.contains(said), "{cluster} {service}: {error}");
    }
    let several = dns("", SRV).map(|_| ()).and_then(|()| {
        config(&format!("kind = \"dns\"\nstate = \"s.json\"\n[[service]]\nname = \"web\"\nvip = \"192.0.2.1\"\nproto = \"tcp\"\nport = \"80-81\"\nmode = \"dsr\"\n{SRV}"))
    });
    assert!(several.unwrap_err().contains("a service with several ports"));
    let other = config(&format!(
        "{GOOD}\n[[service]]\nname = \"web\"\nvip = \"192.0.2.1\"\nproto = \"tcp\"\nport = 80\nmode = \"dsr\"\n{SRV}"
    ));
    assert!(other.unwrap_err().contains("nothing looks up SRV records here"));
}

const KUBERNETES: &str = "kind = \"kubernetes\"\nendpoints = [\"https://a\"]\nstate = \"s.json\"\nexit = { port = \"net\", next_hop = \"02:00:00:00:00:01\" }";

#[test]
fn kubernetes_needs_what_services_have_in_common() {
    let with = "service = { mode = \"dsr\" }";
    let good = config(&format!("{KUBERNETES}\n{with}\nnamespace = \"shop\"")).unwrap();
    let cluster = good.cluster().unwrap();
    assert_eq!(cluster.endpoints()[0].to_string(), "https://a:6443");
    assert_eq!(
        (cluster.place(), cluster.identity()),
        ("kubernetes".into(), "kubernetes:shop:".into())
    );
    for (more, said) in [
        ("", "the key 'service' is missing"),
        ("service = {}", "the services have no mode"),
        ("service = { mode = \"dsr\", vip = \"192.0.2.1\" }", "'vip' comes from Kubernetes"),
        (&format!("{with}\nnamespace = \"a/b\""), "'a/b' is not a namespace"),
        (&format!("{with}\nprefix = \"/x\""), "'prefix' is not for kind = \"kubernetes\""),
        (
            "service = { mode = \"dsr\", check = { kind = \"command\", command = [\"/bin/true\"] } }",
            "y.toml:18:11: a health check of a service that does not come from the file of this machine cannot run a command",
        ),
    ] {
        let error = config(&format!("{KUBERNETES}\n{more}")).unwrap_err();
        assert!(error.contains(said), "{more}: {error}");
    }
    let wrong =
        config(&format!("{}\n{with}", KUBERNETES.replace("https://a", "a:6443"))).unwrap_err();
    assert!(
        wrong.contains("'a:6443' is not an address of an API server of Kubernetes")
            && wrong.contains("write it as \"https://10.0.0.1:6443\""),
        "{wrong}"
    );
    let plain = KUBERNETES.replace("https", "http") + "\ntoken_file = \"t\"\n" + with;
    assert!(config(&plain).unwrap_err().contains("would be sent without encryption"));
    let none = config(&format!("{}\n{with}", KUBERNETES.replace("\"https://a\"", "")));
    assert!(none.unwrap_err().contains("no address of an API server of Kubernetes is named"));
}

#[test]
fn a_cluster_needs_a_seed_and_a_balancer() {
    let text = "[[port]]\nname = \"net\"\nkind = \"mem\"\nin = \"given\"\n[[queue]]\nname = \"q\"\norder = \"atomic\"\nconsumers = [0]\n";
    let said = |more: &str| {
        let text = format!("{text}{more}[cluster]\n{GOOD}\n");
        Config::parse("y.toml", &text).unwrap_err().to_string()
    };
    assert!(said("[work]\nkind = \"balance\"\n").contains("[balance] has no 'seed'"));
    assert!(said("[work]\nkind = \"forward\"\n").contains("[cluster] is for kind = \"balance\""));
}

#[test]
fn the_section_can_be_read_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fleet.toml");
    std::fs::write(&path, "[cluster]\nendpoints = [\"http://a:1\"]\n[other]\nx = 1\n").unwrap();
    let cluster = ClusterConfig::read(&path).unwrap();
    assert_eq!(cluster.endpoints()[0].port, 1);
    std::fs::write(&path, "[other]\nx = 1\n").unwrap();
    let error = ClusterConfig::read(&path).unwrap_err().to_string();
    assert!(error.contains("there is no section [cluster]"), "{error}");
}
