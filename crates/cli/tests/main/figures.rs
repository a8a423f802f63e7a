//! `flowyard figures` and `flowyard calibrate`.

use crate::common::run;
use serde_json::Value;

flowyard_testkit::tests! {
    every_name_is_listed_and_has_a_file,
    a_figure_has_the_papers_numbers_and_ours,
    unknown_names_and_files_are_refused,
    what_calibrate_writes_figures_reads,
    intervals_of_costs_become_ranges_of_rows,
    a_busy_machine_is_refused_with_the_reason_and_force_records_it,
    a_given_profile_changes_its_figures_and_one_that_is_not_used_is_reported,
    the_sensitivity_has_every_input_and_the_largest_effect_first,
    what_cannot_be_measured_is_skipped_with_the_reason,
}

fn every_name_is_listed_and_has_a_file() {
    let output = run(["figures", "--list"]);
    assert!(output.status.success());
    let names = String::from_utf8(output.stdout).unwrap();
    let mut names: Vec<&str> = names.lines().collect();
    let files = std::fs::read_dir(crate::common::root().join("figures")).unwrap();
    let mut files: Vec<String> = files
        .map(|file| file.unwrap().file_name().to_string_lossy().replace(".toml", ""))
        .collect();
    names.sort_unstable();
    files.sort_unstable();
    assert_eq!(names, files);
}

fn a_figure_has_the_papers_numbers_and_ours() {
    let output = run(["figures", "kth-modification", "--json"]);
    assert!(output.status.success());
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["schema"], "flowyard.figures/3");
    let rows = json["figures"][0]["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == "overhead, %").unwrap();
    assert_eq!((&row["paper"], &row["reference"]), (&0.4.into(), &"copied".into()));
    // One assumed cost over two fitted ones: the row agrees, and does not count.
    assert_eq!((&row["kind"], &row["counts"]), (&"arithmetic".into(), &false.into()));
    assert_eq!(row["fitted_inputs"], serde_json::json!(["kth.map_ns", "kth.hash_ns"]));
    assert_eq!(json["score"], serde_json::json!({ "counted": 0, "agree": 0 }));
    let inputs = json["figures"][0]["inputs"].as_array().unwrap();
    let fitted = inputs.iter().find(|input| input["name"] == "kth.map_ns").unwrap();
    assert!(fitted["source"].as_str().unwrap().contains("816 kpps"), "{fitted}");
    crate::schema::expect("figures", &json);
    assert!((row["ours"].as_f64().unwrap() - 0.4).abs() < 0.06);
}

fn unknown_names_and_files_are_refused() {
    for args in [["figures", "kth"], ["figures", "--profile=no-such-file.toml"]] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2));
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(told.lines().count(), 1, "{told}");
    }
}

