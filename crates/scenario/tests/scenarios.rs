//! Golden scenarios: every file in `scenarios/` is a test, and so are the example in
//! `docs/scenarios.md` and the message that the page shows. Each scenario is run, run with
//! ports that replace the frames that they transmit, and run with every change with which it must fail.
//!
//! `cargo test -p flowyard-scenario --test scenarios -- NAME` runs those whose name contains NAME.

use std::path::{Path, PathBuf};

use flowyard_frame::{Batch, FlowKey, Lanes, Nanos};
use flowyard_pool::Pool;
use flowyard_scenario::{Link, Scenario};
use flowyard_yard::port::{Rx, Tx};
use libtest_mimic::{Arguments, Trial};

/// The smallest number of files: with fewer, the folder was not found or is incomplete.
const LEAST: usize = 30;

/// Seeds with which a scenario is run with other ports.
const SEEDS: u64 = 4;

/// The command that repeats one test.
const AGAIN: &str = "cargo test -p flowyard-scenario --test scenarios --";

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = root.join("scenarios");
    let listed = std::fs::read_dir(&folder).expect("scenarios/ can be listed");
    let mut files: Vec<PathBuf> =
        listed.map(|entry| entry.expect("scenarios/ can be listed").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    assert!(files.len() >= LEAST, "only {} files in scenarios/", files.len());

    let mut trials = Vec::new();
    for file in files {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let name = format!("scenarios/{stem}.toml");
        let again = stem.clone();
        add(&mut trials, &stem, move || {
            Scenario::read(&name, &file).map_err(|error| told(&error.to_string(), &again))
        });
    }
    let page = std::fs::read_to_string(root.join("docs/scenarios.md"));
    let page = page.expect("docs/scenarios.md can be read");
    let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    let example = example.expect("docs/scenarios.md shows a ```toml example").to_owned();
    let read = |text: &str| {
        let read = Scenario::parse("scenarios/ssh.toml", text);
        read.map_err(|error| told(&error.to_string(), "docs"))
    };
    let text = example.clone();
    add(&mut trials, "docs", move || read(&text));
    trials.push(Trial::test("docs::message", move || {
        let changed = example.replacen("ssh = 10", "ssh = 11", 1);
        let said = told(&read(&changed)?.run().err().unwrap_or_default(), "ssh");
        let shown = page.contains(&format!("```text\n{said}\n```"));
        shown
            .then_some(())
            .ok_or_else(|| format!("the page shows another message than: {said}").into())
    }));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Adds tests: the scenario itself, with ports that replace frames, and that it can fail.
fn add(
    trials: &mut Vec<Trial>,
    name: &str,
    read: impl Fn() -> Result<Scenario, String> + Clone + Send + 'static,
) {
    let (stem, then) = (name.to_owned(), read.clone());
    trials.push(Trial::test(name, move || Ok(read()?.run().map_err(|what| told(&what, &stem))?)));
    let (stem, then_over) = (name.to_owned(), then.clone());
    trials.push(Trial::test(format!("{name}::with_other_frames"), move || {
        let scenario = then_over()?.with_seeds(SEEDS);
        Ok(scenario.run_over(&mut Replacing).map_err(|what| told(&what, &stem))?)
    }));
    let stem = name.to_owned();
    trials.push(Trial::test(format!("{name}::can_fail"), move || {
        Ok(then()?.mutants().map_err(|what| told(&what, &stem))?)
    }));
}

/// Ports that leave other frames in the place of those that they transmit, as ports that share the pool with an adapter
/// do.
struct Replacing;

impl Link for Replacing {
    fn lent_frames(&self) -> usize {
        0
    }

    fn rx(&mut self, _: u16, _: &Pool, far: Box<dyn Rx>) -> Result<Box<dyn Rx>, String> {
        Ok(far)
    }

    fn tx(&mut self, _: u16, pool: &Pool, far: Box<dyn Tx>) -> Result<Box<dyn Tx>, String> {
        Ok(Box::new(Replace { far, pool: pool.share() }))
    }
}

struct Replace {
    far: Box<dyn Tx>,
    pool: Pool,
}

impl Tx for Replace {
    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, now: Nanos) -> Lanes {
        let left = self.far.tx(from, lanes, pool, now);
        for lane in lanes.without(left) {
            let meta = pool.meta(&from.frames[lane]);
            let Ok(mut spare) = self.pool.take(from.frames[lane].len(), meta) else { continue };
            self.pool.bytes_mut(&mut spare).fill(0xee);
            let mut keyless = Batch::default();
            keyless.push(spare, FlowKey::ZERO).expect("the batch is empty");
            self.pool.store_keys(&mut keyless, Lanes::first(1));
            std::mem::swap(&mut keyless.frames[0], &mut from.frames[lane]);
            self.pool.put_batch(&mut keyless);
        }
        left
    }

    fn close(&mut self) -> Result<(), String> {
        self.far.close()
    }
}

fn told(what: &str, name: &str) -> String {
    format!("{what}\nagain: {AGAIN} {name}")
}
