//! `flowyard figures` and `flowyard calibrate`.

use crate::common::run;
use serde_json::Value;

flowyard_testkit::tests! {
    every_name_is_listed_and_has_a_file,
    a_figure_has_the_papers_numbers_and_ours,
    unknown_names_and_files_are_refused,
    what_calibrate_writes_figures_reads,
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
    assert_eq!(json["schema"], "flowyard.figures/2");
    let rows = json["figures"][0]["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == "overhead, %").unwrap();
    assert_eq!((&row["paper"], &row["kind"]), (&0.4.into(), &"prediction".into()));
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
    let args = ["calibrate", "--rounds", "1", "--time", "5ms", "--output", &profile];
    let output = run(args);
    assert!(output.status.success(), "{output:?}");
    let output = run(["figures", "dlb-mice", "--profile", &profile, "--html", &page]);
    assert!(output.status.success(), "{output:?}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("dlb-mice") && page.contains("yard_rest_ns"));
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
