use proptest::prelude::*;

use super::*;
use crate::Config;

/// What a configuration needs besides the services.
const YARD: &str = r#"
[[port]]
name = "east"
kind = "mem"
in = "given"
[[queue]]
name = "q"
order = "direct"
consumers = [0]
[work]
kind = "balance"
[balance]
seed = 1
clients = { port = "east", next_hop = "02:00:00:00:00:01" }
local = ["10.9.0.1", "2001:db8:9::1"]
address = { east = ["10.0.0.254", "fd00::254"] }
"#;

/// The configuration with the services, which must be valid.
#[track_caller]
fn config(imported: &Imported) -> Config {
    let text = format!("{YARD}{}", imported.toml("east"));
    Config::parse("y.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[track_caller]
fn notes(imported: &Imported) -> Vec<(usize, &str)> {
    imported.notes.iter().map(|note| (note.line, note.text.as_str())).collect()
}

const RULES: &str = "\
-A -t 192.0.2.1:80 -s wrr
-a -t 192.0.2.1:80 -r 10.0.1.1:8080 -m -w 2
-a -t 192.0.2.1:80 -r 10.0.1.2:8080 -m -w 0
-A -u 192.0.2.1:53 -s lblc -o
-a -u 192.0.2.1:53 -r 10.0.1.1:53 -g -w 1 -x 100 -y 0
-A -t [2001:db8::1]:443 -s wlc -p 300 -M 64
-a -t [2001:db8::1]:443 -r [fd00::1]:443 -i -w 1 --tun-type gue --tun-port 6080 --tun-nocsum
-a -t [2001:db8::1]:443 -r [fd00::2]:443 -m -w 1
-A -f 7 -s rr
-a -f 7 -r 10.0.1.9:0 -g -w 1
";

#[test]
fn the_rules_of_ipvs_become_services() {
    let imported = read(RULES, Format::Ipvsadm).unwrap();
    assert_eq!(imported.count(), (3, 4));
    let services = config(&imported).services().unwrap();
    let web = &services[0];
    assert_eq!((web.name.as_str(), web.mode), ("tcp-192.0.2.1-80", flowyard_lb::Mode::Dnat));
    let backends: Vec<_> =
        web.backends.iter().map(|b| (b.name.as_str(), b.port, b.weight)).collect();
    assert_eq!(backends, [("10.0.1.1-8080", Some(8080), 2), ("10.0.1.2-8080", Some(8080), 0)]);
    assert_eq!(services[2].mode, flowyard_lb::Mode::Gue);
    let notes = notes(&imported);
    let lines: Vec<_> = notes.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [4, 5, 7, 8, 9], "{notes:?}");
    assert!(services[1].one_packet && !services[0].one_packet);
    for (at, wanted) in [
        (0, "the scheduler 'lblc' does not exist in flowyard; choice = \"maglev\" is used"),
        (3, "server fd00::2 is left out: it has mode \"dnat\""),
        (4, "the service of firewall mark 7"),
    ] {
        assert!(notes[at].1.starts_with(wanted), "{:?}", notes[at]);
    }
}

#[test]
fn schedulers_of_ipvs_are_carried_over() {
    use flowyard_lb::Choice;
    for (scheduler, choice, remark) in [
        ("wlc", Choice::WeightedLeast, ""),
        ("lc", Choice::WeightedLeast, "the scheduler 'lc' ignores weights"),
        ("sed", Choice::LeastConnections, ""),
        ("nq", Choice::NeverQueue, ""),
        ("fo", Choice::Failover, ""),
        ("ovf", Choice::Overflow, ""),
        ("twos", Choice::LeastConnections, "the scheduler 'twos' does not exist"),
        ("dh", Choice::Maglev, "the scheduler 'dh' does not exist"),
        ("x", Choice::Maglev, "the scheduler 'x' is not known"),
    ] {
        let text = format!(
            "-A -t 192.0.2.1:80 -s {scheduler}\n-a -t 192.0.2.1:80 -r 10.0.1.1:80 -g -w 2\n"
        );
        let imported = read(&text, Format::Ipvsadm).unwrap();
        assert_eq!(config(&imported).services().unwrap()[0].choice, choice, "{scheduler}");
        let notes = notes(&imported);
        assert_eq!(notes.len(), usize::from(!remark.is_empty()), "{notes:?}");
        assert!(notes.iter().all(|(line, text)| *line == 1 && text.starts_with(remark)));
    }
}

#[test]
fn two_services_may_have_the_same_servers() {
    let rules = "\
-A -t 192.0.2.1:80 -s rr
-a -t 192.0.2.1:80 -r 10.0.1.1:8080 -m
-A -t 192.0.2.2:80 -s rr
-a -t 192.0.2.2:80 -r 10.0.1.1:8080 -m
";
    let imported = read(rules, Format::Ipvsadm).unwrap();
    assert_eq!((config(&imported).services().unwrap().len(), imported.notes.len()), (2, 0));
}

#[test]
fn one_packet_scheduling_is_carried_over() {
    let rules = "\
-A -u 192.0.2.1:53 -s rr -o
-a -u 192.0.2.1:53 -r 10.0.1.1:53 -m -w 1 -x 9 -y 1
-A -t 192.0.2.1:53 -s rr --ops
-a -t 192.0.2.1:53 -r 10.0.1.1:53 -m -w 1
";
    let keepalived = "\
virtual_server 192.0.2.1 53 { protocol UDP
    ops
    real_server 10.0.1.1 53 { uthreshold 9 }
}
virtual_server 192.0.2.1 53 {
    ops
    real_server 10.0.1.1 53 { }
}
";
    for (text, format, lines) in
        [(rules, Format::Ipvsadm, [2, 3]), (keepalived, Format::Keepalived, [3, 5])]
    {
        let imported = read(text, format).unwrap();
        let services = config(&imported).services().unwrap();
        assert!(services[0].one_packet && !services[1].one_packet);
        assert!(services[0].backends[0].ceiling.is_none());
        let notes = notes(&imported);
        assert_eq!(notes.iter().map(|(line, _)| *line).collect::<Vec<_>>(), lines, "{notes:?}");
        assert!(notes[0].1.starts_with("the limit of connections is left out"));
        assert!(notes[1].1.ends_with("it exists for UDP only"));
    }
}

