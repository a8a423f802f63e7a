//! `prove`, `watch-host`, the management guard and the socket flow table of RFS, in the guest.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flowyard_adapter::rss::{RssConfig, parse_ethtool};
use flowyard_adapter::{Profile, Rss};
use flowyard_frame::{FlowKey, Rng};
use flowyard_livekit::guest::{Guest, Image, QUEUES, send};
use flowyard_testkit::note;
use serde_json::Value;

use crate::flowyard::{SNAPSHOT, binary};
use crate::{cache, kernel, rss};

flowyard_testkit::tests! {
    live_traffic_and_probes_come_where_they_are_predicted,
    a_change_of_channels_is_reported_at_once,
    a_connection_keeps_its_queue_while_others_move,
    the_socket_flow_table_is_set_and_restored,
}

fn image() -> Image {
    Image::new(&cache(), &kernel().unwrap(), &[("flowyard", &binary().unwrap())])
}

fn guest() -> Guest {
    let image = image();
    let guest = Guest::boot(&image);
    image.delete();
    guest
}

/// A guest with eth1, which is connected to eth0.
fn pair() -> Guest {
    let image = image();
    let mut guest = Guest::boot_pair(&image);
    image.delete();
    // Otherwise eth1 would answer for the address of eth0.
    guest.sh("echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore");
    guest.sh("ip addr add 10.7.0.2/24 dev eth0; ip link set eth1 up");
    guest
}

/// Runs a line in the guest while random flows arrive.
fn with_traffic(guest: &mut Guest, line: &str) -> (i32, String) {
    guest.sh(&format!("({line}; echo $? > /tmp/status) > /tmp/output 2> /tmp/errors &"));
    let done = AtomicBool::new(false);
    let mut random = Rng::new(7);
    let flows: Vec<_> = (0..200).map(|_| rss::frame(&mut random).1).collect();
    let wait = "for i in $(seq 2700); do [ -s /tmp/status ] && break; sleep 0.1; done; cat /tmp/status; rm /tmp/status";
    let status = std::thread::scope(|scope| {
        let net = guest.net().0.try_clone().unwrap();
        let done = &done;
        scope.spawn(move || {
            let net = flowyard_livekit::Net(net);
            while !done.load(Ordering::Relaxed) {
                send(&net, flows.clone(), Duration::from_millis(20));
            }
        });
        let status = guest.sh(wait);
        done.store(true, Ordering::Relaxed);
        status
    });
    (status.trim().parse().unwrap_or(-1), guest.sh("cat /tmp/output /tmp/errors"))
}

fn json(text: &str) -> Value {
    let line = text.find('{').map_or("", |at| &text[at..]);
    let mut values = serde_json::Deserializer::from_str(line).into_iter();
    values.next().and_then(Result::ok).unwrap_or_else(|| panic!("not JSON: {text}"))
}

fn live_traffic_and_probes_come_where_they_are_predicted() {
    let mut guest = pair();
    guest.sh("ethtool -X eth0 weight 3 1 2 1");
    let (status, printed) = with_traffic(&mut guest, "flowyard prove eth0 --seconds 6 --json");
    let proof = json(&printed);
    assert_eq!(status, 0, "{printed}");
    assert!(proof["flows"].as_u64().unwrap() >= 100, "{proof}");
    assert_eq!((&proof["agrees"], &proof["differing_flows"]), (&true.into(), &0.into()));
    let seen = |one: &Value| one["seen"].as_u64().unwrap();
    assert!(proof["queues"].as_array().unwrap().iter().all(|one| seen(one) > 0), "{proof}");
    note!("live: {} frames of {} flows", proof["frames"], proof["flows"]);
    // A probe for each entry, alone and while other frames arrive.
    let probe = "flowyard prove eth0 --probe entries --probe-from eth1 --json";
    let (status, printed) =
        guest.run(&format!("{probe} > /tmp/proof; E=$?; cat /tmp/proof; exit $E"));
    assert_eq!(status, 0, "{printed}");
    let alone = json(&printed);
    let (status, printed) = with_traffic(&mut guest, probe);
    assert_eq!(status, 0, "{printed}");
    let busy = json(&printed);
    let table = json(&guest.sh("flowyard host eth0 --json"))["rss"]["table"].clone();
    for proof in [&alone, &busy] {
        let probes = proof["probes"].as_array().unwrap();
        assert_eq!(probes.len(), 128);
        for (entry, one) in probes.iter().enumerate() {
            assert_eq!(one["entry"], entry);
            assert_eq!(one["seen"], format!("queue {}", table[entry]), "{one}");
        }
    }
    // Alone, the driver's counters are those of the probes.
    let queues = alone["queues"].as_array().unwrap();
    let counted: u64 = queues.iter().map(|one| one["counted"].as_u64().unwrap()).sum();
    assert!(counted >= 128 * 8, "{queues:?}");
    assert!(queues.iter().all(|one| one["counted"] == one["seen"]), "{queues:?}");
}

