//! Bad input: one line that names the file, the place and the fix; status 2; no file is left behind.

use std::path::Path;

use crate::common::{refused, run, run_with};

flowyard_testkit::tests! {
    invalid_captures_are_refused,
    invalid_flows_are_refused,
    invalid_arguments_are_refused,
    limits_and_fixes_are_those_that_hold,
    rule_files_name_line_and_column,
    no_partial_report_is_left,
    a_folder_without_permission_is_named needs [flowyard_testkit::harness::Need::NotRoot],
    links_and_special_files_are_not_replaced,
}

const YARD: &str = "captures/yard.pcap";
const FLOW: &str = "tcp 10.0.0.1:40000 > 10.0.0.2:11211";

#[track_caller]
fn says(output: &std::process::Output, parts: &[&str]) {
    let line = refused(output);
    for part in parts {
        assert!(line.contains(part), "'{part}' is not in: {line}");
    }
}

/// A little-endian pcap header of a link type.
fn head(link: u32) -> Vec<u8> {
    [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, link].map(u32::to_le_bytes).concat()
}

fn invalid_captures_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let missing = folder.path().join("missing.pcap");
    let missing = missing.to_str().unwrap();
    let here = folder.path().to_str().unwrap();
    for (path, parts) in [
        (missing, &["missing.pcap: cannot open: No such file", "check the path"][..]),
        (here, &["byte 0", "directory", "give the name of a file"]),
        (&file("text", b"Which core gets this packet?"), &["byte 0", "not a capture", "pcapng"]),
        (&file("empty", b""), &["byte 0", "empty"]),
        (&file("atm", &head(123)), &["link type 123", "SUNATM", "capture on an Ethernet"]),
        (&file("radio", &head(127)), &["link type 127", "capture on an Ethernet"]),
        (&file("stub", &head(1)[..10]), &["byte 0", "10 of"]),
        (&file("two\nlines", b"?"), &["two lines"]),
    ] {
        let path_said = path.replace('\n', " ");
        says(&run(["analyze", path]), &[&[path_said.as_str()], parts].concat());
        // Also after a valid capture.
        says(&run(["analyze", YARD, path]), parts);
        if path != missing && path != here {
            says(&run(["explain", &format!("{path}:1")]), parts);
        }
    }
    says(&run(["explain", &format!("{missing}:1")]), &[missing, "check the path"]);
    says(&run_with(&["analyze", "-"], b""), &["standard input", "byte 0", "empty"]);
    says(&run_with(&["analyze", "-"], b"no capture"), &["standard input", "not a capture"]);
}

fn invalid_flows_are_refused() {
    for (flow, parts) in [
        ("", &["is not a protocol", "write a flow as"][..]),
        ("tcp", &["source is missing", "write a flow as"]),
        ("tcp 10.0.0.1:1", &["'>'", "write a flow as"]),
        ("tcp 10.0.0.1:1 > ", &["destination is missing"]),
        ("tcp 10.0.0.1 > 10.0.0.2:80", &["source '10.0.0.1' has no port"]),
        ("tcp 10.0.0.256:1 > 10.0.0.2:80", &["10.0.0.256:1"]),
        (
            "tcp 10.0.0.1:70000 > 10.0.0.2:80",
            &["source port '70000' is not a number from 0 to 65535"],
        ),
        ("tcp 10.0.0.1:1 > [2001:db8::1]:80", &["different IP versions"]),
        ("icmp 10.0.0.1:1 > 10.0.0.2", &["has a port"]),
        ("tcp 10.0.0.1:1 > 10.0.0.2:80 vlan 4096", &["4096", "0 to 4095"]),
        ("tcp 10.0.0.1:1 > 10.0.0.2:80 twice", &["'twice' is unexpected"]),
        ("proto 256 10.0.0.1 > 10.0.0.2", &["0 to 255"]),
        ("two\nlines", &["is not a protocol"]),
        ("\x1b[31mred", &["is not a protocol"]),
    ] {
        says(&run(["explain", flow]), parts);
    }
    for (packet, parts) in [
        ("captures/yard.pcap", &["no packet number follows", "captures/yard.pcap:1"][..]),
        ("captures/yard.pcap:first", &["'first' is not a packet number", "captures/yard.pcap:1"]),
        ("captures/yard.pcap:-1", &["'-1' is not a packet number"]),
        ("captures/yard.pcap:0", &["captures/yard.pcap", "no packet 0", "from 1"]),
        ("captures/yard.pcap:99999999", &["no packet 99999999", "packets 1 to "]),
    ] {
        says(&run(["explain", packet]), parts);
    }
}