#[test]
fn persistence_is_carried_over() {
    let rules = "\
-A -t 192.0.2.1:80 -s wlc -p
-a -t 192.0.2.1:80 -r 10.0.1.1:80 -g
-A -t 192.0.2.2:80 -s rr -p 50 -M 255.255.255.0
-a -t 192.0.2.2:80 -r 10.0.1.1:80 -g
-A -t [2001:db8::1]:80 -s rr -p 60 -M 64
-a -t [2001:db8::1]:80 -r [fd00::1]:80 -g
-A -t 192.0.2.3:80 -s rr -p 9999999 -M 255.0.255.0
-a -t 192.0.2.3:80 -r 10.0.1.1:80 -g
";
    let block = |vip: &str, server: &str, keys: &str| {
        format!(
            "virtual_server {vip} 80 {{\nlb_kind DR\n{keys}\nreal_server {server} 80 {{ }}\n}}\n"
        )
    };
    let keepalived = [
        block("192.0.2.1", "10.0.1.1", "persistence_timeout 300"),
        block(
            "192.0.2.2",
            "10.0.1.1",
            "persistence_timeout 50\npersistence_granularity 255.255.255.0",
        ),
        block("2001:db8::1", "fd00::1", "persistence_timeout 60\npersistence_granularity 64"),
        block("192.0.2.3", "10.0.1.1", "persistence_timeout 9999999\npersistence_granularity x"),
    ]
    .concat();
    for (text, format) in [(rules, Format::Ipvsadm), (&*keepalived, Format::Keepalived)] {
        let imported = read(text, format).unwrap();
        let services = config(&imported).services().unwrap();
        let all: Vec<_> = services
            .iter()
            .map(|service| {
                let is = service.persist.unwrap();
                (is.timeout / 1_000_000_000, is.mask_v4, is.mask_v6)
            })
            .collect();
        assert_eq!(all, [(300, 32, 128), (50, 24, 128), (60, 32, 64), (2_678_400, 32, 128)]);
        let notes: Vec<_> = notes(&imported).into_iter().map(|(_, text)| text).collect();
        assert_eq!(notes[0], "persistence of 9999999 s becomes one of 2678400");
        assert!(notes[1].starts_with("the mask '") && notes.len() == 2, "{notes:?}");
    }
    let bare = block("192.0.2.1", "10.0.1.1", "persistence_timeout");
    let toml = read(&bare, Format::Keepalived).unwrap().toml("east");
    assert!(toml.contains("persist = { seconds = 360 }\n"), "{toml}");
}