fn a_change_of_channels_is_reported_at_once() {
    let mut guest = guest();
    // The first comparison would come after ten minutes. Linux 6.1 announces channels, and RSS not.
    let watch =
        "timeout 250 flowyard watch-host eth0 --interval 600s --json > /tmp/events 2> /tmp/errors";
    guest.sh(&format!(
        "{watch} & W=$!; for i in $(seq 100); do ethtool -L eth0 combined $((i % 2 * 2 + 2)); sleep 1; \
         [ -s /tmp/events ] && break; done; cp /tmp/events /tmp/early; kill $W"
    ));
    let early = guest.sh("cat /tmp/early");
    let events: Vec<Value> =
        early.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of = |what: &str| {
        let is = |event: &&Value| event["what"].as_str().is_some_and(|text| text.starts_with(what));
        events.iter().find(is).unwrap_or_else(|| panic!("{what}: {early}{}", events.len()))["by"]
            .clone()
    };
    assert_eq!(of("channels was"), "notification");
    // What is not announced is found after an interval.
    guest.sh("flowyard watch-host eth0 --interval 3s --count 2 --json > /tmp/events & sleep 2; \
         ethtool -X eth0 weight 3 1; wait");
    let later = guest.sh("cat /tmp/events");
    assert!(later.contains("rss.table was") && later.contains("\"comparison\""), "{later}");
}

/// A plan that changes the table alone: made by `plan`, with another value.
fn table_plan(guest: &mut Guest, table: &[u64]) {
    let mut plan = json(&guest.sh("cat /tmp/plan.json"));
    let text: Vec<String> = table.iter().map(ToString::to_string).collect();
    let from = plan["made_for"]["rss.table"].clone();
    plan["steps"] = serde_json::json!([
        { "setting": "rss.table", "from": from, "to": text.join(" "), "why": "test" }
    ]);
    guest.sh(": > /tmp/table.json");
    let text = plan.to_string();
    for part in text.as_bytes().chunks(3000) {
        let part = String::from_utf8_lossy(part).replace('\'', "'\\''");
        guest.sh(&format!("printf %s '{part}' >> /tmp/table.json"));
    }
}