fn invalid_arguments_are_refused() {
    for (args, parts) in [
        (&["--adapter", "x530"][..], &["--adapter", "x530", "x520"][..]),
        (&["--policy", "rss,rsf"], &["--policy", "rsf", "rfs"]),
        (&["--policy", "rss,rss"], &["--policy", "twice"]),
        (&["--policy", "fdir"], &["--policy", "fdir=rules.txt"]),
        (
            &["--policy", "fdir=/no/such.txt"],
            &["/no/such.txt", "No such file", "readable rule file"],
        ),
        (&["--policy", "arfs"], &["arfs", "e810"]),
        (&["--adapter", "software", "--policy", "rebalance"], &["indirection table", "software"]),
        (&["--rebalance-even", "1"], &["--rebalance-even", "above 1"]),
        (&["--rebalance-every", "0s"], &["--rebalance-every", "1ms"]),
        (&["--rebalance-moves", "0"], &["--rebalance-moves", "at least 1"]),
        (&["--adapter", "e810", "--policy", "atr"], &["atr", "e810", "x710"]),
        (&["--adapter", "software", "--policy", "rss"], &["rss", "software"]),
        (&["--adapter", "virtio", "--policy", "fdir=docs/examples/none"], &["docs/examples/none"]),
        (&["--queues", "0"], &["--queues", "1 to 1024"]),
        (&["--queues", "1025"], &["--queues", "1 to 1024"]),
        (&["--queues", "many"], &["--queues", "many", "--help"]),
        (&["--queues", "-1"], &["-1"]),
        (&["--queues", "99999"], &["--queues", "1 to 1024"]),
        (&["--queues", "99999999999"], &["--queues", "99999999999"]),
        (&["--cores", "0"], &["--cores", "1 to 1024"]),
        (&["--cores", "99999"], &["--cores", "1 to 1024"]),
        (&["--sample-rate", "0"], &["--sample-rate", "at least 1"]),
        (&["--pballoc", "32k"], &["--pballoc", "32k", "256k"]),
        (&["--rss-key", "0g"], &["--rss-key", "0g", "hex"]),
        (&["--rss-key", "001"], &["--rss-key", "001"]),
        (&["--rss-key", "6d5a"], &["key", "2"]),
        (&["--rss-key", "random:x"], &["--rss-key", "random:7"]),
        (&["--rss-hash", "crc"], &["--rss-hash", "crc", "toeplitz"]),
        (&["--udp", "5-tuple"], &["--udp", "4-tuple"]),
        (&["--indirection", "0,16"], &["16"]),
        (&["--local", "10.0.0.256"], &["10.0.0.256", "server"]),
        (&["--consumer", "80"], &["'80'", "PORT=CORE"]),
        (&["--core-delay", "3"], &["CORE=TIME"]),
        (&["--core-delay", "16=1us"], &["--core-delay", "no core 16"]),
        (&["--service", "1parsec"], &["--service"]),
        (&["--flow-cnt", "0"], &["--flow-cnt", "16777216"]),
        (&["--sock-flow-entries", "4294967295"], &["--sock-flow-entries", "16777216"]),
        (&["--no-such"], &["--no-such", "--help"]),
    ] {
        says(&run([&["analyze", YARD][..], args].concat()), parts);
        says(&run([&["explain", FLOW][..], args].concat()), parts);
    }
    for (args, parts) in [
        (&["analyze"][..], &["CAPTURE"][..]),
        (&["explain"], &["FLOW"]),
        (&["trace"], &["name a flow, such as", "--drops REASON"]),
        (&["run", YARD], &["captures/yard.pcap: this is not a text file", "TOML"]),
        (&["show", "cores", "--seconds", "5"], &["--seconds", "top --once --interval 5"]),
        (&["show", "queues", "--entries", "5"], &["--entries", "show tables"]),
        (
            &["analyze", YARD, "--local", "1.2.3.4"],
            &["--local: none of the", "packets comes from or goes to 1.2.3.4", "--local all"],
        ),
        (
            &["analyze", YARD, "--html", "/nonexistent/x.html"],
            &[
                "/nonexistent/x.html: cannot write the page: the folder does not exist; name a file in",
            ],
        ),
        (&["analyse", YARD], &["analyse", "analyze"]),
        (&["schema", "queues"], &["analyze, explain"]),
        (&["analyze", YARD, "--elephant", "1.5"], &["--elephant", "0 to 1"]),
        (&["analyze", YARD, "--elephant", "NaN"], &["--elephant", "0 to 1"]),
        (&["analyze", YARD, "--window", "0s"], &["--window"]),
        (&["analyze", YARD, "--top", "-1"], &["-1"]),
        (&["explain", FLOW, "--expect-queue", "16"], &["--expect-queue", "0 to 15"]),
        (&["explain", FLOW, "--choose-port", "16"], &["--choose-port", "0 to 15"]),
        (&["explain", FLOW, "--choose-port", "x"], &["--choose-port"]),
    ] {
        says(&run(args), parts);
    }
}

