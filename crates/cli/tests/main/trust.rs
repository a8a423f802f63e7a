//! Other users, other files and other connections than those that an instance expects: none of them delays a start,
//! a signal or a scrape, and none gets more rights than it needs.
#![allow(clippy::disallowed_methods, reason = "tests of real processes wait by the clock")]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use flowyard_testkit::harness::Need;
use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::common::{flowyard, refused, root, text};
use crate::yard::{Yard, config, wait};

flowyard_testkit::tests! {
    a_lock_on_the_folder_of_the_socket_does_not_delay_a_start,
    a_lock_of_another_start_is_named,
    a_signal_ends_a_start_at_once,
    a_signal_ends_the_start_of_the_first_process_of_a_container needs [
        Need::Root,
        Need::Namespaces,
        Need::Program("unshare"),
    ],
    a_configuration_is_a_regular_file_of_a_limited_size,
    a_reload_waits_for_nothing_and_delays_no_signal,
    idle_connections_do_not_delay_a_scrape,
    the_log_names_what_root_keeps needs [Need::Root],
    a_secret_that_every_user_can_read_is_reported,
    commands_of_health_checks_have_a_user_of_their_own needs [Need::Root],
    commands_as_root_or_as_nobody_known_are_refused,
    installed_configurations_are_not_for_everyone,
}

/// The longest time that a signal may take: less than what waits would add, with time to spare for busy machines.
const SOON: Duration = Duration::from_secs(5);

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Sends the signal, and returns the status of the process, which ends soon.
#[track_caller]
fn ends_soon(child: &mut Child, with: Signal) -> ExitStatus {
    let began = Instant::now();
    signal(child, with);
    let status = wait("the end", || child.try_wait().unwrap());
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    status
}

fn fifo(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Every user who may read a folder may hold a lock on it.
fn a_lock_on_the_folder_of_the_socket_does_not_delay_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let held = fs::File::open(folder.path()).unwrap();
    held.lock().unwrap();
    let file = folder.path().join("yard.toml");
    fs::write(&file, config()).unwrap();
    let socket = folder.path().join("yard.sock");
    let mut run = flowyard();
    run.arg("run").arg(&file).arg("--control").arg(&socket);
    let mut child = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let up = || std::os::unix::net::UnixStream::connect(&socket).ok();
    let began = Instant::now();
    while up().is_none() && began.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let is_up = up().is_some();
    let (signalled, mut status) = (Instant::now(), None);
    signal(&child, Signal::TERM);
    while status.is_none() && signalled.elapsed() < SOON {
        std::thread::sleep(Duration::from_millis(20));
        status = child.try_wait().unwrap();
    }
    let _gone = child.kill();
    let _reaped = child.wait();
    assert!(is_up, "it does not start");
    // The socket is there before the start is complete, and a signal ends a start with status 143.
    let code = status.and_then(|status| status.code());
    assert!(matches!(code, Some(0 | 143)), "it does not end: {status:?}");
}

fn a_lock_of_another_start_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("yard.toml");
    fs::write(&file, config()).unwrap();
    let lock = folder.path().join(".sock.lock");
    let held = fs::File::create(&lock).unwrap();
    held.lock().unwrap();
    let start = || {
        let mut run = flowyard();
        run.arg("run").arg(&file).arg("--control").arg(folder.path().join("sock"));
        refused(&run.args(["--log", "error"]).output().unwrap())
    };
    let said = start();
    assert!(said.contains(&format!("holds the lock {}", lock.display())), "{said}");
    fs::remove_file(&lock).unwrap();
    fs::create_dir(&lock).unwrap();
    let said = start();
    assert!(said.contains("is not a regular file of this user"), "{said}");
}

/// A configuration whose capture is read before the engine runs, from a FIFO that nobody writes to.
fn waits_for_a_fifo(folder: &Path) -> std::path::PathBuf {
    let (pipe, file) = (folder.join("pipe"), folder.join("yard.toml"));
    fifo(&pipe);
    let text = config().replace("captures/yard.pcap", pipe.to_str().unwrap());
    fs::write(&file, text).unwrap();
    file
}