fn what_calibrate_writes_figures_reads() {
    let folder = tempfile::tempdir().unwrap();
    let (profile, page) = (folder.path().join("here.toml"), folder.path().join("page.html"));
    let [profile, page] = [profile, page].map(|path| path.to_string_lossy().into_owned());
    let args = ["calibrate", "--force", "--rounds", "2", "--time", "5ms", "--json", "--output"];
    let output = run([&args[..], &[&profile]].concat());
    assert!(output.status.success(), "{output:?}");
    let measured: Value = serde_json::from_slice(&output.stdout).unwrap();
    crate::schema::expect("calibrate", &measured);
    let output = run(["figures", "dlb-mice", "--profile", &profile, "--html", &page]);
    assert!(output.status.success(), "{output:?}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("dlb-mice") && page.contains("yard_rest_ns"));
    let clock = &measured["profile"]["constants"]["clock_ns"];
    let [low, value, high] =
        [&clock["interval"]["low"], &clock["value"], &clock["interval"]["high"]].map(Value::as_f64);
    assert!(low <= value && value <= high && low > Some(0.0), "{clock}");
    assert_eq!(clock["interval"]["confidence"], 0.5, "of two rounds");
}

/// Rows that depend on a measured cost have a range, and others have none.
fn intervals_of_costs_become_ranges_of_rows() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("here.toml");
    let mut text = "name = \"here\"\ntitle = \"x\"\ndisturbed = [\"a test ran\"]\n[machine]\nsockets = 1\ncores = 2\n\
                    threads = 1\n"
        .to_owned();
    for (name, value, low, high) in [
        ("enqueue", 100.0, 80.0, 125.0),
        ("dequeue", 10.0, 10.0, 10.0),
        ("complete", 10.0, 10.0, 10.0),
    ] {
        text += &format!(
            "[constants.yard_far_{name}_ns]\nvalue = {value:?}\nhow = \"measured\"\nsource = \"y\"\n\
             interval = {{ low = {low:?}, high = {high:?}, confidence = 0.96, rounds = 9 }}\n"
        );
    }
    std::fs::write(&file, text).unwrap();
    let output = run(["figures", "dlb-workers", "--json", "--profile", file.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("not quiet: a test ran"), "{told}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    crate::schema::expect("figures", &json);
    let rows = json["figures"][0]["rows"].as_array().unwrap();
    let of = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap();
    assert!(of("64 B, hardware queue, 8+2")["between"].is_null());
    let ours = of("64 B, flowyard's ordered queue, here, 10+2");
    let [low, value, high] = [&ours["between"]["low"], &ours["ours"], &ours["between"]["high"]]
        .map(|value| value.as_f64().unwrap());
    // The producer is the limit: it receives and enqueues in 125, 145 or 170 ns without the rx_ns of the profile.
    assert!(low < value && value < high, "{ours}");
    let ns = |mpps: f64| 1e3 / mpps;
    assert!((ns(low) - ns(value) - 25.0).abs() < 2.0 && (ns(value) - ns(high) - 20.0).abs() < 2.0);
}

/// Programs that use all processors: the machine is not quiet.
fn a_busy_machine_is_refused_with_the_reason_and_force_records_it() {
    struct Busy(Vec<std::process::Child>);
    impl Drop for Busy {
        fn drop(&mut self) {
            for child in &mut self.0 {
                let _gone = (child.kill(), child.wait());
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("here.toml");
    let path = file.to_str().unwrap();
    let one = || std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let busy = Busy((0..cpus).map(|_| one().unwrap()).collect());
    let args = ["calibrate", "--rounds", "1", "--time", "5ms", "--output", path];
    let output = run(args);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("not quiet: before the measurement"), "{told}");
    assert!(told.contains("other programs used") && told.contains("--force"), "{told}");
    assert!(!file.exists());
    let output = run([&args[..], &["--force"]].concat());
    assert!(output.status.success(), "{output:?}");
    drop(busy);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("disturbed = [") && text.contains("before, other programs used"),
        "{text}"
    );
}

fn a_given_profile_changes_its_figures_and_one_that_is_not_used_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kth.toml");
    let built_in = include_str!("../../../hostsim/profiles/kth.toml");
    // A frame that takes twice as long everywhere is forwarded half as often.
    let doubled = built_in.replace("1225.5", "2451").replace("507.6", "1015.2");
    assert_ne!(doubled, built_in);
    std::fs::write(&file, doubled).unwrap();
    let given = format!("--profile={}", file.to_string_lossy());
    let rate = |args: &[&str]| {
        let output = run([&["figures", "kth-modification", "--json"], args].concat());
        assert!(output.status.success(), "{output:?}");
        assert_eq!(output.stderr, b"");
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        let rows = json["figures"][0]["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == "hash, original, thousand frames/s");
        row.unwrap()["ours"].as_f64().unwrap()
    };
    let ratio = rate(&[&given]) / rate(&[]);
    assert!((ratio - 0.5).abs() < 0.001, "{ratio}");
    let output = run(["figures", "lanner-gigabit", &given]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(told, "flowyard: none of these figures uses profile 'kth'\n");
    let output = run(["figures", "kth-modification", &given, &given]);
    assert_eq!(output.status.code(), Some(2));
}

fn the_sensitivity_has_every_input_and_the_largest_effect_first() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let args = ["figures", "kth-modification", "nic-table-1", "--sensitivity", "--json", "--html"];
    let output = run([&args[..], &[page.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(told, "flowyard: nic-table-1: no profile to vary, so no sensitivity\n");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    crate::schema::expect("figures", &json);
    let sensitivity = json["sensitivity"].as_array().unwrap();
    assert_eq!(sensitivity.len(), 1);
    assert_eq!(sensitivity[0]["result"], "overhead, %");
    let effects = sensitivity[0]["effects"].as_array().unwrap();
    let names: Vec<&str> = effects.iter().map(|e| e["input"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["kth.map_miss_ns", "kth.map_ns", "kth.hash_ns"]);
    // The overhead is the assumed cost over the cost of a frame, so it doubles with the first.
    let [half, double] = [0, 1].map(|n| effects[0]["result"][n].as_f64().unwrap());
    assert!((half + 0.5).abs() < 0.03 && (double - 1.0).abs() < 0.03, "{half} {double}");
    assert!(effects[1]["result"][1].as_f64().unwrap() < -0.3, "a slower frame hides it");
    assert!(std::fs::read_to_string(page).unwrap().contains("Change of 'overhead, %'"));
}

/// Without root, memcached or the needed costs, the figure has no rows and a note with the reason.
fn what_cannot_be_measured_is_skipped_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("here.toml");
    let text = "name = \"here\"\ntitle = \"x\"\n[machine]\nsockets = 1\ncores = 2\nthreads = 1\n[constants]\n";
    std::fs::write(&profile, text).unwrap();
    let profile = profile.to_string_lossy().into_owned();
    let output = run(["figures", "host-rps-rfs", "--json", "--profile", &profile]);
    assert!(output.status.success(), "{output:?}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["figures"][0]["rows"], Value::Array(Vec::new()));
    let notes = json["figures"][0]["notes"].as_array().unwrap();
    assert!(notes.iter().any(|note| note.as_str().unwrap().starts_with("Skipped: ")), "{notes:?}");
}
