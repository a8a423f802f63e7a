//! Test programs that report a test which cannot run on this machine as ignored, with the reason.
//!
//! libtest decides when a program is compiled which tests are ignored, so a test that finds its data
//! missing could only return, and would count as passed. A program with `harness = false` lists its
//! tests with [`tests!`](crate::tests!) instead, each with its requirements, and [`run`] checks these
//! when it runs the test:
//!
//! ```text
//! test captures::every_capture_is_read ... ignored (needs ../shared/captures)
//! ```
//!
//! ```no_run
//! use flowyard_testkit::harness::{self, Need};
//!
//! flowyard_testkit::tests! {
//!     sums_are_right,
//!     every_capture_is_read needs [Need::Shared("captures"), Need::Program("tshark")],
//! }
//!
//! fn sums_are_right() {
//!     assert_eq!(1 + 1, 2);
//! }
//!
//! fn every_capture_is_read() {
//!     let folder = harness::shared("captures");
//!     assert!(folder.is_dir());
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     harness::run(tests())
//! }
//! ```
//!
//! A module lists its own tests, and the modules in it as `mod name`. A function that no list names is
//! dead code, which the compiler reports. `#[test]` has no effect in such a program; `cargo xtask tidy`
//! rejects it. Arguments are those of libtest. Output is not captured: [`note!`](crate::note!) prints only
//! with `--nocapture`.
//!
//! Thread-safety: requirements are checked on the threads that run the tests.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::panic::{catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use libtest_mimic::{Arguments, Completion, Trial};

/// Something that a test requires of the machine.
#[derive(Clone, Copy, Debug)]
pub enum Need {
    /// A file or folder of the test data beside the repository, named relatively to `../shared`.
    /// The variable `FLOWYARD_SHARED` names another folder.
    Shared(&'static str),
    /// A program in one of the folders of `PATH`.
    Program(&'static str),
    /// The user root.
    Root,
    /// A user other than root, for tests of permissions.
    NotRoot,
    /// Network namespaces: root, and a kernel that permits them.
    Namespaces,
    /// Permission to make network namespaces and to take minutes: `FLOWYARD_LIVE=1`.
    Live,
    /// A Python that can import os-ken: [`os_ken_python`].
    OsKen,
    /// A check of the test program's own: an error says what is required.
    Check(fn() -> Result<(), String>),
}

impl Need {
    /// `Ok` if this machine has it, otherwise what it lacks.
    fn check(self) -> Result<(), String> {
        let or = |is_here: bool, what: String| if is_here { Ok(()) } else { Err(what) };
        match self {
            Self::Shared(path) => or(shared(path).exists(), format!("../shared/{path}")),
            Self::Program(name) => or(in_path(name), format!("the program {name}")),
            Self::Root => or(is_root(), "root".into()),
            Self::NotRoot => or(!is_root(), "a user other than root".into()),
            Self::Namespaces => or(has_namespaces(), "root and network namespaces".into()),
            Self::Live => or(is_live(), "FLOWYARD_LIVE=1, which permits live tests".into()),
            Self::OsKen => or(has_os_ken(), "os-ken, see FLOWYARD_OS_KEN_PYTHON".into()),
            Self::Check(check) => check(),
        }
    }
}

/// A file or folder of the test data beside the repository.
pub fn shared(path: &str) -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    std::env::var_os("FLOWYARD_SHARED").map_or_else(beside, PathBuf::from).join(path)
}

/// The Python that has os-ken, if any has: `FLOWYARD_OS_KEN_PYTHON`, or else `python3`.
pub fn os_ken_python() -> String {
    std::env::var("FLOWYARD_OS_KEN_PYTHON").unwrap_or_else(|_| "python3".into())
}

fn in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn is_live() -> bool {
    std::env::var_os("FLOWYARD_LIVE").is_some_and(|value| value == "1")
}

fn has_namespaces() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| is_root() && succeeds(Command::new("unshare").args(["--net", "true"])))
}

fn has_os_ken() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        succeeds(Command::new(os_ken_python()).args(["-W", "ignore", "-c", "import os_ken"]))
    })
}