/// Waits until the process handles SIGTERM.
fn catches(pid: u32) {
    wait("the handler of SIGTERM", || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?.trim();
        (u64::from_str_radix(caught, 16).unwrap() & (1 << 14) != 0).then_some(())
    });
}

fn a_signal_ends_a_start_at_once() {
    for (with, status) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let folder = tempfile::tempdir().unwrap();
        let file = waits_for_a_fifo(folder.path());
        let mut run = flowyard();
        run.arg("run").arg(&file).args(["--control", "none"]).stderr(Stdio::null());
        let mut child = run.stdout(Stdio::null()).spawn().unwrap();
        catches(child.id());
        assert_eq!(ends_soon(&mut child, with).code(), Some(status));
    }
}

/// A process with the number 1 ignores signals for which it has no handler.
fn a_signal_ends_the_start_of_the_first_process_of_a_container() {
    let folder = tempfile::tempdir().unwrap();
    let file = waits_for_a_fifo(folder.path());
    let mut unshare = std::process::Command::new("unshare");
    unshare.args(["--pid", "--fork", "--kill-child"]).current_dir(root());
    unshare.arg(env!("CARGO_BIN_EXE_flowyard")).arg("run").arg(&file);
    unshare.args(["--control", "none"]).stderr(Stdio::null()).stdout(Stdio::null());
    let mut outer = unshare.spawn().unwrap();
    let pid = wait("the process in the container", || {
        let path = format!("/proc/{0}/task/{0}/children", outer.id());
        fs::read_to_string(path).ok()?.trim().parse::<u32>().ok()
    });
    wait("the program", || {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        (name.trim() == "flowyard").then_some(())
    });
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::TERM).unwrap();
    let status = wait("the end", || {
        let late = (began.elapsed() > SOON * 3).then(|| outer.kill());
        outer.try_wait().unwrap().filter(|_| late.is_none())
    });
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert_eq!(status.code(), Some(143));
}

fn a_configuration_is_a_regular_file_of_a_limited_size() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    fifo(&pipe);
    let large = folder.path().join("large.toml");
    fs::File::create(&large).unwrap().set_len((16 << 20) + 1).unwrap();
    for (path, said) in [
        (pipe.as_path(), "this is a FIFO or pipe and not a regular file"),
        (Path::new("/dev/zero"), "this is a device and not a regular file"),
        (folder.path(), "this is a directory and not a regular file"),
        (&large, "the file has more than 16777216 bytes (16 MiB)"),
    ] {
        for more in [&[][..], &["--check"], &["--simulate"]] {
            let began = Instant::now();
            let line = refused(&flowyard().arg("run").arg(path).args(more).output().unwrap());
            assert!(line.starts_with(&format!("{}: {said}", path.display())), "{line}");
            assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        }
    }
}

fn a_reload_waits_for_nothing_and_delays_no_signal() {
    let mut yard = Yard::start(&config(), &[]);
    yard.wait_for_log("running");
    let mut refusals = 0;
    let mut refuses = |yard: &Yard, said: &str| {
        yard.signal(Signal::HUP);
        refusals += 1;
        wait(said, || (yard.log().matches("nothing changed").count() == refusals).then_some(()));
        assert!(yard.log().lines().last().unwrap().contains(said), "{}", yard.log());
    };
    fs::remove_file(yard.config()).unwrap();
    fifo(&yard.config());
    refuses(&yard, "this is a FIFO or pipe and not a regular file");
    for device in ["/dev/zero", "/dev/full"] {
        fs::remove_file(yard.config()).unwrap();
        std::os::unix::fs::symlink(device, yard.config()).unwrap();
        refuses(&yard, "this is a device and not a regular file");
    }
    fs::remove_file(yard.config()).unwrap();
    // A file within the limit that takes long to parse.
    let flow = |n: u32| {
        let [a, b] = [n >> 16, n & 0xffff];
        format!("{{ flow = \"udp 10.0.0.{a}:{b} > 10.0.0.2:53\", queue = \"a\" }},\n")
    };
    let many: String = (0..250_000).map(flow).collect();
    assert!(many.len() < 16 << 20);
    fs::write(yard.config(), config().replace("exact = [", &format!("exact = [{many}"))).unwrap();
    yard.signal(Signal::HUP);
    std::thread::sleep(Duration::from_millis(200));
    let status = ends_soon(&mut yard.child, Signal::TERM);
    assert!(status.success(), "{}", yard.log());
    assert!(yard.log().contains("drained"), "{}", yard.log());
}