fn limits_and_fixes_are_those_that_hold() {
    let here = "--interface lo --rss-key microsoft --adapter x520 --policy rss";
    let here = [&["analyze", YARD][..], &here.split(' ').collect::<Vec<_>>()].concat();
    for (args, parts) in [
        (
            &here[..],
            &[
                "--interface lo: none of the",
                "packets comes from or goes to 127.0.0.1",
                "in the capture with --local, or write --local all",
            ][..],
        ),
        (&["lb", "set-weight", "web/a", "5000000000"], &["must be 0 to 1000000"]),
        (&["lb", "set-weight", "web/a", "-1"], &["must be 0 to 1000000"]),
        (
            &["lb", "import", "/no/such"],
            &["/no/such: No such file", "; name the output of 'ipvsadm -S -n', or keepalived.conf"],
        ),
        (
            &["bench", "history", "--add", "/no/such"],
            &[
                "/no/such: No such file",
                "; name the output of 'flowyard bench engine --peers --json'",
            ],
        ),
        (
            &["run", "scenarios/forward.toml", "--check", "--control-group", "no such group"],
            &["--control-group: there is no group 'no such group'; name an existing group"],
        ),
    ] {
        says(&run(args), parts);
    }
}

fn rule_files_name_line_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.txt");
    let name = path.to_str().unwrap();
    let policy = format!("fdir={name}");
    for (text, place, fix) in [
        (
            "flow-type tcp4 dst-port 80 action 1\nflow-type tcp4 src-ip 10.0.0.0/8 action 1\n",
            ":2:23: ",
            "m 0.255.255.255",
        ),
        ("# nothing\n\nflow-type tcp9 action 1", ":3:11: ", "tcp4"),
        ("flow-type udp4 src-port 70000 action 1", ":1:25: ", ""),
        ("drop everything\nflow-type tcp9", ":1:1: ", "1 more"),
    ] {
        std::fs::write(&path, text).unwrap();
        says(&run(["analyze", YARD, "--policy", &policy]), &[&format!("{name}{place}"), fix]);
        says(&run(["explain", FLOW, "--policy", &policy]), &[&format!("{name}{place}"), fix]);
    }
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    says(&run(["analyze", YARD, "--policy", &policy]), &[name]);
    let here = format!("fdir={}", folder.path().display());
    says(&run(["analyze", YARD, "--policy", &here]), &["directory"]);
}

/// Names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn no_partial_report_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("bad.pcap"), "no capture").unwrap();
    std::fs::create_dir(at("taken.html")).unwrap();
    let before = names(folder.path());
    says(&run(["analyze", &at("bad.pcap"), "--html", &at("r.html")]), &["bad.pcap"]);
    says(&run(["analyze", YARD, &at("bad.pcap"), "--html", &at("r.html")]), &["bad.pcap"]);
    says(&run(["analyze", YARD, "--html", &at("no/such/r.html")]), &["no/such/r.html"]);
    says(&run(["analyze", YARD, "--html", &at("taken.html")]), &["taken.html"]);
    says(&run(["analyze", YARD, "--html", &at("bad.pcap/r.html")]), &["bad.pcap/r.html"]);
    assert_eq!(names(folder.path()), before);
    assert_eq!(names(Path::new(&at("taken.html"))), [""; 0]);
    // A failed run keeps the existing report; a successful one replaces it.
    std::fs::write(at("r.html"), "the last one").unwrap();
    says(&run(["analyze", &at("bad.pcap"), "--html", &at("r.html")]), &["bad.pcap"]);
    assert_eq!(std::fs::read_to_string(at("r.html")).unwrap(), "the last one");
    crate::common::good(&run(["analyze", YARD, "--html", &at("r.html")]));
    let page = std::fs::read_to_string(at("r.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    assert_eq!(names(folder.path()), ["bad.pcap", "r.html", "taken.html"]);
}

/// A folder without write permission. Root may write there, so the test needs another user.
fn a_folder_without_permission_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let mode = |mode| {
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(0o555);
    let page = folder.path().join("r.html");
    says(&run(["analyze", YARD, "--html", page.to_str().unwrap()]), &["r.html", "ermission"]);
    assert!(names(folder.path()).is_empty());
    mode(0o755);
}

/// A symbolic link or special file is written through, not replaced.
fn links_and_special_files_are_not_replaced() {
    use std::os::unix::fs::FileTypeExt;
    let folder = tempfile::tempdir().unwrap();
    let (real, link) = (folder.path().join("real.html"), folder.path().join("link.html"));
    std::fs::write(&real, "").unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let page =
        |path: &Path| run(["analyze", YARD, "--policy", "rss", "--html", path.to_str().unwrap()]);
    crate::common::good(&page(&link));
    assert!(link.is_symlink());
    assert!(std::fs::read_to_string(&real).unwrap().starts_with("<!DOCTYPE html>"));
    // A socket as an example of a special file; it cannot be written.
    let socket = folder.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    says(&page(&socket), &["socket"]);
    assert!(std::fs::metadata(&socket).unwrap().file_type().is_socket());
    assert_eq!(names(folder.path()), ["link.html", "real.html", "socket"]);
}