#[test]
fn limits_of_servers_are_carried_over() {
    let rules = "\
-A -t 192.0.2.1:80 -s wlc
-a -t 192.0.2.1:80 -r 10.0.1.1:80 -m -w 1 -x 100 -y 40
-a -t 192.0.2.1:80 -r 10.0.1.2:80 -m -w 1 -x 100 -y 0
-a -t 192.0.2.1:80 -r 10.0.1.3:80 -m -w 1 -x 0 -y 7
-a -t 192.0.2.1:80 -r 10.0.1.4:80 -m -w 1 --u-threshold 5 --l-threshold 6
";
    let keepalived = "\
virtual_server 192.0.2.1 80 {
    real_server 10.0.1.1 80 { uthreshold 100
        lthreshold 40 }
    real_server 10.0.1.2 80 { uthreshold 100 }
    real_server 10.0.1.3 80 { lthreshold 7 }
    real_server 10.0.1.4 80 { uthreshold 5
        lthreshold 6 }
}
";
    for (text, format, lines) in
        [(rules, Format::Ipvsadm, [4, 5]), (keepalived, Format::Keepalived, [5, 6])]
    {
        let imported = read(text, format).unwrap();
        let services = config(&imported).services().unwrap();
        let limits: Vec<_> = services[0]
            .backends
            .iter()
            .map(|backend| backend.ceiling.map(|is| (is.most(), is.resume())))
            .collect();
        assert_eq!(limits, [Some((100, 40)), Some((100, 75)), None, Some((5, 4))]);
        let notes = notes(&imported);
        assert_eq!(notes.iter().map(|(line, _)| *line).collect::<Vec<_>>(), lines, "{notes:?}");
        assert!(notes[0].1.starts_with("a lower threshold without an upper one has no effect"));
        assert!(notes[1].1.ends_with("(upper 5, lower 6)"), "{notes:?}");
    }
}

#[test]
fn wrong_rules_are_refused_with_their_lines() {
    for (text, wanted) in [
        ("", "line 1: there is no service"),
        ("-A -t 192.0.2.1:http", "line 1: 'http"),
        ("-A -t www:80", "line 1: 'www:80' is not an address with a port; use 'ipvsadm -S -n'"),
        ("-A -t 192.0.2.1:80\n-a -t 192.0.2.1:81 -r 10.0.0.1:81 -m", "line 2: there is no -A line"),
        ("-A -t 192.0.2.1:80\n-a -t 192.0.2.1:80 -m", "line 2: the server has no address"),
        ("-A -t 192.0.2.1:80 -s", "line 1: '-s' has no value"),
        ("-A -t 192.0.2.1:80 -w x", "line 1: '-w' is not an option of a service"),
        ("-A -x 1", "line 1: '-x' is not a kind of service"),
        ("-D -t 192.0.2.1:80", "line 1: '-D' is not expected"),
        ("-A -t 192.0.2.1:80 -s rr", "line 1: there is no service that can be imported"),
    ] {
        let error = read(text, Format::Ipvsadm).unwrap_err().to_string();
        let wanted = wanted.replace("'http", "'192.0.2.1:http'");
        assert!(error.starts_with(&wanted), "{error}");
    }
}