fn idle_connections_do_not_delay_a_scrape() {
    let yard = Yard::start(&config(), &["--metrics", "0"]);
    let log = yard.wait_for_log("metrics: http://127.0.0.1:");
    let url = log.split("http://").nth(1).unwrap();
    let address = url.split('/').next().unwrap();
    let idle: Vec<_> = (0..300).map(|_| TcpStream::connect(address).unwrap()).collect();
    let began = Instant::now();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("flowyard_uptime_seconds"), "{page}");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    drop(idle);
}

fn the_log_names_what_root_keeps() {
    let said = "this instance keeps the user root (capabilities: none)";
    let yard = Yard::start(&config(), &[]);
    let log = yard.wait_for_log("running");
    assert!(log.contains(said) && log.contains("--user NAME changes to another user"), "{log}");
    let other = Yard::start(&config(), &["--user", "nobody"]);
    let log = other.wait_for_log("running");
    assert!(!log.contains("keeps the user root"), "{log}");
}

fn a_secret_that_every_user_can_read_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("yard.toml");
    let once = config().replace("repeat = 1000000", "repeat = 1").replace("20000", "fast");
    for (seed, mode, told) in
        [("seed = 77", 0o644, true), ("seed = 77", 0o640, false), ("", 0o644, false)]
    {
        fs::write(&file, once.replace("cores = 2", &format!("cores = 2\n{seed}"))).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let ran = flowyard().arg("run").arg(&file).args(["--control", "none"]).output().unwrap();
        let log = text(&ran.stderr);
        assert!(ran.status.success(), "{log}");
        let said = format!("{}: every user can read this file, and the seed in it", file.display());
        assert_eq!(log.contains(&said), told, "{seed} {mode:o}: {log}");
    }
}

/// A balancer whose only check runs this command.
fn balancer(command: &str, more: &str) -> String {
    let (head, _) =
        config().split_once("[steer]").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    format!(
        "{head}\n[work]\nkind = \"balance\"\n[balance]\nentries = 251\n{more}\n\
         [[service]]\nname = \"dns\"\nvip = \"192.0.2.10\"\nproto = \"udp\"\nport = 53\nmode = \"dsr\"\n\
         {command}\n[[service.backend]]\nname = \"a\"\naddr = \"127.0.0.1\"\n\
         exit = {{ port = \"east\", next_hop = \"02:00:00:00:01:01\" }}\n"
    )
}

/// A check that writes who it is to this file.
fn tells(file: &Path) -> String {
    let path = file.display();
    format!(
        "[service.check]\nkind = \"command\"\ninterval_ms = 50\ntimeout_ms = 10000\n\
         command = [\"sh\", \"-c\", \"{{ id -u; id -G; cat /proc/self/status; ls -l /proc/self/fd; env; }} > {path}.new && mv {path}.new {path}\"]"
    )
}