fn a_connection_keeps_its_queue_while_others_move() {
    let mut guest = pair();
    guest.sh("nc -ll -p 2222 -e cat > /dev/null 2>&1 & sleep 1");
    let stream = guest.net().within(|| TcpStream::connect("10.7.0.2:2222").unwrap());
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let port = stream.local_addr().unwrap().port();
    let works = |rounds: usize| {
        let mut stream = &stream;
        for _ in 0..rounds {
            let mut bytes = [0; 6];
            stream.write_all(b"hello\n").unwrap();
            stream.read_exact(&mut bytes).unwrap();
            assert_eq!(&bytes, b"hello\n");
        }
    };
    works(3);
    guest.sh("flowyard plan eth0 --goal symmetric --seconds 1 -o /tmp/plan.json > /dev/null");
    let flow = format!("tcp 10.7.0.1:{port} > 10.7.0.2:2222");
    let before = json(&guest.sh("flowyard host eth0 --json"))["rss"]["table"].clone();
    let mut table: Vec<u64> = serde_json::from_value(before).unwrap();
    let entry = entry_of(&mut guest, &flow);
    let ssh = format!(
        "SSH_CONNECTION=\"10.7.0.1 {port} 10.7.0.2 2222\" flowyard apply /tmp/table.json --journal /tmp/j"
    );
    // Its entry moves: refused, with its name.
    table[entry] = (table[entry] + 1) % 4;
    table_plan(&mut guest, &table);
    let (status, printed) = guest.run(&ssh);
    assert_eq!(status, 2, "{printed}");
    assert!(
        printed.contains(&flow) && printed.contains("moves the connection from queue"),
        "{printed}"
    );
    // All other entries move: applied and undone, and the connection works all the time.
    table[entry] = (table[entry] + 3) % 4;
    (0..table.len()).filter(|at| *at != entry).for_each(|at| table[at] = (table[at] + 1) % 4);
    table_plan(&mut guest, &table);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                works(1);
            }
        });
        let applied = guest.run(&ssh);
        let proof = guest.run("flowyard prove eth0 --seconds 2 --json");
        let undone = guest.run("flowyard undo eth0 --journal /tmp/j");
        done.store(true, Ordering::Relaxed);
        assert_eq!(
            (applied.0, proof.0, undone.0),
            (0, 0, 0),
            "{} {} {}",
            applied.1,
            proof.1,
            undone.1
        );
    });
    works(3);
}

/// The entry of the table that a flow selects, by what ethtool prints.
fn entry_of(guest: &mut Guest, flow: &str) -> usize {
    let read = parse_ethtool("ethtool -x", &guest.sh("ethtool -x eth0")).unwrap();
    let key = read.key.unwrap();
    let config = RssConfig { key, reta: Some(read.reta), ..RssConfig::default() };
    let rss = Rss::new(Profile::find("virtio").unwrap(), QUEUES, config).unwrap();
    let flow: FlowKey = flow.parse().unwrap();
    rss.index(rss.hash(&flow).unwrap()).into()
}

/// `net.core.rps_sock_flow_entries` exists in the first network namespace only, which is the guest's.
fn the_socket_flow_table_is_set_and_restored() {
    let mut guest = guest();
    let file = "/proc/sys/net/core/rps_sock_flow_entries";
    let value = |guest: &mut Guest| guest.sh(&format!("cat {file}")).trim().to_owned();
    assert_eq!(value(&mut guest), "0");
    guest.sh("flowyard plan eth0 --goal locality --seconds 1 -o /tmp/plan.json > /tmp/planned");
    let plan = json(&guest.sh("cat /tmp/plan.json"));
    let steps = plan["steps"].as_array().unwrap();
    let step = steps.iter().find(|step| step["setting"] == "rps_sock_flow_entries").unwrap();
    let entries = step["to"].as_str().unwrap();
    assert!(entries.parse::<u32>().unwrap() >= 4096 && step["from"] == "0", "{step}");
    guest.sh(&format!("{SNAPSHOT} > /tmp/before"));
    let journal = "--journal /tmp/journal";
    guest.sh(&format!("flowyard apply /tmp/plan.json {journal}"));
    assert_eq!(value(&mut guest), entries);
    guest.sh(&format!("flowyard undo eth0 {journal}"));
    assert_eq!(value(&mut guest), "0");
    guest.sh(&format!("{SNAPSHOT} > /tmp/now; diff /tmp/before /tmp/now"));
    // Another program's value is left as it is.
    guest.sh(&format!("flowyard apply /tmp/plan.json {journal}; echo 8192 > {file}"));
    let (status, printed) = guest.run(&format!("flowyard undo eth0 {journal}"));
    assert_eq!(status, 1, "{printed}");
    assert!(printed.contains("rps_sock_flow_entries is '8192'"), "{printed}");
    assert_eq!(value(&mut guest), "8192");
}