/// keepalived 2.2.7 accepts this file (`keepalived -t`).
const KEEPALIVED: &str = r#"
! Comments begin with an exclamation mark
global_defs { router_id lb1 }
vrrp_instance VI_1 {
    interface eth0
    virtual_router_id 51
    virtual_ipaddress { 192.0.2.1 }
}
virtual_server_group dns {
    192.0.2.1 53
    192.0.2.2 53
    192.0.2.10-20 53
}
virtual_server 192.0.2.1 80 {
    delay_loop 6
    lb_algo wlc      # the method
    lb_kind NAT
    protocol TCP
    persistence_timeout 50
    sorry_server 10.0.1.9 8081
    real_server 10.0.1.1 8080 {
        weight 3
        inhibit_on_failure
        HTTP_GET {
            url {
                path /health
                status_code 200
            }
            connect_timeout 2.5
            retry 3
            delay_before_retry 1
        }
    }
    real_server 10.0.1.2 8080 {
        HTTP_GET {
            url { path /health
                  status_code 200 }
            connect_timeout 2.5
            retry 3
        }
    }
}
virtual_server group dns {
    lvs_sched sh
    lvs_method DR
    protocol UDP
    real_server 10.0.1.5 53 { MISC_CHECK { misc_path "/usr/lib/check dns" } }
}
"#;

#[test]
fn the_virtual_servers_of_keepalived_become_services() {
    let imported = read(KEEPALIVED, Format::Keepalived).unwrap();
    let text = imported.toml("east");
    assert_eq!(imported.count(), (3, 5), "{text}");
    let services = config(&imported).services().unwrap();
    let names: Vec<_> = services.iter().map(|service| service.name.as_str()).collect();
    assert_eq!(names, ["tcp-192.0.2.1-80", "udp-192.0.2.1-53", "udp-192.0.2.2-53"]);
    let check = services[0].check.as_ref().unwrap();
    assert_eq!(
        (check.rules.interval, check.rules.timeout, check.rules.fall),
        (6_000_000_000, 2_500_000_000, 4)
    );
    for wanted in [
        "[service.check]\nkind = \"http\"\nfall = 4\ninterval_ms = 6000\npath = \"/health\"\nstatus = 200\ntimeout_ms = 2500\n",
        "command = [\"/usr/lib/check\", \"dns\"]",
        "choice = \"source\"",
        "choice = \"wlc\"\npersist = { seconds = 50 }\n",
        "weight = 3\nexit = { port = \"east\" }",
        "addr = \"10.0.1.9\"\nport = 8081\nbackup = true\nweight = 1\n",
    ] {
        assert!(text.contains(wanted), "{text}");
    }
    let notes = notes(&imported);
    for (line, wanted) in [
        (4, "'vrrp_instance' is left out: flowyard announces VIPs by routes"),
        (12, "the range of addresses '192.0.2.10-20' is left out"),
        (
            20,
            "the sorry_server 10.0.1.9 becomes a backup, which is checked like the other backends",
        ),
        (23, "'inhibit_on_failure' of real_server 10.0.1.1 is left out"),
        (31, "'delay_before_retry' of HTTP_GET is left out"),
    ] {
        assert!(
            notes.iter().any(|&(at, text)| at == line && text.starts_with(wanted)),
            "{line}: {notes:?}"
        );
    }
    assert_eq!(notes.len(), 5, "{notes:?}");
}

#[test]
fn a_sorry_server_on_the_balancer_is_left_out() {
    let text = KEEPALIVED.replace("sorry_server 10.0.1.9 8081", "sorry_server 127.0.0.1 80");
    let imported = read(&text, Format::Keepalived).unwrap();
    assert_eq!(imported.count(), (3, 4));
    let wanted = "the sorry_server 127.0.0.1 is left out: a backend cannot be the balancer itself";
    assert!(notes(&imported).contains(&(20, wanted)), "{:?}", notes(&imported));
}