fn commands_of_health_checks_have_a_user_of_their_own() {
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let of = |name: &str, field| {
        let line = passwd.lines().find(|line| line.starts_with(&format!("{name}:"))).unwrap();
        line.split(':').nth(field).unwrap().to_owned()
    };
    for (name, more, args) in [
        ("nobody", "", &[][..]),
        ("nobody", "", &["--user", "daemon"]),
        ("daemon", "command_user = \"daemon\"", &[]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let (file, conf) = (folder.path().join("told"), folder.path().join("yard.toml"));
        fs::write(&conf, balancer(&tells(&file), more)).unwrap();
        // A descriptor and a variable that the instance inherits.
        let script = "exec 9</etc/passwd; SECRET=word NOTIFY_SOCKET=@none exec \"$0\" \"$@\"";
        let mut run = std::process::Command::new("sh");
        run.args(["-c", script, env!("CARGO_BIN_EXE_flowyard"), "run"]).arg(&conf);
        run.args(["--control", "none"]).args(args).current_dir(root());
        let err = fs::File::create(folder.path().join("err")).unwrap();
        let mut child = run.stdout(Stdio::null()).stderr(err).spawn().unwrap();
        let told = wait("a check", || fs::read_to_string(&file).ok());
        let status = ends_soon(&mut child, Signal::TERM);
        let log = fs::read_to_string(folder.path().join("err")).unwrap();
        assert!(status.success() && !log.contains("has ended"), "{log}");
        let mut lines = told.lines();
        let (uid, groups) = (lines.next().unwrap(), lines.next().unwrap());
        assert_eq!((uid, groups), (of(name, 2).as_str(), of(name, 3).as_str()), "{told}");
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert!(told.contains(&format!("{set}:\t{}\n", "0".repeat(16))), "{told}");
        }
        assert!(told.contains("NoNewPrivs:\t1"), "{told}");
        assert!(!told.contains("/etc/passwd") && !told.contains("socket:"), "{told}");
        assert!(!told.contains("SECRET=") && !told.contains("NOTIFY_SOCKET="), "{told}");
        assert!(told.contains("FLOWYARD_ADDRESS=127.0.0.1") && told.contains("PATH="), "{told}");
    }
    // Nothing is left of the process that ran them.
    wait("the end of all commands", || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let mut lines = processes.filter_map(|one| fs::read(one.path().join("cmdline")).ok());
        let parent = |line: &[u8]| line.windows(15).any(|part| part == b"health-commands");
        (!lines.any(|line| parent(&line))).then_some(())
    });
}

fn commands_as_root_or_as_nobody_known_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("yard.toml");
    let check = "[service.check]\nkind = \"command\"\ncommand = [\"true\"]";
    for (user, said) in [
        ("root", "commands of health checks do not run as root; set 'command_user'"),
        ("x y z", "there is no user 'x y z'; set 'command_user' in [balance]"),
    ] {
        fs::write(&file, balancer(check, &format!("command_user = \"{user}\""))).unwrap();
        for more in [&["--check"][..], &[]] {
            let mut run = flowyard();
            run.arg("run").arg(&file).args(["--control", "none", "--log", "error"]);
            let line = refused(&run.args(more).output().unwrap());
            assert!(line.contains(said) && line.contains("yard.toml:"), "{line}");
        }
    }
    // A check that is added later would run as root.
    let yard = Yard::start(&balancer("", ""), &[]);
    yard.wait_for_log("running");
    fs::write(yard.config(), balancer(check, "")).unwrap();
    yard.signal(Signal::HUP);
    match geteuid().is_root() {
        true => drop(yard.wait_for_log("restart to add a check of kind \"command\"")),
        false => drop(yard.wait_for_log("tables reloaded")),
    }
}

fn installed_configurations_are_not_for_everyone() {
    let read = |name: &str| fs::read_to_string(root().join(name)).unwrap();
    let files = read("dist/flowyard.tmpfiles");
    assert!(files.contains("d /etc/flowyard 0750 root flowyard"), "{files}");
    assert!(files.contains("z /etc/flowyard/* 0640 root flowyard"), "{files}");
    assert!(read("dist/flowyard@.service").contains("\nUMask=0077\n"));
    let docs = read("docs/operate.md");
    assert!(docs.contains("-m 640 -g flowyard edge.toml"), "{docs}");
    let lines = || docs.lines().filter(|line| line.contains("install "));
    assert!(lines().all(|line| !line.contains(".toml") || line.contains("-m 640")), "{docs}");
}