fn succeeds(command: &mut Command) -> bool {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A test: its name, its requirements, and the function, which panics if the test fails.
#[derive(Clone, Debug)]
pub struct Test {
    name: String,
    needs: Vec<Need>,
    /// Why it runs only on demand (`--ignored`); empty if it does not.
    on_demand: &'static str,
    run: fn(),
}

impl Test {
    /// Called by [`tests!`](crate::tests!). The name is `module::function`, without the program's name.
    #[doc(hidden)]
    pub fn new(module: &str, name: &str, run: fn()) -> Self {
        let module = module.split_once("::").map_or("", |(_, inner)| inner);
        let name = if module.is_empty() { name.into() } else { format!("{module}::{name}") };
        Self { name, needs: Vec::new(), on_demand: "", run }
    }

    #[doc(hidden)]
    #[must_use]
    pub fn needs(mut self, needs: &[Need]) -> Self {
        self.needs.extend(needs);
        self
    }

    #[doc(hidden)]
    #[must_use]
    pub fn on_demand(mut self, reason: &'static str) -> Self {
        self.on_demand = reason;
        self
    }
}

/// The payload of the panic that [`ignore`] starts.
struct IgnoredBecause(String);

/// Ends the running test as ignored, where the reason shows only while it runs.
pub fn ignore(reason: &str) -> ! {
    // Not panic!, which prints a message.
    resume_unwind(Box::new(IgnoredBecause(reason.to_owned())))
}

/// Parts of tests that were left out, with the reason.
static LEFT_OUT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Whether a part of a test can run here. If not, the program reports that the part was left out.
pub fn can_run(part: &str, need: Need) -> bool {
    let missing = need.check();
    if let Err(missing) = &missing {
        let mut left_out = LEFT_OUT.lock().unwrap_or_else(PoisonError::into_inner);
        left_out.insert(format!("{part} (needs {missing})"));
    }
    missing.is_ok()
}

/// Names of ignored tests by reason.
type Ignored = Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>;

/// Whether `--nocapture` was given.
static SHOW_NOTES: AtomicBool = AtomicBool::new(false);

/// Called by [`note!`](crate::note!).
#[doc(hidden)]
pub fn note(text: std::fmt::Arguments<'_>) {
    if SHOW_NOTES.load(Ordering::Relaxed) {
        let _ = writeln!(std::io::stdout(), "{text}");
    }
}

/// Prints a line if the test program was started with `--nocapture`.
#[macro_export]
macro_rules! note {
    ($($text:tt)*) => {
        $crate::harness::note(format_args!($($text)*))
    };
}

/// Runs the tests that the command line selects, and prints what was ignored and why.
pub fn run(tests: Vec<Test>) -> ExitCode {
    let ignored = Ignored::default();
    let trials = tests.into_iter().map(|test| trial(test, &ignored)).collect();
    let arguments = Arguments::from_args();
    SHOW_NOTES.store(arguments.nocapture, Ordering::Relaxed);
    let conclusion = libtest_mimic::run(&arguments, trials);
    let ignored = ignored.lock().unwrap_or_else(PoisonError::into_inner);
    for (reason, names) in &*ignored {
        let _ = writeln!(std::io::stdout(), "{} ignored: {reason}", names.len());
    }
    for part in &*LEFT_OUT.lock().unwrap_or_else(PoisonError::into_inner) {
        let _ = writeln!(std::io::stdout(), "left out: {part}");
    }
    conclusion.exit_code()
}

fn trial(test: Test, ignored: &Ignored) -> Trial {
    let Test { name, needs, on_demand, run } = test;
    let (own, ignored) = (name.clone(), Arc::clone(ignored));
    let trial = Trial::ignorable_test(name, move || {
        let missing = needs.iter().find_map(|need| need.check().err());
        let reason = match missing {
            Some(missing) => format!("needs {missing}"),
            None => match catch_unwind(run) {
                Ok(()) => return Ok(Completion::Completed),
                Err(panic) => match panic.downcast::<IgnoredBecause>() {
                    Ok(because) => because.0,
                    Err(panic) => resume_unwind(panic),
                },
            },
        };
        let mut ignored = ignored.lock().unwrap_or_else(PoisonError::into_inner);
        ignored.entry(reason.clone()).or_default().insert(own);
        Ok(Completion::ignored_with(reason))
    });
    trial.with_ignored_flag(!on_demand.is_empty()).with_kind(on_demand)
}

/// Lists the tests of a module: a function `tests()` that returns them.
///
/// An entry is the name of a function without arguments, `name needs [Need, ...]`,
/// `name on_demand "reason"` for a test that runs only with `--ignored`, or `mod name` for a module
/// that lists its own tests. `mod name needs [Need, ...]` adds requirements to all tests of a module.
#[macro_export]
macro_rules! tests {
    ($($entries:tt)*) => {
        /// The tests of this module and of the modules in it.
        pub(crate) fn tests() -> Vec<$crate::harness::Test> {
            let mut all = Vec::new();
            $crate::push_tests!(all, $($entries)*);
            all
        }
    };
}

/// Adds the entries of [`tests!`] to a list.
#[doc(hidden)]
#[macro_export]
macro_rules! push_tests {
    ($all:ident $(,)?) => {};
    ($all:ident, mod $module:ident needs $needs:expr $(, $($rest:tt)*)?) => {
        $all.extend($module::tests().into_iter().map(|test| test.needs(&$needs)));
        $crate::push_tests!($all, $($($rest)*)?);
    };
    ($all:ident, mod $module:ident $(, $($rest:tt)*)?) => {
        $all.extend($module::tests());
        $crate::push_tests!($all, $($($rest)*)?);
    };
    ($all:ident, $name:ident needs $needs:expr $(, $($rest:tt)*)?) => {
        $all.extend([$crate::new_test!($name).needs(&$needs)]);
        $crate::push_tests!($all, $($($rest)*)?);
    };
    ($all:ident, $name:ident on_demand $reason:literal $(, $($rest:tt)*)?) => {
        $all.extend([$crate::new_test!($name).on_demand($reason)]);
        $crate::push_tests!($all, $($($rest)*)?);
    };
    ($all:ident, $name:ident $(, $($rest:tt)*)?) => {
        $all.extend([$crate::new_test!($name)]);
        $crate::push_tests!($all, $($($rest)*)?);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! new_test {
    ($name:ident) => {
        $crate::harness::Test::new(module_path!(), stringify!($name), $name)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    mod inner {
        crate::tests! { passes needs [super::Need::Program("sh")] }

        fn passes() {}
    }

    mod lacking {
        crate::tests! { is_ignored }

        fn is_ignored() {
            panic!("the requirement of its module was not checked");
        }
    }

    mod list {
        use super::{Need, inner, lacking};

        crate::tests! {
            passes,
            fails,
            lacks_data needs [Need::Program("sh"), Need::Shared("no such file")],
            measures on_demand "a measurement",
            finds_out,
            mod inner,
            mod lacking needs [Need::Program("no-such-program")],
        }

        fn passes() {}

        fn fails() {
            panic!("on purpose");
        }

        fn lacks_data() {
            panic!("its requirement was not checked");
        }

        fn finds_out() {
            assert!(super::can_run("one part", Need::Program("sh")));
            assert!(!super::can_run("another part", Need::Program("no-such-program")));
            super::ignore("the machine is too slow");
        }

        fn measures() {
            panic!("it was run without --ignored");
        }
    }

    #[test]
    fn a_test_without_its_requirements_is_ignored() {
        let ignored = Ignored::default();
        let all = list::tests();
        let names: Vec<&str> = all.iter().map(|test| test.name.as_str()).collect();
        let wanted = ["passes", "fails", "lacks_data", "measures", "finds_out"];
        let prefix = "harness::tests::";
        assert_eq!(names[..5], wanted.map(|name| format!("{prefix}list::{name}")));
        assert_eq!(names[5], format!("{prefix}inner::passes"));
        let trials = all.into_iter().map(|test| trial(test, &ignored)).collect();
        // Its report is not one of this program.
        let quiet = Arguments { logfile: Some("/dev/null".into()), ..Arguments::default() };
        let conclusion = libtest_mimic::run(&quiet, trials);
        let counts = (conclusion.num_passed, conclusion.num_failed, conclusion.num_ignored);
        assert_eq!(counts, (2, 1, 4));
        let ignored = ignored.lock().unwrap();
        let reasons: Vec<&str> = ignored.keys().map(String::as_str).collect();
        assert_eq!(
            reasons,
            [
                "needs ../shared/no such file",
                "needs the program no-such-program",
                "the machine is too slow"
            ]
        );
    }

    #[test]
    fn parts_that_are_left_out_are_reported() {
        assert!(!can_run("a part", Need::Program("no-such-program-either")));
        let line = "a part (needs the program no-such-program-either)";
        assert!(LEFT_OUT.lock().unwrap().contains(line));
    }

    #[test]
    fn requirements_of_this_machine() {
        assert!(Need::Program("sh").check().is_ok());
        assert_eq!(
            Need::Program("no-such-program").check().unwrap_err(),
            "the program no-such-program"
        );
        assert!(Need::Root.check().is_ok() != Need::NotRoot.check().is_ok());
        assert_eq!(Need::Check(|| Err("a moon".into())).check().unwrap_err(), "a moon");
    }
}