#[test]
fn firewall_marks_and_other_ip_versions_are_left_out_and_reported() {
    let text = "\
virtual_server_group g {
  192.0.2.1 53
  fwmark 3
}
virtual_server group g {
  real_server 10.0.1.5 53 {
  }
  real_server fd00::5 53 {
  }
}
virtual_server fwmark 4 {
}
";
    let imported = read(text, Format::Keepalived).unwrap();
    assert_eq!(imported.count(), (1, 1));
    let notes = notes(&imported);
    let lines: Vec<_> = notes.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [3, 5, 11], "{notes:?}");
    assert!(notes[1].1.contains("server fd00::5 of service"), "{notes:?}");
}

#[test]
fn wrong_files_of_keepalived_are_refused_with_their_lines() {
    for (text, wanted) in [
        ("virtual_server 192.0.2.1 80 {\n", "line 1: a '{' is not closed"),
        ("}\n", "line 1: a '}' without a '{'"),
        ("\n{ }\n", "line 2: a '{' without a name"),
        ("virtual_server 192.0.2.1 80 { lb_kind FOO }", "line 1: 'FOO' is not NAT, DR or TUN"),
        (
            "virtual_server 192.0.2.1 80 {\n real_server x 80 {\n }\n}",
            "line 2: 'x' is not an IP address",
        ),
        ("virtual_server 192.0.2.1 99999 { }", "line 1: '99999' is not a port"),
        ("virtual_server group g { }", "line 1: there is no virtual_server_group 'g'"),
        ("virtual_server 192.0.2.1 80 { delay_loop \"6", "line 1: a quote is not closed"),
        (
            "virtual_server 192.0.2.1 80 { delay_loop nan }",
            "line 1: 'delay_loop' has a time of NaN s",
        ),
        ("vrrp_instance a { }", "line 1: there is no virtual_server that can be imported"),
    ] {
        let error = read(text, Format::Keepalived).unwrap_err().to_string();
        assert!(error.starts_with(wanted), "{error}");
    }
    let deep = "a {\n".repeat(40);
    assert!(read(&deep, Format::Keepalived).unwrap_err().to_string().contains("too deeply"));
}

#[test]
fn the_format_is_found() {
    assert_eq!(Format::of(RULES), Format::Ipvsadm);
    assert_eq!(Format::of(KEEPALIVED), Format::Keepalived);
}

fn word() -> impl Strategy<Value = String> {
    const WORDS: &[&str] = &[
        "-A",
        "-a",
        "-t",
        "-u",
        "-f",
        "-r",
        "-s",
        "-p",
        "-m",
        "-g",
        "-i",
        "-w",
        "192.0.2.1:80",
        "[::1]:9",
        "7",
        "wrr",
        "virtual_server",
        "real_server",
        "192.0.2.1",
        "80",
        "{",
        "}",
        "TCP_CHECK",
        "HTTP_GET",
        "url",
        "path",
        "group",
        "virtual_server_group",
        "delay_loop",
        "\"",
        "#",
        "\n",
        "\n",
        "status_code",
        "misc_path",
        "MISC_CHECK",
        "weight",
    ];
    prop_oneof![20 => prop::sample::select(WORDS).prop_map(str::to_owned), 1 => ".{0,8}"]
}

proptest! {
    /// Whatever the input, the result is TOML or an error with a line of the input.
    #[test]
    fn anything_is_toml_or_an_error(words in prop::collection::vec(word(), 0..60), keepalived: bool) {
        let text = words.join(" ");
        let format = if keepalived { Format::Keepalived } else { Format::Ipvsadm };
        let lines = text.lines().count().max(1);
        match read(&text, format) {
            Ok(imported) => {
                let toml = imported.toml("east\"\\");
                prop_assert!(toml.parse::<toml::Table>().is_ok(), "{}", toml);
                prop_assert!(imported.notes.iter().all(|note| (1..=lines).contains(&note.line)));
            }
            Err(error) => prop_assert!((1..=lines).contains(&error.line), "{}", error),
        }
    }
}
