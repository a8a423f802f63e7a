//! Commands with too few descriptors, too little room for files, or too little memory: each ends in time,
//! and either has done all of its work, or says what it could not do and ends with status 1; or 2, if a
//! file that it reads cannot be opened.
//!
//! ```text
//!  timeout ── sh: ulimit ── flowyard ──> status 0: the same output as without a limit
//!                                   └──> status 1 or 2: a line that names what failed
//! ```

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{frames_in_whole_capture, root, text};

flowyard_testkit::tests! {
    too_few_descriptors_are_reported,
    too_little_room_for_files_is_reported,
    too_little_memory_is_reported_or_ends_the_process,
    too_little_memory_for_the_pool_or_a_thread_is_reported,
    too_little_memory_for_a_table_is_reported_with_its_key,
}

/// What ends the process when there is no memory for a new thread, which no program can handle: the standard library maps
/// a stack for signals, and the C library registers the destructors of the thread's own variables.
const NO_THREAD: [&str; 2] =
    ["failed to allocate an alternative stack", "failed to register TLS destructor"];

/// What a command did.
#[derive(Debug, PartialEq)]
enum Did {
    /// Everything: what it printed, and the frames or bytes of the file that it wrote.
    All(Vec<u8>, usize),
    /// Status 1 or 2 with this line.
    Said(String),
    /// It could not be loaded, or the allocator found no memory.
    Ended(String),
}

/// A command that reads a capture.
struct Task {
    args: Vec<String>,
    /// The file that it writes, besides its standard output.
    file: Option<PathBuf>,
}

/// Frames in a capture, bytes of another file, 0 if there is none. A capture must be whole.
fn size(file: &Path) -> usize {
    let Ok(bytes) = std::fs::read(file) else { return 0 };
    if file.extension().is_none_or(|end| end != "pcap") {
        return bytes.len();
    }
    frames_in_whole_capture(file)
}

impl Task {
    fn new(args: &[&str], file: Option<PathBuf>) -> Self {
        Self { args: args.iter().map(|&arg| arg.to_owned()).collect(), file }
    }

    /// Runs it under `limit`, the arguments of the shell's `ulimit`.
    fn run(&self, limit: &str, out: &Path) -> Did {
        if let Some(file) = &self.file {
            let _none = std::fs::remove_file(file);
        }
        // Standard output is a file, so that it also has the limit of files.
        let script = format!("trap '' XFSZ; ulimit {limit}; exec \"$0\" \"$@\"");
        let ran = Command::new("timeout")
            .args(["60", "sh", "-c", &script, env!("CARGO_BIN_EXE_flowyard")])
            .args(&self.args)
            .current_dir(root())
            .env("RUST_BACKTRACE", "0")
            .stdout(std::fs::File::create(out).unwrap())
            .output()
            .unwrap();
        let err = text(&ran.stderr);
        let told = format!("{:?} under 'ulimit {limit}': {:?}: {err}", self.args, ran.status);
        let is_aborted = ran.status.signal() == Some(6) || ran.status.code() == Some(134);
        if is_aborted && NO_THREAD.iter().any(|what| err.contains(what)) {
            return Did::Ended(err);
        }
        assert!(!err.contains("panicked"), "{told}");
        assert_ne!(ran.status.code(), Some(124), "it hangs: {told}");
        match ran.status.code() {
            _ if is_aborted && err.contains("memory allocation of") => Did::Ended(err),
            Some(127) if err.contains("shared") || err.contains("load") => Did::Ended(err),
            Some(0) => Did::All(std::fs::read(out).unwrap(), self.file.as_deref().map_or(0, size)),
            Some(status @ (1 | 2)) => {
                let line = err.lines().last().unwrap_or_default();
                let line = line.strip_prefix("flowyard: ").unwrap_or_else(|| panic!("{told}"));
                let is_unread = line.contains("cannot be read") || line.contains("cannot open");
                assert!(status == 1 || is_unread, "{told}");
                if let Some(file) = &self.file {
                    size(file); // whole, if it is there
                }
                Did::Said(line.to_owned())
            }
            _ => panic!("{told}"),
        }
    }
}

