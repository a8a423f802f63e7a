//! The driver: it takes and refuses rules as the model of an adapter says, and keeps those that it takes in a file.

use std::ffi::c_int;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use flowyard_adapter::fdir::Pballoc;
use flowyard_adapter::rules::{Driver, Rule, RuleAction, Target, Verdict, compile};
use flowyard_host::ntuple::{ANY_LOCATION, Request, SIZE};

const GRXFH: u32 = 0x29;
const GRXRINGS: u32 = 0x2d;
const GRXCLSRLCNT: u32 = 0x2e;
const GRXCLSRULE: u32 = 0x2f;
const GRXCLSRLALL: u32 = 0x30;
const SRXCLSRLDEL: u32 = 0x31;
const SRXCLSRLINS: u32 = 0x32;

/// The commands that the driver has.
pub(crate) const KNOWN: [u32; 7] =
    [GRXFH, GRXRINGS, GRXCLSRLCNT, GRXCLSRULE, GRXCLSRLALL, SRXCLSRLDEL, SRXCLSRLINS];

/// `RX_CLS_LOC_SPECIAL`.
const CHOOSES: u64 = 1 << 31;
/// Queues of the interface.
pub(crate) const QUEUES: u32 = 64;
/// Locations of the driver that takes every rule.
const LOCATIONS: u32 = 4096;

/// What a command answers.
pub(crate) enum Answer {
    /// A number, and a number of rules.
    Data { data: u64, count: Option<u32> },
    /// A rule.
    Rule(Request),
    /// The locations of all rules.
    Locations { size: u64, list: Vec<u32> },
}

/// The driver's state in its folder: the file `model` names the model, `rules` has the rules in the order in which they
/// came, `passed` every request for a new rule.
struct State {
    folder: PathBuf,
    /// `None`: a driver that takes every rule and chooses locations.
    model: Option<Target>,
    rules: Vec<Request>,
}

pub(crate) fn answer(command: u32, given: &Request) -> Result<Answer, c_int> {
    let mut state = State::load().ok_or(libc::EOPNOTSUPP)?;
    let size = state.model.map_or(LOCATIONS, Target::locations);
    let loc = given.location();
    match command {
        GRXRINGS => Ok(Answer::Data { data: QUEUES.into(), count: None }),
        // The ports of TCP and UDP, and the addresses of all types.
        GRXFH => {
            let has_ports = matches!(given.flow_type(), 1 | 2 | 5 | 6);
            Ok(Answer::Data { data: if has_ports { 0xf0 } else { 0x30 }, count: None })
        }
        GRXCLSRLCNT => {
            let chooses = if state.model.is_none() { CHOOSES } else { 0 };
            let count = Some(state.rules.len() as u32);
            Ok(Answer::Data { data: u64::from(size) | chooses, count })
        }
        GRXCLSRLALL => {
            let mut list: Vec<u32> = state.rules.iter().map(Request::location).collect();
            list.sort_unstable();
            Ok(Answer::Locations { size: size.into(), list })
        }
        GRXCLSRULE => {
            let found = state.rules.iter().find(|rule| rule.location() == loc);
            found.map(|rule| Answer::Rule(*rule)).ok_or(libc::ENOENT)
        }
        SRXCLSRLDEL => {
            let before = state.rules.len();
            state.rules.retain(|rule| rule.location() != loc);
            if state.rules.len() == before {
                return Err(libc::ENOENT);
            }
            state.save()?;
            Ok(Answer::Data { data: 0, count: None })
        }
        _ => {
            state.passed(given)?;
            let at = state.place(given)?;
            state.rules.retain(|rule| rule.location() != at);
            state.rules.push(given.meant().at(at));
            state.save()?;
            Ok(Answer::Rule(given.at(at)))
        }
    }
}

/// The folder of the driver's state.
pub(crate) fn folder() -> Option<PathBuf> {
    std::env::var_os("FLOWYARD_ETHSHIM").map(PathBuf::from)
}

/// The name of the model: ixgbe, i40e, ice, or `any`.
fn name(folder: &std::path::Path) -> Option<String> {
    Some(fs::read_to_string(folder.join("model")).ok()?.trim().to_owned())
}

/// The name of the driver.
pub(crate) fn driver() -> Option<String> {
    // The driver of Linux that takes most rules, and has RSS contexts.
    name(&folder()?).map(|name| if name == "any" { "mlx5_core".to_owned() } else { name })
}

/// Whether a rule spreads over an RSS context.
pub(crate) fn uses_context(context: u32) -> bool {
    State::load().is_some_and(|state| {
        state.rules.iter().filter_map(|rule| rule.decode().ok()).any(
            |rule| matches!(rule.action, RuleAction::Context { context: of, .. } if of == context),
        )
    })
}

/// The highest queue of the rules.
pub(crate) fn highest_queue() -> Option<u32> {
    let rules = State::load()?.rules;
    let queue = |rule: &Request| match rule.decode().ok()?.action {
        RuleAction::Queue(queue) => Some(queue),
        _ => None,
    };
    rules.iter().filter_map(queue).max()
}

impl State {
    fn load() -> Option<Self> {
        let folder = folder()?;
        let model = match name(&folder)?.as_str() {
            "ixgbe" => Some(Target::E82599 { pballoc: Pballoc::K64, driver: Driver::InTree }),
            "i40e" => Some(Target::I40e { guaranteed: 512, best_effort: 7168 }),
            "ice" => Some(Target::Ice),
            _ => None,
        };
        let bytes = fs::read(folder.join("rules")).unwrap_or_default();
        let rules = bytes.as_chunks::<SIZE>().0.iter().map(|rule| Request::from_bytes(*rule));
        Some(Self { rules: rules.collect(), folder, model })
    }

    /// The location of a new rule, or the error of the driver.
    fn place(&self, given: &Request) -> Result<u32, c_int> {
        let read = |request: &Request| request.decode().map_err(|_| libc::EOPNOTSUPP);
        let Some(target) = self.model else {
            read(given)?;
            let free = |loc: &u32| self.rules.iter().all(|rule| rule.location() != *loc);
            return match given.location() {
                ANY_LOCATION => (0..LOCATIONS).find(free).ok_or(libc::ENOSPC),
                loc if loc < LOCATIONS => Ok(loc),
                _ => Err(libc::EINVAL),
            };
        };
        let rules: Vec<Rule> =
            self.rules.iter().chain([given]).map(read).collect::<Result<_, _>>()?;
        match compile(&rules, target).pop() {
            // ixgbe also installs a rule that it has already.
            Some(Verdict::Accepted { loc, .. }) => Ok(loc),
            Some(Verdict::Merged { .. }) => Ok(given.location()),
            Some(Verdict::Refused { text, .. }) if text.contains("-EOPNOTSUPP") => {
                Err(libc::EOPNOTSUPP)
            }
            Some(Verdict::Refused { text, .. }) if text.contains("-ENOSPC") => Err(libc::ENOSPC),
            _ => Err(libc::EINVAL),
        }
    }

    fn passed(&self, given: &Request) -> Result<(), c_int> {
        let file = OpenOptions::new().create(true).append(true).open(self.folder.join("passed"));
        file.and_then(|mut file| file.write_all(given.as_bytes())).map_err(|_| libc::EIO)
    }

    fn save(&self) -> Result<(), c_int> {
        let bytes: Vec<u8> = self.rules.iter().flat_map(|rule| *rule.as_bytes()).collect();
        fs::write(self.folder.join("rules"), bytes).map_err(|_| libc::EIO)
    }
}