/// A configuration that reads a capture and writes one, and commands that write other files.
fn tasks(folder: &Path) -> Vec<Task> {
    let (yard, east, page) =
        (folder.join("yard.toml"), folder.join("east.pcap"), folder.join("page.html"));
    let text = format!(
        r#"
        [yard]
        buffer_bytes = 2048
        [[port]]
        name = "west"
        kind = "mem"
        in = "captures/yard.pcap"
        [[port]]
        name = "east"
        kind = "pcap"
        out = {east:?}
        [[queue]]
        name = "q"
        order = "direct"
        consumers = [0]
        full = "hold"
        [work]
        kind = "forward"
        ports = {{ west = "east" }}
        "#
    );
    std::fs::write(&yard, text).unwrap();
    let (yard, socket) = (yard.to_str().unwrap(), folder.join("sock"));
    let run = ["run", yard, "--control", socket.to_str().unwrap(), "--metrics", "0"];
    let analyze = ["analyze", "captures/yard.pcap", "--html", page.to_str().unwrap()];
    vec![
        Task::new(&run, Some(east)),
        Task::new(&analyze, Some(page.clone())),
        Task::new(&["analyze", "captures/yard.pcap", "--json"], None),
        Task::new(&["explain", "tcp 10.0.0.1:40000 > 10.0.0.2:443", "--json"], None),
        Task::new(&["schema", "run"], None),
    ]
}

/// Temporary files, and the control socket.
fn temporary(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.filter(|file| {
        let name = file.file_name().unwrap().to_str().unwrap();
        name == "sock" || name.starts_with('.')
    })
}

/// Runs each task under each of `limits`; `is_named` says whether a line names what is missing.
fn each(limits: &[String], is_named: impl Fn(&str) -> bool) -> [usize; 3] {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let mut counts = [0; 3];
    for task in tasks(folder.path()) {
        let Did::All(printed, size) = task.run("-c 0", &out) else {
            panic!("{:?} works without a limit", task.args)
        };
        for limit in limits {
            match task.run(limit, &out) {
                Did::All(now, frames) => {
                    counts[0] += 1;
                    assert_eq!(frames, size, "{:?} under 'ulimit {limit}'", task.args);
                    // The tables of a run have times.
                    let is_same = task.args[0] == "run" || now == printed;
                    assert!(is_same, "{:?} under 'ulimit {limit}': {}", task.args, text(&now));
                }
                Did::Said(line) => {
                    counts[1] += 1;
                    assert!(is_named(&line), "{:?} under 'ulimit {limit}': {line}", task.args);
                }
                Did::Ended(_) => {
                    counts[2] += 1;
                    // An aborted process removes nothing.
                    for left in temporary(folder.path()) {
                        let removed = std::fs::remove_file(&left);
                        removed.or_else(|_| std::fs::remove_dir_all(&left)).unwrap();
                    }
                }
            }
            let left: Vec<_> = temporary(folder.path()).collect();
            assert!(left.is_empty(), "{:?} under 'ulimit {limit}' leaves {left:?}", task.args);
        }
    }
    flowyard_testkit::note!("worked, said why not, ended: {counts:?}");
    counts
}

fn too_few_descriptors_are_reported() {
    let limits: Vec<_> = (3..=20).map(|count| format!("-n {count}")).collect();
    let is_named = |line: &str| line.find("Too many open files").is_some_and(|at| at > 0);
    let [worked, said, ended] = each(&limits, is_named);
    // The dynamic loader needs a descriptor.
    assert!(worked > 40 && said > 5 && ended <= 10, "{worked} {said} {ended}");
}

fn too_little_room_for_files_is_reported() {
    // In blocks of 512 bytes.
    let limits: Vec<_> = [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987, 1597]
        .map(|blocks| format!("-f {blocks}"))
        .into();
    let [worked, said, ended] =
        each(&limits, |line| line.to_lowercase().contains("file too large"));
    assert!(worked > 10 && said > 20 && ended == 0, "{worked} {said} {ended}");
}

/// The least memory with which the program is loaded, in KiB, within a tenth. With less the kernel ends it.
fn least() -> u64 {
    let mut steps = std::iter::successors(Some(4096_u64), |kib| Some(kib + kib / 10));
    let is_loaded = |kib: &u64| {
        let script = format!("ulimit -c 0; ulimit -v {kib}; exec \"$0\" --version");
        let ran = Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_flowyard")]).output();
        ran.unwrap().status.success()
    };
    steps.find(is_loaded).unwrap()
}

/// Whether a line says that there is too little memory.
fn is_memory(line: &str) -> bool {
    line.contains("memory") || line.contains("Resource temporarily unavailable")
}

fn too_little_memory_is_reported_or_ends_the_process() {
    // Each limit is a third more than the one before, up to a gigabyte.
    let steps = std::iter::successors(Some(least()), |kib| Some(kib + kib / 3));
    let limits: Vec<_> =
        steps.take_while(|kib| *kib < 1 << 20).map(|kib| format!("-v {kib}")).collect();
    let [worked, said, ended] = each(&limits, is_memory);
    assert!(worked > 25 && said + ended > 1, "{worked} {said} {ended}");
}

/// The memory of the pool, and that of threads, is asked for when the engine is built and started.
fn too_little_memory_for_the_pool_or_a_thread_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (yard, socket) = (folder.path().join("yard.toml"), folder.path().join("sock"));
    let text = r#"
        [yard]
        cores = 16
        frames = 65536
        buffer_bytes = 2048
        [[port]]
        name = "west"
        kind = "mem"
        in = "captures/yard.pcap"
        [[port]]
        name = "east"
        kind = "pcap"
        [[queue]]
        name = "q"
        order = "ordered"
        consumers = [0, 1]
        [work]
        kind = "forward"
        ports = { west = "east" }
        "#;
    std::fs::write(&yard, text).unwrap();
    let (yard, socket) = (yard.to_str().unwrap(), socket.to_str().unwrap());
    let task = Task::new(&["run", yard, "--control", socket, "--metrics", "0"], None);
    let out = folder.path().join("out");
    let [mut pool, mut threads] = [0; 2];
    for kib in (least()..).step_by(8192) {
        match task.run(&format!("-v {kib}"), &out) {
            Did::All(..) => break,
            Did::Said(line) if line.contains("packet pool") => pool += 1,
            Did::Said(line) if line.contains("a thread for a core") => threads += 1,
            Did::Said(line) => assert!(is_memory(&line), "{line}"),
            Did::Ended(_) => {}
        }
    }
    flowyard_testkit::note!(
        "too little memory for the pool {pool} times, for a thread {threads} times"
    );
    assert!(pool > 5 && threads > 2, "{pool} {threads}");
}

/// The sizes are within the limits of the keys, and need more than the 2 GiB that the process may have.
fn too_little_memory_for_a_table_is_reported_with_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let yard = folder.path().join("yard.toml");
    let text = |work: &str| {
        format!(
            "[[port]]\nname = \"west\"\nkind = \"mem\"\nin = \"captures/yard.pcap\"\n[[queue]]\nname = \"q\"\n\
             order = \"direct\"\nconsumers = [0]\n{work}\n"
        )
    };
    let learn = "[work]\nkind = \"forward\"\n[learn]\nkind = \"atr\"\nentries = 16777216";
    let balance = "[work]\nkind = \"balance\"\n[balance]\nconnections = 1073741824\n[[service]]\nname = \"web\"\n\
                   vip = \"192.0.2.1\"\nproto = \"tcp\"\nport = 80\nmode = \"dsr\"\n[[service.backend]]\nname = \"a\"\n\
                   addr = \"10.0.1.1\"\nexit = { port = \"west\", next_hop = \"02:00:00:00:00:02\" }";
    for (work, place, key) in
        [(learn, "13:1", "'entries' on 1 core, 2"), (balance, "12:15", "'connections' on 1 core, ")]
    {
        std::fs::write(&yard, text(work)).unwrap();
        let yard = yard.to_str().unwrap();
        for more in [&["--check"][..], &["--control", "none"]] {
            let task = Task::new(&[&["run", yard], more].concat(), None);
            let Did::Said(line) = task.run("-v 2097152", &folder.path().join("out")) else {
                panic!("{more:?}: {work}");
            };
            let said = format!("{yard}:{place}: the memory for {key}");
            assert!(line.contains(&said) && line.contains("; reduce '"), "{line}");
        }
    }
}
